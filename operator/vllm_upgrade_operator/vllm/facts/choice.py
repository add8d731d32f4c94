"""Which model runner a version of vLLM would choose: its own rules, in its own order.

Source: VllmConfig.use_v2_model_runner (config/vllm.py 0.28:615, 0.29:645, 0.30:675, 0.31:701,
0.32:703, 0.33:731) and what validates its answer (0.28:1601, 0.29:1653, 0.32:2016, 0.33:2092).

A prediction is what the rules say of what can be seen from outside. It is never an observation:
`runner.py` reads what a running server says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm_upgrade_operator.vllm.facts import choice028, known
from vllm_upgrade_operator.vllm.facts.features import lacking
from vllm_upgrade_operator.vllm.facts.rules import Choice, Rules
from vllm_upgrade_operator.vllm.facts.setup import RUNNER_VARIABLE, Machine, Setup
from vllm_upgrade_operator.vllm.runner import TRITON, Runner
from vllm_upgrade_operator.vllm.versions import Version

if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_upgrade_operator.vllm.options import Options


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What would run.

    Attributes:
        runner: By the rules.
        certain: All that the rules ask was known; else `unsure` says what was not.
        why: The rule that decides, as a clause.
        features: What it would fall back to V1 for, in vLLM's words, as its log would say.
        refusal: vLLM's own words where it would not start; None where it would.
        unsure: What is not known and could change this, as clauses.
    """

    runner: Runner
    certain: bool
    why: str
    features: tuple[str, ...] = ()
    refusal: str | None = None
    unsure: tuple[str, ...] = ()


def predict_runner(
    version: Version,
    options: Options,
    *,
    architecture: str | None = None,
    draft_architecture: str | None = None,
    machine: Machine | None = None,
) -> Prediction:
    """Predict the runner of a server.

    Args:
        version: Of vLLM; for one that is not known, the rules of the nearest known one are taken.
        options: What the server is told.
        architecture: Of the model, where it is known.
        draft_architecture: Of the draft model of speculative decoding, where it is known.
        machine: What it runs on, as far as it is known.
    """
    found = known.nearest(version)
    setup = Setup(
        version=found.version,
        options=options,
        architecture=architecture,
        draft_architecture=draft_architecture,
        machine=machine or Machine(),
    )
    unsure: list[str] = []
    if not found.certain:
        unsure.append(
            f"the rules of vLLM {version.major}.{version.minor} are not known; those of "
            f"{found.version.major}.{found.version.minor} are taken"
        )
    choice = _choose(setup)
    refusal = choice.refusal
    if refusal is None:
        refusal = (_refused_by_v2 if choice.runner is Runner.V2 else _refused_by_v1)(setup, choice)
    unsure += dict.fromkeys(choice.unsure)
    return Prediction(
        runner=choice.runner,
        certain=not unsure,
        why=choice.why,
        features=choice.features,
        refusal=refusal,
        unsure=tuple(unsure),
    )


def _choose(setup: Setup) -> Choice:
    rules = Rules(setup)
    for since, until, rule in _RULES:
        if since <= setup.version <= until:
            choice = rule(rules)
            if choice is not None:
                return choice
    return rules.decided(Runner.V2, "V2 is the default")


def _hisparse(rules: Rules) -> Choice | None:
    settings = rules.setup.options.settings("attention-config")
    wanted = None if settings is None else settings.get("hisparse_config") is not None
    if not rules.asks(wanted, "HiSparse is configured"):
        return None
    is_set, value = rules.setup.forced()
    off = is_set and value is not None and _boolean(value) is False
    return rules.decided(
        Runner.V2,
        "HiSparse needs V2",
        refusal=f"HiSparse requires Model Runner V2; remove {RUNNER_VARIABLE}=0." if off else None,
    )


def _watermark(rules: Rules) -> Choice | None:
    wanted = rules.setup.options.is_on("watermark-config")
    if not rules.asks(wanted, "watermarking is configured"):
        return None
    return rules.decided(Runner.V2, f"watermarking needs V2, whatever {RUNNER_VARIABLE} says")


def _variable(rules: Rules) -> Choice | None:
    is_set, value = rules.setup.forced()
    if not is_set:
        return None
    if value is None:
        rules.note_unknown(f"{RUNNER_VARIABLE} may be set to a value that is not known")
        return None
    wanted = _boolean(value)
    if wanted is None:
        return rules.decided(
            Runner.UNKNOWN,
            f"{RUNNER_VARIABLE} is no number",
            refusal=f"invalid literal for int() with base 10: {value[:40]!r}",
        )
    runner = Runner.V2 if wanted else Runner.V1
    return rules.decided(runner, f"{RUNNER_VARIABLE}={value.strip()[:8]} forces it")


# ROCM_DEFAULT_MRV1_ARCHITECTURES, config/vllm.py 0.29:71; gone in 0.32.
_V1_ON_ROCM = frozenset({"DeepseekV32ForCausalLM", "DeepseekV4ForCausalLM"})


def _rocm_list(rules: Rules) -> Choice | None:
    s = rules.setup
    if s.architecture not in _V1_ON_ROCM:
        return None
    if not rules.asks(s.machine.rocm, "it runs on an AMD GPU"):
        return None
    # From 0.31 on the list yields where V1 lacks something (config/vllm.py 0.31:731).
    if s.version >= Version(0, 31) and any(f.certain for f in lacking(Runner.V1, s)):
        return None
    return rules.decided(
        Runner.V1,
        f"a list of exceptions keeps {s.architecture} on V1 on AMD GPUs",
        features=(f"ROCm default for {s.architecture}",),
    )


def _no_triton(rules: Rules) -> Choice | None:
    triton = rules.setup.machine.triton
    if triton is None:
        rules.unsure.append(_TRITON_UNKNOWN)
    if triton is not False:
        return None
    return rules.decided(Runner.V1, "there is no Triton, which V2 needs", features=(TRITON,))


def _unsupported(rules: Rules) -> Choice | None:
    found = lacking(Runner.V2, rules.setup)
    certain = tuple(f.name for f in found if f.certain)
    if certain:
        return rules.decided(
            Runner.V1, f"V2 does not support {', '.join(certain)}", features=certain
        )
    rules.note_unknown(*(f"whether it uses {f.name} is not known" for f in found))
    return None


_TRITON_UNKNOWN = "whether the image has a Triton that works is not known"
_OLDEST, _NEWEST = Version(0, 28), Version(0, 33)

# In vLLM's order, each with the first and the last version that has it.
_RULES: tuple[tuple[Version, Version, Callable[[Rules], Choice | None]], ...] = (
    (Version(0, 30), _NEWEST, _hisparse),
    (Version(0, 30), _NEWEST, _watermark),
    (_OLDEST, _NEWEST, _variable),
    (_OLDEST, _OLDEST, choice028.needs_v2),
    (_OLDEST, _OLDEST, choice028.default_model),
    (Version(0, 29), Version(0, 31), _rocm_list),
    (_OLDEST, _NEWEST, _no_triton),
    (_OLDEST, _NEWEST, _unsupported),
)


def _refused_by_v2(setup: Setup, choice: Choice) -> str | None:
    if setup.machine.triton is False:
        return "Model Runner V2 requires Triton."
    if setup.machine.triton is None:
        choice.unsure.append(_TRITON_UNKNOWN)
    found = lacking(Runner.V2, setup)
    certain = [f.name for f in found if f.certain]
    if certain:
        return f"Model Runner V2 does not yet support: {', '.join(certain)}"
    choice.unsure += _may_use(setup, [f.name for f in found], "V2")
    return None


def _refused_by_v1(setup: Setup, choice: Choice) -> str | None:
    if setup.version < Version(0, 29):
        if setup.more_than_one("prefill-context-parallel-size"):
            return (
                f"Prefill context parallelism requires Model Runner V2. Remove {RUNNER_VARIABLE}=0."
            )
        return None
    found = lacking(Runner.V1, setup)
    certain = [f.name for f in found if f.certain]
    if certain:
        return f"Model Runner V1 does not support: {', '.join(certain)}"
    choice.unsure += _may_use(setup, [f.name for f in found], "V1")
    return None


def _may_use(setup: Setup, names: list[str], runner: str) -> list[str]:
    if setup.options.unread:
        return list(setup.options.unread)
    return [f"whether it uses {name}, which {runner} lacks, is not known" for name in names]


def _boolean(value: str) -> bool | None:
    """Read `bool(int(value))`; None where vLLM's reading fails, which ends its start."""
    try:
        return bool(int(value[:20]))
    except ValueError:
        return None
