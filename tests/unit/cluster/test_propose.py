"""What the API server says of a dry run: a refused template, or a server that cannot say."""

from __future__ import annotations

import pytest

from tests.unit.cluster.stub import StubClient
from tests.unit.cluster.test_proposal import TEMPLATE
from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeSpec
from vllm_upgrade_operator.cluster.client import ApiError
from vllm_upgrade_operator.cluster.proposal import propose
from vllm_upgrade_operator.upgrade.observation import Refusal

PATH = "/apis/apps/v1/namespaces/serving/deployments/llm"
TARGET = {
    "metadata": {"name": "llm", "namespace": "serving"},
    "spec": {"template": TEMPLATE},
}
SPEC = VLLMUpgradeSpec.model_validate(
    {"targetRef": {"name": "llm"}, "candidate": {"image": "vllm/vllm-openai:v0.29.0"}}
)
POLICY = "deployments.apps \"llm\" is forbidden: policy 'images' denied request: not approved"
RBAC = (
    'deployments.apps "llm" is forbidden: User "system:serviceaccount:sys:operator" cannot patch '
    'resource "deployments" in API group "apps" in the namespace "serving"'
)


async def test_what_a_policy_denies_is_a_refusal() -> None:
    client = StubClient()
    client.failures["PATCH", PATH] = ApiError(403, "Forbidden", POLICY)
    found = await propose(client, TARGET, SPEC)
    assert isinstance(found, Refusal)
    assert POLICY in found.message


async def test_that_the_operator_may_not_patch_is_none() -> None:
    client = StubClient()
    client.failures["PATCH", PATH] = ApiError(403, "Forbidden", RBAC)
    with pytest.raises(ApiError) as error:
        await propose(client, TARGET, SPEC)
    assert error.value.unauthorized


@pytest.mark.parametrize("image", ["a", None])
async def test_a_container_that_is_not_there_is_refused_also_for_a_patch(
    image: str | None,
) -> None:
    """Whatever is changed: which container is judged must be known."""
    candidate = {"image": image} if image else {"templatePatch": {"spec": {"hostname": "x"}}}
    spec = SPEC.model_validate(
        {"targetRef": {"name": "llm"}, "container": "no", "candidate": candidate}
    )
    client = StubClient()
    found = await propose(client, TARGET, spec)
    assert isinstance(found, Refusal)
    assert found.message.startswith("spec.container: there is no container 'no' in the target")
    assert client.calls == []
