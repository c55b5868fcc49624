"""Read a snapshot of torch.cuda.memory into a `Capture`: memory, and lines of code as ranges."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from bridge.importers import frames
from bridge.importers.arrays import MISSING, Flags, Ints, scatter
from bridge.importers.capture import Capture, Facts, Reader
from bridge.importers.errors import NothingRecorded
from bridge.importers.kineto.events import integers, no_garbage_collection
from bridge.importers.nsys.tables import Details
from bridge.importers.records import record
from bridge.importers.snapshot import file
from bridge.importers.snapshot.file import Events, Stacks
from bridge.importers.texts import Texts

# -- Segments and their used blocks when the snapshot was taken


USED_STATE = "active"  # prefix of the states of used blocks


@record
class Blocks:
    """The used blocks of a snapshot: device, address, requested bytes, and frames as in the file.

    ``reserved`` maps each device with segments to the bytes of these.
    """

    device: Ints
    address: Ints
    bytes: Ints
    frames: list[Any]
    reserved: dict[int, int]

    @classmethod
    def of(cls, segments: Sequence[Any]) -> Blocks:
        valid = [segment for segment in segments if type(segment) is dict]
        device, total = (_column(valid, key) for key in ("device", "total_size"))
        device = np.maximum(device, 0)  # absent in snapshots of one GPU
        blocks = [
            block
            for number, segment in zip(device.tolist(), valid, strict=True)
            for block in _used_blocks(number, segment)
        ]
        columns = np.array([block[:3] for block in blocks], np.int64).reshape(-1, 3)
        reserved = {
            index: int(np.maximum(total[device == index], 0).sum())
            for index in np.unique(device).tolist()
        }
        device_of, address, size = columns.T
        return cls(
            device=device_of,
            address=address,
            bytes=size,
            frames=[frames for *_, frames in blocks],
            reserved=reserved,
        )


def _column(rows: Sequence[Any], key: str) -> Ints:
    return integers([row.get(key) for row in rows])


def _used_blocks(device: int, segment: dict[str, Any]) -> Iterator[tuple[int, int, int, Any]]:
    """Yield device, address, bytes and frames of the used blocks of a segment.

    Older snapshots have no addresses of blocks: these follow from the sizes.
    """
    blocks = segment.get("blocks")
    rows = [b for b in blocks if type(b) is dict] if isinstance(blocks, list) else []
    size = np.maximum(_column(rows, "size"), 0)
    requested, addresses = _column(rows, "requested_size"), _column(rows, "address")
    [first] = integers([segment.get("address")]).tolist()
    address = np.where(addresses >= 0, addresses, first + np.cumsum(size) - size)
    for row, place, size_, request in zip(
        rows, address.tolist(), size.tolist(), requested.tolist(), strict=True
    ):
        state = row.get("state")
        if type(state) is str and state.startswith(USED_STATE) and place >= 0:
            real, frames = _history(row)
            yield device, place, next(n for n in (request, real, size_) if n >= 0), frames


def _history(block: dict[str, Any]) -> tuple[int, Any]:
    """Return the requested bytes, -1 if unknown, and the frames of a block.

    Older snapshots have them in its history.
    """
    history = block.get("history")
    if not isinstance(history, list) or not history or type(history[0]) is not dict:
        return -1, block.get("frames")
    return int(integers([history[0].get("real_size")])[0]), history[0].get("frames")


# -- Reserved bytes: the segments at the end, and how they grew and shrank


GROWTH_SIGN = {file.GROWN: 1, file.MAPPED: 1, file.SHRUNK: -1, file.UNMAPPED: -1}


def initial_levels(events: Events, blocks: Blocks) -> dict[int, int]:
    """Return the reserved bytes of each device before the trace, from those at its end.

    -1 where a snapshot without segments leaves them unknown.
    """
    growth = _growth(events)
    result = {}
    for device in {*blocks.reserved, *np.unique(events.device).tolist()}:  # a loop over devices
        change = growth[events.device == device]
        end, added = blocks.reserved.get(device, 0), int(change.sum())
        is_known = bool(blocks.reserved) or (bool(change.any()) and added <= 0)
        result[device] = max(0, end - added) if is_known else MISSING
    return result


def levels(events: Events, first: dict[int, int]) -> Ints:
    """Return the reserved bytes of the device after each entry, -1 if unknown."""
    growth, result = _growth(events), np.full(len(events), MISSING)
    for device in np.unique(events.device).tolist():  # a loop over devices
        rows = events.device == device
        if first[device] != MISSING:
            result[rows] = first[device] + np.cumsum(growth[rows])
    return result


def separate_changes(events: Events, first: dict[int, int]) -> np.ndarray:
    """Return a mask of the entries that change the reserved bytes without a row that shows it.

    The allocation right after a growth shows the change.
    """
    changes = _growth(events)
    has_row = np.zeros(len(events), bool)
    has_row[:-1] = (events.action[1:] == file.ALLOC) & (events.device[1:] == events.device[:-1])
    known = np.array([device for device in first if first[device] != MISSING], np.int64)
    result: np.ndarray = (changes != 0) & ~(has_row & (changes > 0)) & np.isin(events.device, known)
    return result


def devices_without_rows(events: Events, first: dict[int, int], held_devices: Ints) -> list[int]:
    """Return the devices with reserved bytes before the trace but no held blocks to show them."""
    changed = set(events.device[_growth(events) != 0].tolist()) - set(held_devices.tolist())
    return sorted(device for device in changed if first[device] > 0)


def _growth(events: Events) -> Ints:
    sign = np.array([GROWTH_SIGN.get(code, 0) for code in range(len(file.ACTIONS))])
    return np.asarray(sign[events.action] * events.bytes)


# -- The capture


PRODUCT = "PyTorch memory snapshot"
PROCESS = 0  # unknown in a snapshot
OUT_OF_MEMORY = "out of memory"
DEVICE = frames.MEMORY_KINDS.index("device")


@record
class MemoryRows:
    """Rows of the frame `memory`, in order of time per device; ``stack`` is 0 if it is unknown."""

    device: Ints
    time: Ints
    operation: Ints
    address: Ints
    bytes: Ints
    reserved: Ints
    stack: Ints

    @classmethod
    def joined(cls, *parts: MemoryRows) -> MemoryRows:
        """Return the rows of several parts in order of time."""
        columns = {
            column_.name: np.concatenate([getattr(part, column_.name) for part in parts])
            for column_ in fields(cls)
        }
        order = np.argsort(columns["time"], kind="stable")
        return cls(**{name: column[order] for name, column in columns.items()})


def read(path: Path, _details: Details = True) -> Capture:
    """Read a snapshot; raises a `ReportError` if it is damaged or not a snapshot."""
    name = os.fsencode(path.name).decode(errors="replace")
    with no_garbage_collection():
        values = file.read_snapshot(path)
        events = Events.of(name, values["device_traces"])
        blocks = Blocks.of(values["segments"])
        if not len(events) and not len(blocks.device):
            raise NothingRecorded(
                f"{name}: no allocations;"
                " was torch.cuda.memory._record_memory_history() called before?"
            )
        stacks = Stacks()
        rows = _memory_rows(events, blocks, stacks)
    return _capture(name, events, blocks=blocks, rows=rows, stacks=stacks)


def _memory_rows(events: Events, blocks: Blocks, stacks: Stacks) -> MemoryRows:
    """Return the rows of held blocks, followed by those of the trace."""
    first = initial_levels(events, blocks)
    level = levels(events, first)
    alloc_rows = np.flatnonzero(np.isin(events.action, (file.ALLOC, file.FREED)))
    traced = events.take(alloc_rows)
    stack = _known_stacks(traced, stacks.of([events.frames[row] for row in alloc_rows.tolist()]))
    operation = np.where(traced.action == file.ALLOC, frames.ALLOCATE, frames.RELEASE)
    rows = MemoryRows(
        device=traced.device,
        time=traced.time,
        operation=operation,
        address=traced.address,
        bytes=traced.bytes,
        reserved=level[alloc_rows],
        stack=stack,
    )
    began = int(events.time.min()) if len(events) else 0
    held_rows = _held_rows(
        blocks, np.flatnonzero(~_in_trace(blocks, traced)), stacks=stacks, began=began, first=first
    )
    separate = np.flatnonzero(separate_changes(events, first))
    without_rows = np.array(devices_without_rows(events, first, held_rows.device), np.int64)
    return MemoryRows.joined(
        _level_rows(
            without_rows, np.full(len(without_rows), began - 1), _per_device(first, without_rows)
        ),
        held_rows,
        rows,
        _level_rows(events.device[separate], events.time[separate], level[separate]),
    )


def _held_rows(
    blocks: Blocks, rows: Ints, stacks: Stacks, began: int, first: Mapping[int, int]
) -> MemoryRows:
    """Return the rows of blocks that were allocated before the trace began."""
    stack = stacks.of([blocks.frames[row] for row in rows.tolist()])
    order = np.argsort(stack, kind="stable")
    rows, count = rows[order], len(rows)
    return MemoryRows(
        device=blocks.device[rows],
        time=began - count + np.arange(count),
        operation=np.full(count, frames.HELD),
        address=blocks.address[rows],
        bytes=blocks.bytes[rows],
        reserved=_per_device(first, blocks.device[rows]),
        stack=stack[order],
    )


def _per_device(first: Mapping[int, int], device: Ints) -> Ints:
    return np.array([first[number] for number in device.tolist()], np.int64)


def _level_rows(device: Ints, time: Ints, level: Ints) -> MemoryRows:
    """Return rows that change the reserved bytes only."""
    none, nothing = np.full(len(time), MISSING), np.zeros(len(time), np.int64)
    operation = np.full(len(time), frames.RESERVED)
    return MemoryRows(
        device=device,
        time=time,
        operation=operation,
        address=none,
        bytes=nothing,
        reserved=level,
        stack=nothing,
    )


def _in_trace(blocks: Blocks, traced: Events) -> Flags:
    """Return a mask of the blocks whose address occurs in the trace."""
    key, traced_key = frames.key_codes(
        (blocks.device, blocks.address), (traced.device, traced.address)
    )
    return np.isin(key, traced_key)


def _known_stacks(traced: Events, stack: Ints) -> Ints:
    """Return the stacks, with 0 for a release that has the stack of its allocation.

    The allocator writes the allocation's stack where that of the release is unknown.
    """
    order = np.lexsort((np.arange(len(stack)), traced.address, traced.device))
    device, address = traced.device[order], traced.address[order]
    is_same = (device[1:] == device[:-1]) & (address[1:] == address[:-1])
    is_same &= stack[order][1:] == stack[order][:-1]
    has_same_stack = np.zeros(len(stack), bool)
    has_same_stack[order[1:]] = is_same
    return np.where((traced.action == file.FREED) & has_same_stack, 0, stack)


def _capture(
    name: str, events: Events, blocks: Blocks, rows: MemoryRows, stacks: Stacks
) -> Capture:
    times = np.concatenate((rows.time, events.time))
    zero = int(times.min())
    range_frame, texts = _ranges(rows, stacks, zero)
    epoch = zero if events.timed else 0
    span = (0, int(times.max()) - zero + 1)
    devices = np.unique(np.concatenate((rows.device, events.device)))
    return Capture(
        source=(name,),
        facts=(
            Facts(
                product=PRODUCT,
                schema="",
                span=span,
                warnings=_warnings(name, events, rows, blocks),
                epoch_ns=epoch,
            ),
        ),
        ranges=range_frame,
        launches=frames.Launches(),
        activities=frames.Activities(),
        marks=_marks(events, zero),
        memory=_memory(rows, zero),
        threads=frames.Threads(
            thread=_thread(devices),
            process=np.full(len(devices), PROCESS),
            name=frames.Names.of([f"allocating on GPU {device}" for device in devices.tolist()]),
        ),
        processes=frames.Processes(process=np.array([PROCESS]), name=frames.Names.of(["python"])),
        devices=frames.Devices(
            process=np.full(len(devices), PROCESS),
            device=devices,
            gpu=devices,
            name=frames.Names.of([""] * len(devices)),
        ),
        texts=texts,
    )


def _thread(device: Ints) -> Ints:
    """Return the thread of all allocations of a device; a snapshot has no real threads."""
    return PROCESS + device + 1


def _memory(memory_rows: MemoryRows, zero: int) -> frames.Memory:
    rows = len(memory_rows.time)
    columns: dict[str, Any] = {
        "time": memory_rows.time - zero,
        "thread": np.where(memory_rows.stack > 0, _thread(memory_rows.device), MISSING),
        "process": np.full(rows, PROCESS),
        "device": memory_rows.device,
        "kind": frames.Names(np.full(rows, DEVICE), frames.MEMORY_KINDS),
        "operation": memory_rows.operation,
        "address": memory_rows.address,
        "bytes": memory_rows.bytes,
        "reserved": memory_rows.reserved,
    }
    return frames.Memory(columns)


def _ranges(memory_rows: MemoryRows, stacks: Stacks, zero: int) -> tuple[frames.Ranges, Texts]:
    """Return the frame `ranges` of the lines of the program, and their texts."""
    lines, parts = stacks.lines(), []
    for device in np.unique(memory_rows.device).tolist():  # a loop over devices
        rows = np.flatnonzero((memory_rows.device == device) & (memory_rows.stack > 0))
        line, start, end = file.ranges(memory_rows.stack[rows], memory_rows.time[rows], lines)
        parts.append((line, start, end, np.full(len(line), device)))
    line, start, end, device_of = (np.concatenate(c) for c in zip(*parts, strict=True))
    names = stacks.texts()
    distinct = [*dict.fromkeys(names)]
    place = {name: code for code, name in enumerate(distinct)}
    text = np.array([*(place[name] for name in names), MISSING], np.int64)[line]
    columns: dict[str, Any] = {
        "start": start - zero,
        "end": end - zero,
        "thread": _thread(device_of),
        "process": np.full(len(line), PROCESS),
        "domain": np.zeros(len(line), np.int64),
        "domain_name": frames.Names(np.zeros(len(line), np.int64), [""]),
        "name": frames.Names(text, distinct),
        "kind": frames.Names(np.zeros(len(line), np.int64), frames.RANGE_KINDS),
        "text": text,
    }
    return frames.Ranges(columns), Texts.of(distinct)


def _marks(events: Events, zero: int) -> frames.Marks:
    """Return the frame `marks`: one per failed allocation; the payload is the requested bytes."""
    rows = np.flatnonzero(events.action == file.OOM)
    columns: dict[str, Any] = {
        "time": events.time[rows] - zero,
        "thread": _thread(events.device[rows]),
        "process": np.full(len(rows), PROCESS),
        "domain": np.zeros(len(rows), np.int64),
        "domain_name": frames.Names(np.zeros(len(rows), np.int64), [""]),
        "name": frames.Names(np.zeros(len(rows), np.int64), [OUT_OF_MEMORY]),
        "payload": events.bytes[rows],
    }
    return frames.Marks(columns)


def _warnings(name: str, events: Events, rows: MemoryRows, blocks: Blocks) -> tuple[str, ...]:
    failed = np.flatnonzero(events.action == file.OOM)
    lines = []
    if len(failed):
        device, size, free = (int(c[failed[0]]) for c in (events.device, events.bytes, events.free))
        free_text = f", which had {free} free" if free >= 0 else ""
        count = "once:" if len(failed) == 1 else f"{len(failed)} times: at first"
        lines.append(
            f"out of memory {count} {size} bytes were requested on GPU {device}{free_text}"
        )
    if len(events) and not events.timed:
        lines.append("no times in it: entries are shown 1 µs apart")
    if not len(events):
        lines.append("no history, only the blocks in use when it was taken")
    if not (rows.stack > 0).any():
        lines.append("no stacks: the lines that allocated are unknown")
    if events.broken:
        lines.append(f"{events.broken} entries left out: no known action, no address or no size")
    lost = _count_lost(events, blocks)
    if lost:
        lines.append(f"{lost} blocks were in use when it was taken, but are freed in the history")
    return tuple(f"{name}: {text}" for text in lines)


def _count_lost(events: Events, blocks: Blocks) -> int:
    """Count the blocks in use for which the last entry of the trace is their release."""
    changes = events.take(np.isin(events.action, (file.ALLOC, file.FREED)))
    changed, key = frames.key_codes(
        (changes.device, changes.address), (blocks.device, blocks.address)
    )
    last = scatter(
        changes.action, changed, int(max(changed.max(initial=0), key.max(initial=0))) + 1
    )  # of several the last one stays
    return int((last[key] == file.FREED).sum())


READER = Reader("snapshot", file.is_snapshot, read)
