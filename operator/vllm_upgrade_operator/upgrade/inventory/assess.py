"""What stands against a workload on another version: the checks of preflight that need no spec."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm_upgrade_operator.api.v1alpha1 import PreflightResult
from vllm_upgrade_operator.upgrade.health import is_ready
from vllm_upgrade_operator.upgrade.inventory.row import (
    ORDER,
    Finding,
    Row,
    Severity,
    counted,
)
from vllm_upgrade_operator.upgrade.preflight import admission, memory, runners, versions
from vllm_upgrade_operator.upgrade.preflight.configs import told_by
from vllm_upgrade_operator.upgrade.preflight.server import Release, Server, running, server
from vllm_upgrade_operator.vllm.facts.features import features_in_use
from vllm_upgrade_operator.vllm.facts.releases import ADMISSION_FLAGS
from vllm_upgrade_operator.vllm.facts.setup import RUNNER_VARIABLE
from vllm_upgrade_operator.vllm.image import moving
from vllm_upgrade_operator.vllm.runner import Runner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vllm_upgrade_operator.upgrade.inventory.workload import Workload
    from vllm_upgrade_operator.upgrade.preflight.answer import Answer
    from vllm_upgrade_operator.upgrade.preflight.subject import Sides

    Check = Callable[[Sides], Answer]

_UPGRADABLE = "Deployment"

_BAD = frozenset({PreflightResult.BLOCK, PreflightResult.WARN})
# By check: how severe what it finds is. What keeps it from starting is that even where the facts
# are those of a nearby version.
_STARTING: tuple[Check, ...] = (
    versions.architecture,
    versions.flags,
    runners.can_run,
    versions.speculative_decoding,
)
_LIMITS: tuple[Check, ...] = (memory.batch, memory.kv_cache)
_ADVICE: tuple[Check, ...] = (versions.environment, versions.deprecated_flags)
# What could not be told for these is worth saying: the prediction rests on it.
_TELLING: tuple[Check, ...] = (versions.architecture, versions.flags)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A server as it is, and the same one on another version."""

    stable: Server
    candidate: Server


def assess(workload: Workload, target: Release) -> Row:
    """Say what stands against a workload on a version.

    Args:
        workload: As it was seen.
        target: The version.
    """
    ready = [p for p in workload.pods if is_ready(p)]
    if workload.container is None:
        return Row(
            namespace=workload.namespace,
            kind=workload.kind,
            name=workload.name,
            **_observed(workload),
            endpoints=counted(ready),
            predicted=Runner.UNKNOWN,
            predicted_certain=False,
            features=(),
            limits="",
            findings=(_advice("NotRecognised", workload.problem or "its container is not known"),),
        )
    told = told_by(workload.pod_spec, workload.container, workload.config_maps)
    now = running(workload.container, workload.pods, told)
    move = Move(stable=now, candidate=server(workload.container, target, now.model, told))
    prediction = move.candidate.prediction
    found = sorted(_findings(workload, move), key=lambda f: ORDER.index(f.severity))
    startable = not any(f.severity is Severity.CANNOT_START for f in found)
    return Row(
        namespace=workload.namespace,
        kind=workload.kind,
        name=workload.name,
        version=now.release.text,
        version_from=_source(now.release),
        endpoints=counted(ready),
        predicted=prediction.runner if prediction is not None and startable else Runner.UNKNOWN,
        predicted_certain=prediction is not None and prediction.certain,
        architecture=now.model.architecture or "",
        features=_features(move),
        limits=_limits(now),
        findings=tuple(found),
    )


def _findings(workload: Workload, move: Move) -> Iterator[Finding]:
    for check in _STARTING:
        yield from _found(check(move), _BAD, Severity.CANNOT_START)
    for check in _LIMITS:
        answer = check(move)
        yield from _found(answer, {PreflightResult.BLOCK}, Severity.CANNOT_START)
        yield from _found(answer, {PreflightResult.WARN}, Severity.ADVICE)
    yield from _fallback(move)
    yield from _found(admission.limits(move), _BAD, Severity.ADMISSION)
    for check in _ADVICE:
        yield from _found(check(move), _BAD, Severity.ADVICE)
    for check in _TELLING:
        yield from _found(check(move), {PreflightResult.UNKNOWN}, Severity.ADVICE)
    yield from _of_the_workload(workload, move)


def _found(
    answer: Answer, results: frozenset[PreflightResult] | set[PreflightResult], as_: Severity
) -> Iterator[Finding]:
    if answer.result in results:
        yield Finding(severity=as_, reason=answer.reason, message=answer.message)


def _fallback(move: Move) -> Iterator[Finding]:
    prediction = move.candidate.prediction
    if prediction is None or prediction.refusal is not None or prediction.runner is not Runner.V1:
        return
    if prediction.features:
        names = ", ".join(prediction.features)
        message = (
            f"it would fall back to V1: {prediction.why}; do without {names}, or decide on it by "
            "an exception in spec.runner.exceptions with a day to test it again"
        )
        yield Finding(severity=Severity.FALLS_BACK, reason="FallsBack", message=message)
        return
    message = f"it would run V1: {prediction.why}; unset {RUNNER_VARIABLE} to try V2"
    yield Finding(severity=Severity.FALLS_BACK, reason="KeptOnV1", message=message)


def _of_the_workload(workload: Workload, move: Move) -> Iterator[Finding]:
    ready = [p for p in workload.pods if is_ready(p)]
    answered = sorted({p.version for p in ready if p.version is not None})
    if workload.owner is not None:
        yield _advice(
            "OwnedByController",
            f"it is controlled by {workload.owner}, which puts back what anybody else changes: "
            "upgrade it there",
        )
    elif workload.kind != _UPGRADABLE:
        yield _advice(
            "KindNotSupported",
            f"a VLLMUpgrade upgrades Deployments, and this is a {workload.kind}: upgrade it by "
            "what deploys it, by what is said here",
        )
    if len(answered) > 1:
        yield _advice(
            "MixedVersions", f"its pods run several versions ({', '.join(answered[:4])}): see why"
        )
    if move.stable.release.version is None:
        yield _advice(
            "VersionUnknown",
            f"the version of vLLM in {move.stable.image} is not known: no ready pod's log says it, "
            "and its tag is none",
        )
    if moving(move.stable.image):
        yield _advice(
            "MovingTag",
            f"its image {move.stable.image} may become another one at any time: name a release or "
            "a digest",
        )
    prediction = move.stable.prediction
    seen = {p.runner.runner for p in ready if p.runner is not None} - {Runner.UNKNOWN}
    if prediction is not None and prediction.certain and seen and seen != {prediction.runner}:
        yield _advice(
            "NotAsPredicted",
            f"it runs {' and '.join(sorted(seen))}, and by vLLM's rules it would run "
            f"{prediction.runner} ({prediction.why}): the prediction may be wrong too",
        )


def _advice(reason: str, message: str) -> Finding:
    return Finding(severity=Severity.ADVICE, reason=reason, message=message)


def _features(move: Move) -> tuple[str, ...]:
    """Names of what is surely used that one of the runners lacks, before or after."""
    setups = [s for s in (move.stable.setup, move.candidate.setup) if s is not None]
    return tuple(dict.fromkeys(f.name for s in setups for f in features_in_use(s) if f.certain))


def _limits(now: Server) -> str:
    options = now.options
    given = [f for f in ADMISSION_FLAGS if f in options.given]
    return " ".join(f"{f}={options.text(f) or '?'}" for f in given)


def _source(release: Release) -> str:
    if release.version is None and not release.text:
        return "unknown"
    return "observed" if release.observed else "tag"


def _observed(workload: Workload) -> dict[str, str]:
    """What the pods of a workload say whose container is not known."""
    answered = {p.version for p in workload.pods if p.version is not None}
    named = {p.model.architecture for p in workload.pods if p.model is not None} - {None}
    version = answered.pop() if len(answered) == 1 else ""
    return {
        "version": version,
        "version_from": "observed" if version else "unknown",
        "architecture": str(named.pop()) if len(named) == 1 else "",
    }
