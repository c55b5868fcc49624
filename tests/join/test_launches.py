"""The API call of each activity, by both ways of looking it up."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from witness.attribution import Activity, Call, launch_of

from bridge.join import attribution

pytestmark = pytest.mark.usefixtures("rows_at_a_time")

FAR = 10**12  # ids this far apart fit into no table
ids = st.sampled_from([-1, 0, 1, 2, 3, 4])
keys = st.tuples(st.sampled_from([-5, 1, 9]), ids)
calls = st.lists(st.tuples(keys, st.integers(-3, 3)), max_size=20)


def columns(rows, width):
    return np.array(rows, np.int64).reshape(-1, width).T.copy()


@pytest.mark.parametrize("spread", [1, FAR], ids=["dense", "sparse"])
@given(asked=st.lists(keys, max_size=20), calls=calls)
def test_the_earliest_call_of_the_same_process_and_id(asked, calls, spread):
    activities = [Activity(0, process, number * spread, 0, 1) for process, number in asked]
    issued = [
        Call(0, process, 0, number * spread, start, start) for (process, number), start in calls
    ]
    process, correlation = columns([(a.process, a.correlation) for a in activities], 2)
    theirs = columns([(c.process, c.correlation, c.start) for c in issued], 3)
    found = attribution.launch_of(process, correlation, tuple(theirs))
    assert found.tolist() == [launch_of(issued, activity) for activity in activities]


def test_both_ways_were_taken(monkeypatch):
    """The test above is of both ways only if its ids decide between them as is meant."""
    taken = []
    search = attribution._launch_by_search
    monkeypatch.setattr(
        attribution, "_launch_by_search", lambda *of: taken.append(True) or search(*of)
    )
    for spread, sparse in ((1, []), (FAR, [True])):
        taken.clear()
        correlation = np.array([1, 2]) * spread
        attribution.launch_of(
            np.zeros(2, int), correlation, (np.zeros(2, int), correlation, np.zeros(2, int))
        )
        assert taken == sparse
