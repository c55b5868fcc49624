"""How many events come before an instant of a stack, against counting them one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridge.analyze.run.causes.host_timeline import count_before

pairs = st.lists(st.tuples(st.integers(0, 4), st.integers(-2, 4)), max_size=10)


def columns(rows):
    stack, time = np.array(rows, np.int64).reshape(-1, 2).T.copy()
    return stack, time


@pytest.mark.parametrize("side", ["left", "right"])
@given(events=pairs, asked=pairs)
@example(events=[(1, 5), (1, 6), (3, 0)], asked=[(2, 9), (0, 9), (4, 0), (1, 5)])
def test_events_of_earlier_stacks_and_earlier_ones_of_the_own_stack_come_before(side, events, asked):  # fmt: skip
    found = count_before(columns(sorted(events)), *columns(asked), side)
    assert found.tolist() == [
        sum(one < place or (side == "right" and one == place) for one in events) for place in asked
    ]
