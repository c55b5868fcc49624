"""What may explain that an activity has no op, and what to change in the capture or the program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bridge.analyze.moment import Moment, Thread
from bridge.join.attributed import Attributed
from bridge.join.attribution import ATTRIBUTED, INVALID_TIME
from bridge.join.order import NONE, Ints
from importers import frames

MOST = 3  # threads that are named; the rest is counted
UNIFIED = range(11, 14)  # kinds of copies that are migrations of unified memory
ANNOTATE = '@nvtx_op, or with nvtx_op("…") around it'
RECORD = "nsys profile --trace=cuda,nvtx"
BEFORE = (
    "begin the capture before the launch, or while the GPU is idle: torch.cuda.synchronize() before"
    " cudaProfilerStart() and nsys profile --capture-range=cudaProfilerApi, or a shorter --delay"
)
REMEDIES = {  # for a hint, and where no hint has one, for the reason
    "no_ranges": f"record ranges with {RECORD}, and annotate the code that makes this call: {ANNOTATE}",
    "whole_graph": f"annotate the code that launches the graph: {ANNOTATE}; with nsys profile"
    " --cuda-graph-trace=node its kernels go to the ops that they were captured in",
    "left_out": f"annotate the code that makes this call: {ANNOTATE}; or take the ranges of that domain for"
    " ops: --domain NAME",
    "open_elsewhere": f"annotate what runs on the thread of the call: {ANNOTATE}; for the backward pass of"
    " PyTorch run under torch.autograd.profiler.emit_nvtx(); or let --adopt guess by time",
    "no_calls": f"record the API calls of its process: {RECORD}",
    "begin_later": BEFORE,
    "lower_id": BEFORE,
    "no_launch": "a kernel that launched it has no API call; if calls were lost, record less at a time:"
    " nsys profile --capture-range=cudaProfilerApi, or --duration",
    "no_range": f"annotate the code that makes this call: {ANNOTATE}",
    "invalid_time": "let the work end before the capture does: torch.cuda.synchronize() before"
    " cudaProfilerStop() or the end of the program",
    "migration": "no option of nsys does; in the program, take cudaMalloc and copies in place of managed"
    " memory",
}
GENERAL = "docs/attribution.md says what this reason means and what to do"


@dataclass(frozen=True)
class Hint:
    """A fact that may explain it; ``row`` is that of what it names, and ``ns`` a time that its text ends with."""

    kind: str
    text: str
    row: int = NONE
    ns: int | None = None


def hints(joined: Attributed, row: int, moment: Moment | None) -> tuple[Hint, ...]:
    """Return what is around an activity without an op, ``moment`` being its API call's."""
    if joined.attribution.reason[row] in {ATTRIBUTED, INVALID_TIME}:
        return ()
    return tuple(_without_launch(joined, row) if moment is None else _around(joined, row, moment))


def remedy(reason: str, found: Sequence[Hint]) -> str:
    """Return what to change so that there will be an op."""
    known = [kind for kind in (*(hint.kind for hint in found), reason) if kind in REMEDIES]
    return REMEDIES[known[0]] if known else GENERAL


def _around(joined: Attributed, row: int, moment: Moment) -> Iterator[Hint]:
    """What was annotated near the API call, if not there."""
    if not len(joined.report.ranges):
        yield Hint("no_ranges", "no range at all is in the report")
        return
    if joined.report.activities["kind"].iloc[row] == frames.GRAPH:
        yield Hint("whole_graph", "the graph was recorded as a whole, its kernels were not")
    if len(moment.stack):
        yield Hint("left_out", "the ranges open there are of domains that are no ops")
    yield from _elsewhere(joined, moment)
    yield _before(joined, moment)


def _elsewhere(joined: Attributed, moment: Moment) -> Iterator[Hint]:
    """The innermost ops open on the other threads of the process."""
    rows = moment.open[joined.op[moment.open] != NONE]
    thread = moment.column("thread")[rows]
    innermost = {int(t): int(rows[thread == t][-1]) for t in np.unique(thread)}
    for number, row in list(innermost.items())[:MOST]:
        told = Thread.of(joined, moment.report, number)
        text = f"thread {told.tid}{f' ({told.name})' if told.name else ''} had {_named(joined, row)} open"
        yield Hint("open_elsewhere", text, row)
    if len(innermost) > MOST:
        yield Hint("open_elsewhere", f"{len(innermost) - MOST} more threads had ops open")


def _before(joined: Attributed, moment: Moment) -> Hint:
    end, thread = moment.column("end"), moment.column("thread")
    at = moment.step.start_ns
    here = (thread == moment.thread) & (moment.column("report") == moment.report)
    rows = np.flatnonzero(here & (joined.op != NONE) & (end <= at))
    if not len(rows):
        return Hint("none_before", "no op had ended on that thread before the call")
    last = int(rows[np.argmax(end[rows])])
    text = f"the last op on that thread before the call, {_named(joined, last)}, had ended for"
    return Hint("op_before", text, last, at - int(end[last]))


def _without_launch(joined: Attributed, row: int) -> Iterator[Hint]:
    """What is known of the API calls that are there."""
    activities, launches = joined.report.activities, joined.report.launches
    report, process, id_, start, copy_kind = (
        int(activities[c].iloc[row])
        for c in ("report", "process", "correlation", "start", "copy_kind")
    )
    if id_ <= 0:
        if copy_kind in UNIFIED:
            yield Hint(
                "migration", "the driver moved pages of unified memory, asked by no API call"
            )
        return
    of_report = np.flatnonzero(frames.ints(launches, "report") == report)
    own = frames.ints(launches, "process")[of_report] == process
    yield from _first_call(joined, of_report[own], start, id_)
    same = of_report[frames.ints(launches, "correlation")[of_report] == id_]
    if len(same):
        call = int(same[0])
        pid = Thread.of(joined, report, int(launches["process"].iloc[call])).pid
        text = f"{launches['name'].iloc[call]} (#{call}) of process {pid} has that id: not its call, for ids restart in every process"
        yield Hint("id_elsewhere", text, call)


def _first_call(joined: Attributed, calls: Ints, start: int, id_: int) -> Iterator[Hint]:
    """Whether the API calls of the process were recorded too late to have its own among them."""
    launches = joined.report.launches
    if not len(calls):
        yield Hint("no_calls", "no API call of its process is in the report")
        return
    begins = frames.ints(launches, "start")[calls]
    first = int(calls[np.argmin(begins)])
    if (later := int(begins.min()) - start) > 0:
        text = f"the first API call of its process, {launches['name'].iloc[first]} (#{first}), came later by"
        yield Hint("begin_later", text, first, later)
    elif id_ < (least := int(frames.ints(launches, "correlation")[calls].min())):
        text = f"its id is below all those of its process's API calls, from {least} on: it was launched before the first"
        yield Hint("lower_id", text, first)


def _named(joined: Attributed, row: int) -> str:
    return f"{joined.ops[int(joined.op[row])]} (#{row})"
