"""How a pod's runner was found out, as an annotation on it: for people, and for a restart.

A log may be rotated while a pod lives. So the annotation names the container start that it is
about; for the same start it is as good as the log was.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from vllm_upgrade_operator.upgrade.names import RUNNER_EVIDENCE
from vllm_upgrade_operator.upgrade.times import rfc3339, seconds
from vllm_upgrade_operator.vllm.runner import Runner, RunnerEvidence, Source

if TYPE_CHECKING:
    from vllm_upgrade_operator.upgrade.observation import Pod

_HOW_LIMIT = 512
# One more than `spec.runner.exceptions` can name: a list that was cut is never all excepted.
_FEATURES_LIMIT = 33


def annotation(pod: Pod) -> str | None:
    """Write down what is known of a pod's runner; None where nothing was read."""
    if pod.runner is None or pod.started_at is None:
        return None
    text: dict[str, object] = {
        "runner": str(pod.runner.runner),
        "how": pod.runner.how[:_HOW_LIMIT],
        "source": str(pod.runner.source),
        "containerStarted": rfc3339(pod.started_at),
    }
    if pod.runner.seen_at is not None:
        text["observed"] = rfc3339(pod.runner.seen_at)
    if pod.runner.fallback_features:
        text["fallbackFeatures"] = list(pod.runner.fallback_features[:_FEATURES_LIMIT])
    return json.dumps(text)


def recalled(pod: Pod) -> RunnerEvidence | None:
    """Read it back, where it is about the container process that runs now."""
    text = pod.annotations.get(RUNNER_EVIDENCE)
    if text is None or pod.started_at is None:
        return None
    try:
        read = json.loads(text)
        if read["containerStarted"] != rfc3339(pod.started_at):
            return None
        runner = Runner(read["runner"])
        features = tuple(str(f) for f in read.get("fallbackFeatures", ()))
        how = str(read["how"])
        source = Source(read.get("source", Source.LOG))
        observed = read.get("observed")
        seen_at = None if observed is None else seconds(str(observed))
    except (ValueError, KeyError, TypeError, AttributeError):
        # Somebody else wrote it: then it says nothing.
        return None
    if runner is Runner.UNKNOWN:
        return None
    return RunnerEvidence(
        runner=runner, how=how, fallback_features=features, source=source, seen_at=seen_at
    )
