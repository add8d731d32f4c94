"""The admission policies of the chart: the operator lends nobody its power, and has no more of it.

Requests are made with tokens of real ServiceAccounts, the operator's own among them.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.accounts import as_account
from tests.specs import spec
from vllm_upgrade_operator.api.v1alpha1 import GROUP, KIND, VERSION
from vllm_upgrade_operator.cluster.client import MERGE, ApiError, Client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

pytestmark = pytest.mark.cluster

SYSTEM = "vllm-upgrade-system"
OPERATOR = "vllm-upgrade-operator"
APPROVE = "vllmupgrade.dev/approve"
PROMOTE = "vllmupgrade.dev/promote"
APPROVED_BY = "vllmupgrade.dev/approved-by"
DRY = {"dryRun": "All"}

# A wait ends long after what it waits for should have happened: only a defect reaches it.
PATIENCE = 30.0


class Place:
    """A namespace with a Deployment's name, and accounts of different rights."""

    def __init__(self, admin: Client, namespace: str) -> None:
        self.admin = admin
        self.namespace = namespace
        self.upgrades = f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/vllmupgrades"
        self.pods = f"/api/v1/namespaces/{namespace}/pods"
        self._clients: list[Client] = []

    async def account(self, name: str, *rules: Mapping[str, Any]) -> Client:
        """Make an account that may do what the rules say, in this namespace."""
        rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{self.namespace}"
        core = f"/api/v1/namespaces/{self.namespace}"
        await self.admin.create(f"{core}/serviceaccounts", {"metadata": {"name": name}})
        await self.admin.create(
            f"{rbac}/roles", {"metadata": {"name": name}, "rules": [dict(r) for r in rules]}
        )
        await self.admin.create(
            f"{rbac}/rolebindings",
            {
                "metadata": {"name": name},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "Role",
                    "name": name,
                },
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": self.namespace}],
            },
        )
        return await self.connect(self.namespace, name)

    async def connect(self, namespace: str, name: str) -> Client:
        client = await as_account(self.admin, namespace, name)
        self._clients.append(client)
        return client

    def user(self, name: str) -> str:
        return f"system:serviceaccount:{self.namespace}:{name}"

    async def upgrade(self, name: str, annotations: Mapping[str, str] | None = None) -> None:
        """Make one as the administrator; no such target is there, so nothing comes of it."""
        await self.admin.create(self.upgrades, body(name, annotations))

    async def pod(self, name: str, labels: Mapping[str, str]) -> None:
        """Make a pod that no node will run."""
        await self.admin.create(
            self.pods,
            {
                "metadata": {"name": name, "labels": dict(labels), "annotations": {"a": "b"}},
                "spec": {
                    "schedulingGates": [{"name": "vllmupgrade.dev/test"}],
                    "containers": [{"name": "c", "image": "sim/sleep"}],
                },
            },
        )

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        for upgrade in (await self.admin.get(self.upgrades))["items"]:
            await self.admin.delete(f"{self.upgrades}/{upgrade['metadata']['name']}")
        await self.admin.delete(f"/api/v1/namespaces/{self.namespace}")


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    if "KUBECONFIG" not in os.environ:
        pytest.fail("needs a local cluster: python -m localcluster exec -- pytest ...")
    async with await Client.from_kubeconfig(os.environ["KUBECONFIG"]) as admin:
        name = f"policies-{secrets.token_hex(3)}"
        await admin.create("/api/v1/namespaces", {"metadata": {"name": name}})
        deadline = time.monotonic() + PATIENCE
        while await admin.find(f"/api/v1/namespaces/{name}/serviceaccounts/default") is None:
            assert time.monotonic() < deadline, "no default ServiceAccount"
            await asyncio.sleep(0.05)
        place = Place(admin, name)
        try:
            yield place
        finally:
            await place.close()


def body(name: str, annotations: Mapping[str, str] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "metadata": {"name": name, "annotations": dict(annotations or {})},
        "spec": spec(),
    }


UPGRADER = {
    "apiGroups": [GROUP],
    "resources": ["vllmupgrades", "vllmupgrades/status"],
    "verbs": ["*"],
}


def may_patch(*names: str) -> dict[str, Any]:
    return {
        "apiGroups": ["apps"],
        "resources": ["deployments"],
        "verbs": ["patch"],
        "resourceNames": list(names),
    }


async def refused(call: Any, *says: str) -> None:
    with pytest.raises(ApiError) as error:
        await call
    assert error.value.status == 403, error.value
    for part in says:
        assert part in error.value.message


async def test_whoever_may_not_patch_the_target_may_not_have_it_upgraded(place: Place) -> None:
    client = await place.account("creator", UPGRADER, may_patch("another"))
    await refused(
        client.create(place.upgrades, body("up"), **DRY),
        f"user {place.user('creator')} may not patch Deployment llm in namespace {place.namespace}",
        "ask for the right to patch it",
    )


async def test_whoever_may_patch_the_target_may_have_it_upgraded(place: Place) -> None:
    client = await place.account("owner", UPGRADER, may_patch("llm"))
    created = await client.create(place.upgrades, body("up"), **DRY)
    assert created["spec"]["targetRef"]["name"] == "llm"


async def test_without_the_right_spec_verbs_and_status_stay_as_they_are(place: Place) -> None:
    await place.upgrade("up")
    path = f"{place.upgrades}/up"
    client = await place.account("creator", UPGRADER)
    says = "may not patch Deployment llm"
    await refused(client.patch(path, {"spec": {"reason": "mine"}}, MERGE, **DRY), says)
    for annotation in (APPROVE, PROMOTE, "vllmupgrade.dev/abort"):
        patch = {"metadata": {"annotations": {annotation: "1", APPROVED_BY: place.user("creator")}}}
        await refused(client.patch(path, patch, MERGE, **DRY), says)
    status = {"status": {"phase": "Promoting"}}
    await refused(client.patch(f"{path}/status", status, MERGE, **DRY), says)
    finalizers = {"metadata": {"finalizers": ["example.org/none-of-ours"]}}
    await refused(client.patch(path, finalizers, MERGE, **DRY), says)
    # What asks the operator for nothing is a matter of RBAC alone.
    patch = {"metadata": {"labels": {"team": "a"}, "annotations": {"note": "seen"}}}
    changed = await client.patch(path, patch, MERGE, **DRY)
    assert changed["metadata"]["labels"] == {"team": "a"}


@pytest.mark.parametrize("verb", [APPROVE, PROMOTE])
async def test_a_decision_names_who_decides(place: Place, verb: str) -> None:
    await place.upgrade("up")
    path = f"{place.upgrades}/up"
    client = await place.account("owner", UPGRADER, may_patch("llm"))
    says = f"must name who approves: {place.user('owner')}"

    def approval(**parts: str | None) -> dict[str, Any]:
        keys = {"value": verb, "by": APPROVED_BY}
        return {"metadata": {"annotations": {keys[k]: v for k, v in parts.items()}}}

    await refused(client.patch(path, approval(value="1.2"), MERGE, **DRY), says)
    await refused(
        client.patch(path, approval(value="1.2", by="somebody"), MERGE, **DRY),
        'approved-by is "somebody"',
        says,
    )
    await refused(client.create(place.upgrades, body("up2", {verb: "1.1"}), **DRY), says)
    good = approval(value="1.2", by=place.user("owner"))
    await client.patch(path, good, MERGE)
    # Afterwards others may change other things, but not put their name to it.
    other = await place.account("other", UPGRADER, may_patch("llm"))
    await other.patch(path, {"spec": {"reason": "another"}}, MERGE, **DRY)
    await refused(
        other.patch(path, approval(by=place.user("other") + "x"), MERGE, **DRY),
        "must name who approves",
    )
    await refused(other.patch(path, approval(value="1.3"), MERGE, **DRY), "must name who approves")
    await other.patch(path, approval(value=None, by=None), MERGE, **DRY)


async def test_the_operator_may_only_label_pods_and_only_with_its_own(place: Place) -> None:
    await place.pod("stable", {"app": "llm"})
    path = f"{place.pods}/stable"
    operator = await place.connect(SYSTEM, OPERATOR)
    ours = {"vllmupgrade.dev/role": "stable", "vllmupgrade.dev/active-runner": "v1"}
    patch = {"metadata": {"labels": ours, "annotations": {"vllmupgrade.dev/runner-evidence": "x"}}}
    changed = await operator.patch(path, patch, MERGE)
    assert changed["metadata"]["labels"] == {"app": "llm", **ours}
    gone = {"metadata": {"labels": dict.fromkeys(ours)}}
    assert (await operator.patch(path, gone, MERGE))["metadata"]["labels"] == {"app": "llm"}

    says = "vllmupgrade.dev/ labels and annotations only"
    for changes in (
        {"labels": {"app": None}},
        {"labels": {"app": "other"}},
        {"labels": {"team": "a"}},
        {"annotations": {"a": None}},
        {"annotations": {"a": "c"}},
        {"annotations": {"x": "y"}},
    ):
        await refused(operator.patch(path, {"metadata": changes}, MERGE, **DRY), says)
    await refused(
        operator.patch(
            path, {"metadata": {"labels": {"vllmupgrade.dev/canary": "u"}}}, MERGE, **DRY
        ),
        "may not make a pod a canary",
    )


async def test_the_operator_may_give_a_canary_any_label_but_change_nothing_else(
    place: Place,
) -> None:
    key = "vllmupgrade.dev/canary"
    await place.pod("canary", {key: "u1"})
    path = f"{place.pods}/canary"
    operator = await place.connect(SYSTEM, OPERATOR)
    admitted = await operator.patch(path, {"metadata": {"labels": {"app": "llm"}}}, MERGE)
    assert admitted["metadata"]["labels"] == {key: "u1", "app": "llm"}
    withdrawn = await operator.patch(path, {"metadata": {"labels": {"app": None}}}, MERGE)
    assert withdrawn["metadata"]["labels"] == {key: "u1"}

    for other in (None, "u2"):
        await refused(
            operator.patch(path, {"metadata": {"labels": {key: other}}}, MERGE, **DRY),
            "nor a canary something else",
        )
    image = {"spec": {"containers": [{"name": "c", "image": "sim/other"}]}}
    await refused(
        operator.patch(path, image, "application/strategic-merge-patch+json", **DRY),
        "may not change the spec of a pod",
    )
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x"}
    metadata: tuple[dict[str, Any], ...] = (
        {"finalizers": ["vllmupgrade.dev/x"]},
        {"ownerReferences": [owner]},
    )
    for change in metadata:
        await refused(
            operator.patch(path, {"metadata": change}, MERGE, **DRY),
            "may not change owners or finalizers",
        )


async def test_others_are_not_bound_by_what_binds_the_operator(place: Place) -> None:
    await place.pod("any", {"app": "llm"})
    changed = await place.admin.patch(
        f"{place.pods}/any", {"metadata": {"labels": {"app": "other"}}}, MERGE
    )
    assert changed["metadata"]["labels"] == {"app": "other"}


async def test_the_operator_may_not_do_what_it_does_not_need(place: Place) -> None:
    operator = await place.connect(SYSTEM, OPERATOR)
    core = f"/api/v1/namespaces/{place.namespace}"
    await refused(operator.get(f"{core}/secrets"), "forbidden")
    await refused(operator.get(f"{core}/configmaps"), "forbidden")
    await refused(operator.get(f"{core}/persistentvolumeclaims"), "forbidden")
    await refused(operator.delete("/api/v1/nodes/x"), "forbidden")
    await refused(operator.create(f"{core}/pods", {}, **DRY), "forbidden")
    await refused(operator.delete(f"{core}/pods/x"), "forbidden")
    await refused(operator.create(place.upgrades, body("up"), **DRY), "forbidden")
    await refused(operator.delete(f"{place.upgrades}/up"), "forbidden")
