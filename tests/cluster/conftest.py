"""Fixtures of the tests that run on the local control plane, inside its namespaces."""

from __future__ import annotations

import asyncio
import os
import uuid
from typing import TYPE_CHECKING

import pytest

from tests.cluster.kit import Serving, delete_namespace
from vllm_upgrade_operator.cluster.client import Client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """An administrator's client."""
    if "KUBECONFIG" not in os.environ:
        pytest.fail("these tests run inside a local cluster: use `make test`")
    async with await Client.from_kubeconfig() as found:
        yield found


@pytest.fixture
async def namespace(client: Client) -> AsyncIterator[str]:
    """A namespace of this test alone, deleted behind it."""
    name = f"t-{uuid.uuid4().hex[:10]}"
    await client.create("/api/v1/namespaces", {"metadata": {"name": name}})
    # Pods need the default ServiceAccount, which a controller makes.
    for _ in range(100):
        if await client.find(f"/api/v1/namespaces/{name}/serviceaccounts/default"):
            break
        await asyncio.sleep(0.1)
    yield name
    await delete_namespace(client, name)


@pytest.fixture
async def serving(client: Client, namespace: str, tmp_path: Path) -> AsyncIterator[Serving]:
    """A namespace in which a test serves and upgrades."""
    found = Serving(client, namespace, tmp_path)
    yield found
    for load in found.loads:
        await load.stop()
