"""Which times of an export are possible; a row with another one gets a time that is known to be invalid.

A time is possible if it is at most `MAX_DISTANCE_NS` before or after an instant of the capture, its origin. Times
count from the start of the session, or from the epoch (`nsys export --ts-normalize`). A damaged or forged file may
have any 64-bit number in their place, of which differences and sums leave 64 bits, and one of which would stretch
the run over centuries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from bridge.importers.arrays import MISSING, Ints
from bridge.importers.capture import MAX_DISTANCE_NS
from bridge.importers.nsys import schema
from bridge.importers.nsys.tables import FLAG
from bridge.importers.sqlite_columns import Columns, ints_of, take_rows
from bridge.importers.texts import Texts

Flags = NDArray[np.bool_]
EVENT_TABLES = ("launches", *schema.DEVICE_TABLES, "annotations")  # tables with a row per event
SAMPLES = 9  # starts of a table that the origin is taken from
HALF_RANGE = 1 << 62  # bounds of times stay within 64 bits


# -- The origin: an instant of the capture


def sample_places(rows: int) -> list[int]:
    """Return the places of the rows of a table whose starts `origin_of` is to be given."""
    return [number * (rows - 1) // (SAMPLES - 1) for number in range(SAMPLES)] if rows else []


def origin_of(starts: Iterable[Ints]) -> int:
    """Return the median of some starts of each event table, 0 without any: most of them are true."""
    every = np.sort(np.concatenate([np.empty(0, np.int64), *starts]))
    return int(every[(len(every) - 1) // 2]) if len(every) else 0


def origin_of_tables(read: Mapping[str, Columns]) -> int:
    """Return the origin of an export of which all tables were read."""
    tables = (ints_of(read[table], "start") for table in EVENT_TABLES)
    return origin_of(start[sample_places(len(start))] for start in tables)


def is_possible(time: Ints, origin: int) -> Flags:
    """Return which times a capture with this origin can have."""
    middle = min(max(origin, -HALF_RANGE), HALF_RANGE)
    low, high = middle - MAX_DISTANCE_NS, middle + MAX_DISTANCE_NS
    if time.min(initial=middle) >= low and time.max(initial=middle) <= high:
        return np.broadcast_to(np.True_, time.shape)  # takes no memory
    result: Flags = (time >= low) & (time <= high)
    return result


# -- Tables whose rows have possible times


def event_times(table: str, columns: Mapping[str, Ints | Texts], origin: int) -> dict[str, Ints]:
    """Return those columns of an event table that say when its rows were, with possible times.

    A row without a possible end ends 1 ns before its start, an invalid time. A row without a possible
    start is at the origin and invalid; a call does not own work then, and a mark has no known type. A
    range that never ended has `schema.NO_TIME` as end.
    """
    names = ("start", "end", "correlation", "type")
    ints = {n: column for n in names if isinstance(column := columns.get(n), np.ndarray)}
    start, end = ints["start"], ints["end"]
    has_start, has_end = is_possible(start, origin), is_possible(end, origin)
    if table == "launches":  # only the start of a call matters, but its end must not be far before
        ints["end"] = end = np.maximum(end, start - 1) if (end < start).any() else end
    if table == "annotations":
        has_end = has_end | (end == schema.NO_TIME)
    if has_start.all() and has_end.all():
        return ints
    start = np.where(has_start, start, origin)
    ints |= {"start": start, "end": np.where(has_start & has_end, end, start - 1)}
    if table == "launches":
        ints["correlation"] = np.where(has_start, ints["correlation"], MISSING)
    if table == "annotations":
        ints["type"] = np.where(impossible_marks(columns, origin), MISSING, ints["type"])
    return ints


def impossible_marks(columns: Mapping[str, Ints | Texts], origin: int) -> Flags:
    """Return which NVTX events are marks at impossible times."""
    types, start = columns["type"], columns["start"]
    assert isinstance(types, np.ndarray)
    assert isinstance(start, np.ndarray)
    result: Flags = np.isin(types & (FLAG - 1), schema.MARK) & ~is_possible(start, origin)
    return result


def with_possible_times(read: Mapping[str, Columns], origin: int) -> tuple[dict[str, Columns], int]:
    """Return the tables with possible times, and how many rows are left out.

    Events stay, see `event_times`; of other tables rows at impossible times are left out, but for messages
    of the profiler, which are put at the origin.
    """
    result, left_out = dict(read), 0
    for name, columns in read.items():
        if name in EVENT_TABLES:
            result[name] = {**columns, **event_times(name, columns, origin)}
            if name == "annotations":
                left_out += int(impossible_marks(columns, origin).sum())
        elif name == "diagnostics":
            time = ints_of(columns, "time")
            result[name] = {**columns, "time": np.where(is_possible(time, origin), time, origin)}
        elif not (mask := _rows_at_possible_times(columns, origin)).all():
            result[name] = take_rows(columns, np.flatnonzero(mask))
            left_out += int(np.count_nonzero(~mask))
    for name in ("overhead", "system_calls", "syncs"):  # of some calls the end was never recorded
        start, end = (ints_of(result[name], c) for c in ("start", "end"))
        result[name] |= {"end": np.where(end == schema.NO_TIME, start - 1, end)}
    return result, left_out


def _rows_at_possible_times(columns: Columns, origin: int) -> Flags:
    """Return the rows whose time, or start and end, are possible; a missing end is."""
    mask = np.ones(1, bool)
    for name in ("time", "start", "end"):
        column = columns.get(name)
        if isinstance(column, np.ndarray):
            mask = mask & (
                is_possible(column, origin) | ((name == "end") & (column == schema.NO_TIME))
            )
    return mask
