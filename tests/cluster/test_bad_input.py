"""What cannot be tried is `Blocked` before anything is changed, with what would be right.

Most targets here never run: their pods fit no node. What a schema or a CEL rule refuses is tested
in test_crd.py.
"""

from __future__ import annotations

import asyncio
import copy
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.accounts import as_account
from tests.cluster.kit import (
    SERVICE,
    Serving,
    condition,
    quick_spec,
    target_manifest,
)
from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeSpec
from vllm_upgrade_operator.cluster.client import MERGE, ApiError, Client
from vllm_upgrade_operator.cluster.proposal import propose

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

pytestmark = pytest.mark.cluster

Manifest = dict[str, Any]
PATCH = "spec.candidate.templatePatch"
PINNED_TO_V1 = {"VLLM_USE_V2_MODEL_RUNNER": "0"}


def template(target: Manifest) -> Manifest:
    found: Manifest = target["spec"]["template"]
    return found


def vllm(target: Manifest) -> Manifest:
    found: Manifest = template(target)["spec"]["containers"][0]
    return found


def as_script(script: str) -> Callable[[Manifest], None]:
    def change(target: Manifest) -> None:
        vllm(target).update(command=["sh", "-c"], args=[script])

    return change


def twice(target: Manifest) -> None:
    other = {**vllm(target), "name": "other", "ports": []}
    template(target)["spec"]["containers"].append(other)


def unrecognised(target: Manifest) -> None:
    vllm(target).update(name="server", image="sim/server:1")


def scaled_to_nothing(target: Manifest) -> None:
    target["spec"]["replicas"] = 0


def by_absence(target: Manifest) -> None:
    expression = {"key": "retired", "operator": "DoesNotExist"}
    target["spec"]["selector"] = {"matchExpressions": [expression]}


def with_our_label(target: Manifest) -> None:
    template(target)["metadata"]["labels"]["vllmupgrade.dev/role"] = "stable"


def patch(**parts: Any) -> Manifest:
    return {"candidate": {"image": "sim/vllm:0.29.0", "templatePatch": parts}}


def patched_container(**parts: Any) -> Manifest:
    return {"spec": {"containers": [{"name": "vllm", **parts}]}}


def candidate(**parts: Any) -> Manifest:
    return {"candidate": parts}


def steps(*given: Manifest) -> Manifest:
    return {"strategy": {**quick_spec()["strategy"], "steps": list(given)}}


@dataclass(frozen=True)
class Case:
    """A spec that is blocked, with the target that it is for."""

    spec: Manifest
    reason: str
    says: tuple[str, ...]
    target: Callable[[Manifest], None] | None = None
    services: tuple[dict[str, str], ...] = field(default=())


BLOCKED: dict[str, Case] = {
    "fewer pods than the step before": Case(
        steps({"replicas": 3}, {"percent": 50}),
        "StepsImpossible",
        ("steps[1].percent is 50: 2 of the 4 pods of llm, fewer than the 3", "percent: 51"),
    ),
    "more than all pods": Case(
        steps({"replicas": 1}, {"replicas": 5}),
        "StepsImpossible",
        ("steps[1].replicas is 5, more than the 4 pods of llm (over 100%)", "at most 4"),
    ),
    "no stable pods": Case(
        {}, "TargetScaledToZero", ("Deployment llm has spec.replicas 0", "scale"), scaled_to_nothing
    ),
    "no such container": Case(
        {"container": "vllm-server"},
        "CandidateRefused",
        ("spec.container: there is no container 'vllm-server' in the target (there are: vllm)",),
    ),
    "no such container for a patch alone": Case(
        {"container": "no", **candidate(templatePatch={"spec": {"hostname": "x"}})},
        "CandidateRefused",
        ("spec.container: there is no container 'no' in the target",),
    ),
    "two containers": Case(
        {},
        "CandidateRefused",
        ("spec.container: more than one container runs vLLM (vllm, other): name one",),
        twice,
    ),
    "two containers for a patch alone": Case(
        candidate(templatePatch={"spec": {"hostname": "x"}}),
        "CandidateRefused",
        ("spec.container: more than one container runs vLLM (vllm, other): name one",),
        twice,
    ),
    "no container of vLLM": Case(
        {},
        "CandidateRefused",
        ("spec.container: no container of the target runs vLLM", "there are: server"),
        unrecognised,
    ),
    "a script": Case(
        candidate(args=[{"flag": "max-num-seqs", "value": "8"}]),
        "CandidateRefused",
        (
            "containers[vllm]: its shell command cannot be edited: it contains '$'",
            "write the command as a list",
        ),
        as_script("vllm serve $MODEL --port 8000"),
    ),
    "a flag that is not there": Case(
        candidate(unsetArgs=["max-num-seqs"]),
        "CandidateRefused",
        ("spec.candidate.unsetArgs: flag 'max-num-seqs' is not among", "there are: model, port"),
    ),
    "a flag by its short name": Case(
        candidate(args=[{"flag": "tp", "value": "2"}]),
        "CandidateRefused",
        ("spec.candidate.args: flag 'tp' is a short spelling: write 'tensor-parallel-size'",),
    ),
    "a variable that is not there": Case(
        candidate(unsetEnv=["NO_SUCH"]),
        "CandidateRefused",
        ("spec.candidate.unsetEnv: variable 'NO_SUCH' is not in the env of container 'vllm'",),
    ),
    "a variable from nowhere": Case(
        candidate(env=[{"name": "A", "valueFrom": {"fileRef": {"key": "a"}}}]),
        "CandidateRefused",
        (
            "spec.candidate: the API server refuses the pod template it makes:",
            'unknown field "spec.template.spec.containers[0].env[2].valueFrom.fileRef"',
        ),
    ),
    "nothing new": Case(
        candidate(image="sim/vllm:0.28.0"),
        "NoChange",
        ("spec.candidate changes nothing: llm already has this template",),
    ),
    "a label of the operator": Case(
        patch(metadata={"labels": {"vllmupgrade.dev/role": "stable"}}),
        "CandidateRefused",
        (f"{PATCH}.metadata.labels[vllmupgrade.dev/role] is 'stable'", "take it out"),
    ),
    "a label of the operator on the target": Case(
        {},
        "CandidateRefused",
        ("spec.template.metadata.labels[vllmupgrade.dev/role] of Deployment llm is 'stable'",),
        with_our_label,
    ),
    "a label of the Deployment controller": Case(
        patch(metadata={"labels": {"pod-template-hash": "mine"}}),
        "CandidateRefused",
        (f"{PATCH}.metadata.labels[pod-template-hash] is 'mine', but the Deployment controller",),
    ),
    "a label that the traffic goes by": Case(
        patch(metadata={"labels": {"team": "b"}}),
        "CandidateRefused",
        (f"{PATCH}.metadata.labels changes team from 'a' to 'b', by which Service s0 selects",),
        services=({"team": "a"},),
    ),
    "a label less that the traffic goes by": Case(
        patch(metadata={"labels": {"team": None}}),
        "CandidateRefused",
        ("changes team from 'a' to None, by which Service s0 selects", "leave it as it is"),
        services=({"team": "a"},),
    ),
    "a name for pods": Case(
        patch(metadata={"name": "mine"}),
        "CandidateRefused",
        (f"{PATCH}.metadata.name: of a pod template's metadata only labels and annotations",),
    ),
    "replicas": Case(
        patch(replicas=8),
        "CandidateRefused",
        (f"{PATCH}.replicas: a pod template has metadata and spec only",),
    ),
    "an image twice": Case(
        patch(**patched_container(image="sim/vllm:0.30.0")),
        "CandidateRefused",
        (f"{PATCH}.spec.containers[vllm].image: spec.candidate.image says it too: keep one",),
    ),
    "an unknown field": Case(
        patch(spec={"contaners": []}),
        "CandidateRefused",
        (f"{PATCH}: the API server refuses", 'unknown field "spec.template.spec.contaners"'),
    ),
    "the network of the node": Case(
        patch(spec={"hostNetwork": True}),
        "HostNetwork",
        (f"{PATCH}.spec.hostNetwork is true", "set hostNetwork: false"),
    ),
    "a Service of canary pods": Case(
        {},
        "SelectedBeforeAdmission",
        ("Service s0 selects by vllmupgrade.dev/role=canary", "add a label to its selector"),
        services=({"vllmupgrade.dev/role": "canary"},),
    ),
    "a Service of what the candidate adds": Case(
        patch(metadata={"labels": {"generation": "new"}}),
        "SelectedBeforeAdmission",
        ("Service s0 selects by generation=new", f"take the label out of {PATCH}"),
        services=({"generation": "new"},),
    ),
    "a target that selects by absence": Case(
        {},
        "SelectedBeforeAdmission",
        ("spec.selector of Deployment llm selects by what pods do not have", "matchLabels"),
        by_absence,
    ),
}


async def asleep(serving: Serving, change: Callable[[Manifest], None] | None = None) -> None:
    """Make a target whose pods fit no node."""
    target = target_manifest("sim/vllm:0.28.0", 4, (), PINNED_TO_V1, 0)
    template(target)["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "no-such-node"}
    if change is not None:
        change(target)
    await serving.client.create(f"/apis/apps/v1/namespaces/{serving.namespace}/deployments", target)


async def services(serving: Serving, selectors: tuple[dict[str, str], ...]) -> None:
    for index, selector in enumerate(selectors):
        service = copy.deepcopy(SERVICE)
        service["metadata"]["name"] = f"s{index}"
        service["spec"]["selector"] = selector
        await serving.client.create(f"/api/v1/namespaces/{serving.namespace}/services", service)


async def snapshot(serving: Serving) -> Manifest:
    """Everything that an upgrade that starts would change, or make."""
    kept: Manifest = {}
    for kind in ("deployments", "controllerrevisions"):
        path = f"/apis/apps/v1/namespaces/{serving.namespace}/{kind}"
        for found in (await serving.client.get(path))["items"]:
            metadata = found["metadata"]
            managers = {e["manager"] for e in metadata.get("managedFields", [])}
            kept[f"{kind}/{metadata['name']}"] = (
                metadata["uid"],
                metadata["generation"],
                found.get("spec"),
                metadata.get("labels"),
                "vllm-upgrade-operator" in managers,
            )
    return kept


@pytest.mark.parametrize("name", list(BLOCKED))
async def test_it_is_blocked_and_nothing_is_changed(serving: Serving, name: str) -> None:
    case = BLOCKED[name]
    await asleep(serving, case.target)
    await services(serving, case.services)
    before = await snapshot(serving)
    await serving.upgrade(**case.spec)
    await serving.phase("Blocked")
    status = await serving.status()
    assert status["timeline"][-1]["reason"] == case.reason, status["message"]
    for part in case.says:
        assert part in status["message"]
    assert condition(status, "Finished") == ("True", "Blocked")
    assert await snapshot(serving) == before
    assert await serving.canaries() == []


async def test_a_simple_shell_command_is_none_of_these(serving: Serving) -> None:
    """It is taken apart; the upgrade then waits for its target, which is asleep."""
    await asleep(serving, as_script("vllm serve m --port 8000 --max_num_seqs 4"))
    await serving.upgrade(**candidate(args=[{"flag": "max-num-seqs", "value": "8"}]))

    async def waits() -> bool:
        message = (await serving.status()).get("message") or ""
        return message.startswith("waiting for the target to be at rest")

    await serving.until(waits, "a target at rest")


async def test_one_that_is_blocked_twice_says_so_once(serving: Serving) -> None:
    """Any edit has it looked at anew; the same outcome is a series of one Event."""
    await asleep(serving)
    await serving.upgrade(container="no")
    await serving.phase("Blocked")
    await serving.set_spec({"reason": "another"})
    path = f"/apis/events.k8s.io/v1/namespaces/{serving.namespace}/events"

    async def counted() -> bool:
        found = (await serving.client.get(path))["items"]
        mine = [
            e
            for e in found
            if e["reason"] == "CandidateRefused" and e["regarding"]["kind"] == "VLLMUpgrade"
        ]
        assert len(mine) <= 1
        return bool(mine) and mine[0].get("series", {}).get("count") == 2

    await serving.until(counted, "a series of two")


@pytest.fixture
async def policy(client: Client, namespace: str) -> AsyncIterator[str]:
    """An admission policy that lets nobody have 0.29.0 in this namespace; its words."""
    name = f"t-{secrets.token_hex(4)}"
    words = "0.29.0 is not approved here"
    group = "/apis/admissionregistration.k8s.io/v1"
    where = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    rule = {
        "apiGroups": ["apps"],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["deployments"],
    }
    expression = "object.spec.template.spec.containers.all(c, !c.image.endsWith('0.29.0'))"
    await client.create(
        f"{group}/validatingadmissionpolicies",
        {
            "metadata": {"name": name},
            "spec": {
                "matchConstraints": {**where, "resourceRules": [rule]},
                "validations": [
                    {"expression": expression, "message": words, "reason": "Forbidden"}
                ],
            },
        },
    )
    await client.create(
        f"{group}/validatingadmissionpolicybindings",
        {"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}},
    )
    yield words
    for kind in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
        await client.delete(f"{group}/{kind}/{name}")


async def test_what_a_policy_denies_is_blocked_with_its_words(
    serving: Serving, policy: str
) -> None:
    probe = target_manifest("sim/vllm:0.29.0", 1, (), {}, 0)
    path = f"/apis/apps/v1/namespaces/{serving.namespace}/deployments"

    async def denied() -> bool:
        try:
            await serving.client.create(path, probe, dryRun="All")
        except ApiError as error:
            return policy in error.message
        return False

    await serving.until(denied, "the policy in force")
    await asleep(serving)
    before = await snapshot(serving)
    await serving.upgrade()
    await serving.phase("Blocked")
    status = await serving.status()
    assert status["message"].startswith("spec.candidate: the API server refuses the pod template")
    assert policy in status["message"]
    assert await snapshot(serving) == before


async def test_a_permission_that_the_operator_lacks_is_no_refusal(serving: Serving) -> None:
    """On a real API server's words: an account that may read Deployments and not patch them."""
    await asleep(serving)
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{serving.namespace}"
    rule = {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]}
    await serving.client.create(f"{rbac}/roles", {"metadata": {"name": "r"}, "rules": [rule]})
    await serving.client.create(
        f"{rbac}/rolebindings",
        {
            "metadata": {"name": "r"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
            "subjects": [
                {"kind": "ServiceAccount", "name": "default", "namespace": serving.namespace}
            ],
        },
    )
    spec = VLLMUpgradeSpec.model_validate(quick_spec())
    async with await as_account(serving.client, serving.namespace, "default") as account:
        with pytest.raises(ApiError) as error:
            await propose(account, await serving.target(), spec)
    assert error.value.unauthorized
    assert 'cannot patch resource "deployments"' in error.value.message


async def test_longest_names_and_a_selector_with_expressions(
    serving: Serving, client: Client
) -> None:
    """All that is named after them stays legal; every key of the selector is kept off a canary."""
    name, target = "u" * 253, "t" * 235
    manifest = target_manifest("sim/vllm:0.28.0", 1, (), PINNED_TO_V1, 0)
    manifest["metadata"]["name"] = target
    manifest["spec"]["selector"]["matchExpressions"] = [
        {"key": "team", "operator": "In", "values": ["a", "b"]},
        {"key": "retired", "operator": "DoesNotExist"},
    ]
    template(manifest)["metadata"]["labels"]["tier"] = "gpu"
    apps = f"/apis/apps/v1/namespaces/{serving.namespace}"
    await client.create(f"{apps}/deployments", manifest)
    await client.create(f"/api/v1/namespaces/{serving.namespace}/services", SERVICE)
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}
    await serving.upgrade(name, targetRef=reference)
    await serving.phase("Canary", name=name)

    canary = await client.get(f"{apps}/deployments/{target}-canary")
    born = canary["spec"]["template"]["metadata"]["labels"]
    assert "app" not in born
    assert "team" not in born
    assert born["tier"] == "gpu"
    revisions = (await client.get(f"{apps}/controllerrevisions"))["items"]
    ours = [r["metadata"]["name"] for r in revisions]
    assert sorted(n.rpartition("-")[2] for n in ours) == ["candidate", "good"]
    assert all(len(n) <= 253 for n in ours)

    async def admitted() -> bool:
        labels = [p["metadata"]["labels"] for p in await serving.canaries()]
        return [(x.get("app"), x.get("team")) for x in labels] == [("llm", "a")]

    await serving.until(admitted, "the canary in the traffic")
    events = await serving.events()
    assert "KnownGoodRecorded" in [reason for reason, _, _ in events]
    await client.delete(serving.path(name))

    async def gone() -> bool:
        return await client.find(serving.path(name)) is None

    await serving.until(gone, "the end of the upgrade")
    assert await serving.canaries() == []
    assert (await client.get(f"{apps}/controllerrevisions"))["items"] == []


async def test_no_step_goes_below_the_one_before_when_the_target_is_scaled_down(
    serving: Serving,
) -> None:
    await serving.deploy(env=PINNED_TO_V1, replicas=3)
    await serving.load(20)
    strategy = {
        **quick_spec()["strategy"],
        "steps": [{"replicas": 2, "hold": "3s"}, {"percent": 50, "hold": "60s"}],
    }
    await serving.upgrade(strategy=strategy)
    await serving.phase("Canary")
    await serving.client.patch(
        f"/apis/apps/v1/namespaces/{serving.namespace}/deployments/llm",
        {"spec": {"replicas": 2}},
        MERGE,
    )

    async def second() -> bool:
        return bool((await serving.status()).get("step", {}).get("index") == 1)

    await serving.until(second, "the second step")
    # 50 % of 2 would be 1.
    status = await serving.status()
    assert status["step"]["replicas"] == 2
    words = "begins with the 2 canary pods of the step before: 50% of the 2 pods that llm has by"
    assert [e for e in status["timeline"] if words in e["message"]]
    await asyncio.sleep(2)
    canary = await serving.client.get(
        f"/apis/apps/v1/namespaces/{serving.namespace}/deployments/llm-canary"
    )
    assert canary["spec"]["replicas"] == 2
