"""What preflight would see of an upgrade that is in a file alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.unit.cluster.stub import StubClient
from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeSpec
from vllm_upgrade_operator.cluster import paths
from vllm_upgrade_operator.cluster.client import ApiError
from vllm_upgrade_operator.cluster.log_looker import LogLooker
from vllm_upgrade_operator.cluster.rehearsal import RefusedError, rehearse
from vllm_upgrade_operator.upgrade.observation import Observation, Refusal

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "llm"}},
    "spec": {"containers": [{"name": "vllm", "image": "vllm/vllm-openai:v0.28.0"}]},
}
TARGET: dict[str, Any] = {
    "metadata": {
        "name": "llm",
        "namespace": "serving",
        "uid": "uid-llm",
        "resourceVersion": "1",
        "generation": 1,
    },
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "llm"}},
        "template": TEMPLATE,
    },
}
MANIFEST: dict[str, Any] = {
    "apiVersion": "vllmupgrade.dev/v1alpha1",
    "kind": "VLLMUpgrade",
    "metadata": {"name": "up"},
    "spec": {
        "targetRef": {"name": "llm"},
        "candidate": {"image": "vllm/vllm-openai:v0.29.0"},
    },
}
SPEC = VLLMUpgradeSpec.model_validate(MANIFEST["spec"])
UP = paths.upgrade("serving", "up")


class DryRuns(StubClient):
    """Answers a dry run on the target with what it would make."""

    async def patch(
        self, path: str, body: object, content_type: str = "", **query: object
    ) -> dict[str, Any]:
        assert query["dryRun"] == "All", "nothing may be written"
        await super().patch(path, body, content_type)
        if path == paths.deployment("serving", "llm"):
            assert isinstance(body, list)
            return {"spec": {"template": copy.deepcopy(body[0]["value"])}}
        return {}


def cluster(**more: Any) -> DryRuns:
    empty: dict[str, Any] = {"items": []}
    listed = (
        paths.deployments("serving"),
        paths.pods("serving"),
        paths.replica_sets("serving"),
        paths.revisions("serving"),
        paths.services("serving"),
        paths.disruption_budgets("serving"),
        paths.nodes(),
    )
    return DryRuns(
        dict.fromkeys(listed, empty) | {paths.deployment("serving", "llm"): TARGET} | more
    )


async def see(client: StubClient, **metadata: Any) -> Observation:
    manifest = {**MANIFEST, "metadata": {"name": "up", **metadata}}
    return await rehearse(client, LogLooker(client), "serving", manifest, SPEC)


async def test_without_the_custom_resource_definition_the_rest_is_seen() -> None:
    client = cluster()
    client.failures["PATCH", UP] = ApiError(404, "NotFound", "the server could not find it")
    o = await see(client)
    assert (o.name, o.namespace) == ("up", "serving")
    assert o.target is not None
    assert not isinstance(o.proposed, Refusal)
    assert o.proposed is not None
    assert o.proposed["spec"]["containers"][0]["image"] == "vllm/vllm-openai:v0.29.0"
    assert o.surroundings is not None
    assert o.conflict is None
    assert {method for method, _, _ in client.calls} == {"GET", "PATCH"}


async def test_one_that_is_applied_is_no_rival_of_itself_and_others_go_first() -> None:
    def applied(name: str, created: str) -> dict[str, Any]:
        metadata = {
            "name": name,
            "namespace": "serving",
            "uid": f"uid-{name}",
            "generation": 3,
            "creationTimestamp": created,
        }
        return {**MANIFEST, "metadata": metadata}

    mine, other = applied("up", "2026-11-01T00:00:00Z"), applied("other", "2026-10-01T00:00:00Z")
    alone = {UP: mine, paths.upgrades("serving"): {"items": [mine]}}
    assert (await see(cluster(**alone))).conflict is None
    both = {paths.upgrades("serving"): {"items": [other]}}
    found = await see(cluster(**both))
    assert found.conflict is not None
    assert found.conflict.name == "other"


@pytest.mark.parametrize("status", [400, 403, 422])
async def test_what_the_api_server_refuses_is_said_in_its_words(status: int) -> None:
    client = cluster()
    client.failures["PATCH", UP] = ApiError(status, "Invalid", "steps must not descend")
    with pytest.raises(RefusedError, match="steps must not descend"):
        await see(client)


async def test_a_right_that_is_missing_is_no_refusal() -> None:
    client = cluster()
    words = 'vllmupgrades is forbidden: User "me" cannot patch resource "vllmupgrades"'
    client.failures["PATCH", UP] = ApiError(403, "Forbidden", words)
    with pytest.raises(ApiError, match="cannot patch"):
        await see(client)
