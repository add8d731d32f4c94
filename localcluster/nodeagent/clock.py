"""The present moment in the forms that the API uses."""

from __future__ import annotations

from datetime import UTC, datetime


def timestamp() -> str:
    """Now, as `metav1.Time`: RFC 3339 in whole seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp() -> str:
    """Now, as `metav1.MicroTime`."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
