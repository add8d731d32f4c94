"""The runner as our plugin for vLLM exports it, and what it and the log say together.

The plugin (`integrations/vllm-runner-info`) exports `vllm_runner_info{runner="v2",...} 1`, one
series per engine, from the same property that the workers choose by. It is read from every scrape,
so that it is there when a log's beginning is not any more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vllm_upgrade_operator.vllm.exposition import MalformedExpositionError, read_series
from vllm_upgrade_operator.vllm.runner import Runner, RunnerEvidence, Source

if TYPE_CHECKING:
    from collections.abc import Iterable

NAME = "vllm_runner_info"
"""The metric's name."""

_RUNNERS = {"v1": Runner.V1, "v2": Runner.V2}


def exported(exposition: str) -> RunnerEvidence | None:
    """Read what a server exports of its runner; None where it exports nothing of it.

    Every engine must export the same; a value that is none of ours is no evidence.
    """
    try:
        series = read_series(exposition, frozenset({NAME})).get(NAME, [])
    except MalformedExpositionError as error:
        return RunnerEvidence(runner=Runner.UNKNOWN, how=str(error), source=Source.METRIC)
    found = sorted({s.labels.get("runner", "") for s in series if s.value == 1.0})
    if not found:
        return None
    if len(found) > 1:
        return RunnerEvidence(
            runner=Runner.UNKNOWN,
            how=f"engines disagree: they export {' and '.join(_known(found))}",
            conflicting=True,
            source=Source.METRIC,
        )
    runner = _RUNNERS.get(found[0], Runner.UNKNOWN)
    engines = len({s.labels.get("engine", "") for s in series})
    says = f"{NAME} says {found[0]}" if runner is not Runner.UNKNOWN else f"{NAME} names no runner"
    return RunnerEvidence(
        runner=runner,
        how=says + (f", for {engines} engines" if engines > 1 else ""),
        source=Source.METRIC,
    )


def agreed(metric: RunnerEvidence | None, log: RunnerEvidence | None) -> RunnerEvidence:
    """Put together what the metric and the log say.

    The metric is preferred: it is of this moment, and nothing of a user is in it. Where both say a
    runner and not the same, or where one contradicts itself, nothing is concluded.
    """
    if metric is None:
        return log or RunnerEvidence(
            runner=Runner.UNKNOWN, how="nothing was read that could say it"
        )
    if log is None or metric.conflicting:
        return metric
    if log.conflicting:
        return log
    known = [e for e in (metric, log) if e.runner is not Runner.UNKNOWN]
    if len({e.runner for e in known}) > 1:
        return replace(
            metric,
            runner=Runner.UNKNOWN,
            how=f"the metric and the log disagree: {metric.how}; {log.how}",
            conflicting=True,
        )
    if not known:
        return log
    best = known[0]
    return replace(
        best,
        fallback_features=log.fallback_features if best.runner is Runner.V1 else (),
        refused=log.refused,
    )


def _known(values: Iterable[str]) -> list[str]:
    return [v if v in _RUNNERS else "something else" for v in values]
