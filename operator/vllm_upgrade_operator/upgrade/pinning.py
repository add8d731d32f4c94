"""Known-good by digest: what to set where the tag in its template means another image by now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_upgrade_operator.upgrade.observation import Candidate, KnownGood


@dataclass(frozen=True, slots=True)
class Pin:
    """The known-good template with the image that ran then, by its digest.

    Attributes:
        container: Name of the container.
        image: `name@sha256:...`.
        template: Known-good's pod template, with that image in that container and nothing else
            changed.
    """

    container: str
    image: str
    template: Mapping[str, Any]


def pin(known: KnownGood, candidate: Candidate | None) -> Pin | None:
    """Pin known-good, or None where that would be a guess: `why_not` says why."""
    if why_not(known) is not None:
        return None
    containers: list[dict[str, Any]] = []
    image = ""
    for container in known.template["spec"]["containers"]:
        if container["name"] == known.container:
            image = f"{_repository(container['image'])}@{known.digests[0]}"
            containers.append({**container, "image": image})
        else:
            containers.append(container)
    spec = {**known.template["spec"], "containers": containers}
    template = {**known.template, "spec": spec}
    if not image or template == known.template:
        return None
    if candidate is not None and candidate.template == template:
        # It was just found to be bad.
        return None
    return Pin(known.container or "", image, template)


def why_not(known: KnownGood) -> str | None:
    """Say why the image cannot be named by its digest, or None."""
    if known.container is None:
        return "which of its containers runs vLLM was not recorded"
    if len(known.digests) != 1:
        return f"its pods ran {len(known.digests)} different images"
    if not known.pullable:
        return f"{known.digests[0]} is the digest of a local image, by which none can be pulled"
    return None


def is_known_good(
    template: Mapping[str, Any], known: KnownGood, candidate: Candidate | None
) -> bool:
    """Whether a template is known-good's, as it was recorded or pinned."""
    if template == known.template:
        return True
    pinned = pin(known, candidate)
    return pinned is not None and template == pinned.template


def _repository(image: str) -> str:
    """An image reference without tag and digest; a port of the registry stays."""
    name = image.partition("@")[0]
    return name.rpartition(":")[0] if ":" in name.rpartition("/")[2] else name
