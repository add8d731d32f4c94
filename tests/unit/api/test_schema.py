"""The generated CRD is up to date, and keeps to the conventions of the Kubernetes API."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from pydantic import Field

from vllm_upgrade_operator.api.checks import DEFAULT_CHECKS
from vllm_upgrade_operator.api.crd import definition, render
from vllm_upgrade_operator.api.model import Model
from vllm_upgrade_operator.api.schema import structural

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
SCHEMA = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

# The API server fills these in, or a user's object has them as Kubernetes defines them.
OPEN = {"spec.candidate.templatePatch", "spec.candidate.env[].valueFrom"}


def nodes(schema: dict[str, Any], where: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield where, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{where}.{name}".lstrip("."))
    if "items" in schema:
        yield from nodes(schema["items"], f"{where}[]")


NODES = [pair for pair in nodes(SCHEMA) if pair[0].startswith(("spec", "status"))]


@pytest.mark.parametrize(
    "copy", ["crds/vllmupgrades.yaml", "charts/vllm-upgrade-operator/files/vllmupgrades.yaml"]
)
def test_the_committed_crd_is_what_the_models_say(copy: str) -> None:
    assert (ROOT / copy).read_text() == render(), "stale: run `make generate`"


def test_everything_is_bounded() -> None:
    unbounded = []
    for where, schema in NODES:
        kind = schema.get("type")
        if kind == "array" and "maxItems" not in schema:
            unbounded.append(where)
        if kind == "string" and "enum" not in schema and "maxLength" not in schema:
            unbounded.append(where)
        if kind == "integer" and not {"minimum", "maximum"} & schema.keys():
            unbounded.append(where)
    assert unbounded == []


@pytest.mark.parametrize("kept", ["checks", "evidence"])
def test_status_has_room_for_the_default_checks_and_all_that_a_spec_may_add(kept: str) -> None:
    schema = dict(NODES)
    added = schema["spec.analysis.checks"]["maxItems"]
    assert schema[f"status.{kept}"]["maxItems"] >= len(DEFAULT_CHECKS) + added


def test_every_field_is_described() -> None:
    bare = [w for w, s in NODES if not w.endswith("[]") and not s.get("description")]
    assert bare == []


def test_every_list_says_how_it_is_merged() -> None:
    kinds = {w: s["x-kubernetes-list-type"] for w, s in NODES if s.get("type") == "array"}
    assert kinds["spec.candidate.env"] == "map"
    assert kinds["spec.candidate.unsetEnv"] == "set"
    assert kinds["spec.strategy.steps"] == "atomic"
    for where, schema in NODES:
        for key in schema.get("x-kubernetes-list-map-keys", []):
            assert key in schema["items"]["required"], where


def test_only_parts_that_kubernetes_defines_are_open() -> None:
    open_ = {w for w, s in NODES if s.get("x-kubernetes-preserve-unknown-fields")}
    assert open_ == OPEN


def test_a_field_with_a_default_is_not_required() -> None:
    for where, schema in NODES:
        for name in schema.get("required", []):
            assert "default" not in schema["properties"][name], f"{where}.{name}"


def test_no_floats() -> None:
    assert [w for w, s in NODES if s.get("type") == "number"] == []


def test_columns_show_fields_that_there_are() -> None:
    paths = {f".{where}" for where, _ in NODES}
    columns = definition()["spec"]["versions"][0]["additionalPrinterColumns"]
    shown = [c["jsonPath"] for c in columns if not c["jsonPath"].startswith(".metadata.")]
    assert [path for path in shown if path not in paths] == []
    assert [c["name"] for c in columns if c["priority"] == 0] == [
        *("Target", "Phase", "Step", "Canary", "Runner", "Verdict", "Message", "Age")
    ]


def test_a_model_that_makes_no_structural_schema_is_refused() -> None:
    class Text(Model):
        words: str

    class Many(Model):
        words: tuple[Annotated[str, Field(max_length=3)], ...]

    class Either(Model):
        words: Annotated[str, Field(max_length=3)] | bool

    for model, says in (
        (Text, r"Text\.words: a string needs a bound"),
        (Many, r"Many\.words: a list needs a bound"),
        (Either, r"Either\.words: a structural schema has no alternatives"),
    ):
        with pytest.raises(ValueError, match=says):
            structural(model)
