"""Would the answers get worse in a way that no check sees?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.upgrade.preflight.answer import (
    block,
    not_applicable,
    passed,
    unknown,
)
from vllm_upgrade_operator.upgrade.preflight.certainty import no_version
from vllm_upgrade_operator.vllm.facts.verification import is_lossy

if TYPE_CHECKING:
    from vllm_upgrade_operator.upgrade.preflight.answer import Answer
    from vllm_upgrade_operator.upgrade.preflight.subject import Trial


def lossy_verification(t: Trial) -> Answer:
    """Lossy verification of drafts (FLy) needs a person who approves of the answers' quality."""
    setup = t.candidate.setup
    if setup is None:
        return no_version(t, "how it verifies drafts")
    lossy = is_lossy(setup)
    if lossy is None:
        return unknown("SpeculationUnread", "--speculative-config cannot be read here")
    if not lossy:
        return not_applicable("no lossy verification of drafts")
    if t.stable.setup is not None and is_lossy(t.stable.setup):
        return passed("drafts are verified by FLy, as by the stable pods")
    strategy = t.o.spec.strategy
    if strategy.promotion == "Manual" or any(step.approval for step in strategy.steps):
        return passed(
            "drafts are verified by FLy, which is lossy; a person decides before all pods have it: "
            "compare the answers' quality first"
        )
    return block(
        "LossyVerification",
        "drafts would be verified by FLy, which is lossy: answers get worse, and no check here "
        "sees it. Let a person decide who has compared their quality: set approval: true on a "
        "step, or spec.strategy.promotion: Manual",
    )
