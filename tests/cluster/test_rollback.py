"""The end of a rollback on a real control plane: known good runs, or it is said what does."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.kit import DOMAIN, condition, quick_spec, target_manifest
from tests.cluster.tags import Tag

if TYPE_CHECKING:
    from tests.cluster.kit import Serving

pytestmark = pytest.mark.cluster

PINNED_TO_V1 = {"VLLM_USE_V2_MODEL_RUNNER": "0"}


def brief(**strategy: Any) -> dict[str, Any]:
    """An upgrade that is promoted as soon as there is any evidence, and then bakes for long."""
    spec = quick_spec()
    steps = [{"replicas": 1, "hold": "1s"}]
    return {
        "strategy": {**spec["strategy"], "steps": steps, "bake": "100s", **strategy},
        "analysis": {
            **spec["analysis"],
            "warmup": {"duration": "1s", "requests": 1},
            "minRequests": 5,
        },
    }


def target(image: str = "sim/vllm:0.28.0", replicas: int = 2) -> dict[str, Any]:
    return target_manifest(image, replicas, (), PINNED_TO_V1, 0)


async def abort(serving: Serving) -> None:
    await serving.annotate({f"{DOMAIN}/abort": "now"})


def digests(pods: list[dict[str, Any]]) -> set[str]:
    return {p["status"]["containerStatuses"][0]["imageID"].rpartition("@")[2] for p in pods}


def reasons(status: dict[str, Any]) -> list[str]:
    return [entry["reason"] for entry in status["timeline"]]


async def template(serving: Serving) -> dict[str, Any]:
    return dict((await serving.target())["spec"]["template"])


async def hashes(serving: Serving) -> set[str]:
    return {p["metadata"]["labels"]["pod-template-hash"] for p in await serving.pods("app=llm")}


async def test_known_good_comes_back_where_no_history_is_kept(serving: Serving) -> None:
    """The old ReplicaSet is gone: another is made of the recorded template."""
    deployment = target()
    deployment["spec"]["revisionHistoryLimit"] = 0
    await serving.serve(deployment)
    before, of = await template(serving), await hashes(serving)
    await serving.load(10)
    await serving.upgrade(**brief())
    await serving.phase("Baking")
    path = f"/apis/apps/v1/namespaces/{serving.namespace}/replicasets"

    async def forgotten() -> bool:
        found = await serving.client.get(path, labelSelector="app=llm")
        return len(list(found["items"])) == 1

    await serving.until(forgotten, "the old ReplicaSet gone")
    await abort(serving)
    await serving.phase("RolledBack")
    assert await template(serving) == before
    assert await hashes(serving) == of
    pods = await serving.pods("app=llm")
    assert digests(pods) == set((await serving.status())["knownGood"]["digests"])
    assert [p["metadata"]["labels"][f"{DOMAIN}/role"] for p in pods] == ["stable"] * 2


@pytest.mark.parametrize("asked", ["at first", "when halted"])
async def test_a_known_good_tag_that_has_moved(serving: Serving, asked: str) -> None:
    tag = Tag(f"sim/vllm-{serving.namespace}")
    good = tag.means("good", "0.28.0")
    await serving.serve(target(tag.reference))
    before = await template(serving)
    await serving.load(10)
    await serving.upgrade(**brief(), rollback={"pinDigest": asked == "at first"})
    await serving.phase("Baking")
    moved = tag.means("moved", "0.28.0")
    await abort(serving)
    if asked == "when halted":
        await serving.phase("Halted")
        status = await serving.status()
        assert condition(status, "Stalled") == ("True", "KnownGoodMoved")
        for words in (moved, good, "the tag has moved", "spec.rollback.pinDigest: true"):
            assert words in status["message"]
        assert await template(serving) == before
        await serving.set_spec({"rollback": {"pinDigest": True}})

        async def goes_on() -> bool:
            return bool((await serving.status())["phase"] != "Halted")

        await serving.until(goes_on, "the rollback going on")
    await serving.phase("RolledBack")
    status = await serving.status()
    expected = copy.deepcopy(before)
    image = f"{tag.name}@{good}"
    expected["spec"]["containers"][0]["image"] = image
    assert await template(serving) == expected
    pods = await serving.pods("app=llm")
    assert digests(pods) == {good}
    assert [p["metadata"]["labels"][f"{DOMAIN}/role"] for p in pods] == ["stable"] * 2
    assert f"container vllm is pinned to {image}" in status["message"]
    assert "differs from known-good's in that alone" in status["message"]
    assert reasons(status).count("KnownGoodPinned") == 1
    assert condition(status, "RolledBack") == ("True", "Aborted")
    assert condition(status, "Finished") == ("True", "Aborted")


MISMATCHES: dict[str, tuple[str, str, dict[str, str], str]] = {
    "DigestMismatch": ("other", "0.29.0", {}, "the canary that was judged ran sha256:"),
    "VersionMismatch": ("first", "0.32.0", {}, "answers version 0.32.0"),
    "RunnerMismatch": ("first", "0.29.0", {"SIM_TRITON": "0"}, "runs V1, expected V2"),
}


@pytest.mark.parametrize("reason", MISMATCHES)
async def test_a_promoted_pod_is_not_what_was_judged(serving: Serving, reason: str) -> None:
    build, version, env, words = MISMATCHES[reason]
    tag = Tag(f"sim/vllm-{serving.namespace}")
    judged = tag.means("first", "0.29.0")
    await serving.serve(target())
    before = await template(serving)
    await serving.load(10)
    candidate = {"image": tag.reference, "version": "0.29.0", "unsetEnv": [*PINNED_TO_V1]}
    await serving.upgrade(**brief(), candidate=candidate)
    await serving.phase("Canary")
    now = tag.means(build, version, **env)
    await serving.phase("RolledBack")
    status = await serving.status()
    assert condition(status, "RolledBack") == ("True", reason)
    assert words in status["message"]
    if reason == "DigestMismatch":
        assert now in status["message"]
        assert judged in status["message"]
    assert "Promoting" in reasons(status)
    assert await template(serving) == before
    assert digests(await serving.pods("app=llm")) == set(status["knownGood"]["digests"])
    assert await serving.canaries() == []


async def test_a_canary_pod_of_another_image_is_not_admitted(serving: Serving) -> None:
    tag = Tag(f"sim/vllm-{serving.namespace}")
    first = tag.means("first", "0.29.0")
    await serving.serve(target())
    load = await serving.load(10)
    candidate = {"image": tag.reference, "version": "0.29.0", "unsetEnv": [*PINNED_TO_V1]}
    steps = [{"replicas": 1, "hold": "1s"}, {"replicas": 2, "hold": "100s"}]
    await serving.upgrade(**brief(steps=steps), candidate=candidate)
    await serving.phase("Canary")
    other = tag.means("other", "0.29.0")
    await serving.phase("RolledBack")
    status = await serving.status()
    report = await load.stop()
    assert condition(status, "RolledBack") == ("True", "DigestMismatch")
    assert f"runs image {other}, the canary pods before it ran {first}" in status["message"]
    assert len([name for name in report["pods"] if name.startswith("llm-canary")]) == 1
    assert "Promoting" not in reasons(status)
