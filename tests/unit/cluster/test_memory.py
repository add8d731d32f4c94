from __future__ import annotations

from vllm_upgrade_operator.cluster.client import ApiError
from vllm_upgrade_operator.cluster.memory import Memory

POLICY = ApiError(403, "Forbidden", "denied by a policy")


def test_only_a_refusal_that_lasts_is_one() -> None:
    memory = Memory()
    for _ in range(4):
        memory.action_failed("EnsureCanary", POLICY)
    assert memory.refused is None
    memory.action_failed("EnsureCanary", POLICY)
    assert memory.refused is not None
    assert memory.refused.message == "the API server refuses EnsureCanary: denied by a policy"
    memory.actions_done()
    assert memory.refused is None


def test_a_server_in_trouble_refuses_nothing() -> None:
    memory = Memory()
    for status in (0, 429, 500, 503) * 3:
        memory.action_failed("EnsureCanary", ApiError(status, "", ""))
    assert memory.refused is None


def test_somebody_who_writes_at_the_same_time_refuses_nothing() -> None:
    memory = Memory()
    for _ in range(9):
        memory.action_failed("EnsureCanary", ApiError(409, "Conflict", "modified"))
    assert memory.refused is None
    for _ in range(9):
        memory.action_failed("EnsureCanary", ApiError(409, "AlreadyExists", "in the way"))
    assert memory.refused is not None


def test_pods_that_are_gone_are_forgotten() -> None:
    memory = Memory()
    memory.process("a", 1.0).version = "0.29.0"
    memory.keep(["b"])
    assert memory.process("a", 1.0).version is None


def test_a_process_is_known_by_its_start() -> None:
    memory = Memory()
    memory.process("a", 1.0).version = "0.29.0"
    assert memory.process("a", 1.0).version == "0.29.0"
    assert memory.process("a", 2.0).version is None
