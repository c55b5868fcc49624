"""Every activity of made-up programs: its launch, its ranges, its reason; and the laws that hold of any report."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from witness.attribution import Activity, Call, Profile, Range
from witness.indexed import indexed

from bridge.join.arrays import NONE
from bridge.report import Report
from join.compare import found_of, said
from join.programs import CALL_IDS, Program, attributed, programs, raw


@pytest.mark.slow
@pytest.mark.usefixtures("rows_at_a_time")
@given(programs())
def test_every_activity_gets_its_range_or_the_reason(program):
    joined = attributed(program)
    assert list(found_of(joined)) == said(program.profile())
    assert joined.attribution.range.tolist() == [found.range for found in program.profile().found]


@pytest.mark.slow
@given(programs())
def test_raw_names_are_whole_texts_over_all_domains(program):
    joined, profile = attributed(program, raw=True), raw(program).profile()
    assert list(found_of(joined)) == said(profile)
    ops = [joined.ops[op] if op != NONE else "" for op in joined.op]
    assert ops == ["" if one.phase else one.op for one in profile.ranges]


@pytest.mark.slow
@given(programs())
def test_op_kernels_has_a_row_per_activity(program):
    table, profile = Report(attributed(program)).op_kernels, program.profile()
    assert len(table) == len(program.activities)
    assert table["launch"].tolist() == [found.launch for found in profile.found]
    assert table["range"].tolist() == [found.range for found in profile.found]
    assert table["reason"].tolist() == [found.reason for found in profile.found]
    paths = ["/".join(profile.ops_on(found.stack)) or None for found in profile.found]
    ops = [profile.ops_on(found.stack)[-1] if found.stack else None for found in profile.found]
    assert [path if isinstance(path, str) else None for path in table["path"]] == paths
    assert [op if isinstance(op, str) else None for op in table["op"]] == ops


@pytest.mark.slow
@given(programs())
def test_slices_of_one_call_share_its_number(program):
    joined, profile = attributed(program), program.profile()
    rows = profile.op_rows()
    numbers = dict(zip(rows, joined.call[rows].tolist(), strict=True))
    pairs = {(profile.call_of(row), number) for row, number in numbers.items()}
    calls = {call for call, _ in pairs}
    assert len(pairs) == len(calls) == len({number for _, number in pairs})
    assert {number for _, number in pairs} == set(range(len(calls)))
    assert (np.delete(joined.call, rows) == NONE).all()


@pytest.mark.slow
@given(programs())
def test_the_sooner_opinion_is_the_slow_one(program):
    records = program.ranges, program.calls, program.activities
    assert said(indexed(*records)) == said(Profile(*records))
    assert indexed(*records).by_op() == Profile(*records).by_op()


@pytest.mark.slow
def test_a_call_id_is_of_its_report_process_and_domain():
    """Processes that forked, and reports of one program, count from the same number."""
    here = Range(0, 1 << 24, MAIN, 0, 2, "step", payload=CALL_IDS[0])
    again = replace(here, start=5, end=6)
    others = [
        replace(here, report=1),
        replace(here, process=2 << 24, thread=(2 << 24) | 1),
        replace(here, domain=1),
        replace(here, payload=CALL_IDS[1]),
    ]
    rows = [here, *others, again]
    joined = attributed(Program(rows, [], [], [one.op for one in rows]))
    assert joined.call.tolist() == [0, 1, 2, 3, 4, 0]


# -- the rules, by hand, so that nobody has to trust the slow opinion either

HERE = {"report": 0, "process": 1 << 24}
MAIN = (1 << 24) | 1


def one_kernel(at, ranges, **activity):
    """Return where a kernel belongs whose call begins at an instant, on the first thread."""
    opened = [
        Range(**{"report": 0, "process": 1 << 24, "thread": MAIN, "op": "x", **r}) for r in ranges
    ]
    call = Call(**HERE, thread=MAIN, correlation=5, start=at, end=at + 3)
    kernel = Activity(**{**HERE, "correlation": 5, "start": 100, "end": 110, **activity})
    [found] = Profile(opened, [call], [kernel]).found
    return found.reason or found.stack


def test_the_rules_are_as_written_down():
    outer, inner = {"start": 0, "end": 10}, {"start": 2, "end": 5}
    elsewhere = {"start": 20, "end": 21}
    assert one_kernel(0, [outer]) == (0,)  # the start belongs to a range
    assert one_kernel(9, [outer]) == (0,)  # even if the call outlasts it
    assert one_kernel(10, [outer]) == "no_range"  # the end does not
    assert one_kernel(3, [inner, outer]) == (1, 0)  # not the order of rows
    assert one_kernel(3, [outer, outer]) == (0, 1)  # but that of twins
    assert one_kernel(3, [{**outer, "phase": True}, elsewhere]) == "no_range"
    assert one_kernel(3, [{**outer, "phase": True, "thread": MAIN + 1}]) == (0,)
    assert one_kernel(3, [{**outer, "thread": MAIN + 1}]) == "no_range"
    assert one_kernel(3, [{**outer, "report": 1}]) == "no_range"
    assert one_kernel(-3, [{"start": -5, "end": 0}]) == (0,)
    assert one_kernel(3, [{"start": 3, "end": 3}]) == "no_range"
    assert one_kernel(7, [{"start": 0, "end": 8}, {"start": 5, "end": 12}]) == (0, 1)  # crossing
    assert one_kernel(9, [{"start": 0, "end": 8}, {"start": 5, "end": 12}]) == (1,)
    assert one_kernel(3, [outer], correlation=6) == "no_launch"
    assert one_kernel(3, [outer], process=2 << 24) == "no_launch"
    assert one_kernel(3, [outer], end=99) == "invalid_time"
    assert one_kernel(3, [outer], start=-7, end=0) == "invalid_time"
    assert one_kernel(3, [outer], start=-7, end=-7) == (0,)


@pytest.mark.slow
@given(st.sampled_from(["range", "call", "activity"]), programs())
def test_a_profile_may_lack_anything(without, program):
    lists = {"range": program.ranges, "call": program.calls, "activity": program.activities}
    lists[without].clear()
    if without == "range":
        program.texts.clear()
    assert list(found_of(attributed(program))) == said(program.profile())
