from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import aiohttp
import pytest
import structlog

from vllm_upgrade_operator.api.v1alpha1 import RunnerCounts, RunnersStatus
from vllm_upgrade_operator.telemetry import logs, server
from vllm_upgrade_operator.telemetry.metrics import Telemetry

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST = "127.0.0.1"


@pytest.fixture(autouse=True)
def untouched_logging() -> Iterator[None]:
    """Give the root logger back as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_upgrades_are_counted_by_phase_and_forgotten() -> None:
    telemetry = Telemetry()
    telemetry.phase("uid-1", "Canary")
    telemetry.phase("uid-2", "Canary")
    telemetry.phase("uid-1", "Promoting")
    text = telemetry.exposition().decode()
    assert 'vllm_upgrades{phase="Canary"} 1.0' in text
    assert 'vllm_upgrades{phase="Promoting"} 1.0' in text
    telemetry.forget("uid-2")
    assert 'vllm_upgrades{phase="Canary"} 0.0' in telemetry.exposition().decode()


def test_pods_are_counted_by_runner_until_their_upgrade_has_ended() -> None:
    telemetry = Telemetry()
    old = RunnersStatus(stable=RunnerCounts(v1=3, unknown=1), canary=RunnerCounts(v2=1))
    telemetry.runners("uid-1", old)
    telemetry.runners("uid-2", RunnersStatus(stable=RunnerCounts(v1=2)))
    text = telemetry.exposition().decode()
    assert 'vllm_upgrade_pods{role="stable",runner="v1"} 5.0' in text
    assert 'vllm_upgrade_pods{role="stable",runner="unknown"} 1.0' in text
    assert 'vllm_upgrade_pods{role="canary",runner="v2"} 1.0' in text
    telemetry.runners("uid-1", None)
    telemetry.runners("uid-1", None)
    telemetry.forget("uid-2")
    text = telemetry.exposition().decode()
    assert 'vllm_upgrade_pods{role="stable",runner="v1"} 0.0' in text
    assert 'vllm_upgrade_pods{role="canary",runner="v2"} 0.0' in text


def test_our_lines_and_a_library_s_are_json(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(form="json", level="INFO")
    structlog.get_logger("ours").info("action", upgrade="up")
    logging.getLogger("library").warning("watch %s", "lost")
    try:
        int("no number")
    except ValueError:
        structlog.get_logger("ours").exception("failed")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["event"] for line in lines] == ["action", "watch lost", "failed"]
    assert lines[0]["upgrade"] == "up"
    assert lines[1]["level"] == "warning"
    assert "no number" in lines[2]["exception"]


async def get(port: int, path: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{HOST}:{port}{path}") as answer,
    ):
        return answer.status, await answer.text()


async def test_health_says_what_is_wrong(unused_tcp_port: int) -> None:
    problem: list[str] = []
    async with server.health(
        host=HOST,
        port=unused_tcp_port,
        problem=lambda: problem[0] if problem else None,
        ready=lambda: False,
    ):
        assert await get(unused_tcp_port, "/healthz") == (200, "ok\n")
        assert (await get(unused_tcp_port, "/readyz"))[0] == 503
        problem.append("not reconciled any more: serving/up\n")
        assert await get(unused_tcp_port, "/healthz") == (500, problem[0])


async def test_metrics_are_served(unused_tcp_port: int) -> None:
    async with server.metrics(host=HOST, port=unused_tcp_port, telemetry=Telemetry()):
        status, text = await get(unused_tcp_port, "/metrics")
    assert status == 200
    assert "vllm_upgrade_reconcile_duration_seconds_bucket" in text
