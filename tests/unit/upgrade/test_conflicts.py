from __future__ import annotations

import pytest

from vllm_upgrade_operator.upgrade.conflicts import Rival, conflict


def rival(name: str, created: str = "2026-01-02", phase: str = "", target: str = "llm") -> Rival:
    return Rival(name=name, uid=f"uid-{name}", created=created, target=target, phase=phase)


MINE = rival("mine")


@pytest.mark.parametrize(
    ("other", "waits"),
    [
        (rival("mine"), False),
        (rival("older", "2026-01-01"), True),
        (rival("older", "2026-01-01", "Pending"), True),
        (rival("younger", "2026-01-03", "Pending"), False),
        (rival("younger", "2026-01-03", "Canary"), True),
        (rival("halted", "2026-01-01", "Halted"), True),
        (rival("done", "2026-01-01", "Succeeded"), False),
        (rival("undone", "2026-01-01", "RolledBack"), False),
        (rival("refused", "2026-01-01", "Blocked"), False),
        (rival("elsewhere", "2026-01-01", "Canary", target="other"), False),
    ],
)
def test_who_goes_first(other: Rival, waits: bool) -> None:  # noqa: FBT001 - a table
    assert conflict(MINE, [other]) == (other.name if waits else None)


def test_of_two_made_in_the_same_second_one_goes_first() -> None:
    one, two = rival("one"), rival("two")
    assert [conflict(one, [two]), conflict(two, [one])] == [None, "one"]
