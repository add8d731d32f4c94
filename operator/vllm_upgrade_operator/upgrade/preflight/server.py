"""The vLLM server that a pod template starts: its container, its flags, its version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.vllm.arguments import value_of
from vllm_upgrade_operator.vllm.command import words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeSpec
    from vllm_upgrade_operator.upgrade.observation import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What one side of an upgrade starts."""

    container: Mapping[str, Any]

    @property
    def image(self) -> str:
        """The image as the template names it."""
        return str(self.container.get("image", ""))

    def value(self, flag: str) -> str | None:
        """Give a flag's value; None where it is not there, bare, or in a script."""
        tokens = words(self.container)
        return None if tokens is None else value_of(tokens, flag)


def stable(target: Target) -> Server:
    """What the target's template starts."""
    return Server(container=_container(target.template, target.container))


def candidate(spec: VLLMUpgradeSpec, target: Target, template: Mapping[str, Any]) -> Server:
    """What the candidate's template starts."""
    del spec
    return Server(container=_container(template, target.container))


def _container(template: Mapping[str, Any], name: str | None) -> Mapping[str, Any]:
    containers = (template.get("spec") or {}).get("containers") or ()
    found: Mapping[str, Any] = next((c for c in containers if c.get("name") == name), {})
    return found
