"""Have the API server compute the candidate's template: a dry run changes nothing."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.cluster import paths
from vllm_upgrade_operator.cluster.client import JSON_PATCH, STRATEGIC, ApiError
from vllm_upgrade_operator.upgrade.names import FIELD_MANAGER
from vllm_upgrade_operator.upgrade.observation import Refusal
from vllm_upgrade_operator.vllm import containers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeSpec
    from vllm_upgrade_operator.cluster.client import Client

    Object = dict[str, Any]

_BAD_REQUEST, _FORBIDDEN, _INVALID = 400, 403, 422


async def propose(
    client: Client, deployment: Object, spec: VLLMUpgradeSpec
) -> Mapping[str, Any] | Refusal:
    """Give the candidate's template with the API server's defaults, or why there is none.

    First `templatePatch` as the strategic merge patch that it is, then the changes to the vLLM
    container on what comes out, then a dry run of the whole for defaults and validation.
    """
    metadata = deployment["metadata"]
    path = paths.apps(metadata["namespace"], "deployments", metadata["name"])
    options = {"dryRun": "All", "fieldManager": FIELD_MANAGER}
    template = copy.deepcopy(deployment["spec"]["template"])
    field = "spec.candidate.templatePatch"
    try:
        if spec.candidate.template_patch:
            patch = {
                "metadata": {"resourceVersion": metadata["resourceVersion"]},
                "spec": {"template": spec.candidate.template_patch},
            }
            patched = await client.patch(path, patch, STRATEGIC, **options)
            template = patched["spec"]["template"]
        field = "spec.candidate"
        template = containers.edited(template, spec.container, spec.candidate)
        operations = [
            {"op": "test", "path": "/spec/template", "value": deployment["spec"]["template"]},
            {"op": "replace", "path": "/spec/template", "value": template},
        ]
        result = await client.patch(path, operations, JSON_PATCH, **options)
    except ValueError as error:
        return Refusal(reason="CandidateNotApplicable", message=f"{field}: {error}")
    except ApiError as error:
        if error.status in (_BAD_REQUEST, _FORBIDDEN, _INVALID):
            return Refusal(
                reason="CandidateRefused",
                message=f"{field} is refused by the API server: {error.message}",
            )
        raise
    template = result["spec"]["template"]
    return dict(template)
