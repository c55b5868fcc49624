"""Which times of an export are possible; a row with another one gets a time that is known to be invalid.

Times count in ns from the start of the session, and none is more than `MAX_CAPTURE_NS` before or after it. A
damaged or forged file may have any 64-bit number in their place, of which differences and sums leave 64 bits, and
one of which would stretch the run over centuries.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from importers.capture import MAX_CAPTURE_NS
from importers.frames import MISSING
from importers.nsys import schema
from importers.nsys.tables import FLAG
from importers.sqlite_columns import Columns, ints_of, take_rows
from importers.texts import Ints, Texts

Flags = NDArray[np.bool_]


def _are_possible(*columns: Ints) -> bool:
    """Return whether all times of some columns are possible."""
    return all(
        column.min(initial=0) >= -MAX_CAPTURE_NS and column.max(initial=0) <= MAX_CAPTURE_NS
        for column in columns
    )


def is_possible(time: Ints) -> Flags:
    """Return which times a capture can have."""
    return (time >= -MAX_CAPTURE_NS) & (time <= MAX_CAPTURE_NS)


def with_valid_times(columns: dict[str, Ints], *, open_end: int | None = None) -> dict[str, Ints]:
    """Return the columns with possible times in ``start`` and ``end``.

    A row without a possible end ends 1 ns before its start, an invalid time; ``open_end`` stays. A row
    without a possible start gets the first start of the others, and an invalid end.
    """
    start, end = columns["start"], columns["end"]
    if _are_possible(start, end):
        return columns
    has_start, has_end = is_possible(start), is_possible(end)
    if open_end is not None:
        has_end |= end == open_end
    first = start[has_start].min() if has_start.any() else np.int64(0)
    start = np.where(has_start, start, first)
    return columns | {"start": start, "end": np.where(has_start & has_end, end, start - 1)}


def calls_with_valid_times(columns: dict[str, Ints]) -> dict[str, Ints]:
    """Return the columns of API calls with possible times; a call without a possible start owns no work."""
    start = columns["start"]
    valid = with_valid_times(columns)
    if valid["start"] is start:
        return valid
    return valid | {"correlation": np.where(is_possible(start), valid["correlation"], MISSING)}


def annotations_with_valid_times(columns: dict[str, Ints]) -> dict[str, Ints]:
    """Return the columns of NVTX events with possible times; a mark without one gets no known type.

    The end of a range that never ended is `schema.NO_TIME`.
    """
    start, types = columns["start"], columns["type"]
    valid = with_valid_times(columns, open_end=schema.NO_TIME)
    if valid["start"] is start:
        return valid
    is_mark = np.isin(types & (FLAG - 1), schema.MARK)
    return valid | {"type": np.where(is_mark & ~is_possible(start), MISSING, types)}


VALID = {"launches": calls_with_valid_times, "annotations": annotations_with_valid_times}
EVENT_COLUMNS = ("start", "end", "correlation", "type")


def event_times(table: str, columns: Mapping[str, Ints | Texts]) -> dict[str, Ints]:
    """Return those columns of calls, activities or NVTX events that say when they were, with possible times."""
    ints = {
        name: column
        for name in EVENT_COLUMNS
        if isinstance(column := columns.get(name), np.ndarray)
    }
    return VALID.get(table, with_valid_times)(ints)


def without_impossible_times(read: Mapping[str, Columns]) -> tuple[dict[str, Columns], int]:
    """Return the tables without the rows whose only time is impossible, and the number of these rows."""
    result, left_out = dict(read), 0
    for name, columns in read.items():
        time = columns.get("time")
        if isinstance(time, np.ndarray) and not _are_possible(time):
            rows = np.flatnonzero(is_possible(time))
            left_out += len(time) - len(rows)
            result[name] = take_rows(columns, rows)
        elif name == "annotations":
            is_mark = np.isin(ints_of(columns, "type"), schema.MARK)
            left_out += int((is_mark & ~is_possible(ints_of(columns, "start"))).sum())
    return result, left_out
