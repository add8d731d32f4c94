"""What vLLM prints while it starts: the lines that tell the runner, and the traps among them."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from localcluster.sim.engine import Limits
    from localcluster.sim.options import Options
    from localcluster.sim.runner import Choice

# File and line that a message is logged from; one place per version (read in the packages).
_LINES = {
    "0.28.0": {"worker": 396, "v1": 5420, "v2": 358, "engine": 123, "config": 1370, "kv": 1870},
    "0.29.0": {"worker": 429, "v1": 5380, "v2": 382, "engine": 123, "config": 1371, "kv": 2033},
    "0.32.0": {"worker": 518, "v1": 5040, "v2": 392, "engine": 128, "config": 1482, "kv": 2327},
    "0.33.0": {"worker": 513, "v1": 4979, "v2": 399, "engine": 128, "config": 1490, "kv": 1147},
}


class Log:
    """Prints lines as vLLM's logger does, from one of its three processes."""

    def __init__(self, version: str) -> None:
        self._version = version
        self._lines = _LINES[version]
        self._pids = {
            "APIServer": os.getpid(),
            "EngineCore": os.getpid() + 1,
            "Worker": os.getpid() + 2,
        }

    def line(self, process: str, place: str, text: str, level: str = "INFO") -> None:
        """Print one line."""
        stamp = time.strftime("%m-%d %H:%M:%S")
        prefix = f"({process} pid={self._pids[process]})"
        print(f"{prefix} {level} {stamp} [{place}] {text}", flush=True)

    def banner(self, options: Options) -> None:
        """What the API server says first."""
        given = {k.replace("-", "_"): v for k, v in options.values.items() if k != "api-key"}
        self.line("APIServer", "api_utils.py:347", f" █▄█▀ version {self._version}")
        self.line("APIServer", "api_utils.py:286", f"non-default args: {given}")

    def configured(self, architecture: str, choice: Choice, max_model_len: int) -> None:
        """What is said when the configuration is made."""
        self.line("APIServer", "model.py:684", f"Resolved architecture: {architecture}")
        self.line("APIServer", "model.py:2021", f"Using max model len {max_model_len}")
        if choice.warning is not None:
            self._warn("APIServer", choice.warning)

    def engine(self, model: str, choice: Choice) -> None:
        """What the engine's process says: a V1 *engine*, whatever the runner."""
        if choice.warning is not None:
            self._warn("EngineCore", choice.warning)
        self.line(
            "EngineCore",
            f"core.py:{self._lines['engine']}",
            f"Initializing a V1 LLM engine (v{self._version}) with config: model='{model}'",
        )

    def loading(self, choice: Choice, model: str) -> None:
        """What the worker says: this is what tells the runner."""
        if choice.v2:
            self.line("Worker", f"gpu_worker.py:{self._lines['worker']}", "Using V2 Model Runner")
            self.line(
                "Worker", f"model_runner.py:{self._lines['v2']}", "Loading model from scratch..."
            )
            return
        if choice.warning is not None:
            self._warn("Worker", choice.warning)
        self.line(
            "Worker",
            f"gpu_model_runner.py:{self._lines['v1']}",
            f"Starting to load model {model}...",
        )

    def loaded(self, seconds: float, limits: Limits, choice: Choice, max_model_len: int) -> None:
        """Weights, memory and graphs."""
        runner = "model_runner.py" if choice.v2 else "gpu_model_runner.py"
        place = f"{runner}:{self._lines['v2' if choice.v2 else 'v1'] + 20}"
        tokens = limits.kv_blocks * limits.block_size
        self.line("Worker", "default_loader.py:431", f"Loading weights took {seconds:.2f} seconds")
        self.line("Worker", place, f"Model loading took 1.12 GiB memory and {seconds:.6f} seconds")
        self.line("Worker", "gpu_worker.py:626", "Available KV cache memory: 4.00 GiB")
        self.line(
            "EngineCore",
            f"kv_cache_utils.py:{self._lines['kv']}",
            f"GPU KV cache size: {tokens:,} tokens, Maximum concurrency for {max_model_len} tokens "
            f"per request: {tokens / max_model_len:.2f}x",
        )
        self.line("Worker", place, "Graph capturing finished in 0 secs, took 0.25 GiB")
        self.line(
            "EngineCore",
            "core.py:368",
            f"init engine (profile, create kv cache, warmup model) took {seconds:.2f} s",
        )

    def serving(self, address: str) -> None:
        """The last lines before the port answers."""
        self.line("APIServer", "entry.py:139", f"Starting vLLM server on http://{address}")
        print(f"(APIServer pid={self._pids['APIServer']}) INFO:     Application startup complete.")
        sys.stdout.flush()

    def refused(self, message: str) -> None:
        """How a configuration that cannot be had ends."""
        for line in (
            "Traceback (most recent call last):",
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for VllmConfig",
            f"  Value error, {message} [type=value_error, input_value=ArgsKwargs(()), "
            "input_type=ArgsKwargs]",
        ):
            print(f"(APIServer pid={self._pids['APIServer']}) {line}", file=sys.stderr)
        sys.stderr.flush()

    def _warn(self, process: str, text: str) -> None:
        self.line(process, f"vllm.py:{self._lines['config']}", text, "WARNING")
