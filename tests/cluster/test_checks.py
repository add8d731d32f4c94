"""Each check finds its own breach, alone; and what a spec makes of the checks."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.kit import condition, quick_spec
from vllm_upgrade_operator.api.checks import DEFAULT_CHECKS

if TYPE_CHECKING:
    from tests.cluster.kit import Serving

pytestmark = pytest.mark.cluster


@dataclass(frozen=True)
class Breach:
    """What makes a candidate break one check.

    Attributes:
        check: Name of the check.
        words: What its reason has to match, from its beginning to the requests.
        image: Of both sides.
        env: Of the candidate.
        args: Of the candidate.
        both: Arguments of both sides.
        spec: What is said of the check beside its name.
        load: Options of the load.
    """

    check: str
    words: str
    image: str = "sim/vllm:0.32.0"
    env: dict[str, str] = field(default_factory=dict)
    args: tuple[tuple[str, str], ...] = ()
    both: tuple[str, ...] = ()
    spec: dict[str, Any] = field(default_factory=dict)
    load: dict[str, str] = field(default_factory=dict)


NUMBER = r"[\d.]+"
# Answers that grow long beside each other in a cache for two of them: it is always full, and each
# time that one has to go it is the one that came last.
SMALL_CACHE = {"SIM_FAULT_KV_BLOCKS": "34"}
LONG = {"prompt_tokens": "16", "output_tokens": "256", "no_stream": ""}
BREACHES = [
    Breach(
        "errors",
        rf"failed requests {NUMBER}%, beyond the limit of 1% \(stable 0%\), ",
        env={"SIM_FAULT_ERROR_FRACTION": "0.5"},
    ),
    Breach(
        "rejections",
        rf"rejected requests \(approximate: all 5xx answers, for want of a counter\) {NUMBER}%, "
        r"beyond .*the limit of 1% \(stable 0%\), ",
        # Without a counter of rejections a 500 cannot be told from one.
        image="sim/vllm:0.29.0",
        env={"SIM_FAULT_ERROR_FRACTION": "0.5"},
    ),
    Breach(
        "kv",
        rf"KV cache usage {NUMBER}% \(stable {NUMBER}%\), beyond the limit of 80%, ",
        env=SMALL_CACHE,
        # It is 95 % and more on the average here, not in every look.
        spec={"max": "80%"},
        load=LONG,
    ),
    Breach(
        "kv-capacity",
        r"tokens that the KV cache holds 65536 \(stable 131072: shrunk by 50%\), beyond the limit "
        r"of 117965 \(stable 131072 -10%\), ",
        args=(("num-gpu-blocks-override", "4096"),),
    ),
    Breach(
        "preemptions",
        rf"preempted requests {NUMBER}%, beyond what stable pods have \(0%\), ",
        env=SMALL_CACHE,
        load=LONG,
    ),
    Breach(
        "itl-p99",
        rf"inter-token latency p99 {NUMBER}m?s, beyond the limit of {NUMBER}m?s \(stable "
        rf"{NUMBER}m?s \+30%\): {NUMBER}% of them above {NUMBER}m?s, where {NUMBER}% may be, ",
        env={"SIM_FAULT_DECODE_FACTOR": "4"},
    ),
    Breach(
        "e2e-p99",
        rf"end-to-end latency p99 {NUMBER}m?s, beyond the limit of {NUMBER}m?s \(stable "
        rf"{NUMBER}m?s \+30%\): {NUMBER}% of them above {NUMBER}m?s, where {NUMBER}% may be, ",
        env={"SIM_FAULT_DECODE_FACTOR": "4"},
    ),
    Breach(
        "draft-acceptance",
        rf"accepted draft tokens {NUMBER}% \(stable {NUMBER}%\), beyond the limit of {NUMBER}% "
        rf"\(stable {NUMBER}% -10%\), ",
        both=("--speculative-config", '{"method":"ngram","num_speculative_tokens":3}'),
        env={"SIM_FAULT_DRAFT_ACCEPTANCE": "0.2"},
    ),
    # One of one's own, beside the default one of the same metric.
    Breach(
        "ttft-p50",
        rf"time to first token p50 {NUMBER}m?s, beyond the limit of {NUMBER}m?s \(stable "
        rf"{NUMBER}m?s \+100%\): {NUMBER}% of them above {NUMBER}m?s, where {NUMBER}% may be, ",
        env={"SIM_FAULT_PREFILL_FACTOR": "12"},
        spec={"metric": "TimeToFirstToken", "quantile": "p50", "maxIncrease": "100%"},
    ),
]


def only(check: str, **spec: Any) -> list[dict[str, Any]]:
    """Checks of a spec that leave one alone."""
    off = [{"name": c.name, "mode": "Disabled"} for c in DEFAULT_CHECKS if c.name != check]
    return [{"name": check, **spec}, *off]


def candidate(
    image: str, env: dict[str, str], args: tuple[tuple[str, str], ...] = ()
) -> dict[str, Any]:
    return {
        "image": image,
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "args": [{"flag": flag, "value": value} for flag, value in args],
    }


@pytest.mark.parametrize("breach", BREACHES, ids=lambda b: b.check)
async def test_each_check_finds_its_breach_alone(serving: Serving, breach: Breach) -> None:
    await serving.deploy(breach.image, replicas=2, args=breach.both)
    await serving.load(12, **breach.load)
    spec = quick_spec()
    await serving.upgrade(
        candidate=candidate(breach.image, {**breach.env, "TRY": "1"}, breach.args),
        runner={"expected": "Any"},
        strategy={**spec["strategy"], "steps": [{"replicas": 1, "hold": "110s"}]},
        analysis={**spec["analysis"], "checks": only(breach.check, **breach.spec)},
    )
    await serving.phase("RolledBack")
    status = await serving.status()
    assert condition(status, "RolledBack") == ("True", "CheckFailed")
    assert re.search(rf"check {breach.check}: {breach.words}in \d+ requests?", status["message"])
    (check,) = status["checks"]
    assert check["verdict"] == "Harm"
    assert (check["canary"], check["stable"]) != ("-", "-")
    assert await serving.canaries() == []


async def test_what_a_spec_makes_of_the_checks(serving: Serving) -> None:
    """Half of the canary's answers are errors: that is only observed, so the step passes."""
    await serving.deploy("sim/vllm:0.32.0", replicas=2)
    await serving.load(12)
    spec = quick_spec()
    checks = [
        {"name": "errors", "mode": "Observe"},
        {"name": "queue", "mode": "Disabled"},
        {"name": "kv", "max": "80%"},
        {"name": "ttft-p50", "metric": "TimeToFirstToken", "quantile": "p50", "max": "5s"},
        # Whether a healthy canary passes these within seconds is another matter.
        *({"name": f"{latency}-p99", "mode": "Observe"} for latency in ("ttft", "itl", "e2e")),
        {"name": "rejections", "max": "10%"},
        {"name": "preemptions", "max": 1},
    ]
    step = {"replicas": 1, "hold": "1s", "approval": True}
    await serving.upgrade(
        candidate=candidate("sim/vllm:0.32.0", {"SIM_FAULT_ERROR_FRACTION": "0.5"}),
        runner={"expected": "Any"},
        strategy={**spec["strategy"], "steps": [step]},
        analysis={**spec["analysis"], "checks": checks},
    )
    status: dict[str, Any] = {}

    async def observed_and_passed() -> bool:
        status.update(await serving.status())
        asks = condition(status, "Reconciling") == ("True", "WaitingForApproval")
        found = {c["name"]: c["verdict"] for c in status.get("checks", ())}
        return asks and status.get("verdict") == "Pass" and found["errors"] == "Harm"

    await serving.until(observed_and_passed, "a step that passes beside an observed harm")
    assert status["phase"] == "Canary"
    found = {c["name"]: c for c in status["checks"]}
    assert "queue" not in found
    assert found["kv"]["limit"] == "80%"
    assert found["errors"]["reason"].startswith("only observed: failed requests ")
    assert found["ttft-p50"]["verdict"] == "Pass"
    assert "time to first token p50" in found["ttft-p50"]["reason"]
    assert "time to first token p99" in found["ttft-p99"]["reason"]
    assert found["draft-acceptance"]["verdict"] == "NotApplicable"
    assert "speculative decoding does not run on" in found["draft-acceptance"]["reason"]


async def test_a_cache_that_grows_is_told(serving: Serving) -> None:
    await serving.deploy("sim/vllm:0.32.0", replicas=2)
    await serving.load(12)
    spec = quick_spec()
    await serving.upgrade(
        candidate=candidate("sim/vllm:0.32.0", {}, (("num-gpu-blocks-override", "12288"),)),
        runner={"expected": "Any"},
        strategy={**spec["strategy"], "steps": [{"replicas": 1, "hold": "1s", "approval": True}]},
        analysis={**spec["analysis"], "checks": only("kv-capacity")},
    )

    async def passes() -> bool:
        return (await serving.status()).get("verdict") == "Pass"

    await serving.until(passes, "a verdict")
    (capacity,) = (await serving.status())["checks"]
    assert capacity["verdict"] == "Pass"
    assert "196608 (stable 131072: grown by 50%), within the limit" in capacity["reason"]
