"""Every table of made-up programs against the slow opinion, and the laws that hold whatever is recorded."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from join.compare import keyed, only, same
from join.programs import Program, attributed, programs, raw, report_of, without_libraries

from bridge.analyze.core.catalog import TABLES
from bridge.analyze.core.totals import totals
from bridge.analyze.tables.activity_columns import by_kernel, by_memcpy, by_op_kernel
from bridge.analyze.tables.breakdown import by_op
from bridge.analyze.tables.ranges import by_range
from bridge.importers.capture import concat
from bridge.importers.frames import FRAMES
from bridge.join.attributed import AttributedCapture

pytestmark = pytest.mark.slow


@given(programs())
def test_by_op(program):
    table = by_op(attributed(program))
    assert tuple(table.columns) == TABLES["op"].default
    same(keyed(table, "op"), only(program.profile().by_op()))


@given(programs())
def test_by_op_of_raw_names(program):
    same(keyed(by_op(attributed(program, raw=True)), "op"), only(raw(program).profile().by_op()))


@pytest.mark.parametrize("inclusive", [False, True])
@given(program=programs())
def test_by_op_kernel(program, inclusive):
    table = by_op_kernel(attributed(program), inclusive=inclusive)
    same(keyed(table, "op", "kernel"), program.profile().by_op_kernel(inclusive=inclusive))


@given(programs())
def test_by_kernel_and_by_memcpy(program):
    joined, profile = attributed(program), program.profile()
    for name in ("short", "demangled", "mangled"):
        same(keyed(by_kernel(joined, name), "kernel"), only(profile.by_kernel()))
    same(keyed(by_memcpy(joined), "operation"), only(profile.by_memcpy()))


@given(programs())
def test_by_range(program):
    assert by_range(attributed(program)).records() == program.profile().by_range()


@given(programs())
def test_totals(program):
    assert totals(attributed(program)) == program.profile().totals()


# -- laws


@given(programs())
def test_nothing_is_lost_and_nothing_counted_twice(program):
    joined = attributed(program)
    account, ops, ranges = totals(joined), by_op(joined), by_range(joined)
    inner, outer = by_op_kernel(joined), by_op_kernel(joined, inclusive=True)
    rest = sum(share["gpu_ns"] for share in account["unattributed"].values())
    assert ops["gpu_self_ns"].sum() + rest == account["gpu_ns"] == joined.duration.sum()
    assert account["activities"] == len(program.activities)
    assert (ops["gpu_self_ns"] <= ops["gpu_total_ns"]).all()
    assert (ops["gpu_busy_ns"] <= ops["gpu_total_ns"]).all()
    assert (ops["cpu_self_ns"] <= ops["cpu_total_ns"]).all()
    assert (ranges["gpu_busy_ns"] <= ranges["gpu_span_ns"]).all()
    assert inner["count"].sum() == ops["kernels"].sum() <= outer["count"].sum()


def everything(joined):
    """Return all tables, whatever the order of their rows."""
    return [
        totals(joined),
        *(
            Counter(tuple(map(repr, row)) for row in table.to_pandas().to_dict("split")["data"])
            for table in (by_op(joined), by_kernel(joined), by_memcpy(joined), by_range(joined))
        ),
        *(
            keyed(by_op_kernel(joined, inclusive=inclusive), "op", "kernel")
            for inclusive in (False, True)
        ),
    ]


@given(programs(), st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(program, random):
    """But where only the order of rows can tell: twins, and calls of one key that begin together."""
    twins = Counter((r.report, r.thread, r.start, r.end) for r in program.ranges)
    calls = Counter((c.report, c.process, c.correlation, c.start) for c in program.calls)
    assume(max([*twins.values(), *calls.values()], default=1) == 1)
    pairs = list(zip(program.ranges, program.texts, strict=True))
    lists = [pairs, list(program.calls), list(program.activities)]
    for rows in lists:
        random.shuffle(rows)
    shuffled = Program(
        [one for one, _ in lists[0]], lists[1], lists[2], [text for _, text in lists[0]]
    )
    assert everything(attributed(shuffled)) == everything(attributed(program))


def only_report(program, number):
    """Return one of a program's two reports as a program of its own."""
    pairs = [p for p in zip(program.ranges, program.texts, strict=True) if p[0].report == number]
    ranges, calls, activities = (
        [replace(one, report=0) for one in rows if one.report == number]
        for rows in ([one for one, _ in pairs], program.calls, program.activities)
    )
    return without_libraries(Program(ranges, calls, activities, [text for _, text in pairs]))


def single(report, name):
    """Let a report be of one file."""
    return replace(report, source=(name,), facts=report.facts[:1])


@given(programs())
def test_the_order_of_reports_changes_nothing(program):
    one, other = (single(report_of(only_report(program, number)), str(number)) for number in (0, 1))
    together = everything(attributed(program))
    assert everything(AttributedCapture.of(concat([one, other]))) == together
    assert everything(AttributedCapture.of(concat([other, one]))) == together


@given(programs())
def test_no_analysis_writes_into_the_frames(program):
    """Frames share their memory with whoever made them."""
    report = report_of(program)
    before = {name: getattr(report, name).to_pandas().copy(deep=True) for name in FRAMES}
    everything(AttributedCapture.of(report))
    for name in FRAMES:
        assert getattr(report, name).to_pandas().equals(before[name])
