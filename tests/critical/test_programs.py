"""Programs with known costs: the critical path adds up, and the run without an op is that of the program without it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.analyze.run.critical import by_critical
from bridge.analyze.run.critical.run import Run
from critical.machine import ENGINE, Machine

NS = st.integers(1, 60)
GAP = st.integers(0, 6)
OP = st.sampled_from(["a", "b", "c"])
STREAM = st.sampled_from([7, 8, 9])
WORKS = st.lists(st.tuples(STREAM, GAP, NS), min_size=1, max_size=4)
NODES = st.lists(
    st.tuples(st.sampled_from(["Mm", "Add"]), NS, NS, STREAM, GAP, NS, st.integers(1, 9)),
    min_size=1,
    max_size=3,
)
STEP = st.one_of(
    st.tuples(st.just("code"), OP, NS),
    *[st.tuples(st.just("launch"), OP, NS, NS, STREAM, GAP, NS)] * 3,
    st.tuples(st.just("graph"), OP, NS, NS, WORKS),
    st.tuples(st.just("copy"), OP, STREAM, st.integers(1, 6), NS, st.integers(1, 6)),
    st.tuples(st.just("sync"), OP, STREAM, st.integers(1, 6)),
    st.tuples(st.just("sync_all"), OP, st.integers(1, 6)),
    st.tuples(st.just("record"), OP, st.integers(1, 6), STREAM),
    st.tuples(st.just("wait_event"), OP, st.integers(1, 6), STREAM),
    st.tuples(st.just("sync_event"), OP, st.integers(1, 6)),
    st.tuples(st.just("backward"), st.just("backward"), NS, NODES, NS),
)
STEPS = st.lists(STEP, min_size=1, max_size=6)
ALL_REDUCE = st.tuples(st.just("collective"), st.just("dist"), NS, NS, GAP, NS)


@st.composite
def programs(draw):
    if draw(st.booleans()):
        return [(draw(STEPS), [])]
    rounds = draw(st.lists(st.tuples(STEPS, STEPS, ALL_REDUCE, ALL_REDUCE), min_size=1, max_size=3))
    return [([*one, met], [*other, (*met[:-1], also[-1])]) for one, other, met, also in rounds]


def without(program, starts, label):
    costs = Machine().run(program, starts).labels
    return Machine(frozenset(n for n, one in enumerate(costs) if one == label)).run(program, starts)


def holds(program, starts=(0, 0)):
    machine = Machine().run(program, starts)
    attributed = machine.records.attributed()
    run, table = Run.of(attributed), by_critical(attributed).to_pandas()
    assert run.span == machine.span == table["time_ns"].sum()
    for row in table.itertuples():
        if row.kind == "unknown":
            assert row.without_ns == row.saves_ns == -1
        elif row.without_ns != -1:
            expected = without(program, starts, (row.op, row.kind)).span
            assert row.without_ns == expected, (row, expected)
            assert row.saves_ns == run.span - expected <= row.time_ns
    return table


@pytest.mark.slow
@given(programs(), st.tuples(st.integers(0, 9), st.integers(0, 9)))
def test_any_program(program, starts):
    holds(program, starts)


# -- worked out by hand


LAUNCH = (
    "launch",
    "a",
    10,
    5,
    7,
    2,
)  # 10 ns of code, a call of 5, a kernel 2 ns after it at the earliest


def path_of(*rounds):
    """Return the time on the path by op and kind, and the run without each, after all checks."""
    program = [one if isinstance(one, tuple) else (one, []) for one in rounds]
    table = holds(program)
    times = {(row.op, row.kind): row.time_ns for row in table.itertuples()}
    return times, {(row.op, row.kind): row.without_ns for row in table.itertuples()}


def test_a_launch_bound_program():
    """Kernels wait for their launches: code and calls are the path, and the last kernel."""
    times, without = path_of([(*LAUNCH, 3), (*LAUNCH, 3), (*LAUNCH, 3)])
    assert times == {
        ("a", "host code"): 30, ("a", "API call"): 15,
        ("a", "launch latency"): 2, ("a", "kernel"): 3,
    }  # fmt: skip
    assert without["a", "kernel"] == 47  # that of all kernels shortens the end alone
    assert without["a", "host code"] == 20  # calls take as long as kernels with their latency


def test_a_program_bound_by_the_device():
    """Calls are far ahead: after the first one only the stream is the path."""
    times, without = path_of([(*LAUNCH, 100), (*LAUNCH, 100), ("sync", "b", 7, 4)])
    assert times == {
        ("a", "host code"): 10, ("a", "API call"): 5, ("a", "launch latency"): 2,
        ("a", "kernel"): 200, ("a", "device gap"): 2, ("b", "synchronization"): 4,
    }  # fmt: skip
    assert without["a", "kernel"] == 36  # not 223 - 200: the second launch is late then
    assert without["a", "host code"] == 213


def test_a_copy_that_waits_for_the_kernel_before():
    times, _ = path_of([(*LAUNCH, 50), ("copy", "c", 7, 1, 20, 3), ("code", "b", 9)])
    assert times == {
        ("a", "host code"): 10, ("a", "API call"): 5, ("a", "launch latency"): 2,
        ("a", "kernel"): 50, ("c", "device gap"): 1, ("c", "memcpy"): 20,
        ("c", "synchronization"): 3, ("b", "host code"): 9,
    }  # fmt: skip


def test_a_stream_that_waits_for_an_event_of_another():
    steps = [
        ("launch", "a", 10, 5, 7, 2, 100),
        ("record", "a", 1, 7),
        ("wait_event", "b", 1, 8),
        ("launch", "b", 10, 5, 8, 2, 30),
        ("sync", "b", 8, 4),
    ]
    times, without = path_of(steps)
    assert times == {
        ("a", "host code"): 10, ("a", "API call"): 5, ("a", "launch latency"): 2, ("a", "kernel"): 100,
        ("b", "device gap"): 2, ("b", "kernel"): 30, ("b", "synchronization"): 4,
    }  # fmt: skip
    assert without["a", "kernel"] == 153 - 85  # then the launch of b is the path


def test_a_thread_that_waits_for_another():
    """The time in which the engine's thread works is that of the ops on that thread."""
    nodes = [("Mm", 20, 5, 7, 2, 3, 0), ("Mm", 20, 5, 7, 2, 3, 6)]
    mm = ENGINE.format("Mm")
    times, _ = path_of([("code", "a", 10), ("backward", "backward", 8, nodes, 6)])
    assert times == {
        ("a", "host code"): 10, ("backward", "host code"): 14,
        (mm, "host code"): 40, (mm, "API call"): 10, ("", "host code"): 6,
    }  # fmt: skip


def test_a_collective_for_which_one_rank_is_late():
    """The path crosses to the rank that came last."""
    early = [(*LAUNCH, 10), ("collective", "dist", 1, 1, 2, 50), ("sync", "b", 20, 3)]
    late = [("code", "slow", 200), *early]
    times, without = path_of(([*early[:2]], [*late[:2], late[2]]), ([early[2]], []))
    assert times == {
        ("slow", "host code"): 200, ("a", "host code"): 10, ("a", "API call"): 5,
        ("dist", "host code"): 1, ("dist", "API call"): 1, ("dist", "launch latency"): 2,
        ("dist", "collective"): 50, ("b", "synchronization"): 3,
    }  # fmt: skip
    assert without["slow", "host code"] == 72


def test_one_launch_of_a_graph():
    """Activities of one launch follow each other, on whichever stream they run."""
    works = [(7, 1, 10), (8, 2, 20), (7, 3, 30)]
    times, _ = path_of([("graph", "g", 10, 5, works), ("sync_all", "g", 4)])
    assert times == {
        ("g", "host code"): 10, ("g", "API call"): 5, ("g", "launch latency"): 1,
        ("g", "kernel"): 60, ("g", "device gap"): 5, ("g", "synchronization"): 4,
    }  # fmt: skip
