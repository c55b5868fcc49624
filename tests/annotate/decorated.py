"""A program with every kind of annotation, to be profiled; what the profile must hold is in EXPECTED."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator

from bridge import backend, nvtx_op

# Calls by name, as an importer should count them: slices with one call id are one call.
EXPECTED = {
    "plain": 5, "raises": 2, "Layer.forward": 3, "work": 4, "work.block": 4, "numbers": 2,
    "numbers.block": 2, "stream": 2, "outer": 1, "inner": 1, "helper": 1, "cancelled": 1, "a": 1,
    "b": 1, "on another thread": 1,
}  # fmt: skip
SLICES = {"work": 4 * 4, "work.block": 4 * 4, "numbers": 2 * 4, "numbers.block": 2 * 4, "b": 2}


@nvtx_op
def plain(x: int) -> int:
    return x


@nvtx_op
def raises() -> None:
    raise ValueError("as it should")


class Layer:
    @nvtx_op
    def forward(self) -> None:
        pass


@nvtx_op
async def work(n: int) -> int:
    with nvtx_op("work.block"):
        for _ in range(n):
            await asyncio.sleep(0.001)
    return n


@nvtx_op
async def cancelled() -> None:
    await asyncio.sleep(60)


@nvtx_op
def numbers(n: int) -> Iterator[int]:
    with nvtx_op("numbers.block"):
        yield from range(n)


@nvtx_op("stream", payload=2.5)
async def stream(n: int) -> AsyncIterator[int]:
    for i in range(n):
        await asyncio.sleep(0)
        yield i


@contextlib.contextmanager
def helper() -> Iterator[None]:
    with nvtx_op("helper"):
        yield


async def main() -> None:
    await asyncio.gather(*(work(3) for _ in range(4)))
    task = asyncio.create_task(cancelled())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    for _ in range(2):
        assert [i async for i in stream(3)] == [0, 1, 2]


def out_of_order() -> None:
    a, b = nvtx_op("a"), nvtx_op("b")
    a.__enter__()
    b.__enter__()
    a.__exit__(None, None, None)
    b.__exit__(None, None, None)


def run() -> None:
    for x in range(5):
        plain(x)
    for _ in range(2):
        with contextlib.suppress(ValueError):
            raises()
    for _ in range(3):
        Layer().forward()
    for pair in zip(numbers(3), numbers(3), strict=True):
        assert pair[0] == pair[1]
    with nvtx_op("outer"), nvtx_op("inner"), helper():
        pass
    with nvtx_op("block", domain="my domain", category="my category", color="#123456", payload=42):
        pass
    out_of_order()
    thread = threading.Thread(target=nvtx_op("on another thread")(lambda: None))
    thread.start()
    thread.join()
    asyncio.run(main())


if __name__ == "__main__":
    print(backend())  # noqa: T201 (the test reads it)
    run()
