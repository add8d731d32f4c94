"""Locks between commands that would make the same thing at the same time."""

from __future__ import annotations

import contextlib
import fcntl
import time
from typing import IO, TYPE_CHECKING

from localcluster.errors import BuildError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def locked(file: Path, other: str, seconds: float) -> Iterator[None]:
    """Hold a lock file, waiting for its holder.

    Args:
        file: The lock file; it stays behind, for removing it would let two in.
        other: Who holds it where somebody does, for people.
        seconds: How long to wait.

    Raises:
        BuildError: It was still held after that time.
    """
    with file.open("w") as lock:
        if not try_lock(lock):
            print(f"waiting for {other} to end", flush=True)
            end = time.monotonic() + seconds
            while not try_lock(lock):
                if time.monotonic() > end:
                    raise BuildError(f"{other} did not end within {seconds:.0f} s: {file} is held")
                time.sleep(0.5)
        yield


def try_lock(file: IO[str]) -> bool:
    """Lock an open file if nobody else does."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
