"""RAF's scope timer: time of named blocks of this process, without a profiler.

A block is also a range of the category `timer`. `bridge/annotate/include/nsight_bridge.h` has RAF_TIMED
for C++.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from time import perf_counter_ns

from bridge.annotate import nvtx_op

__all__ = ["DumpReport", "GetSamplesByName", "Reset", "timed"]

CATEGORY = "timer"
NS_PER_S = 1_000_000_000
_samples: dict[str, list[float]] = {}  # seconds
_adding = Lock()


@contextmanager
def timed(name: str, flush: bool = False) -> Iterator[None]:
    """Time a block, or each call of a function as a decorator; with ``flush`` print its time."""
    start = perf_counter_ns()
    try:
        with nvtx_op(name, category=CATEGORY):
            yield
    finally:
        seconds = (perf_counter_ns() - start) / NS_PER_S
        with _adding:
            _samples.setdefault(name, []).append(seconds)
        if flush:
            sys.stderr.write(f"Timed {name}: {seconds:g}s\n")


def dump_report() -> None:
    """Print a line per name to stderr: total, maximum and average in s, number of samples."""
    sys.stderr.write("Scope Timer Report:\n")
    for name, samples in list(_samples.items()):
        total = sum(samples)
        figures = f"(max {max(samples):g}s, avg {total / len(samples):g}s)"
        sys.stderr.write(f"{name}: {total:g}s {figures} from {len(samples)} samples\n")


def reset() -> None:
    """Delete all samples."""
    with _adding:
        _samples.clear()


def samples_by_name(name: str) -> list[float]:
    """Return the samples of a name in s, in order."""
    return list(_samples.get(name, ()))


# RAF's names
DumpReport, Reset, GetSamplesByName = dump_report, reset, samples_by_name
