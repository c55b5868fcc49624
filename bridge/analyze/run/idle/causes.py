"""The causes of the idle time of GPUs: what the next work waited for at each instant."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridge.analyze.core.devices import Devices
from bridge.analyze.core.groups import highest, lowest, sums
from bridge.analyze.core.kinds import is_compilation, is_data_loading
from bridge.analyze.run.causes.gaps import Gaps, idle_gaps
from bridge.analyze.run.causes.host_timeline import (
    IN_API,
    IN_BLOCKING,
    IN_COMPILER,
    IN_COPY,
    IN_LAUNCH,
    IN_SYNC,
    Pieces,
    Timeline,
    call_ends,
    call_states,
)
from bridge.analyze.run.causes.operating_system import is_of_lock, stacks_of
from bridge.analyze.run.critical.device import Met
from bridge.analyze.run.critical.graph import NEVER
from bridge.analyze.run.critical.releases import (
    LOCKING,
    MIN_PACED,
    SERVING,
    WAITING,
)
from bridge.analyze.run.critical.run import Run
from bridge.analyze.run.critical.work import MAX_LATENCY_NS
from bridge.importers import frames
from bridge.importers.arrays import lookup, scatter
from bridge.importers.frames import Names
from bridge.importers.records import record
from bridge.join.arrays import (
    NONE,
    Flags,
    Integers,
    Ints,
    Rows,
    blocks,
    number_groups,
    order_by,
    repeated,
    run_edges,
    search_groups,
)
from bridge.join.attributed import AttributedCapture, once
from bridge.join.forest import outermost_above

# Of several causes at once the first counts: it says more.
WORDS = (
    WORKING,
    ELSEWHERE,
    LATE_RANK,
    PROFILER,
    INPUT,
    LOADING,
    LOCK,
    SYNC,
    BLOCKING,
    COPYING,
    LAUNCHING,
    CALLING,
    LOADING_CODE,
    SYSTEM,
    COMPILING,
    ANNOTATIONS,
    OP,
    HOST,
    LATENCY,
    ABSENT,
    UNKNOWN,
) = (
    "GPU work",
    "work elsewhere",
    "late rank",
    "profiler",
    "input",
    "data loading",
    "Python's lock",
    "synchronization",
    "blocking memcpy",
    "memcpy calls",
    "launch calls",
    "other CUDA calls",
    "loading of code",
    "OS calls",
    "compilation",
    "annotations",
    "host code",
    "host code outside ops",
    "launch latency",
    "not running",
    "unknown",
)
CODE = {word: number for number, word in enumerate(WORDS)}
OF_CALL = {
    IN_SYNC: SYNC,
    IN_BLOCKING: BLOCKING,
    IN_COPY: COPYING,
    IN_LAUNCH: LAUNCHING,
    IN_API: CALLING,
    IN_COMPILER: LOADING_CODE,
}
NAMED = tuple(CODE[word] for word in WORDS[CODE[SYNC] : CODE[SYSTEM] + 1])  # by their call
TELLING = CODE[LOCK]  # the last cause that a wait keeps, whoever ends it
TERMINAL = re.compile(r"getc(?:har)?(?:_unlocked)?|readline")  # others read files as often
JOINING = re.compile(
    r"pthread_join|pthread_cond_wait|futex|wait(?:pid|id|3|4)?"
)  # waits for own threads and processes


@record
class Causes:
    """Causes of gaps: one row per gap, cause (a position in `WORDS`), op and callee.

    ``callee`` is a position in ``callees``, the names of API calls and of calls of the operating system, NONE for
    causes without one. ``length`` is the part of the gap in ns; the rows of a gap add up to its length. ``first`` is
    the start of the first piece. Rows are sorted by gap, cause, op and callee. ``row_of_piece`` is the row of each of
    the ``pieces``, whose times are those of the report of their GPU, on the host by the ``shift`` later; ``point`` is
    the point of the graph that ends each, NONE where nothing is known.
    """

    gaps: Gaps
    gap: Ints
    cause: Ints
    op: Ints
    callee: Ints
    callees: list[str]
    length: Ints
    first: Ints
    pieces: Pieces
    row_of_piece: Ints
    shift: Ints
    point: Ints

    @property
    def host_pieces(self) -> Pieces:
        """The pieces in the times of the report of their thread."""
        pieces = self.pieces
        start, end = pieces.start + self.shift, pieces.end + self.shift
        return Pieces(
            interval=pieces.interval, state=pieces.state, stack=pieces.stack, start=start, end=end
        )


def find_causes(attributed: AttributedCapture, threshold_ns: int = 0) -> Causes:
    """Return the idle times of GPUs longer than the threshold, in the run or its selected part, with their causes.

    They are those of `idle_gaps`; without a threshold they add up to the idle time of the account.
    """
    return causes_of(attributed, idle_gaps(attributed, threshold_ns))


def causes_of(attributed: AttributedCapture, gaps: Gaps, run: Run | None = None) -> Causes:
    """Return the causes of some gaps, by another graph of the run if it is given."""
    run = run or Run.of_any(attributed.unselected or attributed)
    found = _found(run, gaps)
    keys = (found.gap, found.cause, found.op, found.callee)
    group, rows = number_groups(*keys)
    offset = _Gaps.of(run, gaps).offset[found.gap]
    start, end = found.start - offset, found.end - offset
    gap, cause, op, callee = (column[rows] for column in keys)
    return Causes(
        gaps=gaps,
        gap=gap,
        cause=cause,
        op=op,
        callee=callee,
        callees=_callees(run),
        length=sums(group, end - start, len(rows)),
        first=lowest(group, start, len(rows)),
        pieces=Pieces(
            interval=found.gap, state=found.cause, stack=found.stack, start=start, end=end
        ),
        row_of_piece=group,
        shift=offset - _offset_of_stacks(run)[found.stack],
        point=found.point,
    )


def times_of_causes(attributed: AttributedCapture, gaps: Gaps) -> Ints:
    """Return the time of some gaps by cause, a row per entry of `WORDS`, and op; the last column is for no op.

    Gaps are taken some at a time, so that their pieces are never all in memory.
    """
    run = Run.of_any(attributed.unselected or attributed)
    time = np.zeros((len(WORDS), len(attributed.ops) + 1), np.int64)
    for rows in blocks(len(gaps)):
        found = _found(run, gaps.take(rows))
        np.add.at(time, (found.cause, found.op), found.end - found.start)
    return time


# -- From gaps to the points that they wait for


@record
class _Gaps:
    """Gaps on the clock of the run; ``last`` is the point from which the walk goes back, NONE if there is none."""

    start: Ints
    end: Ints
    offset: Ints
    last: Ints

    @classmethod
    def of(cls, run: Run, gaps: Gaps) -> _Gaps:
        report = np.array(Devices.of_report(run.work.attributed).report, np.int64)
        offset = run.work.offset[report][gaps.device]
        place = lookup(run.work.place, gaps.ended_by)
        last = lookup(run.device.start, place)
        behind = gaps.ended_by == NONE
        if behind.any():
            last[behind] = _last_of_host(run)[gaps.device[behind]]
        return cls(gaps.start + offset, gaps.end + offset, offset, last)


def _last_of_host(run: Run) -> Ints:
    """Return the last point of the host of any process that used each GPU, NONE if there is none."""
    host, work = run.host, run.work
    gpus = len(Devices.of_report(work.attributed).names)
    process = work.process_of_stacks
    ends = np.flatnonzero(np.append(~host.chained[1:], True)[: len(host.time)])  # of each thread
    size = int(process.max(initial=NONE)) + 1
    ends = ends[order_by(host.time[ends])]
    last = scatter(ends, process[host.stack[ends]], size)  # the latest stays
    launched = np.flatnonzero(work.launch != NONE)
    stack = work.attributed.attribution.stack[work.launch[launched]]
    _, pairs = number_groups(run.gpu_of_place[launched], process[stack])
    gpu, by = run.gpu_of_place[launched][pairs], process[stack][pairs]
    known = last[by] != NONE
    gpu, ends = gpu[known], last[by[known]]
    order = order_by(host.time[ends])
    return scatter(run.hosts + ends[order], gpu[order], gpus)


# -- The pieces of gaps


@record
class _Pieces:
    """Pieces of gaps on the clock of the run; ``point`` ends what took the time, NONE where nothing is known."""

    gap: Ints
    point: Ints
    start: Ints
    end: Ints
    cause: Ints
    op: Ints
    callee: Ints
    stack: Ints

    @classmethod
    def unnamed(cls, gap: Ints, start: Ints, end: Ints, cause: Ints) -> _Pieces:
        """Return pieces on no thread."""
        none = repeated(NONE, len(gap))
        return cls(
            gap=gap, point=none, start=start, end=end, cause=cause, op=none, callee=none, stack=none
        )

    def take(self, rows: Ints | Flags) -> _Pieces:
        """Return some pieces."""
        return _Pieces(*(getattr(self, field.name)[rows] for field in fields(self)))

    def cut(self, at: Pieces) -> _Pieces:
        """Return the pieces, each cut into those of ``at``, whose intervals they are."""
        return replace(self.take(at.interval), start=at.start, end=at.end)


def _found(run: Run, gaps: Gaps) -> _Pieces:
    """Return the pieces of gaps, which add up to their lengths."""
    placed = _Gaps.of(run, gaps)
    rows = np.flatnonzero(placed.last != NONE)
    row, point = run.with_locks.walks(placed.last[rows], placed.start[rows])
    gap = rows[row]
    walked = _with_annotations(run, _with_causes(run, gaps, *_cut_to_gaps(run, placed, gap, point)))
    walked = _with_late_ranks(run, _with_code_between_polls(run, walked))
    walked = _with_late_arrivals(run, walked)
    waits = _with_recorded(run, _waits(run, placed, walked))
    telling = waits.take(waits.cause <= TELLING)
    walked = _before_unknown_work(run, _with_telling(_with_recorded(run, walked), telling))
    return _joined(walked, _not_running(run, placed), _before_roots(run, placed, gap, point))


def _before_unknown_work(run: Run, pieces: _Pieces) -> _Pieces:
    """Return pieces, unknown where the walk comes to work of which nobody knows what it waited for.

    Work that is known to have waited for its launch, too, waited for all that came before that.
    """
    device = np.where(pieces.point < run.hosts, pieces.point, NONE)
    place = lookup(run.device.activity, device)
    graph, of_launch = run.with_locks, lookup(run.work.launch, place) != NONE
    by_launch = lookup(graph.by_cross, device, False) & of_launch
    by_launch &= lookup(graph.cross, device) >= run.hosts
    is_unknown = (pieces.cause == CODE[UNKNOWN]) & ~by_launch
    ends = np.flatnonzero(_is_foreign(run)[place] | is_unknown)
    size = int(pieces.gap.max(initial=NONE)) + 1
    until = highest(pieces.gap[ends], pieces.end[ends], size, empty=int(NEVER))
    before = np.flatnonzero(pieces.end <= until[pieces.gap]) if size else pieces.gap
    pieces.cause[before] = CODE[UNKNOWN]
    for column in (pieces.op, pieces.callee, pieces.stack):
        column[before] = NONE
    return pieces


@once
def _is_foreign(run: Run) -> Flags:
    """Return whether each activity, by its place, is of a process without API calls; the last entry is for none."""
    work, calls = run.work, run.work.attributed.capture.launches
    keys = ("report", "process")
    of_call, of_work = frames.key_codes([calls[c] for c in keys], [work.column(c) for c in keys])
    result: Flags = np.append(~np.isin(of_work, of_call), False)
    return result


def _cut_to_gaps(run: Run, gaps: _Gaps, gap: Ints, point: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Return gap, point, start and end of the delay before each point, within its gap."""
    time = run.graph.time[point]
    start = np.maximum(time - run.with_locks.delay_of(point), gaps.start[gap])
    end = np.minimum(time, gaps.end[gap])
    lasts = end > start
    return gap[lasts], point[lasts], start[lasts], end[lasts]


def _not_running(run: Run, gaps: _Gaps) -> _Pieces:
    """Return the time behind the last event of the processes that used a GPU."""
    rows = np.flatnonzero(gaps.last >= run.hosts)
    start = np.maximum(run.graph.time[gaps.last[rows]], gaps.start[rows])
    return _Pieces.unnamed(rows, start, gaps.end[rows], repeated(CODE[ABSENT], len(rows)))


def _before_roots(run: Run, gaps: _Gaps, gap: Ints, point: Ints) -> _Pieces:
    """Return the time before the points at which walks came to an end, where that is not the begin of their gap."""
    earliest = scatter(point, gap, len(gaps.start))  # the last one of each gap stays
    is_root = (
        (earliest != NONE) & ~run.graph.chained[earliest] & (run.graph.cross[earliest] == NONE)
    )
    rows = np.flatnonzero(is_root | (gaps.last == NONE))
    root = earliest[rows]
    end = np.where(root == NONE, gaps.end[rows], lookup(run.graph.time, root))
    cause = np.where(root >= run.hosts, CODE[ABSENT], CODE[UNKNOWN])
    return _Pieces.unnamed(rows, gaps.start[rows], np.minimum(end, gaps.end[rows]), cause)


# -- What took the time of each piece


def _with_causes(run: Run, gaps: Gaps, gap: Ints, point: Ints, start: Ints, end: Ints) -> _Pieces:
    """Return pieces with the cause of the point that ends each."""
    is_host = point >= run.hosts
    host, device = np.flatnonzero(is_host), np.flatnonzero(~is_host)
    columns = tuple(np.empty(len(point), np.int64) for _ in range(4))
    for rows, found in (
        (host, _of_host(run, point[host] - run.hosts)),
        (device, _of_device(run, point[device], gaps.device[gap[device]])),
    ):
        for column, values in zip(columns, found, strict=True):
            column[rows] = values
    return _Pieces(gap, point, start, end, *columns)


def _of_device(run: Run, points: Ints, gpu: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Return cause, op, callee and stack of points of devices, for a GPU each."""
    work, device = run.work, run.device
    place = device.activity[points]
    row = lookup(work.row, place)
    own = lookup(run.gpu_of_place, place)
    works = points == lookup(device.end, place)
    is_issued = (lookup(work.launch, place) != NONE) | run.graph.by_cross[points]
    is_issued &= run.with_locks.delay_of(points) <= MAX_LATENCY_NS
    waits = np.where(is_issued, CODE[LATENCY], CODE[UNKNOWN])
    # A GPU does not work in its own idle time, but before it comes late to a collective.
    cause = np.where(works, np.where(own == gpu, CODE[WORKING], CODE[ELSEWHERE]), waits)
    callee = np.where(works & (own != gpu), _first_gpu(run) + own, NONE)
    op = lookup(work.attributed.activity_op, row)
    stack = np.full(len(points), NONE)
    early = np.flatnonzero(_begins_in_call(run)[place])
    early = early[points[early] == device.start[place[early]]]
    call = work.launch[place[early]]
    cause[early], callee[early] = _of_calls(run)[call], _call_names(run).compact[call]
    node = work.attributed.launch_node[call]
    loads = _loading(run)[node]
    cause[early] = np.where(loads != NONE, CODE[LOADING], cause[early])
    callee[early] = np.where(loads != NONE, NONE, callee[early])
    op[early] = lookup(work.attributed.node_op, np.where(loads != NONE, loads, node))
    stack[early] = work.attributed.attribution.stack[call]
    return cause, op, callee, stack


def _with_annotations(run: Run, pieces: _Pieces) -> _Pieces:
    """Return pieces, those of host code without the part that annotations took."""
    if run.annotating is None:
        return pieces
    is_code = np.isin(pieces.cause, (CODE[OP], CODE[HOST]))
    length, delay = pieces.end - pieces.start, run.with_locks.delay_of(pieces.point)
    part = run.annotating[pieces.point] * (length / np.maximum(delay, 1))
    taken = np.where(is_code, np.minimum(np.rint(part).astype(np.int64), length), 0)
    rows = np.flatnonzero(taken)
    if not len(rows):
        return pieces
    own = pieces.end - taken
    cause, callee = repeated(CODE[ANNOTATIONS], len(rows)), repeated(NONE, len(rows))
    annotations = replace(pieces.take(rows), start=own[rows], cause=cause, callee=callee)
    return _joined(replace(pieces, end=own), annotations)


@once
def _begins_in_call(run: Run) -> Flags:
    """Return whether each activity, by its place, began before its API call returned; the last entry is for none."""
    work = run.work
    ends = lookup(work.call_end, work.launch, 0)
    result: Flags = np.append((work.launch != NONE) & (work.start < ends), False)
    return result


def _of_host(run: Run, points: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Return cause, op, callee and stack of points of the host."""
    host, attributed = run.host, run.work.attributed
    call, system, node = host.call[points], host.system[points], host.node[points]
    op = lookup(attributed.node_op, node)
    cause = np.where(op == NONE, CODE[HOST], CODE[OP])
    compiles = _compiling(run)[node]
    cause[compiles != NONE] = CODE[COMPILING]
    of_compiler = (compiles != NONE) & (call == NONE) & (system == NONE)
    op[of_compiler] = attributed.node_op[compiles[of_compiler]]
    systems = attributed.capture.system_calls.name
    in_system = np.flatnonzero((system != NONE) & (call == NONE))
    called = systems[system[in_system]]
    asks = called.matching(TERMINAL.fullmatch)
    cause[in_system] = np.where(asks, CODE[INPUT], CODE[SYSTEM])
    callee = scatter(len(_call_names(run).texts) + called.codes, in_system, len(points))
    in_call = np.flatnonzero(call != NONE)
    cause[in_call] = _of_calls(run)[call[in_call]]
    callee[in_call] = _call_names(run).compact[call[in_call]]
    cause[_ends_lock(run)[run.hosts + points] & (call == NONE)] = CODE[LOCK]
    loads = _loading(run)[node]
    guessed = _waits_for_data(run)[points] & (cause != CODE[LOCK])
    is_loading = ((loads != NONE) | guessed) & (cause > CODE[LOADING])
    op[is_loading] = lookup(attributed.node_op, loads[is_loading])
    is_loading |= run.loads[points] & (cause > CODE[LOADING])
    cause[is_loading] = CODE[LOADING]
    callee[~np.isin(cause, NAMED)] = NONE
    return cause, op, callee, host.stack[points].astype(np.int64)


def _call_names(run: Run) -> Names:
    return run.work.attributed.capture.launches.name


@once
def _of_calls(run: Run) -> NDArray[np.int8]:
    """Return the cause that each API call is."""
    of_state = [CODE[OF_CALL.get(state, CALLING)] for state in range(max(OF_CALL) + 1)]
    return np.array(of_state, np.int8)[call_states(run.work.attributed)]


@once
def _ends_lock(run: Run) -> Flags:
    """Return which points end a wait for Python's lock."""
    result = np.zeros(len(run.graph), bool)
    result[run.releases.python] = True
    return result


@once
def _waits_for_data(run: Run) -> Flags:
    """Return whether each point of the host lies in a wait in no op that recurs between launches, and that nobody ends.

    Such a wait is one for a loader in another process, but for one for requests.
    """
    host = run.host
    names = run.work.attributed.capture.system_calls.name
    waits = [WAITING.fullmatch(str(name)) is not None for name in names.texts]
    serves = [
        any(kind.fullmatch(str(name)) for kind in (SERVING, LOCKING, JOINING))
        for name in names.texts
    ]
    may = np.array([*(np.array(waits, bool) & ~np.array(serves, bool)), False], bool)
    if not may.any():
        return np.zeros(len(host.time), bool)
    name = lookup(names.codes, host.system)
    result: Flags = (
        may[name] & (host.call == NONE) & (run.graph.cross[run.hosts :][: len(name)] == NONE)
    )
    result &= lookup(run.work.own_op, host.node) == NONE
    rows = np.flatnonzero(result)
    stack = host.stack[rows].astype(np.int64)
    site, _ = number_groups(stack, name[rows])
    begun, ended = _issuing(run)
    recurs = (host.time[rows] > begun[stack]) & (host.time[rows] < ended[stack])
    result[rows] = (np.bincount(site, recurs) >= MIN_PACED)[site] if len(rows) else False
    return result


def _issuing(run: Run) -> tuple[Ints, Ints]:
    """Return when each stack issued its first work and its last, -1 for none."""
    work = run.work
    calls = np.flatnonzero(work.issues)
    stack, size = work.attributed.attribution.stack[calls], len(work.process_of_stacks)
    time = work.call_start[calls]
    return lowest(stack, time, size), highest(stack, time, size)


@once
def _loading(run: Run) -> Integers:
    """Return the outermost op that loads data at or around each node, else NONE; the last entry is for no node."""
    return _outermost(run.work.attributed, is_data_loading(run.work.attributed))


@once
def _compiling(run: Run) -> Integers:
    """Return the outermost compilation at or around each node, else NONE; the last entry is for no node."""
    return _outermost(run.work.attributed, is_compilation(run.work.attributed))


def _outermost(attributed: AttributedCapture, has_flag: Flags) -> Integers:
    nesting, has = attributed.attribution.nesting, has_flag[attributed.node_op]
    if not has.any():
        return np.broadcast_to(np.int8(NONE), len(has) + 1)
    return np.append(outermost_above(nesting.own_parent, has), NONE)


def _first_gpu(run: Run) -> int:
    """Return the place of the first GPU in `_callees`."""
    capture = run.work.attributed.capture
    return len(capture.launches.name.texts) + len(capture.system_calls.name.texts)


def _callees(run: Run) -> list[str]:
    """Return the names of API calls, of calls of the operating system, and of GPUs."""
    capture = run.work.attributed.capture
    tables = (capture.launches, capture.system_calls)
    names = [str(name) for table in tables for name in table.name.texts]
    return [*names, *Devices.of_report(run.work.attributed).names]


# -- What was recorded beside calls and ranges


def _with_code_between_polls(run: Run, pieces: _Pieces) -> _Pieces:
    """Return pieces cut where the host runs between two of the calls by which it asks whether an event has come."""
    work = run.work
    polls, attributed = work.polls, work.attributed
    if not polls.inner.any():
        return pieces
    is_poll = polls.inner.copy()
    is_poll[polls.first] = True
    calls = np.flatnonzero(is_poll)
    calls = calls[order_by(attributed.attribution.stack[calls], work.call_start[calls])]
    report = attributed.capture.launches.report[calls]
    end = call_ends(attributed)[calls] + work.offset[report]
    following = np.flatnonzero(polls.inner[calls])
    timeline = Timeline.of(
        attributed.attribution.stack[calls[following]],
        end[following - 1],
        work.call_start[calls[following]],
        repeated(1, len(following)),
    )
    asks = np.isin(pieces.cause, (CODE[SYNC], CODE[CALLING])) & (pieces.stack != NONE)
    cut = timeline.cut(*(getattr(pieces, c)[asks] for c in ("stack", "start", "end")))
    inner = pieces.take(asks).cut(cut)
    code = cut.state == 1
    of_code = np.where(inner.op == NONE, CODE[HOST], CODE[OP])
    inner = replace(
        inner,
        cause=np.where(code, of_code, inner.cause),
        callee=np.where(code, NONE, inner.callee),
    )
    return _joined(pieces.take(~asks), inner)


def _with_recorded(run: Run, pieces: _Pieces) -> _Pieces:
    """Return pieces cut where waits for Python's lock and the profiler's own work were recorded on their thread."""
    timeline = _recorded(run)
    if not len(timeline.stack):
        return pieces
    on_host = pieces.stack != NONE
    host = pieces.take(on_host)
    cut = timeline.cut(host.stack, host.start, host.end)
    host = host.cut(cut)
    cause = _cause(cut.state)
    counts = cause < host.cause
    host = replace(
        host,
        cause=np.where(counts, cause, host.cause),
        op=np.where(counts, _innermost(run, host.point), host.op),
        callee=np.where(counts, NONE, host.callee),
    )
    return _joined(pieces.take(~on_host), host)


@once
def _recorded(run: Run) -> Timeline:
    """Return the waits for Python's lock and the profiler's own work, as states of the threads."""
    capture = run.work.attributed.capture
    ranges = capture.ranges
    locks = ranges.take(is_of_lock(ranges) & ranges.name.among(frames.WAITS_FOR_GIL))
    tables: dict[str, frames.HostEvents] = {LOCK: locks, PROFILER: capture.overhead}
    found: list[tuple[Ints, Ints, Ints, Ints]] = []
    for cause, table in tables.items():
        stack = stacks_of(run.work.attributed, table)
        shift = run.work.offset[table.report]
        start, end = (table[c] + shift for c in ("start", "end"))
        kind = repeated(_state(CODE[cause]), len(table))
        known = stack != NONE
        found.append((stack[known], start[known], end[known], kind[known]))
    return Timeline.of(*(np.concatenate(column) for column in zip(*found, strict=True)))


def _innermost(run: Run, point: Ints) -> Ints:
    """Return the innermost op of each point: that which is open right before, of a device that of its API call."""
    work, is_host = run.work, point >= run.hosts
    place = lookup(run.device.activity, np.where(is_host, NONE, point))
    call = lookup(work.launch, place)
    of_call = lookup(work.attributed.launch_node, call)
    of_host = lookup(run.host.node, np.where(is_host, point - run.hosts, NONE))
    op: Ints = lookup(work.attributed.node_op, np.where(is_host, of_host, of_call))
    return op


def _state(cause: Ints | int) -> Any:
    """Return a cause as a state of a `Timeline`, in which the largest counts and 0 is none; `_cause` undoes it."""
    return len(WORDS) - cause


_cause = _state


# -- Waits that say more than what they wait for


def _with_telling(pieces: _Pieces, waits: _Pieces) -> _Pieces:
    """Return pieces with the cause of waits during which others work: for a loader, Python's lock, another rank."""
    if not len(waits.gap):
        return pieces
    waits = waits.take(order_by(waits.gap, waits.cause, waits.start))
    timeline = Timeline.of(waits.gap, waits.start, waits.end, _state(waits.cause))
    cut = timeline.cut(pieces.gap, pieces.start, pieces.end)
    pieces, cause = pieces.cut(cut), _cause(cut.state)
    rows = np.flatnonzero(cause < pieces.cause)
    group, _ = number_groups(
        np.concatenate((waits.gap, pieces.gap[rows])), np.concatenate((waits.cause, cause[rows]))
    )
    order = order_by(group[: len(waits.gap)], waits.start)
    size = len(waits.gap)
    place = search_groups(
        group[:size][order], waits.start[order], group[size:], pieces.start[rows], side="right"
    )
    by = waits.take(order[place - 1])
    for column in ("cause", "op", "callee", "stack"):
        getattr(pieces, column)[rows] = getattr(by, column)
    return pieces


def _waiting(run: Run, pieces: _Pieces) -> tuple[Ints, Rows]:
    """Return the pieces in which a thread returns from a wait, and the points that ended these waits."""
    graph = run.with_locks
    rows = np.flatnonzero((pieces.point >= run.hosts) & graph.by_cross[pieces.point])
    rows = rows[graph.chained[pieces.point[rows]]]
    return rows, graph.cross[pieces.point[rows]]


def _with_late_ranks(run: Run, pieces: _Pieces) -> _Pieces:
    """Return pieces, those with a late rank in which a thread returns from a wait for another process with work."""
    rows, other = _waiting(run, pieces)
    process = np.append(run.work.process_of_stacks, NONE)
    by = lookup(run.host.stack, np.where(other < run.hosts, NONE, other - run.hosts))
    other_process = (by != NONE) & (process[by] != process[pieces.stack[rows]])
    late = rows[other_process]
    if len(late):
        late = late[_launches_work(run)[by[other_process]]]
    cause, callee = pieces.cause.copy(), pieces.callee.copy()
    cause[late], callee[late] = CODE[LATE_RANK], NONE
    return replace(pieces, cause=cause, callee=callee)


def _with_late_arrivals(run: Run, pieces: _Pieces) -> _Pieces:
    """Return pieces, those of collectives cut where the last rank came, by a graph that leaves that out."""
    if not len(Met.of(run.work).waiting):
        return pieces
    place = lookup(run.device.activity, np.where(pieces.point < run.hosts, pieces.point, NONE))
    came = _last_came(run)[place]
    rows = (pieces.point == lookup(run.device.end, place)) & (came > pieces.start)
    if not rows.any():
        return pieces
    here, came = pieces.take(rows), np.minimum(came[rows], pieces.end[rows])
    late = replace(here, end=came, cause=repeated(CODE[LATE_RANK], len(came)))
    return _joined(pieces.take(~rows), late, replace(here, start=came))


@once
def _last_came(run: Run) -> Ints:
    """Return when the last rank came to the collective of each activity, by its place; the last entry is for none."""
    met = Met.of(run.work)
    result = np.full(len(run.work.row) + 1, NEVER)
    last = run_edges(met.of_awaited)[1:] - 1
    of_waiting = np.searchsorted(met.of_awaited[last], met.of_waiting)
    result[met.waiting] = run.work.start[met.awaited[last[of_waiting]]]
    return result


@once
def _launches_work(run: Run) -> Flags:
    """Return whether work was launched in the process of each stack; the last entry is for none."""
    process, launch = np.append(run.work.process_of_stacks, NONE), run.work.launch
    launched = run.work.attributed.attribution.stack[launch[launch != NONE]]
    return np.isin(process, process[launched])


def _waits(run: Run, gaps: _Gaps, pieces: _Pieces) -> _Pieces:
    """Return the time of waits up to what ended them."""
    rows, other = _waiting(run, pieces)
    found = pieces.take(rows)
    call = run.host.call[found.point - run.hosts]
    begin = lookup(run.work.call_start, call, 0)
    begin = np.where(call == NONE, run.graph.time[found.point - 1], begin)
    start, end = np.maximum(begin, gaps.start[found.gap]), run.graph.time[other]
    return replace(found, start=start, end=end).take(end > start)


def _joined(*parts: _Pieces) -> _Pieces:
    """Return the pieces of all parts that last."""
    some = [part for part in parts if len(part.gap)] or parts[:1]
    names = [field.name for field in fields(_Pieces)]
    pieces = some[0]
    if len(some) > 1:
        columns = (np.concatenate([getattr(part, name) for part in some]) for name in names)
        pieces = _Pieces(*columns)
    lasts = pieces.end > pieces.start
    return pieces if lasts.all() else pieces.take(lasts)


@once
def _offset_of_stacks(run: Run) -> Ints:
    """Return what is added to the times of each stack of the nesting; the last entry is for none."""
    attribution, capture = run.work.attributed.attribution, run.work.attributed.capture
    nesting = attribution.nesting
    offset = np.zeros(len(run.work.process_of_stacks) + 1, np.int64)
    offset[attribution.stack] = run.work.offset[capture.launches.report]
    offset[nesting.stack] = run.work.offset[capture.ranges.report[nesting.range]]
    return offset
