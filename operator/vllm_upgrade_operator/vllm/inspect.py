"""What can be concluded of one server from saved files: its log, and answers of its `/metrics`.

The same readers as in the operator, on what a support bundle holds. Nothing is guessed: what the
files do not say is None, and the runner without a worker's word is unknown.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.judge.counters import delta
from vllm_upgrade_operator.vllm import causes, metrics
from vllm_upgrade_operator.vllm.exposition import MalformedExpositionError
from vllm_upgrade_operator.vllm.runner import observe
from vllm_upgrade_operator.vllm.runnermetric import agreed, exported
from vllm_upgrade_operator.vllm.serverlog import Phases, ServerLog, latest_run, read_log
from vllm_upgrade_operator.vllm.startup import startup_phase
from vllm_upgrade_operator.vllm.versions import VersionError, parse_version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_upgrade_operator.judge.counters import Delta, Sample
    from vllm_upgrade_operator.vllm.runner import RunnerEvidence
    from vllm_upgrade_operator.vllm.versions import Version

APPROXIMATE_REASON = "http_5xx"
"""The reason of rejections that only show as 5xx answers (0.29 to 0.31)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """How the runner was found out.

    Attributes:
        source: `metric`, `log` or `none`.
        how: One line for a person.
        fallback_features: What V1 was fallen back to for, in vLLM's words.
        conflicting: What was seen does not agree: the runner is unknown for that reason.
    """

    source: str
    how: str
    fallback_features: tuple[str, ...] = ()
    conflicting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why the server did not start, or ended by itself.

    Attributes:
        reason: Its class, one PascalCase word.
        sentence: What happened, as a clause.
        advice: What to do about it, as a clause.
    """

    reason: str
    sentence: str
    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What happened between the first and the last metrics file.

    The files do not say when they were written, so that these are shares and numbers of requests
    and tokens, not numbers per second.

    Attributes:
        offered: Requests on the generation handlers.
        rejected: Of these, refused by admission control.
        rejection_rate: Their share, 0 to 1; None where none was offered.
        errors: Of these, failed.
        error_rate: Their share.
        finished: Requests that the engine finished.
        preemptions: Requests that lost their place.
        preemptions_per_request: For each that finished.
        prompt_tokens: Tokens of prompts.
        generation_tokens: Tokens generated.
    """

    offered: float | None
    rejected: float | None
    rejection_rate: float | None
    errors: float | None
    error_rate: float | None
    finished: float | None
    preemptions: float | None
    preemptions_per_request: float | None
    prompt_tokens: float | None
    generation_tokens: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What the files say.

    Attributes:
        runner: `v1`, `v2` or `unknown`.
        evidence: How that was found out.
        version: As the log says it, such as `0.32.0`.
        architecture: Of the model.
        draft_architecture: Of the draft model of speculative decoding.
        startup: How far its start has come, or `serving`.
        phases: How long the parts of its start took, in seconds.
        kv_capacity_tokens: Tokens that the KV caches of all engines hold.
        kv_usage: Share of the fullest engine's KV cache in use, 0 to 1.
        running: Requests in the running batch.
        waiting: Requests in the queue.
        rejections: Requests refused by admission control, by reason; None where it is not known.
        preemptions: Requests that lost their place in the running batch.
        failure: Why it did not start, or ended by itself; None where nothing says that it did.
        rates: What happened between two metrics files; None without two of one process.
        problems: What could not be read, and why.
    """

    runner: str
    evidence: Evidence
    version: str | None = None
    architecture: str | None = None
    draft_architecture: str | None = None
    startup: str | None = None
    phases: Phases = field(default_factory=Phases)
    kv_capacity_tokens: float | None = None
    kv_usage: float | None = None
    running: float | None = None
    waiting: float | None = None
    rejections: dict[str, float] | None = None
    preemptions: float | None = None
    failure: Failure | None = None
    rates: Rates | None = None
    problems: tuple[str, ...] = ()

    @property
    def recognised(self) -> bool:
        """Whether anything of vLLM was found in the files."""
        return any(
            found is not None
            for found in (
                self.version,
                self.architecture,
                self.startup,
                self.running,
                self.waiting,
                self.failure,
            )
        ) or (self.runner != "unknown" or self.evidence.conflicting)

    def as_json(self) -> dict[str, Any]:
        """Give it as JSON values: numbers that are whole are written so."""
        found = {k: _plain(v) for k, v in asdict(self).items()}
        if self.failure is not None:
            found["failure"] = {
                "class": self.failure.reason,
                "sentence": self.failure.sentence,
                "advice": self.failure.advice,
            }
        return found


def inspect(log: str | None, expositions: Sequence[str] = ()) -> Report:
    """Conclude from saved files of one server.

    Args:
        log: Its log; of several servers one after the other, the last one's counts.
        expositions: Answers of its `/metrics`, in the order in which they were read.
    """
    run = None if log is None else latest_run(log)
    said = ServerLog() if run is None else read_log(run)
    version = _version(said.version)
    problems: list[str] = []
    samples: list[tuple[Sample, str]] = []
    for number, text in enumerate(expositions, start=1):
        try:
            # The place in the list is the time: only the order is known.
            samples.append((metrics.parse(text, taken_at=float(number), version=version), text))
        except (MalformedExpositionError, metrics.NotVLLMError) as error:
            problems.append(f"metrics file {number}: {error}")
    rates = _rates(samples[0][0], samples[-1][0]) if len(samples) > 1 else None
    if len(samples) > 1 and rates is None:
        problems.append(
            "the metrics files cannot be compared: they are of different processes, or the earlier "
            "one does not come first"
        )
    latest = samples[-1][0] if samples else None
    runner = agreed(
        exported(samples[-1][1]) if samples else None, None if run is None else observe(run)
    )
    cause = None if run is None else causes.of_log(run)
    return Report(
        runner=str(runner.runner).lower(),
        evidence=_evidence(runner),
        version=said.version,
        architecture=said.architecture,
        draft_architecture=said.draft_architecture,
        startup=None if run is None else startup_phase(run),
        phases=said.phases,
        **_gauges(said, latest),
        rejections=_rejections(said, samples[-1] if samples else None, version),
        preemptions=None if latest is None else latest.preemptions,
        failure=None
        if cause is None
        else Failure(reason=cause.reason, sentence=cause.sentence, advice=cause.advice),
        rates=rates,
        problems=tuple(problems),
    )


def _version(text: str | None) -> Version | None:
    if text is None:
        return None
    try:
        return parse_version(text)
    except VersionError:
        return None


def _evidence(found: RunnerEvidence) -> Evidence:
    return Evidence(
        source=str(found.source),
        how=found.how,
        fallback_features=found.fallback_features,
        conflicting=found.conflicting,
    )


def _gauges(said: ServerLog, latest: Sample | None) -> dict[str, Any]:
    """Give what is true now: of the metrics, or else as the log said it last."""
    activity = list(said.activity.values())
    capacity = sum(said.kv_capacity_tokens.values()) or None
    if latest is None:
        return {
            "kv_capacity_tokens": capacity,
            "kv_usage": max((a.kv_usage for a in activity), default=None),
            "running": sum(a.running for a in activity) if activity else None,
            "waiting": sum(a.waiting for a in activity) if activity else None,
        }
    return {
        "kv_capacity_tokens": latest.kv_capacity_tokens or capacity,
        "kv_usage": latest.kv_usage,
        "running": latest.running,
        "waiting": latest.waiting,
    }


def _rejections(
    said: ServerLog, latest: tuple[Sample, str] | None, version: Version | None
) -> dict[str, float] | None:
    """Count by reason: of the counter, or else of the log's lines, or else of the 5xx answers."""
    if latest is not None:
        sample, text = latest
        counted = metrics.rejections_by_reason(text)
        if counted is not None:
            return counted
        if not said.rejections and sample.rejections_approximate:
            number = sample.rejected
            return None if number is None else {APPROXIMATE_REASON: number} if number else {}
        if not said.rejections:
            return None if sample.rejected is None else {}
    if said.rejections:
        return {reason: float(n) for reason, n in sorted(said.rejections.items())}
    if version is not None and not metrics.counts_rejections(version):
        # 0.28 refuses nothing; 0.29 to 0.31 would have said each one.
        return {}
    return None


def _rates(first: Sample, last: Sample) -> Rates | None:
    change = delta(first, last)
    return None if change is None else _of(change)


def _of(change: Delta) -> Rates:
    return Rates(
        offered=change.offered,
        rejected=change.rejected,
        rejection_rate=_share(change.rejected, change.offered),
        errors=change.errors,
        error_rate=_share(change.errors, change.offered),
        finished=change.finished,
        preemptions=change.preemptions,
        preemptions_per_request=_share(change.preemptions, change.finished),
        prompt_tokens=change.prompt_tokens,
        generation_tokens=change.generation_tokens,
    )


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _plain(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
