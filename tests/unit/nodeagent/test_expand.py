import pytest

from localcluster.nodeagent.expand import expand


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("$(A)", "1"),
        ("x$(A)y$(B)z", "x1y2z"),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$A", "$A"),
        ("$", "$"),
        ("$(A", "$(A"),
        ("100$$", "100$"),
    ],
)
def test_expands_as_kubernetes_does(text: str, expected: str) -> None:
    assert expand(text, {"A": "1", "B": "2"}) == expected


def test_a_value_is_not_expanded_again() -> None:
    assert expand("$(A)", {"A": "$(B)", "B": "2"}) == "$(B)"
