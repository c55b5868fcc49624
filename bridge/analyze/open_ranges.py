"""What was open when something began on the host: the ranges of its thread, the phases of its process.

A question about one moment: a mask over the ranges answers it as well as the nesting, and also shows
what is no op.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from bridge.join.arrays import NONE, Flags, Ints, by
from bridge.join.attributed import Attributed
from bridge.join.domains import DEFAULT, is_library
from importers import frames

ID_BITS = 0xFFFFFF


@dataclass(frozen=True)
class Step:
    """A row of a frame; ``duration_ns`` is 0 where the end makes no sense."""

    what: str
    row: int
    name: str
    start_ns: int
    end_ns: int
    duration_ns: int

    @classmethod
    def of(cls, what: str, table: pd.DataFrame, row: int) -> Step:
        """Take a row of a frame that has a name, a start and an end."""
        start, end = (int(table[c].iloc[row]) for c in ("start", "end"))
        return cls(what, row, str(table["name"].iloc[row]), start, end, max(0, end - start))


@dataclass(frozen=True)
class Range:
    """An open range; ``text`` is its whole text, ``op`` is '' where it is none, and ``note`` says why."""

    row: int
    name: str
    text: str
    op: str
    note: str
    start_ns: int
    duration_ns: int
    ended: bool

    @classmethod
    def of(cls, joined: Attributed, row: int) -> Range:
        """Take a row of the ranges."""
        table, op = joined.report.ranges, int(joined.op[row])
        start, end, text = (int(table[c].iloc[row]) for c in ("start", "end", "text"))
        return cls(
            row=row,
            name=str(table["name"].iloc[row]),
            text=joined.report.texts.take(np.array([text])).decode()[0],
            op="" if op == NONE else joined.ops[op],
            note=_no_op(table, row) if op == NONE else "",
            start_ns=start,
            duration_ns=max(0, end - start),
            ended=not bool(table["open"].iloc[row]),
        )


@dataclass(frozen=True)
class Thread:
    """A thread of the host; a name is '' where none was recorded."""

    tid: int
    name: str
    pid: int
    process: str

    @classmethod
    def of(cls, joined: Attributed, report: int, thread: int) -> Thread:
        """Name a thread of a report."""
        process = thread & ~ID_BITS
        names = (
            _name(joined.report.threads, "thread", report, thread),
            _name(joined.report.processes, "process", report, process).rpartition("/")[2],
        )
        return cls(thread & ID_BITS, names[0], (process >> 24) & ID_BITS, names[1])


@dataclass(frozen=True)
class Place:
    """Where a step was made: its thread, the ranges open there, outermost first, and the phases open then."""

    step: Step
    thread: Thread
    ranges: tuple[Range, ...] = ()
    phases: tuple[Range, ...] = ()

    @property
    def op(self) -> str:
        """The innermost op open there, '' if there is none."""
        return next((r.op for r in reversed(self.ranges) if r.op), "")


@dataclass(frozen=True)
class Moment:
    """When a step on the host began, and on which thread of which process and report."""

    joined: Attributed
    step: Step
    report: int
    process: int
    thread: int

    @classmethod
    def of(cls, joined: Attributed, step: Step, table: pd.DataFrame) -> Moment:
        """Take the step's thread from its row of a frame."""
        report, process, thread = (
            int(table[c].iloc[step.row]) for c in ("report", "process", "thread")
        )
        return cls(joined, step, report, process, thread)

    @property
    def place(self) -> Place:
        """What is told of it."""
        stack, phases = (
            tuple(Range.of(self.joined, row) for row in rows.tolist())
            for rows in (self.stack, self.open[~self._pushed(self.open)])
        )
        thread = Thread.of(self.joined, self.report, self.thread)
        return Place(self.step, thread, stack, phases)

    @cached_property
    def open(self) -> Ints:
        """Rows of the ranges open on the thread or in its process, outermost first."""
        start, end, at = self.column("start"), self.column("end"), self.step.start_ns
        rows = np.flatnonzero(self.here & (start <= at) & (at < end))
        return rows[by(start[rows], -end[rows])]

    @property
    def here(self) -> Flags:
        """Which ranges are on the thread or in its process."""
        near = (self.column("process") == self.process) | (self.column("thread") == self.thread)
        found: Flags = near & (self.column("report") == self.report)
        return found

    @property
    def stack(self) -> Ints:
        """Rows of the push/pop ranges open on the thread, outermost first."""
        rows = self.open[self._pushed(self.open)]
        found: Ints = rows[self.column("thread")[rows] == self.thread]
        return found

    def column(self, name: str) -> Ints:
        """Return a column of the ranges."""
        return frames.ints(self.joined.report.ranges, name)

    def _pushed(self, rows: Ints) -> Flags:
        return frames.is_kind(self.joined.report.ranges, frames.PUSH_POP)[rows]


def _name(table: pd.DataFrame, key: str, report: int, number: int) -> str:
    found = table.loc[(table[key] == number) & (table["report"] == report), "name"]
    return str(found.iloc[0]) if len(found) else ""


def _no_op(ranges: pd.DataFrame, row: int) -> str:
    """Say why a range is no op."""
    if ranges["kind"].iloc[row] == frames.START_END:
        return "a phase"
    report, process, domain = (frames.ints(ranges, c) for c in ("report", "process", "domain"))
    same = (report == report[row]) & (process == process[row]) & (domain == domain[row])
    declared = str(ranges["domain_name"].iloc[row])
    name = declared or (f"#{domain[row]}" if domain[row] else DEFAULT)
    library = domain[row] and is_library(declared, ranges["name"][same].unique())
    return f"domain {name} is a library's" if library else f"domain {name} is left out"
