"""A second witness of the join: CUPTI itself notes with each CUDA call which range was open on its thread.

The join finds the range of a call by time. Here every range gets a number, which is pushed as an external correlation
id, and CUPTI's notes are compared with the join by time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from itertools import count
from threading import get_native_id
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, NamedTuple

from bridge.annotate.emitter import Emitter
from bridge.annotate.label import Label

if TYPE_CHECKING:
    import numpy as np

    from bridge.capture.cupti.collector import Collector

CUSTOM_IDS = (
    5  # CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2: PyTorch's profiler uses CUSTOM0 and CUSTOM1
)


class WitnessEmitter:
    """Tells CUPTI the number of the range that is open on each thread, before it passes the range on.

    CUPTI then notes with each call which range was innermost, whatever the clocks say. The collector has the ids, for a
    forked child begins with none.
    """

    name = "recording"
    version = ""

    def __init__(self, emitter: Emitter, collector: Collector) -> None:
        self._emitter, self._collector = emitter, collector
        self._kind = ctypes.c_uint32(CUSTOM_IDS)
        functions = collector.library.functions
        self._push = functions.cuptiActivityPushExternalCorrelationId
        self._pop = functions.cuptiActivityPopExternalCorrelationId
        self._numbers = count(1)

    def push(self, label: Label, payload: float) -> None:
        number = next(self._numbers)
        self._emitter.push(label, payload)
        if self._collector.takes_ids:
            self._collector.witness.append((number, get_native_id(), monotonic_ns()))
            self._push(self._kind, ctypes.c_uint64(number))

    def pop(self, domain: str | None) -> None:
        if self._collector.takes_ids:
            last = ctypes.c_uint64()
            self._pop(self._kind, ctypes.byref(last))
        self._emitter.pop(domain)

    def mark(self, label: Label, payload: float) -> None:
        self._emitter.mark(label, payload)

    def start(self, label: Label, payload: float) -> Any:
        """Start a process range; CUPTI's ids are of one thread, so it gets none."""
        return self._emitter.start(label, payload)

    def end(self, label: Label, handle: Any) -> None:
        self._emitter.end(label, handle)


class Calls(NamedTuple):
    """CUDA calls: correlation id, thread, start in the time of the report."""

    correlation: np.ndarray
    thread: np.ndarray
    start: np.ndarray


class Ranges(NamedTuple):
    """Push/pop ranges: thread, start on the host, start and end in the time of the report."""

    thread: np.ndarray
    host_start: np.ndarray
    start: np.ndarray
    end: np.ndarray


class Comparison(NamedTuple):
    """How many calls CUPTI noted a range for, and for how many the join by time found the same one."""

    noted: int
    agreed: int


def compare(
    notes: np.ndarray, calls: Calls, ids: Mapping[str, np.ndarray], ranges: Ranges
) -> Comparison:
    """Compare the range of each call by time with the one that CUPTI noted.

    ``notes`` are records of external correlation, ``ids`` the columns `spool.WITNESS_FIELDS`. Notes of other ids are
    left out: those of ranges that were open when this process was forked are of its parent.
    """
    import numpy as np

    from bridge.join.nesting import Nesting

    order = np.lexsort((ranges.host_start, ranges.thread))
    by_thread = ranges.thread[order]
    place = np.full(len(ids["id"]), -1, np.int64)
    for thread in np.unique(ids["thread"]).tolist():
        first, last = np.searchsorted(by_thread, [thread, thread + 1])
        mask = ids["thread"] == thread
        starts = ranges.host_start[order[first:last]]
        place[mask] = np.searchsorted(starts, ids["start"][mask], side="right") + first - 1
    range_of_id = np.full(int(ids["id"].max(initial=0)) + 1, -1, np.int64)
    range_of_id[ids["id"]] = order[place]

    nesting = Nesting.of(ranges.thread, ranges.start, ranges.end)
    by_correlation = np.argsort(calls.correlation, kind="stable")
    notes = notes[np.isin(notes["id"], ids["id"])]
    sought = notes["correlation"].astype(np.int64)
    row = np.searchsorted(calls.correlation[by_correlation], sought)
    row = np.minimum(row, len(by_correlation) - 1)
    known = calls.correlation[by_correlation[row]] == sought
    call = by_correlation[row[known]]
    node = nesting.innermost(calls.thread[call], calls.start[call])
    by_time = np.where(node >= 0, nesting.range[node], -1)
    by_cupti = range_of_id[notes["id"][known].astype(np.int64)]
    return Comparison(len(call), int((by_time == by_cupti).sum()))
