"""Where things of the local cluster lie."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def state_dir() -> Path:
    """The directory of one cluster: `$LOCALCLUSTER_DIR`, else `.localcluster` in the checkout."""
    given = os.environ.get("LOCALCLUSTER_DIR")
    return Path(given).resolve() if given else ROOT / ".localcluster"


def cache_dir() -> Path:
    """Where built binaries are kept between checkouts."""
    base = os.environ.get("XDG_CACHE_HOME")
    home = Path(base) if base else Path.home() / ".cache"
    return home / "vllm-upgrade-operator"
