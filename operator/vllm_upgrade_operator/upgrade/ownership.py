"""Whose field is whose: managedFields of the target, put back after the template was replaced.

A JSON Patch of the template makes the operator the owner of every field that it changes, and takes
those fields from whoever applied them. A later `helm upgrade` or `kubectl apply --server-side`
would then conflict, and would not remove what its manifest no longer has. So at the end of an
upgrade the other managers get back what they had, as far as it still exists.

The form is that of FieldsV1 (kubernetes-sigs/structured-merge-diff, fieldpath/serialize-pe.go):
`f:<name>` is a field, `k:<json>` an item of a list by its keys, `v:<json>` a value of a set,
`i:<number>` an item by position, `.` the item itself; a path ends in an empty object.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Fields = dict[str, Any]

_TEMPLATE = ("f:spec", "f:template")


def restored(
    recorded: Iterable[Mapping[str, Any]], present: Mapping[str, Any], own: str
) -> list[dict[str, Any]]:
    """Compute the managedFields that the target should have.

    Only the pod template is touched, since that is all that the operator writes: outside of it
    every manager keeps what it has now.

    Args:
        recorded: managedFields from before the operator changed anything.
        present: The target as it is now.
        own: The operator's own field manager.
    """
    current = [dict(e) for e in present["metadata"].get("managedFields") or ()]
    others = {_key(e): e for e in current if e.get("manager") != own}
    for entry in recorded:
        if entry.get("manager") == own or entry.get("subresource"):
            continue
        fields = _existing(_template_part(entry.get("fieldsV1") or {}), present)
        if not fields:
            continue
        now = others.get(_key(entry), {**entry, "fieldsV1": {}})
        others[_key(entry)] = {**now, "fieldsV1": _union(now.get("fieldsV1") or {}, fields)}
    theirs: Fields = {}
    for entry in others.values():
        theirs = _union(theirs, entry.get("fieldsV1") or {})
    ours: list[dict[str, Any]] = []
    for entry in current:
        if entry.get("manager") != own:
            continue
        left = _minus(entry.get("fieldsV1") or {}, theirs)
        if left:
            ours.append({**entry, "fieldsV1": left})
    return [*others.values(), *ours]


def _key(entry: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """What makes an entry one of its own for the API server."""
    return (
        str(entry.get("manager", "")),
        str(entry.get("operation", "")),
        str(entry.get("apiVersion", "")),
        str(entry.get("subresource", "")),
    )


def _template_part(fields: Fields) -> Fields:
    outer, inner = _TEMPLATE
    template = (fields.get(outer) or {}).get(inner)
    return {} if template is None else {outer: {inner: template}}


def _existing(fields: Fields, value: object) -> Fields:
    """Keep the paths that an object has."""
    kept: Fields = {}
    for step, below in fields.items():
        if step == ".":
            kept[step] = {}
            continue
        found, child = _child(value, step)
        if not found:
            continue
        if not below:
            kept[step] = {}
        elif rest := _existing(below, child):
            kept[step] = rest
    return kept


def _child(value: object, step: str) -> tuple[bool, object]:
    """Follow one step of a path: whether there is something, and what."""
    kind, _, text = step.partition(":")
    if kind == "f" and isinstance(value, dict):
        return text in value, value.get(text)
    if not isinstance(value, list):
        return False, None
    if kind == "k":
        keys = json.loads(text)
        for item in value:
            if isinstance(item, dict) and all(item.get(k) == v for k, v in keys.items()):
                return True, item
    elif kind == "v":
        wanted = json.loads(text)
        return wanted in value, wanted
    elif kind == "i" and int(text) < len(value):
        return True, value[int(text)]
    return False, None


def _union(one: Fields, other: Fields) -> Fields:
    return {
        step: _union(one.get(step) or {}, other.get(step) or {})
        for step in dict.fromkeys((*one, *other))
    }


def _minus(one: Fields, other: Fields) -> Fields:
    """Keep the paths of the first that do not end in the second."""
    kept: Fields = {}
    for step, below in one.items():
        if step not in other:
            kept[step] = below
        elif below and (rest := _minus(below, other[step])):
            kept[step] = rest
    return kept
