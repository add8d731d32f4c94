"""From a pydantic model to a structural schema of Kubernetes.

pydantic writes JSON Schema 2020-12, Kubernetes wants a subset of OpenAPI 3.0 with every list and
string bounded. What is not allowed there is rewritten or dropped here; what both know is kept.
Source: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/
custom-resource-definitions/#specifying-a-structural-schema
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import BaseModel

Schema = dict[str, Any]

_KEPT = frozenset(
    {
        "default",
        "description",
        "enum",
        "format",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "pattern",
        "required",
        "type",
    }
)


def structural(model: type[BaseModel]) -> Schema:
    """Give the structural schema of a model. Raises ValueError where one cannot be made."""
    raw = model.model_json_schema(by_alias=True, mode="validation")
    return _convert(raw, raw.get("$defs", {}), model.__name__)


def _convert(raw: Schema, definitions: Schema, where: str) -> Schema:
    raw = _resolve(raw, definitions, where)
    schema: Schema = {key: value for key, value in raw.items() if key in _KEPT}
    if "const" in raw:
        schema["enum"] = [raw["const"]]
    if "default" in raw:
        schema["default"] = _without_nulls(raw["default"])
        if schema["default"] is None:
            del schema["default"]
    schema.update({key: value for key, value in raw.items() if key.startswith("x-kubernetes-")})
    if schema.get("x-kubernetes-int-or-string"):
        schema.pop("type", None)
        return schema
    kind = schema.get("type")
    if kind == "object":
        _object(schema, raw, definitions, where)
    elif kind == "array":
        if "maxItems" not in schema:
            raise ValueError(f"{where}: a list needs a bound")
        schema["items"] = _convert(raw["items"], definitions, f"{where}[]")
        if "x-kubernetes-list-map-keys" in schema:
            schema["x-kubernetes-list-type"] = "map"
        schema.setdefault("x-kubernetes-list-type", "atomic")
    elif kind == "string" and "enum" not in schema and "maxLength" not in schema:
        raise ValueError(f"{where}: a string needs a bound")
    return schema


def _object(schema: Schema, raw: Schema, definitions: Schema, where: str) -> None:
    properties = raw.get("properties")
    if properties is None:
        schema["x-kubernetes-preserve-unknown-fields"] = True
        return
    schema["properties"] = {
        name: _convert(value, definitions, f"{where}.{name}") for name, value in properties.items()
    }


def _resolve(raw: Schema, definitions: Schema, where: str) -> Schema:
    """Put a reference's or an optional's content in its place, its siblings over it."""
    while True:
        if "$ref" in raw:
            name = raw["$ref"].rpartition("/")[2]
            raw = {**definitions[name], **{k: v for k, v in raw.items() if k != "$ref"}}
        elif "allOf" in raw and len(raw["allOf"]) == 1:
            raw = {**raw["allOf"][0], **{k: v for k, v in raw.items() if k != "allOf"}}
        elif "anyOf" in raw:
            raw = _choose(raw, where)
        else:
            return raw


def _choose(raw: Schema, where: str) -> Schema:
    """An optional is its content; a number or text is an int-or-string; there is nothing else."""
    options = [option for option in raw["anyOf"] if option.get("type") != "null"]
    siblings = {key: value for key, value in raw.items() if key != "anyOf"}
    if {option.get("type") for option in options} == {"integer", "string"}:
        # Bounds of numbers hold for numbers and those of text for text, so both can stand.
        bounds = {k: v for option in options for k, v in option.items() if k != "type"}
        return {"x-kubernetes-int-or-string": True, **bounds, **siblings}
    if len(options) != 1:
        raise ValueError(f"{where}: a structural schema has no alternatives: {options}")
    return {**options[0], **siblings}


def _without_nulls(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """A field that is not there is left out in Kubernetes, never null."""
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list | tuple):
        return [_without_nulls(v) for v in value]
    return value
