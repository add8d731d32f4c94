"""What ConfigMaps tell a server: variables, and the file that `--config` names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from vllm_upgrade_operator.vllm.arguments import find_flags
from vllm_upgrade_operator.vllm.command import words
from vllm_upgrade_operator.vllm.reading import mounted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    ConfigMaps = Mapping[str, Mapping[str, str]]

_LIMIT = 64 * 1024
# A configuration of vLLM has a few dozen lines, and JSON objects in some of them.
_MOST_BRACKETS = 256
_DEEPEST = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a container is told beside its own template.

    Attributes:
        variables: By name, from ConfigMaps.
        configs: Parsed files that `--config` names, by path.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    configs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def told_by(
    pod_spec: Mapping[str, Any], container: Mapping[str, Any], config_maps: ConfigMaps
) -> Told:
    """Find what ConfigMaps tell a container; what is not at hand is left out."""
    return Told(
        variables=_variables(container, config_maps),
        configs=_configs(pod_spec, container, config_maps),
    )


def _variables(container: Mapping[str, Any], config_maps: ConfigMaps) -> dict[str, str]:
    found: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        name = str((source.get("configMapRef") or {}).get("name"))
        prefix = source.get("prefix") or ""
        found |= {f"{prefix}{k}": v for k, v in config_maps.get(name, {}).items()}
    for entry in container.get("env") or ():
        source = entry.get("valueFrom")
        if not source:
            continue
        # It wins over envFrom, also where its value is not known here.
        found.pop(str(entry.get("name")), None)
        reference = source.get("configMapKeyRef") or {}
        value = config_maps.get(str(reference.get("name")), {}).get(str(reference.get("key")))
        if value is not None:
            found[str(entry.get("name"))] = value
    return found


def _configs(
    pod_spec: Mapping[str, Any], container: Mapping[str, Any], config_maps: ConfigMaps
) -> dict[str, Mapping[str, Any]]:
    path = _config_path(words(container) or [])
    place = None if path is None else mounted(pod_spec, container, path)
    if path is None or place is None:
        return {}
    text = config_maps.get(place.config_map, {}).get(place.key)
    if text is None or len(text) > _LIMIT:
        return {}
    parsed = _parsed(text)
    return {} if parsed is None else {path: parsed}


def _parsed(text: str) -> Mapping[str, Any] | None:
    """Read a YAML mapping; None for anything else.

    One with aliases is not read, since a few lines of them can stand for more than memory holds;
    nor is a deep one, which takes the parser longer with each level.
    """
    if sum(text.count(opening) for opening in "[{") > _MOST_BRACKETS:
        return None
    try:
        if not _is_shallow(yaml.parse(text, yaml.SafeLoader)):
            return None
        parsed = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _is_shallow(events: Iterable[object]) -> bool:
    depth = 0
    for event in events:
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _DEEPEST or isinstance(event, yaml.AliasEvent):
            return False
    return True


def _config_path(tokens: list[str]) -> str | None:
    """Give what `--config` names; None without it, and in a script."""
    for flag in find_flags(tokens):
        if flag.name == "config":
            following = tokens[flag.start + 1 : flag.end]
            return flag.inline if flag.inline is not None else next(iter(following), None)
    return None
