"""Phases, marks, counters, ranges pushed by hand, and domains."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

import pytest
from recorder import Recorder

import bridge
from bridge import Domain, counter, mark, nvtx_op, nvtx_range, pop, push, scope
from bridge.annotate import emit, emitter, stack
from bridge.annotate.instant import COUNTER
from bridge.annotate.label import Label

CALL = stack.CALL_ID_BASE >> stack.CALL_ID_BITS


def test_a_phase_lasts_from_start_to_end_whatever_happens_between(tool: Recorder) -> None:
    phase = nvtx_range("epoch", domain="train", category="phase", color="red", payload=3).start()
    with nvtx_op("step"):
        assert list(tool.phases.values()) == [(Label("epoch", "train", "phase", 0xFFFF0000), 3)]
        phase.end()
    assert tool.phases_ended == ["epoch"]
    phase.end()  # nothing is open: nothing happens
    assert tool.phases_ended == ["epoch"]


def test_a_phase_may_be_ended_on_another_thread_and_started_again(tool: Recorder) -> None:
    phase = nvtx_range("load")
    for _ in range(2):
        phase.start()
        worker = threading.Thread(target=phase.end)
        worker.start()
        worker.join()
    assert tool.phases_ended == ["load", "load"]


def test_phases_overlap_and_close_on_exceptions(tool: Recorder) -> None:
    first, second = nvtx_range("first"), nvtx_range("second")
    first.start()
    second.start()
    first.end()
    with pytest.raises(ZeroDivisionError), nvtx_range("third"):
        raise ZeroDivisionError
    second.end()
    assert tool.phases_ended == ["first", "third", "second"]


def test_every_phase_without_a_payload_has_an_id_of_its_own(tool: Recorder) -> None:
    phases = [nvtx_range("same").start() for _ in range(3)]
    ids = {payload for _, payload in tool.phases.values()}
    assert len(ids) == 3
    assert {int(number) >> stack.CALL_ID_BITS for number in ids} == {CALL}
    for phase in phases:
        phase.end()


def test_a_phase_ends_through_the_tool_it_began_with(tool: Recorder) -> None:
    phase = nvtx_range("across").start()
    other = Recorder()
    emit.use(other)
    try:
        phase.end()
    finally:
        emit.use(tool)
    assert (tool.phases_ended, other.phases_ended) == (["across"], [])


def test_marks_carry_what_they_are_given(tool: Recorder) -> None:
    mark("here")
    mark("there", domain="d", category="c", color="#010203", payload=0.5)
    assert tool.marks == [
        (Label("here"), 0, ()),
        (Label("there", "d", "c", 0xFF010203), 0.5, ()),
    ]


def test_a_counter_records_every_change(tool: Recorder) -> None:
    queue = counter("queue", domain="io")
    assert tool.marks == []
    queue.set(5)
    queue += 2
    queue -= 3
    queue.add(0.5)
    values = [(label.name, label.domain, value) for label, value, _ in tool.marks]
    assert values == [(f"{COUNTER}queue", "io", value) for value in (5, 7, 4, 4.5)]
    assert queue.value == 4.5
    assert counter("begun", 8).value == 8
    assert tool.marks[-1][1] == 8


def test_a_counter_loses_no_change_of_any_thread(tool: Recorder) -> None:
    shared = counter("shared")
    threads = [
        threading.Thread(target=lambda: [shared.add() for _ in range(500)]) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shared.value == 8 * 500
    assert [value for _, value, _ in tool.marks] == list(range(1, 8 * 500 + 1))


def test_push_and_pop_tell_the_depth_and_stay_on_their_thread(tool: Recorder) -> None:
    assert (push("outer"), push("inner", domain="d", payload=1)) == (0, 1)
    assert tool.open() == ("outer",)
    assert tool.open("d") == ("inner",)
    depths: list[int] = []
    worker = threading.Thread(target=lambda: depths.append(pop()))
    worker.start()
    worker.join()
    assert depths == [-1]  # nothing was pushed over there
    assert (pop(), pop(), pop()) == (1, 0, -1)


def test_push_and_pop_may_cross_blocks(tool: Recorder) -> None:
    push("a")
    with nvtx_op("b"):
        assert pop() == 0
        assert tool.open() == ("b",)


def test_pop_closes_nothing_that_began_before_a_tool_listened(tool: Recorder) -> None:
    emit.use(emitter.NullEmitter())
    push("unheard")
    emit.use(tool)
    push("heard")
    assert (pop(), pop()) == (1, 0)
    assert tool.popped == ["heard"]


def test_a_domain_speaks_as_mxnet_does(tool: Recorder) -> None:
    domain = Domain("io")
    task, frame, event = domain.task("read"), domain.frame("batch"), domain.event("decode")
    task.start()
    with frame:
        event.start()
        assert tool.open("io") == ("decode",)
        task.stop()
        event.stop()
    queue = domain.counter("queue", 3)
    queue -= 1
    domain.marker("empty").mark("global")
    with domain.op("cast"), domain.range("flush"):
        assert tool.open("io") == ("cast",)
    assert tool.phases_ended == ["read", "batch", "flush"]
    assert [label.category for label, _, _ in tool.marks] == [None, None, "global"]
    assert {label.domain for label, _, _ in tool.marks} == {"io"}


def test_a_scope_is_an_op_of_its_category(tool: Recorder) -> None:
    with scope("encoder"):
        pass
    assert [cut.label for cut in tool.slices] == [Label("encoder", None, "scope", None)]


def everything() -> None:
    """Use all of it."""
    with nvtx_range("r"), scope("s"):
        mark("m")
        push("p")
        pop()
        c = counter("c", 1)
        c += 1
        assert c.value == 2
    with Domain("d").task("t"), Domain("d").event("e"):
        Domain("d").marker("m").mark()


def test_nothing_is_emitted_where_nothing_listens(tool: Recorder) -> None:
    emit.use(emitter.NullEmitter())
    everything()
    emit.use(tool)
    assert (tool.slices, tool.marks, tool.phases_ended) == ([], [], [])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: nvtx_range(3), "a name is a string, not 3"),
        (lambda: mark(None), "a name is a string, not None"),
        (lambda: push("x", color="no colour"), "'no colour' is not a colour"),
        (lambda: counter("x", domain=1), "a domain is a string, not 1"),
        (lambda: counter("x").set("1"), "a payload is an int or a float, not '1'"),
        (lambda: counter("x").set(1 << 63), "64 bits"),
        (lambda: Domain(None).task("x"), "a name is a string, not None"),
        (lambda: nvtx_range("x", payload=True), "a payload is an int or a float, not True"),
    ],
)
def test_wrong_arguments_are_said_where_they_are_given(
    wrong: Callable[[], Any], said: str, tool: Recorder
) -> None:
    with pytest.raises(TypeError, match=said):
        wrong()


def test_all_of_it_is_in_the_light_face() -> None:
    assert set(bridge.__all__) >= {
        "nvtx_range",
        "mark",
        "counter",
        "push",
        "pop",
        "Domain",
        "scope",
    }


# -- A phase as a decorator


def test_a_phase_decorates_functions_and_methods(tool: Recorder) -> None:
    seen: list[tuple[Label, float]] = []

    @nvtx_range("load", domain="train", category="phase", color="red", payload=3)
    def load(x: int) -> int:
        """Load."""
        seen.extend(tool.phases.values())
        return x + 1

    class Data:
        @nvtx_range
        def read(self) -> str:
            return "read"

        @nvtx_range("static")
        @staticmethod
        def static(x: int) -> int:
            return x

        @nvtx_range()
        @classmethod
        def of_class(cls) -> str:
            return cls.__name__

    assert (load(1), load.__name__, load.__doc__) == (2, "load", "Load.")
    assert seen == [(Label("load", "train", "phase", 0xFFFF0000), 3)]
    assert (Data().read(), Data.static(4), Data().of_class()) == ("read", 4, "Data")
    names = [name.rpartition(".")[2] for name in tool.phases_ended]
    assert names == ["load", "read", "static", "of_class"]
    with pytest.raises(ZeroDivisionError):
        nvtx_range("fails")(lambda: 1 / 0)()
    assert not tool.phases


def test_a_decorated_phase_lasts_as_long_as_a_coroutine_or_generator(tool: Recorder) -> None:
    @nvtx_range("coroutine")
    async def coroutine(x: int) -> int:
        await asyncio.sleep(0)
        return x

    @nvtx_range("generator")
    def generator() -> Generator[int, int, str]:
        got = yield 1
        yield got + 1
        return "end"

    @nvtx_range("agenerator")
    async def agenerator() -> AsyncGenerator[int, int]:
        got = yield 1
        yield got + 1

    async def both() -> list[int]:
        return await asyncio.gather(coroutine(1), coroutine(2))

    assert inspect.iscoroutinefunction(coroutine)
    assert inspect.isgeneratorfunction(generator)
    assert inspect.isasyncgenfunction(agenerator)
    assert asyncio.run(both()) == [1, 2]
    running = generator()
    assert (next(running), running.send(5)) == (1, 6)
    assert tool.phases
    with pytest.raises(StopIteration, match="end"):
        next(running)

    async def stepped() -> tuple[int, int]:
        steps = agenerator()
        result = await anext(steps), await steps.asend(5)
        await steps.aclose()
        return result

    assert asyncio.run(stepped()) == (1, 6)
    assert tool.phases_ended == ["coroutine", "coroutine", "generator", "agenerator"]
    assert not tool.phases


def test_calls_of_a_decorated_phase_may_overlap(tool: Recorder) -> None:
    inside, go = threading.Event(), threading.Event()

    @nvtx_range("phase")
    def waits(first: bool) -> None:
        if first:
            inside.set()
            go.wait(5)

    thread = threading.Thread(target=waits, args=(True,))
    thread.start()
    inside.wait(5)
    waits(False)
    assert len(tool.phases) == 1
    go.set()
    thread.join()
    assert tool.phases_ended == ["phase", "phase"]


@pytest.mark.parametrize(
    ("misuse", "reason"),
    [
        (lambda: nvtx_range().start(), "a range needs a name"),
        (
            lambda: nvtx_range(dict),
            "nvtx_range decorates functions and methods, not <class 'dict'>",
        ),
        (lambda: nvtx_range("x")(3), "nvtx_range decorates functions and methods, not 3"),
    ],
)
def test_misuse_of_a_phase(misuse: Any, reason: str) -> None:
    with pytest.raises(TypeError, match=reason):
        misuse()
