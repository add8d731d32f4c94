"""What depends on the version of vLLM, and where each fact was read."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple


class Version(NamedTuple):
    """The part of a vLLM version that facts depend on."""

    major: int
    minor: int


class VersionError(ValueError):
    """A text is not a version of vLLM."""


_PATTERN = re.compile(
    r"v?(?P<major>\d+)\.(?P<minor>\d+)(?:\.\d+)*"
    r"(?:(?:a|b|rc)\d+)?(?:\.post\d+)?(?:\.dev\d+)?(?:\+[\w.-]+)?"
)


def parse_version(text: str) -> Version:
    """Read what `GET /version` answers, such as `0.29.0`, `0.29.1rc1` or `0.33.0+cpu`.

    Raises:
        VersionError: It is not of that form.
    """
    match = _PATTERN.fullmatch(text.strip())
    if match is None:
        raise VersionError(f"version {text[:80]!r} is not like 0.29.0, 0.29.1rc1 or 0.33.0+cpu")
    return Version(int(match["major"]), int(match["minor"]))


class AdmissionControl(StrEnum):
    """How a version reports requests that its admission control refuses."""

    NONE = "None"
    """It has no admission control: the queue is unbounded and nothing is ever refused."""
    APPROXIMATE = "Approximate"
    """It refuses with a 503 and has no counter: only the 5xx of its HTTP metrics tell."""
    COUNTER = "Counter"
    """It counts in `vllm:admission_rejections_total`."""


# --max-num-queued-reqs/-tokens came with vllm-project/vllm#49445 (config/scheduler.py:74 in the
# 0.29.0 wheel; not in 0.28.0), the counter with #55812 (v1/metrics/loggers.py:847 in 0.32.0; not
# in 0.29.0, and not in the metric lists of 0.30 and 0.31).
_FIRST_WITH_ADMISSION = Version(0, 29)
_FIRST_WITH_COUNTER = Version(0, 32)


def admission_control(version: Version | None) -> AdmissionControl:
    """Say how rejections are reported; an unknown version may have them without a counter."""
    if version is None:
        return AdmissionControl.APPROXIMATE
    if version >= _FIRST_WITH_COUNTER:
        return AdmissionControl.COUNTER
    if version >= _FIRST_WITH_ADMISSION:
        return AdmissionControl.APPROXIMATE
    return AdmissionControl.NONE
