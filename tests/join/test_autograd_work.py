"""What autograd's threads launch outside of ranges, given to the range that waits for the backward pass."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from witness.adoption import AutogradWork
from witness.attribution import Activity, Call, Range

from bridge.importers import frames
from bridge.join.adoption import NeedsWholeReportError
from bridge.join.attributed import AttributedCapture
from bridge.join.attribution import REASONS, RULES
from bridge.join.options import AttributionOptions
from bridge.report import Report
from join.compare import chain
from join.programs import Program, op_of, report_of
from join.trainings import trainings

P = 7 << 24
MAIN, LOADER, ENGINE, ENGINE_1 = (P | number for number in (7, 2, 3, 4))
ENGINES = {ENGINE: "pt_autograd_0", ENGINE_1: "pt_autograd_1"}
STEP = (0, 100, "step", MAIN)
BACKWARD = (10, 90, "backward", MAIN)


def with_names(capture, names, report=0):
    """Return the capture with names of threads."""
    process = [thread & -(1 << 24) for thread in names]
    columns = {"thread": [*names], "process": process, "report": [report] * len(names)}
    ints = {name: np.array(values, np.int64) for name, values in columns.items()}
    distinct = [*dict.fromkeys(names.values())]
    name = frames.Names(np.array([distinct.index(n) for n in names.values()], np.int64), distinct)
    return replace(capture, threads=frames.Threads(ints | {"name": name}))


def joined(ranges, *launched, names=ENGINES, kinds=(), **options):
    """Attribute kernels of 10 ns that are launched at these (thread, time)."""
    opened = [
        Range(0, thread & -(1 << 24), thread, start, end, op_of(op))
        for start, end, op, thread in ranges
    ]
    calls = [Call(0, t & -(1 << 24), t, n, at, at + 1) for n, (t, at) in enumerate(launched, 1)]
    kinds = [*kinds, *["kernel"] * (len(calls) - len(kinds))]
    work = [
        Activity(0, call.process, call.correlation, 1_000, 1_010, kind)
        for call, kind in zip(calls, kinds, strict=True)
    ]
    program = Program(opened, calls, work, [op for _, _, op, _ in ranges])
    capture = with_names(report_of(program), names)
    return AttributedCapture.of(capture, AttributionOptions(**options))


def owners(ranges, *launched, **options):
    """Return path and rule of each kernel, or its reason."""
    table = Report(joined(ranges, *launched, **options)).op_kernels
    columns = (table[name] for name in ("path", "rule", "reason"))
    return [(path, rule) if rule else reason for path, rule, reason in zip(*columns, strict=True)]


HERE = ("step/backward", "adopted")


def test_the_range_that_waits_has_what_autograd_launches():
    assert owners([STEP, BACKWARD], (ENGINE, 20)) == [HERE]
    assert owners([STEP, BACKWARD], (ENGINE, 5)) == [("step", "adopted")]
    assert owners([STEP, BACKWARD], (ENGINE, 10), (ENGINE, 90)) == [HERE, ("step", "adopted")]
    assert owners([STEP, BACKWARD], (ENGINE, 100)) == ["no_range"]
    assert owners([STEP, BACKWARD], (MAIN, 100)) == ["no_range"]
    assert owners([STEP, BACKWARD], (ENGINE, 20), (MAIN, 20), (ENGINE, 21)) == [
        HERE,
        ("step/backward", "launch"),
        HERE,
    ]
    traced = {ENGINE: "thread 1262 (pt_autograd_0)"}  # as the importer of PyTorch's traces says it
    assert owners([STEP, BACKWARD], (ENGINE, 20), names=traced) == [HERE]


def test_two_threads_of_autograd_wait_for_nobody():
    hook = (15, 40, "hook", ENGINE_1)
    assert owners([STEP, BACKWARD, hook], (ENGINE, 20), (ENGINE_1, 20), (ENGINE_1, 50)) == [
        HERE,
        ("hook", "launch"),
        HERE,
    ]


def test_what_autograd_launches_in_its_own_ranges_stays():
    own = (20, 30, "hook", ENGINE)
    assert owners([STEP, BACKWARD, own], (ENGINE, 25), (ENGINE, 35)) == [("hook", "launch"), HERE]


def test_of_two_threads_that_wait_none_adopts_and_the_reason_says_so():
    other = (0, 50, "load", LOADER)
    assert owners([STEP, BACKWARD, other], (ENGINE, 20), (ENGINE, 60)) == ["ambiguous", HERE]
    totals = Report(joined([STEP, BACKWARD, other], (ENGINE, 20), (ENGINE, 60))).totals
    assert totals["unattributed"] == {"ambiguous": {"activities": 1, "gpu_ns": 10}}
    assert totals["adopted"] == {"activities": 1, "gpu_ns": 10}
    assert (totals["attributed_ns"], totals["gpu_ns"]) == (10, 20)


def test_who_is_in_an_operator_of_a_library_does_not_wait():
    operator = (15, 50, "aten::mm", LOADER)
    assert owners([STEP, BACKWARD, operator], (ENGINE, 20)) == [HERE]
    assert owners([STEP, BACKWARD, (15, 50, "aten::mm", MAIN)], (ENGINE, 20)) == ["no_range"]


def test_the_strict_view_adopts_nothing():
    for options in ({"adopt": False}, {"raw": True}):
        assert owners([STEP, BACKWARD], (ENGINE, 20), **options) == ["no_range"]
    assert owners([STEP, BACKWARD], (ENGINE, 20), adopt=True) == [HERE]
    other = (0, 100, "load", LOADER), (LOADER, 20)
    guess = owners([STEP, BACKWARD, other[0]], (ENGINE, 20), other[1], (MAIN, 5), adopt=True)
    assert guess[0] == ("step/backward", "guessed")


def test_a_thread_without_a_name_is_autograds_if_it_only_works_in_backward_ranges():
    ranges = [STEP, BACKWARD, (110, 200, "step", MAIN), (120, 190, "backward", MAIN)]
    twice = (ENGINE, 20), (ENGINE, 130)
    assert owners(ranges, *twice, names={}) == [HERE, HERE]
    assert owners(ranges, *twice, names={ENGINE: "python3"}) == [HERE, HERE]
    assert owners(ranges, *twice, names={ENGINE_1: "pt_autograd_1"}) == ["no_range"] * 2
    for elsewhere in (5, 105, 195):
        assert owners(ranges, *twice, (ENGINE, elsewhere), names={}) == ["no_range"] * 3
    assert owners(ranges, *twice, names={}, kinds=["memcpy", "memset"]) == ["no_range"] * 2
    assert owners(ranges, *twice, names={}, kinds=["memcpy", "graph"]) == [HERE, HERE]
    plain = [(s, e, op.replace("backward", "compute"), t) for s, e, op, t in ranges]
    assert owners(plain, *twice, names={}) == ["no_range"] * 2
    assert owners([*ranges, (0, 25, "load", LOADER)], *twice, names={}) == ["no_range"] * 2
    own = (5, 8, "hook", ENGINE)  # it works outside of a backward range, if in a range of its own
    assert owners([*ranges, own], *twice, (ENGINE, 6), names={})[:2] == ["no_range"] * 2


def test_the_first_thread_of_a_process_is_never_autograds_by_its_work():
    backward = (10, 90, "backward", LOADER)
    assert owners([backward], (MAIN, 20), names={}) == ["no_range"]
    assert owners([backward], (ENGINE, 20), names={}) == [("backward", "adopted")]


def test_a_part_of_a_report_does_not_tell_whose_a_thread_without_a_name_is():
    assert owners([STEP, BACKWARD], (ENGINE, 20), is_window=True) == [HERE]
    with pytest.raises(NeedsWholeReportError):
        joined([STEP, BACKWARD], (ENGINE, 20), names={}, is_window=True)
    for more in ({"adopt": False}, {"raw": True}):
        joined([STEP, BACKWARD], (ENGINE, 20), names={}, is_window=True, **more)


def test_another_process_waits_for_nothing_of_this_one():
    other = (9 << 24) | 1
    assert owners([(0, 100, "backward", other)], (ENGINE, 20)) == ["no_range"]
    assert owners([STEP, BACKWARD, (0, 100, "x", other)], (ENGINE, 20)) == [HERE]


@pytest.mark.slow
@given(trainings(), st.sets(st.sampled_from([1, 2, 3])))
def test_autograds_work_is_what_its_rule_says(made, numbers):
    profile = made.program.profile()
    homes = {(one.report, one.thread) for one in (*profile.ranges, *profile.calls)}
    named = frozenset(home for home in homes if home[1] & 0xFFFFFF in numbers and home[0] == 0)
    capture = with_names(made.capture(), {thread: "pt_autograd_0" for _, thread in named})
    found = AttributedCapture.of(capture).attribution
    rules, reasons = list(RULES), list(REASONS)
    ours = [
        (chain(found.nesting, node), reasons[reason], rules[rule] == "adopted")
        for node, reason, rule in zip(found.node, found.reason, found.rule, strict=True)
    ]
    assert ours == AutogradWork(profile, named).found
