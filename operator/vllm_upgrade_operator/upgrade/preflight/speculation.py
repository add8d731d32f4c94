"""Speculative decoding: does the version have the method, and how does it verify drafts?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.upgrade.preflight.answer import (
    block,
    not_applicable,
    passed,
    unknown,
)
from vllm_upgrade_operator.upgrade.preflight.certainty import block_if_certain, no_version
from vllm_upgrade_operator.vllm.facts.speculation import (
    LOSSY,
    adaptive_excludes,
    methods,
    rejection_methods,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from vllm_upgrade_operator.upgrade.preflight.answer import Answer
    from vllm_upgrade_operator.upgrade.preflight.subject import Trial
    from vllm_upgrade_operator.vllm.facts.setup import Setup

_NONE = "no speculative decoding"


def method(t: Trial) -> Answer:
    """A method that the version does not have (any more) ends the start."""
    setup, settings = _settings(t)
    if setup is None:
        return no_version(t, "which methods of speculative decoding it has")
    if settings is None:
        return _unread()
    name = settings.get("method")
    if not settings:
        return not_applicable(_NONE)
    if name is None:
        return unknown(
            "MethodUnknown",
            "--speculative-config names no method: vLLM takes it from the draft model",
        )
    have = methods(setup.version)
    if str(name) not in have:
        return block_if_certain(
            t,
            "SpeculativeMethodGone",
            f"vLLM {t.candidate.release.text} does not have the speculative method {name!r}, so it "
            f"would not start: choose one of {', '.join(sorted(have)[:12])}, or serve without",
        )
    return passed(f"vLLM {t.candidate.release.text} has the speculative method {name!r}")


def verification(t: Trial) -> Answer:
    """A lossy verification changes what the model says: a person has to approve of that."""
    setup, settings = _settings(t)
    if setup is None:
        return no_version(t, "how it verifies drafts")
    if settings is None:
        return _unread()
    if not settings:
        return not_applicable(_NONE)
    how = str(settings.get("rejection_sample_method", "standard"))
    have = rejection_methods(setup.version)
    if how not in have:
        return block_if_certain(
            t,
            "VerificationUnknown",
            f"vLLM {t.candidate.release.text} does not know rejection_sample_method {how!r}, so it "
            f"would not start: choose one of {', '.join(sorted(have))}",
        )
    if how not in LOSSY:
        return passed(f"drafts are verified by {how!r}, which does not change the answers")
    before = (t.stable.options.settings("speculative-config") or {}).get("rejection_sample_method")
    if before == how:
        return passed(f"drafts are verified by {how!r}, as by the stable pods")
    strategy = t.o.spec.strategy
    if strategy.promotion == "Manual" or any(s.approval for s in strategy.steps):
        return passed(
            f"drafts are verified by {how!r}, which is lossy; a person decides before all pods "
            "have it: compare the answers' quality first"
        )
    return block(
        "LossyVerification",
        f"rejection_sample_method {how!r} is lossy: answers get worse, which no check here sees. "
        "Let a person who has compared their quality decide: set approval: true on a step, or "
        "spec.strategy.promotion: Manual",
    )


def adaptive_verification(t: Trial) -> Answer:
    """Adaptive verification goes with some settings only; with others the start ends."""
    setup, settings = _settings(t)
    if setup is None:
        return no_version(t, "what adaptive verification goes with")
    if settings is None:
        return _unread()
    if not settings.get("enable_adaptive_verification"):
        return not_applicable("no adaptive verification")
    excluded = adaptive_excludes(setup)
    if excluded:
        return block_if_certain(
            t,
            "AdaptiveVerificationExcluded",
            f"enable_adaptive_verification does not go with {', '.join(excluded)} in vLLM "
            f"{t.candidate.release.text}: take one of them out",
        )
    return passed("nothing is set that adaptive verification excludes")


def _settings(t: Trial) -> tuple[Setup | None, Mapping[str, Any] | None]:
    setup = t.candidate.setup
    return setup, None if setup is None else setup.speculative()


def _unread() -> Answer:
    return unknown("SpeculationUnread", "--speculative-config cannot be read here")
