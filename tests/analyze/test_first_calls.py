"""First calls against the median of the others, by a plain loop; whose call is the first, and when."""

from __future__ import annotations

from collections import defaultdict
from statistics import median

import pytest
from hypothesis import given
from join.programs import CALL_IDS, Program, attributed, programs
from made_reports import PUSH_POP, Made, thread
from witness.attribution import Range

import bridge
from bridge.report import Report

CALLS = [  # op, process, start, end
    ("slow", 100, 1_000, 1_900),
    ("slow", 100, 2_000, 2_010),
    ("slow", 101, 2_100, 2_400),  # the first of its process, shorter than the other's
    ("slow", 101, 2_500, 2_520),
    ("slow", 100, 3_000, 3_030),
    ("faster first", 100, 4_000, 4_010),
    ("faster first", 100, 5_000, 5_020),
    ("once", 100, 6_000, 9_000),
    ("slower twice", 100, 10_000, 10_100),
    ("slower twice", 100, 10_200, 10_250),
    ("slower twice", 100, 10_300, 10_325),
]
COLUMNS = ["op", "calls", "first_ns", "median_ns", "more_ns"]


def written(path, calls):
    made = Made()
    for pid in (100, 101):
        made.names_of(pid)
    for op, pid, start, end in calls:
        made.annotation(PUSH_POP, start, end, text=op, thread=thread(pid))
    return made.written(path)


def rows(report):
    table = report.by("first-call")
    assert list(table.columns) == COLUMNS
    return [tuple(row) for row in table.to_numpy().tolist()]


def test_the_first_call_is_the_first_of_the_op_and_the_slowest_is_on_top(tmp_path):
    calls = CALLS[::-1]  # the order of a file tells nothing
    assert rows(bridge.load(written(tmp_path / "r.sqlite", calls))) == [
        ("slow", 5, 900, 20, 880),
        ("slower twice", 3, 100, 37.5, 62),
        ("faster first", 2, 10, 20, 0),
    ]


def test_the_first_call_of_a_selected_time_is_the_first_in_it(tmp_path):
    report = bridge.load(written(tmp_path / "r.sqlite", CALLS))
    later = report.within(first_ns=1_000)  # since the first event
    assert rows(later) == [
        ("slow", 4, 300, 25, 275),
        ("slower twice", 3, 100, 37.5, 62),
        ("faster first", 2, 10, 20, 0),
    ]
    # The last call is not in it: its time counts for no other.
    earlier = report.within(last_ns=9_250)
    assert rows(earlier)[1] == ("slower twice", 2, 100, 50, 50)


def test_each_report_has_first_calls_whatever_the_order_of_reports(tmp_path):
    late = [("a", 100, 9_000, 9_050), ("a", 100, 9_100, 9_103), ("b", 100, 9_200, 9_201)]
    early = [("a", 100, 1_000, 1_070), ("a", 100, 1_100, 1_105), ("b", 100, 1_200, 1_250)]
    paths = [written(tmp_path / f"{n}.sqlite", calls) for n, calls in enumerate((late, early))]
    assert rows(bridge.load(*paths)) == rows(bridge.load(*paths[::-1])) == [("a", 4, 70, 4, 66)]


def test_a_call_in_slices_is_as_long_as_they_are_and_none_is_shorter_than_nothing():
    times = [  # payload, start, end
        (CALL_IDS[0], 0, 4),
        (CALL_IDS[1], 5, 7),
        (CALL_IDS[0], 8, 16),
        (-1, 20, 17),  # the clock was set back
    ]
    home = {"report": 0, "process": 7 << 24, "thread": 7 << 24 | 1, "op": "a"}
    ranges = [Range(**home, start=s, end=e, payload=payload) for payload, s, e in times]
    program = Program(ranges, [], [], ["a"] * len(ranges))
    assert rows(Report(attributed(program))) == [("a", 3, 12, 1, 11)]


def brute(program):
    """Go through the calls of each process in the order of their starts; slices of one add up."""
    truth = program.profile()
    slices = defaultdict(list)
    for row in truth.op_rows():
        slices[truth.call_of(row)].append(truth.ranges[row])
    first, others = {}, defaultdict(list)
    begun = sorted(slices.values(), key=lambda call: min(one.start for one in call))
    for call in begun:
        op, home = call[0].op, (call[0].report, call[0].process)
        length = sum(one.end - one.start for one in call)
        if (op, home) in first:
            others[op].append(length)
        else:
            first[op, home] = length
    result = []
    for op, lengths in others.items():
        longest, usual = max(n for (of, _), n in first.items() if of == op), median(lengths)
        calls = len(lengths) + sum(of == op for of, _ in first)
        result.append((op, calls, longest, usual, round(max(longest - usual, 0))))
    return sorted(result, key=lambda row: (-row[-1], row[0]))


@pytest.mark.slow
@given(programs())
def test_against_a_plain_loop(program):
    assert rows(Report(attributed(program))) == brute(program)


def test_no_op_that_is_called_twice_is_a_line(tmp_path):
    report = bridge.load(written(tmp_path / "r.sqlite", [("once", 100, 1, 2), ("too", 100, 3, 4)]))
    assert not rows(report)
    assert "called an op twice" in report.nothing("first-call")
