"""One line's events as columns, each checked as it is read.

The invariant: what `batch` returns is int64 and means something; anything else raises ValueError or TypeError.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from importers.frames import MISSING, RANGE_KINDS
from importers.texts import Ints

LABEL, KIND, THREAD, START, END = range(5)  # columns of ranges, the payloads apart
EVENTS = {"calls": 2, "ranges": 6, "marks": 4, "open": 6}  # columns of each
PLAIN = {"calls": 2, "ranges": 5, "marks": 3, "open": 5}  # those that are no payloads
PROCESS_BITS = 24  # of threads, below the process, as Nsight Systems numbers them
CALL_BITS = 48
LATEST = 1 << 62  # ns: sums of times stay within 64 bits

Label = tuple[str, str | None, str | None, int | None]  # name, domain, category, colour


@dataclass
class Payloads:
    """The payload of each row: integers, and the texts of those that are none, -1 there."""

    ints: Ints
    others: Mapping[int, str]


@dataclass
class Batch:
    """The events of one line."""

    columns: list[Ints]
    payloads: Payloads


def batch(kind: str, value: Sequence[Sequence[Any]]) -> Batch:
    """Read the events of a line; raises ValueError or TypeError for what makes no sense."""
    if len(value) != EVENTS[kind] or len({len(column) for column in value}) != 1:
        raise ValueError(kind)
    columns = [ints(column) for column in value[: PLAIN[kind]]]
    CHECKS[kind](columns)
    return Batch(columns, payloads(value[PLAIN[kind]] if PLAIN[kind] < EVENTS[kind] else ()))


def label(name: Any, domain: Any, category: Any, color: Any) -> Label:
    """Read a label."""
    texts = [one for one in (domain, category) if one is not None]
    if not all(isinstance(one, str) for one in (name, *texts)):
        raise TypeError("a text")
    if color is not None:
        within(ints([color]), 1 << 32)
    return name, domain, category, color


def ints(column: Sequence[Any]) -> Ints:
    """Read integers; raises TypeError for anything else."""
    found = np.array(column)
    if found.ndim != 1 or (found.size and found.dtype.kind != "i"):
        raise TypeError("an integer of 64 bits")
    return found.astype(np.int64, copy=False)


def within(column: Ints, end: int, first: int = 0) -> None:
    """Raise ValueError for what is not in [first, end)."""
    if len(column) and not (first <= column.min() and column.max() < end):
        raise ValueError("out of range")


def payloads(values: Sequence[Any]) -> Payloads:
    """Take the integers; a float is a text, and there are few."""
    found = np.array(values) if all(type(v) is int for v in values) else None
    if found is not None and (found.dtype.kind == "i" or not len(values)):
        return Payloads(found.astype(np.int64, copy=False), {})
    others = {row: _text(v) for row, v in enumerate(values) if type(v) is not int}
    plain = [MISSING if row in others else value for row, value in enumerate(values)]
    return Payloads(np.array(plain, np.int64), others)


def _text(value: Any) -> str:
    """Return a payload as text; the names of what is no number are said as text already."""
    return value if isinstance(value, str) else json.dumps(value)


def _calls(columns: Sequence[Ints]) -> None:
    within(columns[0], 1 << CALL_BITS)


def _ranges(columns: Sequence[Ints]) -> None:
    _, kind, thread, start, end = columns
    within(kind, len(RANGE_KINDS))
    within(thread, 1 << PROCESS_BITS)
    within(start, LATEST)
    ended = end != MISSING
    within(end[ended], LATEST)
    if (end < start)[ended].any():
        raise ValueError("an end before its start")


def _marks(columns: Sequence[Ints]) -> None:
    _, thread, time = columns
    within(thread, 1 << PROCESS_BITS)
    within(time, LATEST)


CHECKS = {"calls": _calls, "ranges": _ranges, "marks": _marks, "open": _ranges}
