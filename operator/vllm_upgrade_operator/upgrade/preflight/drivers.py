"""Does the driver of the nodes support the CUDA of the image?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.upgrade.preflight.answer import (
    not_applicable,
    passed,
    unknown,
    warn,
)
from vllm_upgrade_operator.upgrade.preflight.certainty import block_if_certain, no_version
from vllm_upgrade_operator.upgrade.preflight.versions import cuda_of
from vllm_upgrade_operator.upgrade.surroundings import Unread
from vllm_upgrade_operator.vllm.facts.releases import facts_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_upgrade_operator.upgrade.preflight.answer import Answer
    from vllm_upgrade_operator.upgrade.preflight.subject import Trial

_GPU = "nvidia.com/gpu"
# The newest CUDA that a node's driver supports, from NVIDIA's GPU feature discovery: by its new
# names and by its old ones.
_LABELS = (
    ("nvidia.com/cuda.runtime-version.major", "nvidia.com/cuda.runtime-version.minor"),
    ("nvidia.com/cuda.runtime.major", "nvidia.com/cuda.runtime.minor"),
)


def cuda(t: Trial) -> Answer:
    """An image with a newer CUDA than the driver supports ends the start, or is not started."""
    if _GPU not in t.surroundings.requests:
        return not_applicable("the candidate asks for no NVIDIA GPU")
    version = t.candidate.release.version
    if version is None:
        return no_version(t, "which CUDA the image has")
    image = cuda_of(t.candidate.image, facts_for(version).base.cuda)
    nodes = t.surroundings.nodes
    if isinstance(nodes, Unread):
        return unknown("NodesUnread", f"the image has CUDA {image}; {nodes.why}")
    supported = {n.name: supported_cuda(n.labels) for n in nodes if n.unfit is None}
    known = {name: found for name, found in supported.items() if found is not None}
    if not known:
        return unknown(
            "DriverUnknown",
            f"the image has CUDA {image}; no suitable node says by the label {_LABELS[1][0]} what "
            "its driver supports: install NVIDIA's GPU feature discovery, or look by nvidia-smi",
        )
    needed = _pair(image)
    old = sorted(name for name, found in known.items() if found < needed)
    if not old:
        return passed(f"the image has CUDA {image}, and the nodes' drivers support it")
    too_old = [name for name in old if known[name][0] < needed[0]]
    said = ", ".join(f"{n} ({known[n][0]}.{known[n][1]})" for n in old[:4])
    message = (
        f"the image has CUDA {image}, and the driver supports less on {said}: upgrade the driver "
        "there, take an image for an older CUDA (as -cu129), or keep the pods off by a "
        "nodeSelector"
    )
    if len(too_old) == len(supported):
        return block_if_certain(t, "DriverTooOld", message)
    return warn("DriverTooOld", message)


def supported_cuda(labels: Mapping[str, str]) -> tuple[int, int] | None:
    """Give the newest CUDA that a node's driver supports; None where no label says it."""
    for major, minor in _LABELS:
        first, second = labels.get(major, ""), labels.get(minor, "0")
        if first.isdecimal() and second.isdecimal():
            return int(first), int(second)
    return None


def _pair(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor or 0)
