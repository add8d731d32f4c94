"""Why a server cannot start, told before it is started.

Each obstacle is one that vLLM itself would meet: its parser (exit code 2), its registry of models,
or the validation of its configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from vllm_upgrade_operator.vllm.facts import known
from vllm_upgrade_operator.vllm.facts.choice import predict_runner
from vllm_upgrade_operator.vllm.facts.setup import Machine, Setup
from vllm_upgrade_operator.vllm.facts.verification import verification

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_upgrade_operator.vllm.options import Options
    from vllm_upgrade_operator.vllm.versions import Version


class Kind(StrEnum):
    """What an obstacle is about."""

    FLAG_UNKNOWN = "FlagUnknown"
    FLAG_REMOVED = "FlagRemoved"
    FLAG_AMBIGUOUS = "FlagAmbiguous"
    ARCHITECTURE_REMOVED = "ArchitectureRemoved"
    ARCHITECTURE_UNKNOWN = "ArchitectureUnknown"
    RUNNER_IMPOSSIBLE = "RunnerImpossible"
    VERIFICATION_IMPOSSIBLE = "VerificationImpossible"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a server cannot start.

    Attributes:
        kind: What it is about.
        subject: The flag, architecture or method at fault.
        sentence: What is wrong, as a clause.
        advice: What to do, as a clause.
        certain: False where something that is not known here may still let it start.
    """

    kind: Kind
    subject: str
    sentence: str
    advice: str
    certain: bool = True


def cannot_start(
    version: Version,
    options: Options,
    *,
    architecture: str | None = None,
    draft_architecture: str | None = None,
    machine: Machine | None = None,
) -> tuple[Obstacle, ...]:
    """Say why a server would not start; nothing where no reason is known.

    Args: as of `predict_runner`. `options` must have been read for the same version.
    """
    found = known.nearest(version)
    setup = Setup(
        version=found.version,
        options=options,
        architecture=architecture,
        draft_architecture=draft_architecture,
        machine=machine or Machine(),
    )
    obstacles = [*_of_flags(setup, certain=found.certain)]
    if architecture is not None:
        obstacles += _of_architecture(setup.version, architecture, certain=found.certain)
    obstacles += (
        Obstacle(Kind.VERIFICATION_IMPOSSIBLE, p.subject, p.sentence, p.advice, found.certain)
        for p in verification(setup)
    )
    prediction = predict_runner(
        version,
        options,
        architecture=architecture,
        draft_architecture=draft_architecture,
        machine=machine,
    )
    if prediction.refusal is not None:
        obstacles.append(
            Obstacle(
                Kind.RUNNER_IMPOSSIBLE,
                str(prediction.runner),
                f"vLLM {_name(setup.version)} refuses it: {prediction.refusal}",
                "do without what it names, or leave the choice of the runner to vLLM",
                found.certain,
            )
        )
    return tuple(obstacles)


def _of_flags(setup: Setup, *, certain: bool) -> Iterator[Obstacle]:
    name = _name(setup.version)
    for flag in setup.options.unknown:
        had = [v for v in known.versions() if flag in known.flags(v)]
        before = [v for v in had if v < setup.version]
        after = [v for v in had if v > setup.version]
        if before:
            kind, how = Kind.FLAG_REMOVED, f"the last with it is {_name(max(before))}"
        elif after:
            kind, how = Kind.FLAG_UNKNOWN, f"the first with it is {_name(min(after))}"
        else:
            kind, how = Kind.FLAG_UNKNOWN, "and neither does any version that is known"
        yield Obstacle(
            kind,
            flag,
            f"vLLM {name} does not have --{flag.lstrip('-')} ({how}), and ends with exit code 2",
            "take it out with unsetArgs, or use a version that has it",
            certain,
        )
    for flag, meant in setup.options.ambiguous.items():
        several = ", ".join(f"--{m}" for m in meant[:5])
        yield Obstacle(
            Kind.FLAG_AMBIGUOUS,
            flag,
            f"--{flag} may stand for {several} in vLLM {name}, which ends with exit code 2",
            "write the flag out",
            certain,
        )


def _of_architecture(version: Version, architecture: str, *, certain: bool) -> Iterator[Obstacle]:
    if architecture in known.architectures(version):
        return
    last = known.last_version_with(architecture)
    had = [v for v in known.versions() if architecture in known.architectures(v)]
    gone = [v for v in had if v < version]
    if last is not None or gone:
        yield Obstacle(
            Kind.ARCHITECTURE_REMOVED,
            architecture,
            f"vLLM {_name(version)} does not have architecture {architecture} any more; the last "
            f"with it is {last or _name(max(gone))}",
            "stay on a version that has it, or use another model",
            certain,
        )
        return
    since = f"; the first with it is {_name(min(had))}" if had else ""
    yield Obstacle(
        Kind.ARCHITECTURE_UNKNOWN,
        architecture,
        f"vLLM {_name(version)} does not list architecture {architecture}{since}",
        "use a version that has it; a plugin in the image or the Transformers library may bring it",
        certain=False,
    )


def _name(version: Version) -> str:
    return f"{version.major}.{version.minor}"
