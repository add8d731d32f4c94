"""Why the metrics of a pod could not be read, and what helps.

None of these is a finding about the candidate: what is not read is unknown, not bad.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ScrapeReason(StrEnum):
    """The kind of problem; a reason of the condition `MetricsAvailable`."""

    NOT_ALLOWED = "ScrapeNotAllowed"
    """The operator asks on declared ports of a pod's own address, and nowhere else."""
    REFUSED = "ScrapeRefused"
    TIMEOUT = "ScrapeTimeout"
    TRUNCATED = "ScrapeTruncated"
    TOO_LARGE = "ScrapeTooLarge"
    REDIRECTED = "ScrapeRedirected"
    BAD_STATUS = "ScrapeBadStatus"
    MALFORMED = "ScrapeMalformed"
    NOT_VLLM = "NotVLLM"


ADVICE = {
    ScrapeReason.NOT_ALLOWED: "change the pod template",
    ScrapeReason.REFUSED: (
        "see whether vLLM listens on that port on all addresses, and whether a NetworkPolicy "
        "keeps the operator out"
    ),
    ScrapeReason.TIMEOUT: "see whether the pod has CPU enough to answer, and its log",
    ScrapeReason.TRUNCATED: "see the pod's log, and what stands between it and the operator",
    ScrapeReason.TOO_LARGE: "see which server answers there; vLLM's metrics are far smaller",
    ScrapeReason.REDIRECTED: "let the port of vLLM itself answer; redirects are not followed",
    ScrapeReason.BAD_STATUS: "let vLLM answer GET /metrics with 200",
    ScrapeReason.MALFORMED: "see which server answers there, and the pod's log",
    ScrapeReason.NOT_VLLM: (
        "see which server answers there; vLLM itself has no metrics only where it runs with "
        "--disable-log-stats: unset that"
    ),
}
"""What to do about each, as a clause."""


@dataclass(frozen=True, slots=True)
class ScrapeProblem:
    """One pod's metrics could not be read.

    Attributes:
        reason: The kind.
        message: What happened, in a clause; nothing in it comes from the pod.
    """

    reason: ScrapeReason
    message: str
