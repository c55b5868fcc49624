"""Rules about copies, waits of the host, and nearly full memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from bridge.analyze.checks.advice import rule
from bridge.analyze.checks.advice.facts import Evidence
from bridge.analyze.checks.advice.rule import (
    NSIGHT_BRIDGE,
    NSYS,
    TENSORBOARD,
    Finding,
)
from bridge.analyze.checks.check import Check
from bridge.analyze.core.groups import Floats, highest, sums
from bridge.analyze.core.kinds import BLOCKING, COPYING, LAUNCHING, WRITING, calls_matching
from bridge.analyze.run import interventions
from bridge.analyze.run.critical.graph import NEVER
from bridge.analyze.run.critical.retiming import Change, Draft
from bridge.analyze.run.critical.run import Run
from bridge.importers import frames
from bridge.importers.arrays import lookup, scatter
from bridge.importers.frames import Names
from bridge.join.arrays import NONE, Flags, Ints, number_groups, order_by, run_edges

SYNC_FILL = re.compile(r"cu(?:da)?Memset(?!\w*Async)\w*")
NAMED_NEED = re.compile(
    r".*(?:is_nonzero|converge|decide|condition|branch|stop|early|bool).*", re.IGNORECASE
)
PAGEABLE, PINNED = (frames.MEMORY_KINDS.index(kind) for kind in ("pageable", "pinned"))
TO_DEVICE, TO_HOST = 1, 2  # copy kinds of nsys
MANAGED = (11, 12)  # copy kinds of pages that move by themselves
PINNED_BYTES_PER_NS = (
    12.0  # of pinned memory over PCIe 3.0 x16, as NVIDIA's bandwidthTest measures it
)
# Of a copy whose content is written to a file; less are numbers to be logged.
MIN_WRITTEN_BYTES = 1 << 20
MAX_WRITTEN_BYTES_PER_NS = 40  # of a file in the memory of the host: nothing is faster
SNAPSHOT_BYTES_PER_NS = 500  # of a copy within the memory of a GPU
MAX_NUMBER_BYTES = 16  # bytes of a value that a program may read to decide
KEPT = 20  # of so many values that are read back one is
SMALL_BYTES, MANY = (
    65_536,
    10,
)  # copies that could be packed: how large, and how many in one call of an op
MIN_ONCE_NS = 20_000_000  # paid once, from which on it is worth a change
MOSTLY = 0.5
ALIKE = 2  # times what comes later: too large to be one of them
MIN_WAITS = 3  # fewer are no habit
MOST = 4  # groups of waits that are looked at
CALL_NS = 8_000  # an asynchronous copy takes at most on the host


# -- Waits of the host


def _needed(evidence: Evidence) -> Flags:
    """Return whether each API call ends a wait of its thread in which a copy to the host has ended.

    The program may need the value at once.
    """
    run = evidence.run
    work, stack = run.work, evidence.attributed.attribution.stack
    to_host = np.flatnonzero((work.column("copy_kind") == TO_HOST) & (work.launch != NONE))
    result = np.zeros(len(work.call_start), bool)
    rows = np.flatnonzero(run.waits.waits)
    rows = rows[order_by(stack[rows], work.call_end[rows])]
    ended = np.sort(work.end[to_host])
    for first, last in pairwise(run_edges(stack[rows]).tolist()):  # one iteration per thread
        end = work.call_end[rows[first:last]]
        before = np.searchsorted(ended, end, side="right")
        result[rows[first:last]] = np.diff(before, prepend=0) > 0
    return result


def _groups_of_waits(evidence: Evidence, calls: Ints) -> Iterator[Ints]:
    """Yield calls in groups by name and op, those that waited longest first."""
    names = evidence.capture.launches.name.codes[calls]
    op = lookup(evidence.own_op, evidence.attributed.launch_node[calls])
    group, first = number_groups(names, op)
    work = evidence.run.work
    total = sums(group, (work.call_end - work.call_start)[calls], len(first))
    for one in order_by(-total)[:MOST].tolist():
        yield calls[group == one]


def _in_iterations(evidence: Evidence, calls: Ints) -> Ints:
    run = evidence.run
    has_point = run.host.returned[calls] != NONE
    calls = calls[has_point]
    return calls[evidence.in_iterations(run.hosts + run.host.returned[calls])]


def synchronizations(evidence: Evidence) -> Iterator[Finding]:
    """Yield calls that wait for the device, by name and op; what follows a copy to the host has no estimate."""
    run = evidence.run
    work, needed = run.work, _needed(evidence)
    calls = np.flatnonzero(run.waits.waits & ~work.issues & ~work.polls.inner)
    calls = calls[~np.isin(calls, _after_copies(evidence)[1])]
    for group in _groups_of_waits(evidence, _in_iterations(evidence, calls)):
        if len(group) < MIN_WAITS:
            continue
        change = _without(evidence, group)
        is_needed = needed[group].mean() >= MOSTLY
        figures = {
            "call": _name(evidence, group),
            "waits": len(group),
            "waited_ns": int((work.call_end - work.call_start)[group].sum()),
            "needed": "; the program copies to the host before: only if the values are not needed at once"
            if is_needed
            else "",
        }
        yield Finding(
            figures,
            rule.call_table(evidence, group),
            change=None if is_needed else change,
            limit=change,
        )


def _name(evidence: Evidence, calls: Ints) -> str:
    return evidence.capture.launches.name[int(calls[0])]


def _without(evidence: Evidence, calls: Ints) -> Change:
    mask = np.zeros(len(evidence.run.work.call_start), bool)
    mask[calls] = True
    return interventions.without_calls(evidence.run, mask)


def _after_copies(evidence: Evidence) -> tuple[Ints, Ints]:
    """Return API calls that copy, and the wait of their thread that follows each as its next call, or NONE."""
    run, stack = evidence.run, evidence.attributed.attribution.stack
    copying = np.flatnonzero(calls_matching(evidence.attributed, COPYING) & run.work.issues)
    order = order_by(stack, run.work.call_start)
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    following = lookup(order, position[copying] + 1)
    is_wait = (following != NONE) & lookup(run.waits.waits & ~run.work.issues, following, False)
    is_wait &= lookup(stack, following) == stack[copying]
    return copying, np.where(is_wait, following, NONE)


def numbers_read(evidence: Evidence) -> Iterator[Finding]:
    """Yield single numbers that the host reads back, for which it waits for the device, by call and op."""
    activities, launch = evidence.capture.activities, evidence.attributed.attribution.launch
    size = activities.bytes
    is_small = (activities.copy_kind == TO_HOST) & (size > 0) & (size <= MAX_NUMBER_BYTES)
    rows = np.flatnonzero(evidence.is_kind(frames.MEMCPY) & is_small & (launch != NONE))
    copying, following = _after_copies(evidence)
    wait_of = scatter(following, copying, len(evidence.call_time))
    waits = evidence.run.waits.waits
    calls = np.unique(launch[rows])
    calls = calls[waits[calls] | (wait_of[calls] != NONE)]
    row_of = scatter(rows, launch[rows], len(evidence.call_time))
    for group in _groups_of_waits(evidence, _in_iterations(evidence, calls)):
        both = np.unique(np.concatenate((group, wait_of[group][wait_of[group] != NONE])))
        ends = evidence.run.device.end[evidence.run.work.place[row_of[group]]]
        gone = np.flatnonzero(np.arange(1, len(group) + 1) % KEPT)
        left_out = np.concatenate((group[gone], wait_of[group[gone]]))
        calls_change = _without(evidence, left_out[left_out != NONE])
        all_change = _without(evidence, both)
        op = evidence.own_op_name(int(group[0]))
        figures = {
            "numbers": len(group),
            "in_op": f" in {op}" if op else "",
            "held_ns": int(evidence.call_time[both].sum()),
            "needed": "; the name says that it decides what follows"
            if NAMED_NEED.fullmatch(op)
            else "",
        }
        change = interventions.together((calls_change, _removing(ends[gone])))
        limit = interventions.together((all_change, _removing(ends)))
        table = rule.activity_table(evidence, row_of[group])
        yield Finding(figures, table, change=None if figures["needed"] else change, limit=limit)


def _removing(points: Ints) -> Change:
    return lambda draft: draft.remove(points)


# -- Copies


def _kinds(evidence: Evidence) -> tuple[Ints, Ints]:
    return evidence.capture.activities.source_kind, evidence.capture.activities.target_kind


def _copies(evidence: Evidence, *, pageable: bool) -> Flags:
    kind = PAGEABLE if pageable else PINNED
    source, target = _kinds(evidence)
    flags: Flags = evidence.is_kind(frames.MEMCPY) & ((source == kind) | (target == kind))
    return flags


def pageable_copies(evidence: Evidence) -> Iterator[Finding]:
    """Yield copies of pageable memory, which the host stages: they could be of pinned memory, and asynchronous."""
    run, launch = evidence.run, evidence.attributed.attribution.launch
    rows = np.flatnonzero(
        _copies(evidence, pageable=True) & (launch != NONE) & (run.work.place != NONE)
    )
    once = ~evidence.in_iterations(run.device.end[run.work.place[rows]]) | _sets_up(evidence, rows)
    for is_once in (False, True):
        part = rows[once == is_once]
        if len(part):
            yield _as_pinned(evidence, part, once=is_once)


def _sets_up(evidence: Evidence, rows: Ints) -> Flags:
    """Return whether each memcpy is called in the first iteration or before, and twice as large as all later ones of its direction.

    Without ranges of steps the copy of weights before a loop cannot be told from the first input by its name.
    """
    table, run = evidence.capture.activities, evidence.run
    size, kind = table.bytes[rows], table.copy_kind[rows]
    direction = np.maximum(kind, 0)
    calls = evidence.attributed.attribution.launch[rows]
    early = evidence.is_early(
        evidence.attributed.attribution.stack[calls], run.work.call_start[calls]
    )
    later = highest(direction[~early], size[~early], int(direction.max(initial=0)) + 1, empty=0)
    result: Flags = early & (size >= ALIKE * later[direction])
    return result


def _as_pinned(evidence: Evidence, rows: Ints, *, once: bool) -> Finding:
    run, launch = evidence.run, evidence.attributed.attribution.launch
    size = np.maximum(evidence.capture.activities.bytes[rows], 0)
    direction = evidence.capture.activities.copy_kind[rows]
    rate = np.array(
        [*(_pinned_rate(evidence, kind) for kind in range(TO_HOST + 1)), PINNED_BYTES_PER_NS]
    )
    pinned = np.minimum(
        evidence.time[rows], (size / rate[np.clip(direction, 0, 3)]).astype(np.int64) + 1_200
    )
    ends = run.device.end[run.work.place[rows]]
    calls = np.zeros(len(run.work.call_start), bool)
    calls[launch[rows][direction == TO_DEVICE]] = True
    points = interventions.call_points(run, calls)

    def change(draft: Draft) -> None:
        draft.limit(ends, pinned)
        draft.cut(points)
        draft.limit(points, CALL_NS)

    def limit(draft: Draft) -> None:
        change(draft)
        draft.remove(points)
        draft.remove(ends)

    stack = evidence.attributed.attribution.stack[launch[rows]]
    taken = np.maximum(evidence.time[rows], evidence.call_time[launch[rows]])
    held = evidence.max_over_threads(stack, taken)
    figures = {
        "memcpys": len(rows),
        "moved_bytes": int(size.sum()),
        "call": _name(evidence, launch[rows]),
        "held_ns": held,
    }
    table = rule.activity_table(evidence, rows)
    is_small = once and held < MIN_ONCE_NS
    return Finding(figures, table, change=None if is_small else change, limit=limit, once=once)


def _pinned_rate(evidence: Evidence, direction: int) -> float:
    """Return how fast pinned memory moves in this report in bytes per ns, else as fast as it does on any machine."""
    activities = evidence.capture.activities
    rows = np.flatnonzero(
        _copies(evidence, pageable=False)
        & ~_copies(evidence, pageable=True)
        & (activities.copy_kind == direction)
        & (activities.bytes > SMALL_BYTES)
    )
    size = activities.bytes[rows].sum()
    return float(size / max(1, evidence.time[rows].sum())) if size else PINNED_BYTES_PER_NS


def written_results(evidence: Evidence) -> Finding | None:
    """Find what a thread copies to the host and writes to files before it issues more work."""
    run, launch = evidence.run, evidence.attributed.attribution.launch
    size = evidence.capture.activities.bytes
    is_large = (evidence.capture.activities.copy_kind == TO_HOST) & (size >= MIN_WRITTEN_BYTES)
    rows = np.flatnonzero(
        evidence.is_kind(frames.MEMCPY) & is_large & (launch != NONE) & (run.work.place != NONE)
    )
    rows = rows[evidence.in_iterations(run.device.end[run.work.place[rows]])]
    written = _written_after(evidence, launch[rows])
    rows, written = rows[written != NONE], written[written != NONE]
    goes_on = _issues_later(evidence, launch[rows])
    largest = int(size[rows[goes_on]].max(initial=0))  # what is larger is the result of the run
    repeated = goes_on | (size[rows] <= ALIKE * largest)
    rows, written = rows[repeated], written[repeated]
    if not len(rows):
        return None
    calls = np.unique(launch[rows])
    begin = run.host.returned[launch[rows]]
    inside = np.zeros(len(run.host.time) + 1, np.int64)
    np.add.at(inside, begin + 1, 1)
    np.add.at(inside, written + 1, -1)
    mask = np.zeros(len(evidence.call_time), bool)
    mask[calls] = True
    here = np.flatnonzero(np.cumsum(inside)[:-1] > 0)
    writes = here[_is_writing(evidence)[here]]
    if MAX_WRITTEN_BYTES_PER_NS * int(run.host_delay[writes].sum()) < int(size[rows].sum()):
        return None  # that is too little time to write what was copied: something else was written
    points = np.union1d(interventions.call_points(run, mask), run.hosts + here)
    ends = run.device.end[run.work.place[rows]]
    snapshot = size[rows] // SNAPSHOT_BYTES_PER_NS

    kept, stays = _written_last(run, begin, written)
    mask[calls] = np.isin(calls, launch[rows[np.isin(begin + run.hosts, kept - 1)]])
    gone = np.setdiff1d(points, np.union1d(interventions.call_points(run, mask), kept))

    def change(draft: Draft) -> None:
        draft.scale(kept, stays)
        draft.remove(gone)
        draft.cut(gone)
        draft.limit(ends, snapshot)

    names = evidence.capture.system_calls.name
    figures = {
        "memcpys": len(rows),
        "moved_bytes": int(size[rows].sum()),
        "call": _name(evidence, calls),
        "write": names[run.host.system[writes[-1]]],
        "held_ns": int(run.graph.delay[points].sum()),
    }
    return Finding(figures, rule.activity_table(evidence, rows), change=change)


def _written_last(run: Run, begin: Ints, written: Ints) -> tuple[Ints, Floats]:
    """Return the points behind the last copy of each thread until it is written, and what share of their time is left.

    ``begin`` and ``written`` are those between which each copy is written. The run ends no sooner, whatever else is
    done meanwhile.
    """
    points, shares = [np.empty(0, np.int64)], [np.empty(0)]
    thread = run.host.threads(written)
    order = np.lexsort((begin, written))  # one thread after the other
    for last in order[run_edges(thread[order])[1:] - 1].tolist():  # one iteration per thread
        behind = run.hosts + np.arange(begin[last] + 1, written[last] + 1)
        length = int(run.graph.delay_of(behind).sum())
        left = length - (run.last - int(run.host.time[written[last]]))
        if left > 0:
            points.append(behind)
            shares.append(np.full(len(behind), left / length))
    return np.concatenate(points), np.concatenate(shares)


def _written_after(evidence: Evidence, calls: Ints) -> Ints:
    """Return the last point of the host at which a thread writes to a file, after each call and before it launches more.

    NONE where it writes nothing; other copies to the host may lie between.
    """
    run, is_writing = evidence.run, _is_writing(evidence)
    if not is_writing.any():
        return np.full(len(calls), NONE)
    host, work = run.host, run.work
    copying = np.zeros(len(work.call_start), bool)
    copying[calls] = True
    issues = lookup(work.issues & ~copying, host.call, False)
    last = len(host.time)
    stops = np.append(np.flatnonzero(issues | ~host.chained), last)
    writes = np.maximum.accumulate(np.where(is_writing, np.arange(last), NONE))
    begin = host.returned[calls]
    known = begin != NONE
    stop = stops[np.searchsorted(stops, begin[known], side="right")]
    written = writes[np.minimum(stop, last) - 1]
    return scatter(np.where(written > begin[known], written, NONE), known, len(calls))


def _issues_later(evidence: Evidence, calls: Ints) -> Flags:
    """Return whether a thread launches kernels after each call."""
    run, stack = evidence.run, evidence.attributed.attribution.stack
    launching = np.flatnonzero(calls_matching(evidence.attributed, LAUNCHING))
    start, size = run.work.call_start[launching], int(stack.max(initial=0)) + 1
    latest = highest(stack[launching], start, size, empty=NEVER)
    result: Flags = run.work.call_start[calls] < latest[stack[calls]]
    return result


def _is_writing(evidence: Evidence) -> Flags:
    """Return whether a thread writes to a file right before each point of the host."""
    host, names = evidence.run.host, evidence.capture.system_calls.name
    writes = [WRITING.fullmatch(str(name)) is not None for name in names.texts]
    name = lookup(names.codes, host.system)
    result: Flags = np.array([*writes, False], bool)[name] & (host.call == NONE)
    return result


def blocking_copies(evidence: Evidence) -> Finding | None:
    """Find copies to the device for which the host waits: by the call itself, or by the next call of its thread."""
    run, launch = evidence.run, evidence.attributed.attribution.launch
    kind = evidence.capture.activities.copy_kind
    copying, following = _after_copies(evidence)
    waits = np.zeros(len(run.work.call_start), bool)
    waits[copying[following != NONE]] = True
    waits |= calls_matching(evidence.attributed, BLOCKING)
    selected = _copies(evidence, pageable=False) & (kind == TO_DEVICE) & (launch != NONE)
    selected &= waits[launch] & (run.work.place != NONE)
    rows = np.flatnonzero(selected)
    rows = rows[evidence.in_iterations(run.device.end[run.work.place[rows]])]
    if not len(rows):
        return None
    calls = np.unique(launch[rows])
    later = following[np.isin(copying, calls)]
    both = np.unique(np.concatenate((calls, later[later != NONE])))
    mask = np.zeros(len(waits), bool)
    mask[both] = True
    points = interventions.call_points(run, mask)
    selected = np.zeros(len(evidence.time), bool)
    selected[rows] = True

    def asynchronous(draft: Draft) -> None:
        draft.cut(points)
        draft.limit(points, CALL_NS)

    change = interventions.beside(run, selected, asynchronous)
    total = evidence.max_over_threads(
        evidence.attributed.attribution.stack[both], evidence.call_time[both]
    )
    figures = {
        "calls": len(calls),
        "held_ns": total,
        "held_share": total / max(1, evidence.wall_ns),
    }
    return Finding(figures, rule.call_table(evidence, both), change=change)


def blocking_fills(evidence: Evidence) -> Finding | None:
    """Find memsets by the call that may wait for them."""
    calls = _in_iterations(evidence, np.flatnonzero(evidence.calls_matching(SYNC_FILL)))
    if not len(calls):
        return None
    total = evidence.max_over_threads(
        evidence.attributed.attribution.stack[calls], evidence.call_time[calls]
    )
    figures = {
        "calls": len(calls),
        "held_ns": total,
        "held_share": total / max(1, evidence.wall_ns),
    }
    mask = np.zeros(len(evidence.call_time), bool)
    mask[calls] = True
    points = interventions.call_points(evidence.run, mask)

    def change(draft: Draft) -> None:
        draft.cut(points)
        draft.limit(points, CALL_NS)

    return Finding(figures, rule.call_table(evidence, calls), change=change)


def small_copies(evidence: Evidence) -> Finding | None:
    """Find copies of small pieces, many in one call of an op or of a step, which could be one copy."""
    run, attribution = evidence.run, evidence.attributed.attribution
    size = evidence.capture.activities.bytes
    kind = evidence.capture.activities.copy_kind
    small = (
        evidence.is_kind(frames.MEMCPY)
        & (size <= SMALL_BYTES)
        & np.isin(kind, (TO_DEVICE, TO_HOST))
    )
    rows = np.flatnonzero(small & (attribution.launch != NONE) & (run.work.place != NONE))
    if not len(rows):
        return None
    rows = rows[order_by(run.work.place[rows])]
    node = attribution.node[rows]
    change_of = np.ones(len(rows), bool)
    place = run.work.place[rows]
    change_of[1:] = (
        (place[1:] != place[:-1] + 1)
        | (node[1:] != node[:-1])
        | (kind[rows][1:] != kind[rows][:-1])
    )
    group = np.cumsum(change_of) - 1
    many = np.bincount(group) >= MANY
    rows, change_of = rows[many[group]], change_of[many[group]]
    if not len(rows):
        return None
    return _packed(evidence, rows, change_of)


def _packed(evidence: Evidence, rows: Ints, is_first: Flags) -> Finding:
    run, attribution = evidence.run, evidence.attributed.attribution
    place = run.work.place[rows]
    rest = ~is_first
    ends, starts = run.device.end[place[rest]], run.device.start[place[rest]]
    size = np.maximum(evidence.capture.activities.bytes[rows], 0)
    moving = (size / PINNED_BYTES_PER_NS).astype(np.int64)[rest]
    calls = np.zeros(len(run.work.call_start), bool)
    calls[attribution.launch[rows[rest]]] = True
    points = interventions.call_points(run, calls)
    code = interventions.code_between(run, calls)
    share = 1 / max(1.0, len(rows) / max(1, int(is_first.sum())))

    def change(draft: Draft) -> None:
        draft.limit(ends, moving)
        draft.remove(starts)
        draft.remove(points)
        draft.scale(code, share)

    def limit(draft: Draft) -> None:
        change(draft)
        draft.remove(ends)

    figures = {
        "memcpys": len(rows),
        "moved_bytes": int(size.sum()),
        "held_ns": int(evidence.call_time[attribution.launch[rows]].sum()),
    }
    return Finding(figures, rule.activity_table(evidence, rows), change=change, limit=limit)


def page_faults(evidence: Evidence) -> Finding | None:
    """Find pages of managed memory that move while kernels run, which wait for them."""
    run = evidence.run
    work = run.work
    pages = np.flatnonzero(np.isin(work.column("copy_kind"), MANAGED) & (work.launch == NONE))
    kernels = np.flatnonzero(run.computing[work.row])
    if not len(pages) or not len(kernels):
        return None
    kernels = kernels[order_by(run.gpu_of_place[kernels], work.start[kernels])]
    gpu, start = run.gpu_of_place, work.start
    key = start[kernels] + (gpu[kernels] * (int(work.end.max()) + 1))
    at = (
        np.searchsorted(key, start[pages] + gpu[pages] * (int(work.end.max()) + 1), side="right")
        - 1
    )
    kernel = kernels[np.maximum(at, 0)]
    inside = (at >= 0) & (gpu[kernel] == gpu[pages]) & (work.end[pages] <= work.end[kernel])
    pages, kernel = pages[inside], kernel[inside]
    if not len(pages):
        return None
    group, first = number_groups(kernel)
    low = np.full(len(first), np.iinfo(np.int64).max)
    np.minimum.at(low, group, work.start[pages])
    high = np.zeros(len(first), np.int64)
    np.maximum.at(high, group, work.end[pages])
    size = sums(group, np.maximum(work.column("bytes")[pages], 0), len(first))
    slow = kernel[first]
    length = work.end[slow] - work.start[slow]
    faster = np.clip(
        length - (high - low) + (size / PINNED_BYTES_PER_NS).astype(np.int64), 0, length
    )
    ends = run.device.end[slow]
    rows = work.row[slow]
    figures = {
        "kernels": len(slow),
        "pages": len(pages),
        "moved_bytes": int(size.sum()),
        "kernels_ns": int(length.sum()),
    }

    def change(draft: Draft) -> None:
        draft.limit(ends, faster)

    return Finding(
        figures, rule.activity_table(evidence, rows), change=change, limit=_removing(ends)
    )


ESTIMATE = "the run without these waits"

RULES = (
    Check(
        name="pageable-memcpys",
        title="Memcpys use pageable memory",
        when="a memcpy is from or to pageable memory of the host",
        text="memcpys of pageable memory by {call}: {memcpys}, {moved_bytes}; they block the host for up to {held_ns}",
        remedy="pin host memory: DataLoader(pin_memory=True) and .to(device, non_blocking=True); cudaHostAlloc in C++",
        estimate="the run if the same bytes moved as fast as pinned memory (in the report, else 12 GB/s), and the host did not stage them",
        source=NSYS,
        needs=("calls", "memory kinds", "graph"),
        find=pageable_copies,
        remedy_elsewhere="pin host memory: cudaHostAlloc, or cudaHostRegister for memory that is there already",
    ),
    Check(
        name="synchronous-memcpys",
        title="The host waits for memcpys to the device",
        when="a memcpy of pinned memory to the device is called synchronously, or the next call of its thread waits",
        text="calls: {calls}; they block a thread for {held_ns}, {held_share} of the run",
        remedy="use cudaMemcpyAsync on a stream of its own, and let the work that needs the data wait for an event; in PyTorch .to(device, non_blocking=True)",
        estimate="the run without these waits, and with the memcpys beside kernels",
        source=NSYS,
        needs=("calls", "memory kinds", "graph"),
        find=blocking_copies,
        remedy_elsewhere="use cudaMemcpyAsync on a stream of its own, and let the work that needs the data wait for an event",
    ),
    Check(
        name="synchronous-memsets",
        title="Synchronous memsets may block the host",
        when="a memset is called synchronously",
        text="calls: {calls}; they block a thread for {held_ns}, {held_share} of the run",
        remedy="use cudaMemsetAsync on the stream that needs the memory",
        estimate=ESTIMATE,
        source=NSYS,
        needs=("calls", "graph"),
        find=blocking_fills,
    ),
    Check(
        name="small-memcpys",
        title="Many small memcpys follow one another",
        when=f"{MANY} memcpys of at most {SMALL_BYTES // 1024} KiB or more follow one another in a call of an op",
        text="small memcpys: {memcpys}, {moved_bytes} in all; their calls take {held_ns}",
        remedy="pack the pieces into one buffer, and copy that at once",
        estimate="the run with one memcpy in place of each row of them",
        source=NSYS,
        needs=("calls", "graph"),
        find=small_copies,
    ),
    Check(
        name="page-faults",
        title="Kernels wait for pages of managed memory",
        when="pages of managed memory move while a kernel runs",
        text="pages that move while kernels run: {pages}, {moved_bytes}; these {kernels} kernels take {kernels_ns}",
        remedy="copy the memory before: cudaMemPrefetchAsync on the stream of the kernel; or use memory of the device",
        estimate="the run if the same bytes moved before the kernels, at 12 GB/s",
        source=NSYS,
        needs=("kernels", "graph"),
        find=page_faults,
    ),
    Check(
        name="synchronization",
        title="Synchronization keeps the host from working ahead",
        when=f"{MIN_WAITS} calls of one name or more in an op wait for the device within iterations",
        text="{call} is called {waits} times and waits for {waited_ns} in all{needed}",
        remedy="leave it out: order work by streams and events; avoid torch.cuda.synchronize() and printing tensors in the loop",
        estimate=f"{ESTIMATE}; none if a copy to the host ended in most of them",
        source=NSYS,
        needs=("work", "calls", "graph"),
        find=synchronizations,
        remedy_elsewhere="leave it out: order work by streams and events instead of waits of the host",
    ),
    Check(
        name="checkpoint",
        title="Results are copied to the host and written to files, while the GPU waits",
        when=f"within iterations a thread copies {MIN_WRITTEN_BYTES >> 20} MiB or more to the host, and writes to a file before it issues more work",
        text="memcpys to the host, written with {write}: {memcpys}, {moved_bytes}; the thread spends {held_ns} on them",
        remedy="copy on the GPU, and let another thread fetch and write the copy (torch.distributed.checkpoint.async_save); or write less often",
        estimate="the run without these copies and writes, but for a copy on the GPU",
        source=NSIGHT_BRIDGE,
        needs=("work", "calls", "graph"),
        find=written_results,
        remedy_elsewhere="copy on the GPU, and let another thread fetch and write the copy; or write less often",
    ),
    Check(
        name="numbers-read-back",
        title="Single values are read back from the GPU",
        when=f"memcpys to the host are of {MAX_NUMBER_BYTES} bytes at most, and the host waits for them",
        text="values read back one by one{in_op}: {numbers}; they block a thread for {held_ns}{needed}",
        remedy=f"keep them on the GPU: sum losses there and read them every {KEPT} steps; use torch.where instead of if",
        estimate=f"the run with one of {KEPT} of them",
        source=NSIGHT_BRIDGE,
        needs=("work", "calls", "graph"),
        find=numbers_read,
        remedy_elsewhere=f"keep them on the GPU: read them every {KEPT} steps, or let the GPU decide (conditional nodes of a CUDA graph)",
    ),
)


# -- Rules about the memory of GPUs


MIN_FULL = 0.9  # of the GPU's memory
ALLOCATED = re.compile(r"allocated|(?<!un)used", re.IGNORECASE)


def nearly_full(evidence: Evidence) -> Finding | None:
    """Find a GPU whose allocated memory is close to its size."""
    size = evidence.capture.devices.memory_bytes
    size = size[size > 0]
    table = evidence.memory_samples
    table = table[np.array([bool(ALLOCATED.search(name)) for name in table["name"]], bool)]
    names = Names.of(table["name"].tolist())
    group, first = number_groups(names.codes, table["process"])
    peaks = table[["name", "process"]][first].assign(
        value=highest(group, table["value"], len(first))
    )
    peaks = peaks[peaks["value"] > MIN_FULL * size.min()]
    if not len(peaks):
        return None
    peaks = peaks.sort_values(["value", "name", "process"], [False, True, True])
    most = peaks.row(0)
    figures = {
        "counter": most["name"],
        "peak_bytes": int(most["value"]),
        "memory_share": most["value"] / int(size.min()),
    }
    return Finding(figures, peaks.rename({"value": "bytes"}))


MEMORY_RULES = (
    Check(
        name="memory-nearly-full",
        title="GPU memory is nearly full",
        when=f"allocated memory exceeds {MIN_FULL:.0%} of the GPU's",
        text="{counter} reaches {peak_bytes}, {memory_share} of the GPU's memory",
        remedy="use activation checkpointing, mixed precision or smaller batches; with full memory the allocator waits and frees",
        source=TENSORBOARD,
        needs=("memory", "device memory"),
        find=nearly_full,
    ),
)
