"""What `vllm-upgrade inventory` prints of what was seen."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.upgrade.inventory.test_assess import release, workload
from tests.unit.upgrade.world import V1
from vllm_upgrade_operator.cli import inventory
from vllm_upgrade_operator.cli.exits import CommandError
from vllm_upgrade_operator.upgrade.inventory.assess import assess
from vllm_upgrade_operator.upgrade.inventory.row import Row, in_order

TARGET = "0.33.0"


def rows() -> list[Row]:
    found = [
        assess(workload(name="fine"), release(TARGET)),
        assess(workload("--no-such-flag", name="gone", namespace="other"), release(TARGET)),
        assess(workload(name="slow", pod={"runner": V1}), release(TARGET)),
        assess(workload(name="new", pod={"version": None, "runner": None}), release(TARGET)),
    ]
    return in_order(found)


def test_the_table_has_the_most_severe_first_and_totals_last() -> None:
    lines = inventory.as_table(rows(), TARGET).splitlines()
    assert lines[0].startswith("NAMESPACE   WORKLOAD")
    assert "PREDICTED (0.33.0)" in lines[0]
    cells = [line.split() for line in lines[1:5]]
    assert [c[1] for c in cells] == [
        "Deployment/gone",
        "Deployment/slow",
        "Deployment/fine",
        "Deployment/new",
    ]
    assert cells[0][2:5] == ["0.29.0", "V2:2", "none"]
    assert cells[1][2:5] == ["0.29.0", "V1:2", "V2"]
    assert cells[3][2:4] == ["0.29.0?", "unknown:2"]
    other, serving, all_of_them = lines[-3:]
    assert other == (
        "other: 1 workload (1 CannotStart), 2 endpoints: 0 on V1, 2 on V2, 0 unknown; "
        "fallback ratio 0%"
    )
    assert serving == (
        "serving: 3 workloads (1 Advice, 2 None), 6 endpoints: 2 on V1, 2 on V2, 2 unknown; "
        "fallback ratio 50%"
    )
    assert all_of_them == (
        "in all: 4 workloads (1 CannotStart, 1 Advice, 2 None), 8 endpoints: 2 on V1, 4 on V2, "
        "2 unknown; fallback ratio 33%"
    )


def test_nothing_found_is_said() -> None:
    assert inventory.as_table([], TARGET) == "no workload that runs vLLM was found"


def test_json_has_everything() -> None:
    read = json.loads(inventory.as_json(rows(), TARGET))
    assert read["targetVersion"] == TARGET
    gone = read["workloads"][0]
    assert (gone["kind"], gone["name"], gone["severity"]) == ("Deployment", "gone", "CannotStart")
    assert gone["predictedRunner"] is None
    assert gone["findings"][0]["reason"] == "FlagUnknown"
    assert gone["nextStep"] == gone["findings"][0]["message"]
    fine = next(w for w in read["workloads"] if w["name"] == "fine")
    assert (fine["version"], fine["versionFrom"]) == ("0.29.0", "observed")
    assert (fine["endpoints"], fine["onV2"], fine["fallbackRatio"]) == (2, 2, 0.0)
    assert read["totals"]["fallbackRatio"] == 0.3333
    assert read["totals"]["severities"]["CannotStart"] == 1
    assert read["namespaces"]["serving"]["fallbackRatio"] == 0.5
    assert json.loads(inventory.as_json([], TARGET))["totals"]["fallbackRatio"] is None


def test_csv_has_a_line_for_each() -> None:
    read = list(csv.DictReader(io.StringIO(inventory.as_csv(rows(), TARGET))))
    assert [r["name"] for r in read] == ["gone", "slow", "fine", "new"]
    assert read[2]["admissionLimits"] == "max-num-queued-reqs=256"
    assert read[0]["predictedRunner"] == ""
    assert {r["targetVersion"] for r in read} == {TARGET}


def test_no_cell_of_a_csv_is_a_formula() -> None:
    row = replace(rows()[0], architecture='=HYPERLINK("http://x")', features=("+1", "b"))
    (read,) = csv.DictReader(io.StringIO(inventory.as_csv([row], TARGET)))
    assert read["architecture"] == '\'=HYPERLINK("http://x")'
    assert read["features"] == "'+1; b"


def test_a_target_version_that_is_none_is_refused() -> None:
    with pytest.raises(CommandError, match="--target-version: version 'newest'"):
        inventory.target_release("newest")
    found: Any = inventory.target_release("v0.29.0")
    assert found.text == "0.29.0"
