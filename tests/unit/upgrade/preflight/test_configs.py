"""What ConfigMaps tell a server is read as if it stood in the template."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.upgrade.preflight.asking import BLOCK, PASS, UNKNOWN, ask, new, old
from vllm_upgrade_operator.upgrade.preflight.configs import told_by

MAPS = {
    "settings": {"VLLM_USE_V2_MODEL_RUNNER": "0", "SHARED": "a"},
    "file": {"config.yaml": "max-num-queued-reqs: 8\nenforce-eager: true\n"},
}


# Each line stands for ten times the one before it.
BOMB = "a0: &a0 [x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 30)
)


def container(**parts: Any) -> dict[str, Any]:
    return {"name": "vllm", "image": "x"} | parts


def variables(**parts: Any) -> dict[str, str]:
    return dict(told_by({}, container(**parts), MAPS).variables)


def test_variables_come_from_whole_config_maps_and_from_single_keys() -> None:
    whole = [{"configMapRef": {"name": "settings"}}, {"configMapRef": {"name": "unread"}}]
    assert variables(envFrom=whole) == MAPS["settings"]
    prefixed = [{"prefix": "P_", "configMapRef": {"name": "settings"}}]
    assert set(variables(envFrom=prefixed)) == {"P_VLLM_USE_V2_MODEL_RUNNER", "P_SHARED"}
    key = {"configMapKeyRef": {"name": "settings", "key": "SHARED"}}
    assert variables(env=[{"name": "X", "valueFrom": key}]) == {"X": "a"}


def test_a_variable_of_the_template_wins_also_where_it_is_not_known() -> None:
    whole = [{"configMapRef": {"name": "settings"}}]
    secret = {"secretKeyRef": {"name": "s", "key": "k"}}
    found = variables(envFrom=whole, env=[{"name": "SHARED", "valueFrom": secret}])
    assert found == {"VLLM_USE_V2_MODEL_RUNNER": "0"}


def spec_with(text: str | None) -> tuple[dict[str, Any], dict[str, dict[str, str]]]:
    volumes = [{"name": "c", "configMap": {"name": "file"}}]
    return {"volumes": volumes}, {} if text is None else {"file": {"config.yaml": text}}


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("a: 1", {"a": 1}),
        ("- a", None),
        ("a: [", None),
        ("a: " + "x" * 70_000, None),
        ("[" * 5000, None),
        ("[" * 200, None),
        ("- " * 30_000, None),
        ("a: {b: {c: [1]}}", {"a": {"b": {"c": [1]}}}),
        (BOMB, None),
        (None, None),
    ],
)
def test_a_file_is_parsed_where_it_is_one(text: str | None, parsed: Any) -> None:
    spec, maps = spec_with(text)
    mounts = [{"name": "c", "mountPath": "/etc/vllm"}]
    found = told_by(
        spec,
        container(args=["--config", "/etc/vllm/config.yaml"], volumeMounts=mounts),
        maps,
    )
    assert found.configs == ({} if parsed is None else {"/etc/vllm/config.yaml": parsed})


def test_preflight_sees_what_the_config_maps_say() -> None:
    volumes = {"volumes": [{"name": "c", "configMap": {"name": "file"}}]}
    parts: dict[str, Any] = {
        "pod": volumes,
        "args": ["--model", "m", "--config", "/etc/vllm/config.yaml"],
        "envFrom": [{"configMapRef": {"name": "settings"}}],
        "volumeMounts": [{"name": "c", "mountPath": "/etc/vllm"}],
    }
    sides: dict[str, Any] = {"stable": old(**parts), "candidate": new(**parts)}
    blind = ask("admission", **sides)
    assert (blind.result, blind.reason) == (UNKNOWN, "AdmissionUnread")
    seen = ask("admission", **sides, around={"config_maps": MAPS})
    assert (seen.result, "max-num-queued-reqs 8" in seen.message) == (PASS, True)
    pinned = ask("runner", **sides, around={"config_maps": MAPS})
    assert (pinned.result, pinned.reason) == (BLOCK, "RunnerNotExpected")
