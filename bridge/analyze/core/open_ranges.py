"""Find the ranges and phases that were open when an event on the host began.

It is a question about one instant, so a mask over all ranges answers it, and also finds ranges that
are no ops.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from bridge.importers import frames
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, order_by
from bridge.join.attributed import AttributedCapture
from bridge.join.options import DEFAULT_DOMAIN, is_library


@record
class Event:
    """A row of a frame; ``duration_ns`` is 0 where the end is before the start."""

    what: str
    row: int
    name: str
    start_ns: int
    end_ns: int
    duration_ns: int

    @classmethod
    def of(cls, what: str, table: frames.Ranges | frames.Launches, row: int) -> Event:
        """Return the event in a row of a frame with a name, a start and an end."""
        start, end = (int(table[c][row]) for c in ("start", "end"))
        return cls(
            what=what,
            row=row,
            name=table.name[row],
            start_ns=start,
            end_ns=end,
            duration_ns=max(0, end - start),
        )


@record
class Range:
    """An open range.

    ``text`` is the whole text of the range. ``op`` is '' where the range is no op, and ``note``
    says why.
    """

    row: int
    name: str
    text: str
    op: str
    note: str
    start_ns: int
    duration_ns: int
    ended: bool

    @classmethod
    def of(cls, attributed: AttributedCapture, row: int) -> Range:
        table, op = attributed.capture.ranges, int(attributed.op[row])
        start, end, text = (int(table[c][row]) for c in ("start", "end", "text"))
        return cls(
            row=row,
            name=table.name[row],
            text=attributed.capture.texts.take(np.array([text])).decode()[0],
            op="" if op == NONE else attributed.ops[op],
            note=_reason_for_no_op(table, row) if op == NONE else "",
            start_ns=start,
            duration_ns=max(0, end - start),
            ended=not bool(table.open[row]),
        )


@record
class Thread:
    """A thread of the host; a name is '' where none was recorded."""

    tid: int
    name: str
    pid: int
    process: str

    @classmethod
    def of(cls, attributed: AttributedCapture, report: int, thread: int) -> Thread:
        process = thread & ~frames.ID_BITS
        names = (
            _recorded_name(attributed.capture.threads, "thread", report, thread),
            _recorded_name(attributed.capture.processes, "process", report, process).rpartition(
                "/"
            )[2],
        )
        return cls(thread & frames.ID_BITS, names[0], frames.pid(process), names[1])


@record
class Place:
    """An event, its thread, and what was open when it began.

    ``ranges`` are those open on the thread, outermost first, ``phases`` those open in the process.
    """

    step: Event  # the name of the key in JSON
    thread: Thread
    ranges: tuple[Range, ...] = ()
    phases: tuple[Range, ...] = ()

    @property
    def op(self) -> str:
        """The innermost open op, '' if there is none."""
        return next((r.op for r in reversed(self.ranges) if r.op), "")


@record
class EventStart:
    """When an event on the host began, and its thread, process and file."""

    attributed: AttributedCapture
    event: Event
    report: int
    process: int
    thread: int

    @classmethod
    def of(cls, attributed: AttributedCapture, event: Event, table: frames.Records) -> EventStart:
        """Return the start of an event whose thread is in its row of a frame."""
        report, process, thread = (
            int(table[c][event.row]) for c in ("report", "process", "thread")
        )
        return cls(
            attributed=attributed, event=event, report=report, process=process, thread=thread
        )

    @property
    def place(self) -> Place:
        """The thread, ranges and phases at this start."""
        stack, phases = (
            tuple(Range.of(self.attributed, row) for row in rows.tolist())
            for rows in (self.stack, self.open[~self._pushed(self.open)])
        )
        thread = Thread.of(self.attributed, self.report, self.thread)
        return Place(self.event, thread, stack, phases)

    @cached_property
    def open(self) -> Ints:
        """Rows of the ranges that are open on the thread or in its process, outermost first."""
        start, end, instant = self.column("start"), self.column("end"), self.event.start_ns
        rows = np.flatnonzero(self.is_near & (start <= instant) & (instant < end))
        return rows[order_by(start[rows], -end[rows])]

    @property
    def is_near(self) -> Flags:
        """Whether each range is on the thread or in its process."""
        is_near = (self.column("process") == self.process) | (self.column("thread") == self.thread)
        result: Flags = is_near & (self.column("report") == self.report)
        return result

    @property
    def stack(self) -> Ints:
        """Rows of the push/pop ranges that are open on the thread, outermost first."""
        rows = self.open[self._pushed(self.open)]
        result: Ints = rows[self.column("thread")[rows] == self.thread]
        return result

    def column(self, name: str) -> Ints:
        result: Ints = self.attributed.capture.ranges[name]
        return result

    def _pushed(self, rows: Ints) -> Flags:
        return self.attributed.capture.ranges.kind.among(frames.PUSH_POP)[rows]


def _recorded_name(table: frames.Records, key: str, report: int, number: int) -> str:
    rows = np.flatnonzero((table[key] == number) & (table.report == report))
    return str(table["name"][rows[0]]) if len(rows) else ""


def _reason_for_no_op(ranges: frames.Ranges, row: int) -> str:
    if ranges.kind[row] == frames.START_END:
        return "a phase"
    report, process, domain = ranges.report, ranges.process, ranges.domain
    is_same_domain = (report == report[row]) & (process == process[row]) & (domain == domain[row])
    declared = ranges.domain_name[row]
    name = declared or (f"#{domain[row]}" if domain[row] else DEFAULT_DOMAIN)
    library = domain[row] and is_library(declared, ranges.name[is_same_domain].used)
    return f"domain {name} is a library's" if library else f"domain {name} is left out"
