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

from bridge.bench.devices.protocol import UNKNOWN, Call, Label, Spans
from bridge.bench.errors import BenchError

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
USUAL_CACHE = 64 << 20  # bytes, where the system does not say
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
EMPTY = 100_000  # turns of a loop without calls


class Host:
    """Times on the host. The garbage collector rests meanwhile, as in `timeit`."""

    name: str = "cpu"
    clock: str = "host perf_counter_ns"
    least_ns: int = 200_000

    def runs(self, call: Call, runs: int, number: int, label: Label, *, cold: bool) -> list[int]:
        """Return the ns of each run."""
        with _no_collections():
            return [self._run(call, number, label, cold) for _ in range(runs)]

    def at_once(
        self,
        calls: Sequence[Call],
        streams: Sequence[int],
        runs: int,
        number: int,
        labels: Sequence[Label],
    ) -> Spans:
        """Run the calls of each stream on a thread of its own; all threads begin together."""
        threads = list(dict.fromkeys(streams))
        found = Spans([], [])
        with ThreadPoolExecutor(len(threads)) as pool, _no_collections():
            for _ in range(runs):
                begin = Barrier(len(threads))
                work = partial(_one_after_another, begin, calls, streams, number, labels)
                of_each = [done.result() for done in [pool.submit(work, one) for one in threads]]
                spans = {place: span for one in of_each for place, span in one.items()}
                first = min(start for start, _ in spans.values())
                found.starts.append([spans[place][0] - first for place in range(len(calls))])
                found.ends.append([spans[place][1] - first for place in range(len(calls))])
        return found

    def captured(self, call: Call, number: int) -> Call:  # noqa: ARG002 - there is nothing to do
        """Refuse: there are no graphs without CUDA."""
        raise BenchError("graph=True: CUDA graphs need a GPU; this runs on the CPU")

    def workspace(self, call: Call) -> int:  # noqa: ARG002 - as above
        """Say that nobody counts."""
        return UNKNOWN

    def wait(self) -> None:
        """Do nothing: calls have returned."""

    @cached_property
    def loop_ns(self) -> float:
        """What a turn of the loop takes without a call: the least of a few tries."""
        return min(_empty_loop() for _ in range(5)) / EMPTY

    def _run(self, call: Call, number: int, label: Label, cold: bool) -> int:
        if cold:
            self._rubbish.fill(1)
        start, end = _timed(call, number, label)
        return end - start

    @cached_property
    def _rubbish(self) -> np.ndarray:
        """Twice as much as the largest cache holds."""
        return np.zeros(2 * largest_cache(CACHES), np.int8)


def _one_after_another(
    begin: Barrier,
    calls: Sequence[Call],
    streams: Sequence[int],
    number: int,
    labels: Sequence[Label],
    stream: int,
) -> dict[int, tuple[int, int]]:
    """Run the calls of one stream, when all threads are ready; return when each began and ended, by its place."""
    own = [place for place, one in enumerate(streams) if one == stream]
    begin.wait()
    return {place: _timed(calls[place], number, labels[place]) for place in own}


def _timed(call: Call, number: int, label: Label) -> tuple[int, int]:
    with label():
        start = perf_counter_ns()
        for _ in repeat(None, number):
            call()
        return start, perf_counter_ns()


def _empty_loop() -> int:
    start = perf_counter_ns()
    for _ in repeat(None, EMPTY):
        pass
    return perf_counter_ns() - start


@contextmanager
def _no_collections() -> Iterator[None]:
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def largest_cache(folder: Path) -> int:
    """Return the bytes of a processor's largest cache, as Linux tells (``32768K``), 64 MiB where it does not."""
    found = [0]
    for file in folder.glob("index*/size"):
        try:
            text = file.read_text(encoding="ascii").strip()
            found.append(int(text.rstrip("KMG")) * UNITS.get(text[-1:], 1))
        except (OSError, ValueError):
            continue
    return max(found) or USUAL_CACHE
