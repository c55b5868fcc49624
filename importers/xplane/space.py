"""The parts of an XSpace as columns: planes, lines, events, and the stats of each.

Numbers of fields are those of tsl/profiler/protobuf/xplane.proto. Names of events and of stats are entries of
tables that each plane has; here they are looked up for all planes at once.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bridge.importers.arrays import (
    MISSING,
    Flags,
    Integers,
    Ints,
    factorize,
    lookup,
    positions,
    scatter,
)
from bridge.importers.capture import MAX_DISTANCE_NS, MAX_SPAN_NS
from bridge.importers.frames import Frame, Names
from bridge.importers.messages import Messages, Pairs, names_of
from bridge.importers.records import record
from bridge.importers.wire import FIXED64, LENGTH, VARINT, Wire

PLANES, WARNINGS, HOSTS = 1, 3, 4  # fields of a space
PLANE_NAME, LINES, EVENT_NAMES, STAT_NAMES, PLANE_STATS = 2, 3, 4, 5, 6  # of a plane
KEY, VALUE = 1, 2  # of an entry of a table
NAME, NAME_STATS = 2, 5  # of a name of events; NAME also of a name of stats
LINE_ID, LINE_NAME, TIMESTAMP, EVENTS = 1, 2, 3, 4  # of a line
EVENT_NAME, OFFSET, DURATION, EVENT_STATS, OCCURRENCES = 1, 2, 3, 4, 5  # of an event
STAT_NAME, DOUBLE, UNSIGNED, INTEGER, TEXT, BYTES, REFERENCE = 1, 2, 3, 4, 5, 6, 7  # of a stat
WHOLE_NUMBERS, TEXTS = (UNSIGNED, INTEGER), (TEXT, REFERENCE)
# The wire type of each field of a stat that is a value, -1 for others.
VALUE_WIRES = np.array([-1, -1, FIXED64, VARINT, VARINT, LENGTH, LENGTH, VARINT, -1])
INTERNAL = "_"  # names of the profiler's own stats, which link events, begin with it
PS_PER_NS = 1000


# -- Names


class Catalog:
    """The names that the planes of a space give to numbers: those of events, or those of stats."""

    def __init__(self, planes: Messages, number: int) -> None:
        keys = planes.parts(number)
        self.entries = keys.parts(VALUE)
        self.plane = keys.owner[self.entries.owner]
        self.name = self.entries.texts(NAME)
        self._pairs = Pairs(self.plane, keys.integers(KEY)[self.entries.owner])

    def __len__(self) -> int:
        return len(self.plane)

    def rows(self, plane: Ints, number: Ints) -> Ints:
        """Return the row of each number of a plane, -1 where it has none."""
        return self._pairs.rows(plane, number)


# -- Stats


@record
class Stats:
    """What is told of events, of names or of planes: a row per stat, in the order of the file.

    ``kind`` is the field that has the value: ``value`` is a number, of a text its code in ``texts``, of bytes their
    position, and ``end`` their end.
    """

    owner: Ints
    name: Names
    kind: Ints
    value: Ints
    end: Ints
    texts: list[str]

    def __len__(self) -> int:
        return len(self.owner)

    @classmethod
    def of(cls, messages: Messages, plane: Ints, catalog: Catalog) -> Stats:
        """Return the stats in messages; ``plane`` is that of each owner. Nameless and internal ones are left out."""
        is_internal = catalog.name.matching(lambda name: name.startswith(INTERNAL))
        parts = [_stats(part, plane, catalog, is_internal) for _, part in messages.blocks()]
        owner, row, kind, value, end = map(np.concatenate, zip(*parts, strict=True))
        written, refers = np.flatnonzero(kind == TEXT), np.flatnonzero(kind == REFERENCE)
        own = names_of(messages.wire, value[written], end[written])
        referred = catalog.name.at(catalog.rows(plane[owner[refers]], value[refers]))
        texts = Names.concat([own, referred])
        value[np.concatenate((written, refers))] = texts.codes
        return cls(
            owner=owner,
            name=catalog.name[row],
            kind=kind,
            value=value,
            end=end,
            texts=texts.texts,
        )

    def take(self, rows: Integers | Flags) -> Stats:
        return Stats(
            owner=self.owner[rows],
            name=self.name[rows],
            kind=self.kind[rows],
            value=self.value[rows],
            end=self.end[rows],
            texts=self.texts,
        )

    def integers(self, name: str, owners: int) -> Ints:
        """Return a number of each owner, -1 where it has none."""
        rows = np.flatnonzero(self.name.among(name) & np.isin(self.kind, WHOLE_NUMBERS))
        return scatter(self.value[rows], self.owner[rows], owners)

    def names(self, name: str, owners: int) -> Names:
        """Return a text of each owner, none where it has none."""
        rows = np.flatnonzero(self.name.among(name) & np.isin(self.kind, TEXTS))
        code, texts = factorize(self.value[rows])
        distinct = [self.texts[text] for text in texts.tolist()]
        return Names(scatter(code, self.owner[rows], owners), distinct)

    def bytes(self, name: str) -> tuple[Ints, Ints, Ints]:
        """Return the owner of each stat of this name that is bytes, and where these lie."""
        rows = np.flatnonzero(self.name.among(name) & (self.kind == BYTES))
        return self.owner[rows], self.value[rows], self.end[rows]


def _stats(part: Messages, plane: Ints, catalog: Catalog, is_internal: Flags) -> tuple[Ints, ...]:
    """Return owner, row of the name, kind, value and end of the stats in some messages."""
    fields = part.fields
    expected = VALUE_WIRES[np.clip(fields.number, 0, len(VALUE_WIRES) - 1)]
    rows = np.flatnonzero(fields.wire == expected)
    place = scatter(rows, fields.message[rows], len(part))  # the last of a message counts
    row = catalog.rows(plane[part.owner], part.integers(STAT_NAME))
    kept = np.flatnonzero((row != MISSING) & (place != MISSING))
    kept = kept[~is_internal[row[kept]]]
    values = fields.take(place[kept])
    is_long = values.wire == LENGTH
    value = np.where(is_long, values.start, values.value)
    return part.owner[kept], row[kept], values.number, value, values.end


# -- Events


class Events(Frame):
    """Events, as they come in the file: ``name`` is their row in the catalog of names, times are in ns."""

    line: Ints
    plane: Ints
    name: Ints
    start: Ints
    end: Ints


@record
class Space:
    """A file: the name and the stats of each plane; the plane, the number and the name of each line; events.

    ``names`` has the names of events, ``name_stats`` what is told of all events of a name. ``broken`` counts events
    that are left out: without a name or a possible time, or sums of several.
    """

    wire: Wire
    planes: Names
    plane_stats: Stats
    line_plane: Ints
    line_number: Ints
    line_name: Names
    names: Catalog
    name_stats: Stats
    events: Events
    stats: Stats
    broken: int
    hosts: list[str]
    warnings: list[str]

    @classmethod
    def of(cls, wire: Wire) -> Space:
        """Read a file; raises `DamagedMessageError` if a message in it is not whole."""
        whole = Messages.whole(wire)
        planes = whole.parts(PLANES)
        names, stat_names = Catalog(planes, EVENT_NAMES), Catalog(planes, STAT_NAMES)
        lines = planes.parts(LINES)
        events, stats, broken = _events(lines, names)
        return cls(
            wire=wire,
            planes=planes.texts(PLANE_NAME),
            plane_stats=Stats.of(planes.parts(PLANE_STATS), np.arange(len(planes)), stat_names),
            line_plane=lines.owner,
            line_number=lines.integers(LINE_ID),
            line_name=lines.texts(LINE_NAME),
            names=names,
            name_stats=Stats.of(names.entries.parts(NAME_STATS), names.plane, stat_names),
            events=events,
            stats=Stats.of(stats, events.plane, stat_names),
            broken=broken,
            hosts=whole.parts(HOSTS).contents.tolist(),
            warnings=whole.parts(WARNINGS).contents.tolist(),
        )


def _events(lines: Messages, names: Catalog) -> tuple[Events, Messages, int]:
    """Return the sound events of lines, the messages of their stats, and how many events are left out."""
    messages, timestamp = lines.parts(EVENTS), lines.integers(TIMESTAMP)
    parts = [
        _events_of(first, part, (lines.owner, timestamp), names)
        for first, part in messages.blocks()
    ]
    columns = [np.concatenate(column) for column in zip(*(part[0] for part in parts), strict=True)]
    owner, start, end = (
        np.concatenate(column) for column in zip(*(part[1] for part in parts), strict=True)
    )
    events = Events(dict(zip(Events.types, columns, strict=True)))
    kept = np.flatnonzero(_is_possible(events))
    row = positions(kept, len(events))[owner]
    stats = np.flatnonzero(row != MISSING)
    of_kept = Messages(messages.wire, row[stats], start[stats], end[stats])
    return events.take(kept), of_kept, len(events) - len(kept)


def _events_of(
    first: int, part: Messages, lines: tuple[Ints, Ints], names: Catalog
) -> tuple[tuple[Ints, ...], tuple[Ints, ...]]:
    """Return the columns of events, and owner, start and end of their stats.

    ``first`` is the row of the first event, ``lines`` has the plane and the timestamp of each line.
    """
    offset, length = part.integers(OFFSET), part.integers(DURATION)
    plane, timestamp = (column[part.owner] for column in lines)
    sound = _within(timestamp, MAX_SPAN_NS) & _within(offset, MAX_SPAN_NS)
    sound &= (length >= 0) & (length <= MAX_DISTANCE_NS * PS_PER_NS) & ~part.has(OCCURRENCES)
    timestamp, offset, length = (np.where(sound, c, 0) for c in (timestamp, offset, length))
    row = names.rows(plane, part.integers(EVENT_NAME))
    sound &= lookup(names.name != "", row, False)
    row = np.where(sound, row, MISSING)
    start, end = (timestamp + ps // PS_PER_NS for ps in (offset, offset + length))
    stats = part.parts(EVENT_STATS)
    return (part.owner, plane, row, start, end), (stats.owner + first, stats.start, stats.end)


def _is_possible(events: Events) -> Flags:
    """Return which events have a name, and a time that is no longer than days away from most others."""
    named: Flags = events.name != MISSING
    if not named.any():
        return named
    start = events.start[named]
    middle = int(np.partition(start, len(start) // 2)[len(start) // 2])
    return named & _within(events.start - middle, MAX_DISTANCE_NS)


def _within(values: Ints, limit: int) -> Flags:
    result: Flags = (values > -limit) & (values < limit)
    return result


# -- Parts of a space


@record
class Part:
    """Some events of a space, and what is told of each: of the event itself, or else of all of its name."""

    events: Events
    names: Names
    stats: Stats
    name_stats: Stats
    catalog_size: int

    @classmethod
    def of(cls, space: Space, rows: Ints) -> Part:
        """Return the events in these rows."""
        events, row = space.events.take(rows), positions(rows, len(space.events))[space.stats.owner]
        kept = np.flatnonzero(row != MISSING)
        stats = replace(space.stats.take(kept), owner=row[kept])
        names = space.names.name[events.name]
        return cls(
            events=events,
            names=names,
            stats=stats,
            name_stats=space.name_stats,
            catalog_size=len(space.names),
        )

    def __len__(self) -> int:
        return len(self.events)

    def integers(self, name: str) -> Ints:
        """Return a number of each event, -1 where it has none."""
        own = self.stats.integers(name, len(self))
        of_name = self.name_stats.integers(name, self.catalog_size)
        return np.where(own == MISSING, of_name[self.events.name], own)

    def texts(self, name: str) -> Names:
        """Return a text of each event, none where it has none."""
        own = self.stats.names(name, len(self))
        of_name = self.name_stats.names(name, self.catalog_size)[self.events.name]
        both = Names.concat([own, of_name])
        own_code, name_code = np.split(both.codes, 2)
        return Names(np.where(own_code == MISSING, name_code, own_code), both.texts)
