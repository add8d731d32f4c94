"""Deleted upgrades on a real control plane: what is undone, and what the next one inherits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster import stages
from tests.cluster.kit import DOMAIN, Serving, target_manifest
from vllm_upgrade_operator.cluster import paths
from vllm_upgrade_operator.cluster.client import ApiError, Client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.cluster

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


async def is_in_order(serving: Serving, before: dict[str, Any]) -> None:
    """Nothing of the upgrade is left, and the target is as it was and serves."""
    assert await stages.template(serving) == before
    await stages.canary_is_gone(serving)

    async def nothing_is_kept() -> bool:
        return await stages.revisions(serving) == []

    await serving.until(nothing_is_kept, "known-good and candidate to go")
    await serving.all_ready(2)
    assert {stages.image(p) for p in await serving.pods("app=llm")} == {stages.image(before)}


@pytest.mark.parametrize(
    "phase",
    ["Pending", "Starting", "Verifying", "Canary", "Halted", "Promoting", "Baking"],
)
async def test_what_a_deleted_upgrade_has_begun_is_undone(serving: Serving, phase: str) -> None:
    before = await stages.deploy(serving, phase)
    await stages.reach(serving, phase)
    await stages.delete(serving)
    await stages.is_gone(serving)
    await is_in_order(serving, before)
    assert "ReleasedUnfinished" not in [reason for reason, _, _ in await serving.events()]


async def test_deleted_while_the_target_is_checked(serving: Serving) -> None:
    """The target is not at rest, which Preflight waits for."""
    manifest = target_manifest("sim/vllm:0.28.0", 2, (), {"SIM_LOAD_SECONDS": "600"}, 0)
    await serving.client.create(paths.deployments(serving.namespace), manifest)
    await stages.reach(serving, "Preflight")
    await stages.delete(serving)
    await stages.is_gone(serving)
    assert await stages.revisions(serving) == []
    assert await serving.canaries() == []


async def test_deleted_while_a_person_is_asked(serving: Serving) -> None:
    before = await stages.deploy(serving, "Canary")
    await serving.load(20)
    steps = [{"replicas": 1, "hold": "1s", "approval": True}]
    await serving.upgrade(strategy=stages.strategy(steps=steps))

    async def asked() -> bool:
        return "waits for approval" in (await serving.status()).get("message", "")

    await serving.until(asked, "the question")
    await stages.delete(serving)
    await stages.is_gone(serving)
    await is_in_order(serving, before)


async def test_deleted_while_it_rolls_back(serving: Serving) -> None:
    before = await stages.deploy(serving, "Promoting")
    await stages.reach(serving, "Promoting")
    await serving.annotate({f"{DOMAIN}/abort": "1"})
    await serving.phase("RollingBack")
    await stages.delete(serving)
    await stages.is_gone(serving)
    await is_in_order(serving, before)


async def test_deleted_after_its_end_it_leaves_what_it_promoted(serving: Serving) -> None:
    await stages.deploy(serving, "Baking")
    await stages.reach(serving, "Baking", strategy=stages.strategy(bake="1s"))
    await serving.phase("Succeeded")
    promoted = await stages.template(serving)
    await stages.delete(serving)
    await stages.is_gone(serving)
    await is_in_order(serving, promoted)


@pytest.mark.parametrize("phase", ["Canary", "Promoting"])
async def test_deleted_together_with_its_target(serving: Serving, phase: str) -> None:
    await stages.deploy(serving, phase)
    await stages.reach(serving, phase)
    await serving.client.delete(paths.deployment(serving.namespace, "llm"))
    await stages.delete(serving)
    await stages.is_gone(serving)
    await stages.canary_is_gone(serving)


async def test_a_target_that_goes_slowly_does_not_hold_it_up(serving: Serving) -> None:
    """Somebody's finalizer keeps the deleted target there."""
    await stages.deploy(serving, "Promoting")
    await stages.reach(serving, "Promoting")
    path = paths.deployment(serving.namespace, "llm")
    await serving.client.patch(path, {"metadata": {"finalizers": ["example.com/slow"]}})
    await serving.client.delete(path)
    await stages.delete(serving)
    await stages.is_gone(serving)
    await stages.canary_is_gone(serving)
    assert "deletionTimestamp" in (await serving.target())["metadata"]
    # Not because a rollback of it did not get on.
    assert "ReleasedUnfinished" not in [reason for reason, _, _ in await serving.events()]
    await serving.client.patch(path, {"metadata": {"finalizers": None}})


@pytest.mark.parametrize("phase", ["Canary", "Promoting"])
async def test_a_namespace_that_is_deleted_goes(serving: Serving, phase: str) -> None:
    await stages.deploy(serving, phase)
    await stages.reach(serving, phase)
    path = f"/api/v1/namespaces/{serving.namespace}"
    await serving.client.delete(path)

    async def gone() -> bool:
        return await serving.client.find(path) is None

    await serving.until(gone, "the namespace to go")


@pytest.fixture
async def refusal(client: Client, namespace: str) -> AsyncIterator[str]:
    """The name of a policy that refuses every change of the target's template, once it is bound."""
    name = f"no-change-{namespace}"
    rule = {
        "apiGroups": ["apps"],
        "apiVersions": ["v1"],
        "operations": ["UPDATE"],
        "resources": ["deployments"],
    }
    same = "object.metadata.name != 'llm' || object.spec.template == oldObject.spec.template"
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": same, "message": "the template is frozen"}],
    }
    await client.create(POLICIES, {"metadata": {"name": name}, "spec": spec})
    yield name
    for collection in (BINDINGS, POLICIES):
        await client.delete(f"{collection}/{name}")


async def bind(serving: Serving, policy: str) -> None:
    """Have the policy refuse; returns once it does."""
    space = {"matchLabels": {"kubernetes.io/metadata.name": serving.namespace}}
    spec = {
        "policyName": policy,
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": space},
    }
    await serving.client.create(BINDINGS, {"metadata": {"name": policy}, "spec": spec})
    path = paths.deployment(serving.namespace, "llm")
    change = {"spec": {"template": {"metadata": {"annotations": {"probe": "1"}}}}}

    async def refused() -> bool:
        try:
            await serving.client.patch(path, change, dryRun="All")
        except ApiError as error:
            return error.status == 422
        return False

    await serving.until(refused, "the policy to act")


async def test_what_cannot_be_put_back_is_said_and_inherited_by_the_next(
    serving: Serving, refusal: str
) -> None:
    before = await stages.deploy(serving, "Baking")
    strategy = stages.strategy(steps=[{"replicas": 1, "hold": "300s"}], bake="300s")
    await stages.reach(serving, "Baking", strategy={**strategy, "startDeadline": "10s"})
    await serving.all_ready(2)
    await bind(serving, refusal)
    await stages.delete(serving)
    await stages.is_gone(serving, seconds=90)
    (note,) = [n for reason, _, n in await serving.events() if reason == "ReleasedUnfinished"]
    assert "kept as ControllerRevision up-known-good" in note
    assert stages.image(await stages.template(serving)) == "sim/vllm:0.29.0"

    await serving.client.delete(f"{BINDINGS}/{refusal}")
    await stages.reach(serving, "Canary", "next")
    assert await stages.template(serving) == before
    assert "KnownGoodInherited" in stages.reasons(await serving.status("next"))


@pytest.mark.parametrize(("phase", "name"), [("Promoting", "up"), ("Baking", "next")])
async def test_the_next_one_inherits_known_good_of_one_that_was_deleted_by_force(
    serving: Serving, phase: str, name: str
) -> None:
    before = await stages.deploy(serving, phase)
    await stages.reach(serving, phase)
    digests = (await serving.status())["knownGood"]["digests"]
    await stages.delete_by_force(serving)
    # The garbage collector takes the canary, and its pods with it out of the traffic.
    await stages.canary_is_gone(serving)
    assert stages.image(await stages.template(serving)) == "sim/vllm:0.29.0"
    assert await stages.revisions(serving) == ["up-candidate", "up-known-good"]

    await stages.reach(serving, "Canary", name)
    status = await serving.status(name)
    words = stages.said(status, "KnownGoodInherited")
    assert words.startswith("upgrade up is gone and left llm with its candidate's template")
    assert "KnownGoodInherited" in [reason for reason, _, _ in await serving.events()]
    assert status["knownGood"]["digests"] == digests
    assert await stages.template(serving) == before
    await serving.annotate({f"{DOMAIN}/abort": "1"}, name)
    await serving.phase("RolledBack", name=name)
    await is_in_order(serving, before)


async def test_a_canary_of_one_that_was_deleted_by_force_leaves_the_traffic(
    serving: Serving,
) -> None:
    before = await stages.deploy(serving, "Canary")
    await stages.reach(serving, "Canary")

    async def admitted() -> bool:
        return len(await serving.pods(f"app=llm,{DOMAIN}/canary")) == 1

    await serving.until(admitted, "the canary in the traffic")
    await stages.delete_by_force(serving)
    await stages.canary_is_gone(serving)
    # Its record is of no use to the next one: the target was never touched.
    await stages.reach(serving, "Canary", "next")
    assert "KnownGoodInherited" not in stages.reasons(await serving.status("next"))
    assert await stages.revisions(serving) == ["next-candidate", "next-known-good"]
    assert await stages.template(serving) == before
