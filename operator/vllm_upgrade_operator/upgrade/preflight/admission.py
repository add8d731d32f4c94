"""Is the queue bounded, and does the version know the limits that are set?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.upgrade.preflight.answer import passed, unknown, warn
from vllm_upgrade_operator.upgrade.preflight.certainty import block_if_certain, no_version
from vllm_upgrade_operator.vllm.facts.releases import ADMISSION_FLAGS, facts_for
from vllm_upgrade_operator.vllm.versions import AdmissionControl

if TYPE_CHECKING:
    from vllm_upgrade_operator.upgrade.preflight.answer import Answer
    from vllm_upgrade_operator.upgrade.preflight.subject import Sides

_REQUESTS, _TOKENS = ADMISSION_FLAGS


def limits(t: Sides) -> Answer:
    """Without a limit requests wait without end, and a limit of 0 refuses all."""
    release, options = t.candidate.release, t.candidate.options
    if release.version is None:
        return no_version(t, "whether it has admission control")
    facts = facts_for(release.version)
    given = [f for f in ADMISSION_FLAGS if f in options.given or f in options.unknown]
    if facts.admission is AdmissionControl.NONE:
        ignored = f"; it does not know --{' and --'.join(given)}" if given else ""
        return warn(
            "NoAdmissionControl",
            f"vLLM {release.text} has no admission control: its queue is unbounded{ignored}; "
            "0.29 and newer have --max-num-queued-reqs",
        )
    if not given:
        if options.unread:
            why = "; ".join(options.unread)
            return unknown("AdmissionUnread", f"whether a limit is set cannot be read: {why}")
        return warn(
            "QueueUnbounded",
            "neither --max-num-queued-reqs nor --max-num-queued-tokens is set: under too much "
            "load requests wait without end; set one by spec.candidate.args",
        )
    unread = [f for f in given if options.is_unread(f)]
    if unread:
        return unknown("AdmissionUnread", f"the value of --{unread[0]} cannot be read here")
    for flag in given:
        if options.number(flag) == 0:
            return block_if_certain(
                t, "AllRejected", f"--{flag} is 0: every request would be rejected; raise it"
            )
    said = ", ".join(f"--{f} {options.text(f)}" for f in given)
    most, batch = options.number(_REQUESTS), options.number("max-num-seqs")
    if most is not None and batch is not None and most < batch:
        return warn(
            "LimitBelowBatch",
            f"--{_REQUESTS} {most} counts running requests too, and --max-num-seqs is {batch}: no "
            f"batch can be full; set it to more than {batch}",
        )
    servers = options.number("api-server-count") or 1
    if servers > 1 and facts.admission is AdmissionControl.APPROXIMATE:
        return warn(
            "LimitPerServer",
            f"{said}: in vLLM {release.text} each of its {servers} API servers counts for itself, "
            f"so {servers} times as much is let in; 0.32 and newer count together",
        )
    return passed(f"{said}; what is refused gets {facts.rejection}")
