"""Each cycle's result holds exactly its own steps: held against a plain list of what was done."""

from __future__ import annotations

import asyncio
import random
import threading
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st
from real_parts import NIGHT
from watched import names, op, ranges, steps

import bridge
from bridge import Action, nvtx_op
from bridge.capture.session.transitions import RECORDING

BOUNDARIES = 20 if NIGHT else 6


def expected(schedule, count: int) -> list[list[int]]:
    """Give the steps of each cycle that is ready, the one cut off by the end as well."""
    cycles: list[list[int]] = []
    running: list[int] = []
    for step in range(count):
        action = schedule(step)
        if action in RECORDING:
            running.append(step)
        if action is Action.RECORD_AND_SAVE:
            cycles.append(running)
            running = []
    return [*cycles, running] if running else cycles


SCHEDULES = st.fixed_dictionaries(
    {
        "wait": st.integers(0, 2),
        "warmup": st.integers(0, 2),
        "active": st.integers(1, 3),
        "repeat": st.integers(0, 2),
        "skip_first": st.integers(0, 2),
        "skip_first_wait": st.integers(0, 1),
    }
)


@pytest.mark.slow
@pytest.mark.parametrize("acc_events", [False, True])
@given(numbers=SCHEDULES, count=st.integers(1, 12))
def test_cycles_hold_their_own_steps(acc_events, numbers, count):
    schedule = bridge.schedule(**numbers)
    found = []
    session = bridge.profile(
        schedule=schedule,
        acc_events=acc_events,
        on_trace_ready=lambda session: found.append((steps(session), names(session))),
    )
    with session:
        for step in range(count):
            op(f"in {step}")
            if step < count - 1:
                session.step()
    cycles = expected(schedule, count)
    if acc_events:
        cycles = [list(chain(*cycles[: at + 1])) for at in range(len(cycles))]
    assert found == [(cycle, [f"in {step}" for step in cycle]) for cycle in cycles]


def test_a_warm_up_at_the_end_leaves_the_last_cycle_to_be_read():
    ready = []
    session = bridge.profile(
        schedule=bridge.schedule(wait=0, warmup=1, active=2),
        on_trace_ready=lambda _: ready.append(1),
    )
    with session:
        for step in range(6):
            op(str(step))
            session.step()
    assert (ready, names(session), steps(session)) == ([1, 1], ["4", "5"], [4, 5])


def test_a_cycle_that_the_end_cuts_off_before_its_first_step_leaves_the_one_before(tmp_path):
    ready = []
    session = bridge.profile(
        schedule=bridge.schedule(wait=0, warmup=0, active=2),
        on_trace_ready=lambda cycle: ready.append(steps(cycle.report)),
        path=tmp_path / "session.json",
    )
    with session:
        for number in range(4):
            op(f"op {number}")
            session.step()
    assert ready == [[0, 1], [2, 3], [4]]  # as PyTorch's profiler, which calls for the rest, too
    assert steps(session.report) == [2, 3]
    assert "op 3" in names(session.report)
    session.dump()
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "session-2.json",
        "session-3.json",
        "session.json",
    ]
    with session:  # another session, without a step: all of it is one cycle
        op("again")
    assert names(session.report) == ["again"]


def test_ranges_open_over_a_cycle_are_of_the_cycle_in_which_they_begin():
    found = []
    session = bridge.profile(
        schedule=bridge.schedule(wait=0, warmup=0, active=1),
        on_trace_ready=lambda session: found.append(
            [(one["name"], one["open"]) for one in ranges(session)]
        ),
    )
    with nvtx_op("before all"), session:
        with nvtx_op("over"):
            op("a")
            session.step()
            op("b")
        op("c")
    assert found == [
        # A step ends within it: two slices of one call.
        [("ProfilerStep#0", False), ("over", False), ("a", False), ("over", True)],
        [("ProfilerStep#1", False), ("b", False), ("c", False)],
    ]


def test_with_cycles_that_accumulate_no_range_is_counted_twice():
    session = bridge.profile(schedule=bridge.schedule(wait=0, warmup=0, active=1), acc_events=True)
    with session, nvtx_op("over"):
        for _ in range(5):
            op("a")
            session.step()
    calls = session.by("op").set_index("op")["calls"]
    assert (calls["over"], calls["a"]) == (1, 5)


def test_coroutines_suspended_over_the_boundaries():
    @nvtx_op("task")
    async def task(gate: asyncio.Event) -> None:
        op("first half")
        await gate.wait()
        op("second half")

    async def program(session: bridge.Session, at: str) -> None:
        gate = asyncio.Event()
        if at == "start":
            running = asyncio.create_task(task(gate))
            await asyncio.sleep(0)
            session.start()
        else:
            session.start()
            running = asyncio.create_task(task(gate))
            await asyncio.sleep(0)
            session.stop()
        gate.set()
        await running
        op("last")
        session.stop()

    session = bridge.profile()
    asyncio.run(program(session, "start"))
    assert names(session) in (["task", "second half", "last"], ["second half", "last"])
    asyncio.run(program(session, "end"))
    assert names(session) == ["task", "first half"]
    assert not any(one["open"] for one in ranges(session))


def test_generators_suspended_over_the_boundaries():
    @nvtx_op("generator")
    def generator():
        for number in range(4):
            op(f"part {number}")
            yield number

    session = bridge.profile()
    going = generator()
    next(going)
    with session:
        next(going)
        next(going)
    next(going)
    assert [name for name in names(session) if name != "generator"] == ["part 1", "part 2"]
    going = generator()
    with session:
        next(going)
    assert list(going) == [1, 2, 3]
    assert names(session) == ["generator", "part 0"]


@pytest.mark.slow
def test_threads_over_many_boundaries():
    """Every op of every thread is in at most one cycle, and none that began in a cycle is missing."""
    found: list[str] = []
    session = bridge.profile(
        schedule=bridge.schedule(wait=0, warmup=0, active=1),
        on_trace_ready=lambda session: found.extend(names(session)),
    )
    ended = threading.Event()
    counts: dict[int, int] = {}

    def work(number: int) -> None:
        count = 0
        while not ended.is_set():
            with nvtx_op(f"{number}:{count}"):
                op("inner")
            count += 1
        counts[number] = count

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    with session:
        for thread in threads:
            thread.start()
        for _ in range(BOUNDARIES):
            op("main")
            session.step()
        ended.set()
        for thread in threads:
            thread.join()
    outer = [name for name in found if ":" in name]
    assert len(outer) == len(set(outer))
    assert found.count("main") == BOUNDARIES
    # Between two cycles a thread may go on unheard: while the result of one is being read.
    assert 0 < len(outer) <= sum(counts.values())


def test_every_thread_is_recorded_with_its_name():
    with bridge.profile() as session:
        thread = threading.Thread(target=op, args=("there",), name="loader")
        thread.start()
        thread.join()
        op("here")
    report = session.report.capture
    of = dict(zip(report.threads["thread"], report.threads["name"], strict=True))
    assert {one["name"]: of[one["thread"]] for one in ranges(session)} == {
        "there": "loader",
        "here": "MainThread",
    }


@pytest.mark.slow
def test_random_nesting_with_pauses_and_clears():  # noqa: C901 (a case for each act)
    """A plain recorder that is told the same gives the same."""
    randomly = random.Random(7)
    for _ in range(20):
        heard: list[str] = []
        paused = False
        session = bridge.profile()
        session.start()
        open_ops: list[tuple[str, object]] = []
        for number in range(200):
            act = randomly.choice(["open"] * 6 + ["close"] * 6 + ["pause", "resume", "clear"])
            if act == "open":
                block = nvtx_op(f"n{number}")
                block.__enter__()
                open_ops.append((f"n{number}", block))
                if not paused:
                    heard.append(f"n{number}")
            elif act == "close" and open_ops:
                open_ops.pop()[1].__exit__(None, None, None)
            elif act == "pause":
                paused = True
                session.pause()
            elif act == "resume":
                paused = False
                session.resume()
            elif act == "clear":
                session.clear()
                heard = [name for name in heard if name in [opened for opened, _ in open_ops]]
        for _, block in reversed(open_ops):
            block.__exit__(None, None, None)
        session.stop()
        assert names(session) == heard
        assert not any(one["open"] for one in ranges(session))
