"""The host as a device: the interpreter's clock around calls that return when they are done."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property, partial
from itertools import repeat
from pathlib import Path
from threading import Barrier
from time import perf_counter_ns

import numpy as np

from bridge.bench.devices.base import UNKNOWN, BenchError, Call, Label, Spans

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
DEFAULT_CACHE_BYTES = 64 << 20  # if the system does not report it
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
EMPTY_TURNS = 100_000  # of the loop without calls


class Host:
    """Times calls on the host, without garbage collection, as `timeit` does."""

    name: str = "cpu"
    clock: str = "host perf_counter_ns"
    least_ns: int = 200_000

    def runs(self, call: Call, runs: int, number: int, label: Label, *, cold: bool) -> list[int]:
        with _no_garbage_collection():
            return [self._run(call, number, label, cold) for _ in range(runs)]

    def at_once(
        self,
        calls: Sequence[Call],
        streams: Sequence[int],
        runs: int,
        number: int,
        labels: Sequence[Label],
    ) -> Spans:
        """Run the calls of each stream on a thread; all threads begin at the same time."""
        threads = list(dict.fromkeys(streams))
        result = Spans([], [])
        with ThreadPoolExecutor(len(threads)) as pool, _no_garbage_collection():
            for _ in range(runs):
                begin = Barrier(len(threads))
                work = partial(_run_stream, begin, calls, streams, number, labels)
                spans_of_threads = [
                    future.result() for future in [pool.submit(work, stream) for stream in threads]
                ]
                spans = {
                    index: span for stream in spans_of_threads for index, span in stream.items()
                }
                first = min(start for start, _ in spans.values())
                result.starts.append([spans[index][0] - first for index in range(len(calls))])
                result.ends.append([spans[index][1] - first for index in range(len(calls))])
        return result

    def captured(self, call: Call, number: int) -> Call:  # noqa: ARG002 - an interface
        """Raise BenchError: the CPU has no CUDA graphs."""
        raise BenchError("graph=True: CUDA graphs need a GPU; this runs on the CPU")

    def workspace(self, call: Call) -> int:  # noqa: ARG002 - an interface
        """Return -1: the bytes are not counted."""
        return UNKNOWN

    def wait(self) -> None:
        """Do nothing: calls have returned."""

    @cached_property
    def loop_ns(self) -> float:
        """The time of one turn of an empty loop in ns: the minimum of five tries."""
        return min(_empty_loop_ns() for _ in range(5)) / EMPTY_TURNS

    def _run(self, call: Call, number: int, label: Label, cold: bool) -> int:
        if cold:
            self._buffer.fill(1)
        start, end = _timed(call, number, label)
        return end - start

    @cached_property
    def _buffer(self) -> np.ndarray:
        """Twice the size of the largest cache."""
        return np.zeros(2 * largest_cache(CACHES), np.int8)


def _run_stream(
    begin: Barrier,
    calls: Sequence[Call],
    streams: Sequence[int],
    number: int,
    labels: Sequence[Label],
    stream: int,
) -> dict[int, tuple[int, int]]:
    """Run the calls of a stream once all threads are ready; return begin and end by index."""
    indices = [index for index, other in enumerate(streams) if other == stream]
    begin.wait()
    return {index: _timed(calls[index], number, labels[index]) for index in indices}


def _timed(call: Call, number: int, label: Label) -> tuple[int, int]:
    with label():
        start = perf_counter_ns()
        for _ in repeat(None, number):
            call()
        return start, perf_counter_ns()


def _empty_loop_ns() -> int:
    start = perf_counter_ns()
    for _ in repeat(None, EMPTY_TURNS):
        pass
    return perf_counter_ns() - start


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def largest_cache(folder: Path) -> int:
    """Return the bytes of the largest cache, as Linux reports (``32768K``); 64 MiB if unknown."""
    result = [0]
    for file in folder.glob("index*/size"):
        try:
            text = file.read_text(encoding="ascii").strip()
            result.append(int(text.rstrip("KMG")) * UNITS.get(text[-1:], 1))
        except (OSError, ValueError):
            continue
    return max(result) or DEFAULT_CACHE_BYTES
