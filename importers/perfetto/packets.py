"""The packets of a Perfetto trace as PyTorch's Cuspy writes them: slices of the host, and work of GPUs, in columns.

Numbers of fields are those of protos/perfetto/trace. Cuspy (torch/csrc/profiler/cuspy/cuspy_pftrace.cpp) writes all
names in one packet, and slices in groups: the begins of a group, then their ends in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from bridge.importers.arrays import MISSING, Ints, positions, scatter
from bridge.importers.frames import Names
from bridge.importers.messages import Messages, Pairs
from bridge.importers.perfetto.values import value_of
from bridge.importers.range_texts import DIGITS, parse_digits
from bridge.importers.records import record
from bridge.importers.texts import distinct
from bridge.importers.wire import DamagedMessageError, Wire

PACKET = 1  # of a trace
CLOCKS, TIME, EVENT, INTERNED, STAGE, DESCRIPTOR = 6, 8, 11, 12, 53, 60  # of a packet
UUID, PROCESS, THREAD = 1, 3, 4  # of the descriptor of a track
PID, PROCESS_NAME, TID, THREAD_NAME = 1, 6, 2, 5  # of its process or thread
CATEGORIES, NAMES, STAGES, ARGUMENTS = 1, 2, 24, 1001  # of interned data
IID, NAME = 1, 2  # of an entry of it
TYPE, TRACK, NAME_IID, CATEGORY_IIDS, ANNOTATIONS = 9, 11, 10, 3, 4  # of an event on a track
BEGIN, END = 1, 2  # types
KEY, UNSIGNED, SIGNED = 10, 3, 4  # of an annotation
OF_STAGES = {"duration": 2, "gpu": 11, "kind": 14, "name": 20}
EXTRA, LAUNCH = 6, 21  # of a stage
EXTRA_NAME, EXTRA_VALUE = 1, 2
GRID, BLOCK, LAUNCH_ARGUMENTS = 1, 2, 3  # of a launch
ARGUMENT_NAME_IID, ARGUMENT_NUMBER = 1, 4
REGISTERS, SHARED = "registers_per_thread", "shared_mem_dynamic"  # names of arguments
AXES = (1, 2, 3)
ROWS = 1 << 14  # packets whose fields are held at a time: they fit into the cache


class Entries:
    """A table of names by number."""

    def __init__(self, interned: Messages, number: int) -> None:
        entries = interned.parts(number)
        self.names, self._pairs = entries.texts(NAME), _pairs(entries.integers(IID))

    def at(self, iid: Ints) -> Names:
        """Return the names of numbers, none for those that are not in the table."""
        return self.names.at(_rows(self._pairs, iid))


def _pairs(numbers: Ints) -> Pairs:
    return Pairs(np.zeros(len(numbers), np.int64), numbers)


def _rows(pairs: Pairs, numbers: Ints) -> Ints:
    return pairs.rows(np.zeros(len(numbers), np.int64), numbers)


@record
class Tracks:
    """Threads of the host: the uuid, the pid, the tid and the name of each, and the names of processes by pid."""

    uuid: Ints
    pid: Ints
    tid: Ints
    name: Names
    processes: dict[int, str]

    @classmethod
    def of(cls, descriptors: Messages) -> Tracks:
        threads, processes = descriptors.parts(THREAD), descriptors.parts(PROCESS)
        names = zip(processes.integers(PID).tolist(), processes.texts(PROCESS_NAME), strict=True)
        return cls(
            uuid=descriptors.integers(UUID)[threads.owner],
            pid=threads.integers(PID),
            tid=threads.integers(TID),
            name=threads.texts(THREAD_NAME),
            processes=dict(names),
        )

    def rows(self, uuid: Ints) -> Ints:
        """Return the row of each uuid, -1 where it is of no thread."""
        return _rows(_pairs(self.uuid), uuid)


@record
class Said:
    """What is said of slices: the slice, a whole number (-1 for other values), and where it lies, and its key."""

    wire: Wire
    owner: Ints
    number: Ints
    start: Ints
    end: Ints
    key_start: Ints
    key_end: Ints

    def take(self, rows: Ints, owner: Ints) -> Said:
        """Return what is said in some rows, of other slices."""
        columns = (self.number, self.start, self.end, self.key_start, self.key_end)
        return Said(self.wire, owner, *(column[rows] for column in columns))

    def rows(self, key: str) -> Ints:
        return self.wire.rows_of(key.encode(), self.key_start, self.key_end)

    def ints(self, key: str, owners: int) -> Ints:
        """Return a number of each slice, -1 where it has none."""
        rows = self.rows(key)
        return scatter(self.number[rows], self.owner[rows], owners)

    def values(self, key: str, owners: int) -> tuple[Ints, list[Any]]:
        """Return a value of each slice as a code, -1 where it has none, and the distinct values."""
        rows = self.rows(key)
        start, end = self.start[rows], self.end[rows]
        code, first = distinct(self.wire.words, start, end - start)
        texts = self.wire.texts(start[first], end[first])
        data, bounds = texts.data.tobytes(), texts.offsets.tolist()
        values = [value_of(data[start:end]) for start, end in pairwise(bounds)]
        return scatter(code, self.owner[rows], owners), values


@record
class Slices:
    """Slices on tracks, in the order of the file; ``track`` is the row of the track, -1 if it is no thread's."""

    start: Ints
    end: Ints
    track: Ints
    name: Names
    category: Names
    said: Said

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: Ints) -> Slices:
        """Return some slices, with what is said of them."""
        owner = positions(rows, len(self))[self.said.owner]
        kept = np.flatnonzero(owner != MISSING)
        return Slices(
            start=self.start[rows],
            end=self.end[rows],
            track=self.track[rows],
            name=self.name[rows],
            category=self.category[rows],
            said=self.said.take(kept, owner[kept]),
        )


@record
class Stages:
    """Work of GPUs: when, on which, its kind (`Kernel`, `Memcpy` …), its name, and what is told of it by key."""

    start: Ints
    end: Ints
    gpu: Ints
    kind: Names
    name: Names
    numbers: dict[str, Ints]
    texts: dict[str, Names]

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: Ints) -> Stages:
        return Stages(
            start=self.start[rows],
            end=self.end[rows],
            gpu=self.gpu[rows],
            kind=self.kind[rows],
            name=self.name[rows],
            numbers={key: column[rows] for key, column in self.numbers.items()},
            texts={key: column[rows] for key, column in self.texts.items()},
        )


class Trace:
    """The packets of a trace that are read, and the time of each; raises `DamagedMessageError` if one is not whole."""

    def __init__(self, wire: Wire) -> None:
        kinds = (INTERNED, DESCRIPTOR, EVENT, STAGE)
        found: list[list[tuple[Ints, Ints, Ints]]] = [[] for _ in kinds]
        start, end = wire.repeated(PACKET)
        packets = Messages(wire, np.zeros(len(start), np.int64), start, end)
        for _, part in packets.blocks(ROWS):
            time = part.integers(TIME)
            for kind, parts in zip(kinds, found, strict=True):
                inner = part.parts(kind)
                parts.append((time[inner.owner], inner.start, inner.end))
        self.packets = len(packets)
        self._time, self._parts = {}, {}
        for kind, parts in zip(kinds, found, strict=True):
            time, start, end = (np.concatenate(column) for column in zip(*parts, strict=True))
            self._time[kind] = time
            self._parts[kind] = Messages(wire, np.arange(len(start)), start, end)

    @property
    def interned(self) -> Messages:
        return self._parts[INTERNED]

    def entries(self, number: int) -> Entries:
        return Entries(self.interned, number)

    @property
    def tracks(self) -> Tracks:
        return Tracks.of(self._parts[DESCRIPTOR])

    def slices(self, tracks: Tracks) -> Slices:
        """Return the slices; raises `DamagedMessageError` where begins and ends are not of the same tracks."""
        events, time = self._parts[EVENT], self._time[EVENT]
        parts = [_events_of(first, part) for first, part in events.blocks(ROWS)]
        begin, end, began, ended, name, category, owner, *said = (
            np.concatenate(column) for column in zip(*parts, strict=True)
        )
        if len(began) != len(ended) or (began != ended).any():
            raise DamagedMessageError
        return Slices(
            start=time[begin],
            end=time[end],
            track=tracks.rows(began),
            name=self.entries(NAMES).at(name),
            category=self.entries(CATEGORIES).at(category),
            said=Said(events.wire, positions(begin, len(events))[owner], *said),
        )

    def stages(self, numbers: Sequence[str], texts: Sequence[str]) -> Stages:
        """Return the work of GPUs, with numbers and texts that are told of it, and those of launches."""
        arguments = self.entries(ARGUMENTS)
        parts = [
            _stages_of(part, arguments, numbers, texts)
            for _, part in self._parts[STAGE].blocks(ROWS)
        ]
        columns = {key: np.concatenate([told[key] for told, _ in parts]) for key in parts[0][0]}
        start = self._time[STAGE]
        return Stages(
            start=start,
            end=start + columns["duration"],
            gpu=columns["gpu"],
            kind=self.entries(STAGES).at(columns["kind"]),
            name=self.entries(NAMES).at(columns["name"]),
            numbers=columns,
            texts={key: Names.concat([written[key] for _, written in parts]) for key in texts},
        )


def _events_of(first: int, part: Messages) -> tuple[Ints, ...]:
    """Return begins, ends, their tracks, names, categories, and of annotations the event and the columns of `Said`.

    ``first`` is the row of the first event.
    """
    kind, track = part.integers(TYPE), part.integers(TRACK)
    begin, end = np.flatnonzero(kind == BEGIN), np.flatnonzero(kind == END)
    names = (part.integers(number)[begin] for number in (NAME_IID, CATEGORY_IIDS))
    said = part.parts(ANNOTATIONS)
    said = said.take(kind[said.owner] == BEGIN)
    number = said.integers(SIGNED, MISSING)
    number = np.where(number == MISSING, said.integers(UNSIGNED, MISSING), number)
    columns = (first + begin, first + end, track[begin], track[end], *names)
    return (*columns, first + said.owner, number, said.start, said.end, *said.places(KEY))


def _stages_of(
    part: Messages, arguments: Entries, numbers: Sequence[str], texts: Sequence[str]
) -> tuple[dict[str, Ints], dict[str, Names]]:
    """Return the numbers and the texts that are told of some stages."""
    columns = {name: part.integers(number) for name, number in OF_STAGES.items()}
    extra = part.parts(EXTRA)
    key, value = (extra.places(number) for number in (EXTRA_NAME, EXTRA_VALUE))
    told, written = columns | _launches_of(part, arguments), {}
    for name in numbers:
        rows = part.wire.rows_of(name.encode(), *key)
        told[name] = scatter(_whole(part.wire, *value[:, rows]), extra.owner[rows], len(part))
    for name in texts:
        rows = part.wire.rows_of(name.encode(), *key)
        found = extra.take(rows).texts(EXTRA_VALUE)
        written[name] = found.at(scatter(np.arange(len(rows)), extra.owner[rows], len(part)))
    return told, written


def _whole(wire: Wire, start: Ints, end: Ints) -> Ints:
    """Return the whole numbers that are written at places in decimal digits, -1 for other texts."""
    value, stop = parse_digits(wire.words, start, end)
    is_number = (stop == end) & (start < end) & (end - start < DIGITS)
    return np.where(is_number, value.astype(np.int64), MISSING)


def _launches_of(part: Messages, arguments: Entries) -> dict[str, Ints]:
    """Return sizes along each axis, and arguments of launches by name, which are left out where they are 0."""
    launches, result = part.parts(LAUNCH), {}
    for key, number in (("grid", GRID), ("block", BLOCK)):
        sizes = launches.parts(number)
        owner = launches.owner[sizes.owner]
        for axis in AXES:
            result[f"{key} {axis}"] = scatter(sizes.integers(axis), owner, len(part))
    told = launches.parts(LAUNCH_ARGUMENTS)
    name = arguments.at(told.integers(ARGUMENT_NAME_IID))
    for key in (REGISTERS, SHARED):
        rows = np.flatnonzero(name == key)
        result[key] = scatter(np.zeros(len(launches), np.int64), launches.owner, len(part))
        result[key][launches.owner[told.owner[rows]]] = told.integers(ARGUMENT_NUMBER)[rows]
    return result
