"""Times of events: people see them from the first event on, as --from and --to take them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from command import done

pytestmark = pytest.mark.slow


@pytest.fixture
def path(corpus: Path) -> Path:
    return corpus / "nsys" / "mnist-training.sqlite"


def document(*words: str | Path) -> dict:
    return json.loads(done("report", *words, "--format", "json"))


def test_documents_keep_the_clock_of_the_report(path):
    why = json.loads(done("why", path, "#0", "--format", "json"))
    assert why["base_ns"] == 18_293_995  # the first event
    gaps = document(path, "--by", "gap", "--top", "3")
    # The largest gap is from the begin of the run, a call of the operating system, to the first work.
    assert [row["start_ns"] for row in gaps["rows"][:2]] == [18_144_282, 11_775_146_916]
    rows = csv.DictReader(io.StringIO(done("report", path, "--by", "gap", "--format", "csv")))
    assert [next(rows)["start_ns"] for _ in range(2)] == ["18144282", "11775146916"]


def test_people_see_times_that_from_and_to_take(path):
    words = ["report", path, "--by", "gap", "--format", "md"]
    shown = 11_775_146_916 - 18_293_995
    text = done(*words, "--top", "2")
    assert "| 11.757 s |" in text
    gaps = document(path, "--by", "gap", "--filter", f"start={shown}ns")
    assert [row["start_ns"] for row in gaps["rows"]] == [11_775_146_916]
    length = gaps["rows"][0]["gap_ns"]
    window = ["--from", f"{shown - 1}ns", "--to", f"{shown + length + 1}ns"]
    [found] = document(path, "--by", "gap", *window)["rows"]  # the gaps within the window are cut
    assert (found["start_ns"], found["gap_ns"]) == (11_775_146_916, length)
    window = ["--from", f"{shown + 1_000}ns", "--to", f"{shown + length + 1}ns"]
    [found] = document(path, "--by", "gap", *window)["rows"]
    assert (found["start_ns"], found["gap_ns"]) == (11_775_147_916, length - 1_000)


def test_a_missing_time_stays_missing(path):
    rows = document(path, "--by", "range", "--sort", "gpu_start")["rows"]
    assert {row["gpu_start_ns"] for row in rows if not row["activities"]} == {-1}
    assert all(row["gpu_start_ns"] >= row["start_ns"] for row in rows if row["activities"])
