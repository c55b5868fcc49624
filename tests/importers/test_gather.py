"""Columns gathered in parts against `concatenate`."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridge.importers.sqlite_columns import ColumnBuffer

values = st.lists(st.sampled_from([4, 4, 4, -1, 0]), max_size=4)
constants = st.integers(0, 4).map(lambda rows: [4] * rows)
parts = st.lists(st.lists(st.one_of(values, constants), max_size=3), min_size=1, max_size=4)


def gathered(parts, spare):
    room = [sum(map(len, part)) + more for part, more in zip(parts, spare, strict=False)]
    column = ColumnBuffer(room)
    for number in reversed(range(len(parts))):  # parts fill in any order
        for batch in parts[number]:
            column.add(number, np.array(batch, np.int64))
    return column.column()


@pytest.mark.slow
@given(parts, st.lists(st.integers(0, 3), min_size=4, max_size=4))
@example([[[4, 4]], [[5, 5]]], [0, 0, 0, 0])
@example([[[4, 4], [4, 1]], [[], [4]]], [2, 0, 1, 0])
def test_parts_come_in_order_without_the_room_to_spare(parts, spare):
    expected = [value for part in parts for batch in part for value in batch]
    found = gathered(parts, spare)
    assert found.dtype == np.int64
    assert found.tolist() == expected


@given(parts, st.lists(st.integers(0, 3), min_size=4, max_size=4))
def test_only_a_constant_column_takes_no_memory(parts, spare):
    distinct = {value for part in parts for batch in part for value in batch}
    found = gathered(parts, spare)
    rows = sum(len(batch) for part in parts for batch in part)
    if rows > 1:
        assert (found.strides == (0,)) == (len(distinct) == 1)


def test_threads_fill_parts_side_by_side():
    expected = np.random.default_rng(1).integers(0, 3, 40_000)
    column = ColumnBuffer([10_000] * 4)

    def fill(part):
        for first in range(part * 10_000, (part + 1) * 10_000, 100):
            column.add(part, expected[first : first + 100])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(fill, range(4)))
    assert np.array_equal(column.column(), expected)
