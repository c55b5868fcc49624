"""Whatever interleaves on a thread, or between threads, nothing but the top of the stack is popped."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorder import Recorder

from bridge import nvtx_op
from bridge.annotate import emit, stack
from bridge.annotate.label import Label


def test_closing_below_the_top_keeps_the_others(tool: Recorder) -> None:
    a, b, c = nvtx_op("a"), nvtx_op("b"), nvtx_op("c", domain="other")
    for op in (a, b, c):
        op.__enter__()
    a.__exit__(None, None, None)
    assert (tool.open(), tool.open("other")) == (("b",), ("c",))
    assert tool.names() == ["a", "b", "c", "b"]  # the other domain is not disturbed
    b.__exit__(None, None, None)
    c.__exit__(None, None, None)
    assert tool.calls() == {"a": 1, "b": 1, "c": 1}


def test_undecorated_generators_may_interleave(tool: Recorder) -> None:
    def g(name: str) -> Iterator[None]:
        with nvtx_op(name):
            yield

    a, b = g("a"), g("b")
    next(a), next(b), next(a, None)
    assert tool.open() == ("b",)
    next(b, None)
    assert tool.calls() == {"a": 1, "b": 1}


def test_an_exit_stack_closes_later(tool: Recorder) -> None:
    with ExitStack() as held:
        held.enter_context(nvtx_op("phase"))
        nvtx_op("f")(lambda: held.enter_context(nvtx_op("late")))()
        assert tool.open() == ("phase", "late")
    assert tool.open() == ()


def test_threads_have_stacks_of_their_own(tool: Recorder) -> None:
    op = nvtx_op("shared")

    def work(_: int) -> None:
        for _ in range(50):
            with op, op:
                assert tool.open() == ("shared", "shared")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(32)))
    assert tool.calls() == {"shared": 3200}


def test_two_threads_in_one_annotation_close_their_own(tool: Recorder) -> None:
    op = nvtx_op("shared")
    opened, closed = threading.Event(), threading.Event()

    def second() -> None:
        with op:
            opened.set()
            closed.wait()
            assert tool.open() == ("shared",)

    thread = threading.Thread(target=second)
    with op:
        thread.start()
        opened.wait()
    assert tool.open() == ()
    closed.set()
    thread.join()


def test_closing_twice_does_nothing_more(tool: Recorder) -> None:
    entry = stack.Entry(Label("x"), 1)
    stack.push(entry)
    stack.close(entry)
    stack.close(entry)


def test_a_block_closed_by_another_thread(tool: Recorder) -> None:
    block = nvtx_op("block")
    block.__enter__()
    with nvtx_op("above"):
        other = threading.Thread(target=block.__exit__, args=(None, None, None))
        other.start()
        other.join()
        assert len(tool.slices) == 2  # it may not pop on this thread
    assert tool.open() == ()
    with nvtx_op("next"):
        assert tool.open() == ("next",)


def test_a_number_of_a_dead_thread_may_come_back(tool: Recorder) -> None:
    blocks = [nvtx_op("lost") for _ in range(20)]
    for block in blocks:
        thread = threading.Thread(target=block.__enter__)
        thread.start()
        thread.join()
    for block in blocks:
        thread = threading.Thread(target=block.__exit__, args=(None, None, None))
        thread.start()
        thread.join()
    assert {len(held) for held in tool.stacks.values()} <= {0, 20, *range(20)}
    tool.stacks.clear()  # nobody can close a range of a thread that has ended


def test_a_finalizer_in_the_midst_of_an_act_waits(tool: Recorder) -> None:
    late = nvtx_op("late")
    late.__enter__()
    skipped: Any = nvtx_op("skipped")(lambda: list(nvtx_op("g")(lambda: (yield 1))()))
    tool.interrupts = [lambda: late.__exit__(None, None, None), skipped]
    with nvtx_op("top"):
        assert tool.names() == ["late", "top"]
        with nvtx_op("next"):
            assert tool.open() == ("top", "next")
    assert tool.open() == ()


@pytest.mark.slow
def test_a_forked_child_keeps_to_the_law(tool: Recorder) -> None:
    with nvtx_op("parent"):
        child = os.fork()
        if child == 0:
            try:
                with nvtx_op("child"):
                    good = tool.open() == ("parent", "child")
            finally:
                os._exit(0 if good else 1)
        assert os.waitpid(child, 0)[1] == 0


ACTS = st.one_of(
    st.tuples(st.just("open"), st.integers(0, 3), st.integers(0, 1)),
    st.tuples(st.just("close"), st.integers(0, 3), st.integers(0, 5)),
    st.tuples(st.just("step"), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("end"), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("new"), st.integers(0, 3), st.integers(0, 1)),
)


class Program:
    """Four generators that open and close blocks as they are told, one or the other kind, in any order."""

    def __init__(self, tool: Recorder) -> None:
        self.tool = tool
        self.orders: list[tuple[str, int]] = []
        self.running: dict[int, tuple[bool, Any]] = {}
        self.blocks: dict[int, list[tuple[str, Any]]] = {}

    def body(self, who: int, decorated: bool) -> Iterator[None]:
        held = self.blocks[who] = []
        while True:
            while self.orders:
                act, which = self.orders.pop()
                if act == "open":
                    name = f"{who}.{len(self.tool.slices)}"
                    held.append((name, nvtx_op(name, domain=("d" if which else None)).__enter__()))
                elif held:
                    held.pop(which % len(held))[1].__exit__(None, None, None)
                self.check(who, decorated)
            yield

    def check(self, who: int, decorated: bool) -> None:
        """See on the stack whatever the running generator has open, and nothing of one suspended."""
        seen = (*self.tool.open(), *self.tool.open("d"))
        for other, blocks in self.blocks.items():
            suspended = self.running[other][0] and other != who
            for name, _ in blocks:
                assert (name in seen) != suspended
        assert (f"g{who}" in seen) == decorated

    def do(self, act: str, who: int, which: int) -> None:
        if act == "new" or who not in self.running:
            self.end(who)
            body = nvtx_op(f"g{who}")(self.body) if which else self.body
            self.running[who] = (bool(which), body(who, bool(which)))
            next(self.running[who][1])
        elif act == "end":
            self.end(who)
        else:
            self.orders = [(act, which)] if act != "step" else []
            next(self.running[who][1])

    def end(self, who: int) -> None:
        _, generator = self.running.pop(who, (False, None))
        for _, block in self.blocks.pop(who, []):  # some are closed from outside, while parked
            block.__exit__(None, None, None)
        if generator is not None:
            generator.close()


@pytest.mark.slow
@given(st.lists(ACTS, max_size=40))
def test_any_interleaving_is_lawful(acts: list[tuple[str, int, int]]) -> None:
    tool = Recorder()
    previous = emit.use(tool)
    try:
        program = Program(tool)
        for act in acts:
            program.do(*act)
            tool.open(), tool.open("d")
        for who in range(4):
            program.end(who)
        with nvtx_op("last"):
            assert tool.open() == ("last",)
        assert tool.all_closed()
    finally:
        emit.use(previous)
