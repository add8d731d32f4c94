"""What the requests of one side were like on the mean, over about the last ten minutes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

from vllm_upgrade_operator.judge import compact
from vllm_upgrade_operator.judge.paired import fading

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm_upgrade_operator.judge.counters import Delta, Histogram

_FORMAT = 1
_HISTOGRAMS = (
    *("ttft", "itl", "e2e", "queue", "prefill", "decode"),
    *("prompt_lengths", "output_lengths"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What one side's requests were like; None where it is not known.

    Attributes:
        ttft: Mean time to the first token, in seconds. So are the five that follow.
        itl: Between two tokens.
        e2e: From arrival to the last token.
        queue: Before a request first ran.
        prefill: From then to the first token.
        decode: From the first token to the last.
        prompt_tokens: Per finished request.
        output_tokens: Per finished request.
        preemptions: Per finished request.
        prefix_hit_rate: Share of prompt tokens found in the prefix cache, 0 to 1.
        draft_acceptance: Share of drafted tokens that were accepted, 0 to 1.
        kv_capacity_tokens: Tokens that a pod's KV cache holds.
        requests: Finished requests that this is made of.
    """

    ttft: float | None = None
    itl: float | None = None
    e2e: float | None = None
    queue: float | None = None
    prefill: float | None = None
    decode: float | None = None
    prompt_tokens: float | None = None
    output_tokens: float | None = None
    preemptions: float | None = None
    prefix_hit_rate: float | None = None
    draft_acceptance: float | None = None
    kv_capacity_tokens: float | None = None
    requests: float = 0.0


@dataclass(kw_only=True)
class Totals:
    """Sums over the pods of one side and what they are to be divided by; None until read.

    Newer looks count for more, so that harm that began late is not hidden by a good hour before.
    Each sum has a divisor of its own: a look in which a pod lacks one metric counts for the others.
    """

    ttft: tuple[float, float] | None = None
    itl: tuple[float, float] | None = None
    e2e: tuple[float, float] | None = None
    queue: tuple[float, float] | None = None
    prefill: tuple[float, float] | None = None
    decode: tuple[float, float] | None = None
    prompt_lengths: tuple[float, float] | None = None
    output_lengths: tuple[float, float] | None = None
    preemptions: tuple[float, float] | None = None
    prefix: tuple[float, float] | None = None
    drafts: tuple[float, float] | None = None
    kv_capacity: tuple[float, float] | None = None
    """Tokens that a pod's KV cache holds, summed over pods and looks, and how many those are."""

    def add(self, deltas: Iterable[Delta]) -> None:
        """Add a look at the pods of this side."""
        pods = list(deltas)
        kept = fading(max((d.seconds for d in pods), default=0.0))
        for field in fields(self):
            if (known := getattr(self, field.name)) is not None:
                setattr(self, field.name, (kept * known[0], kept * known[1]))
        for d in pods:
            for name in _HISTOGRAMS:
                self._add(name, _sum_of(getattr(d, name)))
            self._add("preemptions", _ratio(d.preemptions, d.finished))
            self._add("prefix", _ratio(d.prefix_hits, d.prefix_queries))
            self._add("drafts", _ratio(d.accepted_tokens, d.draft_tokens))
            self._add("kv_capacity", _ratio(d.kv_capacity_tokens, 1.0))

    def means(self) -> Means:
        """Divide; a mean of nothing is None."""
        return Means(
            ttft=_mean(self.ttft),
            itl=_mean(self.itl),
            e2e=_mean(self.e2e),
            queue=_mean(self.queue),
            prefill=_mean(self.prefill),
            decode=_mean(self.decode),
            prompt_tokens=_mean(self.prompt_lengths),
            output_tokens=_mean(self.output_lengths),
            preemptions=_mean(self.preemptions),
            prefix_hit_rate=_mean(self.prefix),
            draft_acceptance=_mean(self.drafts),
            kv_capacity_tokens=_mean(self.kv_capacity),
            requests=0.0 if self.e2e is None else self.e2e[1],
        )

    def dump(self) -> str:
        """Write it down."""
        return compact.write(asdict(self), _FORMAT)

    def _add(self, name: str, more: tuple[float, float] | None) -> None:
        if more is not None:
            total, of = getattr(self, name) or (0.0, 0.0)
            setattr(self, name, (total + more[0], of + more[1]))


def load(text: str | None) -> Totals:
    """Read what `Totals.dump` wrote; what another version wrote is forgotten."""
    raw = compact.read(text, _FORMAT)
    if raw is None:
        return Totals()
    return Totals(
        **{name: None if one is None else tuple(one) for name, one in raw.items() if name != "v"}
    )


def _sum_of(histogram: Histogram | None) -> tuple[float, float] | None:
    return None if histogram is None else (histogram.total, histogram.observations)


def _ratio(amount: float | None, of: float | None) -> tuple[float, float] | None:
    return None if amount is None or of is None else (amount, of)


def _mean(pair: tuple[float, float] | None) -> float | None:
    # Less than one is the faded rest of what was long ago.
    return None if pair is None or pair[1] < 1 else pair[0] / pair[1]
