"""The canary Deployment as a manifest. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.api.v1alpha1 import GROUP, KIND, VERSION
from vllm_upgrade_operator.upgrade import names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_upgrade_operator.upgrade.decision import EnsureCanary

# The operator has deadlines of its own; the Deployment's must not come before them.
_NO_DEADLINE_SECONDS = 2_147_483_647


def owner_reference(upgrade: Mapping[str, Any], *, controller: bool) -> dict[str, Any]:
    """Refer to the VLLMUpgrade as the owner of an object.

    It does not block the owner's deletion: the finalizer does, and where the admission plugin
    OwnerReferencesPermissionEnforcement is on (not by default) that would need a right more.
    """
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "name": upgrade["metadata"]["name"],
        "uid": upgrade["metadata"]["uid"],
        "controller": controller,
    }


def canary_manifest(
    upgrade: Mapping[str, Any], target: str, action: EnsureCanary
) -> dict[str, Any]:
    """Describe the canary Deployment.

    It selects by its own key alone. Its template never changes: another attempt gets another
    Deployment, so no strategy of its own ever acts.
    """
    key = {names.CANARY: upgrade["metadata"]["uid"]}
    metadata = action.template.get("metadata") or {}
    labels = {**(metadata.get("labels") or {}), **key, names.ROLE: names.ROLE_CANARY}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": names.canary_name(target),
            "labels": {**key, names.ROLE: names.ROLE_CANARY},
            "annotations": {names.ATTEMPT: action.attempt},
            "ownerReferences": [owner_reference(upgrade, controller=True)],
        },
        "spec": {
            "replicas": action.replicas,
            "selector": {"matchLabels": key},
            "strategy": {"type": "Recreate"},
            "revisionHistoryLimit": 0,
            "progressDeadlineSeconds": _NO_DEADLINE_SECONDS,
            "template": {**action.template, "metadata": {**metadata, "labels": labels}},
        },
    }
