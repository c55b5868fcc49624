"""The timeline as a Perfetto trace (``.pftrace``), streamed in bounded memory.

Messages of protos/perfetto/trace. Readers sort packets by time and keep the file's order among
equal times; an end closes the last begin on its track. So all ends come first in the file, and the
end of an event of no length follows its begin. A time stamp is the difference to the one before.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np

from bridge.analyze.draw.timeline import (
    Arrows,
    Chain,
    Json,
    ListColumn,
    NameColumn,
    Slices,
    Timeline,
)
from bridge.analyze.draw.timeline import Column as ArgumentColumn
from bridge.analyze.draw.timeline.parts import DEVICE
from bridge.importers.arrays import scatter
from bridge.render.packet_tracks import (
    DEBUG_ANNOTATION_NAMES,
    DEBUG_ANNOTATION_STRING_VALUES,
    EVENT_CATEGORIES,
    EVENT_NAMES,
    ON_SEQUENCE,
    PACKET,
    Descriptors,
    InternTable,
    encoded,
)
from bridge.render.packets import (
    FIXED64,
    MISSING,
    Column,
    Fixed,
    Flags,
    Integers,
    Ints,
    Message,
    Packets,
    Piece,
    Words,
    column_of,
    gather,
    integer,
    message,
    tag,
)
from bridge.render.text_columns import printed_chunks

# -- Arrows from ops to API calls, and from API calls to activities


LEGACY_EVENT, FLOW_IDS = 6, 47  # fields of TrackEvent
BIND_ID, FLOW_DIRECTION = 8, 13  # fields of LegacyEvent
FLOW_IN = 1


def flows(arrows: Arrows) -> Mapping[str, list[Piece]]:
    """Return the fields with which slices of each kind start and end arrows."""
    calls, call, op = len(arrows.calls.start), arrows.call[arrows.rows], arrows.op[arrows.rows]
    op_of_call = scatter(op[op != MISSING], call[op != MISSING], calls)
    from_call = _numbers(_is_among(call, calls), 1)
    to_activity = _numbers(_is_among(arrows.rows, len(arrows.call)), 1, arrows.call)
    out_of_op = _numbers(_is_among(op[op != MISSING], len(arrows.ops.start)), 1 + calls)
    to_call = _numbers(op_of_call != MISSING, 1 + calls, op_of_call)
    return {
        "op": [_outgoing(out_of_op)],
        "api": [_outgoing(from_call), _incoming(to_call)],
        **{kind: [_incoming(to_activity)] for kind in DEVICE},
    }


def _is_among(rows: Ints, count: int) -> Flags:
    """Return whether each of ``count`` rows is one of these."""
    flags = np.zeros(count, bool)
    flags[rows] = True
    return flags


def _numbers(has_flow: Flags, first: int, origin: Ints | None = None) -> Column:
    """Return the number of the flow of each row, MISSING for none.

    It is ``first`` (not 0) plus the row that the flow comes from: ``origin``, or the row itself.
    """

    def column(rows: Ints) -> Ints:
        return np.where(has_flow[rows], first + (rows if origin is None else origin[rows]), MISSING)

    return column


def _outgoing(flow: Column) -> Piece:
    return Words(tag(FLOW_IDS, FIXED64), flow)


def _incoming(flow: Column) -> Piece:
    incoming = Fixed(integer(FLOW_DIRECTION, FLOW_IN))
    return Message(LEGACY_EVENT, [Integers(tag(BIND_ID), flow), incoming], strict=True)


# -- Time stamps


# Fields of TracePacket, ClockSnapshot, Clock and TracePacketDefaults
CLOCK_SNAPSHOT, TRACE_PACKET_DEFAULTS, CLOCKS, TIMESTAMP_CLOCK_ID = 6, 59, 1, 58
CLOCK_ID, CLOCK_TIME, IS_INCREMENTAL = 1, 2, 3
BOOT_TIME, OWN_CLOCK = 6, 64  # ids: the clock of a trace, the first id of a sequence's own clocks


class IncrementalClock:
    """A clock of which each time stamp is the difference to the one before in the file."""

    def __init__(self, time: int) -> None:
        self.time = time
        boot_time = message(CLOCKS, integer(CLOCK_ID, BOOT_TIME), integer(CLOCK_TIME, time))
        own = integer(CLOCK_ID, OWN_CLOCK) + integer(CLOCK_TIME, time) + integer(IS_INCREMENTAL, 1)
        self.snapshot = message(CLOCK_SNAPSHOT, boot_time, message(CLOCKS, own)) + message(
            TRACE_PACKET_DEFAULTS, integer(TIMESTAMP_CLOCK_ID, OWN_CLOCK)
        )

    def stamps(self, time: Ints, rows: Ints) -> tuple[Ints, list[tuple[bytes, Ints]]]:
        """Return the time stamps of rows, which follow those of the last call.

        The rows come in parts in which time does not run back, as on a track, each with a packet
        before it that sets the clock to its first time. ``time`` is that of all rows of the frame.
        """
        times = time[rows]
        steps = np.diff(times, prepend=times[:1])
        edges = [0, *np.flatnonzero(steps < 0).tolist(), len(rows)]
        steps[edges[:-1]] = 0
        stamps = np.zeros(len(time), np.int64)
        stamps[rows] = steps
        return stamps, [
            (self._set(int(times[first]), int(times[last - 1])), rows[first:last])
            for first, last in pairwise(edges)
        ]

    def _set(self, first: int, last: int) -> bytes:
        """Return a packet that sets the clock to ``first``; packets until ``last`` follow."""
        step, self.time = first - self.time, last
        return message(PACKET, ON_SEQUENCE, integer(TIMESTAMP, step))


# -- Packets


# Fields of TracePacket
CHROME_EVENTS, TIMESTAMP, TRACK_EVENT, SEQUENCE_FLAGS = 5, 8, 11, 13
CLEARED, NEEDS_STATE = 1, 2  # TracePacket.SequenceFlags
AFTER_STATE = ON_SEQUENCE + integer(SEQUENCE_FLAGS, NEEDS_STATE)
# Fields of TrackEvent
CATEGORY_IIDS, DEBUG_ANNOTATIONS, TYPE, NAME_IID, TRACK_UUID = 3, 4, 9, 10, 11
COUNTER_VALUE, DOUBLE_COUNTER_VALUE = 30, 44
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4  # TrackEvent.Type
# Fields of DebugAnnotation
NAME, INT_VALUE, DOUBLE_VALUE, ARRAY_VALUES, STRING_VALUE_IID = 1, 4, 5, 12, 17
METADATA, METADATA_NAME, STRING_VALUE = 2, 1, 2  # of ChromeEventBundle and ChromeMetadata


def pftrace(
    timeline: Timeline, source: Sequence[str], metadata: Sequence[Mapping[str, Any]] = ()
) -> Iterator[bytes]:
    """Yield the pieces of the trace, in order.

    Times are as recorded; if any is negative, the time of the first event is subtracted from all.
    """
    base = min(timeline.base, 0)
    metadata_entries: dict[str, Any] = {
        "generator": "nsight-bridge",
        "source": list(source),
        "base_ns": base,
    }
    if any(metadata):
        metadata_entries["metadata"] = list(metadata)
    writer = _Writer(timeline, base)
    first_packet = message(
        PACKET, ON_SEQUENCE, integer(SEQUENCE_FLAGS, CLEARED), writer.clock.snapshot
    )
    packets = writer.packets(timeline)
    yield first_packet
    yield message(PACKET, ON_SEQUENCE, message(CHROME_EVENTS, *_metadata(metadata_entries)))
    for descriptor in writer.tracks.descriptors:
        yield message(PACKET, ON_SEQUENCE, descriptor)
    yield from writer.texts.packets()
    sections = chain(writer.texts.paths, packets)
    yield from printed_chunks(chunk for section in sections for chunk in section.chunks())


class _Writer:
    """The packets of each kind of event."""

    def __init__(self, timeline: Timeline, base: int) -> None:
        self.base = base
        self.tracks = Descriptors(timeline.tracks)
        self.texts = InternTable()
        self.flows = flows(timeline.arrows)
        self.clock = IncrementalClock(timeline.base - base)

    def packets(self, timeline: Timeline) -> Iterator[Packets]:
        """Yield all packets, in an order that is right among equal times.

        All texts have numbers before the first packet; time stamps are computed when they are
        written.
        """
        uuid, phases = self.tracks.phases(timeline.phases)
        drawn = [(s, self.tracks.slices(s)) for s in timeline.slices if len(s)]
        if len(timeline.phases):
            drawn.append((timeline.phases, uuid))
        sections = [
            *(self.ends(s, track) for s, track in drawn),
            *(self.begins(s, track) for s, track in drawn),
            self.marks(timeline.marks),
            *map(self.counters, timeline.counters),
        ]
        return chain([phases], *sections)

    def begins(self, s: Slices, track: Column) -> Iterator[Packets]:
        """Yield begins with arguments and arrows; after an event of no length follows its end."""
        details = [*self._args(s), *self.flows.get(s.kind, [])]
        event = [*self._event(BEGIN, track), *self._name(s), *details]

        def at_once(rows: Ints) -> Ints:
            return np.where(s.duration[rows] > 0, MISSING, 0)

        end = self._packet(at_once, self._event(END, track), strict=True)
        return self._stamped(lambda: (s.start, s.rows), event, end)

    def ends(self, s: Slices, track: Column) -> Iterator[Packets]:
        """Yield the ends of events that have a length."""
        event = self._event(END, track)
        return self._stamped(lambda: (s.start + s.duration, s.rows_by_end()), event)

    def marks(self, s: Slices) -> Iterator[Packets]:
        """Yield instant events of a thread."""
        event = [*self._event(INSTANT, self.tracks.slices(s)), *self._name(s), *self._args(s)]
        return self._stamped(lambda: (s.start, s.rows), event)

    def counters(self, s: Slices) -> Iterator[Packets]:
        """Yield samples of numbers: integers, or real numbers as JSON texts.

        A text that is no finite number is left out.
        """
        value, rows = s.args["value"], s.rows
        sample: Piece
        if isinstance(value, Json):
            reals = np.array([*map(_real, value.texts), np.nan])
            rows = rows[np.isfinite(reals[value.codes[rows]])]
            words = gather(reals.view(np.int64), value.codes)
            sample = Words(tag(DOUBLE_COUNTER_VALUE, FIXED64), words, None)
        else:
            assert isinstance(value, np.ndarray)  # by the definition of Timeline.counters
            sample = Integers(tag(COUNTER_VALUE), column_of(value), None)
        event = [*self._event(COUNTER, self.tracks.samples(s)), sample]
        return self._stamped(lambda: (s.start, rows), event)

    def _stamped(
        self, times: Callable[[], tuple[Ints, Ints]], event: Sequence[Piece], *following: Piece
    ) -> Iterator[Packets]:
        """Yield packets of events at these times, in these rows, and the pieces after each of them."""
        time, rows = times()
        if not len(rows):
            return
        stamps, parts = self.clock.stamps(time - self.base if self.base else time, rows)
        pieces = [self._packet(column_of(stamps), event), *following]
        for head, part in parts:
            yield Packets(pieces, part, head=head)

    def _packet(self, stamp: Column, event: Sequence[Piece], *, strict: bool = False) -> Message:
        """Return a packet; with ``strict``, it is left out for rows without a time stamp."""
        stamped = Integers(tag(TIMESTAMP), stamp)
        return Message(PACKET, [stamped, Fixed(AFTER_STATE), Message(TRACK_EVENT, event)], strict)

    def _event(self, kind: int, track: Column) -> list[Piece]:
        return [Fixed(integer(TYPE, kind)), Integers(tag(TRACK_UUID), track)]

    def _name(self, s: Slices) -> list[Piece]:
        category = self.texts.number(EVENT_CATEGORIES, s.kind)
        name = self.texts.column(EVENT_NAMES, s.name, s.rows)
        return [Fixed(integer(CATEGORY_IIDS, category)), Integers(tag(NAME_IID), name)]

    def _args(self, s: Slices) -> Iterator[Piece]:
        """Yield the arguments; missing values are not written."""
        for name, column in s.args.items():
            key = Fixed(integer(NAME, self.texts.number(DEBUG_ANNOTATION_NAMES, name)))
            yield Message(DEBUG_ANNOTATIONS, [key, *self._value(column, s.rows)], strict=True)

    def _value(self, column: ArgumentColumn, rows: Ints) -> list[Piece]:
        use = DEBUG_ANNOTATION_STRING_VALUES
        match column:
            case Chain():
                return [Integers(tag(STRING_VALUE_IID), self.texts.path_column(use, column, rows))]
            case Json(codes, texts, True):
                reals = np.array([float(text) for text in texts]).view(np.int64)
                words = gather(np.append(reals, MISSING), codes)  # no real number has these bits
                return [Words(tag(DOUBLE_VALUE, FIXED64), words)]
            case NameColumn(codes, texts) | Json(codes, texts):
                named = self.texts.column(use, NameColumn(codes, texts), rows)
                return [Integers(tag(STRING_VALUE_IID), named)]
            case ListColumn(columns):
                values = [Integers(tag(INT_VALUE), column_of(values), None) for values in columns]
                return [Message(ARRAY_VALUES, [value]) for value in values]
            case _:
                return [Integers(tag(INT_VALUE), column_of(column))]


def _real(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _metadata(entries: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield the metadata of the trace: texts as they are, other values as JSON."""
    for name, value in entries.items():
        text = value if isinstance(value, str) else _json(value)
        content = message(STRING_VALUE, encoded(text))
        yield message(METADATA, message(METADATA_NAME, encoded(name)), content)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=repr)
