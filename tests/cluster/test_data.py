"""What cannot be seen is unknown: never a pass, never harm, and the reason is told."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.kit import DOMAIN, condition, quick_spec, wide
from vllm_upgrade_operator.cluster.client import MERGE

if TYPE_CHECKING:
    from tests.cluster.kit import Serving

pytestmark = pytest.mark.cluster

# By value of the simulator's fault METRICS: the reason, and what the message says happened.
BROKEN = {
    "missing": ("ScrapeBadStatus", "/metrics answered 404"),
    "huge": ("ScrapeTooLarge", "/metrics answered more than 4194304 bytes"),
    "slow": ("ScrapeTimeout", "/metrics did not answer in 1 s"),
    "malformed": ("ScrapeMalformed", r"/metrics line \d+: its labels cannot be read"),
    "binary": ("ScrapeMalformed", "/metrics is not text"),
    "truncated": ("ScrapeTruncated", "/metrics broke off"),
    "redirect": ("ScrapeRedirected", "/metrics answered 302, a redirect"),
    "closed": ("ScrapeRefused", "/metrics closed the connection"),
    "other": ("NotVLLM", "/metrics has no metric of vLLM"),
    "without:vllm:": ("NotVLLM", "/metrics has no metric of vLLM"),
}
# The checks that a healthy canary is sure to pass within seconds.
CALM = wide(off=("ttft-p99", "itl-p99", "e2e-p99"))


def spec(hold: str, *, policy: str = "Hold", most: str = "60s") -> dict[str, Any]:
    quick = quick_spec()
    return {
        "candidate": {
            "image": "sim/vllm:0.32.0",
            "env": [{"name": "VLLM_USE_V2_MODEL_RUNNER", "value": "1"}],
        },
        "strategy": {**quick["strategy"], "steps": [{"replicas": 1, "hold": hold}]},
        "analysis": {
            **quick["analysis"],
            "maxDuration": most,
            "onInconclusive": policy,
            "checks": CALM,
        },
    }


def metrics(status: dict[str, Any]) -> tuple[str, str, str]:
    """Status, reason and message of the condition."""
    for found in status.get("conditions", ()):
        if found["type"] == "MetricsAvailable":
            return found["status"], found["reason"], found["message"]
    return "", "", ""


def name(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["name"])


async def says(serving: Serving, reason: str, message: str = "") -> dict[str, Any]:
    """Wait until the condition has this reason and a message that matches; give the status."""
    status: dict[str, Any] = {}

    async def found() -> bool:
        status.update(await serving.status())
        _, seen, text = metrics(status)
        return seen == reason and re.search(message, text) is not None

    await serving.until(found, f"MetricsAvailable {reason} with {message!r}")
    return status


async def stable_pods(serving: Serving) -> list[dict[str, Any]]:
    return await serving.pods(f"app=llm,!{DOMAIN}/canary")


async def test_each_way_in_which_metrics_cannot_be_read(serving: Serving) -> None:
    """Of the canary, one after the other; and between them all is well again."""
    await serving.deploy("sim/vllm:0.32.0", replicas=2)
    await serving.load(10)
    await serving.upgrade(**spec("600s"))
    await serving.phase("Canary")
    await says(serving, "Scraped")
    (canary,) = await serving.canaries()
    for fault, (reason, happened) in BROKEN.items():
        await serving.fault(canary, "METRICS", fault)
        # Some have the same reason: what happened tells them apart.
        where = rf"^canary pod {name(canary)}: [\d.]+:8000{happened}\. To do: \w"
        status = await says(serving, reason, where)
        assert metrics(status)[0] == "False"
        assert status.get("verdict") != "Pass"
        assert status["phase"] == "Canary"
    await serving.fault(canary, "METRICS", "off")
    status = await says(serving, "Scraped")
    assert "CheckFailed" not in [entry["reason"] for entry in status["timeline"]]


async def test_metrics_that_are_missing_on_one_side(serving: Serving) -> None:
    await serving.deploy("sim/vllm:0.32.0", replicas=2)
    await serving.load(10)
    await serving.upgrade(**spec("600s"))
    await serving.phase("Canary")
    (canary,) = await serving.canaries()
    first, second = await stable_pods(serving)
    await serving.fault(canary, "METRICS", "without:vllm:kv_cache_usage_perc")
    status = await says(
        serving,
        "MetricsMissing",
        rf"^vllm:kv_cache_usage_perc missing on canary pod {name(canary)} \(check kv\)\. To do: ",
    )
    assert (metrics(status)[0], status["verdict"]) == ("False", "Hold")
    await serving.fault(canary, "METRICS", "off")
    await serving.fault(second, "METRICS", "without:vllm:num_requests_waiting")
    status = await says(
        serving,
        "MetricsMissing",
        rf"^vllm:num_requests_waiting missing on stable pod {name(second)} \(check queue\)\. ",
    )
    assert (metrics(status)[0], status["verdict"]) == ("False", "Hold")

    # One that cannot be read is named, and the other one is enough to compare with; with none
    # there is nothing to go on by.
    await serving.fault(second, "METRICS", "closed")
    await says(serving, "ScrapeRefused", rf"^stable pod {name(second)}: ")

    async def passes() -> bool:
        return (await serving.status()).get("verdict") == "Pass"

    await serving.until(passes, "a verdict by the stable pod that is left")
    await serving.fault(first, "METRICS", "slow")
    await says(serving, "ScrapeTimeout", rf"stable pod {name(first)}: .+{name(second)}: ")
    assert (await serving.status())["verdict"] == "Hold"


@pytest.mark.parametrize(("policy", "end"), [("Hold", "Halted"), ("Rollback", "RolledBack")])
async def test_what_is_not_seen_ends_by_policy(serving: Serving, policy: str, end: str) -> None:
    await serving.deploy("sim/vllm:0.32.0", replicas=2)
    before = await serving.target()
    await serving.load(10)
    wanted = spec("1s", policy=policy, most="8s")
    wanted["candidate"]["env"].append({"name": "SIM_FAULT_METRICS", "value": "truncated"})
    await serving.upgrade(**wanted)
    await serving.phase(end)
    status = await serving.status()
    timeline = [entry["reason"] for entry in status["timeline"]]
    assert "Promoting" not in timeline
    assert "CheckFailed" not in timeline
    where = {"Halted": "Stalled", "RolledBack": "RolledBack"}[end]
    assert condition(status, where) == ("True", "Inconclusive")
    story = " ".join(entry["message"] for entry in status["timeline"])
    assert re.search(
        r"no verdict after 8s: metrics are missing: canary pod llm-canary-\S+: "
        r"[\d.]+:8000/metrics broke off. To do: ",
        story,
    )
    after = await serving.target()
    assert after["spec"]["template"] == before["spec"]["template"]


async def test_no_traffic_at_all_and_then_some(serving: Serving) -> None:
    await serving.deploy("sim/vllm:0.32.0", replicas=2)
    await serving.upgrade(**spec("1s", most="8s"))
    await serving.phase("Halted")
    status = await serving.status()
    state, reason, message = metrics(status)
    assert (state, reason) == ("False", "NoTraffic")
    assert re.search(
        r"^no request has reached canary pod llm-canary-\S+ since [\d:]+Z, nor stable pods "
        r"llm-\S+, llm-\S+ since [\d:]+Z\. To do: send traffic to the Service",
        message,
    )
    assert "no verdict after 8s: no request has reached canary pod" in status["message"]
    assert "it goes on when the evidence arrives" in status["message"]
    assert status.get("checks", []) == []
    await serving.load(10)
    await serving.phase("Baking", "Succeeded", passing=("Halted",))
    timeline = [entry["reason"] for entry in (await serving.status())["timeline"]]
    assert "EvidenceArrived" in timeline


async def test_traffic_on_stable_pods_alone(serving: Serving) -> None:
    """Clients that keep their connections never meet a new pod."""
    await serving.deploy("sim/vllm:0.32.0", replicas=2)
    await serving.load(10, keep_alive="", connections="4")
    await serving.upgrade(**spec("1s", policy="Rollback", most="10s"))
    status = await says(serving, "NoTraffic", "while stable pods get some. To do: see whether a ")
    assert re.search(r"^no request has reached canary pod llm-canary-", metrics(status)[2])
    await serving.phase("RolledBack")
    assert condition(await serving.status(), "RolledBack") == ("True", "Inconclusive")


async def test_traffic_on_the_canary_alone(serving: Serving) -> None:
    await serving.deploy("sim/vllm:0.32.0", replicas=2)
    await serving.upgrade(**spec("1s", policy="Rollback", most="12s"))
    await serving.phase("Canary")
    services = f"/api/v1/namespaces/{serving.namespace}/services"
    selector = {"app": "llm", f"{DOMAIN}/role": "canary"}
    change = {"spec": {"selector": selector}}
    await serving.client.patch(f"{services}/llm", change, MERGE)
    await serving.load(10)
    await says(serving, "NoTraffic", r"^no request has reached stable pods llm-\S+, llm-\S+ since ")
    await serving.phase("RolledBack")
    status = await serving.status()
    assert condition(status, "RolledBack") == ("True", "Inconclusive")
    assert "there is nothing to compare with" in status["message"]


async def test_a_bake_without_traffic_says_so(serving: Serving) -> None:
    await serving.deploy("sim/vllm:0.32.0", replicas=2)
    load = await serving.load(15)
    wanted = spec("1s")
    wanted["strategy"]["bake"] = "8s"
    await serving.upgrade(**wanted)
    await serving.phase("Promoting")
    await load.stop()
    status = await says(serving, "NoTraffic", r"^no request has reached promoted pods llm-")
    assert status["phase"] == "Baking"
    await serving.phase("Succeeded")
    assert "no request was seen on them during the bake" in (await serving.status())["message"]
