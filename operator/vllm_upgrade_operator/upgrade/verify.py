"""Is a canary pod what it should be? Before traffic: version and runner, by what the pod says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from vllm_upgrade_operator.upgrade.exceptions import holding

if TYPE_CHECKING:
    from vllm_upgrade_operator.api.v1alpha1 import Candidate as CandidateSpec
    from vllm_upgrade_operator.api.v1alpha1 import Runner as RunnerSpec
    from vllm_upgrade_operator.upgrade.observation import Pod


class Kind(StrEnum):
    """What verification says of a pod."""

    VERIFIED = "Verified"
    EXCEPTED = "Excepted"
    """On the fallback, as was decided: by an exception for each feature, or onMismatch: Allow."""
    WAITING = "Waiting"
    WRONG_VERSION = "VersionMismatch"
    WRONG_RUNNER = "RunnerMismatch"


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome for one pod, and a clause that says why."""

    kind: Kind
    message: str

    @property
    def accepted(self) -> bool:
        """Whether the pod may be admitted to the traffic."""
        return self.kind in (Kind.VERIFIED, Kind.EXCEPTED)


def verify(pod: Pod, candidate: CandidateSpec, runner: RunnerSpec, now: float) -> Finding:
    """Judge one ready pod against the spec.

    A pod whose runner cannot be told stays `Waiting`, unless any runner will do: what is not
    known is never taken for what was asked. The same goes for the image that it runs.
    """
    if pod.digest is None:
        return Finding(Kind.WAITING, f"image digest of {pod.name} is not known yet")
    if pod.version is None and candidate.version is not None:
        return Finding(Kind.WAITING, f"{pod.name} has not answered GET /version")
    if candidate.version is not None and pod.version != candidate.version:
        return Finding(
            Kind.WRONG_VERSION,
            f"{pod.name} answers version {pod.version}, spec.candidate.version says "
            f"{candidate.version}",
        )
    return _verify_runner(pod, runner, now)


def _verify_runner(pod: Pod, runner: RunnerSpec, now: float) -> Finding:
    if runner.expected == "Any":
        observed = "unknown runner" if pod.runner is None else f"runner {pod.runner.runner}"
        return Finding(Kind.VERIFIED, f"{pod.name}: {observed}, any is accepted")
    if pod.runner is None or pod.runner.runner not in ("V1", "V2"):
        how = "its log was not read yet" if pod.runner is None else pod.runner.how
        return Finding(Kind.WAITING, f"runner of {pod.name} is not known: {how}")
    if pod.runner.runner == runner.expected:
        return Finding(Kind.VERIFIED, f"{pod.name} runs {pod.runner.runner}")
    features = pod.runner.fallback_features
    clause = f"{pod.name} runs {pod.runner.runner}, expected {runner.expected}" + (
        f" (falls back for: {', '.join(features)})" if features else " (no fallback was logged)"
    )
    if runner.on_mismatch == "Allow":
        return Finding(Kind.EXCEPTED, f"{clause}; allowed by spec.runner.onMismatch")
    missing = [f for f in features if holding(f, runner.exceptions, now) is None]
    if features and not missing:
        return Finding(Kind.EXCEPTED, f"{clause}; every feature has an exception")
    return Finding(Kind.WRONG_RUNNER, clause)
