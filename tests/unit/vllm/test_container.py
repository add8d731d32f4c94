from __future__ import annotations

from typing import Any

import pytest

from vllm_upgrade_operator.vllm.container import (
    find_container,
    metrics_port,
    serving_containers,
    vllm_containers,
)
from vllm_upgrade_operator.vllm.errors import TemplateError

SIDECAR = {"name": "proxy", "image": "istio/proxyv2:1"}
SERVE = {"name": "main", "image": "our/llm:1", "command": ["vllm", "serve", "m"]}
IMAGE = {"name": "server", "image": "docker.io/vllm/vllm-openai:v0.29.0", "args": ["--model", "m"]}
SIM = {"name": "x", "image": "sim/vllm:0.29.0"}
SCRIPT = {"name": "s", "image": "a", "command": ["bash", "-c"], "args": ["cd /x; vllm serve $M"]}


@pytest.mark.parametrize("which", [SERVE, IMAGE, SIM, SCRIPT])
def test_it_is_found_behind_an_injected_sidecar(which: dict[str, Any]) -> None:
    assert find_container({"containers": [SIDECAR, which]}) == which


def test_a_command_says_more_than_an_image() -> None:
    helper = {"name": "helper", "image": "vllm/vllm-openai:v0.29.0", "command": ["sleep", "1"]}
    assert find_container({"containers": [helper, SERVE]}) == SERVE


def test_a_name_decides() -> None:
    assert find_container({"containers": [SERVE, SIDECAR]}, "proxy") == SIDECAR


@pytest.mark.parametrize(
    ("containers", "name", "problem"),
    [
        ([SIDECAR, SERVE], "vllm", r"no container 'vllm'.*proxy, main"),
        ([SERVE, {**SERVE, "name": "two"}], None, r"more than one .*main, two"),
        ([SIDECAR], None, r"no container .*proxy"),
        ([{"name": "r", "image": "our/vllmrouter:2"}], None, "no container"),
        ([{"name": "r", "image": "our/vllm-router:2"}], None, "no container"),
        ([{"name": "o", "image": "vllm-upgrade-operator:0.1.0"}], None, "no container"),
        ([], None, "there are: none"),
    ],
)
def test_what_is_unclear_is_refused(containers: list[Any], name: str | None, problem: str) -> None:
    with pytest.raises(TemplateError, match=problem) as caught:
        find_container({"containers": containers}, name)
    assert caught.value.field == "spec.container"


@pytest.mark.parametrize(
    ("fields", "port"),
    [
        ({}, 8000),
        ({"args": ["m", "--port", "8200"], "ports": [{"containerPort": 8000}]}, 8200),
        ({"args": ["m", "--port=8201"]}, 8201),
        ({"args": ["--port", "$(PORT)"], "env": [{"name": "PORT", "value": "9"}]}, 9),
        (
            {
                "args": ["--port", "$(PORT)"],
                "env": [{"name": "PORT", "valueFrom": {}}],
                "ports": [{"containerPort": 7}],
            },
            7,
        ),
        ({"ports": [{"containerPort": 1}, {"name": "http", "containerPort": 2}]}, 2),
        (
            {
                "ports": [
                    {"name": "http", "containerPort": 2},
                    {"name": "metrics", "containerPort": 3},
                ]
            },
            3,
        ),
        ({"ports": [{"containerPort": 4, "protocol": "UDP"}, {"containerPort": 5}]}, 5),
        ({"command": ["sh", "-c", "vllm serve m --port 8300"]}, 8300),
        ({"command": ["sh", "-c", "vllm serve $M --port 1"], "ports": [{"containerPort": 6}]}, 1),
        ({"command": ["sh", "-c", "vllm serve --port $P"], "ports": [{"containerPort": 6}]}, 6),
        ({"args": ["--port", "99999"], "ports": [{"containerPort": 6}]}, 6),
    ],
)
def test_the_port(fields: dict[str, Any], port: int) -> None:
    assert metrics_port({"name": "vllm", "image": "i", **fields}) == port


def test_what_has_vllm_in_it_is_told_apart_from_what_serves_it() -> None:
    ray = {"name": "ray", "image": "rayproject/ray-llm:2.50.1-py311-cu124"}
    twice = {"containers": [SIDECAR, SERVE, {**IMAGE, "name": "other"}, ray]}
    assert serving_containers(twice) == ["main", "other"]
    assert vllm_containers(twice) == ["main", "other", "ray"]
    assert vllm_containers({"containers": [SIDECAR]}) == []
