"""Which fields differ between two pod templates, as a person would name them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_NAMED = 3
_LENGTH = 120


def differences(before: Mapping[str, object], after: Mapping[str, object]) -> str:
    """Name the first fields that differ, such as `spec.containers[vllm].image`.

    Names of fields and of list items only, never values: a value may be a secret.

    Returns:
        Up to three paths within the template, and how many more there are; `nothing` where both
        are equal.
    """
    paths = list(dict.fromkeys(_paths(before, after, "")))
    named = [path[:_LENGTH] for path in paths[:_NAMED]]
    if len(paths) > _NAMED:
        named.append(f"{len(paths) - _NAMED} more")
    return ", ".join(named) or "nothing"


def _paths(before: object, after: object, at: str) -> Iterator[str]:
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            name = f"[{key}]" if "." in key or "/" in key else f".{key}" if at else key
            yield from _paths(before.get(key), after.get(key), at + name)
        return
    ones, others = _by_name(before), _by_name(after)
    if ones is not None and others is not None:
        for name in sorted(ones.keys() | others.keys()):
            yield from _paths(ones.get(name), others.get(name), f"{at}[{name}]")
        if ones.keys() == others.keys() and ones == others:
            # The same items in another order.
            yield at
        return
    yield at


def _by_name(value: object) -> dict[str, object] | None:
    """Read a list by the names of its items, as containers, variables and volumes have them."""
    if not isinstance(value, list):
        return None
    named: dict[str, object] = {}
    for item in value:
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            return None
        named[item["name"]] = item
    return named if len(named) == len(value) else None
