"""What somebody else changed in the target's pod template, and who: in words, bounded.

The difference between two templates says what; managedFields say who (their form is explained in
`ownership.py`). A field that was removed belongs to nobody any more: then the last writer of the
template is named.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_NAMED = 5
_PATH_LIMIT = 160
_RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
# What tells the items of a list apart (patchMergeKey in the API's types of a pod template).
_KEYS = ("name", "containerPort", "mountPath", "key")

# Named key by key even where one side has none of them.
_MAPS = ("f:annotations", "f:labels")


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a path: in words, and as managedFields write it."""

    words: str
    fields: str


Path = tuple[Step, ...]


def describe(
    allowed: Sequence[Mapping[str, Any]],
    present: Mapping[str, Any],
    managed_fields: Sequence[Mapping[str, Any]],
) -> str:
    """Say who changed which fields: `spec.template.spec... changed by kubectl-set at <time>`.

    Args:
        allowed: The pod templates that there might be, at least one; the nearest is compared.
        present: The pod template as it is.
        managed_fields: Of the Deployment.
    """
    start = (Step("spec", "f:spec"), Step(".template", "f:template"))
    paths = min((list(_differences(a, present, start)) for a in allowed), key=len)
    owners = (_owner(path, managed_fields) for path in paths)
    who = list(dict.fromkeys(name for name in owners if name is not None))
    words = [_text(path) for path in paths[:_NAMED]]
    if len(paths) > _NAMED:
        words.append(f"{len(paths) - _NAMED} more fields")
    by = " and ".join(who[:2]) if who else last_writer(managed_fields)
    restart = any(_RESTARTED_AT in step.words for path in paths for step in path)
    how = " (as `kubectl rollout restart` does)" if restart else ""
    return f"{', '.join(words)} changed by {by}{how}"


def last_writer(managed_fields: Iterable[Mapping[str, Any]]) -> str:
    """Name who last wrote to the pod template, as far as managedFields tell."""
    writers = [
        entry
        for entry in managed_fields
        if not entry.get("subresource")
        and "f:template" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
    ]
    return "an unknown writer" if not writers else _name(max(writers, key=_time))


def _differences(old: object, new: object, path: Path) -> Iterator[Path]:
    """Give the paths of all that differs, as deep as both sides have the same shape."""
    if old == new:
        return
    if path[-1].fields in _MAPS:
        old, new = old or {}, new or {}
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted({*old, *new}):
            yield from _differences(old.get(name), new.get(name), (*path, _field(name, path)))
        return
    if isinstance(old, list) and isinstance(new, list):
        key = _key([*old, *new])
        if key is not None:
            before, after = ({i[key]: i for i in items} for items in (old, new))
            changed = [
                found
                for name in dict.fromkeys([*before, *after])
                for found in _differences(
                    before.get(name), after.get(name), (*path, _item(key, name))
                )
            ]
            if changed:
                yield from changed
                return
            # The same items in another order: that is a change of the list itself.
    yield path


def _key(items: Sequence[object]) -> str | None:
    """The field by which all the items of a list can be told apart, or None."""
    for key in _KEYS:
        if items and all(isinstance(i, dict) and key in i for i in items):
            return key
    return None


def _field(name: str, path: Path) -> Step:
    plain = name.replace("-", "").isalnum()
    inner = f".{name}" if plain else f"[{name}]"
    return Step(inner if path else name, f"f:{name}")


def _item(key: str, name: object) -> Step:
    return Step(f"[{name}]", "k:" + json.dumps({key: name}, separators=(",", ":")))


def _owner(path: Path, managed: Sequence[Mapping[str, Any]]) -> str | None:
    """Name the newest manager that has a field, or what is below or above it."""
    owners = [e for e in managed if not e.get("subresource") and _has(e, path)]
    return None if not owners else _name(max(owners, key=_time))


def _has(entry: Mapping[str, Any], path: Path) -> bool:
    fields: Any = entry.get("fieldsV1") or {}
    for step in path:
        if not fields and step is not path[0]:
            # The manager has all of the field above, as of a list that is set as a whole.
            return True
        found = _below(fields, step)
        if found is None:
            return False
        fields = found
    return True


def _below(fields: Mapping[str, Any], step: Step) -> Mapping[str, Any] | None:
    """Follow a step; an item may have further keys than the one that tells it apart here."""
    found: Mapping[str, Any] | None = fields.get(step.fields)
    if found is not None or not step.fields.startswith("k:"):
        return found
    wanted = json.loads(step.fields[2:])
    for name, below in fields.items():
        if name.startswith("k:") and wanted.items() <= json.loads(name[2:]).items():
            kept: Mapping[str, Any] = below
            return kept
    return None


def _name(entry: Mapping[str, Any]) -> str:
    return f"{entry.get('manager', 'an unnamed manager')} at {entry.get('time', 'no time')}"


def _time(entry: Mapping[str, Any]) -> str:
    return str(entry.get("time", ""))


def _text(path: Path) -> str:
    text = "".join(step.words for step in path)
    return text if len(text) <= _PATH_LIMIT else f"{text[: _PATH_LIMIT - 3]}..."
