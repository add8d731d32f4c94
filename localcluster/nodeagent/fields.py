"""Values that a pod may ask for about itself: `fieldRef` and `resourceFieldRef`."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAP_KEY = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")
_QUANTITY = re.compile(r"([+-]?[0-9.]+)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|)")
_UNITS = {"": Decimal(1), "m": Decimal("0.001")}
_UNITS |= {unit: Decimal(1000) ** (at + 1) for at, unit in enumerate("kMGTPE")}
_UNITS |= {f"{unit}i": Decimal(1024) ** (at + 1) for at, unit in enumerate("KMGTPE")}


class FieldError(Exception):
    """A reference to a field that is not known."""


def field_value(pod: Mapping[str, Any], path: str) -> str:
    """The value of a `fieldRef`. `pod` must have its addresses in `status`.

    Raises:
        FieldError: The path is none that Kubernetes allows.
    """
    metadata, spec, status = pod["metadata"], pod["spec"], pod["status"]
    simple = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", ""),
        "status.podIP": status.get("podIP", ""),
        "status.podIPs": status.get("podIP", ""),
        "status.hostIP": status.get("hostIP", ""),
        "status.hostIPs": status.get("hostIP", ""),
    }
    if path in simple:
        return str(simple[path])
    match = _MAP_KEY.fullmatch(path)
    if match is not None:
        return str(metadata.get(match[1], {}).get(match[2], ""))
    if path in ("metadata.labels", "metadata.annotations"):
        pairs = metadata.get(path.partition(".")[2], {})
        return "\n".join(f'{key}="{value}"' for key, value in sorted(pairs.items()))
    raise FieldError(f"fieldRef.fieldPath: {path!r} is not a field that a container can be given")


def resource_value(
    container: Mapping[str, Any], resource: str, divisor: str, allocatable: Mapping[str, str]
) -> str:
    """The value of a `resourceFieldRef`, rounded up; a limit not set is the node's allocatable.

    Raises:
        FieldError: The resource or the divisor cannot be read.
    """
    kind, _, name = resource.partition(".")
    if kind not in ("limits", "requests"):
        raise FieldError(f"resourceFieldRef.resource: {resource!r} must be limits.* or requests.*")
    given = container.get("resources", {}).get(kind, {}).get(name)
    if given is None:
        given = allocatable.get(name, "0") if kind == "limits" else "0"
    unit = quantity(divisor)
    return str(math.ceil(quantity(str(given)) / (unit or Decimal(1))))


def quantity(text: str) -> Decimal:
    """A Kubernetes quantity as a number.

    Raises:
        FieldError: It is not a quantity.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise FieldError(f"{text!r} is not a quantity such as 2, 500m or 1Gi")
    return Decimal(match[1]) * _UNITS[match[2]]
