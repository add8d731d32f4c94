"""An operator that is killed after any of its writes goes on to the same end.

A decision is several writes: its actions, then its status. Each whole upgrade is run once to count
them, then once for every write with a kill right after it: what the decision still wanted, its
status too, is lost, and a new process begins with what the API server has.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.upgrade.world import NEW, OLD, World, calm
from vllm_upgrade_operator.upgrade.names import ABORT, PROMOTE, RETRY, ROLE

if TYPE_CHECKING:
    from collections.abc import Callable


def promoted(world: World) -> None:
    world.run_until("Succeeded")


def harmed(world: World) -> None:
    world.run_until("Canary")
    world.candidate_delta = calm(errors=8.0)
    world.run_until("RolledBack")


def harmed_while_promoting(world: World) -> None:
    world.run_until("Promoting")
    world.candidate_delta = calm(errors=8.0)
    world.run_until("RolledBack")


def aborted_while_baking(world: World) -> None:
    world.run_until("Baking")
    world.annotations[ABORT] = "1"
    world.run_until("RolledBack")


def aborted_and_retried(world: World) -> None:
    world.run_until("Canary")
    world.annotations[ABORT] = "1"
    world.run_until("RolledBack")
    assert world.status.attempt is not None
    world.annotations[RETRY] = world.status.attempt.id
    world.run_until("Canary")
    world.annotations[PROMOTE] = world.status.attempt.id
    world.run_until("Succeeded")


def deleted(world: World) -> None:
    world.run_until("Promoting")
    world.deleting = True
    world.run_until("RolledBack")


def superseded(world: World) -> None:
    world.run_until("Canary")
    world.spec["candidate"]["version"] = None
    world.run_until("RolledBack")
    world.run_until("Succeeded")


STORIES = [
    promoted,
    harmed,
    harmed_while_promoting,
    aborted_while_baking,
    aborted_and_retried,
    deleted,
    superseded,
]


def quick() -> World:
    """Short holds: what is killed are writes, and looks have none of their own."""
    world = World(replicas=2, start_seconds=1.0)
    world.spec["strategy"] |= {"steps": [{"replicas": 1, "hold": "3s"}], "bake": "3s"}
    world.spec["analysis"] |= {"minRequests": 10, "warmup": {"duration": "0s", "requests": 0}}
    return world


def end(world: World) -> dict[str, Any]:
    """What a user finds when it is over."""
    world.run(5)
    assert world.status.attempt is not None
    return {
        "phase": str(world.status.phase),
        "phases": world.phases,
        "attempts": world.status.attempt.number,
        "template": copy.deepcopy(world.template),
        "canary": (world.canary_replicas, len(world.of("canary"))),
        "kept": (world.known_good, world.candidate),
        "roles": {p.labels.get(ROLE) for p in world.of("llm")},
        "handled": world.status.handled_actions,
        "reason": world.status.progress.result_reason,
    }


@pytest.mark.parametrize("story", STORIES)
def test_a_kill_after_any_write_changes_nothing_in_the_end(
    story: Callable[[World], None],
) -> None:
    whole = quick()
    story(whole)
    expected = end(whole)
    assert whole.writes > 20
    assert expected["canary"] == (None, 0)
    assert expected["kept"] == (None, None)
    assert expected["template"] in (OLD, NEW)
    for write in range(1, whole.writes + 1):
        world = quick()
        world.killed_after = write
        story(world)
        assert end(world) == expected, f"killed after write {write} of {whole.writes}"


@pytest.mark.parametrize("every", [2, 3, 5])
def test_an_operator_that_is_killed_again_and_again_makes_progress(every: int) -> None:
    """A decision of `every` or more writes is cut short each time, but for what it has done."""
    world = quick()
    world.killed_every = every
    world.run_until("Succeeded", limit=2000)
    assert world.template == NEW
