"""The witness of the account of a run: cases by hand, and what holds for all events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from witness.account import (
    IDLE,
    OTHERS,
    STATES,
    WORK,
    Activity,
    Call,
    Events,
    Instant,
    Range,
    account,
    finish,
    hidden,
    in_window,
    launched_in,
    of_ranges,
    of_window,
    run,
)


def some(**ns: int) -> dict[str, int]:
    """Return states with these times, the rest 0."""
    return dict.fromkeys(STATES, 0) | ns


# ---------------------------------------------------------------------------------------------------------------------
# The run


@pytest.mark.parametrize(
    ("events", "span"),
    [
        (Events(), None),
        (Events(ranges=[Range("a", 5, 9)]), (5, 9)),
        (Events(ranges=[Range("a", -3, 9)]), (-3, 9)),
        (Events(ranges=[Range("a", 5, None)], calls=[Call("a", 2, 4)]), (2, 5)),  # open: its start
        (Events(calls=[Call("a", 5, 3)]), (5, 5)),  # an end before the start
        (Events(calls=[Call("a", 5, 6)], activities=[Activity("a", 0, 8, 9, "copy")]), (5, 9)),
        # OS calls count in processes that have something else; those with nothing else do not
        (Events(calls=[Call("a", 5, 6)], os_calls=[Call("a", 1, 9)]), (1, 9)),
        (Events(calls=[Call("a", 5, 6)], os_calls=[Call("b", 1, 9)]), (5, 6)),
        (Events(os_calls=[Call("b", 1, 9)]), None),
        # instants stretch nothing, and make no process count
        (Events(calls=[Call("a", 5, 6)], instants=[Instant("a", 1), Instant("a", 99)]), (5, 6)),
        (Events(os_calls=[Call("b", 1, 9)], instants=[Instant("b", 4)]), None),
        (Events(ranges=[Range("a", 5, 6)], calls=[Call("b", 20, 30)]), (5, 30)),  # all processes
    ],
)
def test_the_run_lasts_from_the_first_start_to_the_last_end(events, span):
    assert run(events) == span


def test_the_collection_clips_the_run_and_its_work():
    events = Events(calls=[Call("a", 0, 90)], activities=[Activity("a", 0, 10, 40, "compute")])
    assert run(events, (20, 70)) == (20, 70)
    assert account(events, (20, 70)).gpus == {0: some(compute=20, idle=30)}
    assert run(events, (95, 99)) == (95, 95)  # nothing was collected of what is recorded


# ---------------------------------------------------------------------------------------------------------------------
# States

OVERLAPPING = [
    Activity("a", 0, 10, 40, "compute"),
    Activity("a", 0, 30, 60, "communication"),
    Activity("a", 0, 50, 80, "copy"),
    Activity("a", 0, 70, 100, "other"),
    Activity("a", 0, 90, 120, "graph"),
]


def test_at_each_instant_the_first_state_counts():
    found = account(Events(calls=[Call("a", 0, 150)], activities=OVERLAPPING))
    expected = some(compute=30, communication=20, copy=20, other=20, graph=20, idle=40)
    assert found.gpus == {0: expected}
    assert found.processes == {("a", 0): expected}
    assert hidden(OVERLAPPING, (0, 150)) == {
        "compute": 0, "communication": 10, "copy": 10, "other": 10, "graph": 10,
    }  # fmt: skip


def test_work_of_the_same_state_at_once_counts_once_and_is_not_hidden():
    work = [Activity("a", 0, 0, 10, "compute"), Activity("a", 0, 5, 20, "compute")]
    assert account(Events(activities=work)).gpus == {0: some(compute=20)}
    assert hidden(work, (0, 20)) == dict.fromkeys(WORK, 0)


def test_work_of_another_process_is_no_idle_time_and_not_ones_own():
    work = [
        Activity("a", 0, 0, 10, "compute"),
        Activity("b", 0, 5, 30, "compute"),
        Activity("b", 1, 5, 30, "graph"),
    ]
    found = account(Events(calls=[Call("a", 0, 50)], activities=work))
    assert found.gpus == {0: some(compute=30, idle=20), 1: some(graph=25, idle=25)}
    assert found.processes == {
        ("a", 0): some(compute=10, others=20, idle=20),
        ("b", 0): some(compute=25, others=5, idle=20),
        ("b", 1): some(graph=25, idle=25),
    }


def test_a_graph_of_ones_own_counts_before_work_of_others():
    work = [Activity("a", 0, 0, 10, "graph"), Activity("b", 0, 5, 15, "compute")]
    found = account(Events(activities=work))
    assert found.gpus == {0: some(compute=10, graph=5)}
    assert found.processes["a", 0] == some(graph=10, others=5)


# ---------------------------------------------------------------------------------------------------------------------
# Selections: two steps; the GPU lags behind the host, so work of the first runs in the second, and copies overlap

STEPS = [Range("a", 0, 100), Range("a", 100, 200)]
LAGGING = Events(
    ranges=[*STEPS, Range("b", 0, 300)],
    activities=[
        Activity("a", 0, 50, 150, "compute", launch=40),  # of step 0
        Activity("a", 0, 140, 180, "communication", launch=99),  # of step 0
        Activity("a", 0, 160, 170, "compute", launch=100),  # of step 1
        Activity("a", 0, 190, 230, "copy", launch=199),  # of step 1, ends after it
        Activity("a", 0, 225, 260, "compute", launch=200),  # of none: launched when step 1 was over
        Activity("b", 0, 175, 195, "compute", launch=150),  # of another process
        Activity("a", 0, 110, 120, "other"),  # without a launch
    ],
)


def test_a_step_is_its_range_and_the_work_launched_in_it():
    found = of_ranges(LAGGING, STEPS[1:])
    assert (found.start, found.end) == (100, 230)
    # 160-170 compute, 190-230 copy, 100-160 and 170-190 others: but for nothing idle
    assert found.gpus == {0: some(compute=10, copy=40, others=80)}
    assert found.processes == {("a", 0): some(compute=10, copy=40, others=80)}


def test_several_steps_have_one_hull():
    found = of_ranges(LAGGING, STEPS)
    assert (found.start, found.end) == (0, 230)
    # compute 50-150, 160-170; communication 150-160, 170-180; others 180-190; copy 190-230
    assert found.gpus == {0: some(compute=110, communication=20, copy=40, others=10, idle=50)}


def test_steps_apart_have_what_lies_between_in_their_hull():
    steps = [Range("a", 0, 10), Range("a", 90, 100)]
    work = [
        Activity("a", 0, 5, 15, "compute", launch=1),
        Activity("a", 0, 40, 60, "compute", launch=30),
        Activity("a", 0, 95, 99, "compute", launch=91),
    ]
    found = of_ranges(Events(ranges=steps, activities=work), steps)
    assert found == (0, 100, {0: some(compute=14, others=20, idle=66)}, found.processes)


def test_ranges_without_work_have_a_length_and_no_gpu():
    assert of_ranges(LAGGING, [Range("a", 205, 210)]) == (205, 210, {}, {})
    assert of_ranges(LAGGING, []) is None


def test_a_window_clips_device_work_and_takes_host_events_that_began_in_it():
    found = of_window(LAGGING, 145, 195)
    assert (found.start, found.end) == (145, 195)
    # compute 145-150, 160-170, 175-195; communication 150-160, 170-175
    assert found.gpus == {0: some(compute=35, communication=15)}
    assert found.processes == {
        ("a", 0): some(compute=15, communication=20, copy=5, others=10),
        ("b", 0): some(compute=20, others=30),
    }
    chosen = in_window(LAGGING, (100, 145))
    assert chosen.ranges == STEPS[1:]
    assert [(one.start, one.end) for one in chosen.activities] == [
        (100, 145),
        (140, 145),
        (110, 120),
    ]


def test_a_window_does_not_reach_beyond_the_run():
    assert of_window(LAGGING, -50, 9_999)[:2] == (0, 300)
    assert of_window(LAGGING)[:2] == (0, 300)
    assert of_window(LAGGING, first=250) == (
        250, 300, {0: some(compute=10, idle=40)}, {("a", 0): some(compute=10, idle=40)}
    )  # fmt: skip
    assert of_window(Events(), 0, 10) is None


# ---------------------------------------------------------------------------------------------------------------------
# What holds for all events: an instant at a time, and laws

times = st.integers(0, 40)
processes, gpus = st.sampled_from("ab"), st.integers(0, 1)
ranges = st.builds(Range, processes, times, st.none() | times)
calls = st.builds(Call, processes, times, times)
activities = st.builds(
    Activity, processes, gpus, times, times, st.sampled_from(WORK), st.none() | times
)
events = st.builds(
    Events,
    st.lists(ranges, max_size=4),
    st.lists(calls, max_size=3),
    st.lists(calls, max_size=3),
    st.lists(activities, max_size=7),
    st.lists(st.builds(Instant, processes, st.integers(-90, 90)), max_size=3),
)


def at_each_instant(own, others, first: int, last: int) -> dict[str, int]:
    """Count the instants of each state."""
    found = dict.fromkeys(STATES, 0)
    for t in range(first, last):
        running = [one.state for one in own if one.start <= t < finish(one)]
        foreign = [one for one in others if one.start <= t < finish(one)]
        state = min(running, key=WORK.index) if running else OTHERS if foreign else IDLE
        found[state] += 1
    return found


@given(events)
def test_pieces_tell_what_instants_tell(events):
    found = account(events)
    if found is None:
        assert not [*events.ranges, *events.calls, *events.activities]
        return
    assert set(found.gpus) == {one.gpu for one in events.activities}
    assert set(found.processes) == {(one.process, one.gpu) for one in events.activities}
    for gpu, states in found.gpus.items():
        here = [one for one in events.activities if one.gpu == gpu]
        assert states == at_each_instant(here, [], *found[:2])
        assert sum(states.values()) == found.end - found.start
        assert states[OTHERS] == 0
    for (process, gpu), states in found.processes.items():
        here = [one for one in events.activities if one.gpu == gpu]
        own = [one for one in here if one.process == process]
        rest = [one for one in here if one.process != process]
        assert states == at_each_instant(own, rest, *found[:2])
        assert states[IDLE] == found.gpus[gpu][IDLE]  # work of others is never idle


@given(events)
def test_a_selection_adds_up_and_what_is_not_selected_is_others(events):
    found = of_ranges(events, events.ranges)
    if found is None:
        return
    chosen = [one for one in events.activities if launched_in(one, events.ranges)]
    rest = [one for one in events.activities if one not in chosen]
    assert set(found.gpus) == {one.gpu for one in chosen}
    for gpu, states in found.gpus.items():
        own, others = ([o for o in some if o.gpu == gpu] for some in (chosen, rest))
        assert states == at_each_instant(own, others, *found[:2])
        assert sum(states.values()) == found.end - found.start


@given(events, times, times)
def test_two_windows_that_meet_are_one(events, cut, last):
    """What a cut divides adds up, for work is clipped."""
    first, (cut, last) = 0, sorted((cut, last))
    whole = of_window(events, first, last)
    if whole is None:
        return
    parts = [of_window(events, first, cut), of_window(events, cut, last)]
    for gpu, states in whole.gpus.items():
        assert sum(states.values()) == whole.end - whole.start
        for state in WORK:
            assert states[state] == sum(one.gpus.get(gpu, some())[state] for one in parts)
