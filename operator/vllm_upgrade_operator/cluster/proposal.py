"""The candidate's pod template, computed by the API server itself in dry runs.

So strategic merge, defaults, validation and admission are the real ones, and nothing is changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.cluster import paths
from vllm_upgrade_operator.cluster.client import JSON_PATCH, STRATEGIC, ApiError
from vllm_upgrade_operator.upgrade.names import FIELD_MANAGER
from vllm_upgrade_operator.upgrade.observation import Refusal
from vllm_upgrade_operator.upgrade.template_patch import check_patch
from vllm_upgrade_operator.vllm.command import edit_arguments
from vllm_upgrade_operator.vllm.container import find_container
from vllm_upgrade_operator.vllm.environment import edit_environment
from vllm_upgrade_operator.vllm.errors import TemplateError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_upgrade_operator.api.v1alpha1 import Candidate, VLLMUpgradeSpec
    from vllm_upgrade_operator.cluster.client import Client

# Statuses with which the API server says that the template itself is not acceptable: 403 is what
# an admission policy, a webhook or Pod Security answers.
_REFUSED = frozenset({400, 403, 413, 422})


async def propose(
    client: Client, target: Mapping[str, Any], spec: VLLMUpgradeSpec
) -> Mapping[str, Any] | Refusal:
    """Compute the template that the candidate means, or why there is none.

    Args:
        client: The API server.
        target: The Deployment as it is.
        spec: Of the upgrade.

    Raises:
        ApiError: The API server could not say.
    """
    path = paths.deployment(target["metadata"]["namespace"], target["metadata"]["name"])
    template: Mapping[str, Any] = target["spec"]["template"]
    try:
        container = str(find_container(template["spec"], spec.container)["name"])
        check_patch(spec.candidate, container)
    except TemplateError as error:
        return Refusal(reason="CandidateRefused", message=str(error))
    if spec.candidate.template_patch:
        try:
            patched = await client.patch(
                path,
                {"spec": {"template": spec.candidate.template_patch}},
                STRATEGIC,
                dryRun="All",
                fieldManager=FIELD_MANAGER,
                fieldValidation="Strict",
            )
        except ApiError as error:
            return _refusal(error, "spec.candidate.templatePatch")
        template = patched["spec"]["template"]
    try:
        edited = edit(template, spec.candidate, container)
    except TemplateError as error:
        return Refusal(reason="CandidateRefused", message=str(error))
    try:
        result = await client.patch(
            path,
            [{"op": "replace", "path": "/spec/template", "value": edited}],
            JSON_PATCH,
            dryRun="All",
            fieldManager=FIELD_MANAGER,
            fieldValidation="Strict",
        )
    except ApiError as error:
        return _refusal(error, "spec.candidate")
    proposed: Mapping[str, Any] = result["spec"]["template"]
    return proposed


def edit(template: Mapping[str, Any], candidate: Candidate, container: str) -> Mapping[str, Any]:
    """Make the changes of the vLLM container, which has this name.

    Raises:
        TemplateError: One of them cannot be made; the text names the field.
    """
    spec = template["spec"]
    edited = find_container(spec, container)
    if candidate.image is not None:
        edited["image"] = candidate.image
    edited = edit_arguments(
        edited,
        set_=[(a.flag, a.value) for a in candidate.args],
        unset=candidate.unset_args,
    )
    edited = edit_environment(
        edited,
        set_=[e.model_dump(by_alias=True, exclude_none=True) for e in candidate.env],
        unset=candidate.unset_env,
    )
    containers = [edited if c["name"] == edited["name"] else c for c in spec["containers"]]
    return {**template, "spec": {**spec, "containers": containers}}


def _refusal(error: ApiError, field: str) -> Refusal:
    if error.status not in _REFUSED or error.unauthorized:
        raise error
    return Refusal(
        reason="CandidateRefused",
        message=f"{field}: the API server refuses the pod template it makes: {error.message}",
    )
