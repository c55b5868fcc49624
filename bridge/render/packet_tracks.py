"""The tracks of a Perfetto trace: processes, threads, streams, counters and phases, each with its descriptor.

The fields are those of protos/perfetto/trace/track_event/{track,process,thread,counter}_descriptor.proto.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count

import numpy as np

from bridge.analyze.timeline import Slices
from bridge.analyze.tracks import OURS, Group, Track
from bridge.render.packet_names import ON_SEQUENCE, PACKET, encoded
from bridge.render.packets import (
    MISSING,
    Column,
    Fixed,
    Integers,
    Message,
    Packets,
    Piece,
    integer,
    message,
    of,
    tag,
    through,
)

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
