from __future__ import annotations

import pytest

from vllm_upgrade_operator.vllm.versions import (
    AdmissionControl,
    VersionError,
    admission_control,
    parse_version,
)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("0.29.0", (0, 29)),
        ("v0.28.1", (0, 28)),
        ("0.29.1rc1", (0, 29)),
        ("0.33.0+cpu", (0, 33)),
        ("0.30.1.dev12+g1234abc.d20261130", (0, 30)),
        ("1.2.0.post1", (1, 2)),
    ],
)
def test_versions(text: str, version: tuple[int, int]) -> None:
    assert parse_version(text) == version


@pytest.mark.parametrize("text", ["", "latest", "29", "0.29.0; rm", "nightly-abc"])
def test_what_is_no_version(text: str) -> None:
    with pytest.raises(VersionError, match=r"is not like 0\.29\.0"):
        parse_version(text)


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("0.28.9", AdmissionControl.NONE),
        ("0.29.0", AdmissionControl.APPROXIMATE),
        ("0.31.4", AdmissionControl.APPROXIMATE),
        ("0.32.0", AdmissionControl.COUNTER),
        ("1.0.0", AdmissionControl.COUNTER),
    ],
)
def test_admission_control(version: str, kind: AdmissionControl) -> None:
    assert admission_control(parse_version(version)) is kind
