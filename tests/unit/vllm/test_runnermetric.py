from __future__ import annotations

import pytest

from vllm_upgrade_operator.vllm.runner import Runner, RunnerEvidence, Source
from vllm_upgrade_operator.vllm.runnermetric import agreed, exported


def info(runner: str, engine: str = "0", value: str = "1.0") -> str:
    return f'vllm_runner_info{{engine="{engine}",model_name="m",runner="{runner}"}} {value}\n'


@pytest.mark.parametrize(
    ("text", "runner"),
    [
        (info("v1"), Runner.V1),
        (info("v2"), Runner.V2),
        (info("v2") + info("v2", "1"), Runner.V2),
        (info("v3"), Runner.UNKNOWN),
        (info("v1", value="0.0") + info("v2"), Runner.V2),
    ],
)
def test_what_the_plugin_exports(text: str, runner: Runner) -> None:
    found = exported("up 1\n" + text)
    assert found is not None
    assert (found.runner, found.source, found.conflicting) == (runner, Source.METRIC, False)


def test_without_the_plugin_there_is_nothing() -> None:
    assert exported("vllm:num_requests_running 1\n") is None
    assert exported("# TYPE vllm_runner_info gauge\n") is None
    assert exported(info("v1", value="0.0")) is None
    # Another plugin's, or another label.
    assert exported('canary_vllm_runner_info{runner="v1"} 1.0\n') is None


def test_engines_must_agree() -> None:
    found = exported(info("v1") + info("v2", "1"))
    assert found is not None
    assert (found.runner, found.conflicting) == (Runner.UNKNOWN, True)
    assert "v1 and v2" in found.how


def test_a_line_that_cannot_be_read_is_no_evidence() -> None:
    found = exported("vllm_runner_info{runner=\n")
    assert found is not None
    assert found.runner is Runner.UNKNOWN
    assert "line 1" in found.how
    secret = exported(info("hush"))
    assert secret is not None
    assert "hush" not in secret.how


def evidence(runner: Runner, source: Source, **fields: object) -> RunnerEvidence:
    return RunnerEvidence(runner=runner, how=f"{source} says {runner}", source=source, **fields)  # type: ignore[arg-type]


METRIC_V1, METRIC_V2 = (evidence(r, Source.METRIC) for r in (Runner.V1, Runner.V2))
LOG_V1 = evidence(Runner.V1, Source.LOG, fallback_features=("triton",))
LOG_V2 = evidence(Runner.V2, Source.LOG)
SILENT = RunnerEvidence(runner=Runner.UNKNOWN, how="no worker has said it")


def test_the_metric_is_preferred_and_the_log_says_why() -> None:
    found = agreed(METRIC_V1, LOG_V1)
    assert (found.runner, found.source) == (Runner.V1, Source.METRIC)
    assert found.fallback_features == ("triton",)
    assert agreed(METRIC_V2, LOG_V2).source is Source.METRIC
    assert agreed(METRIC_V2, SILENT).runner is Runner.V2
    assert agreed(None, LOG_V2) is LOG_V2
    assert agreed(METRIC_V2, None) is METRIC_V2
    assert agreed(None, SILENT) is SILENT
    assert agreed(None, None).runner is Runner.UNKNOWN
    no_runner = RunnerEvidence(runner=Runner.UNKNOWN, how="v3", source=Source.METRIC)
    assert agreed(no_runner, LOG_V2).runner is Runner.V2


@pytest.mark.parametrize(("metric", "log"), [(METRIC_V1, LOG_V2), (METRIC_V2, LOG_V1)])
def test_nothing_is_concluded_where_they_disagree(
    metric: RunnerEvidence, log: RunnerEvidence
) -> None:
    found = agreed(metric, log)
    assert (found.runner, found.conflicting) == (Runner.UNKNOWN, True)
    assert metric.how in found.how
    assert log.how in found.how


def test_who_contradicts_himself_is_not_believed() -> None:
    torn = RunnerEvidence(runner=Runner.UNKNOWN, how="workers disagree", conflicting=True)
    assert agreed(torn, LOG_V2) is torn
    assert agreed(METRIC_V2, torn) is torn
