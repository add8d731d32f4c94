"""The load generator against a small server in the same process."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from localcluster.load import LoadGenerator, Mix, Options
from localcluster.load.__main__ import parse
from localcluster.load.endpoints import Endpoint, EndpointError, Endpoints, ready_endpoints
from localcluster.load.generator import write
from localcluster.load.histogram import Histogram
from localcluster.load.options import OptionError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path


class Server:
    """Answers as vLLM does, or in the way that a test wants."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.connections: set[object] = set()
        self.behaviour = "ok"
        self.let_go = asyncio.Event()

    async def models(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "tiny"}]})

    async def completions(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.connections.add(request.transport)
        match self.behaviour:
            case "reject":
                return web.json_response({"error": {"code": 503}}, status=503)
            case "fail":
                return web.json_response({"error": {"code": 500}}, status=500)
            case "not found":
                return web.json_response({"error": {"code": 404}}, status=404)
            case "no json":
                return web.Response(text="{", content_type="application/json")
            case "close":
                assert request.transport is not None
                request.transport.close()
                return web.Response()
            case "hang":
                await self.let_go.wait()
        if not body["stream"]:
            return web.json_response({"choices": [{"text": "a"}]})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b'data: {"choices": [{"text": "a"}]}\n')
        await response.write(b'\ndata: {"choices": [{"text": "b"}]}\n\nda')
        await asyncio.sleep(0.01)
        await response.write(b'ta: {"choices": [{"text": "c"}]}\n\n')
        match self.behaviour:
            case "cut":
                assert request.transport is not None
                request.transport.close()
                return response
            case "stop early":
                return response
            case "error in stream":
                await response.write(b'data: {"error": {"code": 500}}\n\n')
        await response.write(b"data: [DONE]\n\n")
        return response


@asynccontextmanager
async def serving(*, pod: str = "a") -> AsyncIterator[tuple[Server, Endpoint]]:
    server = Server()
    application = web.Application()
    application.router.add_get("/v1/models", server.models)
    application.router.add_post("/v1/completions", server.completions)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield server, Endpoint(pod, "127.0.0.1", runner.addresses[0][1])
    finally:
        server.let_go.set()
        await runner.cleanup()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 - what is looked at has no event
            await asyncio.sleep(0.001)


def options(**changes: Any) -> Options:
    return Options(namespace="n", service="s", **{"rate": 200.0, "duration": 0.2, **changes})


async def run(endpoints: Endpoints, **changes: Any) -> dict[str, Any]:
    generator = LoadGenerator(options(**changes), endpoints=endpoints)
    async with asyncio.timeout(20):
        await generator.run()
    return generator.report()


def outcomes(report: dict[str, Any], pod: str = "a") -> dict[str, int]:
    return {name: count for name, count in report["pods"][pod]["outcomes"].items() if count}


@pytest.mark.parametrize("stream", [True, False])
async def test_every_arrival_is_sent_and_counted(*, stream: bool) -> None:
    async with serving() as (server, endpoint):
        report = await run(Endpoints([endpoint]), stream=stream)
    assert report["arrivals"] == len(server.bodies) > 0
    assert outcomes(report) == {"ok": report["arrivals"]}
    assert report["dropped"] == report["unserved"] == 0
    pod = report["pods"]["a"]
    assert pod["e2e"]["count"] == report["arrivals"]
    assert pod["ttft"]["count"] == (report["arrivals"] if stream else 0)
    assert pod["itl"]["count"] == (2 * report["arrivals"] if stream else 0)
    assert report["started"] <= pod["first_accepted"] <= pod["last_accepted"] <= report["updated"]
    assert report["model"] == "tiny"
    assert not report["running"]


async def test_lengths_are_those_of_the_mix_and_the_seed_repeats_them() -> None:
    mixes = {
        "prompt_tokens": Mix((3, 7), (1.0, 1.0)),
        "output_tokens": Mix((5,), (1.0,)),
        "seed": 4,
    }
    seen = []
    for _ in range(2):
        async with serving() as (server, endpoint):
            await run(Endpoints([endpoint]), **mixes)
        seen.append([body["prompt"] for body in server.bodies])
        assert {len(body["prompt"]) for body in server.bodies} == {3, 7}
        assert {body["max_tokens"] for body in server.bodies} == {5}
        assert {body["model"] for body in server.bodies} == {"tiny"}
    one, other = sorted(({tuple(p) for p in prompts} for prompts in seen), key=len)
    assert one
    assert one <= other


@pytest.mark.parametrize(
    ("behaviour", "outcome", "accepted"),
    [
        ("reject", "rejected", True),
        ("fail", "error", True),
        ("not found", "client_error", True),
        ("close", "refused", False),
        ("cut", "cut", True),
        ("stop early", "cut", True),
        ("error in stream", "error", True),
    ],
)
async def test_an_outcome_is_what_the_pod_did(
    behaviour: str, outcome: str, *, accepted: bool
) -> None:
    async with serving() as (server, endpoint):
        server.behaviour = behaviour
        report = await run(Endpoints([endpoint]))
    assert outcomes(report) == {outcome: report["arrivals"]}
    assert (report["pods"]["a"]["last_accepted"] is not None) == accepted
    assert report["pods"]["a"]["e2e"]["count"] == 0


async def test_an_answer_that_is_no_json_is_counted() -> None:
    async with serving() as (server, endpoint):
        server.behaviour = "no json"
        report = await run(Endpoints([endpoint]), stream=False)
    assert outcomes(report) == {"client_error": report["arrivals"]}


async def test_a_pod_that_is_not_there_refuses() -> None:
    async with serving() as (_, endpoint):
        generator = LoadGenerator(options(), endpoints=Endpoints([endpoint]))
        started = asyncio.create_task(generator.run())
        await until(lambda: generator.report()["model"] is not None)
        # Nothing listens on port 1.
        generator._endpoints.replace([slice_of("b", "127.0.0.1", 1)])
        await started
    report = generator.report()
    answered = sum(outcomes(report).values()) if "a" in report["pods"] else 0
    assert outcomes(report, "b") == {"refused": report["arrivals"] - answered}
    assert report["arrivals"] > answered
    assert report["pods"]["b"]["first_accepted"] is None
    assert report["pods"]["b"]["connections"] == 0


async def test_connections_are_opened_anew_or_used_again() -> None:
    for keep_alive in (False, True):
        async with serving() as (server, endpoint):
            report = await run(
                Endpoints([endpoint]), keep_alive=keep_alive, connections=2, duration=0.5
            )
        pod = report["pods"]["a"]
        assert pod["connections"] + pod["reused"] == report["arrivals"]
        assert outcomes(report) == {"ok": report["arrivals"]}
        if keep_alive:
            assert len(server.connections) <= 2
            assert pod["reused"] > 0
            assert pod["last_accepted_new"] <= pod["last_accepted"]
        else:
            assert pod["reused"] == 0
            assert pod["last_accepted_new"] == pod["last_accepted"]


async def test_a_kept_connection_stays_with_its_endpoint_after_that_is_gone() -> None:
    async with serving(pod="a") as (_, a), serving(pod="b") as (_, b):
        endpoints = Endpoints([a])
        generator = LoadGenerator(
            options(keep_alive=True, connections=1, duration=30.0), endpoints=endpoints
        )
        running = asyncio.create_task(generator.run())
        await until(lambda: "a" in generator.tally.pods)
        endpoints.replace([slice_of(b.pod, b.address, b.port)])
        so_far = generator.tally.arrivals
        await until(lambda: generator.tally.arrivals >= so_far + 20)
        generator.stop()
        await running
    report = generator.report()
    assert list(report["pods"]) == ["a"]
    assert report["pods"]["a"]["reused"] > 0


async def test_endpoints_share_the_load() -> None:
    async with serving(pod="a") as (_, a), serving(pod="b") as (_, b):
        report = await run(Endpoints([a, b]), duration=0.5)
    assert set(report["pods"]) == {"a", "b"}
    total = sum(sum(outcomes(report, pod).values()) for pod in ("a", "b"))
    assert total == report["arrivals"]


async def test_arrivals_do_not_wait_for_answers_and_are_bounded() -> None:
    async with serving() as (server, endpoint):
        server.behaviour = "hang"
        report = await run(Endpoints([endpoint]), in_flight=3, drain=0.05)
    assert len(server.bodies) == 3
    assert report["dropped"] == report["arrivals"] - 3
    assert outcomes(report) == {"abandoned": 3}
    assert report["in_flight"] == 0


async def test_a_request_is_given_up_in_time() -> None:
    async with serving() as (server, endpoint):
        server.behaviour = "hang"
        report = await run(Endpoints([endpoint]), in_flight=1, timeout=0.05, duration=0.1)
    assert outcomes(report)["timeout"] > 0


async def test_stopping_lets_requests_end() -> None:
    async with serving() as (server, endpoint):
        server.behaviour = "hang"
        generator = LoadGenerator(options(duration=60.0), endpoints=Endpoints([endpoint]))
        running = asyncio.create_task(generator.run())
        await until(lambda: bool(server.bodies))
        generator.stop()
        server.let_go.set()
        async with asyncio.timeout(10):
            await running
    report = generator.report()
    assert outcomes(report) == {"ok": report["arrivals"]}


async def test_without_a_ready_endpoint_nothing_is_sent() -> None:
    async with serving() as (server, endpoint):
        endpoints = Endpoints([endpoint])
        generator = LoadGenerator(options(duration=60.0), endpoints=endpoints)
        running = asyncio.create_task(generator.run())
        await until(lambda: generator.report()["model"] is not None)
        endpoints.replace([])
        sent = len(server.bodies)
        await until(lambda: generator.tally.unserved >= 3)
        generator.stop()
        await running
    report = generator.report()
    assert report["unserved"] >= 3
    assert report["arrivals"] >= sent + report["unserved"]
    assert report["endpoints"] == []


def slice_of(pod: str, address: str, port: int, *, ready: bool | None = True) -> dict[str, Any]:
    return {
        "metadata": {"name": f"slice-{pod}"},
        "ports": [{"name": "http", "port": port}],
        "endpoints": [
            {
                "addresses": [address],
                "conditions": {} if ready is None else {"ready": ready},
                "targetRef": {"kind": "Pod", "name": pod},
            }
        ],
    }


def test_ready_endpoints_are_those_that_are_not_said_to_be_unready() -> None:
    slices = [
        slice_of("a", "10.244.0.2", 8000),
        slice_of("b", "10.244.0.3", 8000, ready=False),
        slice_of("c", "10.244.0.4", 8000, ready=None),
        {"metadata": {"name": "empty"}, "endpoints": None, "ports": None},
    ]
    assert ready_endpoints(slices) == {
        Endpoint("a", "10.244.0.2", 8000),
        Endpoint("c", "10.244.0.4", 8000),
    }


@pytest.mark.parametrize("address", ["10.245.0.1", "192.0.2.1", "::1", "example.org"])
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(EndpointError, match=address):
        Endpoints().replace([slice_of("a", address, 8000)])


async def test_an_endpoint_elsewhere_ends_the_load_with_the_reason() -> None:
    class Elsewhere:
        async def get(self, path: str, **_: object) -> dict[str, Any]:
            assert path == "/apis/discovery.k8s.io/v1/namespaces/n/endpointslices"
            return {"metadata": {}, "items": [slice_of("a", "192.0.2.1", 80)]}

    generator = LoadGenerator(options(duration=60.0), Elsewhere())  # type: ignore[arg-type]
    async with asyncio.timeout(10):
        with pytest.raises(EndpointError, match=r"192\.0\.2\.1"):
            await generator.run()


async def test_endpoints_follow_the_slices() -> None:
    class Watched:
        def __init__(self) -> None:
            self.gone = asyncio.Event()

        async def get(self, _: str, **query: object) -> dict[str, Any]:
            assert query == {"labelSelector": "kubernetes.io/service-name=s"}
            return {
                "metadata": {"resourceVersion": "7"},
                "items": [slice_of("a", "10.244.0.2", 8000)],
            }

        async def watch(self, _: str, **query: object) -> AsyncIterator[tuple[str, dict[str, Any]]]:
            assert query["resourceVersion"] == "7"
            yield "ADDED", slice_of("b", "10.244.0.3", 8000)
            yield "MODIFIED", slice_of("b", "10.244.0.4", 8000)
            yield "DELETED", slice_of("a", "10.244.0.2", 8000)
            self.gone.set()
            await asyncio.Event().wait()

    client, endpoints = Watched(), Endpoints()
    watching = asyncio.create_task(endpoints.watch(client, "n", "s"))  # type: ignore[arg-type]
    async with asyncio.timeout(10):
        await client.gone.wait()
    watching.cancel()
    assert endpoints.ready == (Endpoint("b", "10.244.0.4", 8000),)
    assert endpoints.pod("10.244.0.2", 8000) == "a"
    assert endpoints.pod("10.244.0.9", 8000) == "10.244.0.9:8000"


def test_several_ports_need_one_named_http() -> None:
    both = slice_of("a", "10.244.0.2", 8000)
    both["ports"].append({"name": "grpc", "port": 9000})
    assert ready_endpoints([both]) == {Endpoint("a", "10.244.0.2", 8000)}
    both["ports"][0]["name"] = "rest"
    with pytest.raises(EndpointError, match="rest, grpc"):
        ready_endpoints([both])


def test_quantiles_are_bounds_of_buckets() -> None:
    histogram = Histogram()
    assert histogram.quantile(0.5) is None
    for seconds in (0.0005, 0.0012, 0.0012, 0.9):
        histogram.observe(seconds)
    assert histogram.quantile(0.25) == 0.001
    assert histogram.quantile(0.75) == 0.0015
    assert histogram.quantile(0.99) == 1.0
    histogram.observe(1000.0)
    report = histogram.report()
    assert report["p99"] is None
    assert report["buckets"] == {"0.001": 1, "0.0015": 2, "1.0": 1, "+Inf": 1}


def test_a_report_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    write({"a": 1}, path)
    write({"a": 2}, path)
    assert json.loads(path.read_text()) == {"a": 2}
    assert list(tmp_path.iterdir()) == [path]


def test_the_command_line_says_what_to_send(tmp_path: Path) -> None:
    path = str(tmp_path / "r")
    given, report = parse(
        [
            *("--service=n/s", "--rate=5", "--prompt-tokens=8:3,16"),
            *("--no-stream", "--keep-alive", f"--report={path}"),
        ]
    )
    assert (given.namespace, given.service, given.rate) == ("n", "s", 5.0)
    assert given.prompt_tokens == Mix((8, 16), (3.0, 1.0))
    assert not given.stream
    assert given.keep_alive
    assert str(report) == path


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--service=s", "--rate=5"], "service is 's'"),
        (["--service=n/s", "--rate=0"], "rate is 0.0"),
        (["--service=n/s", "--rate=1", "--prompt-tokens=a"], "prompt-tokens is 'a'"),
        (["--service=n/s", "--rate=1", "--output-tokens=8:-1"], "output-tokens is '8:-1'"),
        (["--service=n/s", "--rate=1", "--output-tokens=0"], "output-tokens is '0'"),
        (["--service=n/s", "--rate=1", "--duration=inf"], "duration is inf"),
        (["--service=n/s", "--rate=1", "--in-flight=0"], "in_flight is 0"),
    ],
)
def test_a_wrong_option_is_named(arguments: list[str], said: str) -> None:
    with pytest.raises(OptionError, match="give") as error:
        parse(arguments)
    assert said in str(error.value)
