"""Reports whose ranges are all start/end ranges: their phases are the ops."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from witness.attribution import Activity, Call, Range

from bridge.analyze.tables.activity_columns import by_op_kernel
from bridge.analyze.tables.breakdown import by_op
from bridge.importers import frames
from bridge.join import nesting
from bridge.join.arrays import NONE
from bridge.join.attribution import RULES
from bridge.report import Report
from join.compare import found_of, keyed, only, said, same
from join.programs import Program, attributed, phase_programs

P, Q = 7 << 24, 8 << 24
NOTE = "one: only start/end ranges: shown as ops (bridge report --names raw keeps them as phases)"


def program(phases, *launched, pushed=()):
    """Make a program of phases (start, end, name, thread) and kernels launched at (thread, time)."""
    rows = [*((*one, True) for one in phases), *((*one, False) for one in pushed)]
    ranges = [Range(0, t & -(1 << 24), t, s, e, op, phase=phase) for s, e, op, t, phase in rows]
    calls = [Call(0, t & -(1 << 24), t, n, at, at + 1) for n, (t, at) in enumerate(launched, 1)]
    work = [Activity(0, call.process, call.correlation, 1_000, 1_010) for call in calls]
    return Program(ranges, calls, work, [one.op for one in ranges])


def owners(made, **options):
    table = Report(attributed(made, **options)).op_kernels
    pairs = zip(table["path"], table["rule"], table["reason"], strict=True)
    return [(path, rule) if rule else reason for path, rule, reason in pairs]


def test_the_phase_that_started_last_has_what_any_thread_of_its_process_launches():
    made = program(
        [(0, 100, "epoch", P | 1), (10, 50, "a", P | 2), (20, 90, "b", P | 1)],
        (P | 1, 5), (P | 3, 15), (P | 1, 30), (P | 1, 60), (P | 2, 95), (P | 2, 100), (Q | 1, 30),
    )  # fmt: skip
    assert owners(made) == [
        ("epoch", "phase"), ("epoch/a", "phase"), ("epoch/a/b", "phase"), ("epoch/b", "phase"),
        ("epoch", "phase"), "no_range", "no_range",
    ]  # fmt: skip


def test_beside_push_pop_ranges_and_in_the_strict_view_they_are_no_ops():
    phases = [(0, 100, "epoch", P | 1)]
    assert owners(program(phases, (P | 1, 5)), raw=True) == ["no_range"]
    beside = program(phases, (P | 1, 5), pushed=[(200, 201, "x", Q | 1)])
    assert owners(beside) == ["no_range"]
    assert Report(attributed(beside)).warnings == ()
    assert Report(attributed(program(phases, (P | 1, 5)), raw=True)).warnings == ()
    assert Report(attributed(program(phases, (P | 1, 5)))).warnings == (NOTE,)


def test_each_report_is_judged_alone():
    made = program([(0, 100, "epoch", P | 1)], (P | 1, 5))
    other = Range(1, P, P | 1, 0, 100, "pushed")
    made = replace(made, ranges=[*made.ranges, other], texts=[*made.texts, "pushed"])
    assert owners(made) == [("epoch", "phase")]


def test_the_phase_of_a_session_is_no_op():
    made = program([(0, 100, "capture", P | 1), (10, 20, "mine", P | 1)], (P | 1, 5), (P | 1, 15))
    joined = attributed(made)
    assert owners(made) == [("capture", "phase"), ("capture/mine", "phase")]
    ranges = joined.capture.ranges.replace(
        domain_name=frames.Names(np.array([0, NONE]), ["nsight-bridge"])
    )
    again = type(joined).of(replace(joined.capture, ranges=ranges))
    assert [again.ops[op] if op != NONE else "" for op in again.activity_op] == ["", "mine"]


def test_phases_that_overlap_too_often_stay_phases(monkeypatch):
    monkeypatch.setattr(nesting, "MAX_PIECES", (1, 0))
    made = program([(n, n + 50, f"request {n}", P | 1) for n in range(20)], (P | 1, 30))
    assert owners(made) == ["no_range"]
    [line] = Report(attributed(made)).warnings
    assert "overlap too often to be shown as ops" in line


def test_a_report_of_tangled_phases_leaves_those_of_others_ops(monkeypatch):
    monkeypatch.setattr(nesting, "MAX_PIECES", (1, 5))
    made = program([(0, 100, "epoch", P | 1)], (P | 1, 5))
    tangled = program([(n, n + 50, f"request {n}", P | 1) for n in range(20)], (P | 1, 30))
    moved = {
        table: [*getattr(made, table), *(replace(one, report=1) for one in getattr(tangled, table))]
        for table in ("ranges", "calls", "activities")
    }
    both = replace(made, **moved, texts=[*made.texts, *tangled.texts])
    assert owners(both) == [("epoch", "phase"), "no_range"]
    first, second = sorted(Report(attributed(both)).warnings, key=len)
    assert "shown as ops (bridge" in first
    assert "overlap too often to be shown as ops" in second
    assert first.split(":")[0] != second.split(":")[0]


@pytest.mark.slow
@given(phase_programs())
def test_phases_are_ops_as_the_rule_says(made):
    joined, profile = attributed(made), made.profile()
    assert list(found_of(joined)) == said(profile)
    same(keyed(by_op(joined), "op"), only(profile.by_op()))
    pairs = keyed(by_op_kernel(joined), "op", "kernel")
    same(pairs, profile.by_op_kernel(inclusive=False))
    names, found = list(RULES), joined.attribution
    for activity, node, rule in zip(made.activities, found.node, found.rule, strict=True):
        expected = "phase" if activity.report == 0 else "launch"
        assert names[rule] == (expected if node != NONE else "")
