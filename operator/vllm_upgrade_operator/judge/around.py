"""What is kept of the two sides beside the checks: their requests, caches and where time goes.

It decides no check by itself: it says which results mean nothing because the canary's requests are
others, which latencies are not judged yet because a cache is cold, and where a slow canary's time
goes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vllm_upgrade_operator.api.checks import LATENCIES
from vllm_upgrade_operator.judge import means, mix, prefix_cache
from vllm_upgrade_operator.judge.attribution import attribute
from vllm_upgrade_operator.judge.model import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_upgrade_operator.api.spec import Metric
    from vllm_upgrade_operator.judge.means import Totals
    from vllm_upgrade_operator.judge.mix import Mix, MixFinding
    from vllm_upgrade_operator.judge.model import CheckResult, Look
    from vllm_upgrade_operator.judge.prefix_cache import Caches

# A check's name has no dot, so these are no check's evidence.
_MIX = "around.mix"
_CACHES = "around.caches"
_CANARY = "around.canary"
_STABLE = "around.stable"


@dataclass(frozen=True, slots=True)
class Around:
    """What is known around one look, with that look taken in.

    Attributes:
        mix: The requests of both sides.
        caches: Their prefix caches.
        canary: Where the canary's time goes.
        stable: Where the stable pods' goes.
        cold: By canary pod whose latencies do not count yet: why.
    """

    mix: Mix
    caches: Caches
    canary: Totals
    stable: Totals
    cold: Mapping[str, str]

    def dump(self) -> dict[str, str]:
        """Write it down, beside the evidence of the checks."""
        return {
            _MIX: self.mix.dump(),
            _CACHES: self.caches.dump(),
            _CANARY: self.canary.dump(),
            _STABLE: self.stable.dump(),
        }

    def warm(self, look: Look, metric: Metric) -> Look:
        """Leave out of a look the pods that a metric says nothing of yet."""
        if metric not in LATENCIES or not self.cold:
            return look
        return replace(look, canary={n: d for n, d in look.canary.items() if n not in self.cold})

    def chill(self, look: Look, metric: Metric) -> str | None:
        """Say why there is no pod left to judge a metric by; None where there is one."""
        if metric not in LATENCIES or self.warm(look, metric).canary:
            return None
        return next(iter(self.cold.values()), None)

    def comment(self, result: CheckResult, metric: Metric, *, flagrant: bool) -> CheckResult:
        """Correct and complete what a check says.

        Args:
            result: Of the check.
            metric: Its metric.
            flagrant: Whether it is too bad for other requests to explain it.
        """
        found = mix.compare(self.mix)
        if found is not None:
            result = _fair(result, metric, found, flagrant=flagrant)
        suspicious = result.doubtful and not result.missing
        if metric in LATENCIES and (result.verdict is Verdict.HARM or suspicious):
            why = attribute(self.canary.means(), self.stable.means(), metric).sentence
            result = replace(result, reason=f"{result.reason}; {why}")
        return result


def take(look: Look, evidence: Mapping[str, str]) -> Around:
    """Take a look in.

    Args:
        look: With the pods that still warm up.
        evidence: What was kept.
    """
    caches = prefix_cache.load(evidence.get(_CACHES))
    caches.add(replace(look, canary={**look.warming, **look.canary}))
    kept = mix.load(evidence.get(_MIX))
    canary, stable = means.load(evidence.get(_CANARY)), means.load(evidence.get(_STABLE))
    if look.canary:
        kept.add(look)
        canary.add(look.canary.values())
        stable.add(look.stable.values())
    cold = {
        pod: why
        for pod in look.canary
        if pod in look.admitted
        and (why := prefix_cache.cold(caches, pod, look.admitted[pod])) is not None
    }
    return Around(kept, caches, canary, stable, cold)


def _fair(result: CheckResult, metric: Metric, found: MixFinding, *, flagrant: bool) -> CheckResult:
    harmful = result.verdict is Verdict.HARM and not flagrant and mix.explains(found, metric)
    flattered = result.verdict is Verdict.PASS and mix.flatters(found, metric)
    if not harmful and not flattered:
        return result
    reason = f"TrafficMixDiffers: {found.sentence}; {result.reason}"
    return replace(result, verdict=Verdict.HOLD, reason=reason)
