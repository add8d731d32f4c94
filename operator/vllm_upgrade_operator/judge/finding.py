"""What weighing one check's window gives, before the verdict."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What the window says.

    Attributes:
        canary: The canary's value, for display.
        stable: The stable pods' value, for display.
        stable_value: The same as a number; None where there is nothing to compare with.
        broken: A limit is broken, beyond what chance would do.
        doubtful: A limit looks broken, and it may be chance: no reason to act, nor to go on.
        words: A clause with the value, the limit it was held against and the requests.
    """

    canary: str
    stable: str
    stable_value: float | None
    broken: bool
    doubtful: bool
    words: str
