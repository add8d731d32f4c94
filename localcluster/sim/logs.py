"""What vLLM prints: the lines that tell the runner, the traps among them, and the traffic.

The texts are the same in 0.28 to 0.33 but where it says so; the lines of the source files that
they name are those of each version, as far as a log or the package showed them.
"""

from __future__ import annotations

import os
import sys
import time
from http import HTTPStatus
from typing import TYPE_CHECKING

from localcluster.sim.engine import Rejection
from localcluster.sim.versions import at_least

if TYPE_CHECKING:
    from localcluster.sim.engine import Engine
    from localcluster.sim.runner import Choice
    from localcluster.sim.settings import Settings

_LINES = {
    "0.28.0": {
        "fallback": 637,
        "worker": 396,
        "v1": 5420,
        "v2": 358,
        "engine": 123,
        "kv": 1870,
        "ready": 338,
        "weights": 431,
        "memory": 579,
        "v1_graphs": 7049,
        "v2_graphs": 907,
        "architecture": 684,
    },
    "0.29.0": {
        "fallback": 667,
        "worker": 429,
        "v1": 5380,
        "v2": 382,
        "engine": 123,
        "kv": 2032,
        "ready": 368,
        "weights": 430,
        "memory": 626,
        "v1_graphs": 7002,
        "v2_graphs": 961,
        "architecture": 684,
    },
    "0.32.0": {
        "fallback": 725,
        "worker": 518,
        "v1": 5040,
        "v2": 392,
        "engine": 133,
        "kv": 2327,
        "ready": 402,
        "weights": 501,
        "memory": 760,
        "v1_graphs": 6582,
        "v2_graphs": 1128,
        "architecture": 733,
    },
    "0.33.0": {
        "fallback": 753,
        "worker": 513,
        "v1": 4979,
        "v2": 399,
        "engine": 133,
        "kv": 1147,
        "ready": 396,
        "weights": 507,
        "memory": 773,
        "v1_graphs": 6517,
        "v2_graphs": 1164,
        "architecture": 733,
    },
}
# The KV cache of a token of an 8B Llama in 16 bits.
_GIB_PER_TOKEN = 131_072 / 2**30


class Log:
    """Prints lines as vLLM's logger does, from one of its three processes."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lines = _LINES[settings.version]
        own = os.getpid()
        self._pids = {"APIServer": own, "EngineCore": own + 1, "Worker": own + 2}
        # The worker's name until it has initialized itself (seen on 0.32).
        self._pids["VllmWorker-0"] = own + 2

    def banner(self) -> None:
        """What the API server says first."""
        options = self._settings.options
        given = {
            name.replace("-", "_"): _shown(values)
            for name, values in options.flags.items()
            if name != "api-key"
        }
        for text in (
            "",
            f" ▄▄ ▄█ █     █     █ ▀▄▀ █  version {self._settings.version}",
            f"  █▄█▀ █     █     █     █  model   {options.model}",
            "   ▀▀  ▀▀▀▀▀ ▀▀▀▀▀ ▀     ▀",
            "",
        ):
            self._line("APIServer", "api_utils.py:347", text)
        self._line("APIServer", "api_utils.py:286", f"non-default args: {given}")

    def resolved(self) -> None:
        """What the API server says of a model that it supports."""
        place = f"model.py:{self._lines['architecture']}"
        architecture = self._settings.architecture
        self._line("APIServer", place, f"Resolved architecture: {architecture}")
        length = self._settings.max_model_len
        self._line("APIServer", "model.py:2021", f"Using max model len {length}")

    def engine(self, choice: Choice) -> None:
        """What the engine's process says: a V1 *engine*, whatever the runner."""
        self._warn("APIServer", choice)
        model = self._settings.options.model
        self._line(
            "EngineCore",
            f"core.py:{self._lines['engine']}",
            f"Initializing a V1 LLM engine (v{self._settings.version}) with config: "
            f"model='{model}', speculative_config=None, tokenizer='{model}'",
        )

    def loading(self, choice: Choice) -> None:
        """What the worker says before it reads weights: this is what tells the runner."""
        if choice.v2:
            place = f"gpu_worker.py:{self._lines['worker']}"
            self._line("Worker", place, "Using V2 Model Runner")
            text = "Loading model from scratch..."
        else:
            self._warn("VllmWorker-0", choice)
            text = f"Starting to load model {self._settings.options.model}..."
        self._line(
            "Worker", self._runner_place(choice, self._lines["v2" if choice.v2 else "v1"]), text
        )

    def loaded(self, seconds: float, choice: Choice) -> None:
        """What comes after the weights: compilation, memory, graphs."""
        eager = self._settings.options.has("enforce-eager")
        lines, limits = self._lines, self._settings.limits
        place = f"default_loader.py:{lines['weights']}"
        self._line("Worker", place, f"Loading weights took {seconds:.2f} seconds")
        self._line(
            "Worker",
            self._runner_place(choice, lines["v2" if choice.v2 else "v1"] + 32),
            f"Model loading took 14.99 GiB memory and {seconds:.6f} seconds",
        )
        if not eager:
            tag = "[backbone] " if at_least(self._settings.version, "0.32.0") else ""
            for text in (
                f"Dynamo bytecode transform time: {seconds / 10:.2f} s",
                f"torch.compile took {seconds / 5:.2f} s in total",
                f"Initial profiling/warmup run took {seconds / 20:.2f} s",
            ):
                self._line("Worker", "monitor.py:91", tag + text)
        memory = limits.kv_tokens * _GIB_PER_TOKEN
        text = f"Available KV cache memory: {memory:.2f} GiB"
        self._line("Worker", f"gpu_worker.py:{lines['memory']}", text)
        length = self._settings.max_model_len
        if length > limits.kv_tokens:
            return
        self._line(
            "EngineCore",
            f"kv_cache_utils.py:{lines['kv']}",
            f"GPU KV cache size: {limits.kv_tokens:,} tokens, Maximum concurrency for {length:,} "
            f"tokens per request: {limits.kv_tokens / length:.2f}x",
        )
        if not eager:
            place = self._runner_place(choice, lines["v2_graphs" if choice.v2 else "v1_graphs"])
            self._line("Worker", place, "Graph capturing finished in 0 secs, took 0.25 GiB")
        text = f"init engine (profile, create kv cache, warmup model) took {seconds:.2f} s"
        self._line("EngineCore", f"core.py:{lines['ready']}", text)
        self._warn("EngineCore", choice)

    def serving(self, host: str, port: int) -> None:
        """The last lines before the port answers."""
        line = 140 if at_least(self._settings.version, "0.32.0") else 139
        self._line("APIServer", f"entry.py:{line}", f"Starting vLLM server on http://{host}:{port}")
        self._uvicorn(f"Started server process [{os.getpid()}]")
        self._uvicorn("Waiting for application startup.")
        self._uvicorn("Application startup complete.")

    def refused(self, message: str, config: str) -> None:
        """How a start ends in the API server whose `config` cannot be had."""
        fields = (
            "{'model': ...nderer_num_workers': 1}"
            if config == "ModelConfig"
            else "{'model_co... 'shutdown_timeout': 0}"
        )
        given = f"input_value=ArgsKwargs((), {fields}), input_type=ArgsKwargs"
        for line in (
            "Traceback (most recent call last):",
            f"pydantic_core._pydantic_core.ValidationError: 1 validation error for {config}",
            f"  Value error, {message} [type=value_error, {given}]",
            "    For further information visit https://errors.pydantic.dev/2.14/v/value_error",
        ):
            print(f"{self._bare_prefix()}{line}", file=sys.stderr, flush=True)

    def engine_died(self) -> None:
        """What is said when the worker is gone and the engine with it (seen on 0.32)."""
        dead = (
            "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. "
            "See stack trace (above) for the root cause."
        )
        trace = "Traceback (most recent call last):"
        worker = "Worker proc VllmWorker-0 died unexpectedly (exit code: -9), shutting down"
        self._line("EngineCore", "multiproc_executor.py:315", f"{worker} executor.", "ERROR")
        for process, place, texts in (
            (
                "EngineCore",
                "core.py:1512",
                ("EngineCore encountered a fatal error.", trace, "RuntimeError: cancelled"),
            ),
            ("APIServer", "async_llm.py:906", ("AsyncLLM output_handler failed.", trace, dead)),
        ):
            for text in texts:
                self._line(process, place, text, "ERROR")

    def closed_after_death(self) -> None:
        """What is said when the HTTP server has ended for a dead engine."""
        for text in (
            "Shutting down",
            "Waiting for application shutdown.",
            "Application shutdown complete.",
            f"Finished server process [{os.getpid()}]",
        ):
            self._uvicorn(text)

    def failed(self, process: str, message: str) -> None:
        """How a start ends that fails in the engine's process or in the worker."""
        place = "multiproc_executor.py:836" if process == "Worker" else "core.py:1130"
        first = "WorkerProc" if process == "Worker" else "EngineCore"
        for text in (
            f"{first} failed to start.",
            "Traceback (most recent call last):",
            f"ValueError: {message}",
        ):
            self._line(process, place, text, "ERROR")
        print("Traceback (most recent call last):", file=sys.stderr)
        print(
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core "
            "proc(s): {}",
            file=sys.stderr,
            flush=True,
        )

    def access(self, peer: str, method: str, path: str, status: int) -> None:
        """The line of the HTTP server about a request."""
        phrase = HTTPStatus(status).phrase
        self._uvicorn(f'{peer} - "{method} {path} HTTP/1.1" {status} {phrase}')

    def rejected(self, reason: Rejection, identity: str, engine: Engine) -> None:
        """What is said of a request that is not let in; less from 0.32 on, which counts them."""
        version, limits = self._settings.version, engine.limits
        if not at_least(version, "0.32.0"):
            if reason is Rejection.REQUESTS:
                inside = len(engine.waiting) + len(engine.running)
                text = (
                    f"Request queue full - rejecting request {identity} "
                    f"(current={inside}, n=1, max={limits.max_num_queued_reqs})."
                )
            else:
                text = (
                    f"Max queued tokens reached - rejecting request {identity} "
                    f"(max={limits.max_num_queued_tokens})."
                )
            self._line("APIServer", "async_llm.py:318", text)
        self.exception(identity)

    def exception(self, identity: str) -> None:
        """What is said of a request that fails."""
        text = f"Exception caught. Request id: {identity}"
        self._line("APIServer", "exception.py:16", text, "ERROR")

    def activity(self, prompt_rate: float, generation_rate: float, engine: Engine) -> None:
        """The line that comes every ten seconds while there is something to say."""
        self._line(
            "APIServer",
            "loggers.py:310",
            f"Engine 000: Avg prompt throughput: {prompt_rate:.1f} tokens/s, Avg generation "
            f"throughput: {generation_rate:.1f} tokens/s, Running: {len(engine.running)} reqs, "
            f"Waiting: {len(engine.waiting)} reqs, GPU KV cache usage: {engine.kv_usage:.1%}, "
            "Prefix cache hit rate: 0.0%",
        )

    def stopping(self, in_flight: int, timeout: int) -> None:
        """What is said at SIGTERM; `timeout` in seconds, 0 for none."""
        mode = "drain" if timeout else "abort"
        for process, place, text in (
            ("APIServer", "launcher.py:124", "API server: shutdown triggered"),
            (
                "APIServer",
                "launcher.py:140",
                f"API server: stopping engine client mode={mode} timeout={timeout}s",
            ),
            ("EngineCore", "core.py:1350", "EngineCore: trigger received signal=SIGTERM"),
            ("EngineCore", "core.py:1501", f"EngineCore: start mode={mode} timeout={timeout}s"),
        ):
            self._line(process, place, f"[shutdown] {text}")
        if timeout:
            text = f"EngineCore: draining in-flight requests count={in_flight} timeout={timeout}s"
            self._line("EngineCore", "core.py:1521", f"[shutdown] {text}")

    def stopped(self) -> None:
        """What is said when nothing is in flight any more."""
        text = "EngineCore: request processing complete; starting resource teardown"
        self._line("EngineCore", "core.py:1532", f"[shutdown] {text}")
        text = "API server: shutting down FastAPI HTTP server"
        self._line("APIServer", "launcher.py:173", f"[shutdown] {text}")
        self._uvicorn("Shutting down")
        self._uvicorn("Application shutdown complete.")

    def _runner_place(self, choice: Choice, line: int) -> str:
        return f"{'model_runner' if choice.v2 else 'gpu_model_runner'}.py:{line}"

    def _warn(self, process: str, choice: Choice) -> None:
        if choice.warning is not None:
            self._line(process, f"vllm.py:{self._lines['fallback']}", choice.warning, "WARNING")

    def _uvicorn(self, text: str) -> None:
        """A line of the HTTP server's own logger."""
        print(f"{self._bare_prefix()}INFO:     {text}", flush=True)

    def _bare_prefix(self) -> str:
        """What stands before a line that is not the logger's: from 0.32 on nothing (seen)."""
        old = not at_least(self._settings.version, "0.32.0")
        return f"(APIServer pid={self._pids['APIServer']}) " if old else ""

    def _line(self, process: str, place: str, text: str, level: str = "INFO") -> None:
        stamp = time.strftime("%m-%d %H:%M:%S")
        prefix = f"({process} pid={self._pids[process]})"
        print(f"{prefix} {level} {stamp} [{place}] {text}", flush=True)


def _shown(values: list[str]) -> object:
    """Give a flag's value as the parser would have made it."""
    if len(values) != 1:
        return values or True
    return int(values[0]) if values[0].isdecimal() else values[0]
