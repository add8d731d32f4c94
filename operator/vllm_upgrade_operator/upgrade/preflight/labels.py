"""Can the candidate's template, as the API server computed it, be tried beside the target?"""

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
from vllm_upgrade_operator.upgrade.preflight.answer import block, passed
from vllm_upgrade_operator.upgrade.traffic import withdrawn_template

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_upgrade_operator.upgrade.observation import Observation, Target
    from vllm_upgrade_operator.upgrade.preflight.answer import Answer
    from vllm_upgrade_operator.upgrade.preflight.subject import Trial
    from vllm_upgrade_operator.upgrade.selection import Selector

_PATCH = "spec.candidate.templatePatch"

# Labels of ours whose values are only known once the pod runs: a selector by them may match.
_LABELLED_LATER = frozenset({ACTIVE_RUNNER, VERSION})

_HASH = "pod-template-hash"


def a_change(t: Trial) -> Answer:
    """There has to be something to upgrade to."""
    if t.template == t.target.template:
        return block(
            "NoChange",
            f"spec.candidate changes nothing: {t.target.name} already has this template; "
            "name an image, argument or variable that differs from the target's",
        )
    return passed("the candidate's template differs from the target's")


def own_labels(t: Trial) -> Answer:
    """Some labels and annotations are the operator's, or the Deployment controller's, to give."""
    problem = _not_ours_to_give(t.target, t.template)
    if problem is not None:
        return block("CandidateRefused", problem)
    return passed("the candidate sets no label or annotation that controllers set")


def traffic_labels_stay(t: Trial) -> Answer:
    """Promoted pods have to stay in the traffic."""
    problem = _leaves_the_traffic(t.o, t.target, t.template)
    if problem is not None:
        return block("CandidateRefused", problem)
    return passed("the labels that route traffic stay as they are")


def own_network(t: Trial) -> Answer:
    """Pods on their node's network are not asked for metrics."""
    if t.pod.get("hostNetwork"):
        return block(
            "HostNetwork",
            f"{_where(t.target, ('spec', 'hostNetwork'))} is true: pods on the network of "
            "their node are not asked for metrics, so the canary could never be judged; set "
            "hostNetwork: false",
        )
    return passed("the candidate's pods have addresses of their own")


def unselected(t: Trial) -> Answer:
    """Nothing may route to a canary pod, or adopt it, before it is admitted."""
    refusal = _selected_early(t.o, t.target, t.template)
    if refusal is not None:
        return block("SelectedBeforeAdmission", refusal)
    return passed("nothing selects the canary's pods before they are admitted")


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


def _selected_early(o: Observation, target: Target, proposed: Mapping[str, Any]) -> str | None:
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
        return _by_absence(target) if own else _by_labels(selector, target)
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
