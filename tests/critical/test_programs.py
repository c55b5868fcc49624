"""Programs with known costs: the critical path adds up, and the run without an op is that of the program without it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.analyze.critical import by_critical
from bridge.analyze.critical.run import Run
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
    run, table = Run.of(attributed), by_critical(attributed)
    assert run.span == machine.span == table["time_ns"].sum()
    for row in table.itertuples():
        if row.kind == "unknown":
            assert row.without_ns == row.saves_ns == -1
        elif row.without_ns != -1:
            expected = without(program, starts, (row.op, row.kind)).span
            assert row.without_ns == expected, (row, expected)
            assert row.saves_ns == run.span - expected <= row.time_ns
    return table


@given(programs(), st.tuples(st.integers(0, 9), st.integers(0, 9)))
def test_any_program(program, starts):
    holds(program, starts)
