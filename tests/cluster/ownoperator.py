"""An operator of one test alone, which can be killed, behind an API server that can fail.

The operator that all tests share is kept off the namespace by a policy that knows it by its pod:
both have the same ServiceAccount, so the same permissions and policies hold for this one.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from localcluster.release import NAME, NAMESPACE
from tests.cluster.accounts import as_account
from tests.cluster.faultproxy import FaultProxy, open_proxy
from vllm_upgrade_operator.cluster.client import ApiError, Client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

_LABEL = "tests.vllmupgrade.dev/own-operator"
_POLICY = "tests-own-operator"
_POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
_BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
_TRIES = 300


class OwnOperator:
    """An operator process that is started again whenever it ends, as a kubelet would."""

    def __init__(self, proxy: FaultProxy, namespace: str, directory: Path, token: str) -> None:
        self.proxy = proxy
        self.lives = 0
        self.killed = 0
        self.ended: list[int] = []
        """Exit codes of lives that nobody has ended."""
        self._log = directory / "operator.log"
        self._kubeconfig = directory / "operator.kubeconfig"
        self._kubeconfig.write_text(json.dumps(_kubeconfig(proxy.port, token)))
        self._namespace = namespace
        self._pid: int | None = None

    def kill(self) -> None:
        """SIGKILL, unless it is dead already."""
        if self._pid is not None:
            os.kill(self._pid, signal.SIGKILL)
            self._pid = None
            self.killed += 1

    def log(self) -> str:
        return self._log.read_text()

    async def live(self) -> None:
        """Run it, again and again, until cancelled."""
        with self._log.open("ab") as log:
            host = await self._host(log.fileno())
        assert host.stdin is not None
        assert host.stdout is not None
        try:
            while True:
                host.stdin.write(b"live\n")
                self._pid = int(await host.stdout.readline())
                self.lives += 1
                code = int(await host.stdout.readline())
                if self._pid is not None:
                    self._pid = None
                    self.ended.append(code)
                    await asyncio.sleep(1)
        finally:
            self.kill()
            host.kill()
            await host.wait()

    async def _host(self, log: int) -> asyncio.subprocess.Process:
        environment = {k: v for k, v in os.environ.items() if k != "KUBERNETES_SERVICE_HOST"}
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.cluster.operatorlives"),
            f"--namespace={self._namespace}",
            "--host=127.0.0.1",
            "--health-port=0",
            "--metrics-port=0",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env={**environment, "KUBECONFIG": str(self._kubeconfig)},
        )


@asynccontextmanager
async def own_operator(
    client: Client, namespace: str, directory: Path
) -> AsyncIterator[OwnOperator]:
    """Run an operator for this namespace alone, and keep the shared one off it."""
    await _keep_the_shared_one_off(client, namespace)
    answer = await client.create(
        f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{NAME}/token",
        {"spec": {"expirationSeconds": 3600}},
    )
    async with open_proxy() as proxy:
        operator = OwnOperator(proxy, namespace, directory, answer["status"]["token"])
        life = asyncio.create_task(operator.live())
        try:
            yield operator
        finally:
            life.cancel()
            await asyncio.wait([life])
            # Its finalizers would keep the namespace for ever: the shared operator takes over.
            await _label(client, namespace, None)


def _kubeconfig(port: int, token: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "here", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "operator", "user": {"token": token}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "operator"}}],
    }


async def _keep_the_shared_one_off(client: Client, namespace: str) -> None:
    for collection, body in ((_POLICIES, _policy()), (_BINDINGS, _binding())):
        try:
            await client.create(collection, body)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
    await _label(client, namespace, "true")
    shared = await _as_the_shared_one(client)
    try:
        for _ in range(_TRIES):
            if await _is_kept_off(shared, namespace):
                return
            await asyncio.sleep(0.1)
    finally:
        await shared.close()
    raise AssertionError("the policy that keeps the shared operator off does not work")


async def _label(client: Client, namespace: str, value: str | None) -> None:
    await client.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {_LABEL: value}}})


async def _as_the_shared_one(client: Client) -> Client:
    found = await client.get(
        f"/api/v1/namespaces/{NAMESPACE}/pods", labelSelector=f"app.kubernetes.io/name={NAME}"
    )
    pod = found["items"][0]["metadata"]
    reference = {"apiVersion": "v1", "kind": "Pod", "name": pod["name"], "uid": pod["uid"]}
    return await as_account(client, NAMESPACE, NAME, reference)


async def _is_kept_off(shared: Client, namespace: str) -> bool:
    try:
        await shared.create(
            f"/apis/apps/v1/namespaces/{namespace}/controllerrevisions",
            {"metadata": {"name": "probe"}, "revision": 1, "data": {}},
            dryRun="All",
        )
    except ApiError as error:
        if _POLICY not in error.message:
            raise
        return True
    return False


def _policy() -> dict[str, Any]:
    everything = {
        "apiGroups": ["*"],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE", "DELETE"],
        "resources": ["*/*"],
        "scope": "Namespaced",
    }
    shared = (
        f"request.userInfo.username == 'system:serviceaccount:{NAMESPACE}:{NAME}' && "
        "has(request.userInfo.extra) && "
        "'authentication.kubernetes.io/pod-name' in request.userInfo.extra"
    )
    return {
        "metadata": {"name": _POLICY},
        "spec": {
            "matchConstraints": {"resourceRules": [everything]},
            "matchConditions": [{"name": "shared-operator", "expression": shared}],
            "validations": [
                {"expression": "false", "message": "a test has an operator of its own here"}
            ],
        },
    }


def _binding() -> dict[str, Any]:
    return {
        "metadata": {"name": _POLICY},
        "spec": {
            "policyName": _POLICY,
            "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": {"matchLabels": {_LABEL: "true"}}},
        },
    }
