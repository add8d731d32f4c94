"""Our labels on the pods: the runner that really runs, the side, the version that answers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from vllm_upgrade_operator.upgrade.decision import LabelPod
from vllm_upgrade_operator.upgrade.evidence import annotation
from vllm_upgrade_operator.upgrade.judging import is_promoted
from vllm_upgrade_operator.upgrade.names import (
    ACTIVE_RUNNER,
    ROLE,
    ROLE_CANARY,
    ROLE_STABLE,
    RUNNER_EVIDENCE,
    VERSION,
)

if TYPE_CHECKING:
    from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeStatus
    from vllm_upgrade_operator.upgrade.observation import Observation, Pod

_NOT_IN_A_LABEL = re.compile(r"[^A-Za-z0-9._-]")


def label_actions(o: Observation, status: VLLMUpgradeStatus) -> tuple[LabelPod, ...]:
    """Label every pod whose labels do not say what is known of it."""
    wanted = [(p, ROLE_CANARY) for p in (() if o.canary is None else o.canary.pods)]
    judged = status.progress.promoted and not status.progress.baked
    for pod in () if o.target is None else o.target.pods:
        promoted = judged and is_promoted(o, pod)
        wanted.append((pod, ROLE_CANARY if promoted else ROLE_STABLE))
    actions = (_label(pod, role) for pod, role in wanted if not pod.terminating)
    return tuple(a for a in actions if a is not None)


def unsettled_roles(o: Observation) -> list[str]:
    """Names of the target's pods that do not carry the role `stable` yet."""
    return [
        p.name
        for p in (() if o.target is None else o.target.pods)
        if not (p.terminating or p.ended) and p.labels.get(ROLE) != ROLE_STABLE
    ]


def _label(pod: Pod, role: str) -> LabelPod | None:
    runner = "unknown" if pod.runner is None else str(pod.runner.runner).lower()
    labels = {ROLE: role, ACTIVE_RUNNER: runner}
    if pod.version is not None:
        labels[VERSION] = _NOT_IN_A_LABEL.sub("_", pod.version)[:63].strip("._-")
    evidence = annotation(pod)
    annotations = {} if evidence is None else {RUNNER_EVIDENCE: evidence}
    same_labels = all(pod.labels.get(k) == v for k, v in labels.items())
    same_annotations = all(pod.annotations.get(k) == v for k, v in annotations.items())
    if same_labels and same_annotations:
        return None
    return LabelPod(pod=pod.name, pod_uid=pod.uid, labels=labels, annotations=annotations)
