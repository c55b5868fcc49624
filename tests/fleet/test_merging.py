"""Putting aggregates together, against plain loops; packing loses nothing."""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict

import numpy as np
import pytest
from command import done
from hypothesis import given
from hypothesis import strategies as st

from bridge.analyze.tables.statistics import spread, spread_of_counted, times_of
from bridge.scale import merging
from bridge.scale.merging import PartialTable, Times, merge_all, merge_tables, packed, unpacked
from fleet.reports import several

NAMES = st.sampled_from(["", "mm", "add", "ü", "a,b", "\ud800", "x" * 300])
INTS = st.integers(-(2**62), 2**62)
SUMS = st.integers(-(2**59), 2**59)  # of which no float tells all apart
ROW = st.tuples(NAMES, st.integers(-1, 3), SUMS, st.lists(INTS | st.integers(0, 3), max_size=6))


@st.composite
def tables(draw: st.DrawFn) -> list[tuple[str, int, int, list[int]]]:
    """Draw the rows of one report's table: no two are called the same."""
    return draw(st.lists(ROW, max_size=5, unique_by=lambda row: row[:2]))


def made(rows: list[tuple[str, int, int, list[int]]]) -> PartialTable:
    labels = {
        "op": np.array([*(row[0] for row in rows), None], object)[:-1],
        "step": np.array([row[1] for row in rows], np.int64),
    }
    times = [np.array(sorted(row[3]), np.int64) for row in rows]
    total = np.array([row[2] for row in rows], np.int64)
    return PartialTable(labels, {"total_ns": total}, {"times": Times.of(times)})


def every(times: Times) -> tuple[np.ndarray, np.ndarray]:
    """Give row and value of every single time."""
    return np.repeat(times.row, times.times), np.repeat(times.value, times.times)


def plain(table: PartialTable) -> dict[tuple[str, int], tuple[int, list[int]]]:
    """Give a table as a dictionary, one Python value at a time."""
    row, value = (column.tolist() for column in every(table.times["times"]))
    of_row: dict[int, list[int]] = defaultdict(list)
    for r, v in zip(row, value, strict=True):
        of_row[r].append(v)
    keys = zip(table.labels["op"].tolist(), table.labels["step"].tolist(), strict=True)
    sums = table.sums["total_ns"].tolist()
    return {key: (sums[r], of_row[r]) for r, key in enumerate(keys)}


def brute(reports: list[list[tuple[str, int, int, list[int]]]]) -> dict:
    sums: Counter = Counter()
    times: dict = defaultdict(list)
    for rows in reports:
        for op, step, total, values in rows:
            sums[op, step] += total
            times[op, step] += values
    return {key: (sums[key], sorted(times[key])) for key in times}


@pytest.mark.slow
@given(st.lists(tables(), min_size=1, max_size=5))
def test_merging_adds_up_what_is_called_the_same(reports):
    merged = merge_tables([made(rows) for rows in reports])
    assert plain(merged) == brute(reports)
    assert len(plain(merged)) == merged.rows


@pytest.mark.slow
@given(st.lists(tables(), min_size=2, max_size=5), st.randoms(), st.data())
def test_neither_order_nor_grouping_changes_anything(reports, random, data):
    parts = [made(rows) for rows in reports]
    whole = plain(merge_tables(parts))
    cut = data.draw(st.integers(1, len(parts) - 1))
    random.shuffle(parts)
    assert plain(merge_tables(parts)) == whole
    assert plain(merge_tables([merge_tables(parts[:cut]), merge_tables(parts[cut:])])) == whole


@pytest.mark.slow
@given(st.lists(tables(), min_size=1, max_size=4))
def test_rows_that_are_apart_stay_apart(reports):
    parts = [made(rows) for rows in reports]
    merged = merge_tables(parts, apart=True)
    assert merged.rows == sum(part.rows for part in parts)
    assert merged.labels["op"].tolist() == [row[0] for rows in reports for row in rows]
    assert merged.sums["total_ns"].tolist() == [row[2] for rows in reports for row in rows]
    row, value = every(merged.times["times"])
    assert value.tolist() == [v for rows in reports for one in rows for v in sorted(one[3])]
    counts = [len(one[3]) for rows in reports for one in rows]
    assert np.bincount(row, minlength=merged.rows).tolist() == (counts or [])


@pytest.mark.slow
@given(tables())
def test_packing_loses_nothing(rows):
    table, back = made(rows), unpacked(packed(made(rows)))
    assert plain(back) == plain(table)
    assert list(back.labels) == list(table.labels)
    assert [c.dtype for c in back.labels.values()] == [c.dtype for c in table.labels.values()]
    assert back.times["times"].times.tolist() == table.times["times"].times.tolist()


@given(st.binary(max_size=50))
def test_other_bytes_are_refused(data):
    with pytest.raises(ValueError, match="damaged"):
        unpacked(data)


@pytest.mark.parametrize(
    "head",
    [
        '{"labels": [], "texts": {}, "columns": [["sum n", 3, 0]]}',  # no integers have three bytes
        '{"labels": [], "texts": {}, "columns": [["sum n", 8, 9]]}',  # shorter than it says
        '{"labels": ["op"], "texts": {}, "columns": []}',
        '{"labels": [], "texts": {}, "columns": [["value t", 1, 0]]}',
        '{"labels": []}',
        "[]",
        "7",
        "{",
    ],
)
def test_a_table_that_lacks_something_is_refused(head):
    data = len(head).to_bytes(8, "little") + head.encode()
    with pytest.raises(ValueError, match="damaged"):
        unpacked(zlib.compress(data))


@given(st.lists(st.tuples(st.integers(-1, 3), INTS), max_size=20))
def test_times_of_a_group_are_all_of_them_in_order(pairs):
    group, value = (np.array([p[i] for p in pairs], np.int64) for i in range(2))
    found = times_of(group, value, 4)
    assert [part.tolist() for part in found] == [
        sorted(v for g, v in pairs if g == n) for n in range(4)
    ]


def test_nothing_is_no_table():
    with pytest.raises(ValueError, match="nothing"):
        merge_tables([])


@given(st.lists(st.lists(st.integers(0, 9) | st.integers(0, 2**40), max_size=9), max_size=5))
def test_statistics_of_counted_times_are_those_of_every_time(rows):
    times = Times.of([np.array(sorted(row), np.int64) for row in rows])
    group, value = every(times)
    counted = spread_of_counted("", times.row, times.value, times.times, len(rows))
    at_once = spread("", group, value, len(rows))
    assert {name: column.tolist() for name, column in counted.items()} == {
        name: column.tolist() for name, column in at_once.items()
    }


@given(st.lists(tables(), min_size=1, max_size=8), st.integers(0, 60))
def test_tables_that_are_merged_as_they_come_are_those_that_are_merged_at_once(rows, most):
    parts = [made(of) for of in rows]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(merging, "BATCH", most)
        assert plain(merge_all(iter(parts))) == plain(merge_tables(parts))
        batches = [*merging.batches(iter(parts))]
    assert [id(part) for batch in batches for part in batch] == [*map(id, parts)]
    assert all(len(batch) == 1 or sum(part.size for part in batch) <= most for batch in batches)


@pytest.mark.slow
def test_batches_change_no_table(tmp_path, monkeypatch):
    reports = several(tmp_path, 3)
    for by in ("op,shape", "report,op"):
        command = ("report", *reports, "--by", by, "--format", "json", "--workers", "1")
        once = done(*command)
        with monkeypatch.context() as patched:
            patched.setattr(merging, "BATCH", 1)
            assert done(*command) == once
