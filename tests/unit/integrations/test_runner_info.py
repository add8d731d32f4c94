"""The plugin, loaded beside a stand-in for the interface that vLLM gives it."""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from abc import ABC, abstractmethod
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import REGISTRY, generate_latest

from vllm_upgrade_operator.vllm.runner import Runner
from vllm_upgrade_operator.vllm.runnermetric import exported

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3] / "integrations" / "vllm-runner-info"


class StatLoggerBase(ABC):
    """As in v1/metrics/loggers.py of 0.28 to 0.33."""

    @abstractmethod
    def __init__(self, vllm_config: Any, engine_index: int = 0) -> None: ...

    @abstractmethod
    def record(
        self,
        scheduler_stats: object,
        iteration_stats: object,
        mm_cache_stats: object = None,
        engine_idx: int = 0,
    ) -> None: ...

    @abstractmethod
    def log_engine_initialized(self) -> None: ...


@pytest.fixture(name="plugin")
def _plugin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("vllm", "vllm.v1", "vllm.v1.metrics", "vllm.v1.metrics.loggers"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(
        sys.modules["vllm.v1.metrics.loggers"], "StatLoggerBase", StatLoggerBase, raising=False
    )
    spec = importlib.util.spec_from_file_location("vllm_runner_info", ROOT / "vllm_runner_info.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    if module._gauge.cache_info().currsize:
        REGISTRY.unregister(module._gauge())


def config(**fields: Any) -> Any:
    return SimpleNamespace(model_config=SimpleNamespace(served_model_name="llama"), **fields)


def test_the_entry_point_names_the_class(plugin: Any) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    points = project["entry-points"]["vllm.stat_logger_plugins"]
    assert points == {"runner_info": "vllm_runner_info:RunnerInfo"}
    # vLLM refuses anything else.
    assert issubclass(plugin.RunnerInfo, StatLoggerBase)


@pytest.mark.parametrize(("v2", "runner"), [(True, Runner.V2), (False, Runner.V1)])
def test_the_operator_reads_what_it_exports(plugin: Any, v2: bool, runner: Runner) -> None:  # noqa: FBT001
    for engine in (0, 1):
        logger = plugin.RunnerInfo(config(use_v2_model_runner=v2), engine)
        logger.record(None, None, mm_cache_stats=None, engine_idx=engine)
        logger.log_engine_initialized()
    found = exported(generate_latest(REGISTRY).decode())
    assert found is not None
    assert found.runner is runner
    assert found.how == f"vllm_runner_info says {str(runner).lower()}, for 2 engines"


def test_it_is_exported_with_the_labels_of_vllms_own_metrics(plugin: Any) -> None:
    plugin.RunnerInfo(config(use_v2_model_runner=True))
    wanted = 'vllm_runner_info{engine="0",model_name="llama",runner="v2"} 1.0'
    assert wanted in generate_latest(REGISTRY).decode().splitlines()


def test_a_later_vllm_without_the_question_still_starts(plugin: Any) -> None:
    plugin.RunnerInfo(config())
    found = exported(generate_latest(REGISTRY).decode())
    assert found is not None
    assert found.runner is Runner.UNKNOWN
    assert not found.conflicting
