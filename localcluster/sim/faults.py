"""Faults on request: `SIM_FAULT_<NAME>=VALUE` or `VALUE@SECONDS` after the server is ready."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from localcluster.sim.engine import Engine

# Name: what its value means.
FAULTS = {
    "DECODE_FACTOR": "each step takes so many times as long",
    "PREFILL_FACTOR": "prompts take so many times as long",
    "KV_BLOCKS": "the KV cache has only so many blocks",
    "MAX_QUEUED_REQS": "no more than so many requests are let in",
    "EXIT_CODE": "the process ends with this exit code",
}
_PREFIX = "SIM_FAULT_"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: its name, its value, and when it begins, in seconds after ready."""

    name: str
    value: float
    after: float


def read(env: Mapping[str, str]) -> list[Fault]:
    """Read the faults of an environment. Raises ValueError for one that does not exist."""
    found = []
    for name, text in env.items():
        if not name.startswith(_PREFIX):
            continue
        fault = name.removeprefix(_PREFIX)
        if fault not in FAULTS:
            raise ValueError(f"{name} is no fault: there are {', '.join(sorted(FAULTS))}")
        value, _, after = text.partition("@")
        try:
            found.append(Fault(fault, float(value), float(after or 0)))
        except ValueError as error:
            raise ValueError(f"{name}={text}: write VALUE or VALUE@SECONDS") from error
    return sorted(found, key=lambda f: f.after)


def apply(fault: Fault, engine: Engine) -> None:
    """Begin a fault of the engine's; ending the process is the server's business."""
    speed, limits = engine.speed, engine.limits
    if fault.name == "DECODE_FACTOR":
        engine.speed = replace(
            speed,
            step_seconds=speed.step_seconds * fault.value,
            sequence_seconds=speed.sequence_seconds * fault.value,
        )
    elif fault.name == "PREFILL_FACTOR":
        engine.speed = replace(
            speed, prefill_tokens_per_second=speed.prefill_tokens_per_second / fault.value
        )
    elif fault.name == "KV_BLOCKS":
        engine.resize(replace(limits, kv_blocks=int(fault.value)))
    elif fault.name == "MAX_QUEUED_REQS":
        engine.resize(replace(limits, max_num_queued_reqs=int(fault.value)))
