"""What makes an attempt: the parts of spec that say what is tried."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeSpec


def spec_hash(spec: VLLMUpgradeSpec) -> str:
    """Hash `candidate`, `container` and `runner`: 16 hex digits.

    Fields that have their default are left out, so a newer operator with more fields gives the
    same hash and supersedes nothing.
    """
    tried = spec.model_dump(
        mode="json",
        by_alias=True,
        exclude_defaults=True,
        include={"candidate", "container", "runner"},
    )
    text = json.dumps(tried, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
