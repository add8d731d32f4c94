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
from typing import Any, NoReturn

from localcluster.sim.versions import at_least

_SHORT = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-cc": "--compilation-config",
    "-sc": "--speculative-config",
    "-q": "--quantization",
}
_NUMBERS = frozenset(
    {
        "block-size",
        "max-model-len",
        "max-num-batched-tokens",
        "max-num-queued-reqs",
        "max-num-queued-tokens",
        "max-num-seqs",
        "num-gpu-blocks-override",
        "pipeline-parallel-size",
        "port",
        "prefill-context-parallel-size",
        "shutdown-timeout",
        "tensor-parallel-size",
    }
)
_OBJECTS = frozenset({"compilation-config", "speculative-config"})
# Flags that take several words; of the others the simulator reads none.
_LISTS = frozenset({"api-key", "served-model-name"})


@dataclass(frozen=True, slots=True)
class Options:
    """A command line. Flags that the simulator does not act on are accepted, with no effect."""

    flags: dict[str, list[str]]

    @property
    def model(self) -> str:
        """The model to serve."""
        return self.text("model", "Qwen/Qwen3-0.6B")

    @property
    def served_names(self) -> list[str]:
        """Names by which clients ask for the model."""
        return self.flags.get("served-model-name") or [self.model]

    def has(self, flag: str) -> bool:
        """Tell whether a flag was given."""
        return flag in self.flags

    def text(self, flag: str, default: str) -> str:
        """Read a flag."""
        return self.flags[flag][-1] if self.flags.get(flag) else default

    def number(self, flag: str) -> int | None:
        """Read a flag as a whole number; None where it was not given."""
        return int(self.flags[flag][-1]) if flag in self.flags else None

    def config(self, flag: str) -> dict[str, Any]:
        """Read a flag that takes a JSON object."""
        found: dict[str, Any] = json.loads(self.text(flag, "{}"))
        return found


def parse(version: str, arguments: list[str]) -> Options:
    """Read a command line as vLLM's parser does; ends the process where that does.

    A flag may be written with `-` or `_`, with its value after `=` or as the next word, shortened
    as long as no other flag begins that way, and as `--flag.key value` where it takes an object.
    """
    words = arguments[1:] if arguments[:1] == ["serve"] else list(arguments)
    positional: list[str] = []
    unknown: list[str] = []
    flags: dict[str, list[str]] = {}
    while words:
        word = words.pop(0)
        if not _is_flag(word):
            positional.append(word)
            continue
        head, equals, value = word.partition("=")
        dashed, _, key = head.partition(".")
        flag = _resolve(version, _SHORT.get(dashed, dashed))
        if flag is None:
            unknown.append(word)
            while words and not _is_flag(words[0]):
                unknown.append(words.pop(0))
            continue
        if flag in known(version)["bare"]:
            if equals:
                _usage(f"argument --{flag}: ignored explicit argument {value!r}")
            given = []
        else:
            given = [value] if equals else _values(flag, words)
        if key:
            given = [_with_key(flags.get(flag), key, given[0])]
        flags[flag] = given
    if positional:
        flags.setdefault("model", positional[:1])
    _check(flags)
    unknown += positional[1:]
    if unknown:
        _unrecognized(unknown)
    return Options(flags)


@cache
def known(version: str) -> dict[str, frozenset[str]]:
    """Give the flags of a version: those that take a value, and those that do not."""
    data = json.loads((Path(__file__).parent / "flags.json").read_text(encoding="utf-8"))

    def has(flag: str) -> bool:
        since, until = data["since"].get(flag), data["until"].get(flag)
        return (since is None or at_least(version, since)) and (
            until is None or not at_least(version, until)
        )

    return {kind: frozenset(f for f in data[kind] if has(f)) for kind in ("bare", "valued")}


def _is_flag(word: str) -> bool:
    return word.startswith("--") or word.partition(".")[0].partition("=")[0] in _SHORT


def _values(flag: str, words: list[str]) -> list[str]:
    """Take a flag's values from the front of the words that follow it."""
    given: list[str] = []
    while words and not _is_flag(words[0]) and (not given or flag in _LISTS):
        given.append(words.pop(0))
    if not given:
        _usage(f"argument --{flag}: expected one argument")
    return given


def _resolve(version: str, dashed: str) -> str | None:
    """Find the flag that is meant; None for one that there is not."""
    flags = known(version)["bare"] | known(version)["valued"]
    name = dashed.removeprefix("--").replace("_", "-")
    if name in flags:
        return name
    longer = sorted(flag for flag in flags if flag.startswith(name))
    if not longer:
        return None
    if len(longer) > 1:
        options = ", ".join(f"--{flag}" for flag in longer)
        _usage(f"ambiguous option: --{name} could match {options}")
    return longer[0]


def _with_key(before: list[str] | None, key: str, text: str) -> str:
    """Set one key of an object: `--speculative-config.method ngram`."""
    found = json.loads(before[0]) if before else {}
    try:
        found[key] = json.loads(text)
    except json.JSONDecodeError:
        found[key] = text
    return json.dumps(found)


def _check(flags: dict[str, list[str]]) -> None:
    for flag in sorted(_NUMBERS & flags.keys()):
        try:
            int(flags[flag][-1])
        except ValueError:
            _usage(f"argument --{flag}: invalid int value: {flags[flag][-1]!r}")
    for flag in sorted(_OBJECTS & flags.keys()):
        try:
            valid = isinstance(json.loads(flags[flag][-1]), dict)
        except json.JSONDecodeError:
            valid = False
        if not valid:
            _usage(f"argument --{flag}: invalid loads value: {flags[flag][-1]!r}")


def _unrecognized(words: list[str]) -> NoReturn:
    """End as the outer parser does (seen on 0.32): it names the values too."""
    print("usage: vllm [-h] [-v]", file=sys.stderr)
    print(f"vllm: error: unrecognized arguments: {' '.join(words)}", file=sys.stderr, flush=True)
    raise SystemExit(2)


def _usage(message: str) -> NoReturn:
    print("usage: vllm serve [model_tag] [options]", file=sys.stderr)
    print(f"vllm serve: error: {message}", file=sys.stderr, flush=True)
    raise SystemExit(2)
