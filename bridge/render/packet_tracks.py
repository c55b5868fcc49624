"""The tracks of a Perfetto trace: processes, threads, streams, counters and phases, each with its descriptor.

The fields are those of protos/perfetto/trace/track_event/{track,process,thread,counter}_descriptor.proto.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from bridge.analyze.timeline import Chain, Named, Slices
from bridge.analyze.tracks import OURS, Group, Track
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
    integer,
    message,
    of,
    tag,
    through,
    varints,
)
from bridge.render.text_columns import Names

# -- Paths up a tree, each distinct one written once, from the root's name down


SEPARATOR = np.frombuffer(b"/", np.uint8)[None]


@dataclass(frozen=True)
class Paths:
    """Distinct paths, parents before children: the row of each one's parent, and the code of its last name.

    ``of_node`` is the path of each node of the chain they were made of, and MISSING at its end, which
    is where a missing node leads; only nodes that were asked for have one.
    """

    parent: Ints
    name: Ints
    of_node: Ints

    @classmethod
    def of(cls, chain: Chain, rows: Ints) -> Paths:
        """Return the paths of some rows."""
        of_node = np.full(len(chain.parent) + 1, MISSING)
        many = len(chain.name.names)
        found = [np.empty(0, np.int64)]
        count = 0
        for nodes in _levels(chain, rows):
            keys = (of_node[chain.parent[nodes]] + 1) * many + chain.name.codes[nodes]
            distinct, code = np.unique(keys, return_inverse=True)
            of_node[nodes] = code + count
            found.append(distinct)
            count += len(distinct)
        parent, name = np.divmod(np.concatenate(found), max(many, 1))
        return cls(parent - 1, name, of_node)


@dataclass(frozen=True)
class PathText:
    """A path per row, the names from the root down with a slash between them; ``name`` is that of each path."""

    parent: Ints
    name: Names

    def parts(self, rows: Ints) -> list[Part]:
        """Return the paths' bytes for some rows."""
        return list(self._upwards(rows))[::-1]

    def _upwards(self, rows: Ints) -> Iterator[Part]:
        there = np.ones(len(rows), bool)
        while there.any():
            size = self.name.size[self.name.codes[rows]]
            yield Part(self.name.at(rows), size).only(there)
            rows = np.where(there, self.parent[rows], MISSING)
            there = rows != MISSING
            yield Part(SEPARATOR).only(there)


def _levels(chain: Chain, rows: Ints) -> list[Ints]:
    """Return the nodes that are on the paths of these rows, from the roots down."""
    nodes = _reached(chain, rows)
    level = np.zeros(len(nodes), np.int64)
    below, above = np.arange(len(nodes)), chain.parent[nodes]
    while len(below):
        below, above = below[above != MISSING], above[above != MISSING]
        level[below] += 1
        above = chain.parent[above]
    order = np.argsort(level, kind="stable")
    return np.split(nodes[order], np.cumsum(np.bincount(level))[:-1])


def _reached(chain: Chain, rows: Ints) -> Ints:
    """Return the nodes of these rows and all above them, in order."""
    reached = np.zeros(len(chain.parent), bool)
    nodes = chain.node[rows]
    while len(nodes):
        nodes = nodes[nodes != MISSING]
        nodes = nodes[~reached[nodes]]
        reached[nodes] = True
        nodes = chain.parent[nodes]
    return np.flatnonzero(reached)


# -- Texts written once and meant by number after that: the interned data of a Perfetto trace


LOT = 8_192  # texts at a time: they may be long
PACKET = 1  # field of Trace
SEQUENCE_ID, INTERNED_DATA = 10, 12  # fields of TracePacket
ON_SEQUENCE = integer(SEQUENCE_ID, 1)
EVENT_CATEGORIES, EVENT_NAMES = 1, 2  # fields of InternedData
DEBUG_ANNOTATION_NAMES, DEBUG_ANNOTATION_STRING_VALUES = 3, 29
IID, TEXT = tag(1), tag(2, LENGTH)  # fields of EventName, InternedString and their like


class Interned:
    """Numbers texts, for each use from 1 on."""

    def __init__(self) -> None:
        self.known: dict[int, dict[str, int]] = {}
        self.counts: dict[int, int] = {}
        self.paths: list[Packets] = []

    def number(self, use: int, text: str) -> int:
        """Return the number of a text."""
        known = self.known.setdefault(use, {})
        if text not in known:
            known[text] = self._next(use, 1)
        return known[text]

    def column(self, use: int, named: Named, rows: Ints) -> Column:
        """Number the names that some rows have; what is returned tells the number of any of them."""
        used = np.zeros(len(named.names) + 1, bool)
        used[named.codes[rows]] = True
        number_of = np.full(len(used), MISSING)  # the last for rows without a name
        codes = np.flatnonzero(used[:-1])
        number_of[codes] = [self.number(use, named.names[code]) for code in codes.tolist()]
        return through(number_of, named.codes)

    def path_column(self, use: int, chain: Chain, rows: Ints) -> Column:
        """Number the distinct paths of some rows, as `column` does names; there may be one per row."""
        paths = Paths.of(chain, rows)
        first = self._next(use, len(paths.name))
        names = Names(paths.name, list(map(encoded, chain.name.names)))
        text = Message(2, [PathText(paths.parent, names)])
        entry = Message(use, [Integers(IID, lambda some: some + first), text])
        packet = Message(PACKET, [Fixed(ON_SEQUENCE), Message(INTERNED_DATA, [entry])])
        self.paths.append(Packets([packet], np.arange(len(paths.name)), LOT))
        number_of = np.where(paths.of_node == MISSING, MISSING, paths.of_node + first)
        return through(number_of, chain.node)

    def packets(self) -> Iterator[bytes]:
        """Yield packets of every text with its number, but for paths."""
        for use, known in self.known.items():
            texts, numbers = list(known), np.array(list(known.values()), np.int64)
            for first in range(0, len(texts), LOT):
                lot = slice(first, first + LOT)
                entries = _entries(use, texts[lot], numbers[lot])
                yield message(PACKET, ON_SEQUENCE, message(INTERNED_DATA, entries))

    def _next(self, use: int, many: int) -> int:
        first = self.counts.get(use, 1)
        self.counts[use] = first + many
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
    """Return a text as UTF-8; what was none when it was recorded gives way to a question mark."""
    return text.encode(errors="replace")


def _rows(piece: bytes | Bytes, count: int) -> Bytes:
    if isinstance(piece, bytes):
        return np.broadcast_to(np.frombuffer(piece, np.uint8), (count, len(piece)))
    return piece


# -- The tracks of a Perfetto trace: processes, threads, streams, counters and phases, each with its descriptor


TRACK_DESCRIPTOR = 60  # field of TracePacket
UUID, NAME, PROCESS, THREAD, PARENT_UUID, COUNTER = 1, 2, 3, 4, 5, 8  # fields of TrackDescriptor
CHILD_ORDERING, SIBLING_ORDER_RANK, SIBLING_MERGE_BEHAVIOR = 11, 12, 15
PROCESS_ORDERING, THREAD_ORDERING = 19, 20
EXPLICIT = integer(CHILD_ORDERING, 3)
# Of the root, whose uuid is 0: there the order of all processes and threads is said to be given.
ROOT = integer(UUID, 0) + integer(PROCESS_ORDERING, 1) + integer(THREAD_ORDERING, 1)
APART = integer(SIBLING_MERGE_BEHAVIOR, 2)  # else viewers make one track of those with one name
PID, PROCESS_NAME = 1, 6  # fields of ProcessDescriptor
TID, THREAD_NAME = 2, 5  # fields of ThreadDescriptor
UNIT_NAME = 6  # field of CounterDescriptor
UNIT = re.compile(r" \((%|ns|bytes)\)$")
FIRST = -(2**30)  # rank of the first counter, before any other track's
PHASES = b"phases"


class Descriptors:
    """Gives every track its uuid, and keeps the descriptors, each written once."""

    def __init__(self, tracks: Sequence[Track]) -> None:
        self.made = [message(TRACK_DESCRIPTOR, ROOT)]
        self.uuids = count(1)  # 0 would be the trace's own track
        self.counters: dict[tuple[Group, str], int] = {}
        groups = sorted({t.group for t in tracks}, key=lambda group: group.order)
        self.of_group = {group: self._group(group) for group in groups}
        self.tracks = tracks
        self.of_track = np.array([self._track(track) for track in tracks], np.int64)

    def slices(self, s: Slices) -> Column:
        """Return the track of each slice."""
        return through(self.of_track, s.track)

    def samples(self, s: Slices) -> Column:
        """Return the track of each sample of a counter: its group has one for each name."""
        many = len(s.name.names)
        pairs, code = np.unique(s.track[s.rows] * many + s.name.codes[s.rows], return_inverse=True)
        found = [
            self._counter(self.tracks[pair // many].group, s.name.names[pair % many])
            for pair in pairs.tolist()
        ]
        uuid = np.full(len(s.track), MISSING)
        uuid[s.rows] = np.array(found, np.int64)[code]
        return of(uuid)

    def phases(self, s: Slices) -> tuple[Column, Packets]:
        """Return a track for each phase, for they overlap, and the descriptors; viewers draw them as one."""
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
        """Describe a process, or what is none and only looks like one: a device."""
        name = encoded(group.name)
        shown = message(NAME, name) + APART
        if group.pid < OURS:
            shown = message(PROCESS, integer(PID, group.pid), message(PROCESS_NAME, name))
        return self._described(shown, EXPLICIT, integer(SIBLING_ORDER_RANK, group.order))

    def _track(self, track: Track) -> int:
        """Describe a thread by its numbers, and what has none by its name alone."""
        name = encoded(track.name)
        shown = message(NAME, name) + APART
        if max(track.tid, track.group.pid) < OURS:
            number = integer(PID, track.group.pid) + integer(TID, track.tid)
            shown = message(THREAD, number, message(THREAD_NAME, name))
        rank = integer(SIBLING_ORDER_RANK, track.order)
        return self._described(self._under(track.group), shown, rank)

    def _counter(self, group: Group, name: str) -> int:
        """Describe a counter, above the other tracks of its group."""
        if (group, name) not in self.counters:
            unit, rank = UNIT.search(name), FIRST + len(self.counters)
            counter = message(COUNTER, message(UNIT_NAME, unit[1].encode()) if unit else b"")
            shown = message(NAME, encoded(name)), counter, integer(SIBLING_ORDER_RANK, rank)
            self.counters[group, name] = self._described(self._under(group), *shown)
        return self.counters[group, name]

    def _under(self, group: Group) -> bytes:
        return integer(PARENT_UUID, self.of_group[group])

    def _described(self, *fields: bytes) -> int:
        uuid = next(self.uuids)
        self.made.append(message(TRACK_DESCRIPTOR, integer(UUID, uuid), *fields))
        return uuid
