"""Decorated coroutines and asynchronous generators, under the real asyncio."""

from __future__ import annotations

import asyncio
import gc
import inspect
import types
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorder import Recorder

from bridge import nvtx_op
from bridge.annotate import emit, emitter


@nvtx_op("work")
async def work(n: int) -> int:
    with nvtx_op("block"):
        for _ in range(n):
            await asyncio.sleep(0)
    return n


def test_four_interleaved_coroutines_never_nest(tool: Recorder) -> None:
    async def main() -> list[int]:
        return await asyncio.gather(*(work(n) for n in (1, 2, 3, 4)))

    assert asyncio.run(main()) == [1, 2, 3, 4]
    assert tool.calls() == {"work": 4, "block": 4}
    assert tool.parents("work") == {()}
    assert tool.parents("block") == {("work",)}
    assert tool.names().count("work") == 1 + 2 + 3 + 4 + 4
    assert inspect.iscoroutinefunction(work)


def test_nested_coroutines_stay_nested(tool: Recorder) -> None:
    @nvtx_op("outer")
    async def outer() -> None:
        await asyncio.gather(asyncio.sleep(0), work(2))
        await work(2)

    asyncio.run(outer())
    assert tool.parents("work") == {(), ("outer",)}  # as a task of its own, and awaited
    assert tool.calls() == {"outer": 1, "work": 2, "block": 2}


def test_cancellation_and_errors_close_the_range(tool: Recorder) -> None:
    log: list[str] = []

    @nvtx_op
    async def waits() -> None:
        try:
            with nvtx_op("block"):
                await asyncio.sleep(60)
        finally:
            log.append("finally")
            await asyncio.sleep(0)

    @nvtx_op
    async def fails() -> None:
        await asyncio.sleep(0)
        raise KeyError("x")

    async def main() -> None:
        task = asyncio.create_task(waits())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(KeyError, match="x"):
            await fails()
        with pytest.raises(ExceptionGroup):
            await together()

    async def together() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fails())
            group.create_task(waits())

    asyncio.run(main())
    assert log == ["finally", "finally"]
    assert tool.all_closed()


def test_undecorated_tasks_never_nest_in_each_other(tool: Recorder) -> None:
    async def plain(name: str, n: int) -> None:
        with nvtx_op(name):
            for step in range(n):
                await asyncio.sleep(0)
                with nvtx_op(f"{name}.{step}"):
                    pass

    async def main() -> None:
        await asyncio.gather(plain("a", 3), plain("b", 4), plain("c", 1))

    with nvtx_op("main"):
        asyncio.run(main())
    for name in "abc":
        assert tool.parents(name) == {("main",)}
    assert tool.parents("a.2") == {("main", "a")}
    assert tool.parents("b.3") == {("main", "b")}
    assert set(tool.calls().values()) == {1}


def test_tasks_share_one_annotation(tool: Recorder) -> None:
    op = nvtx_op("shared")

    async def plain(n: int) -> None:
        with op:
            for _ in range(n):
                await asyncio.sleep(0)
        assert tool.open() == ()

    async def main() -> None:
        await asyncio.gather(*(plain(n) for n in (3, 1, 2)))

    asyncio.run(main())
    assert tool.parents("shared") == {()}
    assert tool.calls() == {"shared": 3}


def test_what_a_task_had_open_comes_back_when_it_closes_a_block(tool: Recorder) -> None:
    async def first() -> None:
        with nvtx_op("around"):
            with nvtx_op("parked"):
                await asyncio.sleep(0)
            assert tool.open() == ("around",)

    async def second() -> None:
        with nvtx_op("second"):
            assert tool.open() == ("second",)

    async def main() -> None:
        await asyncio.gather(first(), second())

    asyncio.run(main())


def test_a_callback_outside_of_all_tasks(tool: Recorder) -> None:
    def callback() -> None:
        with nvtx_op("callback"):
            assert tool.open() == ("main", "callback")

    async def main() -> None:
        with nvtx_op("task"):
            asyncio.get_running_loop().call_soon(callback)
            await asyncio.sleep(0)
            with nvtx_op("after"):
                assert tool.open() == ("main", "task", "after")

    with nvtx_op("main"):
        asyncio.run(main())


eager = pytest.mark.skipif(not hasattr(asyncio, "eager_task_factory"), reason="needs Python 3.12")


@eager
def test_an_eager_task_begins_outside_of_the_one_that_starts_it(tool: Recorder) -> None:
    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]
        with nvtx_op("starts"):
            task = asyncio.create_task(work(2))
            with nvtx_op("goes on"):
                pass
            await task

    asyncio.run(main())
    assert tool.parents("work") == {()}
    assert tool.parents("goes on") == {("starts",)}


@eager
def test_a_generator_that_starts_an_eager_task_is_suspended_as_ever(tool: Recorder) -> None:
    @nvtx_op("g")
    def g() -> Iterator[asyncio.Task[int]]:
        with nvtx_op("in g"):
            yield asyncio.create_task(work(1))

    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]
        for task in g():
            with nvtx_op("consumer"):
                assert tool.open() == ("consumer",)
            await task

    asyncio.run(main())
    assert tool.calls() == {"g": 1, "in g": 1, "work": 1, "block": 1, "consumer": 1}


def test_wrong_use_of_a_coroutine(tool: Recorder) -> None:
    forgotten = [work(1)]
    coroutine = work(1)
    with pytest.raises(TypeError, match="can't send non-None"):
        coroutine.send(1)
    coroutine.close()
    with pytest.raises(RuntimeError, match="cannot reuse"):
        coroutine.send(None)
    with pytest.warns(RuntimeWarning, match="'work' was never awaited"):
        del forgotten[0]


def test_generator_based_coroutines(tool: Recorder) -> None:
    @nvtx_op("old")
    @types.coroutine
    def old() -> Any:
        yield from asyncio.sleep(0).__await__()
        return 5

    async def main() -> Any:
        return await old()

    assert asyncio.run(main()) == 5
    assert tool.calls() == {"old": 1}


@nvtx_op("stream")
async def stream(n: int, log: list[Any]) -> AsyncIterator[int]:
    try:
        with nvtx_op("block"):
            for i in range(n):
                await asyncio.sleep(0)
                try:
                    log.append((yield i))
                except ValueError:
                    log.append("caught")
                    yield -1
    finally:
        await asyncio.sleep(0)
        log.append("finally")


def test_an_async_generator_is_one_call(tool: Recorder) -> None:
    log: list[Any] = []

    async def main() -> None:
        seen = []
        async for i in stream(3, log):
            assert tool.open() == ()
            seen.append(i)
        assert seen == [0, 1, 2]

    asyncio.run(main())
    assert inspect.isasyncgenfunction(stream)
    assert log == [None, None, None, "finally"]
    assert tool.calls() == {"stream": 1, "block": 1}
    assert tool.parents("block") == {("stream",)}


def test_asend_athrow_and_aclose_pass(tool: Recorder) -> None:
    log: list[Any] = []

    async def main() -> None:
        generator: Any = stream(5, log)
        assert await generator.asend(None) == 0
        assert await generator.asend("x") == 1
        assert await generator.athrow(ValueError("y")) == -1
        assert await anext(generator) == 2
        await generator.aclose()
        with pytest.raises(StopAsyncIteration):
            await anext(generator)
        other: Any = stream(1, log)
        await anext(other)
        with pytest.raises(KeyError):
            await other.athrow(KeyError("z"))

    asyncio.run(main())
    assert log == ["x", "caught", "finally", "finally"]
    assert tool.calls() == {"stream": 2, "block": 2}


@pytest.mark.parametrize("attached", [True, False])
@pytest.mark.parametrize("keep", [True, False])
def test_breaking_out_of_an_async_generator(tool: Recorder, attached: bool, keep: bool) -> None:
    if not attached:
        emit.use(emitter.NullEmitter())
    log: list[Any] = []
    problems: list[Any] = []
    kept = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: problems.append(context)
        )
        generator = stream(3, log)
        if keep:
            kept.append(generator)
        async for _ in generator:
            break
        del generator
        if not keep:
            await asyncio.sleep(0.01)

    asyncio.run(main())
    assert log == ["finally"]
    assert problems == []


@pytest.mark.slow
def test_an_exception_that_passes_an_async_generator_leaves_no_cycle(tool: Recorder) -> None:
    class Thrown(Exception):  # noqa: N818
        pass

    async def main() -> None:
        generator: Any = stream(2, [])
        await anext(generator)
        error = Thrown()
        try:
            await generator.athrow(error)
        except Thrown:
            gone.append(weakref.ref(error))
        del error

    gone: list[Any] = []
    gc.collect()
    gc.disable()
    try:
        asyncio.run(main())
        assert gone[0]() is None
    finally:
        gc.enable()


def test_two_async_generators_in_turns(tool: Recorder) -> None:
    async def drain(n: int) -> list[int]:
        return [i async for i in stream(n, [])]

    async def main() -> None:
        assert list(await asyncio.gather(drain(2), drain(3))) == [[0, 1], [0, 1, 2]]

    asyncio.run(main())
    assert tool.parents("stream") == {()}
    assert tool.calls() == {"stream": 2, "block": 2}


def test_an_async_context_manager_holds_a_block(tool: Recorder) -> None:
    @asynccontextmanager
    async def phase(name: str) -> AsyncIterator[None]:
        with nvtx_op(name):
            await asyncio.sleep(0)
            yield

    @nvtx_op("task")
    async def task(name: str) -> None:
        async with phase(name):
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(task("a"), task("b"))

    asyncio.run(main())
    assert tool.parents("a") == tool.parents("b") == {("task",)}
    assert tool.calls() == {"task": 2, "a": 1, "b": 1}


def test_a_profiler_that_is_not_there_changes_nothing() -> None:
    previous = emit.use(emitter.NullEmitter())
    try:
        assert asyncio.run(work(3)) == 3
        assert [i for i in nvtx_op(lambda: (yield 1))()] == [1]  # noqa: C416
    finally:
        emit.use(previous)


# A task is a tree: None is an await, a pair is an annotated part (decorated or a block) and what is in it.
TREES = st.recursive(
    st.none(), lambda part: st.tuples(st.booleans(), st.lists(part, max_size=4)), max_leaves=12
)


async def grow(name: str, tree: Any) -> None:
    if tree is None:
        await asyncio.sleep(0)
        return
    decorated, parts = tree
    if decorated:
        await nvtx_op(name)(branch)(name, parts)
    else:
        with nvtx_op(name):
            await branch(name, parts)


async def branch(name: str, parts: list[Any]) -> None:
    for number, part in enumerate(parts):
        await grow(f"{name}.{number}", part)


@pytest.mark.slow
@given(st.lists(st.lists(TREES, max_size=3), max_size=4))
def test_any_tasks_keep_to_themselves(tasks: list[list[Any]]) -> None:
    async def main() -> None:
        await asyncio.gather(*(branch(str(task), trees) for task, trees in enumerate(tasks)))

    tool = Recorder()
    previous = emit.use(tool)
    try:
        asyncio.run(main())
    finally:
        emit.use(previous)
    assert tool.all_closed()
    assert set(tool.calls().values()) <= {1}
    for piece in tool.slices:
        path = piece.label.name.split(".")
        assert piece.parents == tuple(".".join(path[:depth]) for depth in range(2, len(path)))
