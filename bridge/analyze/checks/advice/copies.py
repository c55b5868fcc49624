"""Rules about memcpys, memsets and waits that block the host, and about nearly full memory."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from bridge.analyze.checks.advice import rule
from bridge.analyze.checks.advice.facts import Evidence
from bridge.analyze.checks.advice.rule import (
    NSIGHT_BRIDGE,
    NSYS,
    TENSORBOARD,
    UNKNOWN,
    Finding,
    LostTime,
)
from bridge.analyze.checks.check import Check
from bridge.analyze.core.groups import sums
from bridge.analyze.core.kinds import BLOCKING, WAITING
from bridge.analyze.run.causes.host_timeline import TO_HOST
from bridge.importers import frames
from bridge.join.arrays import NONE, Flags, Ints, number_groups, order_by

ASYNC_COPY = re.compile(r"cu(?:da)?Memcpy\w*Async\w*")
SYNC_FILL = re.compile(r"cu(?:da)?Memset(?!\w*Async)\w*")
PAGEABLE, PINNED = (frames.MEMORY_KINDS.index(kind) for kind in ("pageable", "pinned"))
TO_DEVICE = 1  # copy kind of nsys
ESTIMATE = (
    "for each wait, the idle time after it until the next, at most the time that the host waited"
)
MAX_NUMBER_BYTES = 16  # bytes of a value that a program may read to decide


def pageable_copies(evidence: Evidence) -> Finding | None:
    """Find asynchronous copies of pageable memory, which are not asynchronous."""
    attributed, copies = evidence.attributed, evidence.capture.activities
    kinds = [frames.ints(copies, c) for c in ("source_kind", "target_kind")]
    is_async = np.append(evidence.calls_matching(ASYNC_COPY), False)[attributed.attribution.launch]
    pageable = evidence.is_kind(frames.MEMCPY) & ((kinds[0] == PAGEABLE) | (kinds[1] == PAGEABLE))
    rows = np.flatnonzero(pageable & is_async)
    if not len(rows):
        return None
    blocked = np.maximum(
        evidence.time[rows], evidence.call_time[attributed.attribution.launch[rows]]
    )
    figures = {
        "memcpys": len(rows),
        "moved_bytes": int(np.maximum(frames.ints(copies, "bytes")[rows], 0).sum()),
        "held_ns": int(blocked.sum()),
    }
    saving = _saving_if_pinned(evidence, rows, pageable)
    _, max_saving = _bounds(evidence, np.unique(attributed.attribution.launch[rows]))
    ceiling = min(
        evidence.max_over_gpus(rows, blocked), max_saving + evidence.max_work_over_gpus(rows)
    )
    table = rule.activity_table(evidence, rows, blocked)
    calls = np.unique(attributed.attribution.launch[rows])
    lost = replace(_lost_after(evidence, calls), activities=rows, work_ns=evidence.time[rows])
    return Finding(figures, table, ceiling, min(saving, ceiling), lost)


def _saving_if_pinned(evidence: Evidence, rows: Ints, pageable: Flags) -> int:
    """Return what copies would save at the speed of copies of pinned memory.

    It is -1 if the capture has no such copies.
    """
    table = evidence.capture.activities
    direction = frames.ints(table, "copy_kind")
    size = np.maximum(frames.ints(table, "bytes"), 0)
    kinds = [frames.ints(table, c) for c in ("source_kind", "target_kind")]
    pinned = (
        evidence.is_kind(frames.MEMCPY) & ~pageable & ((kinds[0] == PINNED) | (kinds[1] == PINNED))
    )
    saving = np.zeros(len(rows), np.int64)
    for copy_direction in (TO_DEVICE, TO_HOST):
        pinned_rows = np.flatnonzero(pinned & (direction == copy_direction))
        is_direction = direction[rows] == copy_direction
        if not is_direction.any():
            continue
        if not size[pinned_rows].sum():
            return UNKNOWN
        rate = size[pinned_rows].sum() / max(1, evidence.time[pinned_rows].sum())
        saving[is_direction] = np.maximum(
            evidence.time[rows[is_direction]] - size[rows[is_direction]] / rate, 0
        ).astype(np.int64)
    return evidence.max_over_gpus(rows, saving)


def blocking_copies(evidence: Evidence) -> Finding | None:
    """Find copies by calls that return only when they are done, but for those to the host, which waits for the values."""
    calls, launch = evidence.calls_matching(BLOCKING), evidence.attributed.attribution.launch
    to_host = frames.ints(evidence.capture.activities, "copy_kind") == TO_HOST
    calls[launch[to_host & (launch != NONE)]] = False
    return _blocking_finding(evidence, calls)


def blocking_fills(evidence: Evidence) -> Finding | None:
    """Find memsets by the call that may wait for them."""
    return _blocking_finding(evidence, evidence.calls_matching(SYNC_FILL))


def _blocking_finding(evidence: Evidence, calls: Flags) -> Finding | None:
    rows = np.flatnonzero(calls)
    if not len(rows):
        return None
    spent = evidence.call_time[rows]
    thread = evidence.attributed.attribution.stack[rows]
    total = evidence.max_over_threads(thread, spent)
    figures = {"calls": len(rows), "held_ns": total, "held_share": total / max(1, evidence.wall_ns)}
    lost = _lost_after(evidence, rows)
    return Finding(figures, rule.call_table(evidence, rows), *_bounds(evidence, rows), lost)


def synchronizations(evidence: Evidence) -> Finding | None:
    """Find calls that wait for the device, after which the device waits for the host."""
    rows = np.flatnonzero(evidence.calls_matching(WAITING))
    if not len(rows):
        return None
    idle = _idle_after(evidence, rows)
    spent = evidence.call_time[rows]
    figures = {
        "waits": len(rows),
        "waited_ns": int(spent.sum()),
        "idle_ns": idle,
        "idle_share": idle / max(1, evidence.span_ns),
    }
    lost = _lost_after(evidence, rows)
    return Finding(figures, rule.call_table(evidence, rows), *_bounds(evidence, rows), lost)


def _gaps_after(evidence: Evidence, calls: Ints) -> tuple[Ints, Ints]:
    """Return the gaps of GPUs since each of some calls, until the next of them in its process, and the call.

    A gap counts if it began while the call waited, or later, and if a launch ended it.
    """
    gaps, launches = evidence.idle.gaps, evidence.capture.launches
    activities, before = evidence.capture.activities, evidence.idle.gaps.before
    homes = [
        np.concatenate((frames.ints(launches, c)[calls], frames.ints(activities, c)[before]))
        for c in ("report", "process")
    ]
    home, _ = number_groups(*homes)
    start = np.concatenate((frames.ints(launches, "start")[calls], gaps.start))
    is_gap = np.repeat([0, 1], [len(calls), len(gaps)])
    order = order_by(home, start, is_gap)
    # The last call before each gap in this order, if it is one of the same process.
    position = np.maximum.accumulate(np.where(is_gap[order] == 0, np.arange(len(order)), NONE))
    place = np.flatnonzero(is_gap[order] == 1)
    place = place[position[place] != NONE]
    place = place[home[order[place]] == home[order[position[place]]]]
    rows, call = order[place] - len(calls), calls[order[position[place]]]
    is_launched = evidence.attributed.attribution.launch[gaps.ended_by[rows]] != NONE
    return rows[is_launched], call[is_launched]


def _bounds(evidence: Evidence, calls: Ints) -> tuple[int, int]:
    """Return the maximum and the estimated saving if the host did not wait in these calls."""
    threads = evidence.attributed.attribution.stack[calls]
    waited = evidence.max_over_threads(threads, evidence.call_time[calls])
    ceiling = min(waited, _idle_after(evidence, calls))
    return ceiling, min(ceiling, _max_over_gpus(evidence, _lost_after(evidence, calls)))


def _idle_after(evidence: Evidence, calls: Ints) -> int:
    """Return the maximum over GPUs of the idle time after such waits."""
    rows, _ = _gaps_after(evidence, calls)
    return _max_over_gpus(evidence, LostTime(rows, evidence.idle.gaps.length[rows]))


def _lost_after(evidence: Evidence, calls: Ints) -> LostTime:
    """Return the idle time that waits cost.

    Without a wait the host would be ahead by the time that it took. So the gaps after it shrink by
    that time in all, the first gaps first.
    """
    gaps = evidence.idle.gaps
    rows, call = _gaps_after(evidence, calls)
    order = order_by(gaps.device[rows], call, gaps.start[rows])
    rows, call = rows[order], call[order]
    length = gaps.length[rows]
    group, first = number_groups(gaps.device[rows], call)
    earlier = np.cumsum(length) - length
    earlier -= earlier[first][group]
    cost = np.clip(evidence.call_time[call] - earlier, 0, length)
    return LostTime(rows[cost > 0], cost[cost > 0])


def _max_over_gpus(evidence: Evidence, lost: LostTime) -> int:
    gaps = evidence.idle.gaps
    return int(sums(gaps.device[lost.gaps], lost.idle_ns, len(gaps.devices)).max(initial=0))


def numbers_read(evidence: Evidence) -> Finding | None:
    """Find single numbers that the host reads back, for which it waits for the device."""
    table, launch = evidence.capture.activities, evidence.attributed.attribution.launch
    size = frames.ints(table, "bytes")
    is_small = (
        (frames.ints(table, "copy_kind") == TO_HOST) & (size > 0) & (size <= MAX_NUMBER_BYTES)
    )
    rows = np.flatnonzero(evidence.is_kind(frames.MEMCPY) & is_small & (launch != NONE))
    if not len(rows):
        return None
    blocked = _blocked_times(evidence, rows)
    threads = evidence.attributed.attribution.stack[launch[rows]]
    total = evidence.max_over_threads(threads, blocked)
    figures = {
        "numbers": len(rows),
        "held_ns": total,
        "held_share": total / max(1, evidence.wall_ns),
    }
    calls = np.unique(np.concatenate((launch[rows], _following_wait(evidence, rows))))
    return Finding(
        figures,
        rule.activity_table(evidence, rows, blocked),
        *_bounds(evidence, calls),
        _lost_after(evidence, calls),
    )


def _blocked_times(evidence: Evidence, rows: Ints) -> Ints:
    """Return how long the call of each copy, and the wait right after it, blocked the host."""
    call, wait = evidence.attributed.attribution.launch[rows], _following_wait(evidence, rows)
    wait_time = np.where(wait == call, 0, evidence.call_time[wait])
    return evidence.call_time[call] + wait_time


def _following_wait(evidence: Evidence, rows: Ints) -> Ints:
    """Return the next call of the thread of each copy if it waits, else the copy's call."""
    launches, stack = evidence.capture.launches, evidence.attributed.attribution.stack
    order = np.lexsort((frames.ints(launches, "start"), stack))
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    call = evidence.attributed.attribution.launch[rows]
    following = order[np.minimum(position[call] + 1, len(order) - 1)]
    is_wait = evidence.calls_matching(WAITING)[following] & (stack[following] == stack[call])
    return np.where(is_wait, following, call)


RULES = (
    Check(
        name="pageable-memcpys",
        title="Asynchronous memcpys use pageable memory",
        when="an asynchronous memcpy is from or to pageable memory",
        text="asynchronous memcpys of pageable memory: {memcpys}, {moved_bytes}; they block the host for up to {held_ns}",
        remedy="pin host memory: DataLoader(pin_memory=True) and .to(device, non_blocking=True); cudaHostAlloc in C++",
        estimate="the time saved if the same bytes moved at the speed of the report's memcpys of pinned memory",
        source=NSYS,
        needs=("calls", "memory kinds"),
        find=pageable_copies,
        remedy_elsewhere="pin host memory: cudaHostAlloc, or cudaHostRegister for memory that is there already",
    ),
    Check(
        name="synchronous-memcpys",
        title="Synchronous memcpys block the host",
        when="a memcpy that is not to the host is called synchronously",
        text="calls: {calls}; they block a thread for {held_ns}, {held_share} of the run",
        remedy="use cudaMemcpyAsync on a stream with pinned memory; in PyTorch .to(device, non_blocking=True)",
        estimate=ESTIMATE,
        source=NSYS,
        needs=("calls",),
        find=blocking_copies,
        remedy_elsewhere="use cudaMemcpyAsync on a stream with pinned memory",
    ),
    Check(
        name="synchronous-memsets",
        title="Synchronous memsets may block the host",
        when="a memset is called synchronously",
        text="calls: {calls}; they block a thread for {held_ns}, {held_share} of the run",
        remedy="use cudaMemsetAsync on the stream that needs the memory",
        estimate=ESTIMATE,
        source=NSYS,
        needs=("calls",),
        find=blocking_fills,
    ),
    Check(
        name="synchronization",
        title="Synchronization leaves the GPU idle",
        when="calls synchronize",
        text="waits of the host: {waits}, {waited_ns} in all; after them the GPU has no work for {idle_ns}, {idle_share} of the time from its first work to its last",
        remedy="synchronize less: use events instead of cudaDeviceSynchronize; avoid .item() and printing tensors in the loop",
        estimate=ESTIMATE,
        source=NSYS,
        needs=("work", "calls"),
        find=synchronizations,
        remedy_elsewhere="synchronize less: order work by streams and events instead of cudaDeviceSynchronize",
    ),
    Check(
        name="numbers-read-back",
        title="Single values are read back from the GPU",
        when=f"memcpys to the host are of {MAX_NUMBER_BYTES} bytes at most",
        text="values read back one by one: {numbers}; they block a thread for {held_ns}, {held_share} of the run",
        remedy="keep them on the GPU: sum losses there and read them every n steps; use torch.where instead of if",
        estimate=ESTIMATE,
        source=NSIGHT_BRIDGE,
        needs=("work", "calls"),
        find=numbers_read,
        remedy_elsewhere="keep them on the GPU: read them every n steps, or let the GPU decide (conditional nodes of a CUDA graph)",
    ),
)


# -- Rules about the memory of GPUs


MIN_FULL = 0.9  # of the GPU's memory
ALLOCATED = re.compile(r"allocated|(?<!un)used", re.IGNORECASE)


def nearly_full(evidence: Evidence) -> Finding | None:
    """Find a GPU whose allocated memory is close to its size."""
    size = frames.ints(evidence.capture.devices, "memory_bytes")
    size = size[size > 0]
    table = evidence.memory_samples
    is_allocated = [ALLOCATED.search(name) is not None for name in table["name"]]
    table = table[is_allocated]
    peaks = table.groupby(["name", "process"], as_index=False, observed=True)["value"].max()
    peaks = peaks[peaks["value"] > MIN_FULL * size.min()]
    if peaks.empty:
        return None
    peaks = peaks.sort_values("value", ascending=False, ignore_index=True)
    highest = peaks.iloc[0]
    figures = {
        "counter": str(highest["name"]),
        "peak_bytes": int(highest["value"]),
        "memory_share": highest["value"] / int(size.min()),
    }
    return Finding(figures, peaks.rename(columns={"value": "bytes"}))


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
