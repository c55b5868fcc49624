"""Packets made of columns say what Perfetto's own protobuf classes say, byte for byte where there is no choice."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.render import packets
from bridge.render.packets import (
    FIXED64,
    LENGTH,
    MISSING,
    Fixed,
    Integers,
    Message,
    Packets,
    Words,
    column_of,
    gather,
    integer,
    message,
    tag,
    varints,
)

pb = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")

NUMBERS = st.integers(-(2**63), 2**63 - 1)
COLUMNS = st.lists(st.one_of(NUMBERS, st.sampled_from([-1, 0, 1, 127, 128])), min_size=1)
PACKET, TRACK_EVENT, TIMESTAMP = 1, 11, 8
INT_VALUE, STRING, LEAST = 4, 6, -(2**63)


def ints(values):
    return np.array(values, np.int64)


def written(pieces, count, size=3):
    rows = np.arange(count)
    return b"".join(chunk.print() for chunk in Packets(pieces, rows, size).chunks())


def one_packet(*fields, strict=False):
    return Message(PACKET, [Message(TRACK_EVENT, fields)], strict)


@pytest.mark.slow
@given(COLUMNS)
def test_padded_varints_are_read_back(values):
    for value, row in zip(values, varints(ints(values)), strict=True):
        padded = tag(INT_VALUE) + row.tobytes()
        assert pb.DebugAnnotation.FromString(padded).int_value == value


@pytest.mark.slow
@given(NUMBERS)
def test_single_integers_are_as_short_as_google_writes_them(value):
    expected = pb.DebugAnnotation(int_value=value).SerializeToString()
    assert integer(INT_VALUE, value) == expected


@pytest.mark.parametrize("size", [0, 1, 127, 128, 20_000])
def test_single_messages_are_as_google_writes_them(size):
    text = "ü" * size
    expected = pb.DebugAnnotation(string_value=text).SerializeToString()
    assert message(STRING, text.encode()) == expected


@pytest.mark.slow
@given(COLUMNS)
def test_a_missing_integer_leaves_no_trace(values):
    counter = Integers(tag(30), column_of(ints(values)))
    events = pb.Trace.FromString(written([one_packet(counter)], len(values))).packet
    for value, packet in zip(values, events, strict=True):
        event = packet.track_event
        assert event.HasField("counter_value") == (value != MISSING)
        assert event.counter_value == (0 if value == MISSING else value)
        assert not event.ListFields() if value == MISSING else len(event.ListFields()) == 1


@pytest.mark.slow
@given(COLUMNS)
def test_none_missing_is_a_value_as_any_other(values):
    counter = Integers(tag(30), column_of(ints(values)), None)
    events = pb.Trace.FromString(written([one_packet(counter)], len(values))).packet
    assert [packet.track_event.counter_value for packet in events] == values


@pytest.mark.slow
@given(COLUMNS)
def test_words_hold_any_bits(values):
    flow = Words(tag(47, FIXED64), column_of(ints(values)))
    events = pb.Trace.FromString(written([one_packet(flow)], len(values))).packet
    found = [list(packet.track_event.flow_ids) for packet in events]
    assert found == [[] if value == MISSING else [value % 2**64] for value in values]


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(-1, 300), st.integers(-1, 300)), min_size=1))
def test_strict_messages_are_there_for_rows_that_have_all_fields(pairs):
    first, second = (ints(column) for column in zip(*pairs, strict=True))
    annotation = Message(
        4, [Integers(tag(1), column_of(first)), Integers(tag(4), column_of(second))], strict=True
    )
    after = Fixed(integer(9, 3))
    trace = pb.Trace.FromString(written([one_packet(annotation, after)], len(pairs), size=7))
    for (name, value), packet in zip(pairs, trace.packet, strict=True):
        found = [(a.name_iid, a.int_value) for a in packet.track_event.debug_annotations]
        assert found == ([(name, value)] if MISSING not in {name, value} else [])
        assert packet.track_event.type == 3


@given(st.lists(st.integers(-1, 3), min_size=1))
def test_a_strict_packet_leaves_whole_rows_out(values):
    time = Integers(tag(TIMESTAMP), column_of(ints(values)))
    always, sometimes = (
        Message(PACKET, [Fixed(integer(10, 1))]),
        Message(PACKET, [time], strict=True),
    )
    trace = pb.Trace.FromString(written([always, sometimes], len(values)))
    expected = [t for value in values for t in ([None, value] if value != MISSING else [None])]
    assert [p.timestamp if p.HasField("timestamp") else None for p in trace.packet] == expected


@pytest.mark.slow
@given(st.lists(st.integers(0, 2), min_size=1), st.integers(1, 9))
def test_how_rows_are_cut_in_lots_does_not_show(codes, size):
    table = ints([5, MISSING, LEAST])
    counter = one_packet(Integers(tag(30), gather(table, ints(codes))))
    trace = pb.Trace.FromString(written([counter], len(codes), size))
    found = [p.track_event.counter_value for p in trace.packet]
    assert found == [[5, 0, LEAST][code] for code in codes]


def test_no_rows_are_no_bytes():
    assert written([one_packet(Fixed(b""))], 0) == b""


def test_lengths_count_what_is_there_beyond_one_byte_of_length():
    text = message(STRING, b"x" * 200)
    some = Message(4, [Integers(tag(1), column_of(ints([1, -1, 70_000]))), Fixed(text)])
    trace = pb.Trace.FromString(written([one_packet(some)], 3))
    found = [packet.track_event.debug_annotations[0] for packet in trace.packet]
    assert [(a.name_iid, a.string_value) for a in found] == [(n, "x" * 200) for n in (1, 0, 70_000)]


def test_the_wire_knows_the_types_of_the_format():
    assert (packets.VARINT, FIXED64, LENGTH) == (0, 1, 2)
    assert tag(47, FIXED64) == pb.TrackEvent(flow_ids=[1]).SerializeToString()[:2]
