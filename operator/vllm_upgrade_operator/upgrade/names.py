"""Names that the operator gives to things in the cluster."""

from __future__ import annotations

import hashlib

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
RELEASED_AT = f"{DOMAIN}/released-at"
"""On a canary pod that was given up for a pod of the target that found no room."""
POD_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
"""Kubernetes' own: of equally ready pods, a ReplicaSet that shrinks deletes the cheapest first."""
ATTEMPT = f"{DOMAIN}/attempt"
INHERITED_FROM = f"{DOMAIN}/inherited-from"
"""On a known-good ControllerRevision: the upgrade that recorded it."""
APPROVE = f"{DOMAIN}/approve"
PROMOTE = f"{DOMAIN}/promote"
ABORT = f"{DOMAIN}/abort"
RETRY = f"{DOMAIN}/retry"
APPROVED_BY = f"{DOMAIN}/approved-by"

ROLE_STABLE = "stable"
ROLE_CANARY = "canary"

# Of an object, as the API server allows it (a DNS subdomain).
_NAME_LIMIT = 253


def canary_name(target: str) -> str:
    """Name of the canary Deployment of a target."""
    return _suffixed(target, "-canary")


def known_good_name(upgrade: str) -> str:
    """Name of the ControllerRevision with the known-good configuration."""
    return _suffixed(upgrade, "-known-good")


def candidate_name(upgrade: str) -> str:
    """Name of the ControllerRevision with the candidate's template."""
    return _suffixed(upgrade, "-candidate")


def spare_name(upgrade: str) -> str:
    """Name of a copy of known-good, while another upgrade's makes room for this one's."""
    return _suffixed(upgrade, "-known-good-spare")


def _suffixed(name: str, suffix: str) -> str:
    """Add a suffix; a name that would become too long is cut, and a hash keeps it apart."""
    if len(name) + len(suffix) <= _NAME_LIMIT:
        return name + suffix
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    kept = name[: _NAME_LIMIT - len(suffix) - len(digest) - 1].rstrip("-.")
    return f"{kept}-{digest}{suffix}"
