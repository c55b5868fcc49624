"""Decorated generators behave as undecorated ones, and are on the stack only while they run."""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import sys
import threading
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from recorder import Recorder

from bridge import nvtx_op
from bridge.annotate import emit, emitter


@nvtx_op("count")
def count(n: int) -> Iterator[int]:
    yield from range(n)


def test_slices_of_a_generator_are_one_call(tool: Recorder) -> None:
    for _ in count(3):
        assert tool.open() == ()
    assert tool.names() == ["count"] * 4
    assert tool.calls() == {"count": 1}
    assert inspect.isgeneratorfunction(count)


def test_interleaved_generators_never_nest(tool: Recorder) -> None:
    assert list(zip(count(3), count(3), strict=True)) == [(0, 0), (1, 1), (2, 2)]
    assert tool.calls() == {"count": 2}
    assert tool.parents("count") == {()}


def test_blocks_go_and_come_back_with_their_generator(tool: Recorder) -> None:
    @nvtx_op("g")
    def g() -> Iterator[tuple[str, ...]]:
        with nvtx_op("a"), nvtx_op("b", domain="other"):
            yield tool.open()
            yield tool.open()

    for seen in g():
        assert seen == ("g", "a")
        assert (tool.open(), tool.open("other")) == ((), ())
        assert tool.popped[-3:] == ["b", "a", "g"]  # in every domain together, the innermost first
    assert tool.calls() == {"g": 1, "a": 1, "b": 1}
    assert tool.names() == ["g", "a", "b"] * 3


def test_a_payload_is_marked_once_in_the_first_slice(tool: Recorder) -> None:
    @nvtx_op("g", payload=9, category="c")
    def g() -> Iterator[int]:
        yield from (1, 2)

    assert list(g()) == [1, 2]
    assert tool.calls() == {"g": 1}
    [(mark, payload, inside)] = tool.marks
    assert (mark.name, mark.category, payload, inside) == ("g", "c", 9, ("g",))


# Each of these programs runs on an undecorated and a decorated generator; what they see must be equal.


def echo(log: list[Any]) -> Generator[Any, Any, str]:
    try:
        while True:
            try:
                log.append((yield len(log)))
            except ValueError as error:
                log.append(("caught", str(error)))
                if "return" in str(error):
                    return "returned"
                if "raise" in str(error):
                    raise KeyError("other") from error
    finally:
        log.append("finally")


def stubborn(log: list[Any]) -> Iterator[int]:
    while len(log) < 5:
        try:
            yield len(log)
        except GeneratorExit:
            log.append("ignored")


def delegating(log: list[Any]) -> Iterator[Any]:
    log.append((yield from echo(log)))


def sends(g: Generator[Any, Any, Any]) -> Any:
    return [next(g), g.send("x"), g.send(None), g.throw(ValueError("go on")), g.send(3)]


def returns(g: Generator[Any, Any, Any]) -> Any:
    next(g)
    g.throw(ValueError("return"))


def raises(g: Generator[Any, Any, Any]) -> Any:
    next(g)
    g.throw(ValueError("raise"))


def closes(g: Any) -> Any:
    next(g)
    return [g.close(), g.close(), next(g, "exhausted")]


def closes_before(g: Any) -> Any:
    return [g.close(), next(g, "exhausted")]


def throws_before(g: Generator[Any, Any, Any]) -> Any:
    g.throw(ValueError("early"))


def throws_exit(g: Generator[Any, Any, Any]) -> Any:
    next(g)
    return [g.throw(GeneratorExit), next(g)]


def throws_stop(g: Generator[Any, Any, Any]) -> Any:
    next(g)
    g.throw(StopIteration("mine"))


def sends_too_early(g: Generator[Any, Any, Any]) -> Any:
    g.send(1)


def outcome(make: Callable[..., Any], program: Callable[..., Any]) -> Any:
    log: list[Any] = []
    generator = make(log)
    try:
        seen = program(generator)
    except BaseException as error:  # the kind and cause of the error are what is compared
        seen = [repr(error), repr(error.__cause__), repr(error.__context__)]
    log.extend("enough")  # for the stubborn one, which then lets itself be closed
    generator.close()
    return seen, log


PROGRAMS = [
    sends, returns, raises, closes, closes_before, throws_before, throws_exit, throws_stop, sends_too_early,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("make", [echo, stubborn, delegating])
def test_it_passes_everything_on(
    tool: Recorder, make: Callable[..., Any], program: Callable[..., Any]
) -> None:
    assert outcome(nvtx_op(make), program) == outcome(make, program)
    assert tool.all_closed()


def test_a_return_value_passes(tool: Recorder) -> None:
    @nvtx_op
    def g() -> Generator[int, None, str]:
        yield 1
        return "done"

    def outer() -> Generator[int, None, str]:
        return (yield from g())

    generator = outer()
    assert next(generator) == 1
    with pytest.raises(StopIteration, match="done"):
        next(generator)


@pytest.mark.slow
def test_a_generator_that_is_collected_runs_its_finally(tool: Recorder) -> None:
    log: list[Any] = []
    generator = nvtx_op("g")(echo)(log)
    next(generator)
    del generator
    gc.collect()
    assert log == ["finally"]
    assert tool.names() == ["g", "g"]
    assert tool.calls() == {"g": 1}


def test_what_was_yielded_is_let_go(tool: Recorder) -> None:
    class Batch:
        pass

    @nvtx_op
    def load() -> Iterator[Batch]:
        yield Batch()
        yield Batch()

    batches = load()
    batch = next(batches)
    seen = weakref.ref(batch)
    del batch
    assert seen() is None  # a loader that held its last batch would double the memory of a GPU
    batches.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["attached", "detached"])
def test_arguments_are_let_go_too(tool: Recorder, kind: str) -> None:
    if kind == "detached":
        emit.use(emitter.NullEmitter())
    seen: list[Any] = []

    @nvtx_op
    def consume(batch: set[int]) -> Iterator[int]:
        seen.append(weakref.ref(batch))
        del batch
        yield 1

    @nvtx_op
    async def await_(batch: set[int]) -> None:
        seen.append(weakref.ref(batch))
        del batch
        await asyncio.sleep(0)
        assert seen[-1]() is None

    generator = consume({1})
    next(generator)
    assert seen[0]() is None
    asyncio.run(await_({2}))


@pytest.mark.slow
def test_an_exception_that_passes_through_leaves_no_cycle(tool: Recorder) -> None:
    class Thrown(Exception):  # noqa: N818
        pass

    gc.collect()
    gc.disable()
    try:
        generator = nvtx_op("g")(echo)([])
        next(generator)
        error = Thrown()
        with pytest.raises(Thrown) as caught:
            generator.throw(error)
        seen = sys.getrefcount(error)
        del caught
        gone = weakref.ref(error)
        del error, generator
        assert gone() is None, seen
    finally:
        gc.enable()


def test_a_helper_holds_a_block_for_a_while(tool: Recorder) -> None:
    @contextmanager
    def phase(name: str) -> Iterator[None]:
        with nvtx_op(name):
            yield

    with phase("outer"):
        with phase("inner"):
            assert tool.open() == ("outer", "inner")
        assert tool.open() == ("outer",)

    @nvtx_op("g")
    def g() -> Iterator[None]:
        with phase("p"):
            yield

    for _ in g():
        assert tool.open() == ()
    assert ("g",) in tool.parents("p")
    assert tool.calls() == {"outer": 1, "inner": 1, "g": 1, "p": 1}


def test_a_generator_moves_to_another_thread(tool: Recorder) -> None:
    @nvtx_op("g")
    def g() -> Iterator[int]:
        with nvtx_op("b"):
            yield threading.get_ident()
            yield threading.get_ident()

    moving = g()
    first = next(moving)
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(next(moving)))
    thread.start()
    thread.join()
    assert next(moving, None) is None
    assert [piece.thread for piece in tool.slices[::2]] == [first, seen[0], first]
    assert tool.calls() == {"g": 1, "b": 1}


def test_a_generator_inside_itself_is_an_error_as_ever(tool: Recorder) -> None:
    @nvtx_op
    def g() -> Iterator[int]:
        yield next(held[0])

    held = [g()]
    with pytest.raises(ValueError, match="already executing"):
        next(held[0])


def test_partial_generator_functions(tool: Recorder) -> None:
    made = nvtx_op(functools.partial(count.__wrapped__, 2))  # type: ignore[attr-defined]
    assert inspect.isgeneratorfunction(made)
    assert list(made()) == [0, 1]
    assert tool.calls() == {"count": 1}


def test_a_block_that_outlives_its_generator_goes_on_outside(tool: Recorder) -> None:
    block = nvtx_op("block")

    @nvtx_op("g")
    def g() -> Iterator[None]:
        block.__enter__()
        yield

    list(g())
    assert tool.open() == ("block",)
    block.__exit__(None, None, None)
    assert tool.calls() == {"g": 1, "block": 1}


@pytest.mark.slow
def test_it_leaves_nothing_to_the_garbage_collector(tool: Recorder) -> None:
    gc.collect()
    gc.disable()
    try:
        for _ in range(100):
            list(count(2))
            generator = iter(count(2))
            next(generator)
            del generator
        assert gc.collect() < 100
    finally:
        gc.enable()
