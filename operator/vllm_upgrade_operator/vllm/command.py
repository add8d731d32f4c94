"""The command line of a vLLM container: where its flags stand, and how to change them in place.

Everything that is not asked to be changed keeps its place and its spelling, so that the template
differs from the owner's in the candidate's change alone.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.vllm.arguments import canonical, find_flags, is_flag, long_form
from vllm_upgrade_operator.vllm.errors import TemplateError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vllm_upgrade_operator.vllm.arguments import Flag

_SHELLS = frozenset({"sh", "bash", "ash", "dash"})
# What makes a shell command more than words: it could not be taken apart and put together again.
_NOT_SIMPLE = frozenset("$`;|&<>()*?[]{}~#!\n\\")
_MODULES = (
    "vllm.entrypoints.openai.api_server",
    # Where it is since 0.29.
    "vllm.entrypoints.launchers.api_server.entry",
    "vllm.entrypoints.cli.main",
)


def words(container: Mapping[str, Any]) -> list[str] | None:
    """Give the words of the command line, a simple `sh -c "..."` taken apart.

    None for a shell script that is more than one simple command.
    """
    tokens = [*_list(container, "command"), *_list(container, "args")]
    script = script_of(tokens)
    if script is None:
        return tokens
    try:
        return _split(script)
    except ValueError:
        return None


def is_vllm_command(tokens: Sequence[str]) -> bool:
    """Whether the words start a vLLM server."""
    return after_program(tokens) is not None


def after_program(tokens: Sequence[str]) -> int | None:
    """Give the index after `vllm serve` or `-m MODULE`; None where neither is there."""
    for index, pair in enumerate(pairwise(tokens)):
        program = pair[0].rpartition("/")[2] == "vllm" and pair[1] == "serve"
        module = pair[0] == "-m" and pair[1] in _MODULES
        if program or module:
            return index + 2
    return None


def edit_arguments(
    container: Mapping[str, Any],
    *,
    set_: Sequence[tuple[str, str | None]] = (),
    unset: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the container with flags set and unset in its `command` and `args`.

    Args:
        container: Of a pod template.
        set_: Flags and values; None makes a bare flag. A flag that is there is changed where it
            stands, in the form that it has; `--no-flag` goes when `--flag` is set, and the other
            way round. A new one is appended.
        unset: Flags to remove.

    Raises:
        TemplateError: The command is a shell script that cannot be edited, a flag to be unset is
            not there, or it cannot be told where a flag's values end.
    """
    if not set_ and not unset:
        return dict(container)
    name = container.get("name", "?")
    command, args = _list(container, "command"), _list(container, "args")
    script = script_of([*command, *args])
    if script is not None:
        return _edit_script(container, script, _Change(name, set_, unset))
    line = _Line([*command, *args], len(command))
    _Change(name, set_, unset).make(line)
    parts = {"command": line.command, "args": line.args}
    return {**container, **{k: v for k, v in parts.items() if v or k in container}}


def _edit_script(container: Mapping[str, Any], script: str, change: _Change) -> dict[str, Any]:
    where = f"containers[{change.container}]"
    try:
        tokens = _split(script)
    except ValueError as error:
        raise TemplateError(
            where,
            f"its shell command cannot be edited: {error}; write the command as a list "
            "(command: [vllm, serve, ...], args: [...]), or leave spec.candidate.args and "
            "unsetArgs out and set the environment instead",
        ) from None
    line = _Line(tokens, len(tokens))
    change.make(line)
    text = shlex.join(line.command)
    edited = dict(container)
    for key in ("command", "args"):
        if script in _list(container, key):
            edited[key] = [text if t == script else t for t in _list(container, key)]
    return edited


class _Line:
    """The words of a command line, and how many of them are in `command`."""

    def __init__(self, tokens: list[str], in_command: int) -> None:
        self.tokens = tokens
        self._in_command = in_command

    @property
    def command(self) -> list[str]:
        return self.tokens[: self._in_command]

    @property
    def args(self) -> list[str]:
        return self.tokens[self._in_command :]

    def replace(self, start: int, end: int, tokens: list[str]) -> None:
        self.tokens[start:end] = tokens
        if start < self._in_command:
            gone = min(end, self._in_command) - start
            self._in_command += len(tokens) - gone

    def append(self, tokens: list[str]) -> None:
        if not self.args and self.command:
            self._in_command += len(tokens)
        self.tokens.extend(tokens)


@dataclass(frozen=True, slots=True)
class _Change:
    """What to set and unset, in the container of that name."""

    container: str
    set_: Sequence[tuple[str, str | None]]
    unset: Sequence[str]

    def make(self, line: _Line) -> None:
        given = [("unsetArgs", flag) for flag in self.unset]
        given += [("args", flag) for flag, _ in self.set_]
        for field, flag in given:
            long = long_form(flag)
            if long is not None:
                # It would become `--tp`, which vLLM does not know.
                raise TemplateError(
                    f"spec.candidate.{field}", f"flag {flag!r} is a short spelling: write {long!r}"
                )
        for flag in self.unset:
            if not self._remove(line, canonical(flag)):
                there = ", ".join(sorted({f.name for f in find_flags(line.tokens, _begin(line))}))
                raise TemplateError(
                    "spec.candidate.unsetArgs",
                    f"flag {flag!r} is not among the arguments of container "
                    f"{self.container!r} (there are: {there or 'none'})",
                )
        for flag, value in self.set_:
            self._set(line, canonical(flag), value)

    def _set(self, line: _Line, name: str, value: str | None) -> None:
        self._check_keys(line, name)
        opposite = name.removeprefix("no-") if name.startswith("no-") else f"no-{name}"
        self._remove(line, opposite)
        found = [f for f in find_flags(line.tokens, _begin(line)) if f.name == name]
        if not found:
            line.append([f"--{name}"] if value is None else [f"--{name}", value])
            return
        # Of a repeated flag the last one counts; the first keeps its place, the rest goes.
        for extra in reversed(found[1:]):
            self._check(line, extra, bare=False)
            line.replace(extra.start, extra.end, [])
        first = found[0]
        self._check(line, first, bare=value is None)
        spelled = line.tokens[first.start].partition("=")[0]
        if value is None:
            line.replace(first.start, first.end, [spelled])
        elif first.inline is not None:
            line.replace(first.start, first.end, [f"{spelled}={value}"])
        else:
            line.replace(first.start, first.end, [spelled, value])

    def _check_keys(self, line: _Line, name: str) -> None:
        """Refuse an object both whole and by its keys: vLLM takes the keys and drops the rest."""
        whole, dot, _ = name.partition(".")
        others = sorted(
            {
                f.name
                for f in find_flags(line.tokens, _begin(line))
                if f.name.partition(".")[0] == whole and ("." in f.name) is not bool(dot)
            }
        )
        if others:
            listed = ", ".join(f"--{other}" for other in others)
            raise TemplateError(
                "spec.candidate.args",
                f"--{name} beside {listed} of container {self.container!r} would not be merged: "
                "vLLM takes what is set key by key and drops the rest; unset the one in "
                "spec.candidate.unsetArgs, and write the whole object or all of its keys",
            )

    def _remove(self, line: _Line, name: str) -> bool:
        found = [f for f in find_flags(line.tokens, _begin(line)) if f.name == name]
        for flag in reversed(found):
            self._check(line, flag, bare=True)
            line.replace(flag.start, flag.end, [])
        return bool(found)

    def _check(self, line: _Line, flag: Flag, *, bare: bool) -> None:
        """Refuse where the last value of the last flag may really be the model."""
        values = flag.end - flag.start - 1
        if values < (1 if bare else 2) or flag.end < len(line.tokens):
            return
        begin = _begin(line)
        model_first = begin < len(line.tokens) and not is_flag(line.tokens[begin])
        if model_first or any(f.name == "model" for f in find_flags(line.tokens, begin)):
            return
        raise TemplateError(
            f"containers[{self.container}].args",
            # The word itself is not shown: it may be a key.
            f"it cannot be told whether the last word is a value of --{flag.name} or the model: "
            "write the model right after `serve`, or as --model",
        )


def _begin(line: _Line) -> int:
    """Give the index from which on flags of vLLM stand."""
    after = after_program(line.tokens)
    if after is not None:
        return after
    # The image's own entrypoint, or a program of its own that takes vLLM's flags as arguments.
    begin = 0 if any(is_flag(t) for t in line.command) else len(line.command)
    return begin + (line.tokens[begin : begin + 1] == ["serve"])


def script_of(tokens: Sequence[str]) -> str | None:
    """Give the script of `sh -c script`; None if the line is none."""
    if not tokens or tokens[0].rpartition("/")[2] not in _SHELLS:
        return None
    for index, option in enumerate(tokens[1:], start=1):
        if not option.startswith("-"):
            return None
        if option.endswith("c") and not option.startswith("--"):
            rest = [t for t in tokens[index + 1 :] if t != "--"]
            return rest[0] if rest else None
    return None


def _split(script: str) -> list[str]:
    """Take a simple shell command apart. Raises ValueError where it is not one."""
    strange = sorted(_NOT_SIMPLE & set(script.strip()))
    if strange:
        raise ValueError(f"it contains {' '.join(repr(c) for c in strange)}")
    tokens = shlex.split(script)
    head = tokens[1] if tokens[:1] == ["exec"] and len(tokens) > 1 else (tokens or [""])[0]
    if "=" in head or not is_vllm_command(tokens):
        raise ValueError("it is not `vllm serve ...` alone")
    return tokens


def _list(container: Mapping[str, Any], key: str) -> list[str]:
    return [str(t) for t in container.get(key) or ()]
