"""Sorting and numbering of columns against `sorted`."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.join.arrays import is_sorted, number_groups, order_by, run_edges, stable_order

values = st.one_of(st.integers(-3, 3), st.sampled_from([0, 65535, 65536, -(2**62), 2**62]))
tables = st.integers(1, 4).flatmap(lambda width: st.lists(st.tuples(*[values] * width)))


def columns(rows):
    width = len(rows[0]) if rows else 1
    return list(np.array(rows, np.int64).reshape(-1, width).T.copy())


@given(tables)
def test_by_sorts_by_all_keys_and_then_by_row(rows):
    assert order_by(*columns(rows)).tolist() == sorted(range(len(rows)), key=lambda row: rows[row])


def test_by_leaves_out_no_key_of_many():
    """Each of six keys alone decides between some two of these rows."""
    rows = [tuple(row >> bit & 1 for bit in range(6)) for row in range(64)]
    assert order_by(*columns(rows)).tolist() == sorted(range(64), key=lambda row: rows[row])


@given(tables)
def test_in_order_is_what_sorting_would_leave_as_it_is(rows):
    assert is_sorted(*columns(rows)) == (rows == sorted(rows))
    assert is_sorted(*columns(sorted(rows)))


@pytest.mark.parametrize("top", [65535, 65536])
def test_stable_where_the_radix_sort_ends(top):
    key = np.array([top, 0, top, 1, 0])
    assert stable_order(key).tolist() == [1, 4, 3, 0, 2]


@given(tables)
def test_number_counts_distinct_combinations_in_their_order(rows):
    numbers, row_of = number_groups(*columns(rows))
    distinct = sorted(set(rows))
    assert numbers.tolist() == [distinct.index(row) for row in rows]
    assert [rows[row] for row in row_of] == distinct


@given(st.lists(st.integers(0, 2)))
def test_runs_are_where_neighbours_differ(key):
    edges = run_edges(np.array(key, np.int64)).tolist()
    assert edges[0] == 0
    assert edges[-1] == len(key)
    assert edges[1:-1] == [row for row in range(1, len(key)) if key[row] != key[row - 1]]
