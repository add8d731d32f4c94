"""Pods that fail, hang or answer with errors: each has its own reason, in whatever phase."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.upgrade.world import World, calm
from vllm_upgrade_operator.upgrade.hanging import LOOKS
from vllm_upgrade_operator.vllm.causes import Cause

STALLED: dict[str, Any] = {
    "offered": 0.0,
    "finished": 0.0,
    "prompt_tokens": 0.0,
    "generation_tokens": 0.0,
    "running": 2.0,
    "waiting": 3.0,
    "kv_usage": 0.25,
}


def result(world: World) -> tuple[str, str]:
    found = next(c for c in world.status.conditions if c.type == "RolledBack")
    return found.reason, found.message


def hang() -> Any:
    return calm(0.0, **STALLED)


def in_canary() -> World:
    world = World()
    world.spec["strategy"]["steps"] = [{"replicas": 1, "hold": "300s"}]
    world.run_until("Canary")
    world.run(8)
    return world


def cause(*, may_heal: bool) -> Cause:
    return Cause(reason="SomeCause", sentence="it broke", advice="mend it", may_heal=may_heal)


def end(world: World, *, may_heal: bool) -> None:
    for pod in world.of("canary"):
        world.change(pod.name, exit_code=1, exit_reason="Error", end=cause(may_heal=may_heal))


@pytest.mark.parametrize("phase", ["Starting", "Canary", "Promoting", "Baking"])
def test_an_end_is_called_by_its_cause(phase: str) -> None:
    world = World(rolls_slowly=phase == "Promoting")
    world.run_until(phase)
    if phase in ("Promoting", "Baking"):
        world.rolls_slowly = False
        world.run_until("Baking")
        pods = world.of("llm")
    else:
        world.run(1)
        pods = world.of("canary")
    world.change(pods[0].name, exit_code=1, restarts=2, end=cause(may_heal=False))
    world.run_until("RolledBack")
    reason, message = result(world)
    assert reason == "SomeCause"
    assert f"{pods[0].name}: it broke (restarted 2 times): mend it" in message


def test_an_image_that_is_not_there_ends_it_at_once() -> None:
    world = World(start_seconds=1000.0)
    world.run_until("Starting")
    world.run(2)
    (pod,) = world.of("canary")
    words = {"waiting_reason": "ErrImagePull", "waiting_message": "x: manifest unknown"}
    world.change(pod.name, started_at=None, **words)
    world.run(1)
    assert world.status.phase == "RollingBack"
    assert world.status.progress.result_reason == "ImageNotFound"


def test_an_end_that_may_heal_is_waited_out_and_then_named() -> None:
    world = World(start_seconds=1000.0)
    world.run_until("Starting")
    world.run(2)
    end(world, may_heal=True)
    world.run(30)
    assert world.status.phase == "Starting"
    assert "the start before: it broke: mend it" in (world.status.message or "")
    world.run_until("RolledBack")
    assert result(world)[0] == "SomeCause"
    assert "60 s are given" in result(world)[1]


def test_an_end_that_healed_is_held_against_nobody() -> None:
    world = World()
    world.run_until("Starting")
    world.run(2)
    end(world, may_heal=True)
    world.run_until("Succeeded")


@pytest.mark.parametrize("state", ["evicted", "deleted"])
def test_a_pod_that_somebody_takes_away_is_replaced_and_verified_again(state: str) -> None:
    world = World()
    world.spec["strategy"]["steps"] = [{"replicas": 1, "hold": "30s"}]
    world.run_until("Canary")
    world.run(20)
    (pod,) = world.of("canary")
    if state == "evicted":
        gone = {"ready_at": None, "started_at": None, "exit_code": 137}
        world.change(pod.name, ended=True, **gone)
    else:
        del world.pods[pod.name]
    admissions = len([a for _, a in world.log if a == "Admit"])
    world.run(15)
    assert world.status.phase == "Canary"
    assert "anew" in (world.status.message or "")
    assert len([a for _, a in world.log if a == "Admit"]) == admissions + 1
    world.run_until("Succeeded")


def test_a_pod_that_is_taken_away_again_and_again_ends_it() -> None:
    world = World()
    world.spec["strategy"]["steps"] = [{"replicas": 1, "hold": "30s"}]
    world.run_until("Canary")
    for _ in range(20):
        world.run(20)
        for pod in world.of("canary"):
            del world.pods[pod.name]
    assert world.status.phase in ("RollingBack", "RolledBack")
    assert world.status.progress.result_reason == "NotSettled"


def test_a_flapping_pod_makes_no_progress_and_is_ended_by_a_limit() -> None:
    world = World()
    world.spec["strategy"]["steps"] = [{"replicas": 1, "hold": "10s"}]
    world.run_until("Canary")
    for _ in range(30):
        world.run(4)
        for pod in world.of("canary"):
            world.change(pod.name, ready_at=None, unready_since=world.now)
        world.start_seconds = world.now - min(p.created_at for p in world.pods.values()) + 2
        if world.status.phase != "Canary":
            break
    assert world.status.progress.result_reason == "NotSettled"
    assert "maxDuration (60s)" in (world.status.progress.result_message or "")


def test_a_hung_engine_is_found_though_no_request_ends() -> None:
    world = in_canary()
    world.candidate_delta = hang()
    world.run_until("RolledBack", 30)
    reason, message = result(world)
    assert reason == "EngineHung"
    assert "2 requests running and 3 waiting" in message


def test_it_takes_several_looks() -> None:
    world = in_canary()
    world.candidate_delta = hang()
    world.run(LOOKS - 1)
    assert world.status.phase == "Canary"
    world.candidate_delta = calm()
    world.run(20)
    assert world.status.phase == "Canary"
    assert world.status.progress.stalls == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"running": 0.0, "waiting": 0.0},
        {"prompt_tokens": 8.0},
        {"generation_tokens": 1.0},
        {"running": None},
        {"generation_tokens": None},
    ],
    ids=["idle", "a prompt", "a token", "not known", "no counter"],
)
def test_what_is_no_hang(changes: dict[str, Any]) -> None:
    world = in_canary()
    world.candidate_delta = calm(0.0, **{**STALLED, **changes})
    world.run(40)
    assert world.status.phase == "Canary"


def test_a_long_prefill_is_no_hang() -> None:
    world = in_canary()
    for step in range(40):
        world.candidate_delta = calm(0.0, **{**STALLED, "kv_usage": 0.1 + step * 0.02})
        world.run(1)
    assert world.status.phase == "Canary"


def test_looks_that_fail_neither_count_nor_begin_anew() -> None:
    world = in_canary()
    world.candidate_delta = hang()
    world.run(4)
    stalls = world.status.progress.stalls
    world.candidate_delta = None
    world.run(4)
    assert world.status.progress.stalls == stalls
    world.candidate_delta = hang()
    world.run_until("RolledBack", 20)
    assert result(world)[0] == "EngineHung"


def test_harm_wins_while_paused() -> None:
    world = in_canary()
    world.spec["paused"] = True
    world.run(5)
    assert "paused" in (world.status.message or "")
    world.candidate_delta = hang()
    world.run_until("RolledBack", 60)
    assert result(world)[0] == "EngineHung"


def test_a_pod_that_answers_nothing_but_errors_is_not_left_to_warm_up() -> None:
    world = World()
    world.spec["analysis"]["warmup"] = {"duration": "600s", "requests": 5}
    world.run_until("Canary")
    world.candidate_failed = 1000.0
    world.run(4)
    assert world.status.progress.result_reason == "RequestsFail"
    assert "with a server error" in (world.status.progress.result_message or "")


@pytest.mark.parametrize("mode", ["Observe", "Disabled"])
def test_errors_that_are_not_to_act_do_not(mode: str) -> None:
    world = in_canary()
    world.spec["analysis"]["checks"] = [{"name": "errors", "mode": mode}]
    world.candidate_failed = 1000.0
    world.run(20)
    assert world.status.phase == "Canary"


def test_some_errors_are_left_to_the_check() -> None:
    world = in_canary()
    world.candidate_failed = 60.0
    world.run(20)
    assert world.status.phase == "Canary"


def test_a_wrong_version_does_not_wait_for_the_other_pods() -> None:
    world = World(candidate_version="0.28.0", most_canary_pods=1)
    world.spec["strategy"]["steps"] = [{"replicas": 2, "hold": "10s"}]
    world.run_until("RolledBack", 20)
    assert result(world)[0] == "VersionMismatch"
