"""Which op launched the device work of a trace, as far as the producer tells.

A producer tells it by a correlation id that an API call and its work share, by an arrow from the
call of an op to its work, or by naming the op in an argument of the work. What is told in none of
these ways has no launch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bridge.importers import frames
from bridge.importers.arrays import MISSING, Ints
from bridge.importers.chrome.events import (
    Points,
    Slices,
    TraceEvents,
    arrow_code,
    of_categories,
    slice_around,
)
from bridge.importers.chrome.producers import CALL, DEVICE, OP, Producer
from bridge.importers.kineto.events import clean_names, integers
from bridge.importers.records import record

Place = Callable[[Sequence[tuple[Any, Any]]], tuple[Ints, Ints]]  # pids and tids: thread, process


@dataclass(frozen=True)
class Launches:
    """The frame `launches`, and the correlation id of each activity, -1 for none."""

    frame: frames.Launches
    of_device: Ints


@record
class _Part:
    """Launches of one kind; ``of_device`` has their correlation ids per activity."""

    start: Ints
    end: Ints
    where: Sequence[tuple[Any, Any]]
    correlation: Ints
    name: Sequence[str]
    of_device: Ints


def launches_of(
    trace: TraceEvents, producer: Producer, parts: Mapping[str, Slices], place: Place
) -> Launches:
    """Return the launches of a trace; ``parts`` are its slices by what they are."""
    calls, work = parts[CALL], parts[DEVICE]
    kinds = [_calls(calls, work, producer.correlation)]
    if producer.flows:
        kinds += [_arrows(trace.flow_starts, trace.flow_ends, work, producer.flows)]
    if producer.link:
        kinds += [_linked(parts[OP], work, producer.link)]
    of_device = np.full(len(work), MISSING, np.int64)
    columns: dict[str, list[Any]] = {
        c: [] for c in ("start", "end", "correlation", "name", "where")
    }
    first = 0  # ids of different kinds differ
    for kind in kinds:
        own = np.where(kind.of_device >= 0, kind.of_device + first, MISSING)
        of_device = np.where(of_device == MISSING, own, of_device)
        columns["correlation"].append(
            np.where(kind.correlation >= 0, kind.correlation + first, MISSING)
        )
        columns["start"].append(kind.start)
        columns["end"].append(kind.end)
        columns["name"] += kind.name
        columns["where"] += kind.where
        first += int(max(kind.correlation.max(initial=0), kind.of_device.max(initial=0))) + 1
    thread, process = place(columns["where"])
    numbers = {c: np.concatenate(columns[c]) for c in ("start", "end", "correlation")}
    table: dict[str, Any] = {
        **numbers,
        "thread": thread,
        "process": process,
        "name": clean_names(columns["name"]),
    }
    return Launches(frames.Launches(table), of_device)


def _calls(calls: Slices, work: Slices, argument: str) -> _Part:
    """Return the API calls; the argument gives the id that they share with their work."""
    ids, of_device = (integers([args.get(argument) for args in s.args]) for s in (calls, work))
    return _Part(
        start=calls.start,
        end=calls.end,
        where=calls.where,
        correlation=ids,
        name=calls.name,
        of_device=of_device,
    )


def _arrows(starts: Points, ends: Points, work: Slices, categories: Sequence[str]) -> _Part:
    """Return a launch without length at the begin of each arrow; its end stands in the work."""
    ids: dict[Any, int] = {}
    starts, ends = of_categories(starts, categories), of_categories(ends, categories)
    start_ids, end_ids = arrow_code(starts, ids), arrow_code(ends, ids)
    row = slice_around(ends, work)
    of_device = np.full(len(work), MISSING, np.int64)
    of_device[row[row >= 0]] = end_ids[row >= 0]
    names = [str(event.get("cat")) for event in starts.events]
    return _Part(
        start=starts.time,
        end=starts.time,
        where=starts.where,
        correlation=start_ids,
        name=names,
        of_device=of_device,
    )


def _linked(ops: Slices, work: Slices, argument: str) -> _Part:
    """Return a launch per activity that names an op: the last such op that began before it.

    If all began later, by clocks that differ a little, it is the first of them.
    """
    numbers: dict[str, int] = {}
    of_op = _codes(ops, argument, numbers)
    of_work = _codes(work, argument, {**numbers})
    order = np.lexsort((ops.start, of_op))
    sorted_ops = of_op[order]
    begin, end = (np.searchsorted(sorted_ops, of_work, side=side) for side in ("left", "right"))
    earlier = _count_earlier(of_op, ops.start, of_work, work.start)
    known = np.flatnonzero((end > begin) & (of_work >= 0))
    op = order[begin[known] + np.maximum(earlier[known] - 1, 0)]
    ids = np.arange(len(known))
    of_device = np.full(len(work), MISSING, np.int64)
    of_device[known] = ids
    where = [ops.where[row] for row in op.tolist()]
    return _Part(
        start=ops.start[op],
        end=ops.start[op],
        where=where,
        correlation=ids,
        name=["named by the work"] * len(ids),
        of_device=of_device,
    )


def _codes(slices: Slices, argument: str, numbers: dict[str, int]) -> Ints:
    values = [args.get(argument) for args in slices.args]
    return np.array(
        [numbers.setdefault(v, len(numbers)) if type(v) is str and v else MISSING for v in values],
        np.int64,
    )


def _count_earlier(keys: Ints, starts: Ints, of: Ints, times: Ints) -> Ints:
    """Return how many rows of ``keys`` have the key and a start up to the time, for each of ``of``."""
    key = np.concatenate((keys, of))
    time = np.concatenate((starts, times))
    asks = np.arange(len(key)) >= len(keys)
    order = np.lexsort((asks, time, key))
    rows = np.cumsum(~asks[order])
    first = np.searchsorted(key[order], key[order], side="left")
    before: Ints = rows - np.concatenate(([0], rows))[first]
    result = np.empty(len(key), np.int64)
    result[order] = before
    return result[len(keys) :]
