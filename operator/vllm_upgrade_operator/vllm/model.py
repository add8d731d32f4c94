"""What a server says of itself while it starts: its version, its model."""

from __future__ import annotations

import re
from dataclasses import dataclass

from vllm_upgrade_operator.vllm.logs import log_lines

# config/model.py of 0.28 to 0.33, in the API server, before any request can be logged.
_FILE = "model.py"
ARCHITECTURE = re.compile(r"Resolved architecture: (?P<name>\w{1,128})$")
"""The model's comes first, then that of a draft model."""
_LENGTH = re.compile(r"Using max model len (?P<tokens>\d{1,12})")

# v1/engine/core.py of 0.28 to 0.33, in the engine, which logs no user input.
VERSION = re.compile(r"Initializing a V1 LLM engine \(v(?P<version>[\w.+]{1,64})\) with config: .*")


@dataclass(frozen=True, slots=True)
class Model:
    """What a log says of the model that is served.

    Attributes:
        architecture: Such as `LlamaForCausalLM`; None where the log does not say (any more).
        max_model_len: Tokens of prompt and answer together; None likewise.
    """

    architecture: str | None = None
    max_model_len: int | None = None


def read_model(log: str) -> Model:
    """Read what the start of a log says. The first of each counts: a draft model comes later."""
    architecture: str | None = None
    length: int | None = None
    for line in log_lines(log):
        if line.file != _FILE:
            continue
        if architecture is None and (match := ARCHITECTURE.fullmatch(line.message)):
            architecture = match["name"]
        if length is None and (match := _LENGTH.fullmatch(line.message)):
            length = int(match["tokens"])
        if architecture is not None and length is not None:
            break
    return Model(architecture, length)


def read_version(log: str) -> str | None:
    """Read the version that the start of a log says; None where it does not (any more)."""
    for line in log_lines(log):
        if line.of_engine and (match := VERSION.fullmatch(line.message)):
            return match["version"]
    return None
