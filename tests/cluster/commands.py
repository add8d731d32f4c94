"""Runs `vllm-upgrade` as a person would."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Ran:
    """What a command has come to."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


async def vllm_upgrade(*arguments: str, stdin: str = "", seconds: float = 60.0) -> Ran:
    """Run a command and wait for its end, whatever that is."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "vllm_upgrade_operator.cli",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(os.environ),
    )
    out, err = await asyncio.wait_for(process.communicate(stdin.encode()), seconds)
    assert process.returncode is not None
    return Ran(process.returncode, out.decode(), err.decode())
