"""ConfigMaps and Secrets that the candidate's template refers to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.upgrade.preflight.answer import (
    block,
    not_applicable,
    passed,
    unknown,
)
from vllm_upgrade_operator.upgrade.surroundings import Unread

if TYPE_CHECKING:
    from vllm_upgrade_operator.upgrade.preflight.answer import Answer
    from vllm_upgrade_operator.upgrade.preflight.subject import Trial


def references(t: Trial) -> Answer:
    """They have to exist; their resourceVersions are recorded with known-good."""
    found = t.surroundings.references
    if isinstance(found, Unread):
        return unknown("ReferencesUnread", found.why)
    missing = [f"{r.kind} {r.name}" for r in found if r.resource_version is None and not r.optional]
    if missing:
        return block(
            "ReferenceNotFound",
            f"{', '.join(missing)}, which the candidate's template refers to, does not exist in "
            f"namespace {t.o.namespace}, so its pods could not start: create it, or mark the "
            "reference as optional",
        )
    if not found:
        return not_applicable("the candidate's template refers to no ConfigMap and no Secret")
    names = ", ".join(f"{r.kind} {r.name}" for r in found)
    return passed(
        f"{names}: recorded with known-good by resourceVersion; a rollback of the template does "
        "not bring their content back"
    )
