"""Names that the operator gives to things in the cluster."""

from __future__ import annotations

DOMAIN = "vllmupgrade.dev"
FIELD_MANAGER = "vllm-upgrade-operator"
FINALIZER = f"{DOMAIN}/finalizer"

# Labels on pods.
ACTIVE_RUNNER = f"{DOMAIN}/active-runner"
ROLE = f"{DOMAIN}/role"
VERSION = f"{DOMAIN}/version"
CANARY = f"{DOMAIN}/canary"
"""The canary Deployment's own selector key; its value is the upgrade's UID."""
UPGRADE = f"{DOMAIN}/upgrade"
"""On the ControllerRevisions: the upgrade that they belong to."""

# Annotations.
RUNNER_EVIDENCE = f"{DOMAIN}/runner-evidence"
ADMITTED_AT = f"{DOMAIN}/admitted-at"
ATTEMPT = f"{DOMAIN}/attempt"
APPROVE = f"{DOMAIN}/approve"
APPROVED_BY = f"{DOMAIN}/approved-by"

ROLE_STABLE = "stable"
ROLE_CANARY = "canary"


def canary_name(target: str) -> str:
    """Name of the canary Deployment of a target."""
    return f"{target}-canary"


def known_good_name(upgrade: str) -> str:
    """Name of the ControllerRevision with the known-good configuration."""
    return f"{upgrade}-known-good"


def candidate_name(upgrade: str) -> str:
    """Name of the ControllerRevision with the candidate's template."""
    return f"{upgrade}-candidate"
