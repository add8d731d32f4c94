"""What a vLLM container is told: its command line and environment, read as vLLM reads them.

vLLM's own parser (utils/argparse_utils.py, the same rules in 0.28 to 0.33): `-` and `_` are one,
`--flag value` and `--flag=value`, an unambiguous beginning stands for the flag, the last of
repeated ones counts, `--flag.key value` sets one key of a JSON object and `--flag.key+ a,b` adds to
a list, `-O3` is `--optimization-level 3`. What cannot be read here is said to be unread: a value
that a Secret holds, a script's `$@`, a configuration file of the image.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.vllm.arguments import canonical
from vllm_upgrade_operator.vllm.facts import known
from vllm_upgrade_operator.vllm.facts.known import Takes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vllm_upgrade_operator.vllm.versions import Version

_NUMBER = re.compile(r"(?P<digits>[0-9]{1,15}(?:\.[0-9]{1,9})?)(?P<unit>[kKmMgGtT]?)")
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_NEGATIVE = re.compile(r"-\d+(?:\.\d*)?|-\.\d+")


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command line.

    Attributes:
        text: As far as it is known.
        is_open: Only the pod knows what it becomes.
    """

    text: str
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Given:
    """A flag as it was given.

    Attributes:
        values: Its words; none for a bare flag.
        on: False for `--no-flag`.
        readable: The words are what vLLM gets; else they hold what is only known in the pod.
    """

    values: tuple[str, ...] = ()
    on: bool = True
    readable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a container is told.

    Attributes:
        given: By flag, in its canonical form and without `no-`.
        environment: Variables of the container; None where the value is not known here.
        model: The model to serve, where it is given and can be read.
        unread: Why there may be flags that are not known here, as clauses; where it is empty, what
            is not given is not set.
        unread_environment: The same for variables.
        unknown: Flags that the version does not have.
        ambiguous: Beginnings of flags, with the flags that they may stand for.
    """

    given: Mapping[str, Given] = field(default_factory=dict)
    environment: Mapping[str, str | None] = field(default_factory=dict)
    model: str | None = None
    unread: tuple[str, ...] = ()
    unread_environment: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    ambiguous: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def is_on(self, flag: str) -> bool | None:
        """Whether a flag is given and not as `--no-flag`; None where that is not known."""
        found = self.given.get(flag)
        if found is not None:
            return found.on
        return None if self.unread else False

    def text(self, flag: str) -> str | None:
        """Give a flag's first word; None where it has none or it cannot be read."""
        found = self.given.get(flag)
        return found.values[0] if found and found.readable and found.values else None

    def number(self, flag: str) -> int | None:
        """Give a flag's whole number, `1k` being 1000 and `1K` 1024; None where it has none."""
        text = self.text(flag)
        return None if text is None else whole_number(text)

    def is_unread(self, flag: str) -> bool:
        """Whether a flag may have a value that is not known here."""
        found = self.given.get(flag)
        return bool(self.unread) if found is None else not found.readable

    def settings(self, flag: str) -> Mapping[str, Any] | None:
        """Give the JSON object of a flag, empty where it is not given; None where not known."""
        if self.is_unread(flag):
            return None
        text = self.text(flag)
        if text is None:
            return {}
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(found, dict):
            return None
        return {k.replace("-", "_"): v for k, v in found.items()}


def whole_number(text: str) -> int | None:
    """Read a whole number as vLLM does: `1k` is 1000, `1K` is 1024; None for anything else."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        return None
    digits, unit = match["digits"], match["unit"]
    if unit in _BINARY:
        return int(digits) * _BINARY[unit] if digits.isdecimal() else None
    if not unit:
        return int(digits) if digits.isdecimal() else None
    return int(float(digits) * _UNITS[unit])


def parse_flags(words: Sequence[Word], version: Version) -> Options:
    """Read the words that follow `vllm serve`.

    Args:
        words: The words.
        version: Whose flags there are; the nearest known one's are taken.
    """
    reader = _Reader(known.nearest(version).version)
    reader.read([w.text for w in words], [w.is_open for w in words])
    return Options(
        given=reader.given,
        model=reader.model,
        unread=tuple(reader.unread),
        unknown=tuple(dict.fromkeys(reader.unknown)),
        ambiguous=reader.ambiguous,
    )


class _Reader:
    """One pass over the words."""

    def __init__(self, version: Version) -> None:
        self._flags = known.flags(version)
        self._short = known.short_flags(version)
        self.given: dict[str, Given] = {}
        self.model: str | None = None
        self.unread: list[str] = []
        self.unknown: list[str] = []
        self.ambiguous: dict[str, tuple[str, ...]] = {}
        self._objects: dict[str, dict[str, Any]] = {}
        self._hidden: set[str] = set()

    def read(self, tokens: Sequence[str], is_open: Sequence[bool]) -> None:
        """Read all words."""
        index = 0
        positional = 0
        while index < len(tokens):
            token = tokens[index]
            if not self._is_flag(token):
                if is_open[index]:
                    self.unread.append(f"the word {token[:80]!r} may become any flags")
                elif positional == 0:
                    self.model = token
                positional += 1
                index += 1
                continue
            index = self._flag(tokens, is_open, index)
        # vLLM puts what keys make after all other flags, so that it is the last of repeated ones.
        for flag, keys in self._objects.items():
            self.given[flag] = Given((json.dumps(keys),), readable=flag not in self._hidden)
        named = self.given.get("model")
        if self.model is None and named is not None and named.readable and named.values:
            self.model = named.values[0]

    def _is_flag(self, token: str) -> bool:
        return len(token) > 1 and token.startswith("-") and not _NEGATIVE.fullmatch(token)

    def _flag(self, tokens: Sequence[str], is_open: Sequence[bool], index: int) -> int:
        """Read the flag at an index; gives the index after its words."""
        token = tokens[index]
        if token.startswith("-O") and not token.startswith("--"):
            return self._level(tokens, index)
        spelled, equals, inline = token.partition("=")
        head, dot, key = spelled.partition(".")
        name = self._resolve(head)
        takes = Takes.MANY if name is None else self._flags[name]
        end = index + 1
        if not equals and takes is not Takes.NOTHING:
            most = len(tokens) if takes is Takes.MANY and not dot else end + 1
            while end < min(most, len(tokens)) and not self._is_flag(tokens[end]):
                end += 1
        if name is None:
            return end
        values = (inline,) if equals else tuple(tokens[index + 1 : end])
        readable = not any(is_open[index:end])
        if dot and values:
            self._set_key(name, key, values[0], readable=readable)
            return end
        on = not (name.startswith("no-") and takes is Takes.NOTHING)
        if not on:
            name = name.removeprefix("no-")
        self.given[known.first_name(name)] = Given(values, on, readable)
        return end

    def _level(self, tokens: Sequence[str], index: int) -> int:
        text = tokens[index].removeprefix("-O").removeprefix("=")
        following = tokens[index + 1 : index + 2]
        if not text and following and following[0] in ("0", "1", "2", "3"):
            self.given["optimization-level"] = Given((following[0],))
            return index + 2
        self.given["optimization-level"] = Given((text,))
        return index + 1

    def _resolve(self, head: str) -> str | None:
        """Find the flag that is meant; notes it where there is none, or more than one."""
        if not head.startswith("--"):
            found = self._short.get(head)
            if found is None:
                self.unknown.append(head)
            return found
        name = canonical(head)
        if name in self._flags:
            return name
        longer = tuple(sorted(f for f in self._flags if f.startswith(name)))
        if len(longer) == 1:
            return longer[0]
        if longer:
            self.ambiguous[name] = longer
        else:
            self.unknown.append(name)
        return None

    def _set_key(self, flag: str, path: str, text: str, *, readable: bool) -> None:
        """Set one key of a JSON object: `--compilation-config.pass_config.enable_sp true`."""
        place = self._objects.setdefault(flag, {})
        if not readable:
            self._hidden.add(flag)
            return
        value: Any
        if path.endswith("+"):
            path, value = path.removesuffix("+"), text.split(",")
        else:
            try:
                value = json.loads(text)
            except (ValueError, RecursionError):
                number = whole_number(text)
                value = text if number is None else number
        *parents, last = path.split(".")
        for part in parents:
            inner = place.setdefault(part, {})
            if not isinstance(inner, dict):
                inner = place[part] = {}
            place = inner
        if isinstance(value, list) and isinstance(place.get(last), list):
            place[last] += value
        else:
            place[last] = value
