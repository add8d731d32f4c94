from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.cluster.objects import pod
from tests.unit.cluster.stub import StubClient
from vllm_upgrade_operator.cluster import paths
from vllm_upgrade_operator.cluster.client import ApiError
from vllm_upgrade_operator.cluster.look import Looker, SeenPod
from vllm_upgrade_operator.cluster.memory import Memory, Process
from vllm_upgrade_operator.cluster.pods import parse_pod
from vllm_upgrade_operator.telemetry.metrics import Telemetry
from vllm_upgrade_operator.upgrade.scrapes import ScrapeProblem, ScrapeReason
from vllm_upgrade_operator.vllm.client import (
    BadAnswerError,
    BadStatusError,
    RedirectedError,
    RefusedError,
    TimedOutError,
    TooLargeError,
    TruncatedError,
    VLLMClient,
    VLLMError,
)
from vllm_upgrade_operator.vllm.runner import Runner, RunnerEvidence, Source

if TYPE_CHECKING:
    from vllm_upgrade_operator.upgrade.observation import Pod

LOG = paths.log("serving", "llm-1")
V2_LINE = "(Worker pid=7) INFO 11-30 20:39:11 [gpu_worker.py:162] Using V2 Model Runner"
OTHER_LINE = "(EngineCore pid=7) INFO 11-30 20:39:11 [core.py:162] Initializing a V1 LLM engine (x)"


class StubVLLM(VLLMClient):
    """A server that has been offered `offered` requests; `failure` is what asking it raises."""

    def __init__(self) -> None:
        self.offered = 100
        self.failure: VLLMError | None = None
        self.text: str | None = None
        self.seconds: list[float] = []
        self.asked: list[tuple[str, str, int]] = []
        self.schemes: set[str] = set()

    async def version(self, address: str, port: int, *, scheme: str = "http") -> str:
        self.asked.append(("version", address, port))
        self.schemes.add(scheme)
        return "0.29.0"

    async def metrics(
        self, address: str, port: int, *, seconds: float = 3.0, scheme: str = "http"
    ) -> str:
        self.asked.append(("metrics", address, port))
        self.schemes.add(scheme)
        self.seconds.append(seconds)
        if self.failure is not None:
            raise self.failure
        if self.text is not None:
            return self.text
        return (
            'vllm:num_requests_running{engine="0",model_name="m"} 2.0\n'
            'vllm:num_requests_waiting{engine="0",model_name="m"} 3.0\n'
            'http_requests_total{handler="/v1/completions",method="POST",status="2xx"} '
            f"{self.offered}\n"
        )


class Scene:
    def __init__(self, log: str = V2_LINE) -> None:
        self.client = StubClient({LOG: {"text": log}})
        self.vllm = StubVLLM()
        self.memory = Memory()
        self.telemetry = Telemetry()
        self._looker = Looker(self.client, self.vllm, self.telemetry)

    async def look(self, raw: dict[str, Any], *, scrape: float | None = 10.0) -> Pod:
        seen = SeenPod(parse_pod(raw, "vllm"), raw, "vllm")
        (found,) = await self._looker.look([seen], self.memory, scrape_seconds=scrape)
        return found


async def test_the_first_look_is_a_baseline_and_the_second_one_counts() -> None:
    scene = Scene()
    first = await scene.look(pod())
    assert first.delta is None
    assert (first.version, first.offered, first.in_flight) == ("0.29.0", 105.0, 5.0)
    assert first.runner is not None
    assert first.runner.runner is Runner.V2
    scene.vllm.offered = 130
    second = await scene.look(pod())
    assert second.delta is not None
    assert second.delta.offered == 30.0


def lost_looks(scene: Scene, reason: str) -> float | None:
    labels = {"reason": reason}
    return scene.telemetry.registry.get_sample_value("vllm_upgrade_lost_looks_total", labels)


async def test_a_look_that_is_lost_says_why() -> None:
    scene = Scene()
    assert (await scene.look(pod())).lost is None
    scene.vllm.offered = 30
    found = await scene.look(pod())
    assert found.delta is None
    assert found.lost is not None
    assert found.lost.message == ("its counts of offered went down, as when a process starts anew")
    assert lost_looks(scene, "CounterFell") == 1.0
    scene.vllm.offered = 35
    after = await scene.look(pod())
    assert after.lost is None
    assert after.delta is not None
    assert after.delta.offered == 5.0


async def test_a_new_container_of_a_known_pod_loses_a_look_and_a_new_pod_none() -> None:
    scene = Scene()
    await scene.look(pod())
    found = await scene.look(pod(state={"running": {"startedAt": "2026-11-30T11:00:00Z"}}))
    assert (found.delta, found.lost is not None) == (None, True)
    assert lost_looks(scene, "Restarted") == 1.0
    scene.client.objects[paths.log("serving", "llm-2")] = {"text": V2_LINE}
    assert (await scene.look(pod("llm-2"))).lost is None


async def test_what_happened_during_a_failed_scrape_is_counted_afterwards() -> None:
    scene = Scene()
    await scene.look(pod())
    scene.vllm.failure = RefusedError("cannot connect")
    failed = await scene.look(pod())
    assert failed.scrape_error == ScrapeProblem(ScrapeReason.REFUSED, "cannot connect")
    assert (failed.delta, failed.offered) == (None, None)
    scene.vllm.failure, scene.vllm.offered = None, 150
    after = await scene.look(pod())
    assert after.delta is not None
    assert after.delta.offered == 50.0


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TimedOutError("e"), "ScrapeTimeout"),
        (RefusedError("e"), "ScrapeRefused"),
        (TruncatedError("e"), "ScrapeTruncated"),
        (TooLargeError("e"), "ScrapeTooLarge"),
        (RedirectedError("e"), "ScrapeRedirected"),
        (BadStatusError("e", 404), "ScrapeBadStatus"),
        (BadAnswerError("e"), "ScrapeMalformed"),
    ],
)
async def test_each_kind_of_failure_has_its_reason(error: VLLMError, reason: str) -> None:
    scene = Scene()
    scene.vllm.failure = error
    problem = (await scene.look(pod())).scrape_error
    assert problem is not None
    assert (str(problem.reason), problem.message) == (reason, "e")


@pytest.mark.parametrize(
    ("text", "reason", "message"),
    [
        ("up 1\n", ScrapeReason.NOT_VLLM, "10.244.0.9:8000/metrics has no metric of vLLM"),
        (
            "vllm:num_requests_running secret\n",
            ScrapeReason.MALFORMED,
            "10.244.0.9:8000/metrics line 1: its value is no number that can be counted with",
        ),
    ],
)
async def test_a_text_that_says_nothing(text: str, reason: ScrapeReason, message: str) -> None:
    scene = Scene()
    scene.vllm.text = text
    found = await scene.look(pod())
    assert found.scrape_error == ScrapeProblem(reason, message)
    assert (found.delta, found.offered) == (None, None)


@pytest.mark.parametrize(("interval", "allowed"), [(10.0, 10.0), (2.0, 2.0), (0.2, 1.0)])
async def test_a_scrape_does_not_put_off_the_next_look(interval: float, allowed: float) -> None:
    scene = Scene()
    await scene.look(pod(), scrape=interval)
    assert scene.vllm.seconds == [allowed]


async def test_another_process_begins_anew() -> None:
    scene = Scene()
    await scene.look(pod())
    restarted = {"running": {"startedAt": "2026-11-30T11:00:00Z"}}
    assert (await scene.look(pod(state=restarted))).delta is None


async def test_log_and_version_are_read_once() -> None:
    scene = Scene()
    for _ in range(3):
        await scene.look(pod())
    assert len(scene.client.named("TEXT")) == 1
    assert [what for what, _, _ in scene.vllm.asked].count("version") == 1


async def test_without_a_look_no_metrics_are_read() -> None:
    scene = Scene()
    await scene.look(pod(), scrape=None)
    assert scene.vllm.asked == [("version", "10.244.0.9", 8000)]


async def test_a_pod_that_is_not_ready_is_not_asked_for_its_version() -> None:
    scene = Scene(OTHER_LINE)
    found = await scene.look(pod(ready=False), scrape=None)
    assert scene.vllm.asked == []
    assert found.startup_phase == "starting the engine"


async def test_nothing_is_asked_on_the_network_of_a_node() -> None:
    scene = Scene()
    raw = pod()
    raw["spec"]["hostNetwork"] = True
    found = await scene.look(raw)
    assert scene.vllm.asked == []
    assert found.scrape_error == ScrapeProblem(
        ScrapeReason.NOT_ALLOWED, "pods with hostNetwork: true are not scraped"
    )


async def test_nothing_is_asked_on_a_port_that_is_not_declared() -> None:
    scene = Scene()
    raw = pod()
    raw["spec"]["containers"][1]["args"] = ["--port", "6443"]
    found = await scene.look(raw)
    assert scene.vllm.asked == []
    assert found.scrape_error is not None
    assert found.scrape_error.reason is ScrapeReason.NOT_ALLOWED
    assert "add containerPort 6443" in found.scrape_error.message


@pytest.mark.parametrize(
    ("args", "scheme"),
    [([], "http"), (["--ssl-certfile", "/c", "--ssl-keyfile", "/k"], "https")],
)
async def test_a_server_with_a_certificate_is_asked_by_https(args: list[str], scheme: str) -> None:
    scene = Scene()
    raw = pod()
    raw["spec"]["containers"][1]["args"] = args
    await scene.look(raw)
    assert scene.vllm.schemes == {scheme}


@pytest.mark.parametrize(
    "error",
    [
        ApiError(500, "InternalError", "node is gone"),
        ApiError(0, "Unreachable", "no answer within the time"),
    ],
)
async def test_a_log_that_cannot_be_read_leaves_the_runner_unknown(error: ApiError) -> None:
    scene = Scene()
    scene.client.failures["TEXT", LOG] = error
    found = await scene.look(pod())
    assert found.runner is not None
    assert found.runner.runner is Runner.UNKNOWN
    assert "could not be read" in found.runner.how


async def test_a_log_that_may_not_be_read_is_an_error() -> None:
    scene = Scene()
    scene.client.failures["TEXT", LOG] = ApiError(403, "Forbidden", "pods/log")
    with pytest.raises(ApiError, match="pods/log"):
        await scene.look(pod())


EXPORTS = (
    'vllm:num_requests_running{{engine="0",model_name="m"}} 2.0\n'
    'vllm_runner_info{{engine="0",model_name="m",runner="{runner}"}} 1.0\n'
)


@pytest.mark.parametrize("scrape", [None, 10.0])
async def test_what_the_plugin_exports_is_seen_where_the_log_says_nothing(
    scrape: float | None,
) -> None:
    scene = Scene(OTHER_LINE)
    scene.vllm.text = EXPORTS.format(runner="v1")
    found = (await scene.look(pod(), scrape=scrape)).runner
    assert found is not None
    assert (found.runner, found.source) == (Runner.V1, Source.METRIC)
    assert found.seen_at is not None
    # It is not asked for again: neither the metric nor the log.
    await scene.look(pod(), scrape=None)
    assert [what for what, _, _ in scene.vllm.asked].count("metrics") == 1
    assert len(scene.client.named("TEXT")) == 1


async def test_the_plugin_and_the_log_have_to_agree() -> None:
    scene = Scene()
    scene.vllm.text = EXPORTS.format(runner="v2")
    found = (await scene.look(pod())).runner
    assert found is not None
    assert (found.runner, found.source) == (Runner.V2, Source.METRIC)
    scene = Scene()
    scene.vllm.text = EXPORTS.format(runner="v1")
    found = (await scene.look(pod())).runner
    assert found is not None
    assert (found.runner, found.conflicting) == (Runner.UNKNOWN, True)


async def test_a_pod_that_cannot_be_asked_keeps_an_unknown_runner() -> None:
    scene = Scene(OTHER_LINE)
    scene.vllm.failure = RefusedError("cannot connect")
    found = await scene.look(pod(), scrape=None)
    assert found.runner is not None
    assert found.runner.runner is Runner.UNKNOWN
    assert found.scrape_error is None


def process(runner: Runner | None, read_at: float | None) -> Process:
    evidence = None if runner is None else RunnerEvidence(runner=runner, how="")
    return Process(started_at=1000.0, runner=evidence, log_read_at=read_at)


@pytest.mark.parametrize(
    ("known", "now", "due"),
    [
        (process(None, None), 1001.0, True),
        (process(Runner.V2, 1001.0), 9000.0, False),
        (process(Runner.UNKNOWN, 1001.0), 1001.5, False),
        (process(Runner.UNKNOWN, 1001.0), 1002.0, True),
        (process(Runner.UNKNOWN, 5000.0), 5010.0, False),
        (process(Runner.UNKNOWN, 5000.0), 5030.0, True),
    ],
)
def test_when_a_log_is_read_again(known: Process, now: float, due: bool) -> None:  # noqa: FBT001 - a table
    assert known.log_is_due(now) is due
