"""Edits under way, on a real control plane: of an upgrade, of its target, and rivals."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from localcluster import build
from tests.cluster import stages
from tests.cluster.kit import DOMAIN, Serving, condition, quick_spec, run, wide
from vllm_upgrade_operator.cluster import paths

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.cluster

ABORT = f"{DOMAIN}/abort"
VLLM = "spec.template.spec.containers[vllm]"


async def attempt_is(serving: Serving, number: int, name: str = "up") -> None:
    async def there() -> bool:
        return bool((await serving.status(name))["attempt"]["number"] == number)

    await serving.until(there, f"attempt {number}")


async def message_has(serving: Serving, text: str, name: str = "up") -> str:
    async def there() -> bool:
        return text in (await serving.status(name)).get("message", "")

    await serving.until(there, f"message {text!r}")
    return str((await serving.status(name))["message"])


async def kubectl(serving: Serving, *arguments: str) -> None:
    await run(build.kubectl(), "-n", serving.namespace, *arguments)


def environment(template: Mapping[str, Any]) -> dict[str, str]:
    return {e["name"]: e["value"] for e in template["spec"]["containers"][0]["env"]}


# Of the upgrade itself.


@pytest.mark.parametrize("phase", ["Starting", "Verifying", "Canary", "Halted", "Baking"])
async def test_another_candidate_supersedes(serving: Serving, phase: str) -> None:
    before = await stages.deploy(serving, phase)
    await stages.reach(serving, phase)
    known_good = (await serving.status())["knownGood"]
    # A merge patch replaces the whole list of variables.
    await serving.set_spec({"candidate": stages.candidate(SIM_LOAD_SECONDS="0.1")})
    await attempt_is(serving, 2)
    await serving.phase("Canary", passing=("RolledBack", "Halted"))
    status = await serving.status()
    told = stages.reasons(status)
    assert told.index("Superseded") < told.index("RolledBack") < told.index("Started", 2)
    assert "this attempt is rolled back" in stages.said(status, "Superseded")
    assert status["knownGood"] == known_good
    assert await stages.template(serving) == before
    (pod,) = await serving.canaries()
    assert environment({"spec": pod["spec"]})["SIM_LOAD_SECONDS"] == "0.1"


async def test_superseded_while_it_is_promoted_it_goes_all_the_way_with_the_new_one(
    serving: Serving,
) -> None:
    await stages.deploy(serving, "Promoting")
    await serving.load(20)
    await stages.reach(serving, "Promoting")
    quick = stages.strategy(steps=[{"replicas": 1, "hold": "2s"}], bake="1s")
    new = stages.candidate(SIM_LOAD_SECONDS="0.1")
    await serving.set_spec({"candidate": new, "strategy": quick})
    await attempt_is(serving, 2)
    await serving.phase("Succeeded", passing=("RolledBack",))
    assert environment(await stages.template(serving))["SIM_LOAD_SECONDS"] == "0.1"
    assert await serving.canaries() == []


async def test_a_changed_check_begins_again_and_a_changed_hold_counts_at_once(
    serving: Serving,
) -> None:
    await stages.deploy(serving, "Canary")
    await serving.load(20)
    await stages.reach(serving, "Canary")
    first = (await serving.status())["attempt"]

    async def checks() -> dict[str, Any]:
        return {c["name"]: c for c in (await serving.status()).get("checks", [])}

    async def passed() -> bool:
        found = await checks()
        return all(found.get(n, {}).get("verdict") == "Pass" for n in ("errors", "rejections"))

    await serving.until(passed, "errors and rejections to pass")
    before = await checks()
    analysis = {**quick_spec()["analysis"], "checks": wide({"name": "errors", "max": "7%"})}
    await serving.set_spec({"analysis": analysis})

    async def changed() -> bool:
        return "7%" in (await checks())["errors"]["limit"]

    await serving.until(changed, "the new limit")
    after = await checks()
    assert after["errors"]["requests"] < before["errors"]["requests"]
    assert after["rejections"]["requests"] >= before["rejections"]["requests"]
    status = await serving.status()
    assert (status["phase"], status["attempt"]) == ("Canary", first)

    steps = [{"replicas": 1, "hold": "1s"}]
    await serving.set_spec({"strategy": {"steps": steps}})
    await serving.phase("Succeeded")
    assert (await serving.status())["attempt"] == first


async def test_steps_that_are_edited_under_way(serving: Serving) -> None:
    await stages.deploy(serving, "Canary")
    await stages.reach(serving, "Canary")
    first = (await serving.status())["attempt"]

    async def told(*words: str) -> None:
        async def there() -> bool:
            said = [e["message"] for e in (await serving.status())["timeline"]]
            return any(all(w in text for w in words) for text in said)

        await serving.until(there, f"{words} in the timeline")

    await told("step 1 of 1: 1 canary pod in the traffic")
    more = [{"replicas": 2, "hold": stages.LONG}, {"replicas": 2, "hold": stages.LONG}]
    await serving.set_spec({"strategy": {"steps": more}})
    await told("spec.strategy.steps changed: step 1 of 2 begins anew with 2 canary pods")
    await told("step 1 of 2: 2 canary pods in the traffic")
    pods = {p["metadata"]["uid"] for p in await serving.canaries()}
    assert len(pods) == 2
    await serving.set_spec({"strategy": {"steps": [{"replicas": 1, "hold": stages.LONG}]}})
    await told("step 1 of 1 begins anew with 2 canary pods, not 1", "stay in it until the end")
    status = await serving.status()
    assert (status["phase"], status["attempt"]) == ("Canary", first)
    assert {p["metadata"]["uid"] for p in await serving.canaries()} == pods


async def test_after_its_end_only_another_candidate_begins_anew(serving: Serving) -> None:
    await stages.deploy(serving, "Baking")
    await stages.reach(serving, "Baking", strategy=stages.strategy(bake="1s"))
    await serving.phase("Succeeded")
    await serving.set_spec({"strategy": {"bake": "2s"}, "reason": "to be edited"})

    async def seen() -> bool:
        upgrade = await serving.client.get(serving.path())
        return bool(upgrade["status"]["observedGeneration"] == upgrade["metadata"]["generation"])

    await serving.until(seen, "the edit to be seen")
    status = await serving.status()
    assert (status["phase"], status["attempt"]["number"]) == ("Succeeded", 1)
    await serving.set_spec({"candidate": stages.candidate(SIM_LOAD_SECONDS="0.1")})
    await attempt_is(serving, 2)
    await serving.phase("Canary", passing=("Succeeded",))


# Of its target, by somebody else.


@pytest.mark.parametrize("phase", ["Canary", "Promoting", "Baking"])
async def test_a_target_that_somebody_edits_is_left_to_them(serving: Serving, phase: str) -> None:
    await stages.deploy(serving, phase)
    await stages.reach(serving, phase)
    await kubectl(serving, "set", "env", "deployment/llm", "EDITED=1")
    await serving.phase("Halted")
    status = await serving.status()
    assert f"{VLLM}.env[EDITED] changed by kubectl-set at 20" in status["message"]
    assert "the target left as it is" in status["message"]
    assert condition(status, "ForeignChange") == ("True", "ForeignChange")
    await stages.canary_is_gone(serving)
    found = environment(await stages.template(serving))
    assert found["EDITED"] == "1"
    assert (found["VLLM_USE_V2_MODEL_RUNNER"] == "1") == (phase != "Canary")


@pytest.mark.parametrize("phase", ["Canary", "Promoting"])
async def test_a_restart_of_the_target_counts_as_an_edit(serving: Serving, phase: str) -> None:
    await stages.deploy(serving, phase)
    await stages.reach(serving, phase)
    await kubectl(serving, "rollout", "restart", "deployment/llm")
    await serving.phase("Halted")
    message = (await serving.status())["message"]
    assert "spec.template.metadata.annotations[kubectl.kubernetes.io/restartedAt]" in message
    assert "(as `kubectl rollout restart` does)" in message
    await stages.canary_is_gone(serving)


async def test_a_target_that_is_scaled_goes_on_with_the_new_count(serving: Serving) -> None:
    before = await stages.deploy(serving, "Baking")
    await stages.reach(serving, "Canary")
    await kubectl(serving, "scale", "deployment/llm", "--replicas=3")
    await serving.all_ready(3)
    attempt = (await serving.status())["attempt"]["id"]
    person = {f"{DOMAIN}/approved-by": "admin"}
    await serving.annotate({f"{DOMAIN}/promote": attempt, **person})
    await serving.phase("Promoting")
    await kubectl(serving, "scale", "deployment/llm", "--replicas=1")
    await serving.phase("Baking")
    await kubectl(serving, "scale", "deployment/llm", "--replicas=2")
    await serving.annotate({ABORT: "1"})
    await serving.phase("RolledBack")
    target = await serving.target()
    assert target["spec"]["template"] == before
    # Scaling is not what was tried: it stays.
    assert target["spec"]["replicas"] == 2
    await serving.all_ready(2)


@pytest.mark.parametrize("phase", ["Canary", "Promoting"])
async def test_a_target_that_is_deleted_ends_the_upgrade(serving: Serving, phase: str) -> None:
    await stages.deploy(serving, phase)
    await stages.reach(serving, phase)
    await serving.client.delete(paths.deployment(serving.namespace, "llm"))
    await serving.phase("RolledBack")
    status = await serving.status()
    assert status["message"] == "rolled back (TargetGone): Deployment llm was deleted"
    assert condition(status, "RolledBack") == ("True", "TargetGone")
    await stages.canary_is_gone(serving)


async def test_a_target_that_is_made_anew_is_another_one(serving: Serving) -> None:
    await stages.deploy(serving, "Canary")
    await stages.reach(serving, "Canary")
    target = await serving.target()
    path = paths.deployment(serving.namespace, "llm")
    new = {
        **{k: target[k] for k in ("apiVersion", "kind", "spec")},
        "metadata": {"name": "llm"},
    }
    await serving.client.delete(path, {"propagationPolicy": "Background"})
    await serving.client.create(paths.deployments(serving.namespace), new)
    await serving.phase("Halted")
    message = (await serving.status())["message"]
    assert "Deployment llm was deleted and made anew during the upgrade" in message
    await stages.canary_is_gone(serving)
    assert await stages.template(serving) == target["spec"]["template"]


async def test_a_target_that_is_missing_blocks_until_somebody_tries_again(
    serving: Serving,
) -> None:
    await serving.upgrade()
    await serving.phase("Blocked")
    status = await serving.status()
    assert f"there is no Deployment llm in namespace {serving.namespace}" in status["message"]
    await stages.deploy(serving, "Canary")
    await serving.annotate({f"{DOMAIN}/retry": status["attempt"]["id"]})
    await serving.phase("Canary", passing=("Blocked",))


# Rivals.


async def test_of_two_that_are_made_at_once_one_works_and_the_other_waits(
    serving: Serving,
) -> None:
    await stages.deploy(serving, "Canary")
    long = stages.strategy(steps=[{"replicas": 1, "hold": stages.LONG}])
    await asyncio.gather(*(serving.upgrade(n, strategy=long) for n in ("one", "two")))

    async def phases() -> dict[str, str]:
        return {n: (await serving.status(n)).get("phase", "") for n in ("one", "two")}

    async def one_works() -> bool:
        return sorted((await phases()).values()) == ["Canary", "Pending"]

    await serving.until(one_works, "one upgrade to work and one to wait")
    found = await phases()
    first, second = sorted(found, key=lambda name: found[name])
    waiting = await serving.status(second)
    assert condition(waiting, "Conflict") == ("True", "TargetInUse")
    assert first in waiting["message"]
    assert len(await serving.canaries()) == 1
    assert await stages.revisions(serving) == [f"{first}-candidate", f"{first}-known-good"]

    await serving.annotate({ABORT: "1"}, first)
    await serving.phase("RolledBack", name=first)
    await serving.phase("Canary", name=second)
    assert condition(await serving.status(second), "Conflict") is None
    assert await stages.revisions(serving) == [f"{second}-candidate", f"{second}-known-good"]


async def test_one_that_is_halted_keeps_the_target_and_says_how_to_get_it(
    serving: Serving,
) -> None:
    await stages.deploy(serving, "Halted")
    await stages.reach(serving, "Halted", "first")
    await serving.upgrade("second")
    message = await message_has(serving, "upgrade first", "second")
    assert "Halted" in message
    assert ABORT in message
    await serving.annotate({ABORT: "1"}, "first")
    await serving.phase("Canary", name="second")
