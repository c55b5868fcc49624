"""Calls on tracks: what crosses is kept apart, and begins and ends pair, whatever overlaps what."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.compat.calls import Call, assign_lanes, begin_end_events, call_times

TIMES = st.tuples(st.integers(0, 12), st.integers(0, 6), st.integers(1, 2))


def call(start: int, length: int, thread: int, payload: int = 0, **more) -> Call:
    kinds = {"phase": False, "open": False, "process": 1, "details": {}}
    return Call(
        name="x", domain="", category="", thread=thread, start=start, end=start + length,
        payload=payload, **{**kinds, **more},
    )  # fmt: skip


def crosses(one: Call, other: Call) -> bool:
    first, second = sorted([one, other], key=lambda c: (c.start, -c.end))
    return second.start < first.end < second.end


@pytest.mark.slow
@given(st.lists(TIMES, max_size=12))
def test_calls_of_a_lane_nest_and_pair(times):
    calls = [call(*one) for one in times]
    lanes = assign_lanes(calls, lambda one: one.thread)
    assert sorted(id(c) for lane in lanes.values() for c in lane) == sorted(map(id, calls))
    for (thread, _), lane in lanes.items():
        assert {one.thread for one in lane} == {thread}
        assert not any(crosses(*two) for two in combinations(lane, 2))
        events = list(begin_end_events(lane))
        stack: list[Call] = []
        for phase, one, time in events:
            if phase == "B":
                assert time == one.start
                stack.append(one)
            else:
                assert stack.pop() is one
                assert time == one.end
        assert not stack
        assert [time for *_, time in events] == sorted(time for *_, time in events)


@given(st.lists(TIMES, max_size=12))
def test_what_nests_needs_one_lane(times):
    kept: list[Call] = []
    for one in (call(*time) for time in times):
        if not any(crosses(one, other) for other in kept if one.thread == other.thread):
            kept.append(one)
    assert {lane for _, lane in assign_lanes(kept, lambda one: one.thread)} <= {0}


def test_slices_of_a_call_are_one_call():
    slices = [call(0, 3, 1, 7), call(5, 4, 1, 7, again=True), call(9, 1, 1, 8)]
    assert call_times(slices) == [("x", 7), ("x", 1)]


def test_a_call_that_goes_on_is_not_counted():
    assert call_times([call(0, 3, 1, 7, open=True)]) == []
