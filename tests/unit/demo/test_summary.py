"""What the demonstration says at its end."""

from __future__ import annotations

from typing import Any

from localcluster.demo.__main__ import _asked
from localcluster.demo.summary import Ended, checks, outcomes, summary


def pod(**counts: int) -> dict[str, Any]:
    return {"outcomes": {"ok": 0, "rejected": 0, "cut": 0, **counts}}


REPORT = {
    "dropped": 1,
    "unserved": 2,
    "pods": {
        "llama-5646cf9675-9lqv2": pod(ok=5),
        "llama-5646cf9675-cm2kf": pod(ok=6, cut=1),
        "llama-canary-6b78fc55fb-c67db": pod(ok=2, rejected=3),
    },
}


def test_requests_are_told_apart_by_the_side_that_got_them() -> None:
    assert outcomes(REPORT, canary=False) == {"ok": 11, "rejected": 0, "cut": 1}
    assert outcomes(REPORT, canary=True) == {"ok": 2, "rejected": 3, "cut": 0}


def test_the_summary_says_how_each_upgrade_ended_and_what_users_saw() -> None:
    good = Ended("a", "Succeeded", "Succeeded", "promoted", 12.3)
    bad = Ended("b", "Halted", "RolledBack", "nobody knows", 4.0)
    assert (good.right, bad.right) == (True, False)
    text = summary([good, bad], REPORT)
    assert "a: Succeeded after 12 s\n    promoted" in text
    assert "b: Halted (it should have been RolledBack) after 4 s\n    nobody knows" in text
    assert "stable and promoted pods: 11 ok, 1 cut" in text
    assert "canary pods: 2 ok, 3 rejected" in text
    assert "3 requests could not be sent" in text


def test_without_requests_it_says_so() -> None:
    text = summary([], {})
    assert "canary pods: nothing" in text
    assert "could not be sent" not in text


def test_checks_are_a_table() -> None:
    check = {
        "name": "queue",
        "canary": "7",
        "stable": "12",
        "limit": "64",
        "requests": 113,
        "verdict": "Pass",
    }
    assert checks({"checks": [check]}).splitlines() == [
        "CHECK   CANARY   STABLE   LIMIT   REQUESTS   VERDICT",
        "queue   7        12       64      113        Pass",
    ]


def test_an_approval_is_given_for_the_attempt_and_step_that_ask_for_it() -> None:
    status: dict[str, Any] = {
        "attempt": {"id": "8a18f001-1"},
        "step": {"index": 1},
        "conditions": [{"type": "Reconciling", "reason": "Canary"}],
    }
    assert _asked(status) == ""
    status["conditions"][0]["reason"] = "WaitingForApproval"
    assert _asked(status) == "8a18f001-1.2"
    assert _asked({}) == ""
