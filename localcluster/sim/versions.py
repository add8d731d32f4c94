"""What differs between the versions that the simulator plays."""

from __future__ import annotations

VERSIONS = ("0.28.0", "0.29.0", "0.32.0", "0.33.0")


def at_least(version: str, minimum: str) -> bool:
    """Compare two versions of the form `0.29.0`."""
    return _numbers(version) >= _numbers(minimum)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
