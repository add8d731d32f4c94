"""The frame of `vllm-upgrade`: help, version, how it connects, and what it says when it cannot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from vllm_upgrade_operator.cli import __main__ as entry
from vllm_upgrade_operator.cli.command import Command
from vllm_upgrade_operator.cli.connection import add_connection, connected, namespace_of, unanswered
from vllm_upgrade_operator.cli.exits import CommandError, Exit
from vllm_upgrade_operator.cluster.client import ApiError

if TYPE_CHECKING:
    import argparse
    from pathlib import Path


def kubeconfig(directory: Path) -> Path:
    """Two contexts, one of them with a namespace."""
    path = directory / "config"
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "one",
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [
                    {"name": "one", "context": {"cluster": "c", "user": "u"}},
                    {"name": "two", "context": {"cluster": "c", "user": "u", "namespace": "n"}},
                ],
            }
        )
    )
    return path


def options(**given: Any) -> argparse.Namespace:
    defaults: dict[str, Any] = {"kubeconfig": None, "context": None, "namespace": None}
    return SimpleNamespace(**(defaults | given))  # type: ignore[return-value]


def command(run: Any) -> Command:
    return Command(name="look", summary="s", description="d", configure=add_connection, run=run)


def test_help_says_what_there_is_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        entry.main(["--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert "nothing in the cluster is\ncreated or changed" in said
    assert "3  it could not be told" in said


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        entry.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == "vllm-upgrade 0.1.0\n"


def test_as_a_plugin_it_has_the_name_that_was_typed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/kubectl-vllm_upgrade"])
    with pytest.raises(SystemExit):
        entry.main(["--version"])
    assert capsys.readouterr().out == "kubectl vllm-upgrade 0.1.0\n"


@pytest.mark.parametrize("arguments", [[], ["no-such"], ["look", "--no-such"]])
def test_what_it_does_not_know_is_usage(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        entry.main(arguments)
    assert ended.value.code == Exit.USAGE


def test_a_command_gives_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "COMMANDS", (command(lambda _: Exit.FOUND),))
    assert entry.main(["look", "--context", "x"]) == 1


def test_what_goes_wrong_is_one_line_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: argparse.Namespace) -> Exit:
        raise CommandError("no such file", Exit.UNKNOWN)

    monkeypatch.setattr(entry, "COMMANDS", (command(fail),))
    assert entry.main(["look"]) == 3
    shown = capsys.readouterr()
    assert shown.err == "vllm-upgrade: error: no such file\n"
    assert shown.out == ""


def test_whoever_stops_reading_gets_no_traceback(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("nothing of vLLM")
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "vllm_upgrade_operator.cli", "inspect", "--log", str(log)],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "default"),
        ({"context": "two"}, "n"),
        ({"context": "two", "namespace": "mine"}, "mine"),
    ],
)
def test_the_namespace_is_the_flags_or_else_the_contexts(
    tmp_path: Path, given: dict[str, str], expected: str
) -> None:
    found = options(kubeconfig=str(kubeconfig(tmp_path)), **given)
    assert namespace_of(found) == expected


async def test_a_context_that_is_not_there_is_named(tmp_path: Path) -> None:
    given = options(kubeconfig=str(kubeconfig(tmp_path)), context="three")
    with pytest.raises(CommandError, match="three") as refused:
        namespace_of(given)
    assert refused.value.code == Exit.USAGE
    with pytest.raises(CommandError, match=r"three.*--context"):
        async with connected(given):
            pass


@pytest.mark.parametrize("text", [None, "{", "[]", "kind: Config"])
async def test_a_kubeconfig_that_cannot_be_used_says_so(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "broken"
    if text is not None:
        path.write_text(text)
    with pytest.raises(CommandError, match=r"kubeconfig cannot be used: .*name a kubeconfig"):
        async with connected(options(kubeconfig=str(path))):
            pass


async def test_a_cluster_that_does_not_answer_is_told_as_that(tmp_path: Path) -> None:
    async with connected(options(kubeconfig=str(kubeconfig(tmp_path)))) as client:
        with pytest.raises(ApiError) as failed:
            await client.get("/version")
    told = unanswered(failed.value)
    assert told.code == Exit.UNKNOWN
    assert str(told).startswith("cannot reach the API server: GET /version: ")
    assert "kubectl cluster-info" in str(told)
    assert "log in again" in str(unanswered(ApiError(401, "Unauthorized", "Unauthorized")))
    assert "403 Forbidden: no" in str(unanswered(ApiError(403, "Forbidden", "no")))
