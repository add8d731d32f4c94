"""The simulator as a process of its own: exit codes, signals, ports."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import pytest

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator

_ROOT = Path(__file__).parents[3]
_SECONDS = 60


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def start(version: str, *words: str, env: dict[str, str] | None = None) -> Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "localcluster.sim", "--version", version, *words),
        cwd=_ROOT,
        env={"PATH": os.environ["PATH"], "SIM_LOAD_SECONDS": "0", **(env or {})},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def end(process: Process) -> tuple[int | None, str, str]:
    async with asyncio.timeout(_SECONDS):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


@asynccontextmanager
async def serving(
    version: str, *flags: str, env: dict[str, str] | None = None
) -> AsyncIterator[tuple[Process, aiohttp.ClientSession]]:
    port = free_port()
    process = await start(
        version, "serve", "m", "--host", "127.0.0.1", "--port", str(port), *flags, env=env
    )
    try:
        async with (
            asyncio.timeout(_SECONDS),
            aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
        ):
            assert process.stdout is not None
            # Until then the port refuses.
            while b"Application startup complete." not in (line := await process.stdout.readline()):
                assert line, "it ended before it was ready"
            yield process, session
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def until_running(session: aiohttp.ClientSession) -> None:
    """Wait until the engine runs one request."""
    while True:
        async with session.get("/metrics") as response:
            if 'num_requests_running{engine="0",model_name="m"} 1.0' in await response.text():
                return


@pytest.mark.parametrize(
    ("version", "words", "env", "code", "said"),
    [
        ("0.28.0", ["m", "--max-num-queued-reqs", "1"], {}, 2, "unrecognized arguments: --max-num"),
        ("0.32.0", ["m", "--nope", "3"], {}, 2, "vllm: error: unrecognized arguments: --nope 3"),
        (
            "0.33.0",
            ["m"],
            {"SIM_ARCHITECTURE": "MedusaModel"},
            1,
            "Value error, Model architectures ['MedusaModel'] are not supported for now. Supported",
        ),
        (
            "0.29.0",
            ["m"],
            {"SIM_ARCHITECTURE": "MPTForCausalLM"},
            1,
            "Model architecture MPTForCausalLM was supported in vLLM until v0.28.0",
        ),
        ("0.29.0", ["m"], {"SIM_OOM_WHILE_LOADING": "1"}, -9, ""),
        ("0.30.0", ["m"], {}, 2, "usage: python -m localcluster.sim"),
        ("0.29.0", ["m"], {"SIM_FAULT_NOPE": "1"}, 2, "SIM_FAULT_NOPE is no fault"),
        (
            "0.29.0",
            ["m"],
            {"VLLM_USE_V2_MODEL_RUNNER": "1", "SIM_TRITON": "0"},
            1,
            "Value error, Model Runner V2 requires Triton.",
        ),
        ("0.29.0", ["m", "--num-gpu-blocks-override", "9"], {}, 1, "initialization failed"),
    ],
)
async def test_what_cannot_start_ends(
    version: str, words: list[str], env: dict[str, str], code: int, said: str
) -> None:
    returned, _, err = await end(await start(version, *words, env=env))
    assert returned == code
    assert said in err


async def test_a_drain_answers_what_is_in_flight_and_ends_well() -> None:
    env = {"SIM_DECODE_STEP_SECONDS": "0.02"}
    async with serving("0.29.0", "--shutdown-timeout", "50", env=env) as (process, session):
        body = {"prompt": "x", "max_tokens": 50, "stream": True}
        async with session.post("/v1/completions", json=body) as response:
            process.send_signal(signal.SIGTERM)
            text = await response.text()
        assert text.count('"finish_reason":"length"') == 1
        assert text.endswith("data: [DONE]\n\n")
        code, out, _ = await end(process)
        assert code == 0
        assert "draining in-flight requests count=1 timeout=50s" in out


@pytest.mark.parametrize(("version", "status"), [("0.29.0", 200), ("0.32.0", 500)])
async def test_without_a_timeout_what_is_in_flight_is_cut_short(version: str, status: int) -> None:
    async with serving(version, env={"SIM_DECODE_STEP_SECONDS": "100"}) as (process, session):

        async def ask() -> int:
            async with session.post("/v1/completions", json={"prompt": "x"}) as response:
                await response.read()
                return response.status

        task = asyncio.create_task(ask())
        await until_running(session)
        process.send_signal(signal.SIGTERM)
        assert await task == status
        code, out, _ = await end(process)
        assert code == 0
        assert "mode=abort timeout=0s" in out


async def test_a_fault_ends_the_process_with_its_exit_code() -> None:
    async with serving("0.29.0", env={"SIM_FAULT_EXIT_CODE": "7@0.1"}) as (process, _):
        assert (await end(process))[0] == 7


async def test_a_dead_engine_ends_the_process_as_if_all_were_well() -> None:
    async with serving("0.32.0") as (process, session):
        await session.post("/sim/fault/ENGINE_DEATH", params={"value": "1"})
        async with session.post("/v1/completions", json={"prompt": "x"}) as response:
            assert response.status == 500
        code, out, _ = await end(process)
        assert code == 0
        assert "EngineCore encountered a fatal error." in out
        assert "Application shutdown complete." in out


async def test_a_failing_drain_answers_500_until_the_end() -> None:
    env = {"SIM_DECODE_STEP_SECONDS": "100", "SIM_FAULT_DRAIN_500": "1"}
    async with serving("0.29.0", "--shutdown-timeout", "50", env=env) as (process, session):

        async def ask() -> int:
            async with session.post("/v1/completions", json={"prompt": "x"}) as response:
                return response.status

        under_way = asyncio.create_task(ask())
        await until_running(session)
        process.send_signal(signal.SIGTERM)
        assert (await under_way, await ask()) == (500, 500)
        async with session.get("/health") as response:
            assert response.status == 200
        assert (await end(process))[0] == 0


async def test_who_is_told_to_end_while_it_loads_ends_at_once() -> None:
    process = await start("0.32.0", "m", env={"SIM_LOAD_SECONDS": "600"})
    assert process.stdout is not None
    async with asyncio.timeout(_SECONDS):
        while b"Initializing a V1 LLM engine" not in await process.stdout.readline():
            pass
    process.terminate()
    assert (await end(process))[0] == 143
