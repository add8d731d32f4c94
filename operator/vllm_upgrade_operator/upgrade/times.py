"""Points in time: seconds since the epoch in decisions, RFC 3339 text in status and annotations."""

from __future__ import annotations

from datetime import UTC, datetime


def rfc3339(at: float) -> str:
    """Write a time as the Kubernetes API does, with milliseconds, in UTC."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seconds(text: str) -> float:
    """Read an RFC 3339 time. Raises ValueError where it is none."""
    return datetime.fromisoformat(text).timestamp()


def clock(at: float) -> str:
    """Write a time for a person who reads a message today: `23:45:10Z`."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%SZ")
