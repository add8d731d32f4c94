"""What a subcommand of `vllm-upgrade` is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from vllm_upgrade_operator.cli.exits import Exit


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One subcommand."""

    name: str
    summary: str
    """One line for `vllm-upgrade --help`."""
    description: str
    """What it reads, prints and never does, for `vllm-upgrade NAME --help`."""
    configure: Callable[[argparse.ArgumentParser], None]
    """Add its options."""
    run: Callable[[argparse.Namespace], Exit]
    """Do it. Raises `CommandError`."""
