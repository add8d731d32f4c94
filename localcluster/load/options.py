"""What load to send, and the checks of what a person asks for."""

from __future__ import annotations

from dataclasses import dataclass, field

_MOST_TOKENS = 100_000
_MOST_REQUESTS_PER_SECOND = 2_000.0


class OptionError(ValueError):
    """An option has no usable value; the text names it, the value and what would be right."""


@dataclass(frozen=True, slots=True)
class Mix:
    """Lengths in tokens, each with a weight.

    Attributes:
        lengths: Numbers of tokens.
        weights: How often each is used, in any unit.
    """

    lengths: tuple[int, ...]
    weights: tuple[float, ...]

    @classmethod
    def parse(cls, name: str, text: str) -> Mix:
        """Read `128,512` or, with weights, `128:3,512:1`. Raises `OptionError`."""
        lengths, weights = [], []
        for part in text.split(","):
            length, _, weight = part.partition(":")
            try:
                lengths.append(int(length))
                weights.append(float(weight) if weight else 1.0)
            except ValueError:
                raise OptionError(
                    f"{name} is {text!r}: give numbers of tokens as in 128,512, or with weights "
                    "as in 128:3,512:1"
                ) from None
        if not all(1 <= length <= _MOST_TOKENS for length in lengths):
            raise OptionError(f"{name} is {text!r}: give lengths of 1 to {_MOST_TOKENS} tokens")
        if not all(0 < weight < float("inf") for weight in weights):
            raise OptionError(f"{name} is {text!r}: give weights above 0")
        return cls(tuple(lengths), tuple(weights))


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """One run of load.

    Attributes:
        namespace: Namespace of the Service.
        service: Name of the Service.
        rate: Mean arrivals per second; they do not wait for answers.
        duration: Seconds after which no further request is sent.
        prompt_tokens: Lengths of prompts.
        output_tokens: Numbers of tokens asked for.
        stream: Whether answers are asked for as server-sent events.
        keep_alive: Whether connections are used again. A connection stays with the endpoint that
            was chosen when it was opened.
        connections: With `keep_alive`, how many connections there are at most.
        in_flight: How many requests are under way at most; what arrives beyond is dropped.
        timeout: Seconds after which a request is given up.
        drain: Seconds that requests under way are given when the load ends.
        seed: Seed of arrivals, lengths, prompts and choices of endpoints.
    """

    namespace: str
    service: str
    rate: float
    duration: float = 3600.0
    prompt_tokens: Mix = field(default_factory=lambda: Mix((128, 512), (3.0, 1.0)))
    output_tokens: Mix = field(default_factory=lambda: Mix((16, 64), (1.0, 1.0)))
    stream: bool = True
    keep_alive: bool = False
    connections: int = 64
    in_flight: int = 512
    timeout: float = 120.0
    drain: float = 10.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.rate <= _MOST_REQUESTS_PER_SECOND:
            raise OptionError(
                f"rate is {self.rate}: give requests per second above 0, at most "
                f"{_MOST_REQUESTS_PER_SECOND:.0f}"
            )
        for name in ("duration", "timeout"):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise OptionError(f"{name} is {value}: give seconds above 0")
        for name in ("connections", "in_flight"):
            value = getattr(self, name)
            if value < 1:
                raise OptionError(f"{name} is {value}: give a whole number of 1 or more")
