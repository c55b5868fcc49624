"""Events of a trace of PyTorch's profiler: rows with the same fields are columns, their times integers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import numpy as np
import pandas as pd

from importers import frames
from importers.frames import MISSING
from importers.texts import Ints

# -- Numbers of JSON as columns: microseconds to whole nanoseconds, exactly, and integers


NS, DECIMALS = 1_000, 3  # in a µs
LATEST = 1 << 62  # ns: sums and differences of times stay within 64 bits
LONGEST = 40  # characters: no writer needs more for a number
UNKNOWN = -(1 << 63)  # stands for what is no time


def nanoseconds(values: Sequence[Any]) -> Ints:
    """Return microseconds as nanoseconds, halves away from 0; `UNKNOWN` for what is no time of 64 bits."""
    return np.array([_nanoseconds(value) for value in values], np.int64)


def integers(values: Sequence[Any]) -> Ints:
    """Return integers, and texts of them, -1 for anything else and for what is beyond 62 bits."""
    return np.array([_integer(value) for value in values], np.int64)


def _nanoseconds(value: Any) -> int:
    if type(value) is int:
        return value * NS if -LATEST < value * NS < LATEST else UNKNOWN
    if type(value) is not str or len(value) > LONGEST:
        return UNKNOWN
    whole, _, part = value.partition(".")
    if part.isdecimal() and len(part) <= DECIMALS and whole.isdecimal():
        found = int(whole + part) * 10 ** (DECIMALS - len(part))
        return found if found < LATEST else UNKNOWN
    return _exactly(value)


def _exactly(text: str) -> int:
    """Read what is written otherwise: a minus, more decimals, an exponent."""
    try:
        found = Decimal(text) * NS
        fits = found.is_finite() and abs(found) < LATEST
        return int(found.to_integral_value(ROUND_HALF_UP)) if fits else UNKNOWN
    except ArithmeticError:
        return UNKNOWN


def _integer(value: Any) -> int:
    if type(value) is str and len(value) <= LONGEST and value.isdecimal():
        value = int(value)
    return value if type(value) is int and -LATEST < value < LATEST else MISSING


# -- Texts that can be written anywhere: what no UTF-8 can be made of, and NUL, spelled out


def clean(text: str) -> str:
    r"""Return a text as UTF-8 can have it: a lone surrogate as ``\udc80``, NUL as ``\0``."""
    plain = text if text.isascii() else text.encode(errors="backslashreplace").decode()
    return plain.replace("\0", "\\0")


def named(texts: Sequence[str]) -> pd.Categorical:
    """Return a column of names from a text per row, each distinct one cleaned."""
    distinct = {text: clean(text) for text in dict.fromkeys(texts)}
    return frames.named([distinct[text] for text in texts])


# -- The events of a trace, sorted by what they are and checked: what makes no sense is left out and counted


SPAN, META = "X", "M"  # phases of Chrome's format that are read
RANGES, CALLS, KERNELS, COPIES, FILLS, SYNCS, RECORDS, MEMORY = SORTS = (
    "ranges", "calls", "kernels", "copies", "fills", "syncs", "records", "memory"
)  # fmt: skip
INSTANT, ALLOCATOR = "i", "[memory]"  # phase and name of what an allocator gave or took back
OP, ANNOTATION, PYTHON = "cpu_op", "user_annotation", "python_function"
SORT_OF = {
    OP: RANGES,
    "Operator": RANGES,
    ANNOTATION: RANGES,
    PYTHON: RANGES,
    "cuda_runtime": CALLS,
    "cuda_driver": CALLS,
    "Runtime": CALLS,
    "kernel": KERNELS,
    "Kernel": KERNELS,
    "gpu_memcpy": COPIES,
    "Memcpy": COPIES,
    "gpu_memset": FILLS,
    "Memset": FILLS,
    "cuda_sync": SYNCS,
    "cuda_event": RECORDS,
}
OWN = frozenset(name for name in SORT_OF if "_" in name)  # which no other writer has
# The projection of annotations to the GPU can be made of the rest; the profiler's own span and costs are no work.
DERIVED = frozenset(["gpu_user_annotation", "Trace", "overhead"])


@dataclass(frozen=True)
class Events:
    """Events of one sort, in the order of the file, with their begin and end in ns.

    ``said`` are their arguments, ``where`` pid and tid as written.
    """

    category: Sequence[str]
    name: Sequence[str]
    where: Sequence[tuple[Any, Any]]
    said: Sequence[dict[str, Any]]
    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.name)

    def column(self, key: str) -> list[Any]:
        """Return an argument as written, None where there is none."""
        return [said.get(key) for said in self.said]

    def ints(self, key: str) -> Ints:
        """Return an argument that is an integer, -1 where there is none."""
        return integers(self.column(key))


@dataclass(frozen=True)
class Sorted:
    """All events of a trace by their sort, and what names processes and threads.

    ``broken`` counts what makes no sense, ``unknown`` the categories that are not read.
    """

    by: dict[str, Events]
    meta: Sequence[dict[str, Any]]
    broken: int
    unknown: Counter[str]

    @classmethod
    def of(cls, events: Sequence[Any]) -> Sorted:
        """Sort events: one turn over them, all else is by columns."""
        found: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for event in events:
            found[_sort(event)].append(event)
        by, broken = {}, len(found[""])
        for sort in SORTS:
            by[sort], left_out = _checked(found[sort], lasting=sort != MEMORY)
            broken += left_out
        return cls(by, found[META], broken, Counter(e["cat"] for e in found[SPAN]))

    @property
    def zero(self) -> int:
        """A µs before the first event began, in ns: what ends at 0 stands for a profiler that lost its end."""
        lasting = (e for sort, e in self.by.items() if sort != MEMORY and len(e))
        return min((int(e.start.min()) for e in lasting), default=0) - NS


def is_ours(events: Sequence[Any]) -> bool:
    """Tell whether any event is of a category that only PyTorch's profiler writes."""
    return any(type(e) is dict and type(e.get("cat")) is str and e["cat"] in OWN for e in events)


def _sort(event: Any) -> str:
    """Return what an event is: a sort, `META`, `SPAN` for a span of another category, "" for what is none.

    What is left out without a word comes under "other": arrows, instants, counters, what is derived.
    """
    if type(event) is not dict:
        return ""
    phase, category = event.get("ph"), event.get("cat")
    if phase == META:
        return META
    if phase == INSTANT and event.get("name") == ALLOCATOR:
        return MEMORY
    if phase != SPAN:
        return "other"
    if type(category) is not str:
        return ""
    return "other" if category in DERIVED else SORT_OF.get(category, SPAN)


def _checked(events: list[dict[str, Any]], *, lasting: bool) -> tuple[Events, int]:
    """Return the events that have a name, a begin and, if they last, a length, and how many have not."""
    start = nanoseconds([event.get("ts") for event in events])
    length = nanoseconds([event.get("dur") if lasting else 0 for event in events])
    good = np.array([type(event.get("name")) is str for event in events], bool)
    good &= (start != UNKNOWN) & (length >= 0)
    rows = np.flatnonzero(good)
    kept = events if len(rows) == len(events) else [events[row] for row in rows.tolist()]
    start, length = start[rows], length[rows]
    columns = (
        [event.get("cat", "") for event in kept],
        [event["name"] for event in kept],
        [(event.get("pid"), event.get("tid")) for event in kept],
        [args if type(args := event.get("args")) is dict else {} for event in kept],
    )
    return Events(*columns, start, start + length), len(events) - len(kept)
