"""How much changes at once? What is changed together is blamed together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.upgrade.preflight.answer import passed, warn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_upgrade_operator.upgrade.preflight.answer import Answer
    from vllm_upgrade_operator.upgrade.preflight.subject import Trial

_RESOURCES = frozenset({"resources"})
_COMMAND = frozenset({"command", "args"})
_ENVIRONMENT = frozenset({"env", "envFrom"})


def one_thing_at_a_time(t: Trial) -> Answer:
    """Name everything that changes; more than one thing warns."""
    found = changes(t)
    if len(found) > 1:
        return warn(
            "SeveralChanges",
            f"{len(found)} things change at once: {', '.join(found)}. If the canary is worse, it "
            "cannot be said which of them it is: upgrade in steps, the version first",
        )
    return passed(f"one thing changes: {', '.join(found)}" if found else "nothing changes")


def changes(t: Trial) -> list[str]:
    """Name the kinds of things that differ between the target's template and the candidate's."""
    before, after = t.stable.container, t.candidate.container
    found = []
    if before.get("image") != after.get("image"):
        found.append(f"image ({before.get('image')} to {after.get('image')})")
    if _differs(before, after, _COMMAND):
        found.append("flags")
    names = _variables(before, after)
    if names:
        found.append(f"variables ({', '.join(names)})")
    elif _differs(before, after, frozenset({"envFrom"})):
        found.append("variables")
    if _differs(before, after, _RESOURCES):
        found.append("resources")
    if _others(t):
        found.append("other fields of the pod template")
    return found


def _variables(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Names of variables that differ; no values, which may be keys."""
    old = {e["name"]: e for e in before.get("env") or ()}
    new = {e["name"]: e for e in after.get("env") or ()}
    return sorted(n for n in old.keys() | new.keys() if old.get(n) != new.get(n))


def _differs(before: Mapping[str, Any], after: Mapping[str, Any], keys: frozenset[str]) -> bool:
    return any(before.get(k) != after.get(k) for k in keys)


def _others(t: Trial) -> bool:
    """Whether anything else differs: other fields of the container, other containers, the pod."""
    known = frozenset({"image"}) | _COMMAND | _ENVIRONMENT | _RESOURCES

    def rest(template: Mapping[str, Any], container: Mapping[str, Any]) -> object:
        spec = dict(template.get("spec") or {})
        spec["containers"] = [
            {k: v for k, v in c.items() if k not in known} if c == container else c
            for c in spec.get("containers") or ()
        ]
        return (template.get("metadata") or {}, spec)

    return rest(t.target.template, t.stable.container) != rest(t.template, t.candidate.container)
