"""A vLLM plugin that exports which model runner is active: `vllm_runner_info{runner="v2"} 1`.

vLLM itself (0.28 to 0.33) says it in its start-up log alone. Stat loggers are given the
configuration that the workers choose their runner by, so this asks it the same question. It runs in
the API server, does nothing per request, and can never keep vLLM from starting.
"""

from __future__ import annotations

from functools import cache

from prometheus_client import Gauge
from vllm.v1.metrics.loggers import StatLoggerBase


@cache
def _gauge() -> Gauge:
    """Make the metric; the engines of one process share it."""
    return Gauge(
        "vllm_runner_info",
        "Which model runner is active; the value is always 1.",
        ["model_name", "engine", "runner"],
        # As vLLM's own gauges with several API servers.
        multiprocess_mode="mostrecent",
    )


class RunnerInfo(StatLoggerBase):
    """Exports the runner of one engine when it is made; it logs nothing."""

    def __init__(self, vllm_config, engine_index=0) -> None:
        """Export it.

        Args:
            vllm_config: Of the server; `use_v2_model_runner` is what its workers ask.
            engine_index: Of the engine, from 0.
        """
        runners = {True: "v2", False: "v1"}
        _gauge().labels(
            model_name=str(getattr(vllm_config.model_config, "served_model_name", "")),
            engine=str(engine_index),
            # A later vLLM may not have the question any more.
            runner=runners.get(getattr(vllm_config, "use_v2_model_runner", None), "unknown"),
        ).set(1)

    def record(self, *args, **kwargs) -> None:
        """Ignore what happens in the engine."""

    def log_engine_initialized(self) -> None:
        """Say nothing: the log has it."""
