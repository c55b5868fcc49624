"""Which ranges are open at an instant: the nesting against looking at every range."""

import made_reports
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from witness.attribution import Range, outer_first, stack_at, union

import bridge
from bridge.importers.errors import ReportError
from bridge.importers.nsys import schema
from bridge.join.arrays import NONE
from bridge.join.forest import levels
from bridge.join.nesting import Nesting, TangledError, inherited
from bridge.join.paths import paths
from join.compare import chain

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("rows_at_a_time")]


intervals = st.lists(
    st.tuples(st.integers(0, 2), st.integers(-4, 14), st.integers(-2, 12)), max_size=14
)
CROSSING = [(0, 0, 6), (0, 3, 6), (0, 4, 6), (0, 5, 1), (0, 6, 5)]
TWINS = [(0, 0, 5), (0, 0, 5), (0, 0, 3), (0, 0, 5)]


def nested(intervals):
    """Nest (stack, start, length) triples."""
    stack, start, length = np.array(intervals, np.int64).reshape(-1, 3).T.copy()
    return Nesting.of(stack, start, start + length)


def as_ranges(intervals):
    return [Range(0, 0, stack, start, start + length, "op") for stack, start, length in intervals]


@given(intervals)
@example(CROSSING)
@example(TWINS)
def test_the_chain_of_parents_is_what_is_open_at_every_instant(intervals):
    nesting, ranges = nested(intervals), as_ranges(intervals)
    asked = [(stack, instant) for stack in range(4) for instant in range(-6, 28)]
    nodes = nesting.innermost(*np.array(asked, np.int64).T.copy())
    for (stack, instant), node in zip(asked, nodes, strict=True):
        assert chain(nesting, node) == stack_at(ranges, 0, stack, instant)


@given(st.lists(st.integers(0, 9), max_size=40), st.randoms(use_true_random=False))
def test_levels_count_the_nodes_around_each_in_any_order(distances, random):
    above = [max(NONE, row - 1 - distance) for row, distance in enumerate(distances)]
    place = random.sample(range(len(above)), len(above))  # a moved node may come before its parent
    parent = np.full(len(above), NONE)
    for row, node in enumerate(above):
        parent[place[row]] = place[node] if node != NONE else NONE
    expected = [0] * len(above)
    for row, node in enumerate(above):
        expected[place[row]] = expected[place[node]] + 1 if node != NONE else 0
    assert levels(parent).tolist() == expected


@given(intervals, st.lists(st.integers(NONE, 2), min_size=40, max_size=40))
@example(CROSSING, [NONE, 1] * 20)
def test_the_nearest_value_around_a_node_is_inherited(intervals, values):
    nesting = nested(intervals)
    own = np.array((values * (len(nesting) // 40 + 1))[: len(nesting)], np.int64)
    expected = []
    for value, parent in zip(own.tolist(), nesting.parent.tolist(), strict=True):
        expected.append(expected[parent] if value == NONE and parent != NONE else value)
    assert inherited(nesting, own).tolist() == expected


@given(intervals)
@example(CROSSING)
def test_nodes_lie_inside_their_parents(intervals):
    nesting = nested(intervals)
    has = np.flatnonzero(nesting.parent != NONE)
    above = nesting.parent[has]
    assert (above < has).all()
    assert (nesting.stack[above] == nesting.stack[has]).all()
    assert (nesting.start[above] <= nesting.start[has]).all()
    assert (nesting.end[above] >= nesting.end[has]).all()
    assert (nesting.end > nesting.start).all()
    assert [len(chain(nesting, node)) - 1 for node in range(len(nesting))] == nesting.level.tolist()


@given(intervals)
@example(CROSSING)
def test_the_pieces_of_a_range_cover_it_exactly(intervals):
    nesting, ranges = nested(intervals), as_ranges(intervals)
    pieces = {row: [] for row in range(len(ranges))}
    for row, *piece in zip(nesting.range, nesting.start, nesting.end, strict=True):
        pieces[int(row)].append(tuple(map(int, piece)))
    for row, one in enumerate(ranges):
        length = max(0, one.end - one.start)
        assert sum(end - start for start, end in pieces[row]) == union(pieces[row]) == length
        if length:
            assert (pieces[row][0][0], max(e for _, e in pieces[row])) == (one.start, one.end)
    assert set(nesting.crossed) == {row for row, of in pieces.items() if len(of) > 1}


@given(intervals)
def test_only_ranges_that_cross_are_cut(intervals):
    ranges = as_ranges(intervals)
    crossing = {
        inner
        for inner, b in enumerate(ranges)
        for a in ranges
        if a.thread == b.thread and a.start < b.start < a.end < b.end
    }
    assert set(nested(intervals).crossed) == crossing


@given(intervals)
@example([(0, 4, 8), (0, 10, 3), (0, 6, 12)])
def test_a_range_is_cut_only_at_the_ends_of_ranges_around_it(intervals):
    nesting, ranges = nested(intervals), as_ranges(intervals)
    for row, start in zip(nesting.range.tolist(), nesting.start.tolist(), strict=True):
        inner = ranges[row]
        assert start == inner.start or any(
            a.thread == inner.thread and a.start < inner.start < a.end == start for a in ranges
        )


@given(intervals)
def test_nodes_come_in_the_order_of_stacks_then_outer_first(intervals):
    nesting, ranges = nested(intervals), as_ranges(intervals)
    keys = list(zip(nesting.stack.tolist(), nesting.start.tolist(), strict=True))
    assert keys == sorted(keys)
    for stack in range(3):
        rows = [
            row for row, one in enumerate(ranges) if one.thread == stack and one.end > one.start
        ]
        first_seen = dict.fromkeys(nesting.range[nesting.stack == stack].tolist())
        assert list(first_seen) == outer_first(ranges, rows)


@given(intervals, st.lists(st.integers(0, 2), min_size=3, max_size=3))
@example([(0, 0, 5), (0, 1, 2), (0, 8, 1)], [0, 1, 2])
def test_a_path_names_all_ops_on_the_stack(intervals, ops):
    """Names hold slashes too: two ways to one path have one code."""
    nesting, names = nested(intervals), ["a", "b", "a/b"]
    op = np.resize(ops, len(intervals)).astype(np.int64)
    codes, distinct = paths(nesting.parent, op[nesting.range], names)
    assert len(set(distinct)) == len(distinct)
    for node, code in enumerate(codes):
        assert distinct[code] == "/".join(names[op[row]] for row in chain(nesting, node))


def tangled(count):
    """Ranges each of which crosses all the others."""
    start = np.arange(count)
    return np.zeros(count, np.int64), start, start + count


def test_some_hundreds_that_all_cross_are_cut_into_pieces():
    nesting = Nesting.of(*tangled(200))
    assert len(nesting) == 200 * 201 // 2
    assert len(nesting.crossed) == 199


def test_thousands_that_all_cross_are_refused_soon():
    with pytest.raises(TangledError, match="cross each other"):
        Nesting.of(*tangled(5_000))


def test_a_tangled_report_is_refused_in_a_line(tmp_path):
    path = made_reports.small(tmp_path / "report.sqlite")
    made_reports.changed(
        path,
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)"
        f" INSERT INTO {schema.READ['annotations'].name} (start, end, eventType, text, globalTid, domainId)"
        f" SELECT i * 10, i * 10 + 1000000, eventType, 'tangled', globalTid, 0 FROM n,"
        f" (SELECT * FROM {schema.READ['annotations'].name} WHERE eventType = 59 LIMIT 1)",
    )
    with pytest.raises(ReportError, match=r"report\.sqlite: ranges of one thread cross"):
        bridge.load(path)
