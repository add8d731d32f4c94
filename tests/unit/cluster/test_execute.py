"""Actions, their repetition and their failures. What an API server makes of them: tests/cluster."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any

import pytest

from tests.unit.cluster.stub import StubClient
from vllm_upgrade_operator.cluster import paths
from vllm_upgrade_operator.cluster.client import ApiError
from vllm_upgrade_operator.cluster.execute import Executor
from vllm_upgrade_operator.cluster.objects import parse_orphan
from vllm_upgrade_operator.cluster.outdated import OutdatedError
from vllm_upgrade_operator.upgrade import names
from vllm_upgrade_operator.upgrade.decision import (
    Admit,
    DeleteCanary,
    EnsureCanary,
    Inherit,
    LabelPod,
    Release,
    ReplaceTemplate,
    StoreCandidate,
    StoreKnownGood,
    Withdraw,
)

UPGRADE: dict[str, Any] = {
    "metadata": {"namespace": "serving", "name": "up", "uid": "uid-up"},
    "spec": {"targetRef": {"name": "llm"}},
}
CANARY = paths.deployment("serving", "llm-canary")
POD = paths.pod("serving", "llm-canary-1")
ENSURE = EnsureCanary(
    attempt="abc-1", replicas=1, template={"metadata": {"labels": {"team": "a"}}, "spec": {}}
)


def executor(client: StubClient) -> Executor:
    return Executor(client, UPGRADE)


async def test_the_canary_selects_by_its_own_key_alone() -> None:
    client = StubClient()
    await executor(client).execute(ENSURE)
    made = client.objects[CANARY]
    own = {"vllmupgrade.dev/canary": "uid-up"}
    assert made["spec"]["selector"] == {"matchLabels": own}
    labels = made["spec"]["template"]["metadata"]["labels"]
    assert labels == {"team": "a", "vllmupgrade.dev/role": "canary", **own}
    assert made["metadata"]["ownerReferences"][0]["uid"] == "uid-up"
    assert made["metadata"]["ownerReferences"][0]["controller"] is True


async def test_a_released_pod_leaves_the_traffic_and_is_the_first_to_go_in_one_patch() -> None:
    client = StubClient()
    client.objects[POD] = {"metadata": {"name": "llm-canary-1", "uid": "uid-1"}}
    keys = frozenset({"app"})
    release = Release(pod="llm-canary-1", pod_uid="uid-1", keys=keys, at=1_800_000_000.0)
    await executor(client).execute(release)
    (patch,) = client.named("PATCH")
    assert patch["metadata"]["labels"] == {"app": None}
    assert patch["metadata"]["annotations"] == {
        "vllmupgrade.dev/admitted-at": None,
        "vllmupgrade.dev/released-at": "2027-01-15T08:00:00.000Z",
        "controller.kubernetes.io/pod-deletion-cost": "-1",
    }


async def test_a_canary_that_is_there_is_only_scaled() -> None:
    client = StubClient()
    await executor(client).execute(ENSURE)
    client.objects[CANARY]["metadata"]["uid"] = "uid-canary"
    await executor(client).execute(ENSURE)
    assert client.named("PATCH") == []
    more = EnsureCanary(attempt="abc-1", replicas=2, template=ENSURE.template)
    await executor(client).execute(more)
    assert client.named("PATCH") == [{"metadata": {"uid": "uid-canary"}, "spec": {"replicas": 2}}]


async def test_the_canary_of_another_attempt_is_not_taken_for_this_one_s() -> None:
    client = StubClient()
    await executor(client).execute(ENSURE)
    other = EnsureCanary(attempt="abc-2", replicas=1, template=ENSURE.template)
    with pytest.raises(OutdatedError, match="abc-1"):
        await executor(client).execute(other)


async def test_a_deployment_of_that_name_that_is_not_ours_is_left_alone() -> None:
    theirs = {"metadata": {"name": "llm-canary", "uid": "x"}, "spec": {"replicas": 1}}
    client = StubClient({CANARY: theirs})
    with pytest.raises(ApiError, match="rename or delete it"):
        await executor(client).execute(ENSURE)
    await executor(client).execute(DeleteCanary())
    assert client.objects[CANARY] == theirs


async def test_the_canary_is_deleted_in_the_foreground_and_once() -> None:
    client = StubClient()
    await executor(client).execute(ENSURE)
    client.objects[CANARY]["metadata"]["uid"] = "uid-canary"
    await executor(client).execute(DeleteCanary())
    await executor(client).execute(DeleteCanary())
    assert client.named("DELETE") == [
        {"propagationPolicy": "Foreground", "preconditions": {"uid": "uid-canary"}}
    ]


async def test_withdrawing_takes_all_keys_off_in_one_patch() -> None:
    client = StubClient()
    keys = frozenset({"app", "team"})
    await executor(client).execute(Withdraw(pod="llm-canary-1", pod_uid="uid-1", keys=keys))
    (body,) = client.named("PATCH")
    assert body["metadata"]["labels"] == {"app": None, "team": None}
    assert body["metadata"]["annotations"] == {"vllmupgrade.dev/admitted-at": None}


async def test_admitting_says_when() -> None:
    client = StubClient()
    admit = Admit(pod="llm-canary-1", pod_uid="uid-1", labels={"app": "llm"}, at=1_800_000_000.0)
    await executor(client).execute(admit)
    (body,) = client.named("PATCH")
    assert body["metadata"] == {
        "uid": "uid-1",
        "labels": {"app": "llm"},
        "annotations": {"vllmupgrade.dev/admitted-at": "2027-01-15T08:00:00.000Z"},
    }


@pytest.mark.parametrize(
    "answer",
    [
        ApiError(404, "NotFound", "pods not found"),
        ApiError(422, "Invalid", 'metadata.uid: Invalid value: "uid-1": field is immutable'),
    ],
)
async def test_a_pod_that_is_gone_or_another_one_now_needs_no_label(answer: ApiError) -> None:
    client = StubClient()
    client.failures["PATCH", POD] = answer
    label = LabelPod(pod="llm-canary-1", pod_uid="uid-1", labels={}, annotations={})
    await executor(client).execute(label)
    assert len(client.named("PATCH")) == 1


async def test_a_label_that_is_refused_is_an_error() -> None:
    client = StubClient()
    client.failures["PATCH", POD] = ApiError(403, "Forbidden", "policy")
    label = LabelPod(pod="llm-canary-1", pod_uid="uid-1", labels={}, annotations={})
    with pytest.raises(ApiError, match="policy"):
        await executor(client).execute(label)


async def test_known_good_is_never_written_over() -> None:
    client = StubClient()
    await executor(client).execute(StoreKnownGood(data={"replicas": 4}, target_uid="uid-llm"))
    await executor(client).execute(StoreKnownGood(data={"replicas": 9}, target_uid="uid-llm"))
    stored = client.objects[paths.revision("serving", "up-known-good")]
    assert stored["data"] == {"replicas": 4}
    assert stored["metadata"]["ownerReferences"][0] == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": "llm",
        "uid": "uid-llm",
    }


@pytest.mark.parametrize(
    ("name", "action"),
    [
        ("up-known-good", StoreKnownGood(data={"replicas": 4}, target_uid="uid-llm")),
        ("up-candidate", StoreCandidate(attempt="abc-1", template={}, target_uid="uid-llm")),
    ],
)
async def test_a_revision_of_an_upgrade_that_is_gone_is_named_and_kept(
    name: str, action: StoreKnownGood | StoreCandidate
) -> None:
    path = paths.revision("serving", name)
    left = {"metadata": {"name": name, "labels": {"vllmupgrade.dev/upgrade": "older"}}, "data": {}}
    client = StubClient({path: left})
    with pytest.raises(ApiError, match=f"ControllerRevision {name} .* is not of this upgrade"):
        await executor(client).execute(action)
    assert client.objects[path] == left


KEPT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "ControllerRevision",
    "metadata": {
        "name": "older-known-good",
        "uid": "uid-rev",
        "labels": {names.UPGRADE: "uid-older"},
        "ownerReferences": [{"kind": "Deployment", "name": "llm", "uid": "uid-llm"}],
    },
    "data": {"targetUID": "uid-llm"},
}


@pytest.mark.parametrize("older", ["older", "up"])
async def test_a_record_is_taken_over_and_never_without_a_holder(older: str) -> None:
    kept = copy.deepcopy(KEPT)
    kept["metadata"]["name"] = f"{older}-known-good"
    left = {"metadata": {"name": f"{older}-candidate"}, "data": {}}
    client = StubClient(
        {
            paths.revision("serving", f"{older}-known-good"): kept,
            paths.revision("serving", f"{older}-candidate"): left,
        }
    )
    action = Inherit(upgrade=older, revisions=(f"{older}-known-good", f"{older}-candidate"))
    await executor(client).execute(action)
    assert set(client.objects) == {paths.revision("serving", "up-known-good")}
    stored = client.objects[paths.revision("serving", "up-known-good")]
    assert stored["data"] == {"targetUID": "uid-llm"}
    assert stored["metadata"]["labels"] == {names.UPGRADE: "uid-up"}
    assert stored["metadata"]["annotations"] == {names.INHERITED_FROM: older}


class Mortal(StubClient):
    """The operator dies before one of its writes."""

    def __init__(self, objects: dict[str, dict[str, Any]], writes: int) -> None:
        super().__init__(objects)
        self.writes = writes

    def _call(self, method: str, path: str, body: Any = None) -> None:
        if method != "GET":
            self.writes -= 1
            if self.writes < 0:
                raise ApiError(0, "Unreachable", "killed")
        super()._call(method, path, body)


@pytest.mark.parametrize("older", ["before", "up"])
@pytest.mark.parametrize("writes", range(7))
async def test_an_operator_that_dies_while_it_inherits_loses_nothing(
    older: str, writes: int
) -> None:
    def left(kind: str, data: dict[str, Any]) -> dict[str, Any]:
        metadata = {
            "name": f"{older}-{kind}",
            "uid": f"uid-{kind}",
            "labels": {names.UPGRADE: "uid-before"},
            "ownerReferences": [{"name": "llm", "uid": "uid-llm"}],
        }
        return {"metadata": metadata, "data": data}

    known_good = {
        "targetUID": "uid-llm",
        "template": {"a": 1},
        "templateHash": "old",
        "replicas": 1,
        "digests": [],
        "managedFields": [],
    }
    revisions = [
        left("known-good", known_good),
        left("candidate", {"attempt": "abc-1", "template": {"a": 2}}),
    ]
    path = paths.revision("serving", "up-known-good")
    client: StubClient = Mortal(
        {paths.revision("serving", r["metadata"]["name"]): r for r in revisions}, writes
    )
    for _ in range(2):
        stored = [
            {**o, "metadata": {"creationTimestamp": "", **o["metadata"]}}
            for o in client.objects.values()
        ]
        assert known_good in [r["data"] for r in stored]
        orphan = parse_orphan(stored, "uid-llm", frozenset({"uid-up"}))
        if orphan is None or orphan.known_good is None:
            break
        assert orphan.upgrade == older
        # Without it the target would be taken for changed by somebody.
        assert orphan.candidate == {"a": 2}
        with suppress(ApiError):
            await executor(client).execute(
                Inherit(upgrade=orphan.upgrade, revisions=orphan.revisions)
            )
        client = StubClient(client.objects)
    assert client.objects[path]["data"] == known_good
    assert client.objects[path]["metadata"]["labels"] == {names.UPGRADE: "uid-up"}
    assert client.objects[path]["metadata"]["annotations"] == {names.INHERITED_FROM: older}


async def test_the_candidate_of_another_attempt_is_made_anew() -> None:
    client = StubClient()
    for attempt in ("abc-1", "abc-1", "abc-2"):
        await executor(client).execute(
            StoreCandidate(attempt=attempt, template={}, target_uid="uid-llm")
        )
    stored = client.objects[paths.revision("serving", "up-candidate")]
    assert stored["data"]["attempt"] == "abc-2"
    assert len(client.named("DELETE")) == 1


REPLACE = ReplaceTemplate(expected={"a": 1}, replacement={"a": 2})
TARGET = paths.deployment("serving", "llm")


@pytest.mark.parametrize(("present", "error"), [({"a": 3}, OutdatedError), ({"a": 1}, ApiError)])
async def test_a_failed_test_is_told_from_a_refused_template(
    present: dict[str, int], error: type[Exception]
) -> None:
    client = StubClient({TARGET: {"spec": {"template": present}}})
    client.failures["PATCH", TARGET] = ApiError(422, "Invalid", "the request")
    with pytest.raises(error):
        await executor(client).execute(REPLACE)
