from __future__ import annotations

from typing import Any

import pytest

from vllm_upgrade_operator.api.v1alpha1 import Candidate
from vllm_upgrade_operator.cluster.proposal import edit
from vllm_upgrade_operator.vllm.errors import TemplateError

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "llm"}},
    "spec": {
        "containers": [
            {"name": "proxy", "image": "proxy:1"},
            {
                "name": "server",
                "image": "vllm/vllm-openai:v0.28.0",
                "args": ["--model", "m", "--max-num-seqs", "8"],
                "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
            },
        ]
    },
}


def test_only_what_is_asked_for_changes() -> None:
    wanted = Candidate.model_validate(
        {
            "image": "vllm/vllm-openai:v0.29.0",
            "args": [{"flag": "max_num_seqs", "value": "16"}, {"flag": "enable-prefix-caching"}],
            "env": [{"name": "B", "value": "1"}],
        }
    )
    proxy, server = edit(TEMPLATE, wanted, "server")["spec"]["containers"]
    assert proxy == TEMPLATE["spec"]["containers"][0]
    assert server == {
        "name": "server",
        "image": "vllm/vllm-openai:v0.29.0",
        "args": ["--model", "m", "--max-num-seqs", "16", "--enable-prefix-caching"],
        "env": [*TEMPLATE["spec"]["containers"][1]["env"], {"name": "B", "value": "1"}],
    }


def test_a_template_patch_alone_edits_nothing() -> None:
    wanted = Candidate.model_validate({"templatePatch": {"spec": {}}})
    assert edit(TEMPLATE, wanted, "server") == TEMPLATE


def test_what_cannot_be_changed_is_said_with_its_field() -> None:
    wanted = Candidate.model_validate({"image": "i"})
    with pytest.raises(TemplateError, match=r"spec\.container: there is no container 'x'"):
        edit(TEMPLATE, wanted, "x")
