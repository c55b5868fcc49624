"""Rules on memcpys, memsets and waits: what keeps the host from running ahead."""

from __future__ import annotations

import re

import numpy as np

from bridge.analyze.advice import rule
from bridge.analyze.advice.facts import Seen
from bridge.analyze.advice.rule import (
    HERE,
    NOT_ESTIMATED,
    NSYS,
    TENSORBOARD,
    UNKNOWN,
    Finding,
    Rule,
)
from bridge.analyze.causes.api_calls import TO_HOST, ends
from bridge.analyze.groups import sums
from bridge.analyze.roles import BLOCKING, WAITING
from bridge.join.arrays import NONE, Flags, Ints
from importers import frames

ASYNC_COPY = re.compile(r"cu(?:da)?Memcpy\w*Async\w*")
SYNC_FILL = re.compile(r"cu(?:da)?Memset(?!\w*Async)\w*")
PAGEABLE, PINNED = (frames.MEMORY_KINDS.index(kind) for kind in ("pageable", "pinned"))
TO_DEVICE = 1  # a copy's direction, as nsys numbers them
ESTIMATE = (
    "of each gap that began in such a call as much as the host had waited in it; at most all waits"
)
A_NUMBER = 16  # bytes at most of what a program reads to decide on


def pageable_copies(seen: Seen) -> Finding | None:
    """Asynchronous copies from or to pageable memory: these are not asynchronous."""
    joined, copies = seen.joined, seen.report.activities
    kinds = [frames.ints(copies, c) for c in ("source_kind", "target_kind")]
    asked = np.append(seen.calls_matching(ASYNC_COPY), False)[joined.attribution.launch]
    pageable = seen.of_kind(frames.MEMCPY) & ((kinds[0] == PAGEABLE) | (kinds[1] == PAGEABLE))
    rows = np.flatnonzero(pageable & asked)
    if not len(rows):
        return None
    held = np.maximum(seen.time[rows], seen.call_time[joined.attribution.launch[rows]])
    figures = {
        "memcpys": len(rows),
        "moved_bytes": int(np.maximum(frames.ints(copies, "bytes")[rows], 0).sum()),
        "held_ns": int(held.sum()),
    }
    saved = _if_pinned(seen, rows, pageable)
    waited, _ = _bounds(seen, np.unique(joined.attribution.launch[rows]))
    ceiling = min(seen.most(rows, held), waited + seen.most_work(rows))
    table = rule.of_activities(seen, rows, held)
    return Finding(figures, table, ceiling, min(saved, ceiling))


def _if_pinned(seen: Seen, rows: Ints, pageable: Flags) -> int:
    """Return what copies would save at the speed of those of pinned memory in the report; -1 if it has none."""
    table = seen.report.activities
    direction, size = frames.ints(table, "copy_kind"), np.maximum(frames.ints(table, "bytes"), 0)
    kinds = [frames.ints(table, c) for c in ("source_kind", "target_kind")]
    pinned = seen.of_kind(frames.MEMCPY) & ~pageable & ((kinds[0] == PINNED) | (kinds[1] == PINNED))
    saved = np.zeros(len(rows), np.int64)
    for way in (TO_DEVICE, TO_HOST):
        fast, own = np.flatnonzero(pinned & (direction == way)), direction[rows] == way
        if not own.any():
            continue
        if not size[fast].sum():
            return UNKNOWN
        rate = size[fast].sum() / max(1, seen.time[fast].sum())
        saved[own] = np.maximum(seen.time[rows[own]] - size[rows[own]] / rate, 0).astype(np.int64)
    return seen.most(rows, saved)


def blocking_copies(seen: Seen) -> Finding | None:
    """Copies by calls that return only when they are done."""
    return _held_by(seen, seen.calls_matching(BLOCKING))


def blocking_fills(seen: Seen) -> Finding | None:
    """Fills by the call that may wait for them."""
    return _held_by(seen, seen.calls_matching(SYNC_FILL))


def _held_by(seen: Seen, calls: Flags) -> Finding | None:
    rows = np.flatnonzero(calls)
    if not len(rows):
        return None
    spent = seen.call_time[rows]
    thread = seen.joined.attribution.stack[rows]
    total = seen.most_of_threads(thread, spent)
    figures = {"calls": len(rows), "held_ns": total, "held_share": total / max(1, seen.wall_ns)}
    return Finding(figures, rule.of_calls(seen, rows), *_bounds(seen, rows))


def synchronisations(seen: Seen) -> Finding | None:
    """Calls that wait for the device, after which it is idle until the host has caught up."""
    rows = np.flatnonzero(seen.calls_matching(WAITING))
    if not len(rows):
        return None
    idle = _idle_after(seen, rows)
    spent = seen.call_time[rows]
    figures = {
        "waits": len(rows),
        "waited_ns": int(spent.sum()),
        "idle_ns": idle,
        "idle_share": idle / max(1, seen.span_ns),
    }
    return Finding(figures, rule.of_calls(seen, rows), *_bounds(seen, rows))


def _dry(seen: Seen, calls: Ints) -> tuple[Ints, Ints]:
    """Return the gaps of GPUs that began while one of the calls waited, in its process, and which call that was."""
    gaps, launches = seen.idle.gaps, seen.report.launches
    activities = seen.report.activities
    found, waiting = (
        np.full(len(gaps), NONE),
        calls[np.argsort(frames.ints(launches, "start")[calls], kind="stable")],
    )
    for report, process in sorted(
        set(
            zip(
                *(frames.ints(launches, c)[calls].tolist() for c in ("report", "process")),
                strict=True,
            )
        )
    ):
        of_call = (frames.ints(launches, "report")[waiting] == report) & (
            frames.ints(launches, "process")[waiting] == process
        )
        own = waiting[of_call]
        before = gaps.before
        ours = np.flatnonzero(
            (frames.ints(activities, "report")[before] == report)
            & (frames.ints(activities, "process")[before] == process)
        )
        place = (
            np.searchsorted(frames.ints(launches, "start")[own], gaps.start[ours], side="right") - 1
        )
        call = own[np.maximum(place, 0)]
        inside = (place >= 0) & (gaps.start[ours] <= ends(seen.joined)[call])
        found[ours[inside]] = call[inside]
    dry = np.flatnonzero(found != NONE)
    return dry, found[dry]


def _bounds(seen: Seen, calls: Ints) -> tuple[int, int]:
    """Return what a host that does not wait would save at most, and about.

    It runs ahead by what it had waited: gaps after all waits shrink by no more than that. Of each gap
    alone, as much as the host had waited right before.
    """
    threads = seen.joined.attribution.stack[calls]
    waited = seen.most_of_threads(threads, seen.call_time[calls])
    ceiling = min(waited, _idle_after(seen, calls))
    return ceiling, min(ceiling, _caught_up(seen, calls))


def _idle_after(seen: Seen, calls: Ints) -> int:
    """Return how long the GPU was idle that ran dry most while one of the calls waited."""
    dry, _ = _dry(seen, calls)
    gaps = seen.idle.gaps
    return int(sums(gaps.device[dry], gaps.length[dry], len(gaps.devices)).max(initial=0))


def _caught_up(seen: Seen, calls: Ints) -> int:
    """Return how much of that the host could have used: of each gap as much as it had waited."""
    dry, call = _dry(seen, calls)
    gaps = seen.idle.gaps
    used = np.minimum(gaps.length[dry], seen.call_time[call])
    return int(sums(gaps.device[dry], used, len(gaps.devices)).max(initial=0))


def numbers_read(seen: Seen) -> Finding | None:
    """Single numbers that the host reads back, as `.item()` does, and so waits for the device."""
    table, launch = seen.report.activities, seen.joined.attribution.launch
    size = frames.ints(table, "bytes")
    small = (frames.ints(table, "copy_kind") == TO_HOST) & (size > 0) & (size <= A_NUMBER)
    rows = np.flatnonzero(seen.of_kind(frames.MEMCPY) & small & (launch != NONE))
    if not len(rows):
        return None
    held = _held_for(seen, rows)
    threads = seen.joined.attribution.stack[launch[rows]]
    total = seen.most_of_threads(threads, held)
    figures = {"numbers": len(rows), "held_ns": total, "held_share": total / max(1, seen.wall_ns)}
    calls = np.unique(np.concatenate((launch[rows], _wait_after(seen, rows))))
    return Finding(figures, rule.of_activities(seen, rows, held), *_bounds(seen, calls))


def _held_for(seen: Seen, rows: Ints) -> Ints:
    """Return how long the call of each copy, and the wait right after it, held the host."""
    call, wait = seen.joined.attribution.launch[rows], _wait_after(seen, rows)
    more = np.where(wait == call, 0, seen.call_time[wait])
    return seen.call_time[call] + more


def _wait_after(seen: Seen, rows: Ints) -> Ints:
    """Return the call that the thread of each copy made next if that waits, else the copy's own."""
    launches, stack = seen.report.launches, seen.joined.attribution.stack
    order = np.lexsort((frames.ints(launches, "start"), stack))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    call = seen.joined.attribution.launch[rows]
    following = order[np.minimum(place[call] + 1, len(order) - 1)]
    waits = seen.calls_matching(WAITING)[following] & (stack[following] == stack[call])
    return np.where(waits, following, call)


RULES = (
    Rule(
        "pageable-memcpys",
        "Asynchronous memcpys of pageable memory",
        "an asynchronous memcpy is from or to pageable memory",
        "asynchronous memcpys of pageable memory: {memcpys}, {moved_bytes}; they hold the host for up to {held_ns}",
        "pin the host's memory: DataLoader(pin_memory=True) and .to(device, non_blocking=True); cudaHostAlloc",
        "what the same bytes would save at the speed of the report's own memcpys of pinned memory",
        NSYS,
        ("calls", "memory kinds"),
        pageable_copies,
    ),
    Rule(
        "synchronous-memcpys",
        "Memcpys that block the host",
        "a memcpy is called synchronously",
        "calls: {calls}; a thread is held {held_ns}, {held_share} of the run",
        "cudaMemcpyAsync on a stream, of pinned memory; in PyTorch .to(device, non_blocking=True)",
        ESTIMATE,
        NSYS,
        ("calls",),
        blocking_copies,
    ),
    Rule(
        "synchronous-memsets",
        "Fills that may block the host",
        "a memset is called synchronously",
        "calls: {calls}; a thread is held {held_ns}, {held_share} of the run",
        "cudaMemsetAsync on the stream that needs it",
        ESTIMATE,
        NSYS,
        ("calls",),
        blocking_fills,
    ),
    Rule(
        "synchronisation",
        "The host waits for the device, and the device then for the host",
        "calls synchronise",
        "waits of the host: {waits}, {waited_ns} in all; a GPU that ran dry in one stays idle for {idle_ns}, {idle_share} of its time",
        "wait less: events in place of cudaDeviceSynchronize, no .item() or print of tensors in the loop",
        ESTIMATE,
        NSYS,
        ("work", "calls"),
        synchronisations,
    ),
    Rule(
        "numbers-read-back",
        "Single numbers are read back from the GPU",
        f"memcpys to the host are of {A_NUMBER} bytes at most",
        "numbers read back one by one: {numbers}; a thread is held {held_ns}, {held_share} of the run",
        "keep them there: sum losses on the device and read them every n steps; torch.where in place of if",
        ESTIMATE,
        HERE,
        ("work", "calls"),
        numbers_read,
    ),
)


# -- Rules on the memory of GPUs


FULL = 0.9  # of the GPU's memory
ALLOCATED = re.compile(r"allocated|(?<!un)used", re.IGNORECASE)


def nearly_full(seen: Seen) -> Finding | None:
    """A GPU whose allocated memory comes near to all that it has."""
    size = frames.ints(seen.report.devices, "memory_bytes")
    size = size[size > 0]
    table = seen.allocated
    allocated = [ALLOCATED.search(name) is not None for name in table["name"]]
    table = table[allocated]
    peaks = table.groupby(["name", "process"], as_index=False, observed=True)["value"].max()
    peaks = peaks[peaks["value"] > FULL * size.min()]
    if peaks.empty:
        return None
    peaks = peaks.sort_values("value", ascending=False, ignore_index=True)
    most = peaks.iloc[0]
    figures = {
        "counter": str(most["name"]),
        "peak_bytes": int(most["value"]),
        "memory_share": most["value"] / int(size.min()),
    }
    return Finding(figures, peaks.rename(columns={"value": "bytes"}))


MEMORY_RULES = (
    Rule(
        "memory-nearly-full",
        "The GPU's memory is nearly full",
        f"allocated memory exceeds {FULL:.0%} of the GPU's",
        "{counter} reaches {peak_bytes}, {memory_share} of the GPU's memory",
        "activation checkpointing, mixed precision, smaller batches; beyond it the allocator waits and frees",
        NOT_ESTIMATED,
        TENSORBOARD,
        ("memory", "device memory"),
        nearly_full,
    ),
)
