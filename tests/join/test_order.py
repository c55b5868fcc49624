"""Sorting and numbering of columns against `sorted`."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.join.arrays import (
    at_rows,
    each,
    is_single_value,
    is_sorted,
    number_groups,
    order_by,
    repeated,
    run_edges,
    stable_order,
    taken,
)

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


def test_columns_of_one_value_distinguish_nothing():
    key, one = np.array([3, 1, 3]), repeated(7, 3)
    for keys in ((one, key), (key, one)):
        assert [found.tolist() for found in number_groups(*keys)] == [[1, 0, 1], [1, 0]]
    numbers, row_of = number_groups(one, one)
    assert is_single_value(numbers)
    assert (numbers.tolist(), row_of.tolist()) == ([0, 0, 0], [0])


@pytest.mark.parametrize("column", [np.array([4, 4, 4]), repeated(4, 3), repeated(4, 0)])
def test_a_repeated_value_stays_one_and_reads_as_a_column(column):
    doubled, rows = each(lambda values: values * 2, column), np.arange(len(column))[::-1]
    assert doubled.tolist() == [8] * len(column)
    assert taken(column, rows).tolist() == [4] * len(column)
    if len(column):
        assert is_single_value(doubled) == is_single_value(taken(column, rows))
        assert is_single_value(doubled) == is_single_value(column)
        assert at_rows(column, rows, len(column)).tolist() == [4] * len(column)
        assert at_rows(column[:2], np.array([2, 0]), 4).tolist() == [4, -1, 4, -1]


@given(st.lists(st.integers(0, 2)))
def test_runs_are_where_neighbours_differ(key):
    edges = run_edges(np.array(key, np.int64)).tolist()
    assert edges[0] == 0
    assert edges[-1] == len(key)
    assert edges[1:-1] == [row for row in range(1, len(key)) if key[row] != key[row - 1]]
