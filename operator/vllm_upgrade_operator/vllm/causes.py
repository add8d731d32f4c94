"""Why a vLLM container does not run: one table, from what Kubernetes and the log say.

What may be read: the container's state (reason, exit code), which probe the kubelet says it killed
it for (its Event), and a bounded piece of the log of the process that ended. Of a log only what a
row extracts is ever shown, and only characters that a flag, a class or a number is made of: a log
holds prompts and may hold keys.

The words of vLLM are those of 0.28 to 0.33: argparse (`unrecognized arguments`),
model_executor/models/registry.py (architectures), config/vllm.py (`_validate_v2_model_runner`),
v1/core/kv_cache_utils.py (KV cache), v1/worker/utils.py (free memory), v1/engine/core.py and
v1/engine/exceptions.py (engine death). Those of the Hugging Face libraries, PyTorch and asyncio
are their exceptions'. States and reasons are the kubelet's (pkg/kubelet/container, images).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from vllm_upgrade_operator.vllm.logs import lines, said

if TYPE_CHECKING:
    from collections.abc import Iterator

_MESSAGE_LIMIT = 300
_WORDS_LIMIT = 160
_NAMES_LIMIT = 5


class Probe(StrEnum):
    """A probe that the kubelet kills a container for."""

    STARTUP = "startup"
    LIVENESS = "liveness"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why a container ended or waits.

    Attributes:
        reason: One PascalCase word, for a condition.
        sentence: What happened, as a clause.
        advice: What to do about it, as a clause.
        may_heal: Another try of the same may end well, so that it is worth waiting for until a
            deadline; else it ends the attempt at once.
    """

    reason: str
    sentence: str
    advice: str
    may_heal: bool = False

    @property
    def words(self) -> str:
        """What happened, and what to do about it."""
        return f"{self.sentence}: {self.advice}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a container's process ended.

    Attributes:
        exit_code: Its exit code; 128 and a signal's number where that ended it.
        reason: The kubelet's: `Error`, `Completed`, `OOMKilled`, `StartError` and the like.
        message: The kubelet's or the container runtime's, where the process never ran.
        probe: The probe that the kubelet killed it for, as its Event says.
        budget_seconds: What its probes let a start take.
        log: The end of its log; None where it could not be read.
    """

    exit_code: int
    reason: str | None = None
    message: str | None = None
    probe: Probe | None = None
    budget_seconds: float = 0.0
    log: str | None = None


@dataclass(frozen=True, slots=True)
class _Row:
    """A cause that the log tells.

    Attributes:
        reason: As in `Cause`.
        says: What the process said: matched from the start of what is said.
        sentence: As in `Cause`; `{what}` is what the pattern's group `what` found.
        advice: As in `Cause`.
        exit_code: Only with this one.
        may_heal: As in `Cause`.
    """

    reason: str
    says: re.Pattern[str]
    sentence: str
    advice: str
    exit_code: int | None = None
    may_heal: bool = False


_ARGPARSE = r"[\w./-]+(?: \w+)?: error: "

# In the order in which they are looked for: the more telling first, for a traceback ends with the
# general one. Within a row the last line that matches counts.
_LOG_ROWS: tuple[_Row, ...] = (
    _Row(
        "UnknownFlag",
        re.compile(_ARGPARSE + r"unrecognized arguments: (?P<what>.*)"),
        "this vLLM does not know {what}",
        "take it out with spec.candidate.unsetArgs, or correct it in spec.candidate.args",
        exit_code=2,
    ),
    _Row(
        "UnknownFlag",
        re.compile(_ARGPARSE + r"ambiguous option: (?P<what>--[\w.-]+)"),
        "this vLLM has several flags that {what} may stand for",
        "write it out in spec.candidate.args",
        exit_code=2,
    ),
    _Row(
        "BadFlagValue",
        re.compile(_ARGPARSE + r"argument (?P<what>--?[\w.-]+)"),
        "this vLLM does not accept the value of {what}",
        "correct it in spec.candidate.args; `vllm serve --help` of the image says what it takes",
        exit_code=2,
    ),
    _Row(
        "UnsupportedArchitecture",
        re.compile(r"Model architectures (?P<what>\[[^\]]*\]) are not supported for now"),
        "this vLLM does not support the model's architecture {what}",
        "use an image that does, or another model",
    ),
    _Row(
        "UnsupportedArchitecture",
        re.compile(r"Model architecture (?P<what>\w+) was supported in vLLM until "),
        "this vLLM does not support the model's architecture {what} any more",
        "use an older image, or another model",
    ),
    _Row(
        "UnsupportedArchitecture",
        re.compile(
            r"The checkpoint you are trying to load has model type `(?P<what>[\w.-]+)` but "
            r"Transformers does not recognize this architecture"
        ),
        "the Transformers library in the image does not know the model type {what}",
        "use an image with a newer one, or another model",
    ),
    _Row(
        "TritonMissing",
        re.compile(r"Model Runner V2 requires Triton\."),
        "Model Runner V2 is forced, and there is no Triton in the image for this platform",
        "use an image with Triton; or unset VLLM_USE_V2_MODEL_RUNNER, so that vLLM falls back to "
        "V1, and accept that in spec.runner",
    ),
    _Row(
        "RunnerImpossible",
        re.compile(r"Model Runner (?P<what>V[12] does not (?:yet )?support: [^\[]+)"),
        "vLLM refuses the model runner that is forced: {what}",
        "do without what it names, or unset VLLM_USE_V2_MODEL_RUNNER, so that vLLM chooses, and "
        "say in spec.runner what may run",
    ),
    _Row(
        "RunnerImpossible",
        re.compile(r"(?P<what>Prefill context parallelism requires Model Runner V2)"),
        "vLLM refuses the model runner that is forced: {what}",
        "unset VLLM_USE_V2_MODEL_RUNNER",
    ),
    _Row(
        "KVCacheTooSmall",
        re.compile(
            r"To serve at least one request with the model.{0,3} max seq len \((?P<what>\d+)\)"
        ),
        "what is left of the memory holds no request of the maximal length ({what} tokens)",
        "lower max-model-len, raise gpu-memory-utilization, or spread the model over more GPUs",
    ),
    _Row(
        "KVCacheTooSmall",
        re.compile(r"No available memory for the cache blocks"),
        "the model leaves no memory for the KV cache",
        "raise gpu-memory-utilization, lower max-num-batched-tokens, or spread the model over more "
        "GPUs",
    ),
    _Row(
        "GPUMemoryTaken",
        re.compile(r"Free memory on device .* is less than desired GPU memory utilization"),
        "the GPU's memory is in use by something else",
        "look for what else runs on that node's GPUs, or lower gpu-memory-utilization",
    ),
    _Row(
        "GPUOutOfMemory",
        re.compile(r"(?:(?:CUDA|HIP|XPU) out of memory|(?:CUDA|HIP) error: out of memory)"),
        "the GPU's memory did not suffice",
        "lower gpu-memory-utilization, max-num-seqs or max-num-batched-tokens, or spread the model "
        "over more GPUs",
    ),
    _Row(
        "DriverTooOld",
        re.compile(
            r"(?:CUDA driver version is insufficient for CUDA runtime version"
            r"|The NVIDIA driver on your system is too old"
            r"|.*nvidia-container-cli: requirement error: unsatisfied condition)"
        ),
        "the image needs a newer GPU driver than the node has",
        "use an image for the CUDA version of the nodes, or nodes with a newer driver",
    ),
    _Row(
        "GPUNotSupported",
        re.compile(r"CUDA error: no kernel image is available for execution on the device"),
        "the image has no kernels for the node's GPU",
        "use an image that is built for it, or other nodes",
    ),
    _Row(
        "PortInUse",
        re.compile(r"\[Errno 98\] (?:Address already in use|error while attempting to bind)"),
        "its port is in use by another process of the pod",
        "give --port, or the other container, another one",
    ),
    _Row(
        "ModelAccessDenied",
        re.compile(
            r"(?:You are trying to access a gated repo|Cannot access gated repo"
            r"|Access to model .* is restricted|40[13] Client Error|Invalid user token)"
        ),
        "the model's repository does not let it in",
        "look at the token (HF_TOKEN) that the pod gets, and at the model's terms",
    ),
    _Row(
        "ModelNotFound",
        re.compile(
            r"(?:Repository Not Found for url|.{1,200} is not a local folder and is not a valid "
            r"model identifier|Invalid repository ID or local directory specified"
            r"|.{1,200} does not appear to have a file named)"
        ),
        "the model, or a file of it, is not where it is looked for",
        "look at --model, and at the volume or repository that it names",
    ),
    _Row(
        "ModelDownloadFailed",
        re.compile(
            r"(?:We couldn't connect to 'https?://"
            r"|An error happened while trying to locate the files? on the Hub"
            r"|Cannot find the requested files in the disk cache)"
        ),
        "the model could not be downloaded",
        "look at the network between the pod and the model's repository",
        may_heal=True,
    ),
    _Row(
        "EngineDied",
        re.compile(
            r"(?:EngineCore encountered (?:a fatal error|an issue)"
            r"|Engine core proc \S+ died unexpectedly"
            r"|EngineDeadError)"
        ),
        "vLLM's engine died",
        "its log has the stack trace above `EngineCore encountered a fatal error`",
    ),
    _Row(
        "EngineStartFailed",
        re.compile(r"(?:Engine core initialization failed|EngineCore failed to start)"),
        "vLLM's engine did not start",
        "its log has the root cause above `Engine core initialization failed`",
    ),
)

# Kubernetes writes 128 and the number of the signal.
_SIGNALS = {134: "SIGABRT", 137: "SIGKILL", 139: "SIGSEGV", 143: "SIGTERM"}
_NEVER_RAN = frozenset({"StartError", "ContainerCannotRun"})
# What containerd and the kubelet say of containers that a reboot of the node has ended.
_NODE_RESTARTED = frozenset({"Unknown", "ContainerStatusUnknown"})

# entrypoints/launcher.py at SIGTERM, the same in 0.28 to 0.33.
_TOLD_TO_STOP = "[shutdown] API server: shutdown triggered"

_SERVED = re.compile(
    r"(?:\([\w.-]+ pid=\d+\) )?INFO:\s+(?:Application startup complete\."
    r"|\S+ - \"[A-Z]+ \S+ HTTP/[\d.]+\" \d{3}\b)"
)

_ABSENT = re.compile(
    r"manifest unknown|manifest for .* not found|code = NotFound|404 Not Found|: not found$",
    re.IGNORECASE,
)
PULLING = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "RegistryUnavailable"}
)
"""Reasons of a container that waits for its image."""
_ON_ITS_WAY = frozenset({"ContainerCreating", "PodInitializing", "CrashLoopBackOff"})


def of_end(end: Ending) -> Cause:
    """Say why a process ended. There is always an answer; what is not known is called so."""
    return (
        _of_memory(end)
        or _of_probe(end)
        or _of_node(end)
        or _of_start(end)
        or _of_log(end)
        or _of_code(end)
    )


def of_wait(reason: str | None, message: str | None) -> Cause | None:
    """Say why a container waits; None where it is only on its way."""
    if reason is None or reason in _ON_ITS_WAY:
        return None
    text = (message or "no message")[:_MESSAGE_LIMIT]
    if reason == "InvalidImageName":
        return Cause(
            reason=reason,
            sentence=f"the image's name cannot be parsed ({text})",
            advice="correct spec.candidate.image",
        )
    if reason in PULLING and _ABSENT.search(text):
        return Cause(
            reason="ImageNotFound",
            sentence=f"the registry has no such image ({text})",
            advice="correct spec.candidate.image, or push the image and try again",
        )
    if reason in PULLING:
        return Cause(
            reason="ImagePull",
            sentence=f"its image cannot be pulled ({reason}: {text})",
            advice="look at the registry, and at imagePullSecrets of the pod",
            may_heal=True,
        )
    if reason == "CreateContainerConfigError":
        return Cause(
            reason=reason,
            sentence=f"something that its template names is missing ({text})",
            advice="create it, or correct the template",
            may_heal=True,
        )
    if _NO_COMMAND.search(text):
        return Cause(
            reason="CommandNotFound",
            sentence=f"its command is not in the image or cannot be run ({text})",
            advice=_COMMAND_ADVICE,
        )
    if _DRIVER.says.match(text):
        return Cause(reason=_DRIVER.reason, sentence=_DRIVER.sentence, advice=_DRIVER.advice)
    return Cause(
        reason=reason,
        sentence=f"its container cannot be started ({reason}: {text})",
        advice="the Events of the pod say more",
        may_heal=True,
    )


_DRIVER = next(row for row in _LOG_ROWS if row.reason == "DriverTooOld")
# The container runtime's words, at the start of a container.
_NO_COMMAND = re.compile(
    r"executable file not found|exec.*(?:no such file or directory|permission denied)"
)
_COMMAND_ADVICE = "look at the command of the container: images differ in it"


def served(log: str) -> bool:
    """Whether a log, or the end of one, is of a server that had come up."""
    return any(_SERVED.match(line) for line in lines(log))


def _of_memory(end: Ending) -> Cause | None:
    if end.reason != "OOMKilled":
        return None
    when = "" if end.log is None else " while serving" if served(end.log) else " while loading"
    return Cause(
        reason="OutOfMemory",
        sentence=f"it was killed for memory{when} (OOMKilled, exit code {end.exit_code})",
        advice="raise the container's memory limit in spec.candidate.templatePatch, or find what "
        "needs more than before",
    )


def _of_probe(end: Ending) -> Cause | None:
    if end.probe is None:
        return None
    starting = end.probe is Probe.STARTUP or (end.log is not None and not served(end.log))
    if not starting:
        return Cause(
            reason="LivenessProbeFailed",
            sentence="the kubelet killed it because its liveness probe failed",
            advice="it had started and then did not answer; its log may say why",
        )
    return Cause(
        reason="StartupTooSlow",
        sentence=f"the kubelet killed it for its {end.probe} probe while it was still starting: "
        f"its probes allow {end.budget_seconds:.0f} s",
        advice="raise failureThreshold of the startup probe in spec.candidate.templatePatch",
        may_heal=True,
    )


def _of_node(end: Ending) -> Cause | None:
    if end.reason not in _NODE_RESTARTED:
        return None
    return Cause(
        reason="NodeRestarted",
        sentence="its node was restarted",
        advice="it is started again",
        may_heal=True,
    )


def _of_start(end: Ending) -> Cause | None:
    if end.reason not in _NEVER_RAN:
        return None
    return of_wait(end.reason, end.message)


def of_log(log: str, exit_code: int | None = None) -> Cause | None:
    """Say what a log tells of why its process ended, or will; None where it tells nothing.

    What is said after the server was told to stop is no cause: an engine that is killed while it
    drains is called dead too.

    Args:
        log: Of one process, or the end of it.
        exit_code: What it ended with, where that is known.
    """
    found: dict[_Row, str] = {}
    for line in said(log):
        if line.startswith(_TOLD_TO_STOP):
            break
        for row in _LOG_ROWS:
            if exit_code is not None and row.exit_code not in (None, exit_code):
                continue
            match = row.says.match(line)
            if match is not None:
                found[row] = _shown(row, match)
    code = "" if exit_code is None else f" (exit code {exit_code})"
    for row in _LOG_ROWS:
        if row in found:
            return Cause(
                reason=row.reason,
                sentence=f"{row.sentence.format(what=found[row])}{code}",
                advice=row.advice,
                may_heal=row.may_heal,
            )
    return None


def _of_log(end: Ending) -> Cause | None:
    return None if end.log is None else of_log(end.log, end.exit_code)


def _shown(row: _Row, match: re.Match[str]) -> str:
    """What of the match may be shown: never a value, which may be a key."""
    text = match.groupdict().get("what") or ""
    if row.reason in ("UnknownFlag", "BadFlagValue"):
        return _listed(_flags(text)) or "an argument that is no flag"
    if row.reason == "UnsupportedArchitecture":
        return _listed(re.findall(r"[\w.-]+", text))
    return re.sub(r"[^\w ,.'/:()-]", "", text).strip(" .")[:_WORDS_LIMIT]


def _flags(text: str) -> Iterator[str]:
    for word in text.split():
        if found := re.match(r"--?[A-Za-z][\w.-]{0,63}", word):
            yield found.group()


def _listed(names: Iterator[str] | list[str]) -> str:
    return ", ".join([name[:64] for name in names][:_NAMES_LIMIT])


def _of_code(end: Ending) -> Cause:
    code = end.exit_code
    if code == 2:
        return Cause(
            reason="BadCommandLine",
            sentence="it did not accept its command line (exit code 2)",
            advice="look at its log, and at spec.candidate.args",
        )
    if code in (126, 127):
        return Cause(
            reason="CommandNotFound",
            sentence=f"its command is not in the image or cannot be run (exit code {code})",
            advice=_COMMAND_ADVICE,
        )
    if code in _SIGNALS:
        return Cause(
            reason="KilledBySignal",
            sentence=f"it was ended by {_SIGNALS[code]} (exit code {code}), and neither a probe "
            "nor its memory limit is said to be why",
            advice="look at its log and at the Events of the pod and its node",
        )
    return Cause(
        reason="ContainerExited",
        sentence=f"its vLLM container ended with exit code {code}",
        advice="look at its log",
    )
