"""Whether a canary pod's prefix cache is still being filled.

A pod that has just come into the traffic computes prompts that stable pods find in their caches.
Its latencies say nothing of the candidate until its hit rate has come near theirs: for five
minutes at most, since a candidate whose cache never gets warm is a slower one. Rejections and
errors are judged from the start.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING
from zlib import crc32

from vllm_upgrade_operator.judge import compact
from vllm_upgrade_operator.judge.paired import fading
from vllm_upgrade_operator.judge.words import percent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm_upgrade_operator.judge.counters import Delta
    from vllm_upgrade_operator.judge.model import Look

WARM = 0.8
"""Share of the stable pods' hit rate from which on a cache is warm."""
PATIENCE_SECONDS = 300.0
"""How long after its admission a pod may be called cold."""

_ENOUGH_TOKENS = 1000.0
# Where stable pods find fewer than these in their caches, a cold one makes no difference.
_LEAST_RATE = 0.05
# A cache fills up in a minute or two: what it did before that is not what it does.
_FASTER = 20.0
_FORMAT = 1


@dataclass
class Cache:
    """What was looked for in prefix caches, newer looks counting for more.

    Attributes:
        queries: Prompt tokens looked for.
        hits: Those found.
        warm: Whether it was seen to be warm once: it is not called cold again.
    """

    queries: float = 0.0
    hits: float = 0.0
    warm: bool = False

    @property
    def rate(self) -> float | None:
        """The share found; None where too few were looked for."""
        return self.hits / self.queries if self.queries >= _ENOUGH_TOKENS else None

    def add(self, deltas: Iterable[Delta], kept: float) -> None:
        """Add a look; what was known before counts by the factor `kept`."""
        self.queries, self.hits = kept * self.queries, kept * self.hits
        for delta in deltas:
            if delta.prefix_queries is not None and delta.prefix_hits is not None:
                self.queries += delta.prefix_queries
                self.hits += delta.prefix_hits


@dataclass
class Caches:
    """What is kept from look to look.

    Attributes:
        stable: Of all stable pods together, over about ten minutes.
        canary: Of single canary pods, over about half a minute, by a short form of their name.
    """

    stable: Cache = field(default_factory=Cache)
    canary: dict[str, Cache] = field(default_factory=dict)

    def add(self, look: Look) -> None:
        """Take a look into account.

        Canary pods should be in it from their admission on, though they are not judged yet. One
        that is not in it is forgotten, unless no canary pod is.
        """
        self.stable.add(look.stable.values(), _kept(look.stable.values()))
        present = {_key(name): delta for name, delta in look.canary.items()}
        if present:
            self.canary = {key: self.canary.get(key, Cache()) for key in present}
        for key, delta in present.items():
            cache = self.canary[key]
            cache.add([delta], fading(delta.seconds * _FASTER))
            cache.warm = cache.warm or not _behind(cache, self.stable, unknown=True)

    def dump(self) -> str:
        """Write it down."""
        return compact.write(
            {
                "s": list(asdict(self.stable).values()),
                "c": {key: list(asdict(cache).values()) for key, cache in self.canary.items()},
            },
            _FORMAT,
        )


def load(text: str | None) -> Caches:
    """Read what `Caches.dump` wrote; what another version wrote is forgotten."""
    raw = compact.read(text, _FORMAT)
    if raw is None:
        return Caches()
    return Caches(Cache(*raw["s"]), {key: Cache(*one) for key, one in raw["c"].items()})


def cold(caches: Caches, pod: str, admitted_seconds: float) -> str | None:
    """Say why a canary pod's latencies are not judged yet; None where they are.

    Args:
        caches: With the present look added.
        pod: Name of the canary pod.
        admitted_seconds: How long it has been in the traffic.
    """
    cache = caches.canary.get(_key(pod))
    if cache is None or cache.warm or admitted_seconds > PATIENCE_SECONDS:
        return None
    if not _behind(cache, caches.stable, unknown=False):
        return None
    return (
        f"the prefix cache of {pod} is still cold: it finds {percent(cache.rate)} of prompt "
        f"tokens, stable pods {percent(caches.stable.rate)}; latencies are judged once it finds "
        f"{percent(WARM)} of that, or {PATIENCE_SECONDS / 60:.0f} min after its admission"
    )


def _behind(cache: Cache, stable: Cache, *, unknown: bool) -> bool:
    """Whether a cache finds clearly less than stable ones; `unknown` where that cannot be told."""
    if cache.rate is None or stable.rate is None:
        return unknown
    return stable.rate >= _LEAST_RATE and cache.rate < WARM * stable.rate


def _kept(deltas: Iterable[Delta]) -> float:
    return fading(max((d.seconds for d in deltas), default=0.0))


def _key(name: str) -> str:
    return f"{crc32(name.encode()):x}"
