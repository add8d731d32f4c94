"""Why a candidate's template, as the API server computed it, cannot be tried beside the target.

All of it is known before anything has been started, and waiting mends none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.upgrade.names import (
    ACTIVE_RUNNER,
    CANARY,
    DOMAIN,
    ROLE,
    ROLE_CANARY,
    VERSION,
)
from vllm_upgrade_operator.upgrade.observation import Refusal
from vllm_upgrade_operator.upgrade.traffic import withdrawn_template

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_upgrade_operator.upgrade.observation import Observation, Target
    from vllm_upgrade_operator.upgrade.selection import Selector

_PATCH = "spec.candidate.templatePatch"

# Labels of ours whose values are only known once the pod runs: a selector by them may match.
_LABELLED_LATER = frozenset({ACTIVE_RUNNER, VERSION})

_HASH = "pod-template-hash"


def unfit(o: Observation, target: Target, proposed: Mapping[str, Any]) -> Refusal | None:
    """Say what is wrong with a proposed template, or None."""
    if proposed == target.template:
        return Refusal(
            reason="NoChange",
            message=f"spec.candidate changes nothing: {target.name} already has this template; "
            "name an image, argument or variable that differs from the target's",
        )
    problem = _not_ours_to_give(target, proposed) or _leaves_the_traffic(o, target, proposed)
    if problem is not None:
        return Refusal(reason="CandidateRefused", message=problem)
    if (proposed.get("spec") or {}).get("hostNetwork"):
        return Refusal(
            reason="HostNetwork",
            message=f"{_where(target, ('spec', 'hostNetwork'))} is true: pods on the network of "
            "their node are not asked for metrics, so the canary could never be judged; set "
            "hostNetwork: false",
        )
    return _selected_early(o, target, proposed)


def _not_ours_to_give(target: Target, proposed: Mapping[str, Any]) -> str | None:
    """Find labels and annotations that the operator, or the Deployment controller, sets itself."""
    for kind in ("labels", "annotations"):
        for key, value in _metadata(proposed, kind).items():
            if key.startswith(f"{DOMAIN}/") or (kind == "labels" and key == _HASH):
                where = _where(target, ("metadata", kind, key))
                owner = "the Deployment controller" if key == _HASH else "the operator"
                return (
                    f"{where} is {value!r}, but {owner} itself gives pods this one of their "
                    f"{kind}: take it out"
                )
    return None


def _leaves_the_traffic(o: Observation, target: Target, proposed: Mapping[str, Any]) -> str | None:
    """Find a label by which the target's pods are selected, and which the candidate changes."""
    before, after = _metadata(target.template, "labels"), _metadata(proposed, "labels")
    for key in sorted(o.traffic_keys):
        if before.get(key) == after.get(key):
            continue
        owners = [s.owner for s in o.selectors if key in s.keys and s.matches(before)]
        by = " and ".join(owners) or "spec.strategy.trafficLabels"
        return (
            f"{_PATCH}.metadata.labels changes {key} from {before.get(key)!r} to "
            f"{after.get(key)!r}, by which {by} selects the pods of {target.name}: the candidate "
            "would not get the target's traffic; leave it as it is"
        )
    return None


def _selected_early(o: Observation, target: Target, proposed: Mapping[str, Any]) -> Refusal | None:
    """Find what would route to a canary pod, or take it for its own, before it is admitted."""
    born = {
        **_metadata(withdrawn_template(proposed, o.traffic_keys), "labels"),
        CANARY: o.uid,
        ROLE: ROLE_CANARY,
    }
    for selector in o.selectors:
        if not _may_match(selector, born):
            continue
        own = selector.owner == f"Deployment {target.name}"
        return Refusal(
            reason="SelectedBeforeAdmission",
            message=_by_absence(target) if own else _by_labels(selector, target),
        )
    return None


def _may_match(selector: Selector, born: Mapping[str, str]) -> bool:
    later = {k: v for k, v in selector.labels.items() if k in _LABELLED_LATER}
    return selector.matches({**born, **later})


def _by_absence(target: Target) -> str:
    return (
        f"spec.selector of Deployment {target.name} selects by what pods do not have alone "
        "(NotIn, DoesNotExist), so it would take the canary's pods for its own; a selector cannot "
        "be changed: make the Deployment anew with spec.selector.matchLabels"
    )


def _by_labels(selector: Selector, target: Target) -> str:
    labels = ", ".join(f"{k}={v}" for k, v in sorted(selector.labels.items()))
    return (
        f"{selector.owner} selects by {labels}, which the canary's pods carry before they are "
        "verified, so it would send them traffic: add a label to its selector that the pods of "
        f"{target.name} have, or take the label out of {_PATCH}"
    )


def _where(target: Target, path: tuple[str, ...]) -> str:
    """Name the field that says it: the target's, or else the patch's."""
    found: Any = target.template
    for part in path:
        found = found.get(part) if isinstance(found, dict) else None
    there = f"[{path[-1]}]" if path[0] == "metadata" else f".{path[-1]}"
    field = ".".join(path[:-1]) + there
    if found:
        return f"spec.template.{field} of Deployment {target.name}"
    return f"{_PATCH}.{field}"


def _metadata(template: Mapping[str, Any], kind: str) -> Mapping[str, str]:
    found: Mapping[str, str] = (template.get("metadata") or {}).get(kind) or {}
    return found
