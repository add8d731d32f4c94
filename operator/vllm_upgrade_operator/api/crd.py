"""The CustomResourceDefinition, made from the models: `python -m vllm_upgrade_operator.api.crd`."""

from __future__ import annotations

import json
import sys
from typing import Any

import yaml

from vllm_upgrade_operator.api import rules
from vllm_upgrade_operator.api.schema import Schema, structural
from vllm_upgrade_operator.api.v1alpha1 import (
    GROUP,
    KIND,
    PLURAL,
    VERSION,
    VLLMUpgradeSpec,
    VLLMUpgradeStatus,
)

# Name, JSON path, priority: those of priority 1 are shown by `kubectl get -o wide`.
_COLUMNS = (
    ("Target", ".spec.targetRef.name", 0),
    ("Phase", ".status.phase", 0),
    ("Step", ".status.display.step", 0),
    ("Canary", ".status.display.canary", 0),
    ("Runner", ".status.display.runner", 0),
    ("Verdict", ".status.verdict", 0),
    ("Message", ".status.message", 0),
    ("Rejections", ".status.display.rejections", 1),
    ("Queue", ".status.display.queue", 1),
    ("TTFT", ".status.display.ttft", 1),
    ("Known-Good", ".status.display.knownGood", 1),
    ("Candidate", ".status.display.candidate", 1),
)


def definition() -> dict[str, Any]:
    """Give the CRD as a plain object."""
    spec = structural(VLLMUpgradeSpec)
    _add_rules(spec)
    schema = {
        "type": "object",
        "description": "A canary upgrade of one vLLM workload.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": structural(VLLMUpgradeStatus),
        },
    }
    columns = [
        {"name": name, "type": "string", "jsonPath": path, "priority": priority}
        for name, path, priority in _COLUMNS
    ]
    columns.append(
        {
            "name": "Age",
            "type": "date",
            "jsonPath": ".metadata.creationTimestamp",
            "priority": 0,
        }
    )
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["vu"],
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def _add_rules(spec: Schema) -> None:
    """Put the CEL rules where they belong."""
    properties = spec["properties"]
    strategy = properties["strategy"]["properties"]
    candidate = properties["candidate"]
    analysis = properties["analysis"]["properties"]
    for schema, added in (
        (properties["targetRef"], rules.TARGET_REF),
        (candidate, rules.CANDIDATE),
        (candidate["properties"]["image"], rules.IMAGE),
        (candidate["properties"]["args"], rules.ARGS),
        (candidate["properties"]["env"]["items"], rules.ENV_VAR),
        (strategy["steps"], rules.STEPS),
        (strategy["steps"]["items"], rules.STEP),
        (strategy["steps"]["items"]["properties"]["hold"], rules.HOLD),
        (strategy["bake"], rules.BAKE),
        *(
            (strategy[name], rules.deadline(f"spec.strategy.{name}"))
            for name in ("scheduleDeadline", "startDeadline", "haltTimeout")
        ),
        (strategy["trafficLabels"], rules.TRAFFIC_LABELS),
        (properties["analysis"], rules.ANALYSIS),
        (analysis["interval"], rules.INTERVAL),
        (analysis["maxDuration"], rules.deadline("spec.analysis.maxDuration")),
        (analysis["warmup"]["properties"]["duration"], rules.WARMUP),
        (analysis["checks"]["items"], rules.CHECK),
    ):
        schema["x-kubernetes-validations"] = list(added)


def render() -> str:
    """Give the CRD as YAML, the same text every time."""
    head = "# Made by `make generate` from operator/vllm_upgrade_operator/api: do not edit.\n"
    # Through JSON: enums and tuples become what YAML knows.
    plain = json.loads(json.dumps(definition()))
    return head + yaml.safe_dump(plain, sort_keys=False, width=100, allow_unicode=True)


if __name__ == "__main__":
    sys.stdout.write(render())
