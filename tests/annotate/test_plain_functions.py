"""Plain functions are pushed and popped where they are called; what crosses them still nests."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorder import Recorder

import bridge
from bridge import nvtx_op, pop, push
from bridge.annotate import emit, stack


@nvtx_op("function")
def call(body: Callable[[], object] = lambda: None) -> None:
    body()


def test_a_block_below_a_function_is_closed_in_it(tool: Recorder) -> None:
    block = nvtx_op("block")
    block.__enter__()
    call(lambda: block.__exit__(None, None, None))
    assert tool.names() == ["block", "function", "function"]
    assert tool.popped == ["function", "block", "function"]
    assert len({piece.payload for piece in tool.slices[1:]}) == 1  # one call in two slices
    assert tool.all_closed()


def test_a_constant_payload_does_not_confuse_calls(tool: Recorder) -> None:
    block = nvtx_op("block")
    block.__enter__()

    @nvtx_op("recursive", payload=7)
    def recursive(depth: int) -> None:
        if depth:
            recursive(depth - 1)
            assert tool.open()[-1] == "recursive"
        else:
            block.__exit__(None, None, None)

    recursive(3)
    assert tool.open() == ()
    assert tool.all_closed()


def test_a_block_that_is_left_open_ends_up_above(tool: Recorder) -> None:
    left: list[nvtx_op] = []

    def leave() -> None:
        left.append(nvtx_op("left open"))
        left[0].__enter__()

    call(leave)
    assert tool.open() == ("left open",)
    left[0].__exit__(None, None, None)
    assert tool.all_closed()


def test_ranges_pushed_by_hand_over_the_end_of_a_function(tool: Recorder) -> None:
    call(lambda: push("by hand"))
    assert tool.open() == ("by hand",)
    call(pop)
    assert tool.open() == ()


def test_a_loop_run_within_a_function(tool: Recorder) -> None:
    @nvtx_op("work")
    async def work() -> None:
        await asyncio.sleep(0)
        call()
        await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(work(), work())

    call(lambda: asyncio.run(main()))
    assert tool.calls()["function"] == 3
    assert tool.calls()["work"] == 2
    assert tool.all_closed()
    call()  # no task runs any more: opened without an act
    assert isinstance(tool.slices[-1].payload, int)
    assert tool.all_closed()


def test_asyncio_imported_later_is_noticed(tool: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "asyncio")
    call()
    assert stack.here.stack.care() is None
    monkeypatch.undo()
    assert (
        stack.here.stack.care() is not None
    )  # somebody has imported it: the next act looks closer
    call()
    assert stack.here.stack.care() is None
    assert tool.names() == ["function"] * 2


@pytest.mark.slow
def test_a_generator_left_suspended_in_a_function(tool: Recorder) -> None:
    @nvtx_op("numbers")
    def numbers() -> Iterator[int]:
        yield from range(3)

    def begin() -> None:
        running = numbers()
        assert next(running) == 0
        del running
        gc.collect()

    call(begin)
    assert tool.all_closed()


def test_a_block_closed_by_another_thread_while_a_function_runs(tool: Recorder) -> None:
    block = nvtx_op("block")
    block.__enter__()

    def elsewhere() -> None:
        thread = threading.Thread(target=block.__exit__, args=(None, None, None))
        thread.start()
        thread.join()
        assert tool.open() == ("block", "function")  # nobody else may pop on this thread

    call(elsewhere)
    assert tool.open() == ()


def test_a_signal_between_push_and_pop(tool: Recorder) -> None:
    signal.signal(signal.SIGUSR1, lambda *_: call())
    try:
        call(lambda: signal.raise_signal(signal.SIGUSR1))
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    assert [piece.parents for piece in tool.slices] == [(), ("function",)]
    assert tool.all_closed()


def test_an_exception_out_of_the_back_end_leaves_the_thread_usable(tool: Recorder) -> None:
    class Failing(Recorder):
        def push(self, label, payload) -> None:
            raise OSError("as it should")

    emit.use(Failing())
    with pytest.warns(RuntimeWarning, match="ranges are no longer recorded: OSError: as it should"):
        call()
    assert not stack.here.stack.busy
    emit.use(tool)
    call()
    assert tool.names() == ["function"]
    assert tool.all_closed()


def test_another_back_end_during_a_call(tool: Recorder) -> None:
    other = Recorder()

    def change() -> None:
        emit.use(other)
        call()

    call(change)
    emit.use(tool)
    assert tool.names() == other.names() == ["function"]
    assert tool.all_closed()
    assert other.all_closed()


def test_each_thread_binds_its_own(tool: Recorder) -> None:
    """Bound ranges of two threads share nothing, so that payloads do not mix."""
    threads = [threading.Thread(target=lambda: [call() for _ in range(500)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({piece.payload for piece in tool.slices}) == 8 * 500


def test_a_recursion_too_deep_leaves_nothing_open() -> None:
    """Where the limit is hit, nothing can be closed: the functions around do that."""

    @nvtx_op
    def deeper() -> None:
        deeper()

    with bridge.profile(level=0) as session:
        with nvtx_op("outer"), pytest.raises(RecursionError):
            deeper()
        call()
    table = session.report.capture.ranges.to_pandas()
    assert not table["open"].any()
    outer, later = (table[table["name"] == name].iloc[0] for name in ("outer", "function"))
    assert outer["end"] <= later["start"]
    assert (table["end"].max(), stack.here.stack.live) == (later["end"], [])


@pytest.mark.slow
@pytest.mark.racy("a signal comes at a random moment")
@pytest.mark.parametrize("seed", range(3))
def test_interrupts_leave_nothing_open(seed: int) -> None:
    """Ctrl-C at any moment of a loop that does nothing but annotate."""

    @nvtx_op
    def work(seconds: float) -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        end = time.monotonic() + 5
        while time.monotonic() < end:
            call()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    gc.disable()  # what is raised in a callback of the collector is swallowed
    try:
        with bridge.profile(level=0) as session:
            for attempt in range(30):
                with nvtx_op("outer"), pytest.raises(KeyboardInterrupt):
                    work(0.001 + 0.00003 * (attempt + 30 * seed))
            call()
            assert stack.here.stack.live == []
    finally:
        gc.enable()
        signal.signal(signal.SIGALRM, before)
    names = session.report.capture.ranges
    assert (names["name"] == "outer").sum() == 30


# What a program does, by turns: call a function around the rest, open a block, close one of those open.
ACTS = st.lists(
    st.tuples(st.sampled_from(["call", "open", "close", "leave"]), st.integers(0, 3)), max_size=30
)


@given(ACTS)
def test_functions_and_blocks_in_any_order_nest(acts: list[tuple[str, int]]) -> None:
    tool = Recorder()
    previous = emit.use(tool)
    opened: list[nvtx_op] = []
    left, done = iter(acts), 0

    def go_on() -> None:
        nonlocal done
        for act, which in left:
            if act == "call":
                done += 1
                call(go_on)
            elif act == "leave":
                return
            elif act == "open":
                opened.append(nvtx_op("block", domain="d" if which == 3 else None))
                opened[-1].__enter__()
            elif opened:
                opened.pop(which % len(opened)).__exit__(None, None, None)
            tool.open(), tool.open("d")  # what is live is what the back end holds

    try:
        go_on()
        for block in opened:
            block.__exit__(None, None, None)
        assert tool.all_closed()
        assert tool.calls()["function"] == done
        assert stack.here.stack.entries == {}
    finally:
        emit.use(previous)
