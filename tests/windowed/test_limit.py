"""How much memory a report is said to take, by the figures of docs/memory-limit.md, and in how many windows it fits into less."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from functools import partial

import made_reports
import pytest
from command import assert_misused, bridge
from made_reports import report

from bridge import importers
from bridge.analyze.tables.request import TableRequest
from bridge.importers.errors import ReportError
from bridge.join.grammar import parse
from bridge.knowledge import amounts
from bridge.scale.requests import PartRequest
from bridge.scale.windows import window

MB = 10**6
OPS, KERNELS = PartRequest(TableRequest("op"), ()), PartRequest(TableRequest("kernel"), ())


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("2GB", 2 * 10**9),
        ("1.5G", 15 * 10**8),
        ("300 mb", 3 * 10**8),
        ("4kB", 4_000),
        ("2T", 2 * 10**12),
        ("1000", 1000),
        ("1KiB", 1024),
        ("512MiB", 1 << 29),
        ("3GiB", 3 << 30),
        ("2tib", 2 << 40),
    ],
)
def test_amounts(text, amount):
    assert amounts.parse_bytes(text) == amount


@pytest.mark.parametrize("text", ["", "2 apples", "-1GB", "1iB", "GB", "1e9", "nan", "0.1"])
def test_what_is_no_amount_is_refused(text):
    with pytest.raises(ValueError, match="is no amount of memory"):
        amounts.parse_bytes(text)


def test_a_command_refuses_it_too(tmp_path):
    path = report(tmp_path / "made.sqlite")
    assert_misused(bridge("report", path, "--memory-limit", "1iB"), "is no amount of memory")


def test_what_a_report_takes_is_by_its_rows_and_the_tables_asked_for(tmp_path):
    path = report(tmp_path / "made.sqlite", steps=50)
    rows = window.windows.row_counts(path)
    all_rows = rows.launches + rows.activities + rows.annotations
    assert all_rows > 50 * 7
    capture = importers.load(path)
    texts = "SELECT coalesce(text, (SELECT value FROM StringIds WHERE id = textId), '') FROM NVTX_EVENTS"
    with closing(sqlite3.connect(path)) as database:  # marks and names of domains are among them
        names = {text for (text,) in database.execute(texts)}
    is_kernel = capture.activities.kind == "kernel"
    ops, kernels = (
        len({parse(n).op for n in names}),
        len(capture.activities.name[is_kernel].used),
    )
    of_kernels = 300 * len(names) + (450 + 650) * kernels  # texts are read, but are no rows
    assert window.memory_needed(path, [KERNELS]) == 200 * all_rows + of_kernels
    assert window.memory_needed(path, [OPS]) == 340 * all_rows + 1_500 * ops + 650 * kernels
    assert window.memory_needed(path, [OPS], raw=True) == (
        340 * all_rows + 1_500 * len(names) + 650 * kernels
    )
    of_both = 3_500 * ops + 2_900 * kernels
    assert window.memory_needed(path, [KERNELS, OPS]) == 500 * all_rows + of_both


@pytest.mark.parametrize("distinct", [30, 3_000, 60_000])
def test_distinct_names_are_estimated_from_a_sample(tmp_path, distinct):
    path, rows = made_reports.small(tmp_path / "made.sqlite"), 60_000
    with closing(sqlite3.connect(path)) as database, database:
        columns = [row[1] for row in database.execute("PRAGMA table_info(NVTX_EVENTS)")]
        others = ", ".join(c for c in columns if c not in {"text", "textId"})
        ranges = database.execute("SELECT count(*) FROM NVTX_EVENTS").fetchone()[0]
        chosen = random.Random(1).choices(range(distinct), k=rows)
        database.executemany(
            f"INSERT INTO NVTX_EVENTS ({others}, text) SELECT {others}, ?"
            " FROM NVTX_EVENTS WHERE eventType = 59 LIMIT 1",
            ((f"op_{n}_y",) for n in chosen),
        )
    found = window.distinct_names(path, [OPS])["op"]
    assert 0.7 * distinct <= found <= min(1.3 * distinct + ranges, rows + ranges)
    assert window.distinct_names(path, [OPS], raw=True)["op"] >= found
    assert window.distinct_names(path, [KERNELS])["op"] == 0


def test_rows_by_shape_and_by_whole_texts_are_counted_by_what_calls_them(tmp_path):
    path = report(tmp_path / "made.sqlite", steps=500, pids=(100,))
    texts = "UPDATE NVTX_EVENTS SET textId = NULL, text = 'aten::mm, seq = ' || rowid"
    made_reports.changed(path, f"{texts} || ', sizes = [[' || (rowid % 50) || ', 3]]'")
    shapes = PartRequest(TableRequest("op,shape"), ())
    assert window.distinct_names(path, [OPS])["op"] == 1
    assert 40 <= window.distinct_names(path, [shapes])["op"] <= 60
    assert window.distinct_names(path, [OPS], raw=True)["op"] > 2_000


def test_a_report_of_distinct_names_is_refused_before_it_takes_the_memory(tmp_path, monkeypatch):
    path = report(tmp_path / "made.sqlite")
    monkeypatch.setattr(window, "distinct_names", lambda *_, **__: {"op": 10**6, "kernel": 0})
    assert window.count(path, [OPS], 2_000 * MB) == 1
    assert window.count(path, [OPS], 1_500 * MB) > 1
    with pytest.raises(ReportError, match=r": 14\d\dMB is the least"):
        window.count(path, [OPS], 512 * MB)


def test_memory_that_grows_with_each_window_is_refused_before_it_exceeds_the_limit():
    checked = partial(window.check_memory, "made.sqlite", 1_000 * MB, windows=10)
    checked([100 * MB, 800 * MB, 900 * MB])
    checked([100 * MB, 500 * MB, 1_000 * MB, 1_010 * MB])  # it levels off
    checked([100 * MB, 1_000 * MB])
    checked([1_200 * MB, 1_200 * MB])  # reached by what came before
    with pytest.raises(ReportError, match="1000MB are taken after window 3 of 10, by what is kept"):
        checked([100 * MB, 700 * MB, 850 * MB, 1_000 * MB])


def test_a_table_that_is_too_large_to_write_is_refused(monkeypatch):
    monkeypatch.setattr(window, "_memory", lambda _entry: 500 * MB)
    window.check_output(["made.sqlite"], 1_000 * MB, 10_000_000, "csv")
    window.check_output(["made.sqlite"], 400 * MB, 10_000, "csv")  # a small one always goes
    with pytest.raises(ReportError, match=r"to write 10000000 cells as md: 1250MB are needed"):
        window.check_output(["made.sqlite"], 1_000 * MB, 10_000_000, "md")


@pytest.fixture
def of_gigabytes(tmp_path, monkeypatch):
    """Give a report that is said to take so many gigabytes, besides 26 bytes for each of its few calls."""

    def made(gigabytes: int):
        monkeypatch.setattr(window, "memory_needed", lambda _path, _tables, **_: gigabytes * 10**9)
        return report(tmp_path / "made.sqlite")

    return made


def test_a_report_that_fits_is_read_at_once(of_gigabytes):
    path = of_gigabytes(1)
    assert window.count(path, [OPS], 1_170 * MB) == 1
    assert window.count(path, [OPS], 1_170 * MB - 1) == 2
    assert window.count(path, [OPS, KERNELS], 1_430 * MB) == 1  # several tables: 260 MB more
    assert window.count(path, [OPS, KERNELS], 1_430 * MB - 1) == 2


def test_less_memory_takes_more_windows(of_gigabytes):
    path = of_gigabytes(1)
    assert window.count(path, [OPS], 421 * MB) == 4  # a little less than 251 MB for each
    assert window.count(path, [OPS], 211 * MB) == 25


@pytest.mark.parametrize(("gigabytes", "least"), [(1, 211), (100, 271)])
def test_the_least_is_forty_megabytes_a_window_and_a_thousand_windows(
    of_gigabytes, gigabytes, least
):
    path = of_gigabytes(gigabytes)
    assert window.count(path, [OPS], least * MB) > 1
    with pytest.raises(ReportError, match=rf"200MB is too little: {least}MB is the least"):
        window.count(path, [OPS], 200 * MB)


@pytest.mark.skipif(
    not window.STATUS.exists(), reason="/proc says what a process had on Linux alone"
)
def test_what_was_taken_is_what_the_system_says():
    before = window.peak_memory()
    assert before > 10**7
    held = bytearray(before + 10**7)
    held[::4096] = b"x" * len(held[::4096])
    assert window.peak_memory() > before + 10**7
