"""What `spec.candidate.templatePatch` may not say: it is for the rest of the pod template.

Only what the API server takes without a word, or refuses without saying what would be right, is
looked for here; a patch of a wrong form it refuses well itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.vllm.errors import TemplateError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vllm_upgrade_operator.api.v1alpha1 import Candidate

_FIELD = "spec.candidate.templatePatch"
_WHOLE = ("metadata", "spec")
_METADATA = ("labels", "annotations")


def check_patch(candidate: Candidate, container: str) -> None:
    """Check that a patch only says what no other field, and no controller, says.

    Args:
        candidate: With the patch, or without one.
        container: Name of the vLLM container.

    Raises:
        TemplateError: It says more; the text names the field and what to do.
    """
    patch = candidate.template_patch
    if patch is None:
        return
    for key in patch:
        if key not in _WHOLE:
            raise TemplateError(
                f"{_FIELD}.{key}",
                "a pod template has metadata and spec only: what a Deployment has beside it, such "
                "as replicas or strategy, stays the target's own",
            )
    for key in _object(patch.get("metadata")):
        if key not in _METADATA:
            raise TemplateError(
                f"{_FIELD}.metadata.{key}",
                "of a pod template's metadata only labels and annotations reach the pods: leave "
                "it out",
            )
    for item in _list(_object(patch.get("spec")).get("containers")):
        if item.get("name") == container:
            for said, also in _twice(item, candidate):
                raise TemplateError(
                    f"{_FIELD}.spec.containers[{container}].{said}",
                    f"spec.candidate.{also} says it too: keep one of them",
                )


def _twice(item: Mapping[str, Any], candidate: Candidate) -> Iterator[tuple[str, str]]:
    """Give the fields of the container's patch that another field of the candidate says as well."""
    if "image" in item and candidate.image is not None:
        yield "image", "image"
    arguments = "args" if candidate.args else "unsetArgs" if candidate.unset_args else None
    for said in ("command", "args"):
        if said in item and arguments is not None:
            yield said, arguments
    names = {e.get("name") for e in _list(item.get("env"))}
    for variable in candidate.env:
        if variable.name in names:
            yield f"env[{variable.name}]", "env"
    for name in candidate.unset_env:
        if name in names:
            yield f"env[{name}]", "unsetEnv"


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Mapping[str, Any]]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []
