"""The checks of preflight, in order of severity, and what they come to together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.api.v1alpha1 import PreflightCheck, PreflightResult
from vllm_upgrade_operator.upgrade.observation import Refusal
from vllm_upgrade_operator.upgrade.preflight import (
    admission,
    budgets,
    capacity,
    change,
    drivers,
    images,
    labels,
    memory,
    pairs,
    quality,
    references,
    runners,
    server,
    target,
    times,
    versions,
    volumes,
)
from vllm_upgrade_operator.upgrade.preflight.answer import block
from vllm_upgrade_operator.upgrade.preflight.subject import Subject, Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from vllm_upgrade_operator.upgrade.observation import Observation, Target
    from vllm_upgrade_operator.upgrade.preflight.answer import Answer
    from vllm_upgrade_operator.upgrade.surroundings import Surroundings

    TargetCheck = Callable[[Subject], Answer]
    CandidateCheck = Callable[[Trial], Answer]

_MESSAGE_LIMIT = 1024

# Of the target alone: asked first, since without these nothing else makes sense.
TARGET: tuple[tuple[str, TargetCheck], ...] = (
    ("target-strategy", target.strategy),
    ("target-paused", target.paused),
    ("target-scaled", target.scaled),
    ("steps", target.steps),
    ("target-owner", target.owner),
)

CANDIDATE: tuple[tuple[str, CandidateCheck], ...] = (
    # What cannot be tried, or not start.
    ("change", labels.a_change),
    ("labels-own", labels.own_labels),
    ("labels-traffic", labels.traffic_labels_stay),
    ("host-network", labels.own_network),
    ("selectors", labels.unselected),
    ("version", versions.version_known),
    ("architecture", versions.architecture),
    ("flags", versions.flags),
    ("runner-possible", runners.can_run),
    ("speculative-decoding", versions.speculative_decoding),
    ("lossy-verification", quality.lossy_verification),
    ("batch", memory.batch),
    ("kv-cache", memory.kv_cache),
    ("cuda-driver", drivers.cuda),
    ("references", references.references),
    ("volumes", volumes.shared_volumes),
    ("prefill-decode", pairs.prefill_decode),
    ("stable-image", images.one_stable_image),
    # What falls back to another runner.
    ("runner", runners.wanted_runner),
    ("runner-exceptions", runners.exceptions),
    ("runner-observed", runners.observed_runner),
    # Admission and queue limits.
    ("admission", admission.limits),
    # What may keep it from starting, or from ending well.
    ("capacity", capacity.room),
    ("host-ports", capacity.host_ports),
    ("startup-budget", times.startup),
    ("grace-period", times.ending),
    # Advice.
    ("environment", versions.environment),
    ("deprecated-flags", versions.deprecated_flags),
    ("base", versions.base),
    ("tag-version", images.tag_and_version),
    ("moving-tag", images.fixed_images),
    ("one-change", change.one_thing_at_a_time),
    ("disruption-budget", budgets.disruption_budgets),
    ("gitops", target.gitops),
)


def of_target(o: Observation) -> tuple[PreflightCheck, ...]:
    """Ask what needs no candidate."""
    if o.target is None:
        return (_named("target-exists", target.exists(o)),)
    subject = Subject(o=o, target=o.target)
    return (
        _named("target-exists", target.exists(o)),
        *(_named(name, check(subject)) for name, check in TARGET),
    )


def examine(o: Observation, found: Target, now: float) -> tuple[PreflightCheck, ...]:
    """Ask everything, in order; without a template for the candidate, what needs none.

    Args:
        o: What was seen, `proposed` and `surroundings` with it.
        found: The target.
        now: Seconds since the Unix epoch.
    """
    first = of_target(o)
    if isinstance(o.proposed, Refusal):
        return (*first, _named("candidate", block(o.proposed.reason, o.proposed.message)))
    if o.proposed is None or o.surroundings is None:
        return first
    trial = _trial(o, found, o.proposed, o.surroundings, now)
    return (*first, *(_named(name, check(trial)) for name, check in CANDIDATE))


def blocking(checks: Iterable[PreflightCheck]) -> PreflightCheck | None:
    """Give the most severe check that blocks; None where none does."""
    return next((c for c in checks if c.result is PreflightResult.BLOCK), None)


def warnings(checks: Iterable[PreflightCheck]) -> tuple[PreflightCheck, ...]:
    """Give the checks that warn."""
    return tuple(c for c in checks if c.result is PreflightResult.WARN)


def _trial(
    o: Observation,
    found: Target,
    template: Mapping[str, Any],
    around: Surroundings,
    now: float,
) -> Trial:
    stable = server.stable(found, around.config_maps)
    return Trial(
        o=o,
        target=found,
        now=now,
        template=template,
        stable=stable,
        candidate=server.candidate(
            o.spec, template, stable, found.container or "", around.config_maps
        ),
        surroundings=around,
    )


def _named(name: str, answer: Answer) -> PreflightCheck:
    return PreflightCheck(
        name=name,
        result=answer.result,
        reason=answer.reason,
        message=answer.message[:_MESSAGE_LIMIT],
    )
