"""Metrics of kernels, and what rules say of them: tables beside the frames of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import NamedTuple

import numpy as np
import pandas as pd

from importers import frames
from importers.frames import KERNEL, MISSING
from importers.texts import Ints

# -- What a file of Nsight Compute says of one kernel, before it becomes frames


DEFAULT_DOMAIN = "<default domain>"
DURATION = ("gpu__time_duration.sum", "gpu__time_duration.avg", "Duration")
LARGEST = 1 << 62  # what is beyond is damaged: sums stay within 64 bits
LONGEST = 1 << 50  # ns, 13 days of one kernel: the times of thousands add up within 64 bits
NO_EXTENT = (MISSING, MISSING, MISSING)


class Open(NamedTuple):
    """An NVTX range that was open when a kernel was launched; ``id`` only of start/end ranges."""

    domain: str
    name: str
    payload: int = MISSING
    id: str = ""


class Value(NamedTuple):
    """A metric in its base unit: a number, NaN for a text; of an integer that no float holds also the digits."""

    number: float
    unit: str
    text: str = ""


class Rule(NamedTuple):
    """What a rule of Nsight Compute says; ``speedup`` is its estimate in per cent, -1 for none.

    ``kind`` is OPT (what may help), WRN or INF, ``scope`` global (of the kernel's time) or local (of a unit).
    """

    section: str
    rule: str
    kind: str
    text: str
    scope: str = ""
    speedup: float = -1.0


@dataclass
class Kernel:
    """A kernel as profiled: ``pushed`` are the push/pop ranges outermost first, ``started`` start/end ranges."""

    name: str
    full_name: str
    mangled: str = ""
    kind: str = KERNEL
    process: int = 0
    program: str = ""
    thread: int = 1
    device: int = MISSING
    context: int = MISSING
    stream: int = MISSING
    grid: tuple[int, ...] = NO_EXTENT
    block: tuple[int, ...] = NO_EXTENT
    pushed: tuple[Open, ...] = ()
    started: tuple[Open, ...] = ()
    metrics: dict[str, Value] = field(default_factory=dict)
    rules: list[Rule] = field(default_factory=list)

    def whole(self, *names: str) -> int:
        """Return the first of these metrics that there is, as an integer; -1 for none."""
        for name in names:
            value = self.metrics.get(name)
            if value is not None and not isnan(value.number):
                return round(value.number) if abs(value.number) < LARGEST else MISSING
        return MISSING

    @property
    def duration(self) -> int:
        """The time on the GPU in ns, -1 where it was not collected, or cannot be."""
        found = self.whole(*DURATION)
        return found if 0 <= found < LONGEST else MISSING


# -- Metrics of kernels, and what rules say of them: tables beside the frames of a report


RULES = ("section", "rule", "kind", "text", "scope")


def _nothing() -> Ints:
    return np.empty(0, np.int64)


@dataclass(frozen=True)
class Metrics:
    """What was measured of kernels: a row of ``table`` per metric of one, of ``rules`` per rule that says something.

    table: ``kernel`` (its number), ``metric``, ``unit`` (base units: ns, byte, hz, byte/s, % …), ``value``
    (float64, NaN for a text), ``text`` ('' for a number that a float holds). rules: ``kernel``, ``section``,
    ``rule``, ``kind`` (OPT, WRN, INF), ``text``, ``scope`` (global, local, ''), ``speedup`` (per cent, -1 for none).
    ``of`` is the number of the measured kernel of each activity, -1 for none; ``sure`` a code for how
    sure that is, where it had to be found out. Both are empty where nothing was measured.
    ``source`` names the reports that the metrics are of, where these are not the report's own.
    """

    table: pd.DataFrame = field(default_factory=lambda: _values(()))
    rules: pd.DataFrame = field(default_factory=lambda: _rules(()))
    of: Ints = field(default_factory=_nothing)
    sure: Ints = field(default_factory=_nothing)
    source: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.table)

    @property
    def kernels(self) -> int:
        """How many kernels were measured, whether or not an activity is one of them, or any metric is of it."""
        tables = (self.table, self.rules)
        last = max(int(frames.ints(table, "kernel").max(initial=MISSING)) for table in tables)
        return max(last, int(self.of.max(initial=MISSING))) + 1


def of(kernels: Sequence[Kernel]) -> Metrics:
    """Return what was measured of kernels, whose places are the rows of their activities."""
    return Metrics(_values(kernels), _rules(kernels), np.arange(len(kernels)))


def _values(kernels: Sequence[Kernel]) -> pd.DataFrame:
    rows = [
        (n, name, *value) for n, one in enumerate(kernels) for name, value in one.metrics.items()
    ]
    kernel, name, number, unit, text = zip(*rows, strict=True) if rows else ((),) * 5
    columns = {
        "kernel": np.array(kernel, np.int64),
        "metric": frames.named(name),
        "unit": frames.named(unit),
        "value": np.array(number, np.float64),
        "text": frames.named(text),
    }
    return pd.DataFrame(columns)


def _rules(kernels: Sequence[Kernel]) -> pd.DataFrame:
    said = [(n, rule) for n, one in enumerate(kernels) for rule in one.rules]
    columns = {
        "kernel": np.array([n for n, _ in said], np.int64),
        **{c: frames.named([getattr(rule, c) for _, rule in said]) for c in RULES},
        "speedup": np.array([rule.speedup for _, rule in said], np.float64),
    }
    return pd.DataFrame(columns)


def concat(parts: Sequence[Metrics], activities: Sequence[int]) -> Metrics:
    """Put what was measured of several reports together, of which each has so many activities."""
    if not any(len(part.of) for part in parts):
        return Metrics()
    first = np.cumsum([0, *(part.kernels for part in parts)]).tolist()
    values, rules = (
        frames.concat(
            [
                table.assign(kernel=frames.ints(table, "kernel") + at)
                for table, at in zip(tables, first, strict=False)
            ]
        )
        for tables in ([part.table for part in parts], [part.rules for part in parts])
    )
    return Metrics(
        values,
        rules,
        np.concatenate(
            [_moved(part.of, at, n) for part, at, n in zip(parts, first, activities, strict=False)]
        ),
    )


def _moved(numbers: Ints, by: int, rows: int) -> Ints:
    if not len(numbers):
        return np.full(rows, MISSING)
    return np.where(numbers == MISSING, MISSING, numbers + by)
