"""What the template says: times, images, tags, pairs, and how much changes at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.upgrade.preflight.asking import (
    BLOCK,
    PASS,
    UNKNOWN,
    WARN,
    ask,
    ask_of,
    new,
    old,
    seen,
)


def probe(**parts: Any) -> dict[str, Any]:
    return new(startupProbe=parts)


def started(seconds: float, **parts: Any) -> dict[str, Any]:
    """Stable pods whose start took so long."""
    return {"started_at": 1000.0, "ready_at": 1000.0 + seconds, "unready_since": None} | parts


@pytest.mark.parametrize(
    ("candidate", "pods", "result", "reason"),
    [
        (new(), started(900), PASS, "Passed"),
        (probe(periodSeconds=10, failureThreshold=60), started(300), PASS, "Passed"),
        (probe(periodSeconds=10, failureThreshold=60), started(401), WARN, "StartupBudgetTight"),
        (probe(periodSeconds=10, failureThreshold=3), started(600), WARN, "StartupBudgetTight"),
        (probe(periodSeconds=10), started(30, restarts=1), UNKNOWN, "NoStartSeen"),
        (probe(periodSeconds=10), started(30, ready_at=None), UNKNOWN, "NoStartSeen"),
    ],
)
def test_the_startup_budget(
    candidate: dict[str, Any], pods: dict[str, Any], result: str, reason: str
) -> None:
    check = ask("startup-budget", candidate=candidate, pods=pods)
    assert (check.result, check.reason) == (result, reason)


def test_a_tight_startup_budget_names_both_times() -> None:
    message = ask("startup-budget", candidate=probe(periodSeconds=10), pods=started(25)).message
    assert "let a start take 30 s, and the quickest of the stable pods took 25 s" in message


def ending(
    grace: int | None = None, hook: dict[str, Any] | None = None, timeout: str | None = None
) -> dict[str, Any]:
    args = [] if timeout is None else ["--model", "m", "--shutdown-timeout", timeout]
    pod = {} if grace is None else {"terminationGracePeriodSeconds": grace}
    return new(args=args, lifecycle={"preStop": hook} if hook else {}, pod=pod)


SLEEP = {"exec": {"command": ["sh", "-c", "sleep 15; true"]}}


@pytest.mark.parametrize(
    ("candidate", "result", "reason", "says"),
    [
        (ending(75, SLEEP, "45"), PASS, "Passed", "75 s to end and takes up to 60 s"),
        (ending(75, {"sleep": {"seconds": 30}}, "45"), PASS, "Passed", "up to 75 s"),
        (ending(None, SLEEP, "45"), WARN, "GraceTooShort", "is 30, and a pod takes up to 60 s"),
        (ending(30, {"exec": {"command": ["sleep", "31"]}}), WARN, "GraceTooShort", "set 36"),
        (ending(), WARN, "NoDrain", "requests in flight are aborted"),
        (ending(30, {"httpGet": {"path": "/drain"}}, "5"), UNKNOWN, "EndUnknown", "preStop"),
        (ending(30, None, "$(TIMEOUT)"), UNKNOWN, "EndUnknown", "--shutdown-timeout"),
    ],
)
def test_the_grace_period(candidate: dict[str, Any], result: str, reason: str, says: str) -> None:
    check = ask("grace-period", candidate=candidate)
    assert (check.result, check.reason) == (result, reason)
    assert says in check.message


def test_stable_pods_with_different_digests_are_no_baseline() -> None:
    o = seen()
    assert ask_of("stable-image", o).result == PASS
    assert o.target is not None
    first, *others = o.target.pods
    mixed = replace(o.target, pods=(replace(first, digest="sha256:other"), *others))
    check = ask_of("stable-image", replace(o, target=mixed))
    assert (check.result, check.reason) == (BLOCK, "MixedDigests")
    assert "rollout restart deployment/llm" in check.message
    rolling = replace(
        o.target, pods=(replace(first, digest="sha256:other", template_hash="x"), *others)
    )
    assert ask_of("stable-image", replace(o, target=rolling)).result == PASS


def test_without_a_ready_pod_no_digest_is_known() -> None:
    check = ask("stable-image", pods={"ready_at": None})
    assert (check.result, check.reason) == (UNKNOWN, "NoDigest")


@pytest.mark.parametrize(
    ("image", "result"),
    [
        ("vllm/vllm-openai:v0.29.0", PASS),
        ("registry.example:5000/vllm/vllm-openai:v0.29.0-cu129", PASS),
        ("vllm/vllm-openai@sha256:" + "a" * 64, PASS),
        ("vllm/vllm-openai:latest@sha256:" + "a" * 64, PASS),
        ("ghcr.io/x/vllm:nightly-0123abcdef", PASS),
        ("vllm/vllm-openai:latest", WARN),
        ("vllm/vllm-openai:nightly", WARN),
        ("vllm/vllm-openai:v0.29", WARN),
        ("registry.example:5000/vllm/vllm-openai", WARN),
    ],
)
def test_a_moving_tag_warns(image: str, result: str) -> None:
    check = ask("moving-tag", candidate=new(image=image))
    assert check.result == result
    assert (image in check.message) == (result == WARN)


def test_a_moving_tag_of_the_stable_pods_warns_too() -> None:
    check = ask("moving-tag", stable=old(image="vllm/vllm-openai:latest"))
    assert check.reason == "MovingTag"
    assert "the stable's image vllm/vllm-openai:latest" in check.message


def version(text: str | None) -> dict[str, Any]:
    candidate = {"image": "x"} if text is None else {"image": "x", "version": text}
    return {"candidate": candidate}


@pytest.mark.parametrize(
    ("image", "spec", "answered", "result", "reason"),
    [
        ("vllm/vllm-openai:v0.29.0", version("0.29.0"), "0.28.0", PASS, "Passed"),
        ("vllm/vllm-openai:v0.29.0", version("0.28.0"), "0.28.0", WARN, "TagIsNotVersion"),
        ("ghcr.io/llm-d/llm-d-cuda:v0.9.0", version("0.29.0"), None, WARN, "TagIsNotVersion"),
        ("x/y:latest", version("0.29.0"), None, PASS, "NotApplicable"),
        ("vllm/vllm-openai:v0.29.0", version(None), None, PASS, "NotApplicable"),
        ("vllm/vllm-openai:v0.29.0", version("0.29.0"), "0.27.1", WARN, "TagIsNotVersion"),
    ],
)
def test_tag_and_version(
    image: str, spec: dict[str, Any], answered: str | None, result: str, reason: str
) -> None:
    """The stable pods' image is of 0.28.0 by its tag."""
    check = ask("tag-version", candidate=new(image=image), spec=spec, pods={"version": answered})
    assert (check.result, check.reason) == (result, reason)


@pytest.mark.parametrize(
    ("candidate", "result", "names"),
    [
        (new(), PASS, ["image (sim/vllm:0.28.0 to sim/vllm:0.29.0)"]),
        (old(args=["--max-num-seqs", "8"]), PASS, ["flags"]),
        (old(env=[{"name": "KEY", "value": "s3cret"}]), PASS, ["variables (KEY)"]),
        (old(envFrom=[{"configMapRef": {"name": "x"}}]), PASS, ["variables"]),
        (old(resources={"limits": {"nvidia.com/gpu": "2"}}), PASS, ["resources"]),
        (old(pod={"priorityClassName": "high"}), PASS, ["other fields of the pod template"]),
        (old(lifecycle={"preStop": SLEEP}), PASS, ["other fields of the pod template"]),
        (
            new(args=["--max-num-seqs", "8"], resources={"limits": {"nvidia.com/gpu": "2"}}),
            WARN,
            ["image", "flags", "resources"],
        ),
    ],
)
def test_what_changes_is_listed_and_more_than_one_thing_warns(
    candidate: dict[str, Any], result: str, names: list[str]
) -> None:
    check = ask("one-change", candidate=candidate)
    assert check.result == result
    for name in names:
        assert name in check.message
    assert "s3cret" not in check.message


TRANSFER = '{"kv_connector":"NixlConnector","kv_role":"%s"}'


@pytest.mark.parametrize(
    ("role", "labels", "same_image", "result", "reason"),
    [
        (None, {}, False, PASS, "NotApplicable"),
        ("kv_both", {}, False, PASS, "Passed"),
        ("kv_producer", {}, False, BLOCK, "PrefillDecodePair"),
        ("kv_consumer", {}, False, BLOCK, "PrefillDecodePair"),
        ("kv_consumer", {}, True, WARN, "PrefillDecodePair"),
        ("kv_both", {"llm-d.ai/role": "decode"}, False, BLOCK, "PrefillDecodePair"),
        ("kv_both", {"llm-d.ai/role": "both"}, False, PASS, "Passed"),
        (None, {"llm-d.ai/role": "prefill"}, False, BLOCK, "PrefillDecodePair"),
    ],
)
def test_one_half_of_a_pair_is_not_upgraded_alone(
    *, role: str | None, labels: dict[str, str], same_image: bool, result: str, reason: str
) -> None:
    args = [] if role is None else ["--model", "m", "--kv-transfer-config", TRANSFER % role]
    stable = old(args=args)
    stable["metadata"]["labels"] |= labels
    make = old if same_image else new
    candidate = make(args=[*args, "--max-num-seqs", "8"] if args else [])
    candidate["metadata"]["labels"] |= labels
    check = ask("prefill-decode", stable=stable, candidate=candidate)
    assert (check.result, check.reason) == (result, reason)


def test_a_pair_that_cannot_be_read_is_unknown() -> None:
    args = ["--model", "m", "--kv-transfer-config", "$(CONFIG)"]
    check = ask("prefill-decode", candidate=new(args=args))
    assert (check.result, check.reason) == (UNKNOWN, "KVTransferUnread")


def test_what_another_controller_makes_is_blocked() -> None:
    check = ask("target-owner", target={"owner": "VLLMRuntime llama"})
    assert (check.result, check.reason) == (BLOCK, "OwnedByController")
    assert "controlled by VLLMRuntime llama" in check.message
    assert ask("target-owner").result == PASS


def test_what_is_kept_in_git_warns() -> None:
    argo = ({"manager": "argocd-controller"}, {"manager": "kubectl"})
    check = ask("gitops", target={"managed_fields": argo})
    assert (check.result, check.reason) == (WARN, "ManagedByGitOps")
    assert "Argo CD manages fields of Deployment llm" in check.message
    assert ask("gitops", target={"managed_fields": ({"manager": "helm"},)}).result == PASS
