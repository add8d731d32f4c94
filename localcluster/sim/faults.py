"""Faults on request: `SIM_FAULT_<NAME>=VALUE` or `VALUE@SECONDS` after the server is ready."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from localcluster.sim.versions import at_least

if TYPE_CHECKING:
    from collections.abc import Mapping

    from localcluster.sim.engine import Engine, Request

# Name: what its value means.
FAULTS = {
    "DECODE_FACTOR": "each step takes so many times as long",
    "PREFILL_FACTOR": "prompts take so many times as long",
    "KV_BLOCKS": "the KV cache has only so many blocks",
    "MAX_QUEUED_REQS": "no more than so many requests are let in, running ones too",
    "EXIT_CODE": "the process ends with this exit code",
}
_PREFIX = "SIM_FAULT_"
_AFTER = "SIM_FAULT_AFTER"
_WHOLE = frozenset({"KV_BLOCKS", "MAX_QUEUED_REQS", "EXIT_CODE"})


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: its name, its value, and when it begins, in seconds after ready."""

    name: str
    value: float
    after: float


def read(version: str, env: Mapping[str, str]) -> list[Fault]:
    """Read the faults of an environment, the first one first.

    Raises:
        ValueError: For one that does not exist, that this version cannot have, or that is not
            written as it should be.
    """
    found = []
    for variable, text in env.items():
        if not variable.startswith(_PREFIX) or variable == _AFTER:
            continue
        name = variable.removeprefix(_PREFIX)
        if name not in FAULTS:
            raise ValueError(f"{variable} is no fault: there are {', '.join(sorted(FAULTS))}")
        if name == "MAX_QUEUED_REQS" and not at_least(version, "0.29.0"):
            raise ValueError(f"{variable}: vLLM {version} has no admission control")
        value, at, after = text.partition("@")
        try:
            fault = Fault(name, float(value), float(after if at else env.get(_AFTER, "0")))
        except ValueError as error:
            raise ValueError(f"{variable}={text}: write VALUE or VALUE@SECONDS") from error
        if name in _WHOLE and not (fault.value >= 0 and fault.value == int(fault.value)):
            raise ValueError(f"{variable}={text}: write a whole number, 0 or more")
        if name not in _WHOLE and not fault.value > 0:
            raise ValueError(f"{variable}={text}: write a factor above 0")
        found.append(fault)
    return sorted(found, key=lambda f: f.after)


def apply(fault: Fault, engine: Engine) -> list[Request]:
    """Begin a fault of the engine's; ending the process is the server's business.

    Returns:
        Requests that failed because of it.
    """
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
        return engine.resize(replace(limits, kv_blocks=int(fault.value)))
    elif fault.name == "MAX_QUEUED_REQS":
        return engine.resize(replace(limits, max_num_queued_reqs=int(fault.value)))
    return []
