"""The file that `preflight -f` is given."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from vllm_upgrade_operator.cli.exits import CommandError, Exit
from vllm_upgrade_operator.cli.manifest import read_spec, read_upgrade

if TYPE_CHECKING:
    from pathlib import Path

UPGRADE = """
apiVersion: vllmupgrade.dev/v1alpha1
kind: VLLMUpgrade
metadata: {name: up, namespace: serving}
spec:
  targetRef: {name: llm}
  candidate: {image: "x:1"}
"""
OTHER = "apiVersion: v1\nkind: Namespace\nmetadata: {name: serving}\n"


def written(directory: Path, text: str | bytes) -> str:
    path = directory / "upgrade.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_the_one_upgrade_of_a_file_is_read(tmp_path: Path) -> None:
    manifest = read_upgrade(written(tmp_path, f"{OTHER}---\n{UPGRADE}---\n"))
    assert manifest["metadata"]["name"] == "up"
    assert read_spec("f", manifest).target_ref.name == "llm"


def test_standard_input_is_a_file_too(monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = SimpleNamespace(buffer=io.BytesIO(UPGRADE.encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert read_upgrade("-")["metadata"]["namespace"] == "serving"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds 0 objects of kind VLLMUpgrade"),
        (OTHER, "holds 0 objects of kind VLLMUpgrade: give a file with exactly one"),
        (f"{UPGRADE}---\n{UPGRADE}", "holds 2 objects"),
        (UPGRADE.replace("v1alpha1", "v9"), "write vllmupgrade.dev/v1alpha1"),
        (UPGRADE.replace("name: up,", ""), "metadata.name is missing"),
        ("a: [", "is no YAML"),
        (b"\x80\x81", "is no YAML"),
        ("[" * 10_000, "is no YAML"),
        (b"#" * (1024 * 1024 + 1), "is larger than"),
    ],
)
def test_any_other_file_is_refused_with_what_would_be_right(
    tmp_path: Path, text: str | bytes, says: str
) -> None:
    with pytest.raises(CommandError) as refused:
        read_upgrade(written(tmp_path, text))
    assert says in str(refused.value)
    assert refused.value.code == Exit.USAGE


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "no.yaml")
    with pytest.raises(CommandError) as refused:
        read_upgrade(missing)
    assert str(refused.value) == f"{missing} cannot be read: No such file or directory"


def test_every_wrong_field_is_named_and_no_value_is_shown(tmp_path: Path) -> None:
    text = UPGRADE.replace("image:", "imagee:") + "  paused: s3cret\n"
    file = written(tmp_path, text)
    with pytest.raises(CommandError) as refused:
        read_spec(file, read_upgrade(file))
    message = str(refused.value)
    assert "spec.candidate.imagee: " in message
    assert "spec.paused: " in message
    assert "s3cret" not in message
