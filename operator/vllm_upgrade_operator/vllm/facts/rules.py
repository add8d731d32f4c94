"""The state of choosing a runner: what was asked so far, and what could not be told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm_upgrade_operator.vllm.facts.setup import Setup
    from vllm_upgrade_operator.vllm.runner import Runner


@dataclass(slots=True)
class Choice:
    """The rule that decides.

    Attributes:
        runner: What it chooses.
        why: As a clause.
        features: What V1 is fallen back to for.
        refusal: vLLM's words where the rule itself ends the start.
        unsure: What could not be told on the way, as clauses.
    """

    runner: Runner
    why: str
    features: tuple[str, ...] = ()
    refusal: str | None = None
    unsure: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Rules:
    """The rules asked so far, and what they could not tell."""

    setup: Setup
    unsure: list[str] = field(default_factory=list)

    def decided(
        self, runner: Runner, why: str, features: tuple[str, ...] = (), refusal: str | None = None
    ) -> Choice:
        """Decide."""
        return Choice(runner, why, features, refusal, self.unsure)

    def asks(self, answer: bool | None, what: str) -> bool:  # noqa: FBT001 - the answer of a rule
        """Whether a rule applies; unknown is noted, and taken for no."""
        if answer is None:
            self.note_unknown(f"whether {what} is not known")
        return answer is True

    def note_unknown(self, *clauses: str) -> None:
        """Note what is not known; of a command line that cannot be read, that alone."""
        self.unsure.extend(self.setup.options.unread or clauses)
