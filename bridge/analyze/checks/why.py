"""Explain the attribution of an activity: API call, thread, open ranges and op, or the reason."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from bridge.analyze.core.catalog.lookup import host_tables
from bridge.analyze.core.names import activity_names
from bridge.analyze.core.open_ranges import Event, EventStart, Place, Thread
from bridge.analyze.core.source_lines import NO_CHAIN, SourceLines, call_tree, source_lines
from bridge.analyze.run.concurrency.communication import NcclMessage
from bridge.importers import frames
from bridge.importers.call_chains import Frame
from bridge.importers.records import record
from bridge.join.arrays import NONE, Ints
from bridge.join.attributed import BACKWARD, FORWARD, AttributedCapture
from bridge.join.attribution import (
    ATTRIBUTED,
    INVALID_TIME,
    REASONS,
    RULES,
    NodeEvents,
    creation_of,
)
from bridge.knowledge.abbreviations import abbreviation

# -- Hints for activities without an op


MAX_LISTED = 3  # threads or activities that are named; the others are counted
UNIFIED = range(11, 14)  # copy kinds of unified memory migrations
ANNOTATE = '@nvtx_op, or with nvtx_op("…") around it'
RECORD = "nsys profile --trace=cuda,nvtx"
BEGIN_EARLIER = (
    "begin the capture before the launch, or while the GPU is idle: torch.cuda.synchronize() before"
    " cudaProfilerStart() and nsys profile --capture-range=cudaProfilerApi, or a shorter --delay"
)
REMEDIES = {  # by kind of hint, else by reason
    "no_ranges": f"record ranges with {RECORD}, and annotate the code that makes this call: {ANNOTATE}",
    "whole_graph": f"annotate the code that launches the graph: {ANNOTATE}; with nsys profile"
    " --cuda-graph-trace=node its kernels go to the ops that they were captured in",
    "left_out": f"annotate the code that makes this call: {ANNOTATE}; or take the ranges of that domain for"
    " ops: --domain NAME",
    "open_elsewhere": f"annotate what runs on the thread of the call: {ANNOTATE}; for the backward pass of"
    " PyTorch run under torch.autograd.profiler.emit_nvtx(); or let --adopt guess by time",
    "no_calls": f"record the API calls of its process: {RECORD}",
    "begin_later": BEGIN_EARLIER,
    "lower_id": BEGIN_EARLIER,
    "ambiguous": "run PyTorch under torch.autograd.profiler.emit_nvtx(), or leave only the range open that calls"
    " the backward pass",
    "no_launch": "a kernel that launched it has no API call; if calls were lost, record less at a time:"
    " nsys profile --capture-range=cudaProfilerApi, or --duration",
    "no_range": f"annotate the code that makes this call: {ANNOTATE}",
    "invalid_time": "let the work end before the capture does: torch.cuda.synchronize() before"
    " cudaProfilerStop() or the end of the program",
    "migration": "no option of nsys does; in the program, take cudaMalloc and copies in place of managed"
    " memory",
}
GENERAL = "docs/attribution.md says what this reason means and what to do"


@record
class Hint:
    """A fact that may explain why an activity has no op.

    ``row`` is the row of what the text names; ``ns`` is a time that is printed after the text.
    """

    kind: str
    text: str
    row: int = NONE
    ns: int | None = None


def hints(
    attributed: AttributedCapture, row: int, call_start: EventStart | None
) -> tuple[Hint, ...]:
    """Return facts that may explain why an activity has no op.

    ``call_start`` is the start of its API call, None if there is none.
    """
    if attributed.attribution.reason[row] in {ATTRIBUTED, INVALID_TIME}:
        return ()
    return tuple(
        _hints_without_launch(attributed, row)
        if call_start is None
        else _hints_at_call(attributed, row, call_start)
    )


def remedy(reason: str, hints_found: Sequence[Hint]) -> str:
    """Return what to change in the capture or the program so that the activity gets an op."""
    if reason == "ambiguous":
        return REMEDIES[reason]
    kinds = [kind for kind in (*(hint.kind for hint in hints_found), reason) if kind in REMEDIES]
    return REMEDIES[kinds[0]] if kinds else GENERAL


def _hints_at_call(attributed: AttributedCapture, row: int, moment: EventStart) -> Iterator[Hint]:
    """Yield what was annotated around and near the API call."""
    if not len(attributed.capture.ranges):
        yield Hint("no_ranges", "no range at all is in the report")
        return
    if attributed.capture.activities.kind[row] == frames.GRAPH:
        yield Hint("whole_graph", "the graph was recorded as a whole, its kernels were not")
    if len(moment.stack):
        yield Hint("left_out", "the ranges open there are of domains that are no ops")
    yield from _hints_of_other_threads(attributed, moment)
    yield _hint_before(attributed, moment)


def _hints_of_other_threads(attributed: AttributedCapture, moment: EventStart) -> Iterator[Hint]:
    """Yield the innermost ops that are open on the other threads of the process."""
    rows = moment.open[attributed.op[moment.open] != NONE]
    thread = moment.column("thread")[rows]
    innermost = {int(t): int(rows[thread == t][-1]) for t in np.unique(thread)}
    for number, row in list(innermost.items())[:MAX_LISTED]:
        other_thread = Thread.of(attributed, moment.report, number)
        name = f" ({other_thread.name})" if other_thread.name else ""
        text = f"thread {other_thread.tid}{name} had {_op_text(attributed, row)} open"
        yield Hint("open_elsewhere", text, row)
    if len(innermost) > MAX_LISTED:
        yield Hint("open_elsewhere", f"{len(innermost) - MAX_LISTED} more threads had ops open")


def _hint_before(attributed: AttributedCapture, moment: EventStart) -> Hint:
    """Return the last op that ended on the thread before the call."""
    end, thread = moment.column("end"), moment.column("thread")
    instant = moment.event.start_ns
    is_here = (thread == moment.thread) & (moment.column("report") == moment.report)
    rows = np.flatnonzero(is_here & (attributed.op != NONE) & (end <= instant))
    if not len(rows):
        return Hint("none_before", "no op ran on that thread before the call")
    last = int(rows[np.argmax(end[rows])])
    text = f"time from the end of the last op on that thread, {_op_text(attributed, last)}, to the call:"
    return Hint("op_before", text, last, instant - int(end[last]))


def _hints_without_launch(attributed: AttributedCapture, row: int) -> Iterator[Hint]:
    """Yield what the recorded API calls say about an activity without a launch."""
    activities, launches = attributed.capture.activities, attributed.capture.launches
    report, process, id_, start, copy_kind = (
        int(activities[c][row]) for c in ("report", "process", "correlation", "start", "copy_kind")
    )
    if id_ <= 0:
        if copy_kind in UNIFIED:
            yield Hint(
                "migration", "the driver moved pages of unified memory, asked by no API call"
            )
        return
    of_report = np.flatnonzero(launches.report == report)
    is_own = launches.process[of_report] == process
    yield from _hints_of_first_call(attributed, of_report[is_own], start, id_)
    same_id = of_report[launches.correlation[of_report] == id_]
    if len(same_id):
        call = int(same_id[0])
        pid = Thread.of(attributed, report, int(launches.process[call])).pid
        text = (
            f"{launches.name[call]} (#{call}) of process {pid} has that id: not its call,"
            " for ids restart in every process"
        )
        yield Hint("id_elsewhere", text, call)


def _hints_of_first_call(
    attributed: AttributedCapture, calls: Ints, start: int, id_: int
) -> Iterator[Hint]:
    """Yield whether the recording of API calls of the process began too late."""
    launches = attributed.capture.launches
    if not len(calls):
        yield Hint("no_calls", "no API call of its process is in the report")
        return
    starts = launches.start[calls]
    first = int(calls[np.argmin(starts)])
    if (delay := int(starts.min()) - start) > 0:
        text = (
            f"the first API call of its process, {launches.name[first]} (#{first}), began later by"
        )
        yield Hint("begin_later", text, first, delay)
    elif id_ < (lowest_id := int(launches.correlation[calls].min())):
        text = (
            f"its id is below all those of its process's API calls, from {lowest_id} on:"
            " it was launched before the first"
        )
        yield Hint("lower_id", text, first)


def _op_text(attributed: AttributedCapture, row: int) -> str:
    return f"{attributed.ops[int(attributed.op[row])]} (#{row})"


# -- The explanation


MAX_COMPARED = 200  # characters of a name that are compared to find similar names
CUT = "…"  # stands in tables for what has no room
ROW = re.compile(r"#([0-9]{1,18})")
WORD = re.compile(r"[^\W_]+")


@record
class OtherMatches:
    """The other activities that match: their number, the number of distinct names, and the longest.

    ``without_op`` are the longest of those without an op.
    """

    count: int
    names: int
    longest: tuple[int, ...]
    without_op_count: int
    without_op: tuple[int, ...]


@record
class Lineage:
    """Where an op belongs beyond its thread.

    ``forward`` is the forward range of backward work. ``adopter`` is the range of another thread
    under which the outermost range was put, by time alone.
    """

    direction: str
    forward: Place | None
    ambiguous: bool
    module: str
    adopter: Place | None


@record
class Source:
    """The line of the program that made a call, and the call stack, the innermost frame first.

    ``text`` is ``file:line`` or a module, '' where only library frames are known; ``kind`` is python,
    native or op. The stack is empty where none was recorded.
    """

    function: str
    text: str
    kind: str
    stack: tuple[Frame, ...]


@record
class Why:
    """The explanation of one activity; rows are those of the frames, times are ns as recorded.

    ``call`` issued the activity, ``captured`` created its node of a CUDA graph. ``owner`` is the
    range of the op where it was open at neither of these. ``rule`` and ``reason`` are '' where
    there is none. ``base_ns`` is the first event of the file. ``source`` and ``captured_source`` are None where the
    line of the program is not known. ``nccl`` is what NCCL's payload says of a message.
    """

    report: str
    reports: int
    base_ns: int
    activity: Event
    full_name: str
    device: int
    context: int
    stream: int
    correlation: int
    graph_node: int
    call: Place | None
    captured: Place | None
    owner: Place | None
    op: str
    rule: str
    rule_text: str
    reason: str
    reason_text: str
    lineage: Lineage | None
    hints: tuple[Hint, ...]
    remedy: str
    others: OtherMatches
    source: Source | None
    captured_source: Source | None
    nccl: NcclMessage | None = None


def rows_of(attributed: AttributedCapture, request: str) -> Ints:
    """Return the rows of the activities that a request selects.

    ``#12`` is a row. Other text is a name, as recorded or as tables show it; if none is equal, a
    part of a name; if none matches, either without regard to case; and at last a name that a table
    cut (``flash_fwd…``), if it is that of one kernel only.
    """
    numbered = ROW.fullmatch(request)
    if numbered:
        row = int(numbered[1])
        return np.arange(row, min(row + 1, len(attributed.capture.activities)))
    folded = request.casefold()
    predicates: Sequence[Callable[[str], bool]] = (
        lambda name: name == request,
        lambda name: request in name,
        lambda name: name.casefold() == folded,
        lambda name: folded in name.casefold(),
    )
    result = (rows for predicate in predicates if len(rows := _named(attributed, predicate)))
    rows = next(result, np.empty(0, np.int64))
    return rows if len(rows) or CUT not in request else _rows_of_cut_name(attributed, request)


def _rows_of_cut_name(attributed: AttributedCapture, request: str) -> Ints:
    """Return the activities whose name a table may have cut to this; none if several names are like it."""
    names = _names_of_cut(attributed, request)
    if len(names) != 1:
        return np.empty(0, np.int64)
    return _named(attributed, lambda name: name == names[0])


def _names_of_cut(attributed: AttributedCapture, request: str) -> list[str]:
    """Return the readable names of activities that a table may have cut to a text with ``…``."""
    if CUT not in request:
        return []
    pattern = re.compile(".+".join(map(re.escape, request.split(CUT))), re.DOTALL)
    names = _readable_names(attributed)
    return [name for name in names if any(map(pattern.fullmatch, {name, abbreviation(name)}))]


def _readable_names(attributed: AttributedCapture) -> list[str]:
    return sorted(attributed.activity_name.used)


def nothing_found(attributed: AttributedCapture, request: str) -> str:
    """Return the message that no activity matches, with similar names."""
    count = len(attributed.capture.activities)
    if not count:
        host = host_tables(len(attributed.capture.ranges))
        return f"no work on a GPU in the report, so no attribution to explain; {host}"
    if ROW.fullmatch(request):
        return f"no activity {request}: there are {count}, from #0 to #{count - 1}"
    if len(cut := _names_of_cut(attributed, request)) > 1:
        listed = ", ".join(map(repr, cut[:MAX_LISTED]))
        more = ", …" if len(cut) > MAX_LISTED else ""
        return f"{len(cut)} names may be cut to {request!r}: {listed}{more}; write more of one"
    if request in attributed.ops:
        return f"{request!r} is an op; its kernels: bridge report REPORT --by op,kernel --filter 'op={request}'"
    similar = _similar_names(attributed, request)
    suggestion = (
        f"near it: {', '.join(similar)}"
        if similar
        else "bridge report REPORT --by kernel lists them"
    )
    return f"no kernel, memcpy or memset has {request!r} in its name; {suggestion}"


def why(attributed: AttributedCapture, rows: Ints) -> Why:
    """Explain the longest of these activities. Raises ValueError if there are none."""
    row = int(rows[np.argmax(attributed.duration[rows])])
    attribution, capture, activities = (
        attributed.attribution,
        attributed.capture,
        attributed.capture.activities,
    )
    node = int(attribution.node[row])
    owner = NONE if node == NONE else int(attribution.nesting.range[node])
    reason, rule = (
        list(REASONS)[int(attribution.reason[row])],
        list(RULES)[int(attribution.rule[row])],
    )
    call = _call(attributed, row)
    captured = _captured(attributed, row)
    facts = hints(attributed, row, call)
    places = tuple(moment.place if moment else None for moment in (call, captured))
    file = int(activities.report[row])
    numbers = ("device", "context", "stream", "correlation", "graph_node")
    return Why(
        report=capture.source[file],
        reports=len(capture.source),
        base_ns=capture.facts[file].span[0],
        activity=_activity(attributed, row),
        full_name=activities.full_name[row],
        **{c: int(activities[c][row]) for c in numbers},
        call=places[0],
        captured=places[1],
        owner=_owner(attributed, owner, places),
        op="" if node == NONE else attributed.ops[int(attributed.node_op[node])],
        rule=rule,
        rule_text=RULES[rule],
        reason=reason,
        reason_text=REASONS[reason],
        lineage=None if node == NONE else _lineage(attributed, node),
        hints=facts,
        remedy=remedy(reason, facts) if reason else "",
        others=_others(attributed, rows, row),
        nccl=NcclMessage.of(attributed, row),
        source=_source(attributed, int(attribution.launch[row])),
        captured_source=_captured_source(attributed, int(attribution.captured_in[row])),
    )


def _source(attributed: AttributedCapture, call: int) -> Source | None:
    """Return the line of the program that made an API call, None if nothing is known of it."""
    if call == NONE:
        return None
    known, tree = source_lines(attributed), call_tree(attributed)
    line = known.call[call]
    if known.lines.source[line] == NO_CHAIN:
        return None
    return _line(known, int(line), tuple(tree.stack(int(tree.leaf[call]))))


def _captured_source(attributed: AttributedCapture, node: int) -> Source | None:
    """Return the line that captured a node of a CUDA graph, None if its stack was not recorded."""
    known, tree = source_lines(attributed), call_tree(attributed)
    line = int(known.captured[node]) if node != NONE else NONE
    return None if line == NONE else _line(known, line, tuple(tree.stack(int(tree.within[node]))))


def _line(known: SourceLines, line: int, stack: tuple[Frame, ...]) -> Source:
    kind = known.lines.kind[line]
    return Source(known.lines.function[line], known.lines.source[line] if kind else "", kind, stack)


def _named(attributed: AttributedCapture, matches: Callable[[str], bool]) -> Ints:
    """Return the activities with a readable, abbreviated, short or demangled name that matches."""
    mask = np.zeros(len(attributed.capture.activities), bool)
    for names in ("readable", "short", "demangled"):
        column = activity_names(attributed, names)
        mask |= column.matching(lambda name: matches(name) or matches(abbreviation(name)))
    return np.flatnonzero(mask)


def _similar_names(attributed: AttributedCapture, request: str) -> list[str]:
    """Return the names that are similar to the request or contain a similar word."""
    names = _readable_names(attributed)
    words = {word: name for name in names for word in WORD.findall(name[:MAX_COMPARED].casefold())}
    folded = words | {name[:MAX_COMPARED].casefold(): name for name in names}
    matches = difflib.get_close_matches(request[:MAX_COMPARED].casefold(), folded, MAX_LISTED)
    return [repr(name) for name in dict.fromkeys(folded[match] for match in matches)]


def _activity(attributed: AttributedCapture, row: int) -> Event:
    activities = attributed.capture.activities
    start, end = (int(activities[c][row]) for c in ("start", "end"))
    name, kind = attributed.activity_name[row], activities.kind[row]
    return Event(
        what=kind,
        row=row,
        name=name,
        start_ns=start,
        end_ns=end,
        duration_ns=int(attributed.duration[row]),
    )


def _call(attributed: AttributedCapture, row: int) -> EventStart | None:
    """Return when the API call of an activity began."""
    launches, launch = attributed.capture.launches, int(attributed.attribution.launch[row])
    if launch == NONE:
        return None
    return EventStart.of(attributed, Event.of("call", launches, launch), launches)


def _captured(attributed: AttributedCapture, row: int) -> EventStart | None:
    """Return when the CUDA graph node of an activity was captured."""
    nodes, activities = attributed.capture.graph_nodes, attributed.capture.activities
    events = NodeEvents(
        report=nodes.report,
        process=nodes.process,
        node=nodes.node,
        original=nodes.original,
        time=nodes.time,
    )
    report, process, node = (
        activities[c][row : row + 1] for c in ("report", "process", "graph_node")
    )
    row_of_node = int(creation_of(report, process, node, events)[0]) if len(nodes) else NONE
    if row_of_node == NONE:
        return None
    time, number = (int(nodes[c][row_of_node]) for c in ("time", "node"))
    return EventStart.of(
        attributed,
        Event(
            what="graph node",
            row=row_of_node,
            name=str(number),
            start_ns=time,
            end_ns=time,
            duration_ns=0,
        ),
        nodes,
    )


def _owner(attributed: AttributedCapture, row: int, places: Sequence[Place | None]) -> Place | None:
    """Return the range of the op if it is not open at the places, as some rules look elsewhere."""
    open_rows = {r.row for place in places if place for r in place.ranges}
    if row == NONE or row in open_rows:
        return None
    return _place_of(attributed, row)


def _place_of(attributed: AttributedCapture, row: int) -> Place | None:
    """Return a range and its thread, None for no row."""
    if row == NONE:
        return None
    ranges = attributed.capture.ranges
    report, thread = (int(ranges[c][row]) for c in ("report", "thread"))
    return Place(Event.of("range", ranges, row), Thread.of(attributed, report, thread))


def _lineage(attributed: AttributedCapture, node: int) -> Lineage:
    directions, modules, nesting = (
        attributed.directions,
        attributed.modules,
        attributed.attribution.nesting,
    )
    forward, current = int(directions.forward[node]), node
    module, adopter = int(attributed.module_of_work[node]), NONE
    while current != NONE and adopter == NONE:
        parent = int(nesting.parent[current])
        if parent != NONE and nesting.stack[parent] != nesting.stack[current]:
            adopter = int(nesting.range[parent])
        current = parent
    return Lineage(
        direction=BACKWARD if directions.backward[node] else FORWARD,
        forward=_place_of(attributed, forward),
        ambiguous=bool(directions.ambiguous[node]),
        module="" if module == NONE else modules.paths[int(modules.path[module])],
        adopter=_place_of(attributed, adopter),
    )


def _others(attributed: AttributedCapture, rows: Ints, explained: int) -> OtherMatches:
    name = attributed.activity_name.codes
    others = rows[rows != explained]
    others = others[np.argsort(-attributed.duration[others], kind="stable")]
    without = others[attributed.attribution.reason[others] != ATTRIBUTED]
    return OtherMatches(
        count=len(others),
        names=len(np.unique(name[rows])),
        longest=tuple(others[:MAX_LISTED].tolist()),
        without_op_count=len(without),
        without_op=tuple(without[:MAX_LISTED].tolist()),
    )
