"""Which model runner a vLLM process really runs, read from its start-up log.

Nothing that vLLM serves over HTTP by itself says it (0.28 to 0.33; for our plugin see
`runnermetric.py`), and the environment variable only says what was asked for. What is decisive is
what the *worker* processes print:

* V2: `Using V2 Model Runner` (v1/worker/gpu_worker.py, cpu_worker.py, xpu_worker.py, the same
  text in 0.28 to 0.33), then `Loading model from scratch...`.
* V1: there is no counterpart, but `Starting to load model ...` is printed by V1 runners only
  (v1/worker/gpu_model_runner.py, cpu_model_runner.py in 0.28 to 0.33).

`Initializing a V1 LLM engine` is printed by every version and means the engine, not the runner.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from vllm_upgrade_operator.vllm.logs import log_lines, messages

if TYPE_CHECKING:
    from vllm_upgrade_operator.vllm.logs import LogLine


class Runner(StrEnum):
    """A model runner, or that it is not known."""

    V1 = "V1"
    V2 = "V2"
    UNKNOWN = "Unknown"


class Source(StrEnum):
    """Where the runner was seen."""

    METRIC = "metric"
    LOG = "log"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerEvidence:
    """What was seen of the runner.

    Attributes:
        runner: What every worker that spoke agrees on; else `UNKNOWN`.
        how: One line for a person: which log line decided, or why none could.
        fallback_features: What made vLLM fall back to V1, as it says; `triton` where Triton is
            missing; `ROCm default for <architecture>` for its list of exceptions on ROCm.
        refused: vLLM did not start because of the runner: its own words.
        conflicting: Workers of one pod disagree.
        source: Where it was seen.
        seen_at: When, seconds since the Unix epoch; None for a saved file.
    """

    runner: Runner
    how: str
    fallback_features: tuple[str, ...] = ()
    refused: str | None = None
    conflicting: bool = False
    source: Source = Source.NONE
    seen_at: float | None = None


@dataclass(frozen=True, slots=True)
class _Proof:
    """A message that only one runner prints, and the source file that prints it."""

    runner: Runner
    file: re.Pattern[str]
    message: re.Pattern[str]
    named: str


_V1_FILE = re.compile(r"(?:gpu|cpu|xpu)_model_runner\.py")
_V2_FILE = re.compile(r"model_runner\.py")
_PROOFS = (
    _Proof(
        Runner.V2,
        re.compile(r"(?:gpu|cpu|xpu)_worker\.py"),
        re.compile(r"Using V2 Model Runner"),
        "Using V2 Model Runner",
    ),
    _Proof(
        Runner.V1,
        _V1_FILE,
        re.compile(r"Starting to load model .*\.\.\."),
        "Starting to load model",
    ),
    # For a log whose beginning was rotated away: both runners print these, each from its file.
    *(
        _Proof(runner, file, re.compile(start + ".*"), start)
        for start in ("Model loading took ", "Graph capturing finished ")
        for runner, file in ((Runner.V1, _V1_FILE), (Runner.V2, _V2_FILE))
    ),
)

TRITON = "triton"
"""The name of a missing Triton among the features that make vLLM fall back."""
_PROVING = ("_worker.py", "model_runner.py")

_NO_TRITON = "Model Runner V2 requires Triton; using the V1 model runner instead."
_UNSUPPORTED = re.compile(
    r"Model Runner V2 does not yet support (?P<features>.+); "
    r"using the V1 model runner instead\."
)
_ROCM = re.compile(
    r"Defaulting to V1 model runner on ROCm for model architectures: (?P<architectures>.+?)\.?"
)
_REFUSAL = re.compile(
    r"(?:Value error, |ValueError: |pydantic_core\.\S+: )"
    r"(?P<words>Model Runner V[12] (?:does not (?:yet )?support: [^\[]+|requires Triton\.)"
    r"|Prefill context parallelism requires Model Runner V2\.[^\[]*)"
)
_REFUSAL_LIMIT = 300

# A feature's name must fit into `spec.runner.exceptions` (128 characters), into an annotation and
# into a message, whatever a log says.
_FEATURE_LIMIT = 128


def observe(log: str) -> RunnerEvidence:
    """Tell the runner from the start-up log of a pod's vLLM container.

    Every worker that says something must say the same. Nothing is concluded from silence: a
    log without a worker's line gives `UNKNOWN` with the reason.
    """
    proofs: dict[tuple[str, int], dict[Runner, str]] = {}
    features: dict[str, None] = {}
    any_line = False
    for line in log_lines(log):
        any_line = True
        features.update(dict.fromkeys(f[:_FEATURE_LIMIT] for f in _fallback_features(line.message)))
        proof = _proof(line)
        if proof is not None:
            said = f"{line.process} pid {line.pid} logged {proof.named.strip()!r} ({line.file})"
            proofs.setdefault((line.process, line.pid), {}).setdefault(proof.runner, said)
    refused = _refusal(log)
    seen = {runner for by_runner in proofs.values() for runner in by_runner}
    if len(seen) > 1:
        return RunnerEvidence(
            runner=Runner.UNKNOWN,
            how="workers disagree: "
            + "; ".join(next(iter(_said(proofs, r)), "") for r in sorted(seen)),
            fallback_features=tuple(features),
            refused=refused,
            conflicting=True,
            source=Source.LOG,
        )
    if seen:
        runner = seen.pop()
        said_all = _said(proofs, runner)
        others = len(said_all) - 1
        return RunnerEvidence(
            runner=runner,
            how=said_all[0] + (f", and {others} more likewise" if others else ""),
            fallback_features=tuple(features) if runner is Runner.V1 else (),
            refused=refused,
            source=Source.LOG,
        )
    return RunnerEvidence(
        runner=Runner.UNKNOWN,
        how=_why_unknown(any_line=any_line, features=tuple(features), refused=refused),
        fallback_features=tuple(features),
        refused=refused,
    )


def _proof(line: LogLine) -> _Proof | None:
    if not line.file.endswith(_PROVING) or not line.of_engine:
        return None
    for proof in _PROOFS:
        if proof.file.fullmatch(line.file) and proof.message.fullmatch(line.message):
            return proof
    return None


def _said(proofs: dict[tuple[str, int], dict[Runner, str]], runner: Runner) -> list[str]:
    return [by_runner[runner] for by_runner in proofs.values() if runner in by_runner]


def _why_unknown(*, any_line: bool, features: tuple[str, ...], refused: str | None) -> str:
    if refused is not None:
        return f"vLLM refused to start: {refused}"
    if features:
        return (
            f"a fallback to V1 is announced ({', '.join(features)}), "
            "but no worker has said what it runs yet"
        )
    if any_line:
        return "no worker has logged which runner it uses (not yet, or those lines are gone)"
    return "the log has no line in vLLM's format"


def _fallback_features(message: str) -> tuple[str, ...]:
    if "V1 model runner" not in message:
        return ()
    if message == _NO_TRITON:
        return (TRITON,)
    if match := _UNSUPPORTED.fullmatch(message):
        return tuple(split_features(match["features"]))
    if match := _ROCM.fullmatch(message):
        names = re.findall(r"\w+", match["architectures"])
        return tuple(f"ROCm default for {name}" for name in names)
    return ()


def split_features(text: str) -> list[str]:
    """Split vLLM's list of features at its commas, but not inside brackets or quotes."""
    parts: list[str] = []
    part = ""
    depth = 0
    quote = ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth = max(0, depth - 1)
        elif character == "," and depth == 0:
            parts.append(part.strip())
            part = ""
            continue
        part += character
    return [p for p in (*parts, part.strip()) if p]


def _refusal(log: str) -> str | None:
    """Find why vLLM refused the configuration; tracebacks are not in its log format."""
    found: str | None = None
    for message in messages(log):
        match = _REFUSAL.match(message) if "Model Runner V" in message else None
        if match is not None:
            found = match["words"].strip()[:_REFUSAL_LIMIT]
    return found
