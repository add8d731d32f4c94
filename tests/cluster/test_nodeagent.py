"""Pods on the node agent behave as on a kubelet, as far as the API server's clients can see."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from localcluster import tags
from localcluster.paths import state_dir
from tests.cluster.pool import own_nodes
from vllm_upgrade_operator.cluster.client import MERGE, ApiError, Client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

pytestmark = pytest.mark.cluster

# A wait ends long after what it waits for should have happened: only a defect reaches it.
PATIENCE = 60.0

# Answers every GET with the status in the file /state/code, or 200; listens on the pod's address.
SERVER = """
import http.server, os, pathlib
code = pathlib.Path('/state/code')
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        good = self.headers.get('X-Probe', 'yes') == 'yes' and self.path != '/bad'
        self.send_response(int(code.read_text()) if code.exists() else 200 if good else 500)
        self.end_headers()
    def log_message(self, *_): pass
http.server.HTTPServer((os.environ['IP'], 8000), Handler).serve_forever()
"""
DIRECTORY = state_dir()
POD_IP = {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}


class Namespace:
    """A namespace of its own for a test."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name
        self.path = f"/api/v1/namespaces/{name}"

    async def run(self, container: dict[str, Any], name: str = "p", **spec: Any) -> None:
        annotations = spec.pop("annotations", {})
        body = {
            "metadata": {"name": name, "annotations": annotations, "labels": {"app": name}},
            "spec": {
                "terminationGracePeriodSeconds": 3,
                **spec,
                "containers": [{"name": "c", "image": "sim/sleep", **container}],
            },
        }
        await self.client.create(f"{self.path}/pods", body)

    async def pod(self, name: str = "p") -> dict[str, Any]:
        return await self.client.get(f"{self.path}/pods/{name}")

    async def gone(self, name: str = "p") -> bool:
        return await self.client.find(f"{self.path}/pods/{name}") is None

    async def until(
        self, holds: Callable[[dict[str, Any]], object], what: str, name: str = "p"
    ) -> dict[str, Any]:
        """Wait until a pod is as wanted, and give it back."""
        deadline = time.monotonic() + PATIENCE
        while True:
            pod = await self.pod(name)
            if holds(pod):
                return pod
            if time.monotonic() > deadline:
                raise AssertionError(f"waited for: {what}; status is {pod.get('status')}")
            await asyncio.sleep(0.05)

    async def until_gone(self, name: str = "p") -> None:
        deadline = time.monotonic() + PATIENCE
        while not await self.gone(name):
            assert time.monotonic() < deadline, f"pod {name} is still there"
            await asyncio.sleep(0.05)

    async def log(self, name: str = "p", **options: object) -> str:
        path = f"{self.path}/pods/{name}/log"
        return await self.client.text(path, limit_bytes=10**6, **options)  # type: ignore[arg-type]

    async def until_log(self, *words: str) -> str:
        """Wait until the log has all the words, and give it back."""
        deadline = time.monotonic() + PATIENCE
        log = await self.log()
        while not all(word in log for word in words):
            assert time.monotonic() < deadline, f"not all of {words} in {log!r}"
            await asyncio.sleep(0.05)
            log = await self.log()
        return log

    async def events(self, reason: str) -> list[str]:
        found = await self.client.get(f"{self.path}/events", fieldSelector=f"reason={reason}")
        return [event["message"] for event in found["items"]]

    async def until_event(self, reason: str, part: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not any(part in message for message in await self.events(reason)):
            assert time.monotonic() < deadline, f"no event {reason} with {part!r}"
            await asyncio.sleep(0.1)


@pytest.fixture
async def ns() -> AsyncIterator[Namespace]:
    if "KUBECONFIG" not in os.environ:
        pytest.fail("runs inside the local cluster: python -m localcluster exec -- pytest ...")
    async with await Client.from_kubeconfig(os.environ["KUBECONFIG"]) as client:
        name = f"nodeagent-{secrets.token_hex(3)}"
        await client.create("/api/v1/namespaces", {"metadata": {"name": name}})
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        deadline = time.monotonic() + PATIENCE
        while await client.find(account) is None:
            assert time.monotonic() < deadline, "no default ServiceAccount"
            await asyncio.sleep(0.05)
        yield Namespace(client, name)
        await client.delete(f"/api/v1/namespaces/{name}")


def container(pod: dict[str, Any]) -> dict[str, Any]:
    statuses = pod["status"].get("containerStatuses") or [{}]
    return dict(statuses[0])


def state(pod: dict[str, Any], kind: str) -> dict[str, Any] | None:
    found: dict[str, Any] | None = container(pod).get("state", {}).get(kind)
    return found


def is_running(pod: dict[str, Any]) -> bool:
    return state(pod, "running") is not None


def condition(pod: dict[str, Any], kind: str) -> dict[str, Any]:
    found = [c for c in pod["status"].get("conditions", []) if c["type"] == kind]
    return dict(found[0]) if found else {}


def is_ready(pod: dict[str, Any]) -> bool:
    return condition(pod, "Ready").get("status") == "True"


def waits_for(reason: str) -> Callable[[dict[str, Any]], bool]:
    return lambda pod: (state(pod, "waiting") or {}).get("reason") == reason


def script(text: str, **fields: Any) -> dict[str, Any]:
    return {"command": ["sh", "-c", text], **fields}


def server(**fields: Any) -> dict[str, Any]:
    """A container that serves HTTP on port 8000, and its volume's mount."""
    return {
        "command": ["python3", "-c", SERVER],
        "env": [POD_IP],
        "ports": [{"name": "web", "containerPort": 8000}],
        "volumeMounts": [{"name": "state", "mountPath": "/state"}],
        **fields,
    }


STATE = [{"name": "state", "emptyDir": {}}]


async def test_a_pod_runs_with_an_address_an_image_id_and_logs(ns: Namespace) -> None:
    await ns.run(script("echo out $IP; echo err >&2; sleep 1000", env=[POD_IP]))
    pod = await ns.until(is_ready, "ready")
    status = pod["status"]
    assert status["phase"] == "Running"
    assert status["podIP"].startswith("10.244.")
    assert status["podIPs"] == [{"ip": status["podIP"]}]
    assert status["observedGeneration"] == pod["metadata"]["generation"]
    found = container(pod)
    assert found["imageID"] == "sim/sleep@sha256:" + "0" * 62 + "51"
    assert (found["restartCount"], found["started"], found["ready"]) == (0, True, True)
    assert "://" in found["containerID"]
    for kind in ("PodReadyToStartContainers", "Initialized", "ContainersReady", "PodScheduled"):
        assert condition(pod, kind)["status"] == "True"
    lines = (await ns.until_log("out", "err")).splitlines()
    assert sorted(lines) == ["err", f"out {status['podIP']}"]
    for reason in ("Pulled", "Created", "Started"):
        await ns.until_event(reason, "")


async def test_pods_have_different_addresses(ns: Namespace) -> None:
    for name in ("a", "b"):
        await ns.run({"args": ["1000"]}, name=name)
    pods = [await ns.until(is_ready, "ready", name) for name in ("a", "b")]
    assert len({pod["status"]["podIP"] for pod in pods}) == 2


async def test_the_service_account_reaches_the_api_server(ns: Namespace) -> None:
    await ns.run(
        script(
            "D=/var/run/secrets/kubernetes.io/serviceaccount; cat $D/namespace; echo;"
            'python3 -c "import ssl,urllib.request as u;'
            "t=open('$D/token').read();"
            "c=ssl.create_default_context(cafile='$D/ca.crt');"
            "r=u.Request('https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/version',"
            "headers={'Authorization':'Bearer '+t});"
            'print(u.urlopen(r,context=c).status)"'
        ),
        restartPolicy="Never",
    )
    pod = await ns.until(lambda p: state(p, "terminated"), "ended")
    assert pod["status"]["phase"] == "Succeeded"
    assert (await ns.log()).split() == [ns.name, "200"]


@pytest.mark.parametrize(
    ("text", "code", "reason", "phase"),
    [
        ("exit 0", 0, "Completed", "Succeeded"),
        ("exit 7", 7, "Error", "Failed"),
        ("kill -KILL $$$$", 137, "Error", "Failed"),
        ("kill -SEGV $$$$", 139, "Error", "Failed"),
    ],
)
async def test_how_a_container_ends_is_reported(
    ns: Namespace, text: str, code: int, reason: str, phase: str
) -> None:
    await ns.run(script(text), restartPolicy="Never")
    pod = await ns.until(lambda p: state(p, "terminated"), "ended")
    ended = state(pod, "terminated")
    assert ended is not None
    assert (ended["exitCode"], ended["reason"]) == (code, reason)
    assert ended.get("signal", 0) == (code - 128 if code > 128 else 0)
    assert ended["startedAt"] <= ended["finishedAt"]
    assert pod["status"]["phase"] == phase
    assert not is_ready(pod)


async def test_a_program_that_is_not_there_is_a_start_error(ns: Namespace) -> None:
    await ns.run({"command": ["nosuchprogram"]}, restartPolicy="Never")
    pod = await ns.until(lambda p: state(p, "terminated"), "ended")
    ended = state(pod, "terminated")
    assert ended is not None
    assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
    assert "nosuchprogram" in ended["message"]


async def test_a_crashing_container_is_restarted_with_back_off(ns: Namespace) -> None:
    await ns.run(script("echo one run; exit 3"))
    pod = await ns.until(waits_for("CrashLoopBackOff"), "back-off")
    assert container(pod)["restartCount"] >= 1
    assert container(pod)["lastState"]["terminated"]["exitCode"] == 3
    waiting = state(pod, "waiting")
    assert waiting is not None
    assert "restarting failed container=c pod=p_" in waiting["message"]
    assert pod["status"]["phase"] == "Running"
    assert not is_ready(pod)
    await ns.until_event("BackOff", "Back-off restarting failed container c")
    assert await ns.log(previous="true") == "one run\n"


async def test_on_failure_restarts_only_failures(ns: Namespace) -> None:
    volume = {"volumeMounts": [{"name": "state", "mountPath": "/state"}]}
    await ns.run(
        script("test -e /state/x && exit 0; touch /state/x; exit 1", **volume),
        restartPolicy="OnFailure",
        volumes=STATE,
    )
    pod = await ns.until(lambda p: p["status"].get("phase") == "Succeeded", "succeeded")
    assert container(pod)["restartCount"] == 1


async def test_an_unknown_image_backs_off_until_it_is_deleted(ns: Namespace) -> None:
    await ns.run({"image": "nowhere/vllm:1"})
    pod = await ns.until(waits_for("ImagePullBackOff"), "ImagePullBackOff")
    assert pod["status"]["phase"] == "Pending"
    waiting = state(pod, "waiting")
    assert waiting is not None
    assert waiting["message"].startswith('Back-off pulling image "nowhere/vllm:1"')
    not_found = 'failed to resolve reference "nowhere/vllm:1": nowhere/vllm:1: not found'
    assert not_found in waiting["message"]
    await ns.until_event("Failed", 'Failed to pull image "nowhere/vllm:1": rpc error: code = NotF')
    await ns.until_event("Failed", "Error: ErrImagePull")
    await ns.until_event("BackOff", 'Back-off pulling image "nowhere/vllm:1"')
    await ns.client.delete(f"{ns.path}/pods/p")
    await ns.until_gone()


async def test_a_malformed_image_name_is_invalid(ns: Namespace) -> None:
    await ns.run({"image": "a/UPPER:1"})
    await ns.until(waits_for("InvalidImageName"), "InvalidImageName")
    await ns.until_event("InspectFailed", 'couldn\'t parse image name "a/UPPER:1"')


async def test_a_registry_that_can_be_reached_again_heals_the_pod(ns: Namespace) -> None:
    image = f"sim/unreachable:{ns.name}"
    await ns.run({"image": image, "args": ["1000"]})
    pod = await ns.until(waits_for("ErrImagePull"), "ErrImagePull")
    waiting = state(pod, "waiting")
    assert waiting is not None
    assert waiting["message"].endswith("i/o timeout")
    tags.move(DIRECTORY, image, "sim/sleep:latest")
    await ns.until(is_running, "running")


async def test_a_moved_tag_is_seen_by_containers_that_start(ns: Namespace) -> None:
    image = f"sim/vllm:{ns.name}"
    seen = []
    for name, to in (("a", "sim/vllm:0.29.0"), ("b", "sim/vllm:0.29.0-other")):
        tags.move(DIRECTORY, image, to)
        await ns.run({"image": image, **script("sleep 1000")}, name=name)
        seen.append(container(await ns.until(is_running, "running", name))["imageID"])
    assert [image_id[-1] for image_id in seen] == ["1", "2"]
    # A container that runs keeps the image that it was started with.
    assert container(await ns.pod("a"))["imageID"] == seen[0]


async def test_two_builds_of_a_version_have_different_digests_and_a_digest_can_be_pinned(
    ns: Namespace,
) -> None:
    seen = {}
    for name, image in (("a", "sim/vllm:0.29.0"), ("b", "sim/vllm:0.29.0-other")):
        await ns.run({"image": image, **script("sleep 1000")}, name=name)
        seen[name] = container(await ns.until(is_running, "running", name))["imageID"]
    assert seen["a"] != seen["b"]
    assert all(image_id.startswith("sim/vllm@sha256:") for image_id in seen.values())
    await ns.run({"image": seen["b"], **script("sleep 1000")}, name="pinned")
    pinned = await ns.until(is_running, "running", "pinned")
    assert container(pinned)["imageID"] == seen["b"]


async def test_gpus_are_counted_by_the_scheduler(ns: Namespace) -> None:
    nodes = await ns.client.get("/api/v1/nodes")
    per_node = {node["status"]["allocatable"]["nvidia.com/gpu"] for node in nodes["items"]}
    assert len(per_node) == 1
    most = int(per_node.pop())
    too_many = {"limits": {"nvidia.com/gpu": str(most + 1)}}
    await ns.run({"args": ["1000"], "resources": too_many}, name="greedy")
    pod = await ns.until(
        lambda p: condition(p, "PodScheduled").get("status") == "False", "refused", "greedy"
    )
    assert "Insufficient nvidia.com/gpu" in condition(pod, "PodScheduled")["message"]
    one = {"limits": {"nvidia.com/gpu": "1"}}
    await ns.run({"args": ["1000"], "resources": one})
    await ns.until(is_ready, "ready")


async def test_configuration_comes_as_variables_and_files(ns: Namespace) -> None:
    await ns.client.create(
        f"{ns.path}/configmaps", {"metadata": {"name": "cm"}, "data": {"k": "v"}}
    )
    await ns.client.create(
        f"{ns.path}/secrets", {"metadata": {"name": "s"}, "stringData": {"word": "hidden"}}
    )
    await ns.run(
        script(
            'echo "$k $W $L $N"; cat /etc/some/new/place/k /run/word; echo; pwd',
            envFrom=[{"configMapRef": {"name": "cm"}}],
            env=[
                {"name": "W", "valueFrom": {"secretKeyRef": {"name": "s", "key": "word"}}},
                {
                    "name": "L",
                    "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['a/b']"}},
                },
                {"name": "N", "value": "$(L)-$(k)-$$(k)"},
            ],
            volumeMounts=[
                {"name": "cm", "mountPath": "/etc/some/new/place", "readOnly": True},
                {"name": "s", "mountPath": "/run/word", "subPath": "word"},
            ],
            workingDir="/srv/here",
        ),
        annotations={"a/b": "note"},
        restartPolicy="Never",
        volumes=[
            {"name": "cm", "configMap": {"name": "cm"}},
            {"name": "s", "secret": {"secretName": "s"}},
        ],
    )
    await ns.until(lambda p: state(p, "terminated"), "ended")
    assert (await ns.log()).split("\n")[:3] == [
        "v hidden note note-v-$(k)",
        "vhidden",
        "/srv/here",
    ]


async def test_missing_configuration_is_named_and_waited_for(ns: Namespace) -> None:
    await ns.run(script("echo $k; sleep 1000", envFrom=[{"configMapRef": {"name": "late"}}]))
    pod = await ns.until(waits_for("CreateContainerConfigError"), "config error")
    waiting = state(pod, "waiting")
    assert waiting is not None
    assert waiting["message"] == 'configmap "late" not found'
    body = {"metadata": {"name": "late"}, "data": {"k": "v"}}
    await ns.client.create(f"{ns.path}/configmaps", body)
    await ns.until(is_ready, "ready")


@pytest.mark.parametrize(
    "probe",
    [
        {"httpGet": {"path": "/", "port": "web"}},
        {
            "httpGet": {
                "path": "/",
                "port": 8000,
                "httpHeaders": [{"name": "X-Probe", "value": "yes"}],
            }
        },
        {"tcpSocket": {"port": "web"}},
        {"exec": {"command": ["sh", "-c", "echo $IP; test -d /state"]}},
    ],
)
async def test_a_container_is_ready_when_its_probe_passes(
    ns: Namespace, probe: dict[str, Any]
) -> None:
    await ns.run(server(readinessProbe={**probe, "periodSeconds": 1}), volumes=STATE)
    await ns.until(is_ready, "ready")


@pytest.mark.parametrize(
    ("probe", "message"),
    [
        ({"httpGet": {"path": "/bad", "port": "web"}}, "HTTP probe failed with statuscode: 500"),
        (
            {
                "httpGet": {
                    "path": "/",
                    "port": "web",
                    "httpHeaders": [{"name": "X-Probe", "value": "no"}],
                }
            },
            "statuscode: 500",
        ),
        ({"httpGet": {"path": "/", "port": 8001}}, "8001"),
        ({"httpGet": {"path": "/", "port": "nothing"}}, "couldn't find port: 'nothing'"),
        ({"tcpSocket": {"port": 8001}}, "dial tcp"),
        ({"exec": {"command": ["sh", "-c", "echo not yet; exit 1"]}}, "not yet"),
        ({"exec": {"command": ["sleep", "1000"]}}, "timed out after 1s"),
    ],
)
async def test_a_failing_readiness_probe_keeps_it_out_and_says_why(
    ns: Namespace, probe: dict[str, Any], message: str
) -> None:
    await ns.run(server(readinessProbe={**probe, "periodSeconds": 1}), volumes=STATE)
    await ns.until_event("Unhealthy", message)
    pod = await ns.pod()
    assert is_running(pod)
    assert not is_ready(pod)
    assert condition(pod, "Ready")["message"] == "containers with unready status: [c]"
    assert container(pod)["restartCount"] == 0


async def test_readiness_comes_and_goes_with_the_probe(ns: Namespace) -> None:
    good = "test ! -e /state/down"
    await ns.run(
        script(
            "sleep 2; touch /state/down; sleep 1000",
            volumeMounts=[{"name": "state", "mountPath": "/state"}],
            readinessProbe={
                "exec": {"command": ["sh", "-c", good]},
                "periodSeconds": 1,
                "failureThreshold": 1,
            },
        ),
        volumes=STATE,
    )
    ready = await ns.until(is_ready, "ready")
    unready = await ns.until(lambda p: not is_ready(p), "not ready any more")
    times = [condition(pod, "Ready")["lastTransitionTime"] for pod in (ready, unready)]
    assert times[0] < times[1]
    assert container(unready)["restartCount"] == 0


async def test_a_failing_liveness_probe_restarts_the_container(ns: Namespace) -> None:
    probe = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 2}
    await ns.run(script("trap 'exit 5' TERM; sleep 1000 & wait", livenessProbe=probe))
    pod = await ns.until(lambda p: container(p).get("restartCount"), "restarted")
    assert container(pod)["lastState"]["terminated"]["exitCode"] == 5
    await ns.until_event("Killing", "Container c failed liveness probe, will be restarted")


async def test_nothing_else_is_probed_until_the_startup_probe_has_passed(ns: Namespace) -> None:
    await ns.run(
        script(
            "sleep 3; touch /state/up; sleep 1000",
            volumeMounts=[{"name": "state", "mountPath": "/state"}],
            startupProbe={
                "exec": {"command": ["test", "-e", "/state/up"]},
                "periodSeconds": 1,
                "failureThreshold": 60,
            },
            livenessProbe={
                "exec": {"command": ["test", "-e", "/state/up"]},
                "periodSeconds": 1,
                "failureThreshold": 1,
            },
        ),
        volumes=STATE,
    )
    pod = await ns.until(is_running, "running")
    assert container(pod)["started"] is False
    assert not is_ready(pod)
    pod = await ns.until(is_ready, "ready")
    assert container(pod)["started"] is True
    assert container(pod)["restartCount"] == 0


async def test_a_startup_probe_that_never_passes_restarts_the_container(ns: Namespace) -> None:
    probe = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 2}
    await ns.run(script("exec sleep 1000", startupProbe=probe))
    pod = await ns.until(lambda p: container(p).get("restartCount"), "restarted")
    assert container(pod)["lastState"]["terminated"]["exitCode"] == 143
    await ns.until_event("Killing", "Container c failed startup probe, will be restarted")


async def test_readiness_gates_keep_a_pod_out(ns: Namespace) -> None:
    gate = "example.com/admitted"
    await ns.run({"args": ["1000"]}, readinessGates=[{"conditionType": gate}])
    pod = await ns.until(lambda p: container(p).get("ready"), "container ready")
    assert condition(pod, "ContainersReady")["status"] == "True"
    assert condition(pod, "Ready")["reason"] == "ReadinessGatesNotReady"
    patch = {
        "status": {"conditions": [*pod["status"]["conditions"], {"type": gate, "status": "True"}]}
    }
    await ns.client.patch(f"{ns.path}/pods/p/status", patch, MERGE)
    await ns.until(is_ready, "ready")


async def follow(ns: Namespace, name: str = "p") -> str:
    """The log from now to the container's end."""
    return await ns.log(name, follow="true", seconds=PATIENCE)


async def test_deletion_runs_the_hook_then_terminates_then_removes(ns: Namespace) -> None:
    hook = {"exec": {"command": ["sh", "-c", "sleep 0.5; echo hook > /state/hook"]}}
    await ns.run(
        script(
            "trap 'cat /state/hook; echo term; exit 0' TERM; echo up; sleep 1000 & wait",
            volumeMounts=[{"name": "state", "mountPath": "/state"}],
            lifecycle={"preStop": hook},
        ),
        volumes=STATE,
        terminationGracePeriodSeconds=30,
    )
    await ns.until(is_ready, "ready")
    following = asyncio.create_task(follow(ns))
    await ns.until_log("up")
    await ns.client.delete(f"{ns.path}/pods/p")
    assert "deletionTimestamp" in (await ns.pod())["metadata"]
    await ns.until_gone()
    assert (await following).split() == ["up", "hook", "term"]
    await ns.until_event("Killing", "Stopping container c")


async def test_who_does_not_stop_is_killed_when_the_grace_period_is_over(ns: Namespace) -> None:
    await ns.run(
        script("trap 'echo no' TERM; echo up; while :; do sleep 0.2; done"),
        terminationGracePeriodSeconds=60,
    )
    await ns.until(is_ready, "ready")
    await ns.until_log("up")
    watching = asyncio.create_task(last_seen(ns))
    await asyncio.sleep(0.2)
    await ns.client.delete(f"{ns.path}/pods/p", {"gracePeriodSeconds": 1})
    last = await watching
    ended = state(last, "terminated")
    assert ended is not None
    assert (ended["exitCode"], ended["signal"]) == (137, 9)
    assert last["status"]["phase"] == "Failed"
    assert not is_ready(last)


async def last_seen(ns: Namespace) -> dict[str, Any]:
    """The object as it was when it was taken away."""
    events = ns.client.watch(f"{ns.path}/pods", seconds=int(PATIENCE))
    async for kind, pod in events:
        if kind == "DELETED":
            return pod
    raise AssertionError("the pod was not deleted")


async def test_a_forced_deletion_leaves_no_process(ns: Namespace) -> None:
    await ns.run(
        script(
            "trap '' TERM; echo up; python3 -m http.server --bind $IP 8000 & wait", env=[POD_IP]
        ),
        terminationGracePeriodSeconds=600,
    )
    pod = await ns.until(is_ready, "ready")
    address = pod["status"]["podIP"]
    deadline = time.monotonic() + PATIENCE
    while not await accepts(address):
        assert time.monotonic() < deadline, "the server did not start"
        await asyncio.sleep(0.05)
    await ns.client.delete(f"{ns.path}/pods/p", {"gracePeriodSeconds": 0})
    while await accepts(address):
        assert time.monotonic() < deadline, "the server still runs"
        await asyncio.sleep(0.05)


async def accepts(address: str) -> bool:
    try:
        _, writer = await asyncio.open_connection(address, 8000)
    except OSError:
        return False
    writer.close()
    return True


async def test_a_terminating_pod_leaves_the_ready_endpoints(ns: Namespace) -> None:
    service = {
        "metadata": {"name": "s"},
        "spec": {"selector": {"app": "p"}, "ports": [{"port": 80}]},
    }
    await ns.client.create(f"{ns.path}/services", service)
    await ns.run(
        script("trap 'sleep 3; exit 0' TERM; sleep 1000 & wait"), terminationGracePeriodSeconds=30
    )
    await ns.until(is_ready, "ready")

    async def conditions() -> list[dict[str, Any]]:
        path = f"/apis/discovery.k8s.io/v1/namespaces/{ns.name}/endpointslices"
        slices = (await ns.client.get(path))["items"]
        return [e["conditions"] for part in slices for e in part.get("endpoints") or []]

    deadline = time.monotonic() + PATIENCE
    while not any(c["ready"] for c in await conditions()):
        assert time.monotonic() < deadline, "never a ready endpoint"
        await asyncio.sleep(0.05)
    await ns.client.delete(f"{ns.path}/pods/p")
    while any(c["ready"] for c in await conditions()):
        assert time.monotonic() < deadline, "still a ready endpoint"
        await asyncio.sleep(0.05)


async def test_init_containers_run_first_and_sidecars_stay(ns: Namespace) -> None:
    mount = {"volumeMounts": [{"name": "state", "mountPath": "/state"}]}
    await ns.run(
        script("cat /state/order; sleep 1000", **mount),
        volumes=STATE,
        initContainers=[
            {"name": "one", "image": "sim/sleep", **script("echo one >> /state/order", **mount)},
            {
                "name": "side",
                "image": "sim/sleep",
                "restartPolicy": "Always",
                **script("echo side >> /state/order; touch /state/up; sleep 1000", **mount),
                "startupProbe": {
                    "exec": {"command": ["test", "-e", "/state/up"]},
                    "periodSeconds": 1,
                },
            },
            {"name": "two", "image": "sim/sleep", **script("echo two >> /state/order", **mount)},
        ],
    )
    pod = await ns.until(is_ready, "ready")
    assert (await ns.log(container="c")).split() == ["one", "side", "two"]
    init = {s["name"]: s for s in pod["status"]["initContainerStatuses"]}
    assert init["one"]["state"]["terminated"]["reason"] == "Completed"
    assert "running" in init["side"]["state"]
    await ns.client.delete(f"{ns.path}/pods/p")
    await ns.until_gone()


async def test_an_init_container_that_fails_holds_the_pod_back(ns: Namespace) -> None:
    bad = {"name": "bad", "image": "sim/sleep", **script("exit 2")}
    await ns.run({"args": ["1000"]}, initContainers=[bad], restartPolicy="Never")
    pod = await ns.until(lambda p: p["status"].get("phase") == "Failed", "failed")
    assert pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 2
    assert state(pod, "waiting") == {"reason": "PodInitializing"}
    assert condition(pod, "Initialized")["status"] == "False"


async def test_out_of_memory_on_request(ns: Namespace) -> None:
    env = [{"name": "LOCALCLUSTER_OOM_AFTER", "value": "0.5"}]
    await ns.run({"args": ["1000"], "env": env})
    pod = await ns.until(lambda p: container(p).get("restartCount"), "restarted")
    ended = container(pod)["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")


@pytest.mark.parametrize("variable", ["SIM_OOM_WHILE_LOADING", "SIM_FAULT_OOM"])
async def test_a_simulated_server_runs_out_of_memory(ns: Namespace, variable: str) -> None:
    env = [{"name": variable, "value": "1"}, {"name": "SIM_LOAD_SECONDS", "value": "0"}]
    await ns.run({"image": "sim/vllm:0.29.0", "args": ["m"], "env": env})
    pod = await ns.until(lambda p: container(p).get("restartCount"), "restarted")
    ended = container(pod)["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")


async def test_a_dead_engine_s_container_has_completed_and_is_restarted(ns: Namespace) -> None:
    # As a real server whose engine dies: nothing but the log tells of the failure.
    env = [
        {"name": "SIM_FAULT_ENGINE_DEATH", "value": "1"},
        {"name": "SIM_LOAD_SECONDS", "value": "0"},
    ]
    await ns.run({"image": "sim/vllm:0.32.0", "args": ["m"], "env": env})
    pod = await ns.until(lambda p: container(p).get("restartCount"), "restarted")
    ended = container(pod)["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (0, "Completed")
    assert "EngineCore encountered a fatal error." in await ns.log(previous="true")


async def test_log_options(ns: Namespace) -> None:
    await ns.run(script("for i in 1 2 3 4 5; do echo $i; done"), restartPolicy="Never")
    await ns.until(lambda p: state(p, "terminated"), "ended")
    assert await ns.log(tailLines=2) == "4\n5\n"
    assert await ns.log(limitBytes=3) == "1\n2"
    assert await ns.log(sinceSeconds=3600) == "1\n2\n3\n4\n5\n"
    time_of_last, text = (await ns.log(timestamps="true", tailLines=1)).split()
    assert text == "5"
    assert time_of_last.endswith("Z")
    with pytest.raises(ApiError, match="previous terminated container"):
        await ns.log(previous="true")


@pytest.mark.parametrize(
    "command",
    [
        {"args": ["--model", "m"]},
        {"command": ["vllm", "serve", "m"]},
        {"command": ["sh", "-c", "exec vllm serve m --host 0.0.0.0"]},
        {"command": ["python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"]},
    ],
)
async def test_every_way_to_start_vllm_reaches_the_simulator_of_that_version(
    ns: Namespace, command: dict[str, Any]
) -> None:
    probe = {"httpGet": {"path": "/health", "port": 8000}, "periodSeconds": 1}
    await ns.run({"image": "sim/vllm:0.32.0", **command, "readinessProbe": probe})
    pod = await ns.until(is_ready, "ready")
    url = f"http://{pod['status']['podIP']}:8000/version"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert (await answer.json())["version"] == "0.32.0"


async def test_a_lost_node_is_silent_until_it_is_back(ns: Namespace) -> None:
    async with own_nodes(ns.client) as pool:
        (node,) = pool.nodes
        for name in ("stays", "deleted", "forced"):
            await ns.run(server(), name=name, volumes=STATE, **pool.pod_fields)
        pods = {
            name: await ns.until(is_ready, "ready", name) for name in ("stays", "deleted", "forced")
        }
        assert {pod["spec"]["nodeName"] for pod in pods.values()} == {node}
        for pod in pods.values():
            await until_answers(pod["status"]["podIP"])
        await pool.stop(node)
        for name, before in pods.items():
            assert not await answers(before["status"]["podIP"])
            # Nobody has noticed yet.
            assert (await ns.pod(name))["status"] == before["status"]
        with pytest.raises(ApiError) as refused:
            await ns.log("stays")
        assert refused.value.status == 500
        await ns.until(lambda p: not is_ready(p), "not ready, since the node is lost", "stays")
        conditions = (await ns.client.get(f"/api/v1/nodes/{node}"))["status"]["conditions"]
        assert {c["status"] for c in conditions if c["type"] == "Ready"} == {"Unknown"}
        await ns.client.delete(f"{ns.path}/pods/deleted")
        await ns.client.delete(f"{ns.path}/pods/forced", {"gracePeriodSeconds": 0})
        await ns.until_gone("forced")
        # Nobody is there to end it.
        await asyncio.sleep(4)
        lingering = await ns.pod("deleted")
        assert "deletionTimestamp" in lingering["metadata"]
        assert is_running(lingering)
        await pool.start(node)
        await ns.until_gone("deleted")
        back = await ns.until(
            lambda p: is_ready(p) and container(p)["restartCount"] == 1, "started anew", "stays"
        )
        ended = container(back)["lastState"]["terminated"]
        assert (ended["reason"], ended["exitCode"]) == ("Unknown", 255)
        await until_answers(back["status"]["podIP"])


async def until_answers(address: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not await answers(address):
        assert time.monotonic() < deadline, f"nobody serves at {address}"
        await asyncio.sleep(0.1)


async def answers(address: str) -> bool:
    """Whether somebody serves on port 8000 of a pod."""
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{address}:8000/", timeout=aiohttp.ClientTimeout(5)) as response,
        ):
            return response.status == 200
    except aiohttp.ClientError:
        return False
