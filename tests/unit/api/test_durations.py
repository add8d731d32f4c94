from __future__ import annotations

import pytest

from vllm_upgrade_operator.api.durations import seconds_of


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0s", 0.0),
        ("90s", 90.0),
        ("10m", 600.0),
        ("1h30m", 5400.0),
        ("500ms", 0.5),
        ("1h1m1s1ms", 3661.001),
    ],
)
def test_a_duration_is_read_in_seconds(text: str, seconds: float) -> None:
    assert seconds_of(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "90", "1.5s", "-1s", "1d", "1s ", "1s\n", "s", "1h1m1s1ms1h"])
def test_what_is_no_duration_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration: write it as 500ms, 90s, 10m") as error:
        seconds_of(text)
    assert repr(text) in str(error.value)
