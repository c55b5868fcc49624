"""The work of one process in the order of issue, read from a capture: what loops are found in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from bridge.importers import frames
from bridge.importers.capture import Capture
from bridge.importers.frames import Names, OfProcesses
from bridge.join.arrays import NONE, Flags, Ints, number_groups, order_by, run_edges, stable_order
from bridge.join.nesting import Nesting
from bridge.join.periods import Sequence

Key = tuple[int, int]  # report and process

# API calls that wait for work or query whether it is done.
WAITING_CALLS = re.compile(r"cu\w*(?:Synchronize|EventQuery|StreamQuery).*")
HOST_COPIES = re.compile(r".*(?:Host|HtoD|DtoH).*")  # copies to and from the host
NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True, eq=False)
class Issued:
    """The work of one process in the order of issue: times in ns, a row per activity, call or range.

    ``row`` are the rows of activities, ``range`` those of ranges, NONE of others. ``resumed`` is when the host had
    returned from all calls before, ``done`` from all before the next row. ``host`` is how often the
    host took part before the next row: it copied, waited or queried. ``text`` are codes into ``texts``.
    """

    sequence: Sequence
    row: Ints
    range: Ints
    issued: Ints
    resumed: Ints
    done: Ints
    host: Ints
    is_graph: Flags
    text: Ints
    texts: list[str]

    def __len__(self) -> int:
        return len(self.issued)

    def select(self, rows: Flags) -> Issued:
        """Return some rows, for example those of one thread."""
        names = ("row", "range", "issued", "resumed", "done", "host", "is_graph", "text")
        columns = {name: getattr(self, name)[rows] for name in names}
        return Issued(sequence=self.sequence.select(rows), texts=self.texts, **columns)

    def name(self, at: int) -> str:
        """Return the name of the work in a row."""
        return self.texts[self.text[at]] if self.text[at] != NONE else ""


def processes(table: OfProcesses) -> Iterator[tuple[Key, Ints]]:
    """Yield the processes of a table, with their rows."""
    report, process = table.report, table.process
    if len(table) and (report == report[0]).all() and (process == process[0]).all():
        yield (int(report[0]), int(process[0])), np.arange(len(table))
        return
    group, _ = number_groups(report, process)
    order = stable_order(group) if len(group) else group
    for a, b in pairwise(run_edges(group[order]).tolist()):
        yield (int(report[order[a]]), int(process[order[a]])), order[a:b]


def issued_work(
    capture: Capture, key: Key, rows: Ints, launch: Ints, duration: Ints
) -> tuple[Issued, Ints]:
    """Return the activities of a process by issue, and the thread that issued each, or NONE.

    ``rows`` are its activities, ``launch`` and ``duration`` are per activity of the capture. What has
    no launch where other work has one was issued before the capture began, and is left out.
    """
    table, launched = capture.activities, launch[rows] != NONE
    has_launches = bool(launched.any())
    rows = rows[launched] if has_launches else rows
    began = table.start
    issued = capture.launches.start[launch[rows]] if has_launches else began[rows]
    order = order_by(issued)
    rows, issued = rows[order], issued[order]
    ran = began[rows] + duration[rows]
    own = launch[rows]
    last = max(int(issued[-1]) + 1, int(ran.max()))  # later waits are not for this work
    waits = _waits(capture, key)
    # A call that ends before its start takes a nanosecond: no instance may end before it has issued its work.
    called = np.maximum(issued + 1, capture.launches.end[own]) if has_launches else ran
    called = np.append(NEVER, np.maximum.accumulate(called))
    waited = np.append(NEVER, np.maximum.accumulate(waits[1]))
    waited = waited[np.searchsorted(waits[0], np.append(issued, last))]
    done = np.maximum(called, waited)  # before each row, and behind the last one
    is_kernel = table.kind.among(frames.KERNEL, frames.GRAPH)[rows]
    copies = np.flatnonzero(table.name.matching(HOST_COPIES.fullmatch)[rows] & ~is_kernel)
    waited_for = np.searchsorted(issued, waits[0], side="right") - 1
    host = np.concatenate((copies, waited_for[waited_for >= 0]))
    resumed = np.where(done[:-1] == NEVER, issued, np.minimum(done[:-1], issued))
    text = table.name.codes[rows]
    work = Issued(
        sequence=Sequence(
            name=_dense(text + 1, table.device[rows]),
            weight=is_kernel.astype(np.int64),
            spent=np.where(is_kernel, duration[rows], 0),
            begins=np.append(True, (own[1:] != own[:-1]) | (own[1:] == NONE)),
            pause=issued - resumed if has_launches else issued * 0,
        ),
        row=rows,
        range=np.full(len(rows), NONE),
        issued=issued,
        resumed=resumed if has_launches else issued,
        done=done[1:] if has_launches else ran,
        host=np.bincount(host, minlength=len(rows)),
        is_graph=table.kind.among(frames.GRAPH)[rows],
        text=text,
        texts=table.name.texts,
    )
    thread = capture.launches.thread[own] if has_launches else np.full(len(own), NONE)
    return work, thread


def issued_ranges(capture: Capture, key: Key, nesting: Nesting) -> Issued | None:
    """Return the push/pop ranges of the thread of a process that has most; None without any."""
    ranges = capture.ranges
    nodes = np.flatnonzero(is_of_process(ranges, key)[nesting.range])
    if not len(nodes):
        return None
    group, first = number_groups(ranges.thread[nesting.range[nodes]])
    nodes = nodes[group == np.argmax(np.bincount(group, minlength=len(first)))]
    nodes = nodes[order_by(nesting.start[nodes])]
    rows = nesting.range[nodes]
    work = _host_events(nesting.start[nodes], nesting.end[nodes], ranges.name, rows)
    return replace(work, range=rows)


def issued_calls(capture: Capture, rows: Ints) -> Issued:
    """Return the API calls of a process in order, for a capture without ranges and activities."""
    calls = capture.launches
    rows = rows[order_by(calls.start[rows])]
    start, end = calls.start[rows], calls.end[rows]
    return _host_events(start, end, calls.name, rows)


def _host_events(start: Ints, end: Ints, names: Names, rows: Ints) -> Issued:
    """Return ranges or API calls as work; an instance begins where none was open before."""
    size, text = len(start), names.codes[rows]
    before = np.maximum.accumulate(np.append(start[:1], end)[:size])
    pause = np.maximum(start - before, 0)
    return Issued(
        sequence=Sequence(
            name=_dense(text + 1, np.zeros(size, np.int64)),
            weight=np.ones(size, np.int64),
            spent=np.zeros(size, np.int64),
            begins=start >= before,
            pause=pause,
        ),
        row=np.full(size, NONE),
        range=np.full(size, NONE),
        issued=start,
        resumed=start,
        done=np.maximum.accumulate(end),
        host=np.ones(size, np.int64),
        is_graph=np.zeros(size, bool),
        text=text,
        texts=names.texts,
    )


def _dense(code: Ints, part: Ints) -> Ints:
    """Return a dense number from 0 per pair of a code and a part, both not negative but for NONE."""
    parts = int(part.max(initial=0)) + 2
    pair = code * parts + part + 1
    used = np.bincount(pair) > 0
    names: Ints = (np.cumsum(used) - 1)[pair]
    return names


def _waits(capture: Capture, key: Key) -> tuple[Ints, Ints]:
    """Return start and end of the calls that wait for work, by start."""
    calls = capture.launches
    rows = np.flatnonzero(calls.name.matching(WAITING_CALLS.fullmatch) & is_of_process(calls, key))
    rows = rows[order_by(calls.start[rows])]
    return calls.start[rows], calls.end[rows]


def is_of_process(table: OfProcesses, key: Key) -> Flags:
    """Return which rows of a table are of a process."""
    report, process = key
    result: Flags = (table.report == report) & (table.process == process)
    return result
