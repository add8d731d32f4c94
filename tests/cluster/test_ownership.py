"""After an upgrade the target belongs to whoever applied it, by helm or by kubectl, as before.

The operator replaces the template and puts managedFields back; then the owner's next version
changes one field and removes two, and that is what must come of it.
"""

from __future__ import annotations

import asyncio
import copy
import json
import os
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from localcluster import build
from vllm_upgrade_operator.cluster import paths
from vllm_upgrade_operator.cluster.client import Client
from vllm_upgrade_operator.cluster.execute import Executor
from vllm_upgrade_operator.cluster.outdated import OutdatedError
from vllm_upgrade_operator.upgrade.decision import ReplaceTemplate, RestoreOwnership
from vllm_upgrade_operator.upgrade.names import FIELD_MANAGER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

pytestmark = pytest.mark.cluster

OLD, NEW = "sim/vllm:0.28.0", "sim/vllm:0.29.0"


def manifest(image: str, env: Mapping[str, str], grace: int | None = None) -> dict[str, Any]:
    """A Deployment without pods: only its template matters here."""
    container = {
        "name": "vllm",
        "image": image,
        "env": [{"name": name, "value": value} for name, value in env.items()],
    }
    spec: dict[str, Any] = {"containers": [container]}
    if grace is not None:
        spec["terminationGracePeriodSeconds"] = grace
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "llm"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "llm"}},
            "template": {"metadata": {"labels": {"app": "llm"}}, "spec": spec},
        },
    }


FIRST = manifest(OLD, {"CHANGED": "1", "REMOVED": "1", "KEPT": "1"}, grace=5)


def second(image: str) -> dict[str, Any]:
    return manifest(image, {"CHANGED": "2", "KEPT": "1"})


@dataclass
class Owner:
    """Somebody who applies a Deployment `llm` in a namespace of its own."""

    client: Client
    namespace: str
    directory: Path
    way: str

    async def apply(self, deployment: dict[str, Any]) -> None:
        code, output = await self.try_to_apply(deployment)
        assert code == 0, output

    async def try_to_apply(self, deployment: dict[str, Any]) -> tuple[int, str]:
        """Give exit code and output."""
        return await run(
            *(self._chart(deployment) if self.way == "helm" else self._file(deployment))
        )

    def _file(self, deployment: dict[str, Any]) -> list[str]:
        file = self.directory / "llm.json"
        file.write_text(json.dumps(deployment))
        server = ["--server-side"] if self.way == "server-side" else []
        return [build.kubectl(), "apply", "-n", self.namespace, *server, "-f", str(file)]

    def _chart(self, deployment: dict[str, Any]) -> list[str]:
        templates = self.directory / "chart" / "templates"
        templates.mkdir(parents=True, exist_ok=True)
        chart = {"apiVersion": "v2", "name": "llm", "version": "0.1.0"}
        (self.directory / "chart" / "Chart.yaml").write_text(json.dumps(chart))
        (templates / "llm.yaml").write_text(json.dumps(deployment))
        helm = str(build.binaries() / "helm")
        chart_path = str(self.directory / "chart")
        return [helm, "upgrade", "--install", "llm", chart_path, "-n", self.namespace]

    async def present(self) -> dict[str, Any]:
        return await self.client.get(paths.deployment(self.namespace, "llm"))

    def executor(self) -> Executor:
        metadata = {"namespace": self.namespace, "name": "up", "uid": "uid-of-no-object"}
        return Executor(self.client, {"metadata": metadata, "spec": {"targetRef": {"name": "llm"}}})


async def run(*command: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, output.decode()


@pytest.fixture(params=["helm", "server-side", "client-side"])
async def owner(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Owner]:
    if "KUBECONFIG" not in os.environ:
        pytest.fail("needs a local cluster: python -m localcluster exec -- pytest ...")
    namespace = f"ownership-{secrets.token_hex(4)}"
    async with await Client.from_kubeconfig(os.environ["KUBECONFIG"]) as client:
        await client.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        try:
            yield Owner(client, namespace, tmp_path, request.param)
        finally:
            await client.delete(f"/api/v1/namespaces/{namespace}")


def candidate(template: Mapping[str, Any]) -> dict[str, Any]:
    """What an upgrade makes of the template: an image, and a variable more."""
    changed = copy.deepcopy(dict(template))
    container = changed["spec"]["containers"][0]
    container["image"] = NEW
    container["env"].append({"name": "ADDED", "value": "1"})
    return changed


def environment(deployment: Mapping[str, Any]) -> dict[str, str]:
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    return {e["name"]: e["value"] for e in container["env"]}


def image(deployment: Mapping[str, Any]) -> str:
    return str(deployment["spec"]["template"]["spec"]["containers"][0]["image"])


def managers(deployment: Mapping[str, Any]) -> set[str]:
    return {e["manager"] for e in deployment["metadata"]["managedFields"]}


async def promote(owner: Owner) -> dict[str, Any]:
    """Give the target the candidate's template; returns it as it was before."""
    before = await owner.present()
    template = before["spec"]["template"]
    replace = ReplaceTemplate(expected=template, replacement=candidate(template))
    await owner.executor().execute(replace)
    assert image(await owner.present()) == NEW
    return before


async def give_back(owner: Owner, before: Mapping[str, Any]) -> dict[str, Any]:
    recorded = tuple(before["metadata"]["managedFields"])
    await owner.executor().execute(RestoreOwnership(recorded=recorded))
    return await owner.present()


async def test_the_owner_goes_on_after_a_promotion(owner: Owner) -> None:
    await owner.apply(FIRST)
    before = await promote(owner)
    given_back = await give_back(owner, before)
    assert environment(given_back) == {**environment(before), "ADDED": "1"}
    await owner.apply(second(NEW))
    after = await owner.present()
    assert image(after) == NEW
    assert environment(after) == {"CHANGED": "2", "KEPT": "1", "ADDED": "1"}
    assert after["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 30


async def test_the_owner_goes_on_after_a_rollback(owner: Owner) -> None:
    await owner.apply(FIRST)
    before = await promote(owner)
    now = (await owner.present())["spec"]["template"]
    await owner.executor().execute(
        ReplaceTemplate(expected=now, replacement=before["spec"]["template"])
    )
    given_back = await give_back(owner, before)
    assert FIELD_MANAGER not in managers(given_back)
    assert given_back["spec"] == before["spec"]
    await owner.apply(second(OLD))
    after = await owner.present()
    assert image(after) == OLD
    assert environment(after) == {"CHANGED": "2", "KEPT": "1"}
    assert after["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 30


@pytest.mark.parametrize("owner", ["server-side"], indirect=True)
async def test_without_giving_back_the_owner_is_refused(owner: Owner) -> None:
    """What the other tests would show if nothing were given back."""
    await owner.apply(FIRST)
    await promote(owner)
    code, output = await owner.try_to_apply(second("sim/vllm:0.32.0"))
    assert code != 0
    assert FIELD_MANAGER in output


@pytest.mark.parametrize("owner", ["server-side"], indirect=True)
async def test_a_template_that_somebody_changed_is_not_replaced(owner: Owner) -> None:
    await owner.apply(FIRST)
    seen = (await owner.present())["spec"]["template"]
    await owner.apply(second(OLD))
    changed = (await owner.present())["spec"]["template"]
    with pytest.raises(OutdatedError, match="no longer the one that was read"):
        await owner.executor().execute(ReplaceTemplate(expected=seen, replacement=candidate(seen)))
    assert (await owner.present())["spec"]["template"] == changed


@pytest.mark.parametrize("owner", ["server-side"], indirect=True)
async def test_giving_back_twice_changes_nothing(owner: Owner) -> None:
    await owner.apply(FIRST)
    before = await promote(owner)
    once = await give_back(owner, before)
    twice = await give_back(owner, before)
    assert twice["metadata"]["resourceVersion"] == once["metadata"]["resourceVersion"]
