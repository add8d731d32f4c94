"""Grants of a chart against uses in an audit log; a whole suite's are compared by `make test`."""

from __future__ import annotations

import json
from typing import Any

from localcluster.permissions import Permission, granted, problems, used

USER = "system:serviceaccount:vllm-upgrade-system:vllm-upgrade-operator"
BOUND = {"authentication.kubernetes.io/pod-name": ["vllm-upgrade-operator-1"]}
ROLE: dict[str, Any] = {
    "kind": "ClusterRole",
    "rules": [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "patch"]},
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["create"]},
    ],
}
MAY = granted([{"kind": "ServiceAccount"}, ROLE])


def line(verb: str, resource: str, group: str = "", **changes: Any) -> str:
    name, _, part = resource.partition("/")
    about = {"resource": name, "apiGroup": group, "subresource": part}
    event = {
        "verb": verb,
        "user": {"username": USER, "extra": BOUND},
        "objectRef": {k: v for k, v in about.items() if v},
        "annotations": {
            "authorization.k8s.io/decision": "allow",
            "authorization.k8s.io/reason": "RBAC: allowed by ClusterRoleBinding",
        },
        **changes,
    }
    return json.dumps(event) + "\n"


ALL = [
    line("list", "pods"),
    line("patch", "pods"),
    line("get", "pods/log"),
    line("create", "deployments", "apps"),
]


def test_all_that_is_granted_is_used() -> None:
    assert problems(MAY, used(ALL)) == []


def test_a_grant_that_nothing_uses_is_named() -> None:
    (said,) = problems(MAY, used(ALL[:2] + ALL[3:]))
    assert said.startswith("granted and never used: get pods/log. Take it out")


def test_what_is_granted_elsewhere_is_no_grant_of_the_chart() -> None:
    found = problems(MAY, used([*ALL, line("delete", "nodes")]))
    assert found == ["used and not granted by the chart: delete nodes (1 times). Grant it there"]


def test_what_was_forbidden_is_named() -> None:
    forbid = {"authorization.k8s.io/decision": "forbid", "authorization.k8s.io/reason": ""}
    again = line("get", "secrets", annotations=forbid)
    found = problems(MAY, used([*ALL, again, again]))
    assert found == ["forbidden: get secrets (2 times). Grant it, or do not ask for it"]


def test_only_what_the_operator_s_pods_do_counts() -> None:
    others = [
        # A test with the operator's ServiceAccount, somebody else, discovery, everybody's rights.
        line("patch", "pods", user={"username": USER, "extra": {}}),
        line("patch", "pods", user={"username": "admin"}),
        line("get", "pods", objectRef={}),
        line("patch", "pods", annotations={"authorization.k8s.io/decision": "allow"}),
    ]
    assert used(others).allowed == {}
    assert used(others).forbidden == {}


def test_subresources_are_resources_of_their_own() -> None:
    assert used([line("get", "pods/log")]).allowed == {Permission("", "pods/log", "get"): 1}
