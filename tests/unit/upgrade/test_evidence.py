from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.cluster.objects import pod
from vllm_upgrade_operator.cluster.pods import parse_pod
from vllm_upgrade_operator.upgrade.evidence import annotation, recalled
from vllm_upgrade_operator.upgrade.names import RUNNER_EVIDENCE
from vllm_upgrade_operator.vllm.runner import Runner, RunnerEvidence, Source

SEEN = RunnerEvidence(
    runner=Runner.V1,
    how="a line",
    fallback_features=("ngram", "triton"),
    source=Source.METRIC,
    seen_at=1796073000.25,
)


def written(**state: Any) -> str:
    text = annotation(replace(parse_pod(pod(**state), "vllm"), runner=SEEN))
    assert text is not None
    return text


def test_what_was_seen_is_recalled_for_the_same_process() -> None:
    again = parse_pod(pod(annotations={RUNNER_EVIDENCE: written()}), "vllm")
    assert recalled(again) == SEEN


def test_it_says_how_and_when() -> None:
    assert json.loads(written()) == {
        "runner": "V1",
        "how": "a line",
        "source": "metric",
        "observed": "2026-11-30T21:10:00.250Z",
        "containerStarted": "2026-11-30T10:00:05.000Z",
        "fallbackFeatures": ["ngram", "triton"],
    }


def test_another_process_has_to_be_looked_at_anew() -> None:
    restarted = {"running": {"startedAt": "2026-11-30T11:00:00Z"}}
    again = parse_pod(pod(annotations={RUNNER_EVIDENCE: written()}, state=restarted), "vllm")
    assert recalled(again) is None


STARTED = '"containerStarted": "2026-11-30T10:00:05.000Z", "how": "x", "runner": "V2"'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "V2",
        "[]",
        "{}",
        '{"containerStarted": 5, "runner": "V2"}',
        f'{{{STARTED}, "source": "rumour"}}',
        f'{{{STARTED}, "observed": "yesterday"}}',
    ],
)
def test_what_somebody_else_wrote_says_nothing(text: str) -> None:
    assert recalled(parse_pod(pod(annotations={RUNNER_EVIDENCE: text}), "vllm")) is None


def test_an_unknown_runner_is_not_recalled() -> None:
    seen = RunnerEvidence(runner=Runner.UNKNOWN, how="no line")
    text = annotation(replace(parse_pod(pod(), "vllm"), runner=seen))
    assert text is not None
    assert recalled(parse_pod(pod(annotations={RUNNER_EVIDENCE: text}), "vllm")) is None


def test_whatever_a_log_names_fits_into_an_annotation() -> None:
    """Those of all annotations of an object may have 256 KiB together."""
    strange = tuple(f"{i}\x00\udcff\U0001f600" + "ü" * 120 for i in range(500))
    seen = RunnerEvidence(runner=Runner.V1, how="\x1b" * 9999, fallback_features=strange)
    text = annotation(replace(parse_pod(pod(), "vllm"), runner=seen))
    assert text is not None
    assert text.isascii()
    assert text.isprintable()
    assert len(text) < 64 * 1024
    again = recalled(parse_pod(pod(annotations={RUNNER_EVIDENCE: text}), "vllm"))
    assert again is not None
    # One more than there can be exceptions for: what was cut is never all excepted.
    assert again.fallback_features == strange[:33]


def test_before_the_log_was_read_there_is_nothing_to_write() -> None:
    assert annotation(parse_pod(pod(), "vllm")) is None
