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
    assert conflict(MINE, [other]) == (other if waits else None)


def test_of_two_made_in_the_same_second_one_goes_first() -> None:
    one, two = rival("one"), rival("two")
    assert [conflict(one, [two]), conflict(two, [one])] == [None, one]


def test_of_two_that_both_began_the_younger_gives_way() -> None:
    one, two = rival("one", phase="Preflight"), rival("two", phase="Preflight")
    assert [conflict(one, [two]), conflict(two, [one])] == [None, one]


def test_one_that_has_begun_is_waited_for_even_by_an_older_one() -> None:
    assert conflict(rival("one"), [rival("two", phase="Preflight")]) is not None
    begun = rival("one", phase="Preflight")
    assert conflict(begun, [rival("two", phase="Starting")]) is not None
    assert conflict(begun, [rival("two")]) is None


_UNSEEN, _PENDING, _PREFLIGHT, _BEGUN = range(4)


def test_no_order_of_looking_and_writing_lets_two_go_on() -> None:
    """Every interleaving of two upgrades that look, then write what they decided on it."""
    names = ["", "Pending", "Preflight", "Starting"]

    def step(phases: tuple[str, str], who: int, seen: tuple[str, str]) -> tuple[str, str]:
        mine = rival("ab"[who], phase=seen[who])
        other = rival("ab"[1 - who], phase=seen[1 - who])
        first = conflict(mine, [other])
        at = names.index(seen[who])
        if at == _BEGUN:
            return phases
        if at == _UNSEEN:
            new = "Pending"
        elif first is None:
            new = names[at + 1]
        else:
            new = "Pending"
        return (new, phases[1]) if who == 0 else (phases[0], new)

    start = ("", "")
    # Of each: what it has seen and not written yet, or None.
    todo: list[tuple[tuple[str, str], tuple[tuple[str, str] | None, ...]]] = [(start, (None, None))]
    done = set()
    ends = set()
    while todo:
        state = todo.pop()
        if state in done:
            continue
        done.add(state)
        phases, seen = state
        for who in (0, 1):
            held = seen[who]
            if held is None:
                after = (phases, seen[1]) if who == 0 else (seen[0], phases)
                todo.append((phases, after))
            else:
                left = (None, seen[1]) if who == 0 else (seen[0], None)
                todo.append((step(phases, who, held), left))
        ends.add(phases)
    assert ("Starting", "Starting") not in ends
    assert ("Starting", "Pending") in ends
