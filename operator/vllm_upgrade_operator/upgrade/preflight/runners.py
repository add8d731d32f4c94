"""Which runner would the candidate have, would it start with it, and is it the one wanted?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.upgrade.exceptions import expired, holding
from vllm_upgrade_operator.upgrade.preflight.answer import (
    not_applicable,
    passed,
    unknown,
    warn,
)
from vllm_upgrade_operator.upgrade.preflight.certainty import block_if_certain, no_version
from vllm_upgrade_operator.upgrade.preflight.versions import first_obstacle
from vllm_upgrade_operator.vllm.facts.obstacles import Kind
from vllm_upgrade_operator.vllm.runner import Runner

if TYPE_CHECKING:
    from vllm_upgrade_operator.upgrade.preflight.answer import Answer
    from vllm_upgrade_operator.upgrade.preflight.subject import Sides, Trial
    from vllm_upgrade_operator.vllm.facts.choice import Prediction

_VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"


def can_run(t: Sides) -> Answer:
    """A runner that lacks what it is asked for ends the start: there is no fallback from force."""
    prediction = t.candidate.prediction
    if prediction is None:
        return no_version(t, "whether its runner has all that it is asked for")
    obstacle = first_obstacle(t, Kind.RUNNER_IMPOSSIBLE)
    if obstacle is None:
        return passed(f"nothing is asked of {prediction.runner} that it is known to lack")
    if t.candidate.runner_is_sure:
        return obstacle
    return unknown(obstacle.reason, f"{obstacle.message}; but {_unsure(prediction)}")


def wanted_runner(t: Trial) -> Answer:
    """A fallback has to be decided beforehand, feature by feature, and for a time."""
    runner, prediction = t.o.spec.runner, t.candidate.prediction
    if runner.expected == "Any":
        return not_applicable("spec.runner.expected is Any")
    if prediction is None:
        return no_version(t, "which runner it would have")
    if prediction.refusal is not None:
        return not_applicable("it would not start at all")
    if prediction.runner == runner.expected:
        # A forced V2 does not start where there is no Triton that works.
        kept = prediction.runner is Runner.V1 and t.candidate.runner_is_sure
        if prediction.certain or kept:
            return passed(f"it would run {prediction.runner}: {prediction.why}")
        return unknown(
            "RunnerUncertain",
            f"it would run {prediction.runner} ({prediction.why}), but {_unsure(prediction)}; its "
            "own log decides, before it gets traffic",
        )
    clause = f"it would run {prediction.runner}, expected {runner.expected}: {prediction.why}"
    if not t.candidate.runner_is_sure:
        return unknown(
            "RunnerUncertain",
            f"{clause}; but {_unsure(prediction)}; its own log decides, before it gets traffic",
        )
    if runner.on_mismatch == "Allow":
        return warn("Fallback", f"{clause}; allowed by spec.runner.onMismatch")
    missing = [f for f in prediction.features if holding(f, runner.exceptions, t.now) is None]
    if prediction.features and not missing:
        return warn("FallbackExcepted", f"{clause}; every feature has an exception")
    if not missing:
        return block_if_certain(
            t,
            "RunnerNotExpected",
            f"{clause}. Set or unset {_VARIABLE} by spec.candidate.env or unsetEnv, or "
            f"expect {prediction.runner}",
        )
    past = [f for f in missing if expired(f, runner.exceptions, t.now)]
    why = (
        f"the exception for {', '.join(past)} has expired: test it again, then move retestAfter on"
        if past
        else "add an exception with reason, owner and retestAfter to spec.runner.exceptions for "
        f"{', '.join(missing)}, or take the feature out"
    )
    return block_if_certain(t, "FallbackNotExcepted", f"{clause}; {why}")


def exceptions(t: Trial) -> Answer:
    """An exception past its day, or that nothing needs, hides the next fallback."""
    given = t.o.spec.runner.exceptions
    if not given:
        return not_applicable("spec.runner.exceptions is empty")
    old = [e.feature for e in given if expired(e.feature, given, t.now)]
    if old:
        return warn(
            "ExceptionExpired",
            f"spec.runner.exceptions: retestAfter has passed for {', '.join(old)}: test whether V2 "
            "has it by now, then take the exception out or move the day on",
        )
    prediction = t.candidate.prediction
    if prediction is not None and prediction.certain:
        used = {f.casefold() for f in prediction.features}
        idle = [e.feature for e in given if e.feature.casefold() not in used]
        if idle:
            return warn(
                "ExceptionNotNeeded",
                f"spec.runner.exceptions: nothing would fall back for {', '.join(idle)}: take it "
                "out, or correct the feature's name to that of vLLM's log",
            )
    return passed("all exceptions hold through their day")


def observed_runner(t: Trial) -> Answer:
    """What the stable pods run, beside what the rules say that they should: facts may be wrong."""
    prediction = t.stable.prediction
    seen = {p.runner.runner for p in t.target.pods if p.runner is not None} - {Runner.UNKNOWN}
    if not seen:
        return unknown(
            "RunnerNotObserved",
            f"which runner the pods of {t.target.name} have is not known: their logs do not say it "
            "(any more)",
        )
    names = " and ".join(sorted(str(r) for r in seen))
    if prediction is None or not prediction.certain:
        return passed(f"the stable pods run {names}, by their own logs")
    if seen != {prediction.runner}:
        return warn(
            "NotAsPredicted",
            f"the stable pods run {names}, and by vLLM's rules they would run {prediction.runner} "
            f"({prediction.why}): what is predicted of the candidate may be wrong in the same way",
        )
    return passed(f"the stable pods run {names}, as vLLM's rules say")


def _unsure(prediction: Prediction) -> str:
    return "; ".join(prediction.unsure[:3])
