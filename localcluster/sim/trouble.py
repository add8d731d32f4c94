"""The faults that are on now, and what they make of the engine's speed and limits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from localcluster.sim.engine import Limits, Speed
    from localcluster.sim.faults import Fault, Value


class Trouble:
    """What is wrong with a server now. A fault that begins again takes its new value."""

    def __init__(self) -> None:
        self._on: dict[str, Value] = {}

    def begin(self, fault: Fault) -> None:
        """Have a fault from now on."""
        self._on[fault.name] = fault.value

    def end(self, name: str) -> None:
        """Have it no more; nothing for one that is not on."""
        self._on.pop(name, None)

    def has(self, name: str) -> bool:
        """Tell whether a fault is on."""
        return name in self._on

    def number(self, name: str, default: float) -> float:
        """Give the value of a fault that has a number; `default` where it is not on."""
        return float(self._on.get(name, default))

    def text(self, name: str) -> str | None:
        """Give the value of a fault that has a text; None where it is not on."""
        value = self._on.get(name)
        return None if value is None else str(value)

    def speed(self, healthy: Speed) -> Speed:
        """Give the engine's speed, of the one that it has without faults."""
        decode = self.number("DECODE_FACTOR", 1.0)
        return replace(
            healthy,
            step_seconds=healthy.step_seconds * decode,
            sequence_seconds=healthy.sequence_seconds * decode,
            prefill_tokens_per_second=healthy.prefill_tokens_per_second
            / self.number("PREFILL_FACTOR", 1.0),
        )

    def limits(self, healthy: Limits) -> Limits:
        """Give the engine's limits, of those that it has without faults."""
        limits = replace(healthy, kv_blocks=int(self.number("KV_BLOCKS", healthy.kv_blocks)))
        if self.has("MAX_QUEUED_REQS"):
            return replace(limits, max_num_queued_reqs=int(self.number("MAX_QUEUED_REQS", 0)))
        return limits
