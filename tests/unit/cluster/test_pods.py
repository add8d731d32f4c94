from __future__ import annotations

import pytest

from tests.unit.cluster.objects import STARTED, pod
from vllm_upgrade_operator.cluster.pods import (
    controller_uid,
    eviction_seconds,
    parse_pod,
)
from vllm_upgrade_operator.upgrade.probes import start_seconds, startup_budget
from vllm_upgrade_operator.upgrade.times import seconds


def test_a_running_pod() -> None:
    read = parse_pod(pod(), "vllm")
    assert (read.name, read.uid, read.template_hash) == ("llm-1", "uid-llm-1", "abc")
    assert read.started_at == seconds(STARTED)
    assert read.ready_at == seconds("2026-11-30T10:00:30Z")
    assert read.unready_since is None
    assert read.digest == "sha256:aa"
    assert (read.restarts, read.exit_code, read.waiting_reason) == (0, None, None)
    assert not read.terminating


@pytest.mark.parametrize(
    ("phase", "ended"),
    [("Pending", False), ("Running", False), ("Failed", True), ("Succeeded", True), (None, False)],
)
def test_a_pod_that_was_evicted_has_ended(phase: str | None, *, ended: bool) -> None:
    raw = pod()
    raw["status"]["phase"] = phase
    assert parse_pod(raw, "vllm").ended is ended


def test_a_pod_that_is_not_ready() -> None:
    read = parse_pod(pod(ready=False), "vllm")
    assert read.ready_at is None
    assert read.unready_since == seconds("2026-11-30T10:00:30Z")


def test_the_restarts_of_another_container_do_not_count() -> None:
    assert parse_pod(pod(), "proxy").restarts == 9
    assert parse_pod(pod(), "vllm").restarts == 0


def test_a_container_that_has_ended_and_waits_to_be_started_again() -> None:
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
    read = parse_pod(pod(state=waiting, lastState=ended, restartCount=2), "vllm")
    assert (read.exit_code, read.exit_reason, read.restarts) == (137, "OOMKilled", 2)
    assert (read.waiting_reason, read.waiting_message) == ("CrashLoopBackOff", "back-off 10s")
    assert read.started_at is None


def test_the_present_end_counts_before_the_one_before() -> None:
    state = {"terminated": {"exitCode": 1, "reason": "Error"}}
    before = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    assert parse_pod(pod(state=state, lastState=before), "vllm").exit_code == 1


def test_a_pod_without_a_node() -> None:
    raw = pod()
    raw["status"] = {
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.",
                "lastTransitionTime": "2026-11-30T10:00:01Z",
            }
        ]
    }
    read = parse_pod(raw, "vllm")
    assert read.scheduled_at is None
    assert read.unschedulable == "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
    assert (read.started_at, read.ready_at, read.unready_since, read.digest) == (None,) * 4


@pytest.mark.parametrize(
    ("image_id", "digest", "pullable"),
    [
        ("docker-pullable://vllm/vllm-openai@sha256:aa", "sha256:aa", True),
        ("sha256:bb", "sha256:bb", False),
        ("", None, False),
    ],
)
def test_a_digest_of_a_local_image_is_none_of_a_registry(
    image_id: str, digest: str | None, *, pullable: bool
) -> None:
    read = parse_pod(pod(imageID=image_id), "vllm")
    assert (read.digest, read.pullable) == (digest, pullable)


def test_a_scheduling_gate_is_not_unschedulable() -> None:
    raw = pod()
    raw["status"]["conditions"][0].update(status="False", reason="SchedulingGated")
    assert parse_pod(raw, "vllm").unschedulable is None


def test_a_pod_of_which_nothing_is_known_yet() -> None:
    raw = pod()
    del raw["status"]
    read = parse_pod(raw, "vllm")
    assert (read.scheduled_at, read.unschedulable, read.started_at) == (None, None, None)


@pytest.mark.parametrize(
    ("container", "budget"),
    [
        ({}, 0.0),
        ({"readinessProbe": {"periodSeconds": 1, "failureThreshold": 9}}, 0.0),
        ({"livenessProbe": {"httpGet": {}}}, 30.0),
        ({"livenessProbe": {"initialDelaySeconds": 600, "periodSeconds": 10}}, 630.0),
        (
            {
                "startupProbe": {"periodSeconds": 10, "failureThreshold": 180},
                "livenessProbe": {"initialDelaySeconds": 5},
            },
            1800.0,
        ),
    ],
)
def test_the_budget_that_probes_give_a_start(container: dict[str, object], budget: float) -> None:
    assert startup_budget(container) == budget


@pytest.mark.parametrize(
    ("containers_ready", "ready", "gates", "lost"),
    [
        ("True", "False", [], True),
        ("False", "False", [], False),
        ("True", "True", [], False),
        ("True", "False", [{"conditionType": "x"}], False),
    ],
)
def test_a_node_that_does_not_report_is_told_from_a_probe_that_fails(
    containers_ready: str,
    ready: str,
    gates: list[dict[str, str]],
    *,
    lost: bool,
) -> None:
    raw = pod(ready=ready == "True")
    raw["spec"]["readinessGates"] = gates
    raw["status"]["conditions"].append({"type": "ContainersReady", "status": containers_ready})
    assert parse_pod(raw, "vllm").node_lost is lost


@pytest.mark.parametrize(
    ("tolerations", "seconds_there"),
    [
        ([], 0.0),
        ([{"key": "node.kubernetes.io/unreachable", "tolerationSeconds": 300}], 300.0),
        ([{"key": "node.kubernetes.io/not-ready", "tolerationSeconds": 300}], 0.0),
        ([{"operator": "Exists"}], None),
        ([{"operator": "Exists"}, {"key": "", "tolerationSeconds": 5}], 5.0),
        ([{"operator": "Exists", "effect": "NoSchedule"}], 0.0),
    ],
)
def test_how_long_a_pod_stays_on_a_lost_node(
    tolerations: list[dict[str, object]], seconds_there: float | None
) -> None:
    assert eviction_seconds(tolerations) == seconds_there


def test_a_readiness_probe_that_begins_late_gives_time_too() -> None:
    container = {"readinessProbe": {"initialDelaySeconds": 120}}
    assert start_seconds(container) == 120.0
    assert start_seconds({**container, "livenessProbe": {"initialDelaySeconds": 300}}) == 330.0


def test_only_a_controller_is_one() -> None:
    raw = pod(owner="uid-a")
    raw["metadata"]["ownerReferences"].insert(0, {"kind": "Other", "uid": "uid-b"})
    assert controller_uid(raw) == "uid-a"
    raw["metadata"]["ownerReferences"] = []
    assert controller_uid(raw) is None
