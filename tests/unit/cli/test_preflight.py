"""What `vllm-upgrade preflight` makes of what the checks found."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.upgrade.preflight.asking import seen
from vllm_upgrade_operator.api.v1alpha1 import PreflightCheck, PreflightResult
from vllm_upgrade_operator.cli import preflight
from vllm_upgrade_operator.cli.exits import Exit
from vllm_upgrade_operator.upgrade.conflicts import Rival

if TYPE_CHECKING:
    from vllm_upgrade_operator.upgrade.observation import Observation


def checks(*results: str) -> tuple[PreflightCheck, ...]:
    return tuple(
        PreflightCheck(name=f"c{i}", result=PreflightResult(r), reason="R", message=f"m{i}")
        for i, r in enumerate(results)
    )


@pytest.mark.parametrize(
    ("results", "code"),
    [
        (("Pass",), Exit.OK),
        (("Pass", "Warn"), Exit.OK),
        (("Warn", "Unknown"), Exit.UNKNOWN),
        (("Unknown", "Block"), Exit.FOUND),
    ],
)
def test_the_exit_code_is_that_of_the_worst(results: tuple[str, ...], code: Exit) -> None:
    assert preflight.exit_of(checks(*results)) == code


def test_the_table_has_what_stands_against_it_first() -> None:
    text = preflight.as_table(checks("Pass", "Warn", "Unknown", "Block", "Warn"))
    lines = text.splitlines()
    assert lines[0].split() == ["RESULT", "CHECK", "MESSAGE"]
    assert [line.split()[:2] for line in lines[1:6]] == [
        ["Block", "c3"],
        ["Unknown", "c2"],
        ["Warn", "c1"],
        ["Warn", "c4"],
        ["Pass", "c0"],
    ]
    assert lines[-1] == "1 Block, 1 Unknown, 2 Warn, 1 Pass: it would not start"
    assert preflight.as_table(checks("Pass")).endswith("1 Pass: it would start")


def test_what_comes_from_a_cluster_cannot_steer_the_terminal() -> None:
    evil = PreflightCheck(
        name="c", result=PreflightResult.WARN, reason="R", message="a\x1b[2Jb\nc\rd"
    )
    text = preflight.as_table((evil,))
    assert "a [2Jb c d" in text
    assert "\x1b" not in text


def observed(**changes: Any) -> Observation:
    return replace(seen(), **changes)


def test_json_has_everything() -> None:
    o = observed()
    found = preflight.examine(o, 0.0)
    read = json.loads(preflight.as_json(o, found))
    assert (read["namespace"], read["upgrade"], read["target"]) == ("serving", "up", "llm")
    assert read["wouldStart"] is True
    assert len(read["checks"]) == len(found)
    assert set(read["checks"][0]) == {"name", "result", "reason", "message"}


def test_an_upgrade_that_goes_first_is_named() -> None:
    rival = Rival(name="first", uid="u", created="2026", target="llm", phase="Canary")
    found = preflight.examine(observed(conflict=rival), 0.0)
    assert (found[0].name, found[0].result) == ("conflict", "Warn")
    assert "upgrade first has the same target" in found[0].message


def test_a_target_that_is_not_there_blocks() -> None:
    found = preflight.examine(observed(target=None), 0.0)
    assert [c.reason for c in found] == ["TargetNotFound"]
    assert preflight.exit_of(found) == Exit.FOUND
