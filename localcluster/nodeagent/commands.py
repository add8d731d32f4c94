"""The command line of a container, and the programs that a vLLM image brings."""

from __future__ import annotations

import hashlib
import shlex
from typing import TYPE_CHECKING, Any

from localcluster.nodeagent.expand import expand

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from localcluster.nodeagent.images import Image

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def fill(text: str, words: Mapping[str, str]) -> str:
    """Replace `{python}`, `{root}` and `{pod_ip}` in a text of an image map."""
    for name, value in words.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def command_line(
    image: Image, container: Mapping[str, Any], env: Mapping[str, str], words: Mapping[str, str]
) -> list[str]:
    """What a container runs: its `command` or else the image's entrypoint, then its `args`."""
    args = [expand(word, env) for word in container.get("args", [])]
    if container.get("command"):
        return [expand(word, env) for word in container["command"]] + args
    return [*(fill(word, words) for word in image.command), *args, *host_words(image, words)]


def host_words(image: Image, words: Mapping[str, str]) -> list[str]:
    """The words that make the image's program listen on the pod's address alone."""
    return [image.host_flag, words["pod_ip"]] if image.host_flag else []


def write_programs(directory: Path, image: Image, words: Mapping[str, str]) -> Path:
    """Write the programs of a vLLM image; the directory that goes first on the PATH."""
    entry = shlex.join(fill(word, words) for word in image.command)
    host = shlex.join(host_words(image, words))
    python = shlex.quote(words["python"])
    programs = {
        "vllm": '[ "$1" = serve ] && shift\n'
        'case "$1" in -*|"") ;; *) set -- --model "$@" ;; esac\n'
        f'exec {entry} "$@" {host}\n',
        "python3": 'if [ "$1 $2" = "-m vllm.entrypoints.openai.api_server" ]; then\n'
        f'  shift 2\n  exec {entry} "$@" {host}\nfi\nexec {python} "$@"\n',
    }
    programs["python"] = programs["python3"]
    key = hashlib.sha256(repr(programs).encode()).hexdigest()[:16]
    place = directory / key
    place.mkdir(parents=True, exist_ok=True)
    for name, text in programs.items():
        program = place / name
        if not program.exists():
            fresh = program.with_suffix(".new")
            fresh.write_text(f"#!/bin/sh\n{text}")
            fresh.chmod(0o755)
            fresh.replace(program)
    return place
