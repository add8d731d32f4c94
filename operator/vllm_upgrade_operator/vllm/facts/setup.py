"""One server as it would be started: what the rules about it ask, each answer yes, no or unknown.

Unknown (None) is an answer of its own: a command in a script, a value from a Secret, a model whose
configuration is not at hand. What is unknown makes a prediction uncertain and never decides it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.vllm.facts import known

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_upgrade_operator.vllm.facts.known import Trait
    from vllm_upgrade_operator.vllm.options import Options
    from vllm_upgrade_operator.vllm.versions import Version

RUNNER_VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"
"""Chooses the runner; a whole number, for vLLM reads `bool(int(value))` (envs.py, 0.28 to 0.33)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a server runs on, as far as it is known.

    Attributes:
        triton: Whether there is a Triton that works; images for NVIDIA and AMD GPUs have one.
        rocm: Whether it is an AMD GPU.
    """

    triton: bool | None = None
    rocm: bool | None = None


def machine_of(container: Mapping[str, Any]) -> Machine:
    """Tell from the devices that a container asks for what it runs on."""
    resources = container.get("resources") or {}
    names = {*(resources.get("limits") or {}), *(resources.get("requests") or {})}
    if any(name.startswith("nvidia.com/") for name in names):
        return Machine(triton=True, rocm=False)
    if any(name.startswith("amd.com/gpu") for name in names):
        return Machine(triton=True, rocm=True)
    return Machine()


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A server as it would be started.

    Attributes:
        version: One that is known: the nearest to the real one.
        options: What it is told.
        architecture: Of its model, as the log of a running server or a person says.
        draft_architecture: Of its draft model, likewise.
        machine: What it runs on.
    """

    version: Version
    options: Options
    architecture: str | None = None
    draft_architecture: str | None = None
    machine: Machine = Machine()

    def forced(self) -> tuple[bool, str | None]:
        """Give whether the variable that chooses the runner is set, and its value.

        The value is None where it is not known; not set is `(False, None)`, and what may be set by
        an `envFrom` that cannot be read is `(True, None)`.
        """
        environment = self.options.environment
        if RUNNER_VARIABLE in environment:
            return True, environment[RUNNER_VARIABLE]
        return bool(self.options.unread_environment), None

    def more_than_one(self, flag: str) -> bool | None:
        """Whether a flag that counts devices is above 1."""
        if self.options.is_unread(flag):
            return None
        number = self.options.number(flag)
        if number is None and self.options.text(flag) is not None:
            return None
        return (number or 1) > 1

    def speculative(self) -> Mapping[str, Any] | None:
        """Give the settings of speculative decoding, empty without; None where not known."""
        found = self.options.settings("speculative-config")
        if found is None:
            return None
        # `--spec-method` and the like are spellings of its keys (create_speculative_config).
        shortcuts = {"spec-method": "method", "spec-model": "model"}
        if any(self.options.is_unread(flag) for flag in shortcuts):
            return None
        extra = {key: self.options.text(flag) for flag, key in shortcuts.items()}
        return {**found, **{k: v for k, v in extra.items() if v is not None}}

    def method(self) -> str | None:
        """Give the method of speculative decoding; empty without it, None where not known.

        Where only a draft model is named, vLLM finds the method in that model's configuration.
        """
        settings = self.speculative()
        if settings is None:
            return None
        if not settings:
            return ""
        method = settings.get("method")
        if method is None:
            return "ngram" if settings.get("model") in ("ngram", "[ngram]") else None
        # All multi-token prediction is one method to the runners.
        return "mtp" if str(method).endswith("_mtp") else str(method)

    def uses_method(self, *methods: str) -> bool | None:
        """Whether one of these methods of speculative decoding is used."""
        found = self.method()
        return None if found is None else found in methods

    def speculative_is_on(self, key: str) -> bool | None:
        """Whether a setting of speculative decoding is on."""
        settings = self.speculative()
        return None if settings is None else bool(settings.get(key))

    def compilation(self, *path: str) -> Any | None:  # noqa: ANN401 - a value of a JSON object
        """Give a value of `--compilation-config`; None where it is not set."""
        found: Any = self.options.settings("compilation-config") or {}
        for key in path:
            found = found.get(key) if isinstance(found, dict) else None
        return found

    def compilation_is_unread(self) -> bool:
        """Whether `--compilation-config` cannot be read."""
        return self.options.settings("compilation-config") is None

    def has_graphs(self, *modes: str) -> bool | None:
        """Whether `cudagraph_mode` of the compilation is set to one of these."""
        if self.compilation_is_unread():
            return None
        mode = self.compilation("cudagraph_mode")
        return mode is not None and str(mode).upper() in modes

    def has_trait(self, trait: Trait) -> bool | None:
        """Whether the architecture is declared so."""
        found = None if self.architecture is None else known.traits(self.architecture)
        return None if found is None else trait in found


def both(first: bool | None, second: bool | None) -> bool | None:  # noqa: FBT001 - like `and`
    """Tell whether both hold, where either may be unknown."""
    if first is False or second is False:
        return False
    return None if first is None or second is None else True


def either(first: bool | None, second: bool | None) -> bool | None:  # noqa: FBT001 - like `or`
    """Tell whether one of both holds, where either may be unknown."""
    if first or second:
        return True
    return None if first is None or second is None else False
