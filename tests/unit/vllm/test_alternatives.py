from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_upgrade_operator.vllm.alternatives import alternatives


@settings(deadline=None)
@given(
    st.sets(st.text(alphabet="ab.|(", min_size=1, max_size=5), min_size=1, max_size=12),
    st.text(alphabet="ab.|(", max_size=6),
)
def test_it_matches_the_words_and_nothing_else(words: set[str], other: str) -> None:
    pattern = re.compile(alternatives(words))
    assert all(pattern.fullmatch(word) for word in words)
    assert bool(pattern.fullmatch(other)) is (other in words)


def test_common_beginnings_are_written_once() -> None:
    assert alternatives(["vllm:a", "vllm:ab", "x"]) == "(?:vllm:a(?:b)?|x)"
    assert alternatives(["one"]) == "one"
