"""What windows refuse, how they are cut, and where the name of a file stands in their tables."""

from __future__ import annotations

import pytest
from command import assert_refused, bridge, done
from made_reports import PUSH_POP, Made, report, thread

from bridge.importers.nsys.read import export_queries
from bridge.importers.nsys.survey import window_cuts
from bridge.importers.sqlite_columns import Database
from bridge.join import nesting
from bridge.scale.windows import aggregation, window


@pytest.fixture
def in_windows(monkeypatch):
    """Let every report take three windows."""
    for name in ("BASE", "MANY", "PER_CALL"):
        monkeypatch.setattr(window, name, 0)
    monkeypatch.setattr(window, "LEAST", 1)
    monkeypatch.setattr(aggregation, "peak_memory", lambda: 0)  # the tests' own process is larger
    monkeypatch.setattr(window, "memory_needed", lambda _path, _tables, **_: 25_000_000)


@pytest.mark.slow
@pytest.mark.parametrize("by", ["thread,op,report", "process,shape,report"])
@pytest.mark.parametrize("also", [["--memory-limit", "10MB"], ["--workers", "1"]], ids=str)
def test_the_file_of_a_row_stands_where_it_was_asked_for(in_windows, tmp_path, by, also):
    command = ["report", report(tmp_path / "made.sqlite"), "--by", by, "--format", "csv"]
    assert done(*command, *also) == done(*command)


def test_tangled_ranges_are_refused_with_the_name_of_their_file(in_windows, tmp_path, monkeypatch):
    monkeypatch.setattr(nesting, "MAX_ROUNDS", 2)
    made = Made()
    for at in (10, 600):
        for n in range(40):
            made.annotation(PUSH_POP, at + n, at + 300 + n, text="a", thread=thread(100))
        made.kernel("gemm", at + 100, 100, at + 110, at + 120)
    path = made.written(tmp_path / "tangled.sqlite")
    assert_refused(bridge("report", path), "tangled.sqlite", "cross each other")
    assert_refused(
        bridge("report", path, "--memory-limit", "10MB"), "tangled.sqlite", "cross each other"
    )


@pytest.mark.parametrize("text", ["0", "0GB", "0.0000000001"])
def test_no_memory_at_all_is_no_amount(tmp_path, text):
    result = bridge("report", report(tmp_path / "made.sqlite"), "--memory-limit", text)
    assert result.exit_code in {1, 2}, result.stdout


@pytest.mark.slow
def test_cuts_part_ranges_too(tmp_path):
    made = Made()
    for n in range(20):  # calls now and then, and thousands of ranges between two of them
        made.kernel("gemm", n * 10_000, 100, n * 10_000 + 10, n * 10_000 + 20)
    for n in range(5_000):
        made.annotation(PUSH_POP, 100_001 + n, 100_002 + n, text="a", thread=thread(100))
    path = made.written(tmp_path / "made.sqlite")
    with Database(path) as database:
        found = window_cuts(database, export_queries(path, database.tables(), details=False), 5, 0)
    most = max(
        sum(a <= 100_001 + n < b for n in range(5_000))
        for a, b in zip([0, *found], [*found, 10**9], strict=True)
    )
    assert most <= 2 * 5_020 // 5


@pytest.mark.slow
def test_a_limit_that_what_is_kept_exceeds_is_said(in_windows, tmp_path, monkeypatch):
    taken = iter([100, 5_000, 11_100_000])  # before, and after two windows
    monkeypatch.setattr(aggregation, "peak_memory", lambda: next(taken))
    path = report(tmp_path / "made.sqlite")
    refused = bridge("report", path, "--memory-limit", "10MB")
    assert_refused(refused, "made.sqlite: --memory-limit 10MB is too little", "after window 2 of 3")


def test_of_a_process_that_had_more_before_nothing_is_said(in_windows, tmp_path, monkeypatch):
    monkeypatch.setattr(aggregation, "peak_memory", lambda: 11_100_000)
    path = report(tmp_path / "made.sqlite")
    whole = done("report", path)
    assert whole.endswith(
        done("report", path, "--memory-limit", "10MB")
    )  # but for the use of the GPUs
