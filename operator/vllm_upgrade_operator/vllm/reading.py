"""From a container of a pod template to what its vLLM is told (`Options`).

Kubernetes expands `$(NAME)` in `command`, `args` and `env`; a shell expands `$NAME` in a script;
vLLM itself reads `--config FILE`. Each is followed as far as what it needs is at hand.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.vllm import shell
from vllm_upgrade_operator.vllm.arguments import canonical, is_flag
from vllm_upgrade_operator.vllm.command import after_program, script_of
from vllm_upgrade_operator.vllm.facts import known
from vllm_upgrade_operator.vllm.options import Word, parse_flags

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from vllm_upgrade_operator.vllm.options import Options
    from vllm_upgrade_operator.vllm.versions import Version

_EXPANSION = re.compile(r"\$\$|\$\((?P<name>[A-Za-z_][\w.-]*)\)")
_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>.*)", re.DOTALL)
_MODULE = "-m"


@dataclass(frozen=True, slots=True)
class Mounted:
    """The key of a ConfigMap that a container sees as a file."""

    config_map: str
    key: str


def read_options(
    container: Mapping[str, Any],
    version: Version,
    *,
    variables: Mapping[str, str] | None = None,
    configs: Mapping[str, Mapping[str, Any]] | None = None,
) -> Options:
    """Read what a container's vLLM is told.

    Args:
        container: Of a pod template.
        version: Whose flags there are; the nearest known one's are taken.
        variables: What its `envFrom` and `valueFrom` are known to give.
        configs: Parsed YAML files that `--config` may name, by path.
    """
    environment, unread_environment = _environment(container, variables or {})
    tokens = [str(t) for key in ("command", "args") for t in container.get(key) or ()]
    words = [_expanded(token, environment) for token in tokens]
    script = script_of(tokens)
    unread: tuple[str, ...] = ()
    if script is None:
        words = words[_begin(tokens, len(container.get("command") or ())) :]
    else:
        found = _of_script(_expanded(script, environment).text, environment)
        if found is None:
            unread = ("its shell script cannot be taken apart",)
            words = []
        else:
            words, assigned = found
            environment = {**environment, **assigned}
            if not words:
                unread = ("its shell script does not start vLLM itself",)
    if words and words[0].text == "serve":
        # Of `python3 -m vllm.entrypoints.cli.main serve MODEL`.
        words = words[1:]
    words, file = _with_config(words, configs or {}, known.flags(known.nearest(version).version))
    if file is not None:
        unread = (*unread, f"flags are in the file {file!r}, which cannot be read here")
    read = parse_flags(words, version)
    return replace(
        read,
        environment=environment,
        unread=(*unread, *read.unread),
        unread_environment=unread_environment,
    )


def mounted(pod_spec: Mapping[str, Any], container: Mapping[str, Any], path: str) -> Mounted | None:
    """Tell which key of which ConfigMap a container sees at a path; None where it is none."""
    volumes = {v.get("name"): v for v in pod_spec.get("volumes") or ()}
    for mount in container.get("volumeMounts") or ():
        source = (volumes.get(mount.get("name")) or {}).get("configMap")
        folder = str(mount.get("mountPath", "")).rstrip("/")
        if not source or not source.get("name"):
            continue
        name = str(source["name"])
        if mount.get("subPath"):
            if path == folder:
                return Mounted(name, str(mount["subPath"]))
            continue
        if not path.startswith(folder + "/"):
            continue
        within = path[len(folder) + 1 :]
        items = source.get("items")
        if items is None:
            return Mounted(name, within)
        for item in items:
            if item.get("path") == within:
                return Mounted(name, str(item.get("key")))
    return None


def _environment(
    container: Mapping[str, Any], variables: Mapping[str, str]
) -> tuple[dict[str, str | None], tuple[str, ...]]:
    found: dict[str, str | None] = dict(variables)
    for entry in container.get("env") or ():
        name = str(entry.get("name"))
        if entry.get("valueFrom"):
            found[name] = variables.get(name)
        else:
            word = _expanded(str(entry.get("value") or ""), found)
            found[name] = None if word.is_open else word.text
    sources = [
        f"{kind} {reference.get('name')}"
        for entry in container.get("envFrom") or ()
        for kind, reference in (
            ("ConfigMap", entry.get("configMapRef")),
            ("Secret", entry.get("secretRef")),
        )
        if reference
    ]
    if variables:
        # Whoever read them has read the ConfigMaps too; Secrets are never read.
        sources = [s for s in sources if s.startswith("Secret")]
    return found, tuple(f"variables come from {source}" for source in sources)


def _expanded(text: str, environment: Mapping[str, str | None]) -> Word:
    """Expand `$(NAME)` as Kubernetes does; `$$` stands for `$`."""
    is_open = False

    def value(match: re.Match[str]) -> str:
        nonlocal is_open
        if match["name"] is None:
            return "$"
        found = environment.get(match["name"])
        if found is None:
            is_open = True
            return match.group()
        return found

    return Word(_EXPANSION.sub(value, text), is_open)


def _begin(tokens: Sequence[str], in_command: int) -> int:
    """Give the index from which on flags of vLLM stand."""
    after = after_program(tokens)
    if after is not None:
        return after
    # Another program that takes vLLM's flags, as `python3 -m MODULE`, or the image's entrypoint.
    command = tokens[:in_command]
    begin = command.index(_MODULE) + 2 if _MODULE in command else 0
    if not any(is_flag(t) for t in command[begin:]):
        begin = in_command
    return begin + (list(tokens[begin : begin + 1]) == ["serve"])


def _of_script(
    script: str, environment: Mapping[str, str | None]
) -> tuple[list[Word], dict[str, str | None]] | None:
    """Find the words after `vllm serve` in a script, and what it sets before.

    None where the script cannot be parted; no words where nothing in it starts vLLM.
    """
    values = {name: value for name, value in environment.items() if value is not None}
    commands = shell.commands(script, values)
    if commands is None:
        return None
    assigned: dict[str, str | None] = {}
    for command in commands:
        after = after_program(command)
        before = command if after is None else command[:after]
        if after is None and before[0] != "export" and not _ASSIGNMENT.fullmatch(before[0]):
            continue
        for word in before:
            match = _ASSIGNMENT.fullmatch(word)
            if match is not None:
                assigned[match["name"]] = None if shell.is_open(word) else match["value"]
        if after is not None:
            return [Word(w, shell.is_open(w)) for w in command[after:]], assigned
    return [], assigned


def _with_config(
    words: list[Word], configs: Mapping[str, Mapping[str, Any]], flags: Container[str]
) -> tuple[list[Word], str | None]:
    """Put a configuration file's flags before the others, as vLLM does (so the others win).

    Gives the file's name where it is not at hand.
    """
    for index, word in enumerate(words):
        name, equals, inline = word.text.partition("=")
        if name != "--config":
            continue
        file = inline if equals else (words[index + 1].text if index + 1 < len(words) else "")
        rest = words[:index] + words[index + (1 if equals else 2) :]
        config = configs.get(file)
        if config is None:
            return rest, file
        first = 0 if not rest or is_flag(rest[0].text) else 1
        return [*rest[:first], *_config_words(config, flags), *rest[first:]], None
    return words, None


def _config_words(config: Mapping[str, Any], flags: Container[str]) -> list[Word]:
    """Write a configuration file as flags (load_config_file of utils/argparse_utils.py)."""
    texts: list[str] = []
    for key, value in config.items():
        if value is False:
            off = f"no-{canonical(key)}"
            texts += [f"--{off}"] if off in flags else []
        elif value is True:
            texts.append(f"--{key}")
        elif isinstance(value, list):
            texts += [f"--{key}", *map(str, value)] if value else []
        elif isinstance(value, dict):
            texts += [f"--{key}", json.dumps(value)]
        elif value is not None:
            texts += [f"--{key}", str(value)]
    return [Word(text) for text in texts]
