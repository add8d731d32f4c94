"""Verbs and pause on a real control plane: what a person asks for happens once, and only then."""

from __future__ import annotations

import asyncio
import copy
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.kit import DOMAIN, condition, quick_spec

if TYPE_CHECKING:
    from tests.cluster.kit import Serving

pytestmark = pytest.mark.cluster

PINNED_TO_V1 = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
ABORT, APPROVE, PROMOTE, RETRY = (
    f"{DOMAIN}/{verb}" for verb in ("abort", "approve", "promote", "retry")
)
BY = {f"{DOMAIN}/approved-by": "admin"}
LONG = [{"replicas": 1, "hold": "100s"}]


async def begin(serving: Serving, *, rate: float = 20, **strategy: Any) -> dict[str, Any]:
    """Deploy two pods with traffic, apply an upgrade, and give the target as it was."""
    await serving.deploy(env=PINNED_TO_V1, replicas=2)
    if rate:
        await serving.load(rate)
    await serving.upgrade(strategy={**quick_spec()["strategy"], **strategy})
    return dict((await serving.target())["spec"])


async def attempt(serving: Serving) -> str:
    """Give the attempt's id, as soon as it has begun."""

    async def there() -> bool:
        return "attempt" in await serving.status()

    await serving.until(there, "an attempt")
    return str((await serving.status())["attempt"]["id"])


async def event(serving: Serving, reason: str) -> str:
    """Wait for an Event on the upgrade and give its note."""

    async def there() -> bool:
        return any(r == reason for r, _, _ in await serving.events())

    await serving.until(there, f"an Event {reason}")
    return next(note for r, _, note in await serving.events() if r == reason)


async def message_has(serving: Serving, *words: str) -> None:
    async def there() -> bool:
        message = (await serving.status()).get("message", "")
        return all(word in message for word in words)

    await serving.until(there, f"a message with {words}")


async def admitted(serving: Serving) -> None:
    async def there() -> bool:
        return bool((await serving.status()).get("canary", {}).get("admitted"))

    await serving.until(there, "the canary in the traffic")


async def is_as_before(serving: Serving, before: dict[str, Any]) -> None:
    after = (await serving.target())["spec"]
    assert after["template"] == before["template"]
    assert after["replicas"] == before["replicas"]
    assert await serving.canaries() == []


@pytest.mark.parametrize("during", ["Starting", "Canary", "Promoting", "Baking"])
async def test_abort_puts_everything_back(serving: Serving, during: str) -> None:
    steps = LONG if during == "Canary" else [{"replicas": 1, "hold": "2s"}]
    before = await begin(serving, steps=steps, bake="100s")
    await serving.phase(during)
    await serving.annotate({ABORT: "1"})
    await serving.phase("RolledBack")
    status = await serving.status()
    assert condition(status, "Finished") == ("True", "Aborted")
    assert condition(status, "Promoted") == ("False", "Aborted")
    assert "aborted by a person" in status["message"]
    assert status["handledActions"]["aborts"] == ["1"]
    await is_as_before(serving, before)


async def test_abort_beats_an_approval_that_comes_with_it_and_a_pause(serving: Serving) -> None:
    steps = [{"replicas": 1, "hold": "2s", "approval": True}]
    before = await begin(serving, steps=steps)
    await message_has(serving, "waits for approval")
    token = f"{await attempt(serving)}.1"
    assert f"{APPROVE}={token}" in (await serving.status())["message"]
    await serving.set_spec({"paused": True})
    await serving.annotate({APPROVE: token, ABORT: "1", **BY})
    await serving.phase("RolledBack")
    assert condition(await serving.status(), "Finished") == ("True", "Aborted")
    await serving.annotate({ABORT: "2"})
    note = await event(serving, "AbortIgnored")
    assert "nothing is left to abort" in note
    await is_as_before(serving, before)


async def test_retry_after_an_abort_and_old_tokens_that_come_back(serving: Serving) -> None:
    await begin(serving, steps=LONG)
    await serving.phase("Canary")
    first = await attempt(serving)
    await serving.annotate({ABORT: "one"})
    await serving.phase("RolledBack")
    await serving.annotate({RETRY: "0123abcd-1"})
    assert first in await event(serving, "RetryIgnored")
    assert (await serving.status())["phase"] == "RolledBack"

    quick = [{"replicas": 1, "hold": "3s"}]
    await serving.set_spec({"strategy": {"steps": quick}})
    await serving.annotate({RETRY: first, ABORT: "two"})
    # An abort beside a retry: the abort has nothing to end, and what is begun is not ended by it.
    await serving.until(lambda: _is_attempt(serving, 2), "a second attempt")
    await serving.annotate({ABORT: "one", RETRY: first})
    await serving.phase("Succeeded")
    assert await attempt(serving) == first[: first.rindex("-")] + "-2"
    # What a manifest in Git still says is applied once more: nothing comes of it.
    await serving.annotate({ABORT: None, RETRY: None})
    await serving.annotate({ABORT: "two", RETRY: first})
    await asyncio.sleep(3)
    status = await serving.status()
    assert (status["phase"], status["attempt"]["number"]) == ("Succeeded", 2)


async def _is_attempt(serving: Serving, number: int) -> bool:
    status = await serving.status()
    return bool(status["attempt"]["number"] == number)


async def test_an_abort_in_the_manifest_of_a_new_upgrade_is_an_old_one(serving: Serving) -> None:
    await serving.deploy(env=PINNED_TO_V1, replicas=2)
    await serving.load(20)
    await serving.upgrade(annotations={ABORT: "old"})
    await serving.phase("Succeeded")


async def test_only_the_right_approval_counts(serving: Serving) -> None:
    await begin(serving, steps=[{"replicas": 1, "hold": "2s", "approval": True}])
    await message_has(serving, "waits for approval")
    assert condition(await serving.status(), "Reconciling") == ("True", "WaitingForApproval")
    right = f"{await attempt(serving)}.1"
    await serving.annotate({APPROVE: "0123abcd-1.1", **BY})
    assert right in await event(serving, "ApproveIgnored")
    assert (await serving.status())["phase"] == "Canary"
    await serving.annotate({APPROVE: right})
    await serving.phase("Succeeded")
    status = await serving.status()
    assert status["handledActions"]["approve"] == right
    assert "step 1 approved by admin" in [e["message"] for e in status["timeline"]]


async def test_promote_skips_the_rest_of_the_steps(serving: Serving) -> None:
    await begin(serving, steps=LONG)
    await admitted(serving)
    await serving.annotate({PROMOTE: "0123abcd-1", **BY})
    right = await attempt(serving)
    assert right in await event(serving, "PromoteIgnored")
    await serving.annotate({PROMOTE: right})
    await serving.phase("Succeeded")
    status = await serving.status()
    said = next(e["message"] for e in status["timeline"] if e["reason"] == "PromotedByPerson")
    assert "promoted by admin; in step 1 of 1, with verdict" in said
    assert {p["spec"]["containers"][0]["image"] for p in await serving.pods("app=llm")} == {
        "sim/vllm:0.29.0"
    }


async def test_without_traffic_a_person_may_decide(serving: Serving) -> None:
    await serving.deploy(env=PINNED_TO_V1, replicas=2)
    analysis = {**quick_spec()["analysis"], "maxDuration": "6s"}
    await serving.upgrade(analysis=analysis)
    await serving.phase("Halted")
    await serving.annotate({PROMOTE: await attempt(serving), **BY})
    await serving.phase("Succeeded", passing=("Halted",))
    reasons = [e["reason"] for e in (await serving.status())["timeline"]]
    assert "PromotedByPerson" in reasons


async def test_manual_promotion_waits_for_a_person(serving: Serving) -> None:
    before = await begin(serving, steps=[{"replicas": 1, "hold": "2s"}], promotion="Manual")
    token = await attempt(serving)
    await message_has(serving, "waits to be promoted", f"{PROMOTE}={token}", "; until ")
    await is_template(serving, before)
    await serving.annotate({PROMOTE: token, **BY})
    await serving.phase("Succeeded")


async def is_template(serving: Serving, before: dict[str, Any]) -> None:
    assert (await serving.target())["spec"]["template"] == before["template"]


@pytest.mark.parametrize(
    ("strategy", "reason"),
    [
        ({"steps": [{"replicas": 1, "hold": "1s", "approval": True}]}, "ApprovalTimeout"),
        ({"steps": [{"replicas": 1, "hold": "1s"}], "promotion": "Manual"}, "PromotionTimeout"),
    ],
)
async def test_nobody_answers(serving: Serving, strategy: dict[str, Any], reason: str) -> None:
    before = await begin(serving, **strategy, haltTimeout="4s")
    await serving.phase("RolledBack")
    status = await serving.status()
    assert condition(status, "RolledBack") == ("True", reason)
    assert "within spec.strategy.haltTimeout (4s)" in status["message"]
    await is_as_before(serving, before)


async def test_a_halt_that_nobody_ends_is_rolled_back(serving: Serving) -> None:
    await serving.deploy(env=PINNED_TO_V1, replicas=2)
    before = dict((await serving.target())["spec"])
    spec = quick_spec()
    await serving.upgrade(
        strategy={**spec["strategy"], "haltTimeout": "4s"},
        analysis={**spec["analysis"], "maxDuration": "6s"},
    )
    await serving.phase("Halted")
    assert "rolled back at" in (await serving.status())["message"]
    await serving.phase("RolledBack", passing=("Halted",))
    status = await serving.status()
    assert condition(status, "RolledBack") == ("True", "Inconclusive")
    assert "nobody decided within spec.strategy.haltTimeout (4s)" in status["message"]
    await is_as_before(serving, before)


async def test_a_pause_holds_and_a_resume_goes_on(serving: Serving) -> None:
    before = await begin(serving, steps=[{"replicas": 1, "hold": "3s"}])
    await admitted(serving)
    await serving.set_spec({"paused": True})
    await message_has(
        serving,
        "paused by spec.paused in step 1 of 1, verdict Pass",
        "else it is rolled back at",
    )
    await asyncio.sleep(3)
    status = await serving.status()
    assert status["phase"] == "Canary"
    assert condition(status, "Reconciling") == ("True", "Paused")
    await is_template(serving, before)
    await serving.set_spec({"paused": False})
    await serving.phase("Succeeded")


async def test_a_pause_from_the_beginning_starts_nothing(serving: Serving) -> None:
    await serving.deploy(env=PINNED_TO_V1, replicas=2)
    await serving.upgrade(paused=True)
    await message_has(serving, "paused by spec.paused before anything was started")
    await asyncio.sleep(2)
    assert await serving.canaries() == []
    assert (await serving.status())["phase"] == "Pending"
    await serving.set_spec({"paused": False})
    await serving.phase("Canary")


async def test_a_pause_that_nobody_ends_is_rolled_back(serving: Serving) -> None:
    before = await begin(serving, rate=0, steps=LONG, haltTimeout="5s")
    await serving.phase("Canary")
    await serving.set_spec({"paused": True})
    await serving.phase("RolledBack")
    assert condition(await serving.status(), "RolledBack") == ("True", "PauseTimeout")
    await is_as_before(serving, before)


@pytest.mark.parametrize("waiting", ["paused", "approval"])
async def test_harm_wins_while_a_person_is_waited_for(serving: Serving, waiting: str) -> None:
    await serving.deploy(env=PINNED_TO_V1, replicas=2)
    before = dict((await serving.target())["spec"])
    await serving.load(20)
    spec = quick_spec()
    candidate = copy.deepcopy(spec["candidate"])
    candidate["env"].append({"name": "SIM_FAULT_MAX_QUEUED_REQS", "value": "0@20"})
    steps = [{"replicas": 1, "hold": "1s", "approval": True}]
    await serving.upgrade(candidate=candidate, strategy={**spec["strategy"], "steps": steps})
    # A pause before that would keep it out, and nobody would be harmed.
    await admitted(serving)
    if waiting == "paused":
        await serving.set_spec({"paused": True})
    await message_has(
        serving, "paused by spec.paused" if waiting == "paused" else "waits for approval"
    )
    await serving.phase("RolledBack")
    status = await serving.status()
    assert condition(status, "RolledBack") == ("True", "CheckFailed")
    await is_as_before(serving, before)
