"""Fields of protocol buffers read side by side are those that a plain loop reads, one after another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.importers import wire
from bridge.importers.wire import FIXED32, FIXED64, LENGTH, VARINT, DamagedMessageError, Wire


def number(data, position):
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, position


def plain(data):
    """List number, wire type and value of each field, as the definition of the format has it."""
    result, position = [], 0
    while position < len(data):
        tag, position = number(data, position)
        kind = tag & 7
        if kind == VARINT:
            value, position = number(data, position)
        else:
            size = {FIXED64: 8, FIXED32: 4}.get(kind, 0)
            if kind == LENGTH:
                size, position = number(data, position)
            value, position = data[position : position + size], position + size
        result.append((tag >> 3, kind, value))
    return result


def varint(value, least=1):
    """Write a number in at least so many bytes; longer than needed is allowed."""
    groups = []
    while value > 127 or len(groups) < least - 1:
        groups.append(value & 127 | 128)
        value >>= 7
    return bytes([*groups, value])


def field(number, kind, value, least):
    head = varint(number << 3 | kind, 1)
    if kind == VARINT:
        return head + varint(value, least)
    return head + (varint(len(value), min(least, 9)) if kind == LENGTH else b"") + value


NUMBERS = st.one_of(st.integers(1, 15), st.integers(16, 2**29 - 1))
VALUES = st.one_of(
    st.tuples(st.just(VARINT), st.one_of(st.integers(0, 300), st.integers(0, 2**64 - 1))),
    st.tuples(st.just(LENGTH), st.binary(max_size=200)),
    st.tuples(st.just(FIXED64), st.binary(min_size=8, max_size=8)),
    st.tuples(st.just(FIXED32), st.binary(min_size=4, max_size=4)),
)
FIELDS = st.builds(
    lambda n, kv, least: field(n, *kv, least), NUMBERS, VALUES, st.sampled_from([1, 1, 1, 3, 10])
)
MESSAGES = st.lists(st.lists(FIELDS, max_size=30).map(b"".join), min_size=1, max_size=4)


def read(messages):
    """Read messages that lie one after another, as `plain` lists their fields."""
    data = b"".join(messages)
    edges = np.cumsum([0, *map(len, messages)])
    padded = np.frombuffer(data + bytes(wire.PADDING), np.uint8)
    fields = Wire(padded).fields(edges[:-1], edges[1:])
    result = [[] for _ in messages]
    rows = zip(*(getattr(fields, c).tolist() for c in wire.COLUMNS), strict=True)
    for message, tag, kind, value, start, end in rows:
        content = data[start:end]
        if kind in {FIXED64, FIXED32}:
            assert value % 2 ** (8 * len(content)) == int.from_bytes(content, "little")
        result[message].append((tag, kind, value % 2**64 if kind == VARINT else content))
    return result


@given(MESSAGES)
def test_the_fields_of_messages(messages):
    assert read(messages) == [plain(message) for message in messages]


@given(MESSAGES)
def test_the_fields_of_long_messages(messages):
    """Cursors within messages change nothing, however short the blocks and the parts are."""
    with pytest.MonkeyPatch.context() as patched:
        for name, value in {"LONG": 16, "CHUNK": 64, "BLOCK": 8, "CURSORS": 5}.items():
            patched.setattr(wire, name, value)
        assert read(messages) == [plain(message) for message in messages]


def test_cursors_are_many():
    """A long message is read by many cursors: that of a million events would else take a step for each."""
    message = b"".join(field(4, LENGTH, bytes(20), 1) for _ in range(10_000))
    at = Wire(np.frombuffer(message + bytes(wire.PADDING), np.uint8)).cuts(0, len(message))
    assert 300 < len(at) < 600
    assert (at % 22 == 0).all()
    assert np.diff(at).max() < 2 * wire.BLOCK


@given(MESSAGES, st.data())
def test_what_is_no_sequence_of_fields(messages, data):
    """A message that ends elsewhere than a field does is refused; the plain loop says which do."""
    whole = b"".join(messages)
    end = data.draw(st.integers(0, len(whole)))
    places, position = {0}, 0
    for tag, kind, value in plain(whole):
        position += len(varint(tag << 3 | kind))
        while kind in {VARINT, LENGTH} and whole[position] >= 128:
            position += 1
        position += 1 if kind == VARINT else len(value) + (kind == LENGTH)
        places.add(position)
    if end in places:
        assert read([whole[:end]]) == [plain(whole[:end])]
    else:
        with pytest.raises(DamagedMessageError):
            read([whole[:end]])


@given(st.lists(st.tuples(st.binary(max_size=200), st.sampled_from([1, 1, 3, 9])), max_size=60))
def test_a_file_of_one_kind_of_messages(packets):
    """In short stretches, and with bytes inside that look like a tag."""
    data = b"".join(field(1, LENGTH, content, least) for content, least in packets)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(wire, "STRETCH", 50)
        start, end = Wire.of_bytes(data).repeated(1)
        found = [data[a:b] for a, b in zip(start.tolist(), end.tolist(), strict=True)]
        assert found == [content for content, _ in packets]
        for other in (data + b"\x0a", data + b"\x10\x01", data + b"\x0a\x05abcd"):
            with pytest.raises(DamagedMessageError):
                Wire.of_bytes(other).repeated(1)


@given(st.lists(st.sampled_from([b"", b"graph id", b"graph node id", b"graph node ix", b"a" * 16])))
def test_which_ranges_of_bytes_are_a_text(texts):
    edges = np.cumsum([0, *map(len, texts)])
    for text in (b"graph id", b"graph node id", b"a" * 16):
        rows = Wire.of_bytes(b"".join(texts)).rows_of(text, edges[:-1], edges[1:])
        assert rows.tolist() == [row for row, each in enumerate(texts) if each == text]


@pytest.mark.parametrize(
    "message",
    [
        b"\x0b\x0c",  # a group, which is no longer written
        b"\x00\x01",  # the number 0
        b"\x08" + b"\xff" * 9 + b"\x02",  # a number of more than 64 bits
        b"\x08" + b"\xff" * 11,
        b"\x0a" + varint(2**63 + 5) + b"12345",  # a negative length
    ],
)
def test_what_no_writer_writes(message):
    with pytest.raises(DamagedMessageError):
        read([message])
    with pytest.raises(DamagedMessageError):
        read([field(4, LENGTH, bytes(20), 1) * 200 + message])
