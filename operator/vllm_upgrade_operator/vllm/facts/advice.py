"""What a version would take and not act on: variables that it does not read, flags that will go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm_upgrade_operator.vllm.facts import known
from vllm_upgrade_operator.vllm.facts.releases import facts_for

if TYPE_CHECKING:
    from vllm_upgrade_operator.vllm.facts.releases import Deprecated
    from vllm_upgrade_operator.vllm.options import Options
    from vllm_upgrade_operator.vllm.versions import Version

_PREFIX = "VLLM_"


@dataclass(frozen=True, slots=True)
class UnreadVariable:
    """A variable of vLLM's own kind that a version does not read.

    Attributes:
        name: Its name.
        last: The last known version before it that does; None where none did.
    """

    name: str
    last: Version | None


def unread_variables(version: Version, options: Options) -> tuple[UnreadVariable, ...]:
    """Give the variables that are set and have no effect.

    vLLM starts with them, and from 0.28 on warns of an unknown variable.
    """
    target = known.nearest(version).version
    found = []
    for name in sorted(options.environment):
        if not name.startswith(_PREFIX) or name in known.environment(target):
            continue
        had = [v for v in known.versions() if v < target and name in known.environment(v)]
        found.append(UnreadVariable(name, max(had, default=None)))
    return tuple(found)


def deprecated_flags(version: Version, options: Options) -> tuple[Deprecated, ...]:
    """Give the flags that are given and that a later version will not have."""
    return tuple(d for d in facts_for(version).deprecated if d.flag in options.given)
