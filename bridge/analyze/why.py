"""The chain behind one attribution: activity, API call, thread, open ranges, op; or the reason there is none."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bridge.analyze.open_ranges import Moment, Place, Step, Thread
from bridge.join.arrays import NONE, Ints
from bridge.join.attributed import BACKWARD, FORWARD, Attributed
from bridge.join.attribution import (
    ATTRIBUTED,
    INVALID_TIME,
    REASONS,
    RULES,
    NodeEvents,
    creation_of,
)
from importers import frames

# -- What may explain that an activity has no op, and what to change in the capture or the program


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
        text = f"thread {told.tid}{f' ({told.name})' if told.name else ''} had {_hints_named(joined, row)} open"
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
    text = (
        f"the last op on that thread before the call, {_hints_named(joined, last)}, had ended for"
    )
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


def _hints_named(joined: Attributed, row: int) -> str:
    return f"{joined.ops[int(joined.op[row])]} (#{row})"


# -- The chain behind one attribution: activity, API call, thread, open ranges, op; or the reason there is none


LONG = 200  # characters of a name that are compared when near ones are looked for
ROW = re.compile(r"#([0-9]{1,18})")
WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class Others:
    """The activities asked for besides: how many, how many names all have, which are next, and which have no op."""

    count: int
    names: int
    longest: tuple[int, ...]
    without_op_count: int
    without_op: tuple[int, ...]


@dataclass(frozen=True)
class Lineage:
    """Where an op belongs besides its thread: ``forward`` is the range that backward work goes back to.

    ``adopter`` is the range of another thread that its outermost one was put under, by time alone.
    """

    direction: str
    forward: Place | None
    ambiguous: bool
    module: str
    adopter: Place | None


@dataclass(frozen=True)
class Why:
    """One activity explained; rows are those of the frames, times ns as recorded, from ``base_ns`` on.

    ``call`` issued it and ``captured`` made its node of a CUDA graph; ``owner`` is the op's range, where
    it was open at neither. ``rule`` and ``reason`` are '' where there is none.
    """

    report: str
    reports: int
    base_ns: int
    activity: Step
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
    others: Others


def rows_of(joined: Attributed, asked: str) -> Ints:
    """Return the rows of the activities asked for, none if there are none.

    ``#12`` is a row; else a name, or where none is equal a part of one; else the same in any case.
    """
    numbered = ROW.fullmatch(asked)
    if numbered:
        row = int(numbered[1])
        return np.arange(row, min(row + 1, len(joined.report.activities)))
    folded = asked.casefold()
    ways: Sequence[Callable[[str], bool]] = (
        lambda name: name == asked,
        lambda name: asked in name,
        lambda name: name.casefold() == folded,
        lambda name: folded in name.casefold(),
    )
    found = (rows for way in ways if len(rows := _named(joined, way)))
    return next(found, np.empty(0, np.int64))


def nothing_found(joined: Attributed, asked: str) -> str:
    """Say that there is no such activity, and what comes near."""
    count = len(joined.report.activities)
    if not count:
        return "nothing ran on a device"
    if ROW.fullmatch(asked):
        return f"no activity {asked}: there are {count}, from #0 to #{count - 1}"
    near = _near(joined, asked)
    more = f"near it: {', '.join(near)}" if near else "bridge report --by kernel lists them"
    return f"no kernel, memcpy or memset has {asked!r} in its name; {more}"


def why(joined: Attributed, rows: Ints) -> Why:
    """Explain the longest of some activities; raises ValueError if there are none."""
    row = int(rows[np.argmax(joined.duration[rows])])
    found, report, own = joined.attribution, joined.report, joined.report.activities
    node = int(found.node[row])
    reason, rule = list(REASONS)[int(found.reason[row])], list(RULES)[int(found.rule[row])]
    call, captured = _call(joined, row), _captured(joined, row)
    around = hints(joined, row, call)
    places = tuple(moment.place if moment else None for moment in (call, captured))
    of = int(own["report"].iloc[row])
    numbers = ("device", "context", "stream", "correlation", "graph_node")
    return Why(
        report=report.source[of],
        reports=len(report.source),
        base_ns=report.facts[of].span[0],
        activity=_activity(joined, row),
        full_name=str(own["full_name"].iloc[row]),
        **{c: int(own[c].iloc[row]) for c in numbers},
        call=places[0],
        captured=places[1],
        owner=_owner(joined, int(found.range[row]), places),
        op="" if node == NONE else joined.ops[int(joined.node_op[node])],
        rule=rule,
        rule_text=RULES[rule],
        reason=reason,
        reason_text=REASONS[reason],
        lineage=None if node == NONE else _lineage(joined, node),
        hints=around,
        remedy=remedy(reason, around) if reason else "",
        others=_others(joined, rows, row),
    )


def _named(joined: Attributed, matches: Callable[[str], bool]) -> Ints:
    """Return the activities of which a name, short or demangled, matches."""
    activities = joined.report.activities
    hit = np.zeros(len(activities), bool)
    for column in ("name", "full_name"):
        names = activities[column].cat.categories
        good = np.array([*map(matches, names), False])
        hit |= good[frames.codes(activities[column])]
    return np.flatnonzero(hit)


def _near(joined: Attributed, asked: str) -> list[str]:
    """Return the names that are most like the one asked for, or that have a word like it."""
    named = joined.report.activities["name"]
    used = named.cat.categories[np.unique(frames.codes(named))]
    words = {word: name for name in used for word in WORD.findall(name[:LONG].casefold())}
    folded = words | {name[:LONG].casefold(): name for name in used}
    close = difflib.get_close_matches(asked[:LONG].casefold(), folded, MOST)
    return [repr(name) for name in dict.fromkeys(folded[near] for near in close)]


def _activity(joined: Attributed, row: int) -> Step:
    own = joined.report.activities
    start, end = (int(own[c].iloc[row]) for c in ("start", "end"))
    name, kind = (str(own[c].iloc[row]) for c in ("name", "kind"))
    return Step(kind, row, name, start, end, int(joined.duration[row]))


def _call(joined: Attributed, row: int) -> Moment | None:
    """Return when the API call of an activity began."""
    launches, launch = joined.report.launches, int(joined.attribution.launch[row])
    if launch == NONE:
        return None
    return Moment.of(joined, Step.of("call", launches, launch), launches)


def _captured(joined: Attributed, row: int) -> Moment | None:
    """Return when the node of a CUDA graph that an activity is was captured."""
    nodes, own = joined.report.graph_nodes, joined.report.activities
    events = NodeEvents(
        *(frames.ints(nodes, c) for c in ("report", "process", "node", "original", "time"))
    )
    report, process, node = (
        frames.ints(own, c)[row : row + 1] for c in ("report", "process", "graph_node")
    )
    made = int(creation_of(report, process, node, events)[0]) if len(nodes) else NONE
    if made == NONE:
        return None
    time, number = (int(nodes[c].iloc[made]) for c in ("time", "node"))
    return Moment.of(joined, Step("graph node", made, str(number), time, time, 0), nodes)


def _owner(joined: Attributed, row: int, places: Sequence[Place | None]) -> Place | None:
    """Return the op's range if it is not among those open at the places: a rule may look elsewhere."""
    shown = {r.row for place in places if place for r in place.ranges}
    if row == NONE or row in shown:
        return None
    return _standing(joined, row)


def _standing(joined: Attributed, row: int) -> Place | None:
    """Return a range and the thread it is on, None for no row."""
    if row == NONE:
        return None
    ranges = joined.report.ranges
    report, thread = (int(ranges[c].iloc[row]) for c in ("report", "thread"))
    return Place(Step.of("range", ranges, row), Thread.of(joined, report, thread))


def _lineage(joined: Attributed, node: int) -> Lineage:
    found, modules, nesting = joined.directions, joined.modules, joined.attribution.nesting
    forward, around = int(found.forward[node]), node
    module, adopter = int(modules.of[joined.belongs[node]]), NONE
    while around != NONE and adopter == NONE:
        parent = int(nesting.parent[around])
        if parent != NONE and nesting.stack[parent] != nesting.stack[around]:
            adopter = int(nesting.range[parent])
        around = parent
    return Lineage(
        direction=BACKWARD if found.backward[node] else FORWARD,
        forward=_standing(joined, forward),
        ambiguous=bool(found.ambiguous[node]),
        module="" if module == NONE else modules.paths[int(modules.path[module])],
        adopter=_standing(joined, adopter),
    )


def _others(joined: Attributed, rows: Ints, explained: int) -> Others:
    named = frames.codes(joined.report.activities["name"])
    rest = rows[rows != explained]
    rest = rest[np.argsort(-joined.duration[rest], kind="stable")]
    without = rest[joined.attribution.reason[rest] != ATTRIBUTED]
    return Others(
        count=len(rest),
        names=len(np.unique(named[rows])),
        longest=tuple(rest[:MOST].tolist()),
        without_op_count=len(without),
        without_op=tuple(without[:MOST].tolist()),
    )
