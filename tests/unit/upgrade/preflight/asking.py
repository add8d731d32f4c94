"""Asks preflight about a target and a candidate that differ from those of `World`."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.unit.upgrade.world import NEW, OLD, ROOMY, World
from vllm_upgrade_operator.api.v1alpha1 import PreflightResult
from vllm_upgrade_operator.upgrade.preflight import chain

if TYPE_CHECKING:
    from vllm_upgrade_operator.api.v1alpha1 import PreflightCheck
    from vllm_upgrade_operator.upgrade.observation import Observation, Pod

PASS, WARN = PreflightResult.PASS, PreflightResult.WARN
BLOCK, UNKNOWN = PreflightResult.BLOCK, PreflightResult.UNKNOWN


def container(template: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = template["spec"]["containers"][0]
    return found


def template(base: dict[str, Any], *, pod: Any = None, **parts: Any) -> dict[str, Any]:
    """The template with these parts of its vLLM container, and of its pod spec."""
    made = copy.deepcopy(base)
    container(made).update(parts)
    made["spec"].update(pod or {})
    return made


def old(**parts: Any) -> dict[str, Any]:
    return template(OLD, **parts)


def new(**parts: Any) -> dict[str, Any]:
    return template(NEW, **parts)


def seen(  # noqa: PLR0913 - as many as there are things around an upgrade
    *,
    stable: dict[str, Any] = OLD,
    candidate: dict[str, Any] = NEW,
    spec: dict[str, Any] | None = None,
    around: dict[str, Any] | None = None,
    target: dict[str, Any] | None = None,
    pods: dict[str, Any] | None = None,
) -> Observation:
    """What is observed; `pods` holds fields that all stable pods have."""
    world = World(template=copy.deepcopy(stable))
    world.spec |= spec or {}
    o = world.observe(look=False)
    assert o.target is not None
    changed: tuple[Pod, ...] = tuple(replace(p, **(pods or {})) for p in o.target.pods)
    found = replace(o.target, pods=changed, **(target or {}))
    return replace(
        o, target=found, proposed=candidate, surroundings=replace(ROOMY, **(around or {}))
    )


def ask(name: str, **parts: Any) -> PreflightCheck:
    """What one check says."""
    return ask_of(name, seen(**parts))


def ask_of(name: str, o: Observation, now: float = 1_800_000_000.0) -> PreflightCheck:
    assert o.target is not None
    found = {c.name: c for c in chain.examine(o, o.target, now)}
    return found[name]
