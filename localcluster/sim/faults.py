"""Faults on request, by name: what there are, what values they take, and how they are written.

`SIM_FAULT_<NAME>=VALUE` or `VALUE@SECONDS` after the server is ready, and at run time
`POST /sim/fault/<NAME>?value=VALUE`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from localcluster.sim.versions import at_least

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_PREFIX = "SIM_FAULT_"
_AFTER = "SIM_FAULT_AFTER"

WITHOUT = "without:"
METRICS = (
    *("missing", "huge", "slow", "malformed", "binary", "truncated", "redirect", "closed"),
    "other",
)

Value = float | str


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: its name, its value, and when it begins, in seconds after ready."""

    name: str
    value: Value
    after: float = 0.0


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a fault's value can be.

    Attributes:
        right: What would be right, as in "write ...".
        read: Gives the value of a text; raises `ValueError` for what is not right.
        ends: Whether it can end while the server runs.
    """

    right: str
    read: Callable[[str], Value]
    ends: bool = True


def _factor(text: str) -> Value:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError(text)
    return value


def _whole(text: str) -> Value:
    return float(int(text)) if int(text) >= 0 else _refuse(text)


def _share(text: str) -> Value:
    value = float(text)
    return value if 0 <= value <= 1 else _refuse(text)


def _one(text: str) -> Value:
    return 1.0 if text == "1" else _refuse(text)


def _zero(text: str) -> Value:
    return 0.0 if text == "0" else _refuse(text)


def _version(text: str) -> Value:
    return text if text and text[0].isdigit() else _refuse(text)


def _metrics(text: str) -> Value:
    named = text.startswith(WITHOUT) and text != WITHOUT
    return text if named or text in METRICS else _refuse(text)


def _refuse(text: str) -> Value:
    raise ValueError(text)


_SWITCH = _Kind("1", _one)
FAULTS: dict[str, _Kind] = {
    "DECODE_FACTOR": _Kind("a factor above 0", _factor),
    "PREFILL_FACTOR": _Kind("a factor above 0", _factor),
    "KV_BLOCKS": _Kind("a whole number, 0 or more", _whole),
    "MAX_QUEUED_REQS": _Kind("a whole number, 0 or more", _whole),
    "DRAFT_ACCEPTANCE": _Kind("a share from 0 to 1", _share),
    "HANG": _SWITCH,
    "ENGINE_DEATH": _Kind("1", _one, ends=False),
    "EXIT_CODE": _Kind("a whole number, 0 or more", _whole, ends=False),
    "OOM": _Kind("1", _one, ends=False),
    "ERROR_FRACTION": _Kind("a share from 0 to 1", _share),
    "DRAIN_500": _SWITCH,
    "HEALTH": _Kind("0", _zero),
    "VERSION": _Kind("a version such as 0.1.2", _version),
    "GARBAGE": _SWITCH,
    "METRICS": _Kind(f"{', '.join(METRICS)} or {WITHOUT}<beginning of a metric's name>", _metrics),
}


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
            raise ValueError(f"{variable} is no fault: there are {known()}")
        written, at, after = text.partition("@")
        try:
            seconds = float(after if at else env.get(_AFTER, "0"))
        except ValueError as error:
            raise ValueError(f"{variable}={text}: write VALUE or VALUE@SECONDS") from error
        try:
            found.append(fault(version, name, written, seconds))
        except ValueError as error:
            raise ValueError(f"{_PREFIX}{error}") from error
    return sorted(found, key=lambda f: f.after)


def fault(version: str, name: str, text: str, after: float = 0.0) -> Fault:
    """Make a fault of its name and the text of its value.

    Raises:
        ValueError: This version cannot have it, or the value is none that it can have; says what
            would be right.
    """
    if name == "MAX_QUEUED_REQS" and not at_least(version, "0.29.0"):
        raise ValueError(f"{name}: vLLM {version} has no admission control")
    kind = FAULTS[name]
    try:
        return Fault(name, kind.read(text), after)
    except ValueError as error:
        raise ValueError(f"{name}={text}: write {kind.right}") from error


def known() -> str:
    """Give the names of all faults, for people."""
    return ", ".join(sorted(FAULTS))
