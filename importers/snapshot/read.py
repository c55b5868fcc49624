"""A snapshot of torch.cuda.memory becomes a `Report`: allocations, lines of the program as ranges, and no kernels."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from importers import frames
from importers.errors import NothingRecorded
from importers.frames import MISSING
from importers.kineto.opened import without_collection
from importers.report import Facts, Report
from importers.snapshot import events as actions
from importers.snapshot import opened, reserved, stacks
from importers.snapshot.blocks import Blocks
from importers.snapshot.events import Events
from importers.snapshot.stacks import Stacks
from importers.texts import Ints, Texts

PRODUCT = "PyTorch memory snapshot"
PROCESS = 0  # a snapshot does not tell which
OUT_OF_MEMORY = "out of memory"
DEVICE = frames.MEMORY_KINDS.index("device")


@dataclass(frozen=True)
class Made:
    """Rows of the frame `memory`, in order of time per device; ``stack`` is 0 where it is not known."""

    device: Ints
    time: Ints
    operation: Ints
    address: Ints
    bytes: Ints
    reserved: Ints
    stack: Ints

    @classmethod
    def joined(cls, *parts: Made) -> Made:
        """Put parts together, in order of time."""
        whole = {
            one.name: np.concatenate([getattr(part, one.name) for part in parts])
            for one in fields(cls)
        }
        order = np.argsort(whole["time"], kind="stable")
        return cls(**{name: column[order] for name, column in whole.items()})


def read(path: Path) -> Report:
    """Return what a snapshot holds; raises a `ReportError` if it is none, or damaged."""
    name = os.fsencode(path.name).decode(errors="replace")
    with without_collection():
        found = opened.read(path)
        events = Events.of(name, found["device_traces"])
        blocks = Blocks.of(found["segments"])
        if not len(events) and not len(blocks.device):
            raise NothingRecorded(
                f"{name}: no allocations; was torch.cuda.memory._record_memory_history() called before?"
            )
        known = Stacks()
        made = _made(events, blocks, known)
    return _report(name, events, blocks, made, known)


def _made(events: Events, blocks: Blocks, known: Stacks) -> Made:
    """Put what was held before the trace in front of what it tells."""
    first = reserved.first_levels(events, blocks)
    level = reserved.levels(events, first)
    given = np.flatnonzero(np.isin(events.action, (actions.ALLOC, actions.FREED)))
    traced = events.take(given)
    stack = _own(traced, known.of([events.frames[row] for row in given.tolist()]))
    operation = np.where(traced.action == actions.ALLOC, frames.ALLOCATE, frames.RELEASE)
    told = Made(
        traced.device, traced.time, operation, traced.address, traced.bytes, level[given], stack
    )
    began = int(events.time.min()) if len(events) else 0
    held = _held(blocks, np.flatnonzero(~_in(blocks, traced)), known, began, first)
    alone = np.flatnonzero(reserved.alone(events, first))
    unseen = np.array(reserved.unseen(events, first, held.device), np.int64)
    return Made.joined(
        _levels(unseen, np.full(len(unseen), began - 1), _of(first, unseen)),
        held,
        told,
        _levels(events.device[alone], events.time[alone], level[alone]),
    )


def _held(blocks: Blocks, rows: Ints, known: Stacks, began: int, first: Mapping[int, int]) -> Made:
    """Return what was held before the trace began."""
    stack = known.of([blocks.frames[row] for row in rows.tolist()])
    order = np.argsort(stack, kind="stable")
    rows, count = rows[order], len(rows)
    return Made(
        device=blocks.device[rows],
        time=began - count + np.arange(count),
        operation=np.full(count, frames.HELD),
        address=blocks.address[rows],
        bytes=blocks.bytes[rows],
        reserved=_of(first, blocks.device[rows]),
        stack=stack[order],
    )


def _of(first: Mapping[int, int], device: Ints) -> Ints:
    return np.array([first[one] for one in device.tolist()], np.int64)


def _levels(device: Ints, time: Ints, level: Ints) -> Made:
    """Return rows that tell only what is reserved."""
    none, nothing = np.full(len(time), MISSING), np.zeros(len(time), np.int64)
    operation = np.full(len(time), frames.RESERVED)
    return Made(device, time, operation, none, nothing, level, nothing)


def _in(blocks: Blocks, traced: Events) -> Ints:
    """Tell which blocks have their address in the trace."""
    keys = pd.MultiIndex.from_arrays([blocks.device, blocks.address])
    there = keys.isin(pd.MultiIndex.from_arrays([traced.device, traced.address]))
    return np.asarray(there)


def _own(traced: Events, stack: Ints) -> Ints:
    """Return the stacks; that of a release is not known if it is the one of its allocation, which stands in for it."""
    order = np.lexsort((np.arange(len(stack)), traced.address, traced.device))
    device, address = traced.device[order], traced.address[order]
    alike = (device[1:] == device[:-1]) & (address[1:] == address[:-1])
    alike &= stack[order][1:] == stack[order][:-1]
    same = np.zeros(len(stack), bool)
    same[order[1:]] = alike
    return np.where((traced.action == actions.FREED) & same, 0, stack)


def _report(name: str, events: Events, blocks: Blocks, made: Made, known: Stacks) -> Report:
    times = np.concatenate((made.time, events.time))
    zero = int(times.min())
    opened_by, texts = _ranges(made, known, zero)
    epoch = zero if events.timed else 0
    span = (0, int(times.max()) - zero + 1)
    devices = np.unique(np.concatenate((made.device, events.device)))
    return Report(
        source=(name,),
        facts=(Facts(PRODUCT, "", span, _warnings(name, events, made, blocks), epoch),),
        ranges=opened_by,
        launches=frames.frame("launches", {}),
        activities=frames.frame("activities", {}),
        marks=_marks(events, zero),
        memory=_memory(made, zero),
        threads=frames.frame(
            "threads",
            {
                "thread": _thread(devices),
                "process": np.full(len(devices), PROCESS),
                "name": frames.named(
                    [f"allocating on GPU {device}" for device in devices.tolist()]
                ),
            },
        ),
        processes=frames.frame(
            "processes", {"process": np.array([PROCESS]), "name": frames.named(["python"])}
        ),
        devices=frames.frame(
            "devices",
            {
                "process": np.full(len(devices), PROCESS),
                "device": devices,
                "gpu": devices,
                "name": frames.named([""] * len(devices)),
            },
        ),
        texts=texts,
    )


def _thread(device: Ints) -> Ints:
    """Return the thread that stands for all that allocate on a device: a snapshot does not tell them apart."""
    return PROCESS + device + 1


def _memory(made: Made, zero: int) -> pd.DataFrame:
    rows = len(made.time)
    columns: dict[str, Any] = {
        "time": made.time - zero,
        "thread": np.where(made.stack > 0, _thread(made.device), MISSING),
        "process": np.full(rows, PROCESS),
        "device": made.device,
        "kind": frames.names(np.full(rows, DEVICE), frames.MEMORY_KINDS),
        "operation": made.operation,
        "address": made.address,
        "bytes": made.bytes,
        "reserved": made.reserved,
    }
    return frames.frame("memory", columns)


def _ranges(made: Made, known: Stacks, zero: int) -> tuple[pd.DataFrame, Texts]:
    """Return the lines of the program as ranges."""
    lines, parts = known.lines(), []
    for device in np.unique(made.device).tolist():  # a turn per device
        rows = np.flatnonzero((made.device == device) & (made.stack > 0))
        line, start, end = stacks.ranges(made.stack[rows], made.time[rows], lines)
        parts.append((line, start, end, np.full(len(line), device)))
    line, start, end, device_of = (np.concatenate(c) for c in zip(*parts, strict=True))
    names = known.texts()
    distinct = [*dict.fromkeys(names)]
    place = {name: code for code, name in enumerate(distinct)}
    text = np.array([*(place[name] for name in names), MISSING], np.int64)[line]
    columns: dict[str, Any] = {
        "start": start - zero,
        "end": end - zero,
        "thread": _thread(device_of),
        "process": np.full(len(line), PROCESS),
        "domain": np.zeros(len(line), np.int64),
        "domain_name": frames.names(np.zeros(len(line), np.int64), [""]),
        "name": frames.names(text, distinct),
        "kind": frames.names(np.zeros(len(line), np.int64), frames.RANGE_KINDS),
        "text": text,
    }
    return frames.frame("ranges", columns), Texts.of(distinct)


def _marks(events: Events, zero: int) -> pd.DataFrame:
    """Return a mark for each allocation that failed: the bytes asked for are its payload."""
    rows = np.flatnonzero(events.action == actions.OOM)
    columns: dict[str, Any] = {
        "time": events.time[rows] - zero,
        "thread": _thread(events.device[rows]),
        "process": np.full(len(rows), PROCESS),
        "domain": np.zeros(len(rows), np.int64),
        "domain_name": frames.names(np.zeros(len(rows), np.int64), [""]),
        "name": frames.names(np.zeros(len(rows), np.int64), [OUT_OF_MEMORY]),
        "payload": events.bytes[rows],
    }
    return frames.frame("marks", columns)


def _warnings(name: str, events: Events, made: Made, blocks: Blocks) -> tuple[str, ...]:
    failed = np.flatnonzero(events.action == actions.OOM)
    said = []
    if len(failed):
        device, size, free = (int(c[failed[0]]) for c in (events.device, events.bytes, events.free))
        left = f" of which {free} were free" if free >= 0 else ""
        often = "once:" if len(failed) == 1 else f"{len(failed)} times: at first"
        said.append(f"out of memory {often} {size} bytes were asked of GPU {device}{left}")
    if len(events) and not events.timed:
        said.append("no times in it: entries are shown 1 µs apart")
    if not len(events):
        said.append("no history, only what was held when it was taken")
    if not (made.stack > 0).any():
        said.append("no stacks: which lines allocated is not known")
    if events.broken:
        said.append(
            f"{events.broken} entries left out: no action that is known, no address or no size"
        )
    lost = _lost(events, blocks)
    if lost:
        said.append(f"{lost} blocks were in use when it was taken that the history says were freed")
    return tuple(f"{name}: {text}" for text in said)


def _lost(events: Events, blocks: Blocks) -> int:
    """Count the blocks that are used though the last entry of their address frees it."""
    given = events.take(np.isin(events.action, (actions.ALLOC, actions.FREED)))
    last = pd.Series(given.action, index=pd.MultiIndex.from_arrays([given.device, given.address]))
    last = last[~last.index.duplicated(keep="last")]
    keys = pd.MultiIndex.from_arrays([blocks.device, blocks.address])
    return int((last.reindex(keys).to_numpy() == actions.FREED).sum())
