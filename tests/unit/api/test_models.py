"""The models read what the CRD lets through, and nothing that it does not know."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from tests.specs import ACCEPTED, REFUSED
from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeSpec, VLLMUpgradeStatus


@pytest.mark.parametrize("name", list(ACCEPTED))
def test_an_accepted_spec_is_read_and_written_as_it_was(name: str) -> None:
    given = ACCEPTED[name]
    read = VLLMUpgradeSpec.model_validate(given)
    written = read.model_dump(mode="json", by_alias=True, exclude_unset=True)
    assert written == given


@pytest.mark.parametrize("name", [name for name, case in REFUSED.items() if case.by_models])
def test_what_the_schema_refuses_the_models_refuse(name: str) -> None:
    with pytest.raises(ValidationError):
        VLLMUpgradeSpec.model_validate(REFUSED[name].spec)


@pytest.mark.parametrize("name", [name for name, case in REFUSED.items() if not case.by_models])
def test_what_only_a_rule_refuses_is_read(name: str) -> None:
    """So a spec of before a rule was added does not stop the operator."""
    VLLMUpgradeSpec.model_validate(REFUSED[name].spec)


def test_an_empty_status_is_one() -> None:
    assert VLLMUpgradeStatus.model_validate({}).phase == "Pending"


def test_models_cannot_be_changed() -> None:
    spec = VLLMUpgradeSpec.model_validate(ACCEPTED["least"])
    with pytest.raises(ValidationError, match="frozen"):
        spec.reason = "another"  # type: ignore[misc]
