"""What the API server does not allow is given up, and nothing is left half done."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.upgrade.world import World
from vllm_upgrade_operator.api.v1alpha1 import Phase
from vllm_upgrade_operator.upgrade.decide import decide
from vllm_upgrade_operator.upgrade.observation import Refusal

REFUSED = Refusal(reason="ActionRefused", message="the API server refuses EnsureCanary: policy")


@pytest.mark.parametrize("phase", ["Starting", "Canary", "Promoting"])
def test_an_upgrade_that_is_not_allowed_is_rolled_back(phase: str) -> None:
    world = World()
    world.run_until(phase)
    refused = replace(world.observe(look=False), refused=REFUSED)
    status = decide(refused, world.status, world.now).status
    assert status.phase is Phase.ROLLING_BACK
    assert status.message == REFUSED.message


def test_one_that_rolls_back_goes_on_to_try() -> None:
    world = World()
    world.run_until("Promoting")
    status = world.status.model_copy(update={"phase": Phase.ROLLING_BACK})
    refused = replace(world.observe(look=False), refused=REFUSED)
    assert decide(refused, status, world.now).status.phase is Phase.ROLLING_BACK
