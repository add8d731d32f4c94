"""Where the extra time of slower requests went.

vLLM observes for each finished request how long it waited before it first ran (queue), from then
to its first token (prefill) and from that to its last (decode), v1/metrics/loggers.py. The decode
time is the number of tokens times the time of one, so it is split into *longer outputs* and *slower
tokens*. A request that is preempted waits again, which shows as slower tokens. What the parts do
not cover (`elsewhere`) passed outside of the engine, or belongs to requests that had a first token
and have not finished.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.api.checks import LATENCIES
from vllm_upgrade_operator.api.spec import Metric
from vllm_upgrade_operator.judge.words import count, percent, seconds

if TYPE_CHECKING:
    from vllm_upgrade_operator.judge.means import Means

LONGEST_SENTENCE = 300

# A clue is worth telling from this relative difference on.
_NOTABLE = 0.1


@dataclass(frozen=True, slots=True)
class Part:
    """One place where time went.

    Attributes:
        name: `queue`, `prefill`, `slower tokens`, `longer outputs`, `decode` (where it cannot be
            split) or `elsewhere`.
        seconds: More than on stable pods, per request; negative where it is less.
        share: Of all that takes longer, 0 to 1; 0 where it does not.
    """

    name: str
    seconds: float
    share: float


@dataclass(frozen=True, slots=True)
class Attribution:
    """Where the extra time of a latency went, and what else is different.

    Attributes:
        metric: The latency.
        extra: Seconds that it is longer on the mean (per token for the inter-token latency); None
            where it is not known.
        parts: Largest first; empty where it is not known.
        sentence: For a person, at most 300 characters, never empty.
        canary: All numbers of the canary.
        stable: All numbers of the stable pods.
    """

    metric: Metric
    extra: float | None
    parts: tuple[Part, ...]
    sentence: str
    canary: Means
    stable: Means

    def record(self) -> dict[str, Any]:
        """Give all of it as plain values."""
        return {
            **asdict(self),
            "metric": str(self.metric),
            "parts": [asdict(p) for p in self.parts],
        }


def attribute(canary: Means, stable: Means, metric: Metric) -> Attribution:
    """Say where a latency's extra time went, as far as it is known.

    For a metric that is no latency there are no parts: only what else is different is told.
    """
    nothing = Attribution(metric, None, (), "", canary, stable)
    clues = _clues(canary, stable, metric)
    if metric not in LATENCIES:
        words = _joined(clues) or "nothing else that is measured is different"
        return replace(nothing, sentence=words)
    mine, theirs = _value(canary, metric), _value(stable, metric)
    if mine is None or theirs is None:
        return replace(nothing, sentence=_joined([_lacking(canary, stable, metric), *clues]))
    extra = mine - theirs
    parts = _shares(_differences(canary, stable, metric), extra)
    found = replace(nothing, extra=extra, parts=parts)
    return replace(found, sentence=_joined([_head(found), *clues]))


_PARTS = {
    Metric.TIME_TO_FIRST_TOKEN: ("queue", "prefill"),
    Metric.END_TO_END_LATENCY: ("queue", "prefill", "decode"),
    Metric.INTER_TOKEN_LATENCY: (),
}
_VALUES = {
    Metric.TIME_TO_FIRST_TOKEN: ("ttft", "time to first token"),
    Metric.END_TO_END_LATENCY: ("e2e", "end-to-end latency"),
    Metric.INTER_TOKEN_LATENCY: ("itl", "inter-token latency"),
}
_WHERE = {
    "queue": "in the queue",
    "prefill": "in prefill",
    "decode": "in decode",
    "elsewhere": "elsewhere (outside of the engine, or in requests that have not finished)",
}
# Parts of less than this are in the record only.
_TOLD = 0.02


def _value(means: Means, metric: Metric) -> float | None:
    value: float | None = getattr(means, _VALUES[metric][0])
    return value


def _lacking(canary: Means, stable: Means, metric: Metric) -> str:
    without = [
        side
        for side, means in (("the canary", canary), ("stable pods", stable))
        if _value(means, metric) is None
    ]
    what = _VALUES[metric][1]
    return f"where the time went is not known: no {what} was observed on {' and '.join(without)}"


def _differences(canary: Means, stable: Means, metric: Metric) -> list[tuple[str, float]]:
    """Give the parts that are known on both sides, in seconds more on the canary."""
    found: list[tuple[str, float]] = []
    for name in _PARTS[metric]:
        mine, theirs = getattr(canary, name), getattr(stable, name)
        if mine is None or theirs is None:
            continue
        tokens, before = canary.output_tokens, stable.output_tokens
        if name == "decode" and tokens and before:
            each = theirs / before
            found.append(("slower tokens", mine - tokens * each))
            found.append(("longer outputs", (tokens - before) * each))
        else:
            found.append((name, mine - theirs))
    return found


def _shares(known: list[tuple[str, float]], extra: float) -> tuple[Part, ...]:
    if not known:
        return ()
    parts = [*known, ("elsewhere", extra - sum(s for _, s in known))]
    longer = sum(max(0.0, s) for _, s in parts)
    found = [Part(n, s, max(0.0, s) / longer if longer > 0 else 0.0) for n, s in parts]
    return tuple(sorted(found, key=lambda part: -part.seconds))


def _head(result: Attribution) -> str:
    """Say how much longer it takes, and where."""
    of_canary, of_stable = (_value(m, result.metric) for m in (result.canary, result.stable))
    values = f"{seconds(of_canary)} against {seconds(of_stable)}"
    if result.extra is None or result.extra <= 0:
        return f"the mean is not longer ({values}): only the slowest requests are slower"
    if result.metric is Metric.INTER_TOKEN_LATENCY:
        return f"{seconds(result.extra)} more per token ({values})"
    more = f"{seconds(result.extra)} more per request"
    told = [p for p in result.parts if p.share >= _TOLD]
    if not told:
        return f"{more} ({values}); queue, prefill and decode times are not known on both sides"
    where = [f"{percent(round(p.share, 2))} {_where(p, result)}" for p in told]
    return f"{more}: {', '.join(where)}"


def _where(part: Part, result: Attribution) -> str:
    canary, stable = result.canary, result.stable
    if part.name == "slower tokens":
        if canary.itl is None or stable.itl is None:
            return part.name
        return f"{part.name} ({seconds(canary.itl)} against {seconds(stable.itl)} each)"
    if part.name == "longer outputs":
        tokens = f"{count(canary.output_tokens)} tokens against {count(stable.output_tokens)}"
        return f"{part.name} ({tokens})"
    return _WHERE[part.name]


def _clues(canary: Means, stable: Means, metric: Metric) -> list[str]:
    """Say what else is different and may be the cause; the metric itself is none."""
    clues: list[str] = []
    capacity = _change(canary.kv_capacity_tokens, stable.kv_capacity_tokens)
    if capacity is not None and metric is not Metric.KV_CAPACITY:
        more = "more" if capacity > 0 else "fewer"
        clues.append(f"the KV cache holds {percent(round(abs(capacity), 2))} {more} tokens")
    if _preempts(canary, stable) and metric is not Metric.PREEMPTIONS:
        clues.append(
            f"{count(canary.preemptions)} preemptions per request against "
            f"{count(stable.preemptions)}"
        )
    if _change(canary.prefix_hit_rate, stable.prefix_hit_rate) is not None:
        clues.append(
            f"the prefix cache finds {percent(canary.prefix_hit_rate)} of prompt tokens against "
            f"{percent(stable.prefix_hit_rate)}"
        )
    drafts = _change(canary.draft_acceptance, stable.draft_acceptance)
    if drafts is not None and metric is not Metric.DRAFT_ACCEPTANCE:
        clues.append(
            f"{percent(canary.draft_acceptance)} of drafts accepted against "
            f"{percent(stable.draft_acceptance)}"
        )
    if _change(canary.prompt_tokens, stable.prompt_tokens) is not None:
        clues.append(
            f"prompts of {count(canary.prompt_tokens)} tokens against {count(stable.prompt_tokens)}"
        )
    if metric not in LATENCIES and _change(canary.itl, stable.itl) is not None:
        clues.append(f"{seconds(canary.itl)} per token against {seconds(stable.itl)}")
    return clues


def _preempts(canary: Means, stable: Means) -> bool:
    """Whether one request in twenty makes the difference: fewer hardly show in a mean."""
    if canary.preemptions is None or stable.preemptions is None:
        return False
    return abs(canary.preemptions - stable.preemptions) >= 0.05


def _change(canary: float | None, stable: float | None) -> float | None:
    """Give the relative difference where it is worth telling."""
    if canary is None or stable is None or stable <= 0:
        return None
    change = canary / stable - 1
    return change if abs(change) >= _NOTABLE else None


def _joined(clauses: list[str]) -> str:
    """Join what has room; the first clause comes first."""
    sentence = ""
    for clause in clauses:
        longer = f"{sentence}; {clause}" if sentence else clause[:LONGEST_SENTENCE]
        if len(longer) <= LONGEST_SENTENCE:
            sentence = longer
    return sentence
