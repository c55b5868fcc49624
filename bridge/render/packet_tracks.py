"""Tracks of a Perfetto trace (processes, threads, counters, phases), and interned texts.

The fields are those of
protos/perfetto/trace/track_event/{track,process,thread,counter}_descriptor.proto.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from itertools import count

import numpy as np

from bridge.analyze.draw.timeline import Chain, NameColumn, Slices
from bridge.analyze.draw.tracks import FIRST_NUMBER, Group, Track
from bridge.importers.arrays import scatter
from bridge.importers.records import record
from bridge.render.packets import (
    LENGTH,
    MISSING,
    Bytes,
    Column,
    Fixed,
    Integers,
    Ints,
    Message,
    Packets,
    Part,
    Piece,
    column_of,
    gather,
    integer,
    message,
    tag,
    varints,
)
from bridge.render.text_columns import Names

# -- Distinct paths in a tree of names


SEPARATOR = np.frombuffer(b"/", np.uint8)[None]


@record
class Paths:
    """Distinct paths, parents before children.

    Attributes:
        parent: the path that each path extends by one name, or MISSING.
        name: the code of each path's last name.
        of_node: the path of each node of the chain, MISSING for nodes that were not requested; its
            last entry is MISSING, for missing nodes.

    """

    parent: Ints
    name: Ints
    of_node: Ints

    @classmethod
    def of(cls, chain: Chain, rows: Ints) -> Paths:
        of_node = np.full(len(chain.parent) + 1, MISSING)
        name_count = len(chain.name.names)
        values = [np.empty(0, np.int64)]
        count = 0
        for nodes in chain.levels(rows):
            keys = (of_node[chain.parent[nodes]] + 1) * name_count + chain.name.codes[nodes]
            distinct, code = np.unique(keys, return_inverse=True)
            of_node[nodes] = code + count
            values.append(distinct)
            count += len(distinct)
        parent, name = np.divmod(np.concatenate(values), max(name_count, 1))
        return cls(parent - 1, name, of_node)


@record
class PathText(Piece):
    """A path per row, with slashes between its names; ``name`` is the last name of each path."""

    parent: Ints
    name: Names

    def width(self, rows: Ints) -> int:
        """Return the number of bytes of the texts of some rows, those of each level beside each other."""
        width = 0
        while len(rows):
            width += self.name.width(rows) + 1
            rows = self.parent[rows]
            rows = rows[rows != MISSING]
        return width

    def parts(self, rows: Ints) -> list[Part]:
        return list(self._upwards(rows))[::-1]

    def _upwards(self, rows: Ints) -> Iterator[Part]:
        present = np.ones(len(rows), bool)
        while present.any():
            shown = np.where(present, rows, rows[np.argmax(present)])  # others are as wide as one
            size = self.name.size[self.name.codes[shown]]
            yield Part(self.name.at(shown), size).only(present)
            rows = np.where(present, self.parent[rows], MISSING)
            present = rows != MISSING
            yield Part(SEPARATOR).only(present)


# -- Interned texts: written once, then referred to by number


TEXTS_PER_CHUNK = 8_192
PACKET = 1  # field of Trace
SEQUENCE_ID, INTERNED_DATA = 10, 12  # fields of TracePacket
ON_SEQUENCE = integer(SEQUENCE_ID, 1)
EVENT_CATEGORIES, EVENT_NAMES = 1, 2  # fields of InternedData
DEBUG_ANNOTATION_NAMES, DEBUG_ANNOTATION_STRING_VALUES = 3, 29
IID, TEXT = tag(1), tag(2, LENGTH)  # fields of EventName, InternedString and their like


class InternTable:
    """Numbers for texts, from 1 on for each use."""

    def __init__(self) -> None:
        self.known: dict[int, dict[str, int]] = {}
        self.counts: dict[int, int] = {}
        self.paths: list[Packets] = []

    def number(self, use: int, text: str) -> int:
        known = self.known.setdefault(use, {})
        if text not in known:
            known[text] = self._next(use, 1)
        return known[text]

    def column(self, use: int, named: NameColumn, rows: Ints) -> Column:
        """Number the names of some rows; return a column with the number of each row's name."""
        used = np.zeros(len(named.names) + 1, bool)
        used[named.codes[rows]] = True
        number_by_code = np.full(len(used), MISSING)  # the last entry is for rows without a name
        codes = np.flatnonzero(used[:-1])
        number_by_code[codes] = [self.number(use, named.names[code]) for code in codes.tolist()]
        return gather(number_by_code, named.codes)

    def path_column(self, use: int, chain: Chain, rows: Ints) -> Column:
        """Number the distinct paths of some rows, as `column` does for names."""
        paths = Paths.of(chain, rows)
        first = self._next(use, len(paths.name))
        names = Names(paths.name, list(map(encoded, chain.name.names)), word=1)
        text = Message(2, [PathText(paths.parent, names)])
        entry = Message(use, [Integers(IID, lambda some: some + first), text])
        packet = Message(PACKET, [Fixed(ON_SEQUENCE), Message(INTERNED_DATA, [entry])])
        self.paths.append(Packets([packet], np.arange(len(paths.name)), TEXTS_PER_CHUNK))
        number_by_node = np.where(paths.of_node == MISSING, MISSING, paths.of_node + first)
        return gather(number_by_node, chain.node)

    def packets(self) -> Iterator[bytes]:
        """Yield packets with all texts and their numbers, except paths."""
        for use, known in self.known.items():
            texts, numbers = list(known), np.array(list(known.values()), np.int64)
            for first in range(0, len(texts), TEXTS_PER_CHUNK):
                part = slice(first, first + TEXTS_PER_CHUNK)
                entries = _entries(use, texts[part], numbers[part])
                yield message(PACKET, ON_SEQUENCE, message(INTERNED_DATA, entries))

    def _next(self, use: int, number: int) -> int:
        first = self.counts.get(use, 1)
        self.counts[use] = first + number
        return first


def _entries(use: int, texts: Sequence[str], numbers: Ints) -> bytes:
    """Return a message for each text."""
    content = list(map(encoded, texts))
    number = varints(numbers)
    size = np.fromiter(map(len, content), np.int64, len(texts))
    sizes = varints(size)
    inner = len(IID) + number.shape[1] + len(TEXT) + sizes.shape[1]
    pieces = (tag(use, LENGTH), varints(size + inner), IID, number, TEXT, sizes)
    heads = np.hstack([_rows(piece, len(texts)) for piece in pieces])
    opaque = np.ascontiguousarray(heads).view(f"V{heads.shape[1]}").ravel().tolist()
    return b"".join(itertools.chain.from_iterable(zip(opaque, content, strict=True)))


def encoded(text: str) -> bytes:
    """Return a text as UTF-8; characters that cannot be encoded become question marks."""
    return text.encode(errors="replace")


def _rows(piece: bytes | Bytes, count: int) -> Bytes:
    if isinstance(piece, bytes):
        return np.broadcast_to(np.frombuffer(piece, np.uint8), (count, len(piece)))
    return piece


# -- Descriptors of tracks


TRACK_DESCRIPTOR = 60  # field of TracePacket
UUID, NAME, PROCESS, THREAD, PARENT_UUID, COUNTER = 1, 2, 3, 4, 5, 8  # fields of TrackDescriptor
CHILD_ORDERING, SIBLING_ORDER_RANK, SIBLING_MERGE_BEHAVIOR = 11, 12, 15
PROCESS_ORDERING, THREAD_ORDERING = 19, 20
EXPLICIT = integer(CHILD_ORDERING, 3)
# The descriptor of the root (uuid 0) states that the order of processes and threads is explicit.
ROOT = integer(UUID, 0) + integer(PROCESS_ORDERING, 1) + integer(THREAD_ORDERING, 1)
APART = integer(SIBLING_MERGE_BEHAVIOR, 2)  # else viewers merge tracks of the same name
PID, PROCESS_NAME = 1, 6  # fields of ProcessDescriptor
TID, THREAD_NAME = 2, 5  # fields of ThreadDescriptor
UNIT_NAME = 6  # field of CounterDescriptor
UNIT = re.compile(r" \((%|ns|bytes)\)$")
FIRST_RANK = -(2**30)  # of the first counter, below the rank of any other track
PHASES = b"phases"


class Descriptors:
    """The uuids of all tracks, and their descriptors, each written once."""

    def __init__(self, tracks: Sequence[Track]) -> None:
        self.descriptors = [message(TRACK_DESCRIPTOR, ROOT)]
        self.uuids = count(1)  # 0 is the track of the trace
        self.counters: dict[tuple[Group, str], int] = {}
        used = dict.fromkeys(
            track.group for track in tracks
        )  # a set has another order in each process
        groups = sorted(used, key=lambda group: group.order)
        self.of_group = {group: self._group(group) for group in groups}
        self.tracks = tracks
        self.of_track = np.array([self._track(track) for track in tracks], np.int64)

    def slices(self, s: Slices) -> Column:
        return gather(self.of_track, s.track)

    def samples(self, s: Slices) -> Column:
        """Return the track of each sample of a counter; a group has one track per name."""
        name_count = len(s.name.names)
        pairs, code = np.unique(
            s.track[s.rows] * name_count + s.name.codes[s.rows], return_inverse=True
        )
        values = [
            self._counter(self.tracks[pair // name_count].group, s.name.names[pair % name_count])
            for pair in pairs.tolist()
        ]
        uuid = scatter(np.array(values, np.int64)[code], s.rows, len(s.track))
        return column_of(uuid)

    def phases(self, s: Slices) -> tuple[Column, Packets]:
        """Return a track for each phase, and the descriptors of these tracks.

        Phases may overlap, so each has a track of its own; viewers merge them by name.
        """
        first = next(self.uuids)
        self.uuids = count(first + len(s.track))
        fields: list[Piece] = [
            Integers(tag(UUID), lambda rows: rows + first),
            Integers(tag(PARENT_UUID), self.slices(s)),
            Fixed(message(NAME, PHASES)),
        ]
        described = Message(PACKET, [Fixed(ON_SEQUENCE), Message(TRACK_DESCRIPTOR, fields)])
        return lambda rows: rows + first, Packets([described], s.rows)

    def _group(self, group: Group) -> int:
        """Describe a process, or a group of tracks that is none, such as a device."""
        name = encoded(group.name)
        fields = message(NAME, name) + APART
        if group.pid < FIRST_NUMBER:
            fields = message(PROCESS, integer(PID, group.pid), message(PROCESS_NAME, name))
        return self._described(fields, EXPLICIT, integer(SIBLING_ORDER_RANK, group.order))

    def _track(self, track: Track) -> int:
        """Describe a thread by its numbers, another track by its name."""
        name = encoded(track.name)
        fields = message(NAME, name) + APART
        if max(track.tid, track.group.pid) < FIRST_NUMBER:
            number = integer(PID, track.group.pid) + integer(TID, track.tid)
            fields = message(THREAD, number, message(THREAD_NAME, name))
        rank = integer(SIBLING_ORDER_RANK, track.order)
        return self._described(self._under(track.group), fields, rank)

    def _counter(self, group: Group, name: str) -> int:
        """Describe a counter, which is placed above the other tracks of its group."""
        if (group, name) not in self.counters:
            unit, rank = UNIT.search(name), FIRST_RANK + len(self.counters)
            counter = message(COUNTER, message(UNIT_NAME, unit[1].encode()) if unit else b"")
            fields = message(NAME, encoded(name)), counter, integer(SIBLING_ORDER_RANK, rank)
            self.counters[group, name] = self._described(self._under(group), *fields)
        return self.counters[group, name]

    def _under(self, group: Group) -> bytes:
        return integer(PARENT_UUID, self.of_group[group])

    def _described(self, *fields: bytes) -> int:
        uuid = next(self.uuids)
        self.descriptors.append(message(TRACK_DESCRIPTOR, integer(UUID, uuid), *fields))
        return uuid
