"""The VLLMUpgrade in a file, as `kubectl apply -f` would take it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from vllm_upgrade_operator.api.v1alpha1 import GROUP, KIND, VERSION, VLLMUpgradeSpec
from vllm_upgrade_operator.cli.exits import CommandError

_LIMIT_BYTES = 1024 * 1024


def read_upgrade(file: str) -> dict[str, Any]:
    """Read the one VLLMUpgrade of a file; other objects in it are passed over.

    Args:
        file: Its path; `-` is standard input.

    Raises:
        CommandError: There is no such file, or not exactly one VLLMUpgrade in it, or its spec is
            not one: the text names the field.
    """
    found = [d for d in _documents(file) if isinstance(d, dict) and d.get("kind") == KIND]
    if len(found) != 1:
        raise CommandError(
            f"{file} holds {len(found)} objects of kind {KIND}: give a file with exactly one"
        )
    (manifest,) = found
    wanted = f"{GROUP}/{VERSION}"
    if manifest.get("apiVersion") != wanted:
        raise CommandError(f"{file}: apiVersion is {manifest.get('apiVersion')!r}: write {wanted}")
    metadata = manifest.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise CommandError(f"{file}: metadata.name is missing: give the upgrade a name")
    return manifest


def read_spec(file: str, manifest: dict[str, Any]) -> VLLMUpgradeSpec:
    """Read its spec.

    Raises:
        CommandError: It is not one; all fields at fault are named.
    """
    try:
        return VLLMUpgradeSpec.model_validate(manifest.get("spec"))
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(p) for p in ('spec', *e['loc']))}: {e['msg']}"
            for e in error.errors(include_url=False, include_input=False)
        )
        raise CommandError(f"{file}: {problems}") from error


def _documents(file: str) -> list[Any]:
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {error.strerror or error}") from error
    if len(data) > _LIMIT_BYTES:
        raise CommandError(f"{file} is larger than {_LIMIT_BYTES} bytes: no VLLMUpgrade is")
    try:
        return list(yaml.safe_load_all(data))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise CommandError(f"{file} is no YAML: {' '.join(str(error).split())}") from error
