"""Exit codes of `vllm-upgrade`, the same for every command: docs/command-line.md lists them."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """What a CI job can act on."""

    OK = 0
    """It was looked at, and nothing stands against it; warnings are allowed."""
    FOUND = 1
    """It was looked at, and something stands against it."""
    USAGE = 2
    """The command line, or a file that it names, is wrong; argparse exits with the same."""
    UNKNOWN = 3
    """It could not be told: the cluster did not answer, or something needed could not be read."""


class CommandError(Exception):
    """A command cannot go on; the text says why and what to do.

    Attributes:
        code: What to exit with.
    """

    def __init__(self, text: str, code: Exit = Exit.USAGE) -> None:
        super().__init__(text)
        self.code = code
