"""What CUDA and the device keep in order besides streams and events, and what calls wait for without saying so.

Rules of CUDA's programming guide: the legacy default stream and the blocking streams of its context wait for each
other; a GPU has one engine per direction of copies; a launch waits while the queue of launches is full; cudaFree waits
for the device. A rule that the recorded times contradict is not applied.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from bridge.analyze.core.devices import Devices
from bridge.analyze.core.kinds import LAUNCHING, calls_matching
from bridge.analyze.run.critical.work import LANE, Work
from bridge.importers import frames
from bridge.importers.arrays import scatter
from bridge.importers.frames import key_codes
from bridge.join.arrays import NONE, Ints, number_groups, order_by, run_edges

Pairs = tuple[Ints, Ints]
CONTEXT, STREAM = LANE[:-1], ("report", "process", "context", "stream")
UNKNOWN, BLOCKING, NON_BLOCKING, NULL = range(4)  # places in frames.STREAM_KINDS
MAX_BROKEN = 0.02  # of the pairs that a rule orders; above, the rule does not hold
SWITCH_NS = 100_000  # from a kernel of one process to one of another that waited for it
TO_DEVICE, TO_HOST, PEER = 1, 2, 10  # copy kinds of nsys
FREEING = re.compile(r"cu(?:da)?(?:Mem)?Free(?!\w*Async)\w*")
BLOCKED_NS = (
    20_000  # a launch that takes longer, and more than `BLOCKED` times the median, may have waited
)
BLOCKED = 5
MIN_BLOCKED = 8  # launches that must have waited at one depth of the queue
NOTHING = np.empty(0, np.int64)


# -- Work that waits for work


def device_order(work: Work) -> Pairs:
    """Return activities, and what each waits for by the rules of the default stream, copy engines and processes."""
    if not len(work.lane) or work.lane[0] == work.lane[-1]:  # a stream is in order anyway
        return NOTHING, NOTHING
    parts = [*_default_streams(work), *_copy_engines(work), *_time_slices(work)]
    waiting, awaited = (
        (np.concatenate(c) for c in zip(*parts, strict=True)) if parts else (NOTHING, NOTHING)
    )
    return waiting, awaited


def _default_streams(work: Work) -> Iterator[Pairs]:
    kind = stream_kinds(work)
    context, _ = number_groups(*(work.column(c) for c in CONTEXT))
    edges = run_edges(work.lane)
    lanes = [
        (int(context[first]), int(kind[first]), np.arange(first, last))
        for first, last in pairwise(edges.tolist())
    ]
    for null_context, null_kind, null_rows in lanes:
        if null_kind != NULL:
            continue
        for other_context, other_kind, rows in lanes:
            if other_context == null_context and other_kind in {BLOCKING, UNKNOWN}:
                yield from _in_turn(work, null_rows, rows)


def stream_kinds(work: Work) -> Ints:
    """Return what the stream of each activity is: a place in `frames.STREAM_KINDS`.

    nsys records it. A single stream that is not listed, of a context whose null stream is not, is its null stream.
    """
    table = work.attributed.capture.cuda_streams
    known = [table[c] for c in STREAM]
    listed, stream = key_codes(known, [work.column(c) for c in STREAM])
    listed_context, context = key_codes(known[:-1], [work.column(c) for c in STREAM[:-1]])
    of_stream = scatter(
        table.kind.codes,
        listed,
        max(int(listed.max(initial=NONE)), int(stream.max(initial=NONE))) + 2,
    )
    result = of_stream[stream]
    size = max(int(listed_context.max(initial=NONE)), int(context.max(initial=NONE))) + 1
    has_null = np.zeros(size, bool)
    has_null[listed_context[table.kind.codes == NULL]] = True
    is_listed = np.zeros(size, bool)
    is_listed[listed_context] = True
    unlisted = np.flatnonzero(result == NONE)
    _, first = number_groups(context[unlisted], stream[unlisted])
    others = np.bincount(context[unlisted][first], minlength=size)
    is_null = is_listed[context] & ~has_null[context] & (others[context] == 1)
    return np.where(result != NONE, result, np.where(is_null, NULL, UNKNOWN))


def _in_turn(work: Work, null_rows: Ints, rows: Ints) -> Iterator[Pairs]:
    """Yield the pairs of work in the null stream and in another one that wait for each other."""
    pairs = [_last_issued(work, null_rows, rows), _last_issued(work, rows, null_rows)]
    waiting, awaited = (np.concatenate(c) for c in zip(*pairs, strict=True))
    holds = work.end[awaited] <= work.start[waiting]
    if len(holds) and (~holds).mean() <= MAX_BROKEN:
        yield waiting[holds], awaited[holds]


def _last_issued(work: Work, rows: Ints, others: Ints) -> Pairs:
    """Return which rows wait for which of others: for the last one issued before, if no earlier row waited for it."""
    rows, others = (r[order_by(work.issued[r], work.rank[r])] for r in (rows, others))
    place = np.searchsorted(work.issued[others], work.issued[rows], side="left") - 1
    is_new = place >= 0
    is_new[1:] &= place[1:] != place[:-1]
    return rows[is_new], others[place[is_new]]


def _copy_engines(work: Work) -> Iterator[Pairs]:
    """Yield the copies that waited for the engine of their direction, which works for one stream after the other."""
    direction = work.column("copy_kind")
    gpu = Devices.of_report(work.attributed).gpu[work.row]
    is_copy = np.isin(direction, (TO_DEVICE, TO_HOST, PEER)) & (work.launch != NONE)
    rows = np.flatnonzero(is_copy)
    rows = rows[order_by(gpu[rows], direction[rows], work.start[rows], work.rank[rows])]
    engine, _ = number_groups(gpu[rows], direction[rows])
    for first, last in pairwise(run_edges(engine).tolist()):
        before, after = rows[first : last - 1], rows[first + 1 : last]
        holds = work.end[before] <= work.start[after]
        if len(holds) and (~holds).mean() <= MAX_BROKEN:
            changes = holds & (work.lane[before] != work.lane[after])
            yield after[changes], before[changes]


def _time_slices(work: Work) -> Iterator[Pairs]:
    """Yield the kernels that waited for those of another process: without MPS a GPU works for one at a time."""
    process = work.column("process")
    if (process == process[0]).all():
        return
    kernels = work.attributed.capture.activities.kind.among(frames.KERNEL, frames.GRAPH)[work.row]
    gpu = Devices.of_report(work.attributed).gpu[work.row]
    rows = np.flatnonzero(kernels)
    rows = rows[order_by(gpu[rows], work.start[rows], work.rank[rows])]
    for first, last in pairwise(run_edges(gpu[rows]).tolist()):
        here = rows[first:last]
        place, changes = np.arange(len(here)), np.zeros(len(here), bool)
        changes[1:] = process[here[1:]] != process[here[:-1]]
        holds = work.end[here[:-1]][changes[1:]] <= work.start[here[1:]][changes[1:]]
        if not len(holds) or (~holds).mean() > MAX_BROKEN:
            continue
        turn = np.maximum.accumulate(np.where(changes, place, 0))  # the first of its process since
        after, before = here[turn > 0], here[turn[turn > 0] - 1]
        wait = work.start[after] - work.end[before]
        near = (wait >= 0) & (wait <= SWITCH_NS)
        yield after[near], before[near]


# -- Calls that wait for work


def freed_after(work: Work) -> Pairs:
    """Return calls that release memory, and the last work of their process that ended while they ran, if any."""
    calls = np.flatnonzero(calls_matching(work.attributed, FREEING))
    if not len(calls):
        return NOTHING, NOTHING
    launches = work.attributed.capture.launches
    process, of_work = key_codes(
        [launches.report, launches.process],
        [work.column(c) for c in ("report", "process")],
    )
    parts = [(NOTHING, NOTHING)]
    for code in np.unique(process[calls]).tolist():  # one iteration per process
        rows, mine = np.flatnonzero(of_work == code), calls[process[calls] == code]
        rows = rows[order_by(work.end[rows], work.rank[rows])]
        place = np.searchsorted(work.end[rows], work.call_end[mine], side="left") - 1
        ended = rows[np.maximum(place, 0)] if len(rows) else NOTHING
        if len(rows):
            waited = (place >= 0) & (work.end[ended] > work.call_start[mine])
            waited &= work.issued[ended] < work.call_start[mine]
            parts.append((mine[waited], ended[waited]))
    calls, awaited = (np.concatenate(c) for c in zip(*parts, strict=True))
    return calls, awaited


def staged_after(work: Work, calls: Ints) -> Pairs:
    """Return blocking copies that return before their copy ends, and the work of their stream that they wait for."""
    first = np.full(len(work.call_start), NONE)
    rows = np.flatnonzero(work.launch != NONE)[::-1]
    first[work.launch[rows]] = rows  # the last assignment, of the first row, stays
    own = first[calls]
    calls, own = calls[own != NONE], own[own != NONE]
    before = work.before[own]
    waited = (before != NONE) & (work.end[own] > work.call_end[calls])
    waited &= (work.end[before] > work.call_start[calls]) & (
        work.end[before] < work.call_end[calls]
    )
    return calls[waited], before[waited]


def queue_waits(work: Work) -> Pairs:
    """Return launches, and the activity that must have begun before each can return: that many launches before it.

    How many launches of a stream may wait is learnt from those that took long.
    """
    is_launch = calls_matching(work.attributed, LAUNCHING)
    length = work.call_end - work.call_start
    if not is_launch.any():
        return NOTHING, NOTHING
    limit = max(BLOCKED_NS, BLOCKED * int(np.median(length[is_launch])))
    heads = np.flatnonzero(work.launch != NONE)
    heads = heads[is_launch[work.launch[heads]]]
    is_head = np.ones(len(heads), bool)
    is_head[1:] = work.launch[heads[1:]] != work.launch[heads[:-1]]
    heads = heads[is_head]
    parts = [(NOTHING, NOTHING)]
    for first, last in pairwise(run_edges(work.lane[heads]).tolist()):
        rows = heads[first:last]
        calls = work.launch[rows]
        blocked = np.flatnonzero(length[calls] > limit)
        begun = np.searchsorted(work.start[rows], work.call_end[calls[blocked]], side="right") - 1
        depth = blocked - begun
        depth = depth[(depth > 1) & (begun >= 0)]
        if len(depth) < MIN_BLOCKED:
            continue
        usual = int(np.bincount(depth).argmax())
        if 2 * (np.abs(depth - usual) <= 1).sum() >= len(depth):
            parts.append((calls[usual:], rows[: len(rows) - usual]))
    calls, activity = (np.concatenate(c) for c in zip(*parts, strict=True))
    holds = work.start[activity] <= work.call_end[calls]
    return calls[holds], activity[holds]
