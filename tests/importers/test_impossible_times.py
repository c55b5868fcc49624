"""Times that no capture has: their rows are invalid, what counts them is said once, and no total is negative."""

from __future__ import annotations

from pathlib import Path

import made_reports
import numpy as np
import pytest
from windowed.equal import assert_equal, both

import bridge
from bridge import importers
from bridge.importers import ReportError, frames
from bridge.importers.capture import MAX_DISTANCE_NS
from bridge.importers.nsys import schema
from bridge.importers.query import Query, Value
from bridge.importers.sqlite_columns import Database

FAR = 2**62 - 1
FAR_OFF = MAX_DISTANCE_NS - 10**12  # as far as is possible, but for the length of a made report
EVENTS = {name: schema.READ[name].name for name in ("kernels", "launches", "annotations")}
FORGED = {
    "kernels end far away": ("kernels", f"end = {FAR}", ""),
    "kernels end far before": ("kernels", f"end = {-FAR}", ""),
    "kernels start far away": ("kernels", f"start = {FAR}, end = {FAR}", ""),
    "kernels from far before to far away": ("kernels", f"start = {-FAR}, end = {FAR}", ""),
    "the smallest number": ("kernels", f"start = {-(2**63)}, end = {2**63 - 1}", ""),
    "calls end far away": ("launches", f"end = {FAR}", ""),
    "calls start far away": ("launches", f"start = {FAR}, end = {FAR}", ""),
    "ranges end far away": ("annotations", f"end = {FAR}", "eventType = 59 AND end NOT NULL"),
    "ranges start far before": ("annotations", f"start = {-FAR}", "eventType IN (59, 60)"),
}


def forged(path: Path, table: str, what: str, rows: str) -> Path:
    """Write a report of 40 steps in which every third row of a table has another time."""
    made_reports.small(path, steps=40)
    condition = " AND ".join(["rowid % 3 = 0", *([rows] if "eventType" in rows else [])])
    return made_reports.changed(path, f"UPDATE {EVENTS[table]} SET {what} WHERE {condition}")


def times_told(report: bridge.Report) -> list[str]:
    return [line for line in report.warnings if "no capture has" in line]


@pytest.mark.parametrize("what", FORGED)
def test_no_total_is_negative_and_one_line_says_why(what: str, tmp_path: Path) -> None:
    report = bridge.load(forged(tmp_path / "report.sqlite", *FORGED[what]))
    for by in ("op", "kernel", "op-kernel", "range", "api", "thread"):
        table = report.by(by).select_dtypes("number")
        assert (table.drop(columns="start_ns", errors="ignore") >= -1).all(axis=None), by
        shares = [name for name in table if name.startswith("share")]
        assert (table[shares].fillna(0) <= 1).all(axis=None), by
    begin, end = report.capture.facts[0].span
    assert 0 <= end - begin < 10**9
    assert len(times_told(report)) == 1, times_told(report)


@pytest.mark.parametrize("what", [what for what in FORGED if "kernels" in what])
def test_forged_kernels_are_counted_as_invalid_and_change_no_other_figure(
    what: str, tmp_path: Path
) -> None:
    table, change, rows = FORGED[what]
    honest = bridge.load(made_reports.small(tmp_path / "honest.sqlite", steps=40))
    report = bridge.load(forged(tmp_path / "forged.sqlite", table, change, rows))
    kernels = honest.capture.activities.kind == frames.KERNEL
    is_forged = kernels & (np.arange(1, len(kernels) + 1) % 3 == 0)
    assert report.totals["unattributed"]["invalid_time"] == {
        "activities": is_forged.sum(),
        "gpu_ns": 0,
    }
    assert report.totals["gpu_ns"] == int(honest.attributed.duration[~is_forged].sum())


@pytest.mark.parametrize("what", FORGED)
def test_windows_count_forged_rows_as_the_whole_report_does(what: str, tmp_path: Path) -> None:
    path = forged(tmp_path / "report.sqlite", *FORGED[what])
    assert_equal(*both(path, 3))


def test_a_call_without_a_possible_start_owns_no_work(tmp_path: Path) -> None:
    made = made_reports.Made()
    made.annotation(59, 100, 900, text="op", thread=made_reports.thread(1))
    made.kernel("first", 200, 1, 300, 400)
    made.kernel("second", 210, 1, 400, 500)
    made.tables["launches"][1]["start"] = FAR
    report = bridge.load(made.written(tmp_path / "report.sqlite"))
    assert report.totals["unattributed"] == {"no_launch": {"activities": 1, "gpu_ns": 100}}


def test_instants_and_samples_at_impossible_times_are_left_out_and_counted(tmp_path: Path) -> None:
    path = made_reports.report(tmp_path / "report.sqlite")
    before = importers.load(path)
    memory = schema.READ["memory"].name
    marks = "eventType = 34 AND rowid = (SELECT min(rowid) FROM NVTX_EVENTS WHERE eventType = 34)"
    made_reports.changed(
        path,
        f"UPDATE {memory} SET start = {FAR} WHERE rowid = 1",
        f"UPDATE {memory} SET start = {-FAR} WHERE rowid = 2",
        f"UPDATE NVTX_EVENTS SET start = {FAR} WHERE {marks}",
    )
    capture = importers.load(path)
    assert len(capture.memory) == len(before.memory) - 2
    assert len(capture.marks) == len(before.marks) - 1
    assert len(capture.ranges) == len(before.ranges)
    assert [line for line in capture.warnings if "left out" in line] == [
        "report.sqlite: 3 instants, samples and calls at times that no capture has: left out"
    ]


def test_a_session_of_impossible_length_says_nothing(tmp_path: Path) -> None:
    made = made_reports.Made()
    made.annotation(59, 100, None, text="open", thread=made_reports.thread(1))
    made.kernel("k", 200, 1, 300, 400)
    made.tables["session"] = [{"duration": FAR}]
    capture = importers.load(made.written(tmp_path / "report.sqlite"))
    assert (capture.facts[0].session_ns, capture.facts[0].span) == (-1, (100, 400))


@pytest.mark.parametrize("at", [200 + MAX_DISTANCE_NS, 200 - MAX_DISTANCE_NS])
def test_the_last_possible_time_is_possible(at: int, tmp_path: Path) -> None:
    made = made_reports.Made()
    made.kernel("k", 200, 1, min(at, 210), max(at, 210))
    made.kernel("k", 200, 1, 200, 210)
    report = bridge.load(made.written(tmp_path / "report.sqlite"))
    assert report.totals["gpu_ns"] == abs(at - 210) + 10


def test_times_since_the_epoch_are_possible(tmp_path: Path) -> None:
    """As `nsys export --ts-normalize` writes them."""
    path = made_reports.small(tmp_path / "report.sqlite", steps=40)
    before = bridge.load(path)
    epoch = 1_764_000_000_000_000_000
    for table in ("kernels", "copies", "fills", "graphs", "launches", "annotations", "syncs"):
        name = schema.READ[table].name
        made_reports.changed(
            path, f"UPDATE {name} SET start = start + {epoch}, end = end + {epoch}"
        )
    after = bridge.load(path)
    for by in ("op", "kernel", "op-kernel", "memcpy"):
        assert after.by(by).equals(before.by(by)), by
    assert after.totals == before.totals
    assert times_told(after) == []
    assert_equal(*both(path, 3))


def test_a_table_of_forged_times_alone_does_not_stretch_the_run(tmp_path: Path) -> None:
    path = made_reports.small(tmp_path / "report.sqlite", steps=40)
    span = importers.load(path).facts[0].span
    fills = schema.READ["fills"].name
    made_reports.changed(path, f"UPDATE {fills} SET start = {FAR}, end = {FAR}")
    assert importers.load(path).facts[0].span == span


def test_durations_that_add_up_to_centuries_are_refused_in_windows_too(tmp_path: Path) -> None:
    path = made_reports.small(tmp_path / "report.sqlite", steps=6_000)
    made_reports.changed(path, f"UPDATE {EVENTS['kernels']} SET end = start + {FAR_OFF}")
    with pytest.raises(ReportError, match="add up to centuries"):
        importers.load(path)
    with pytest.raises(ReportError, match="add up to centuries"):
        both(path, 3)


def test_delays_that_add_up_to_centuries_are_refused(tmp_path: Path) -> None:
    path = made_reports.small(tmp_path / "report.sqlite", steps=6_000)
    far = f"UPDATE {EVENTS['kernels']} SET start = {MAX_DISTANCE_NS}, end = {MAX_DISTANCE_NS}"
    made_reports.changed(path, far)
    with pytest.raises(ReportError, match="add up to centuries"):
        bridge.load(path)


def test_reports_whose_durations_add_up_to_centuries_together_are_refused(tmp_path: Path) -> None:
    paths = []
    for number in range(3):
        path = made_reports.small(tmp_path / f"{number}.sqlite", steps=1_500)
        far = f"UPDATE {EVENTS['kernels']} SET end = start + {FAR_OFF}"
        made_reports.changed(path, far)
        importers.load(path)
        paths.append(path)
    with pytest.raises(ReportError, match="all reports together"):
        importers.load(*paths)


def test_a_sum_beyond_64_bits_is_refused_from_pages_as_from_sqlite(tmp_path: Path) -> None:
    """A flag that is added to a type must not make another type of it."""
    path = made_reports.report(tmp_path / "report.sqlite")
    huge = f"UPDATE NVTX_EVENTS SET eventType = {2**63 - 5} WHERE jsonText IS NOT NULL"
    made_reports.changed(path, huge)
    with pytest.raises(ReportError, match="damaged"):
        importers.load(path)
    value = Value(("eventType",), flags=("jsonText",), flag=1 << 32)
    query = Query("NVTX_EVENTS", {"type": value.sql}, values={"type": value})
    with Database(path) as database:
        database.tables()
        assert database._read_pages({"a": query}) == {}
