"""The parts of a run add up to it, and the GPU that bounds it is the one least idle."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from join.programs import Program, attributed, programs
from witness.attribution import Activity, Call, Range

from bridge.analyze.core.devices import Devices
from bridge.analyze.run.parts import Parts, bounding_gpu, iteration_times

PROCESS = 7 << 24
MAIN = PROCESS | 1


def program(*loops, end=0):
    """Make a program of loops: begin, length of an iteration, number, and kernel time in each."""
    ranges, calls, work = [], [], []
    for name, (begin, length, number, busy) in zip("abc", loops, strict=False):
        for n in range(number):
            at = begin + length * n
            ranges.append(Range(0, PROCESS, MAIN, at, at + length, f"step {name} {n}"))
            calls.append(Call(0, PROCESS, MAIN, len(calls) + 1, at + 1, at + 3))
            work.append(Activity(0, PROCESS, len(calls), at + 5, at + 5 + busy))
    texts = [f"{one.op[:6]} batch {one.op[7:]}" for one in ranges]
    ranges = [Range(*[getattr(one, f) for f in ("report", "process", "thread", "start", "end")], text) for one, text in zip(ranges, texts, strict=True)]  # fmt: skip
    return attributed(Program(ranges, calls, work, texts))


def test_the_parts_by_hand():
    joined = program((100, 10, 5, 4), (200, 20, 3, 22))
    parts = Parts.of(joined, 0, 300)
    assert parts.start_up == (0, 100)
    assert parts.iterations == ((100, 150), (200, 267))  # the work of the last runs on until 267
    assert parts.between == ((150, 200),)
    assert parts.end == (267, 300)
    assert [(one.count, one.warm_up, one.start, one.end) for one in parts.loops] == [
        (5, 0, 100, 150),
        (3, 0, 200, 267),
    ]
    assert parts.lengths == {"start-up": 100, "iterations": 117, "between": 50, "end": 33}
    assert [time.ns for time in iteration_times(joined)] == [10, 20]


def test_a_loop_whose_work_runs_into_the_next_one_ends_there():
    parts = Parts.of(program((0, 10, 5, 40), (60, 10, 5, 4)), 0, 120)
    assert [(one.start, one.end) for one in parts.loops] == [(0, 60), (60, 110)]
    assert sum(parts.lengths.values()) == 120


def test_without_iterations_start_up_ends_with_the_first_work():
    work = [Activity(0, PROCESS, 1, 50, 60), Activity(0, PROCESS, 2, 70, 90)]
    calls = [Call(0, PROCESS, MAIN, n, 10 * n, 10 * n + 1) for n in (1, 2)]
    parts = Parts.of(attributed(Program([], calls, work, [])), 10, 100)
    assert parts.lengths == {"start-up": 40, "work": 40, "between": 0, "end": 10}
    nothing = Parts.of(attributed(Program([], [], [], [])), 10, 100)
    assert nothing.lengths == {"start-up": 90, "work": 0, "between": 0, "end": 0}


@pytest.mark.slow
@given(programs(), st.integers(-9, 9), st.integers(0, 40))
def test_parts_add_up_to_the_run(made, start, length):
    joined = attributed(made)
    parts = Parts.of(joined, start, start + length)
    assert sum(parts.lengths.values()) == length
    edges = [*parts.start_up]
    for one in sorted([*parts.iterations, *parts.between]):
        assert one[0] == edges[-1] <= one[1]
        edges += one
    assert parts.end[0] == edges[-1]
    assert edges == sorted(edges)
    assert all(start <= t <= start + length for t in edges)
    assert len(parts.loops) == len(joined.loops.iterations)


@pytest.mark.slow
@given(programs())
def test_the_gpu_that_bounds_the_run_is_the_one_least_idle(made):
    joined = attributed(made)
    devices = Devices.of_report(joined)
    if not devices.names:
        assert bounding_gpu(joined) == -1
        return
    parts = Parts.of(joined, -100, 100)
    counted = {t for a, b in parts.iterations for t in range(a, b)}
    start = joined.capture.activities.start
    busy = []
    for gpu in range(len(devices.names)):
        rows = np.flatnonzero(devices.gpu == gpu)
        busy.append(len(counted & {t for row in rows for t in range(start[row], joined.end[row])}))
    order = sorted(range(len(busy)), key=lambda one: (-busy[one], devices.number[one], one))
    if parts.iterations:
        assert bounding_gpu(joined) == order[0]
