"""Speculative decoding as `/metrics` shows it: drafts, draft tokens, accepted tokens.

It does not change the engine's speed: what is seen of a falling acceptance is the acceptance.
"""

from __future__ import annotations

USUAL_ACCEPTANCE = 0.7
_BISECTIONS = 50


class Speculation:
    """The counters of a server with `--speculative-config`.

    A verified draft of K tokens of which a share `a` is accepted gives `1 + a * K` tokens, so the
    drafts follow from the tokens decoded. A position is accepted only where the ones before it
    are, so their rates are powers of one number.

    Args:
        tokens: Tokens of one draft: `num_speculative_tokens`.
    """

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self._drafts = 0.0
        self._accepted = [0.0] * tokens

    def decoded(self, tokens: int, acceptance: float) -> None:
        """Count so many tokens beyond the first ones of their requests, at a share from 0 to 1."""
        drafts = tokens / (1 + acceptance * self.tokens)
        self._drafts += drafts
        rate = _rate(acceptance * self.tokens, self.tokens)
        for position in range(self.tokens):
            self._accepted[position] += drafts * rate ** (position + 1)

    @property
    def drafts(self) -> int:
        """Drafts that were verified."""
        return int(self._drafts)

    @property
    def draft_tokens(self) -> int:
        """Tokens in them."""
        return self.drafts * self.tokens

    @property
    def accepted_by_position(self) -> list[int]:
        """Accepted tokens by their place in the draft."""
        return [int(count) for count in self._accepted]


def _rate(total: float, terms: int) -> float:
    """Find the r of which r + r^2 + ... up to so many terms is `total`."""
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if sum(middle ** (n + 1) for n in range(terms)) < total:
            low = middle
        else:
            high = middle
    return high
