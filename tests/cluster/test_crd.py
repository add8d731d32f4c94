"""A real API server takes the CRD in strict mode, and refuses specs with what would be right.

Nothing is kept but where a test needs an object: the requests are dry runs.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from localcluster import build
from tests.specs import ACCEPTED, EVERYTHING, REFUSED, spec
from vllm_upgrade_operator.api.v1alpha1 import GROUP, KIND, VERSION, VLLMUpgradeSpec
from vllm_upgrade_operator.cluster.client import APPLY, MERGE, ApiError, Client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.cluster

CRD = yaml.safe_load((Path(__file__).parents[2] / "crds" / "vllmupgrades.yaml").read_text())
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
UPGRADES = f"/apis/{GROUP}/{VERSION}/namespaces/default/vllmupgrades"
STRICT = {"fieldValidation": "Strict"}
DRY = {**STRICT, "dryRun": "All"}

# A wait ends long after what it waits for should have happened: only a defect reaches it.
PATIENCE = 30.0


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """A client of an API server that has the CRD: the operator's chart brought it, or we do."""
    if "KUBECONFIG" not in os.environ:
        pytest.fail("needs a local cluster: python -m localcluster exec -- pytest ...")
    async with await Client.from_kubeconfig(os.environ["KUBECONFIG"]) as client:
        if await client.find(f"{CRDS}/{CRD['metadata']['name']}") is None:
            await client.create(CRDS, CRD, **STRICT)
        deadline = time.monotonic() + PATIENCE
        while await client.find(UPGRADES) is None:
            assert time.monotonic() < deadline, "VLLMUpgrades are not served"
            await asyncio.sleep(0.1)
        yield client


def upgrade(spec: dict[str, Any], name: str = "crd-test") -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "metadata": {"name": name},
        "spec": spec,
    }


async def refusal(client: Client, body: dict[str, Any]) -> str:
    with pytest.raises(ApiError) as error:
        await client.create(UPGRADES, body, **DRY)
    assert error.value.status in (400, 422)
    return error.value.message


async def test_the_crd_is_accepted_and_what_is_served_is_ours(client: Client) -> None:
    """Strict, and no part of the schema is dropped or found to be not structural."""
    path = f"{CRDS}/{CRD['metadata']['name']}"
    applied = await client.patch(path, CRD, APPLY, fieldManager="crd-test", force="true", **DRY)
    assert applied["spec"]["versions"][0]["schema"] == CRD["spec"]["versions"][0]["schema"]
    status = (await client.get(path))["status"]
    found = {c["type"]: c["status"] for c in status["conditions"]}
    assert found["Established"] == "True"
    assert found.get("NonStructuralSchema", "False") == "False"


@pytest.mark.parametrize("name", list(ACCEPTED))
async def test_a_good_spec_is_accepted_with_the_defaults_of_the_models(
    client: Client, name: str
) -> None:
    stored = await client.create(UPGRADES, upgrade(ACCEPTED[name]), **DRY)
    read = VLLMUpgradeSpec.model_validate(stored["spec"])
    assert read == VLLMUpgradeSpec.model_validate(ACCEPTED[name])
    # Everything that the models have as a default can be seen by a person in the object.
    assert read.model_dump(by_alias=True, mode="json", exclude_none=True) == stored["spec"]


@pytest.mark.parametrize("name", list(REFUSED))
async def test_a_bad_spec_is_refused_with_what_would_be_right(client: Client, name: str) -> None:
    case = REFUSED[name]
    message = await refusal(client, upgrade(case.spec))
    assert case.field in message
    for part in case.says:
        assert part in message


async def test_the_target_stays_and_the_rest_may_change(client: Client) -> None:
    name = f"crd-test-{secrets.token_hex(3)}"
    path = f"{UPGRADES}/{name}"
    # No such Deployment: an operator that sees it has nothing to act on.
    await client.create(UPGRADES, upgrade({**EVERYTHING, "targetRef": {"name": name}}, name))
    try:
        with pytest.raises(ApiError) as error:
            await client.patch(path, {"spec": {"targetRef": {"name": "other"}}}, MERGE, **DRY)
        assert f"cannot be changed from {name} to other" in error.value.message
        assert "make another VLLMUpgrade" in error.value.message
        changed = await client.patch(path, {"spec": {"reason": "another"}}, MERGE, **DRY)
        assert changed["spec"]["reason"] == "another"
    finally:
        await client.delete(path)


@pytest.mark.parametrize("wide", [False, True])
async def test_columns_are_shown(client: Client, *, wide: bool) -> None:
    name = f"crd-test-{secrets.token_hex(3)}"
    await client.create(UPGRADES, upgrade(spec(targetRef={"name": name}), name))
    try:
        process = await asyncio.create_subprocess_exec(
            *(build.kubectl(), "get", "vu", name, "--namespace", "default"),
            *(["--output", "wide"] if wide else []),
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
    finally:
        await client.delete(f"{UPGRADES}/{name}")
    head, row = out.decode().splitlines()
    further = ["REJECTIONS", "QUEUE", "TTFT", "KNOWN-GOOD", "CANDIDATE"] if wide else []
    usual = ["TARGET", "PHASE", "STEP", "CANARY", "RUNNER", "VERDICT", "MESSAGE"]
    assert head.split() == ["NAME", *usual, *further, "AGE"]
    assert row.split()[:2] == [name, name]
