"""A snapshot of torch.cuda.memory becomes a `Report`: allocations, lines of the program as ranges, and no kernels."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from importers import frames
from importers.errors import NothingRecorded
from importers.frames import MISSING
from importers.kineto.events import integers
from importers.kineto.file import without_collection
from importers.report import Facts, Report
from importers.snapshot import file, stacks
from importers.snapshot import stacks as actions
from importers.snapshot.stacks import Events, Stacks
from importers.texts import Ints, Texts

# -- What was held when the snapshot was taken: segments, which are reserved, and the blocks in them that are used


USED = "active"  # what the states of blocks that are used begin with


@dataclass(frozen=True)
class Blocks:
    """Blocks that were used: device, address, bytes that were asked for, and frames, as they are there.

    ``reserved`` are the bytes of all segments of each device that has any.
    """

    device: Ints
    address: Ints
    bytes: Ints
    frames: list[Any]
    reserved: dict[int, int]

    @classmethod
    def of(cls, segments: Sequence[Any]) -> Blocks:
        """Read the segments."""
        whole = [segment for segment in segments if type(segment) is dict]
        device, total = (_column(whole, key) for key in ("device", "total_size"))
        device = np.maximum(device, 0)  # of one GPU it may be left out
        found = [
            block
            for number, segment in zip(device.tolist(), whole, strict=True)
            for block in _used(number, segment)
        ]
        columns = np.array([block[:3] for block in found], np.int64).reshape(-1, 3)
        reserved = {
            one: int(np.maximum(total[device == one], 0).sum())
            for one in np.unique(device).tolist()
        }
        device_of, address, size = columns.T
        return cls(device_of, address, size, [frames for *_, frames in found], reserved)


def _column(rows: Sequence[Any], key: str) -> Ints:
    return integers([row.get(key) for row in rows])


def _used(device: int, segment: dict[str, Any]) -> Iterator[tuple[int, int, int, Any]]:
    """Yield device, address, bytes and frames of the blocks in use; older snapshots give them no address."""
    blocks = segment.get("blocks")
    rows = [b for b in blocks if type(b) is dict] if isinstance(blocks, list) else []
    size = np.maximum(_column(rows, "size"), 0)
    asked, own = _column(rows, "requested_size"), _column(rows, "address")
    [first] = integers([segment.get("address")]).tolist()
    place = np.where(own >= 0, own, first + np.cumsum(size) - size)
    for row, at, whole, part in zip(
        rows, place.tolist(), size.tolist(), asked.tolist(), strict=True
    ):
        state = row.get("state")
        if type(state) is str and state.startswith(USED) and at >= 0:
            real, frames = _history(row)
            yield device, at, next(n for n in (part, real, whole) if n >= 0), frames


def _history(block: dict[str, Any]) -> tuple[int, Any]:
    """Return the bytes that were asked for, -1 if unknown, and the frames: older snapshots have them in a history."""
    history = block.get("history")
    if not isinstance(history, list) or not history or type(history[0]) is not dict:
        return -1, block.get("frames")
    return int(integers([history[0].get("real_size")])[0]), history[0].get("frames")


# -- What the allocator had reserved of each device: what its segments come to at the end, and how they grew and shrank


GREW = {actions.GROWN: 1, actions.MAPPED: 1, actions.SHRUNK: -1, actions.UNMAPPED: -1}


def first_levels(events: Events, blocks: Blocks) -> dict[int, int]:
    """Return what each device had before the trace: what it has at its end, less what came in between.

    -1 where a snapshot without segments cannot tell.
    """
    grown = _growth(events)
    found = {}
    for device in {*blocks.reserved, *np.unique(events.device).tolist()}:  # a turn per device
        change = grown[events.device == device]
        end, added = blocks.reserved.get(device, 0), int(change.sum())
        told = bool(blocks.reserved) or (bool(change.any()) and added <= 0)
        found[device] = max(0, end - added) if told else MISSING
    return found


def levels(events: Events, first: dict[int, int]) -> Ints:
    """Return what each entry's device had after it, -1 if that is not known."""
    grown, found = _growth(events), np.full(len(events), MISSING)
    for device in np.unique(events.device).tolist():  # a turn per device
        rows = events.device == device
        if first[device] != MISSING:
            found[rows] = first[device] + np.cumsum(grown[rows])
    return found


def lone_events(events: Events, first: dict[int, int]) -> np.ndarray:
    """Tell which entries change what is reserved without an allocation right after them that shows it."""
    changes = _growth(events)
    shown = np.zeros(len(events), bool)
    shown[:-1] = (events.action[1:] == actions.ALLOC) & (events.device[1:] == events.device[:-1])
    known = np.array([one for one in first if first[one] != MISSING], np.int64)
    found: np.ndarray = (changes != 0) & ~(shown & (changes > 0)) & np.isin(events.device, known)
    return found


def unseen_blocks(events: Events, first: dict[int, int], held: Ints) -> list[int]:
    """Return the devices whose level before the trace no row tells: there are none of blocks ``held`` on them."""
    changed = set(events.device[_growth(events) != 0].tolist()) - set(held.tolist())
    return sorted(device for device in changed if first[device] > 0)


def _growth(events: Events) -> Ints:
    sign = np.array([GREW.get(code, 0) for code in range(len(actions.ACTIONS))])
    return np.asarray(sign[events.action] * events.bytes)


# -- A snapshot of torch.cuda.memory becomes a `Report`: allocations, lines of the program as ranges, and no kernels


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
        found = file.read(path)
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
    first = first_levels(events, blocks)
    level = levels(events, first)
    given = np.flatnonzero(np.isin(events.action, (actions.ALLOC, actions.FREED)))
    traced = events.take(given)
    stack = _own(traced, known.of([events.frames[row] for row in given.tolist()]))
    operation = np.where(traced.action == actions.ALLOC, frames.ALLOCATE, frames.RELEASE)
    told = Made(
        traced.device, traced.time, operation, traced.address, traced.bytes, level[given], stack
    )
    began = int(events.time.min()) if len(events) else 0
    held = _held(blocks, np.flatnonzero(~_in(blocks, traced)), known, began, first)
    alone = np.flatnonzero(lone_events(events, first))
    unseen = np.array(unseen_blocks(events, first, held.device), np.int64)
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
