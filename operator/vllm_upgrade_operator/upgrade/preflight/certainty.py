"""A fact about a version blocks only where it is sure that it is this version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.upgrade.preflight.answer import block, unknown, warn
from vllm_upgrade_operator.vllm.facts import known

if TYPE_CHECKING:
    from vllm_upgrade_operator.upgrade.preflight.answer import Answer
    from vllm_upgrade_operator.upgrade.preflight.subject import Sides


def block_if_certain(t: Sides, reason: str, message: str) -> Answer:
    """Block where version and facts are certain; else warn, saying what is not."""
    release = t.candidate.release
    if not release.certain:
        return warn(reason, f"if it is what the tag of its image says: {message}")
    if release.version is not None and not known.nearest(release.version).certain:
        nearest = known.nearest(release.version).version
        name = f"{nearest.major}.{nearest.minor}"
        return warn(reason, f"by the facts of {name}, the nearest version known here: {message}")
    return block(reason, message)


def no_version(t: Sides, what: str) -> Answer:
    """Say that something depends on a version which is not known."""
    return unknown(
        "VersionUnknown",
        f"{what} depends on the version of {t.candidate.image}, which is not known",
    )
