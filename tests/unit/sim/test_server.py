from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import ClientPayloadError, ServerDisconnectedError
from aiohttp.test_utils import TestClient, TestServer

from localcluster.sim import faults
from localcluster.sim.driver import Driver
from localcluster.sim.logs import Log
from localcluster.sim.options import parse
from localcluster.sim.server import Server
from localcluster.sim.settings import read
from tests.unit.sim.reading import fixture, samples

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiohttp import web

FAST = {"SIM_DECODE_STEP_SECONDS": "0.001", "SIM_SEQUENCE_SECONDS": "0"}
SLOW = {"SIM_DECODE_STEP_SECONDS": "1000"}
PROMPT = {"model": "tiny", "prompt": "x" * 40, "max_tokens": 8, "temperature": 0}


class Played:
    """One server in this process, and a client of it."""

    def __init__(self, version: str, env: dict[str, str], flags: tuple[str, ...]) -> None:
        options = parse(version, ["m", "--served-model-name", "tiny", *flags])
        settings = read(version, options, env)
        self.driver = Driver(settings)
        self.server = Server(settings, self.driver, Log(settings))
        self.client: TestClient[web.Request, web.Application]

    async def post(self, body: dict[str, Any], path: str = "/v1/completions") -> tuple[int, Any]:
        async with self.client.post(path, json=body) as response:
            return response.status, await response.json()

    async def metrics(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        async with self.client.get("/metrics") as response:
            assert response.headers["Content-Type"] == "text/plain; version=1.0.0; charset=utf-8"
            return samples(await response.text())

    async def fault(self, name: str, value: str) -> tuple[int, str]:
        async with self.client.post(f"/sim/fault/{name}", params={"value": value}) as response:
            return response.status, await response.text()

    async def status(self, path: str) -> int:
        async with self.client.get(path) as response:
            return response.status

    async def until_in_flight(self, number: int) -> None:
        async with asyncio.timeout(10):
            while self.driver.in_flight != number:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.01)


@asynccontextmanager
async def playing(
    version: str = "0.29.0", env: dict[str, str] | None = None, *flags: str
) -> AsyncIterator[Played]:
    played = Played(version, FAST if env is None else env, flags)
    server = TestServer(played.server.application())
    async with TestClient(server) as played.client:
        task = asyncio.create_task(played.driver.run())
        yield played
        task.cancel()


async def test_the_endpoints_without_an_engine() -> None:
    async with playing() as played:
        get = played.client.get
        for path, status, text in (
            ("/health", 200, ""),
            ("/ping", 200, ""),
            ("/version", 200, '{"version":"0.29.0"}'),
            ("/load", 200, fixture("0.29.0-v2-auto", "load.json")),
            ("/ready", 404, fixture("0.29.0-v2-auto", "ready.txt")),
            ("/v1/completions", 405, '{"detail":"Method Not Allowed"}'),
        ):
            async with get(path) as response:
                assert (response.status, await response.text()) == (status, text.strip()), path
        async with get("/v1/models") as response:
            models = await response.json()
        real = json.loads(fixture("0.29.0-v2-auto", "models.json"))
        assert models["data"][0].keys() == real["data"][0].keys()
        assert models["data"][0]["id"] == "tiny"
        assert models["data"][0]["max_model_len"] == 4096
        status, tokens = await played.post({"prompt": "x" * 40}, "/tokenize")
        assert (status, tokens["count"], len(tokens["tokens"])) == (200, 10, 10)


async def test_an_answer_and_its_figures() -> None:
    async with playing() as played:
        status, body = await played.post(PROMPT)
        assert status == 200
        assert body["usage"] == {"prompt_tokens": 10, "total_tokens": 18, "completion_tokens": 8}
        assert body["choices"][0]["finish_reason"] == "length"
        assert (await played.post(PROMPT))[1]["choices"] == body["choices"]
        found = await played.metrics()
        labels = (("engine", "0"), ("model_name", "tiny"))
        assert found["vllm:generation_tokens_total", labels] == 16.0
        assert found["vllm:e2e_request_latency_seconds_count", labels] == 2.0
        handler = (("handler", "/v1/completions"), ("method", "POST"), ("status", "2xx"))
        assert found["http_requests_total", handler] == 2.0


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_a_stream_carries_every_token(path: str) -> None:
    async with playing() as played:
        body = {
            **PROMPT,
            "messages": [{"role": "user", "content": "hello"}],
            "max_tokens": 300,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        # Scrapes advance the engine too: what they bring must not be lost.
        scrapes = asyncio.gather(*(played.metrics() for _ in range(20)))
        async with played.client.post(path, json=body) as response:
            assert response.headers["Content-Type"].startswith("text/event-stream")
            text = await response.text()
        await scrapes
        events = [e.removeprefix("data: ") for e in text.split("\n\n")]
        assert events[-2:] == ["[DONE]", ""]
        chunks = [json.loads(e) for e in events[:-2]]
        assert chunks.pop()["usage"]["completion_tokens"] == 300
        assert len(chunks) == 300 + ("chat" in path)
        assert chunks[-1]["choices"][0]["finish_reason"] == "length"


async def test_many_clients_at_once_all_get_their_answer() -> None:
    async with playing("0.29.0", FAST, "--max-num-seqs", "4") as played:
        answers = await asyncio.gather(
            *(played.post({**PROMPT, "max_tokens": 1 + i}) for i in range(50))
        )
        assert [body["usage"]["completion_tokens"] for _, body in answers] == list(range(1, 51))


@pytest.mark.parametrize(
    ("version", "flags", "capture"),
    [
        ("0.29.0", ("--max-num-queued-reqs", "2"), "0.29.0-v2-auto"),
        ("0.32.0", ("--max-num-queued-tokens", "20"), "0.32.0-v1-ngram-kv-full"),
    ],
)
async def test_a_rejection_is_that_of_a_real_server(
    version: str, flags: tuple[str, ...], capture: str
) -> None:
    async with playing(version, SLOW, *flags) as played:
        inside = [asyncio.create_task(played.post(PROMPT)) for _ in range(2)]
        await played.until_in_flight(2)
        status, body = await played.post(PROMPT)
        assert status == 503
        assert body == json.loads(fixture(capture, "reject-overflow.json"))
        async with played.client.get("/health") as response:
            assert response.status == 200
        rejected = {
            labels: value
            for (name, labels), value in (await played.metrics()).items()
            if name == "vllm:admission_rejections_total" and value
        }
        counted = {(("model_name", "tiny"), ("reason", "max_num_queued_tokens")): 1.0}
        assert rejected == (counted if version == "0.32.0" else {})
        played.driver.end_all("error")
        assert [status for status, _ in await asyncio.gather(*inside)] == [500, 500]


async def test_a_client_that_goes_makes_room() -> None:
    async with playing("0.29.0", SLOW, "--max-num-queued-reqs", "2") as played:
        for stream in (False, True):
            task = asyncio.create_task(played.post({**PROMPT, "stream": stream}))
            await played.until_in_flight(1)
            task.cancel()
            await played.until_in_flight(0)
        assert played.driver.engine.idle
        assert played.driver.engine.figures.aborted == 2


async def test_a_server_that_drains_fails_new_requests_but_not_its_health() -> None:
    async with playing() as played:
        played.server.draining = True
        status, body = await played.post(PROMPT)
        assert (status, body["error"]["message"]) == (
            500,
            "cannot schedule new futures after shutdown",
        )
        async with played.client.get("/health") as response:
            assert response.status == 200


async def test_an_engine_that_is_stopped_cuts_or_fails_what_is_in_flight() -> None:
    async with playing(env=SLOW) as played:
        task = asyncio.create_task(played.post(PROMPT))
        await played.until_in_flight(1)
        played.driver.end_all("abort")
        status, body = await task
        assert (status, body["choices"][0]["finish_reason"]) == (200, "abort")
        task = asyncio.create_task(played.post(PROMPT))
        await played.until_in_flight(1)
        played.driver.end_all("error")
        status, body = await task
        assert status == 500
        assert body["error"]["message"].startswith("EngineCore encountered an issue.")
        await played.driver.answered()


@pytest.mark.parametrize("flags", [("--api-key", "a", "b"), ()])
async def test_the_api_key_protects_v1_alone(flags: tuple[str, ...]) -> None:
    env = FAST if flags else {**FAST, "VLLM_API_KEY": "a"}
    async with playing("0.29.0", env, *flags) as played:
        for path in ("/health", "/metrics", "/version"):
            async with played.client.get(path) as response:
                assert response.status == 200
        for given, status in ((None, 401), ("Bearer c", 401), ("Basic a", 401), ("Bearer a", 200)):
            headers = {} if given is None else {"Authorization": given}
            async with played.client.get("/v1/models", headers=headers) as response:
                assert response.status == status, given
                if status == 401:
                    assert await response.json() == {"error": "Unauthorized"}


async def test_a_fault_begins_when_it_is_due_and_fails_what_cannot_go_on() -> None:
    async with playing(env=SLOW) as played:
        task = asyncio.create_task(played.post({**PROMPT, "max_tokens": 100}))
        await played.until_in_flight(1)
        await played.driver.run_faults([faults.Fault("KV_BLOCKS", 2, 0.01)])
        status, _ = await task
        assert status == 500
        found = await played.metrics()
        failed = (("engine", "0"), ("finished_reason", "error"), ("model_name", "tiny"))
        assert found["vllm:request_success_total", failed] == 1.0
        status, body = await played.post({**PROMPT, "max_tokens": 100})
        assert status == 400
        assert "maximum context length is 32 tokens" in body["error"]["message"]


async def test_faults_begin_and_end_in_a_running_server() -> None:
    async with playing("0.29.0", {**FAST, "VLLM_API_KEY": "a"}) as played:
        assert await played.fault("HEALTH", "0") == (200, "HEALTH is 0\n")
        assert (await played.status("/health"), await played.status("/ping")) == (503, 503)
        assert await played.fault("HEALTH", "off") == (200, "HEALTH is off\n")
        assert await played.status("/health") == 200
        await played.fault("VERSION", "0.1.2")
        async with played.client.get("/version") as response:
            assert await response.text() == '{"version":"0.1.2"}'
        # They are no requests of a client's: a real server has no such endpoint.
        assert not any(
            "/sim" in value for _, labels in await played.metrics() for _, value in labels
        )


@pytest.mark.parametrize(
    ("version", "name", "value", "status", "said"),
    [
        ("0.29.0", "NOPE", "1", 404, "NOPE is no fault: there are DECODE_FACTOR, DRAFT_ACC"),
        ("0.29.0", "HANG", "", 400, "HANG=: write 1, or off to end it"),
        ("0.29.0", "DECODE_FACTOR", "-1", 400, "write a factor above 0, or off to end it"),
        ("0.29.0", "ENGINE_DEATH", "off", 400, "ENGINE_DEATH cannot be ended"),
        ("0.28.0", "MAX_QUEUED_REQS", "1", 400, "vLLM 0.28.0 has no admission control"),
    ],
)
async def test_a_request_for_no_fault_says_what_would_be_right(
    version: str, name: str, value: str, status: int, said: str
) -> None:
    async with playing(version) as played:
        got, text = await played.fault(name, value)
        assert got == status
        assert said in text


async def test_a_hung_engine_is_healthy_and_answers_nothing_until_it_recovers() -> None:
    async with playing() as played:
        await played.fault("HANG", "1")
        task = asyncio.create_task(played.post(PROMPT))
        await played.until_in_flight(1)
        await asyncio.sleep(0.2)
        assert not task.done()
        found = await played.metrics()
        labels = (("engine", "0"), ("model_name", "tiny"))
        assert found["vllm:num_requests_waiting", labels] == 1.0
        assert found["vllm:generation_tokens_total", labels] == 0.0
        assert await played.status("/health") == 200
        await played.fault("HANG", "off")
        assert (await task)[0] == 200


async def test_a_dead_engine_fails_everything_but_the_metrics() -> None:
    async with playing(env=SLOW) as played:
        under_way = asyncio.create_task(played.post(PROMPT))
        await played.until_in_flight(1)
        await played.fault("ENGINE_DEATH", "1")
        for status, body in (await under_way, await played.post(PROMPT)):
            assert status == 500
            assert body["error"]["message"].startswith("EngineCore encountered an issue.")
        assert played.server.death_told.is_set()
        assert await played.status("/health") == 503
        assert await played.status("/metrics") == 200


async def test_a_share_of_the_requests_fails() -> None:
    async with playing() as played:
        await played.fault("ERROR_FRACTION", "0.25")
        for stream in (False, True):
            statuses = []
            for _ in range(8):
                async with played.client.post(
                    "/v1/completions", json={**PROMPT, "stream": stream}
                ) as response:
                    statuses.append(response.status)
                    await response.read()
            assert statuses == [200, 200, 200, 500] * 2
        found = await played.metrics()
        handler = (("handler", "/v1/completions"), ("method", "POST"), ("status", "5xx"))
        assert found["http_requests_total", handler] == 4.0
        failed = (("engine", "0"), ("finished_reason", "error"), ("model_name", "tiny"))
        assert found["vllm:request_success_total", failed] == 4.0


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_garbage_is_the_same_token_again_and_again(path: str) -> None:
    async with playing() as played:
        await played.fault("GARBAGE", "1")
        body = {**PROMPT, "messages": [{"role": "user", "content": "hello"}]}
        _, answer = await played.post(body, path)
        choice = answer["choices"][0]
        assert (choice["message"]["content"] if "chat" in path else choice["text"]) == "!" * 8
        async with played.client.post(path, json={**body, "stream": True}) as response:
            text = await response.text()
        assert text.count('"!"') == 8


async def test_few_blocks_make_preemptions_and_show_in_the_capacity() -> None:
    async with playing() as played:
        await played.fault("KV_BLOCKS", "20")
        bodies = [{**PROMPT, "max_tokens": 200} for _ in range(8)]
        assert {status for status, _ in await asyncio.gather(*map(played.post, bodies))} == {200}
        found = await played.metrics()
        labels = (("engine", "0"), ("model_name", "tiny"))
        assert found["vllm:num_preemptions_total", labels] > 0
        capacity = next(dict(at) for name, at in found if name == "vllm:cache_config_info")
        assert (capacity["num_gpu_blocks"], capacity["block_size"]) == ("20", "16")


async def test_drafts_are_accepted_as_often_as_the_fault_says() -> None:
    config = '{"method":"mtp","num_speculative_tokens":3}'
    async with playing("0.29.0", FAST, "--speculative-config", config) as played:
        shares = []
        before = [0.0, 0.0]
        for acceptance in (None, "0.3"):
            if acceptance is not None:
                await played.fault("DRAFT_ACCEPTANCE", acceptance)
            await played.post({**PROMPT, "max_tokens": 1000})
            found = await played.metrics()
            labels = (("engine", "0"), ("model_name", "tiny"))
            now = [
                found[f"vllm:spec_decode_num_{kind}_tokens_total", labels]
                for kind in ("accepted", "draft")
            ]
            shares.append((now[0] - before[0]) / (now[1] - before[1]))
            before = now
        assert shares == pytest.approx([0.7, 0.3], abs=0.02)


async def scrape(played: Played, seconds: float = 5.0) -> tuple[int, bytes]:
    """Scrape; redirects are not followed."""
    async with (
        asyncio.timeout(seconds),
        played.client.get("/metrics", allow_redirects=False) as response,
    ):
        return response.status, await response.read()


async def test_the_ways_in_which_metrics_fail() -> None:
    async with playing() as played:
        healthy = (await scrape(played))[1]

        async def broken(mode: str) -> tuple[int, bytes]:
            assert (await played.fault("METRICS", mode))[0] == 200
            return await scrape(played)

        assert (await broken("missing"))[0] == 404
        status, body = await broken("huge")
        assert (status, len(body) > 10 * 2**20) == (200, True)
        samples(body.decode())
        status, body = await broken("malformed")
        assert (status, "generation_tokens" in body.decode()) == (200, True)
        with pytest.raises(AssertionError):
            samples(body.decode())
        with pytest.raises(UnicodeDecodeError):
            (await broken("binary"))[1].decode()
        with pytest.raises(ClientPayloadError):
            await broken("truncated")
        assert (await broken("redirect"))[0] == 302
        with pytest.raises(ServerDisconnectedError):
            await broken("closed")
        status, body = await broken("other")
        assert (status, b"vllm:" in body, b"node_load1" in body) == (200, False, True)
        await played.fault("METRICS", "slow")
        with pytest.raises(TimeoutError):
            await scrape(played, 1.0)
        body = (await broken("without:vllm:num_requests_"))[1]
        assert b"vllm:num_requests_" not in body
        assert b"vllm:generation_tokens_total" in body
        await played.fault("METRICS", "off")
        assert set(samples((await scrape(played))[1].decode())) == set(samples(healthy.decode()))
