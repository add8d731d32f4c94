"""Which model runner a vLLM process really runs, read from its start-up log.

Nothing that vLLM serves over HTTP says it (0.28 to 0.33), and the environment variable only says
what was asked for. What is decisive is what the *worker* processes print:

* V2: `Using V2 Model Runner` (v1/worker/gpu_worker.py, cpu_worker.py, xpu_worker.py, the same
  text in 0.28 to 0.33), then `Loading model from scratch...`.
* V1: there is no counterpart, but `Starting to load model ...` is printed by V1 runners only
  (v1/worker/gpu_model_runner.py, cpu_model_runner.py in 0.28 to 0.33).

`Initializing a V1 LLM engine` is printed by every version and means the engine, not the runner.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


class Runner(StrEnum):
    """A model runner, or that it is not known."""

    V1 = "V1"
    V2 = "V2"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerEvidence:
    """What a log says of the runner.

    Attributes:
        runner: What every worker that spoke agrees on; else `UNKNOWN`.
        how: One line for a person: which log line decided, or why none could.
        fallback_features: What made vLLM fall back to V1, as it says; `triton` where Triton is
            missing; `ROCm default for <architecture>` for its list of exceptions on ROCm.
        refused: vLLM did not start because of the runner: its own words.
        conflicting: Workers of one pod disagree.
    """

    runner: Runner
    how: str
    fallback_features: tuple[str, ...] = ()
    refused: str | None = None
    conflicting: bool = False
