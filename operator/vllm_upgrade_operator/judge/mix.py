"""Whether canary and stable pods get the same kind of requests.

A canary that is sent longer prompts is slower and no worse. What metrics can tell is compared:
lengths of prompts and outputs of finished requests, model names, and which LoRA adapters had
requests. What they cannot tell is not seen: tenants, priorities, sampling parameters, how much two
prompts have in common.

Prompts, models and adapters come from the clients. The length of an output does not: a candidate
that overlooks its stop tokens makes longer ones by itself. So a difference in outputs explains
less, and shorter ones, as of a candidate that cuts its answers off, never explain harm; they make
what passes because of them worthless (`flatters`). Errors are never explained.
"""

from __future__ import annotations

import re
from collections import Counter
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from zlib import crc32

from vllm_upgrade_operator.api.checks import LATENCIES
from vllm_upgrade_operator.api.spec import Metric
from vllm_upgrade_operator.judge import compact
from vllm_upgrade_operator.judge.paired import WINDOW_SECONDS, Difference, Pair, Side, fading
from vllm_upgrade_operator.judge.words import percent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from vllm_upgrade_operator.judge.counters import Delta, Histogram
    from vllm_upgrade_operator.judge.model import Look
    from vllm_upgrade_operator.judge.paired import Cells

LONGER = 1.3
"""From this ratio of means on, lengths differ in earnest."""
OTHER_MODELS = 0.15
"""From this share of requests on that would have to be of another model (total variation)."""
OTHER_ADAPTERS = 0.3
"""From this difference on in the share of looks in which an adapter had requests."""
SIGMAS = 4.0
"""Standard errors that a difference must have: they come of a handful of pods and looks."""

_POD_SPREAD = 0.05
_FEWEST_REQUESTS = 50.0
_FEWEST_LOOKS = 12.0
_NAMES = 4
# A name comes from the pod: one of another form gets into no status and no message.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@+-]{0,63}")
_FORMAT = 1
_LONGEST_SENTENCE = 300


class Kind(StrEnum):
    """What is different about the canary's requests."""

    LONGER_PROMPTS = "LongerPrompts"
    SHORTER_PROMPTS = "ShorterPrompts"
    LONGER_OUTPUTS = "LongerOutputs"
    SHORTER_OUTPUTS = "ShorterOutputs"
    OTHER_MODELS = "OtherModels"
    OTHER_ADAPTERS = "OtherAdapters"


_LOADED = LATENCIES | {Metric.QUEUE_DEPTH, Metric.KV_CACHE_USAGE, Metric.PREEMPTIONS}
_OF_OUTPUTS = frozenset(
    {Metric.END_TO_END_LATENCY, Metric.QUEUE_DEPTH, Metric.KV_CACHE_USAGE, Metric.PREEMPTIONS}
)
_EXPLAINED: dict[Kind, frozenset[Metric]] = {
    # Rejections too, where they are for prompt tokens: see `explains`. A step that prefills takes
    # longer, and the tokens of other requests wait for it.
    Kind.LONGER_PROMPTS: _LOADED,
    Kind.LONGER_OUTPUTS: _OF_OUTPUTS,
    Kind.OTHER_MODELS: LATENCIES,
    Kind.OTHER_ADAPTERS: LATENCIES,
}
_FLATTERED: dict[Kind, frozenset[Metric]] = {
    Kind.SHORTER_PROMPTS: _LOADED,
    Kind.SHORTER_OUTPUTS: _OF_OUTPUTS,
    Kind.OTHER_MODELS: LATENCIES,
    Kind.OTHER_ADAPTERS: LATENCIES,
}


@dataclass(frozen=True, slots=True)
class MixDifference:
    """One way in which the canary's requests are different.

    Attributes:
        kind: Which.
        canary: Mean tokens, or a share of requests or looks, on the canary.
        stable: The same on stable pods.
        sigmas: How far that is from chance, in standard errors; always positive.
        words: Both values in a clause.
    """

    kind: Kind
    canary: float
    stable: float
    sigmas: float
    words: str


@dataclass(frozen=True, slots=True)
class MixFinding:
    """The canary's requests are not like the stable pods'.

    Attributes:
        differences: One or more, in the order of `Kind`.
        rejected_for_tokens: Whether most of the canary's rejections are those of the limit on
            queued prompt tokens, which longer prompts reach sooner.
        sentence: For a person, at most 300 characters.
    """

    differences: tuple[MixDifference, ...]
    rejected_for_tokens: bool
    sentence: str


@dataclass
class Mix:
    """What is kept from look to look.

    Attributes:
        prompts: Prompt tokens per finished request.
        outputs: Generated tokens per finished request.
        models: By model name, its share of the finished requests; under no name every request is
            counted as of none: with that a name begins that comes up later.
        adapters: By name, the share of looks in which it had requests; no name as with models.
        rejected: The canary's rejections in the window.
        rejected_for_tokens: Those for prompt tokens.
    """

    prompts: Pair = field(default_factory=Pair)
    outputs: Pair = field(default_factory=Pair)
    models: dict[str, Pair] = field(default_factory=lambda: {"": Pair()})
    adapters: dict[str, Pair] = field(default_factory=lambda: {"": Pair()})
    rejected: float = 0.0
    rejected_for_tokens: float = 0.0

    def add(self, look: Look) -> None:
        """Take a look into account; pods that lack a metric do not count for it."""
        deltas = [*look.canary.values(), *look.stable.values()]
        if not deltas:
            return
        seconds = max(d.seconds for d in deltas)
        self.prompts.add(*_cells(look, lambda d: _length(d.prompt_lengths)), seconds)
        self.outputs.add(*_cells(look, lambda d: _length(d.output_lengths)), seconds)
        _follow(self.models, look, seconds, _requests_by_model)
        _follow(self.adapters, look, seconds, _active_adapters)
        kept = fading(seconds)
        self.rejected = kept * self.rejected + _sum(look, "rejected")
        tokens = _sum(look, "rejected_for_tokens")
        self.rejected_for_tokens = kept * self.rejected_for_tokens + tokens

    def record(self) -> dict[str, Any]:
        """Give what is known of both sides as plain values; None where a side had no requests.

        Lengths are mean tokens per finished request, the rest are shares: of finished requests by
        model, of looks by adapter.
        """
        return {
            "prompt_tokens": _both(self.prompts),
            "output_tokens": _both(self.outputs),
            "models": {name: _both(pair) for name, pair in self.models.items() if name},
            "adapters": {name: _both(pair) for name, pair in self.adapters.items() if name},
        }

    def dump(self) -> str:
        """Write it down, in a few kilobytes at most."""
        return compact.write(
            {
                "p": _written(self.prompts),
                "o": _written(self.outputs),
                "m": {name: _written(pair) for name, pair in self.models.items()},
                "a": {name: _written(pair) for name, pair in self.adapters.items()},
                "r": [self.rejected, self.rejected_for_tokens],
            },
            _FORMAT,
        )


def load(text: str | None) -> Mix:
    """Read what `Mix.dump` wrote; what another version wrote is forgotten."""
    raw = compact.read(text, _FORMAT)
    if raw is None:
        return Mix()
    return Mix(
        prompts=_pair(raw["p"]),
        outputs=_pair(raw["o"]),
        models={name: _pair(one) for name, one in raw["m"].items()},
        adapters={name: _pair(one) for name, one in raw["a"].items()},
        rejected=raw["r"][0],
        rejected_for_tokens=raw["r"][1],
    )


def compare(mix: Mix) -> MixFinding | None:
    """Say how the canary's requests differ, in earnest and clearly beyond chance.

    Returns:
        None where they do not, or where there are too few to tell: six looks of one pod, 50
        requests on either side (for adapters, 12 looks).
    """
    found = [
        *_lengths(mix.prompts, "prompts", Kind.LONGER_PROMPTS, Kind.SHORTER_PROMPTS),
        *_lengths(mix.outputs, "outputs", Kind.LONGER_OUTPUTS, Kind.SHORTER_OUTPUTS),
        *_models(mix.models),
        *_adapters(mix.adapters),
    ]
    if not found:
        return None
    minutes = WINDOW_SECONDS / 60
    sentence = f"the canary gets other requests than stable pods, in the last {minutes:.0f} min: "
    sentence += "; ".join(d.words for d in found)
    return MixFinding(
        differences=tuple(found),
        rejected_for_tokens=2 * mix.rejected_for_tokens > mix.rejected,
        sentence=sentence[:_LONGEST_SENTENCE],
    )


def explains(finding: MixFinding, metric: Metric) -> bool:
    """Whether the difference alone could make the canary look worse in a metric."""
    kinds = {d.kind for d in finding.differences}
    if metric is Metric.REJECTIONS:
        return Kind.LONGER_PROMPTS in kinds and finding.rejected_for_tokens
    return any(metric in _EXPLAINED.get(kind, ()) for kind in kinds)


def flatters(finding: MixFinding, metric: Metric) -> bool:
    """Whether the difference alone could make the canary look fine in a metric."""
    return any(metric in _FLATTERED.get(d.kind, ()) for d in finding.differences)


def _lengths(pair: Pair, what: str, longer: Kind, shorter: Kind) -> list[MixDifference]:
    found = pair.ratio(_FEWEST_REQUESTS, _POD_SPREAD)
    if found is None or abs(found.sigmas) < SIGMAS:
        return []
    if not 1 / LONGER < found.canary / found.stable < LONGER:
        kind = longer if found.canary > found.stable else shorter
        words = f"{what} of {found.canary:.0f} tokens on average against {found.stable:.0f}"
        return [_difference(kind, found, words)]
    return []


def _models(models: Mapping[str, Pair]) -> list[MixDifference]:
    """Compare shares of model names.

    Where each side knows one name only, and not the other's, a name was changed and not the mix.
    """
    shares = _shares(models, _FEWEST_REQUESTS)
    shared = any(d.canary > 0 and d.stable > 0 for d in shares.values())
    if not shared:
        return []
    # Of names that are not followed the share is what the others leave.
    rest = sum(d.canary for d in shares.values()) - sum(d.stable for d in shares.values())
    apart = (sum(abs(d.canary - d.stable) for d in shares.values()) + abs(rest)) / 2
    name, most = _farthest(shares)
    if apart < OTHER_MODELS or abs(most.sigmas) < SIGMAS:
        return []
    words = (
        f"{percent(apart)} of them for other models, such as {name} with {percent(most.canary)} "
        f"against {percent(most.stable)}"
    )
    return [_difference(Kind.OTHER_MODELS, most, words)]


def _adapters(adapters: Mapping[str, Pair]) -> list[MixDifference]:
    shares = _shares(adapters, _FEWEST_LOOKS)
    if not shares:
        return []
    name, most = _farthest(shares)
    if abs(most.canary - most.stable) < OTHER_ADAPTERS or abs(most.sigmas) < SIGMAS:
        return []
    words = (
        f"LoRA adapter {name} in use in {percent(most.canary)} of looks "
        f"against {percent(most.stable)}"
    )
    return [_difference(Kind.OTHER_ADAPTERS, most, words)]


def _shares(pairs: Mapping[str, Pair], fewest: float) -> dict[str, Difference]:
    found = {name: pair.share(fewest, _POD_SPREAD) for name, pair in pairs.items() if name}
    return {name: one for name, one in found.items() if one is not None}


def _farthest(shares: Mapping[str, Difference]) -> tuple[str, Difference]:
    """Give the name that differs most; of two that do alike, the one the canary has more of."""

    def distance(item: tuple[str, Difference]) -> tuple[float, float]:
        more = item[1].canary - item[1].stable
        return round(abs(more), 6), more

    return max(shares.items(), key=distance)


def _difference(kind: Kind, found: Difference, words: str) -> MixDifference:
    return MixDifference(kind, found.canary, found.stable, abs(found.sigmas), words)


def _cells(look: Look, read: Callable[[Delta], tuple[float, float] | None]) -> tuple[Cells, Cells]:
    sides = []
    for pods in (look.canary, look.stable):
        values = {name: read(delta) for name, delta in pods.items()}
        sides.append({name: value for name, value in values.items() if value is not None})
    return sides[0], sides[1]


def _length(histogram: Histogram | None) -> tuple[float, float] | None:
    return None if histogram is None else (histogram.observations, histogram.total)


def _follow(
    pairs: dict[str, Pair],
    look: Look,
    seconds: float,
    read: Callable[[Delta], tuple[float, Mapping[str, float]] | None],
) -> None:
    """Add a look to the shares of names; the most frequent names are followed, and few of them."""
    seen = {
        side: {name: found for name, d in pods.items() if (found := read(d)) is not None}
        for side, pods in (("canary", look.canary), ("stable", look.stable))
    }
    counts: Counter[str] = Counter()
    for pods in seen.values():
        for _, by_name in pods.values():
            counts.update({_shown(name): n for name, n in by_name.items() if n and name})
    for name, _ in counts.most_common():
        if name not in pairs and len(pairs) <= _NAMES:
            pairs[name] = deepcopy(pairs[""])
    for name, pair in pairs.items():
        canary, stable = (
            {pod: (of, _of(by_name, name)) for pod, (of, by_name) in pods.items()}
            for pods in seen.values()
        )
        pair.add(canary, stable, seconds)


def _of(by_name: Mapping[str, float], name: str) -> float:
    return sum(n for other, n in by_name.items() if other and _shown(other) == name)


def _shown(name: str) -> str:
    """Give a name, or a number for one that is too long or holds other characters."""
    return name if _NAME.fullmatch(name) else f"#{crc32(name.encode()):x}"


def _requests_by_model(delta: Delta) -> tuple[float, Mapping[str, float]] | None:
    counts = delta.finished_by_model
    return None if counts is None else (sum(counts.values()), counts)


def _active_adapters(delta: Delta) -> tuple[float, Mapping[str, float]] | None:
    """One for each adapter that had requests, out of one look."""
    return None if delta.adapters is None else (1.0, dict.fromkeys(delta.adapters, 1.0))


def _sum(look: Look, name: str) -> float:
    return sum(getattr(d, name) or 0.0 for d in look.canary.values())


def _both(pair: Pair) -> dict[str, float | None]:
    return {
        name: side.mean if side.n > 0 else None
        for name, side in (("canary", pair.canary), ("stable", pair.stable))
    }


def _written(pair: Pair) -> list[object]:
    return [
        list(asdict(pair.canary).values()),
        list(asdict(pair.stable).values()),
        {key: list(one) for key, one in pair.pods.items()},
        pair.canaries,
    ]


def _pair(raw: Sequence[Any]) -> Pair:
    canary, stable, pods, canaries = raw
    return Pair(Side(*canary), Side(*stable), {k: (n, s) for k, (n, s) in pods.items()}, canaries)
