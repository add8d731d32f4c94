from __future__ import annotations

from typing import Any

from tests.unit.cluster.objects import pod
from vllm_upgrade_operator.cluster.objects import (
    parse_canary,
    parse_target,
    template_hash,
)
from vllm_upgrade_operator.cluster.pods import parse_pod

TEMPLATE: dict[str, Any] = {"metadata": {"labels": {"app": "llm"}}, "spec": {"containers": []}}


def replica_set(
    hash_: str, template: dict[str, Any] = TEMPLATE, created: str = "2026-01-01T00:00:00Z"
) -> dict[str, Any]:
    labels = {**template["metadata"]["labels"], "pod-template-hash": hash_}
    return {
        "metadata": {"name": f"llm-{hash_}", "creationTimestamp": created, "labels": labels},
        "spec": {"template": {**template, "metadata": {"labels": labels}}},
    }


def test_the_replica_set_of_a_template_is_found_by_the_template() -> None:
    other = {**TEMPLATE, "spec": {"containers": [{"name": "x"}]}}
    assert template_hash(TEMPLATE, [replica_set("new", other), replica_set("old")]) == "old"
    assert template_hash(other, [replica_set("old")]) is None


def test_of_equal_ones_the_oldest_counts() -> None:
    younger = replica_set("b", created="2026-01-02T00:00:00Z")
    assert template_hash(TEMPLATE, [younger, replica_set("a")]) == "a"


def test_a_canary_is_there_as_long_as_a_pod_of_it_is() -> None:
    left = parse_canary(None, (parse_pod(pod(), "vllm"),))
    assert left is not None
    assert left.deleting
    assert len(left.pods) == 1
    assert parse_canary(None, ()) is None


def test_a_canary_tells_its_attempt() -> None:
    raw: dict[str, Any] = {
        "metadata": {"annotations": {"vllmupgrade.dev/attempt": "abc-1"}},
        "spec": {"replicas": 2},
    }
    read = parse_canary(raw, ())
    assert read is not None
    assert (read.attempt, read.replicas, read.deleting) == ("abc-1", 2, False)
    raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    deleted = parse_canary(raw, ())
    assert deleted is not None
    assert deleted.deleting


def deployment(**changes: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "llm", "uid": "uid-llm", "resourceVersion": "1", "generation": 1},
        "spec": {"template": TEMPLATE, "selector": {"matchLabels": {"app": "llm"}}, **changes},
    }


def test_what_is_in_the_way_of_a_rollout_is_read() -> None:
    raw = deployment(paused=True)
    raw["status"] = {
        "conditions": [
            {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"},
            {
                "type": "Progressing",
                "status": "False",
                "reason": "ProgressDeadlineExceeded",
                "message": "has timed out progressing",
            },
        ]
    }
    read = parse_target(raw, (), (), "vllm")
    assert (read.paused, read.replica_failure) == (True, "exceeded quota")
    assert read.late == "has timed out progressing"


def test_a_rollout_that_goes_on_has_nothing_in_its_way() -> None:
    raw = deployment()
    raw["status"] = {
        "conditions": [
            {"type": "ReplicaFailure", "status": "False", "message": "gone"},
            {"type": "Progressing", "status": "True", "reason": "x", "message": "it does"},
        ]
    }
    read = parse_target(raw, (), (), "vllm")
    assert (read.paused, read.replica_failure, read.late) == (False, None, None)
