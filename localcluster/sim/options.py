"""The command line of `vllm serve`, for each version: unknown flags end it with exit code 2.

`flags.json` holds the flags that the parsers of 0.29.0 and 0.32.0 have (read from the real
packages), with what 0.28 lacks and 0.33 adds.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NoReturn

from localcluster.sim.versions import at_least


@dataclass(frozen=True, slots=True)
class Options:
    """The flags that the simulator acts on; all others are accepted and have no effect."""

    model: str
    host: str
    port: int
    served_names: tuple[str, ...]
    values: dict[str, str]

    def number(self, flag: str) -> int | None:
        """Read a flag as a whole number; None where it was not given."""
        text = self.values.get(flag)
        return None if text is None else int(text)


def parse(version: str, arguments: list[str]) -> Options:
    """Read a command line as vLLM's parser does; ends the process where that does.

    A flag may be written with `-` or `_`, with its value after `=` or as the next word, and
    shortened as long as no other flag begins that way.
    """
    words = [w for w in arguments if w != "serve"]
    positional: list[str] = []
    values: dict[str, str] = {}
    repeated: dict[str, list[str]] = {}
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            positional.append(word)
            continue
        name, equals, value = word[2:].partition("=")
        flag = _resolve(version, name.replace("_", "-"), word)
        if not equals and flag in known(version)["valued"] and words and words[0][:2] != "--":
            value = words.pop(0)
            while flag in ("served-model-name",) and words and words[0][:1] != "-":
                repeated.setdefault(flag, []).append(words.pop(0))
        values[flag] = value
    model = values.get("model") or (positional[0] if positional else "Qwen/Qwen3-0.6B")
    names = values.get("served-model-name")
    served = (names, *repeated.get("served-model-name", [])) if names else (model,)
    try:
        port = int(values.get("port", "8000"))
        for flag in _NUMBERS & values.keys():
            int(values[flag])
    except ValueError as error:
        _usage(f"argument: invalid int value: {error}")
    return Options(model, values.get("host", "0.0.0.0"), port, served, values)  # noqa: S104 - as vLLM


_NUMBERS = frozenset(
    {
        "max-num-seqs",
        "max-num-batched-tokens",
        "max-num-queued-reqs",
        "max-num-queued-tokens",
        "max-model-len",
        "shutdown-timeout",
        "num-gpu-blocks-override",
    }
)


@cache
def known(version: str) -> dict[str, frozenset[str]]:
    """Give the flags of a version: those that take a value, and those that do not."""
    data = json.loads((Path(__file__).parent / "flags.json").read_text())

    def has(flag: str) -> bool:
        since, until = data["since"].get(flag), data["until"].get(flag)
        return (since is None or at_least(version, since)) and (
            until is None or not at_least(version, until)
        )

    return {kind: frozenset(f for f in data[kind] if has(f)) for kind in ("bare", "valued")}


def _resolve(version: str, name: str, word: str) -> str:
    flags = known(version)["bare"] | known(version)["valued"]
    head = name.partition(".")[0]
    if head in flags:
        return head
    longer = sorted(flag for flag in flags if flag.startswith(head))
    if len(longer) == 1:
        return longer[0]
    if longer:
        options = ", ".join(f"--{flag}" for flag in longer)
        _usage(f"ambiguous option: --{head} could match {options}")
    _usage(f"unrecognized arguments: {word}")


def _usage(message: str) -> NoReturn:
    print("usage: vllm serve [model_tag] [options]", file=sys.stderr)
    print(f"vllm serve: error: {message}", file=sys.stderr, flush=True)
    raise SystemExit(2)
