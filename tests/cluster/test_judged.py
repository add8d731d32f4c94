"""What the judge is for: harm that chance does not explain, and bursts that are no harm."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.kit import condition, quick_spec, wide

if TYPE_CHECKING:
    from tests.cluster.kit import Serving

pytestmark = pytest.mark.cluster

LATENCIES = ("ttft-p99", "itl-p99", "e2e-p99")


def upgrade(image: str, hold: str, checks: list[dict[str, Any]], **env: str) -> dict[str, Any]:
    """An upgrade to the same image with other variables, judged for so long."""
    spec = quick_spec()
    return {
        "candidate": {
            "image": image,
            "env": [{"name": name, "value": value} for name, value in {"TRY": "1", **env}.items()],
        },
        "runner": {"expected": "Any"},
        "strategy": {**spec["strategy"], "steps": [{"replicas": 1, "hold": hold}]},
        "analysis": {**spec["analysis"], "maxDuration": "100s", "checks": checks},
    }


async def test_four_times_the_rejections_are_rolled_back(serving: Serving) -> None:
    """Stable pods refuse one request in twenty; nothing is flagrant about four."""
    # Without a counter of rejections a 500 cannot be told from one.
    image = "sim/vllm:0.29.0"
    await serving.deploy(image, replicas=3, env={"SIM_FAULT_ERROR_FRACTION": "0.05"})
    await serving.load(60)
    off = (*LATENCIES, "errors")
    checks = wide({"name": "rejections", "max": "90%", "maxIncrease": "50%"}, off=off)
    await serving.upgrade(**upgrade(image, "110s", checks, SIM_FAULT_ERROR_FRACTION="0.2"))
    await serving.phase("RolledBack")
    status = await serving.status()
    assert condition(status, "RolledBack") == ("True", "CheckFailed")
    assert re.search(
        r"check rejections: rejected requests \(approximate: all 5xx answers, for want of a "
        r"counter\) [\d.]+%, beyond the limit of [\d.]+% \(stable [\d.]+% \+50%\), "
        r"in \d+ requests",
        status["message"],
    )
    (found,) = (c for c in status["checks"] if c["name"] == "rejections")
    assert found["verdict"] == "Harm"
    assert found["power"]


async def test_tokens_twice_as_slow_are_rolled_back_and_it_is_said_why(serving: Serving) -> None:
    image = "sim/vllm:0.32.0"
    await serving.deploy(image, replicas=2)
    await serving.load(20)
    checks = wide({"name": "e2e-p99", "quantile": "p95", "maxIncrease": "30%"})
    await serving.upgrade(**upgrade(image, "110s", checks, SIM_FAULT_DECODE_FACTOR="2"))
    await serving.phase("RolledBack")
    message = (await serving.status())["message"]
    assert re.search(
        r"check e2e-p99: end-to-end latency p95 [\d.]+m?s, beyond the limit of [\d.]+m?s "
        r"\(stable [\d.]+m?s \+30%\): [\d.]+% of them above [\d.]+m?s, where [\d.]+% may be, "
        r"in \d+ requests; .*slower tokens",
        message,
    )


async def test_a_canary_that_refuses_in_bursts_as_stable_pods_do_is_promoted(
    serving: Serving,
) -> None:
    image = "sim/vllm:0.32.0"
    await serving.deploy(image, replicas=3, args=("--max-num-queued-reqs", "8"))
    await serving.load(15)
    ended = asyncio.Event()

    async def bursts() -> None:
        while not ended.is_set():
            await serving.load(150, duration="2")
            await asyncio.sleep(6)

    bursting = asyncio.create_task(bursts())
    checks = wide({"name": "rejections", "max": "90%", "maxIncrease": "100%"}, off=LATENCIES)
    await serving.upgrade(**upgrade(image, "40s", checks))
    try:
        await serving.phase("Promoting", "Baking", "Succeeded", seconds=150)
        (found,) = (c for c in (await serving.status())["checks"] if c["name"] == "rejections")
        assert found["verdict"] == "Pass"
        assert found["canary"] != "0%"
        assert found["stable"] != "0%"
    finally:
        ended.set()
        await bursting
