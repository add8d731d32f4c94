"""What came with each release of vLLM: admission control, metrics, what it is built on."""

from __future__ import annotations

from dataclasses import dataclass

from vllm_upgrade_operator.vllm.facts import known
from vllm_upgrade_operator.vllm.versions import AdmissionControl, Version, admission_control


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """What a release is built on; a change of it is a change of its own.

    Attributes:
        cuda: Of the images without a suffix in their tag (VLLM_MAIN_CUDA_VERSION in envs.py).
        torch: That the package requires.
        triton: That this torch requires on Linux.
    """

    cuda: str
    torch: str
    triton: str


@dataclass(frozen=True, slots=True)
class Deprecated:
    """A flag that still parses and will go.

    Attributes:
        flag: Its name without dashes.
        since: The first known version that says so.
        gone_in: The version that it says it will be gone in.
        instead: What to use, as a clause.
    """

    flag: str
    since: Version
    gone_in: str
    instead: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Facts of one version.

    Attributes:
        version: Whose facts these are.
        certain: False where another version was asked for and this is the nearest known one.
        admission: How rejections are reported.
        admission_flags: The flags that bound the queue; none before 0.29.
        rejection: What a refused request gets, and where it is counted, as a clause.
        new_metrics: Metrics that this release added, names without the suffix `_total`.
        base: What it is built on.
        deprecated: Flags that still parse and will go.
    """

    version: Version
    certain: bool
    admission: AdmissionControl
    admission_flags: tuple[str, ...]
    rejection: str
    new_metrics: frozenset[str]
    base: Base
    deprecated: tuple[Deprecated, ...]


# requires_dist of vllm 0.28.0, 0.32.0 and 0.33.0, and of torch 2.13.0 and 2.14.0; CUDA is 13.0 in
# envs.py of all of 0.28.0 to 0.33.0.
_BASE_UNTIL_032 = Base(cuda="13.0", torch="2.13.0", triton="3.7.1")
_BASE_FROM_033 = Base(cuda="13.0", torch="2.14.0", triton="3.8")

ADMISSION_FLAGS = ("max-num-queued-reqs", "max-num-queued-tokens")
"""Since 0.29 (config/scheduler.py:74): waiting and running requests; tokens still in prefill."""

_REJECTION = {
    AdmissionControl.NONE: "nothing is refused: the queue has no limit",
    AdmissionControl.APPROXIMATE: "HTTP 503, counted only among the 5xx of http_requests_total",
    AdmissionControl.COUNTER: "HTTP 503, counted in vllm:admission_rejections_total by reason",
}

# v1/metrics/loggers.py and the connectors of each version; no core metric was renamed or removed.
_NEW_METRICS: dict[Version, frozenset[str]] = {
    Version(0, 30): frozenset({"vllm:request_num_preemptions"}),
    Version(0, 32): frozenset(
        {
            "vllm:admission_rejections",
            "vllm:num_requests_kv_fetch_by_stage",
            "vllm:prompt_tokens_cached_by_source",
            "vllm:watermark_requests",
        }
    ),
}

# The messages of engine/arg_utils.py. 0.33.0 still parses those that say 0.33.0.
_DEPRECATED = (
    Deprecated(
        "log-config-file",
        Version(0, 31),
        "0.33.0",
        "--logging-config.pylogging_config_file",
    ),
    Deprecated("disable-cascade-attn", Version(0, 32), "0.33.0", "nothing: it has no effect"),
    Deprecated(
        "mamba-cache-mode", Version(0, 33), "0.33.0", "--enable-prefix-caching, which Mamba follows"
    ),
    Deprecated("ir-op-priority", Version(0, 33), "0.34.0", "nothing: vLLM IR is being removed"),
)


def facts_for(version: Version) -> Release:
    """Give the facts of a version; of one that is not known, those of the nearest known one."""
    found = known.nearest(version)
    admission = admission_control(found.version)
    return Release(
        version=found.version,
        certain=found.certain,
        admission=admission,
        admission_flags=() if admission is AdmissionControl.NONE else ADMISSION_FLAGS,
        rejection=_REJECTION[admission],
        new_metrics=_NEW_METRICS.get(found.version, frozenset()),
        base=_BASE_FROM_033 if found.version >= Version(0, 33) else _BASE_UNTIL_032,
        deprecated=tuple(d for d in _DEPRECATED if d.since <= found.version),
    )
