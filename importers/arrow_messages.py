"""Find the streams in a file of Apache Arrow, and the bytes of the columns of each.

A stream is a sequence of messages, of which each says how long it is, up to a mark that ends it
(arrow.apache.org/docs/format/Columnar.html, "Encapsulated message format"). A file may hold several
streams, one after another. Only the messages' headers are read; what they say is checked against
the size of the file, so that a damaged one raises an error and nothing worse.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from bridge.importers.arrays import Ints
from bridge.importers.records import record

CONTINUATION = b"\xff\xff\xff\xff"
MAGIC = b"ARROW1\0\0"  # before the stream in Arrow's file format, which has an index behind it
SCHEMA, RECORD_BATCH = 1, 3  # kinds of messages
FIELDS, METADATA = 1, 2  # fields of a schema
KEY, VALUE = 0, 1  # fields of an entry of its metadata
TABLE_NAME = b"table_name"  # a key there
NAME, NULLABLE, TYPE_NUMBER, TYPE, DICTIONARY = 0, 1, 2, 3, 4  # fields of a column
INTEGER, REAL = 2, 3  # numbers of types (format/Schema.fbs)
BITS, IS_SIGNED = 0, 1  # fields of an integer's type
PRECISION = 0  # field of a real number's type
PLAIN = {1: "null", 4: "binary", 5: "string", 6: "bool", 19: "large_binary", 20: "large_string"}
REALS = ("half_float", "float", "double")
OTHERS = {10: "timestamp", 12: "list", 18: "duration", 23: "binary_view", 24: "string_view"}
KIND, HEADER, BODY_LENGTH = 1, 2, 3  # fields of a message
LENGTH, NODES, BUFFERS, COMPRESSION = 0, 1, 2, 3  # fields of a record batch
PREFIX_BYTES = 8  # before a message: the mark, and its length
ALIGNMENT = 8


class DamagedStream(Exception):  # noqa: N818 - it says what the file is, not that anything failed
    """The file is no sequence of whole streams; the message says what is wrong."""


class Place(NamedTuple):
    """Where a message is in its file: its first byte, its length, and the position behind its body."""

    position: int
    length: int
    end: int


class Field(NamedTuple):
    """A column of a table: its name, whether it may be NULL, and its type.

    ``type`` is the name that nanoarrow gives the type; that of another one if ``is_plain`` is False.
    """

    name: str
    nullable: bool
    type: str
    is_plain: bool


class Schema(NamedTuple):
    """The columns of the table in a stream, and its name, "" if that is not said."""

    table: str
    fields: tuple[Field, ...]


class RecordBatch(NamedTuple):
    """The rows of a batch, and where its columns are.

    ``nodes`` holds for each column its rows and how many of them are NULL; ``buffers`` for each of
    its buffers the position in the file and the length.
    """

    rows: int
    nodes: Ints
    buffers: Ints
    is_compressed: bool


@record
class Stream:
    """A stream: the position of its first byte, the number of its rows, and its messages."""

    position: int
    rows: int
    schema: Place
    batches: tuple[Place, ...]


class _Message(NamedTuple):
    """A message: its kind, its rows if it is a batch, and its place."""

    kind: int
    rows: int
    place: Place


def is_arrow(head: bytes) -> bool:
    """Return whether a file that begins with these bytes is one of Arrow's."""
    return head.startswith((CONTINUATION, MAGIC))


def streams_of(path: Path) -> list[Stream]:
    """Return the streams of a file in order.

    Raises `DamagedStream` if one of them is not whole, OSError if the file cannot be read.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if file.read(len(MAGIC)) == MAGIC:
            return [_stream(file, len(MAGIC), size)[0]]
        result, position = [], 0
        while position < size:
            stream, position = _stream(file, position, size)
            result.append(stream)
        return result


def schema(file: BinaryIO, place: Place) -> Schema:
    """Return the schema of a stream; raises `DamagedStream` if it cannot be understood."""
    file.seek(place.position)
    data = file.read(place.length)
    try:
        header = _header(data)
        fields = tuple(_column(data, table) for table in _tables(data, header, FIELDS))
        entries = _tables(data, header, METADATA)
        metadata = {_text(data, entry, KEY): _text(data, entry, VALUE) for entry in entries}
    except struct.error as error:
        raise DamagedStream(OUTSIDE) from error
    if len({column.name for column in fields}) < len(fields):
        raise DamagedStream("two columns of one name")
    return Schema(metadata.get(TABLE_NAME, b"").decode(errors="replace"), fields)


def record_batch(file: BinaryIO, place: Place) -> RecordBatch:
    """Return the columns of a record batch; raises `DamagedStream` if they are outside of it."""
    file.seek(place.position)
    data = file.read(place.length)
    try:
        header, body = _header(data), place.position + place.length
        nodes = _pairs(data, header, NODES)
        buffers = _pairs(data, header, BUFFERS)
        rows = _number(data, header, LENGTH, "<q")
        is_compressed = bool(_field(data, header, COMPRESSION))
    except (struct.error, ValueError) as error:
        raise DamagedStream(OUTSIDE) from error
    ends = buffers.sum(axis=1)
    if buffers.min(initial=0) < 0 or (ends < 0).any() or ends.max(initial=0) > place.end - body:
        raise DamagedStream("columns outside of their batch")
    buffers[:, 0] += body
    return RecordBatch(rows, nodes, buffers, is_compressed)


def _stream(file: BinaryIO, position: int, size: int) -> tuple[Stream, int]:
    """Return the stream at a position, and the position behind it."""
    first, rows, places = position, 0, []
    for number, message in enumerate(_messages(file, position, size)):
        if (message.kind == SCHEMA) != (number == 0):
            raise DamagedStream("a stream without its schema")
        rows += message.rows
        if message.kind in {SCHEMA, RECORD_BATCH}:
            places.append(message.place)
        position = message.place.end
    if not places:
        raise DamagedStream("a stream without its schema")
    return Stream(first, rows, places[0], tuple(places[1:])), position + PREFIX_BYTES


TRUNCATED = "it ends within a table: truncated or still being written"
OUTSIDE = "a message whose parts lie outside of it"


def _messages(file: BinaryIO, position: int, size: int) -> Iterator[_Message]:
    """Yield the messages of the stream at a position, without the mark that ends it."""
    while True:
        file.seek(position)
        prefix = file.read(PREFIX_BYTES)
        if len(prefix) < PREFIX_BYTES:
            raise DamagedStream(TRUNCATED)
        if not prefix.startswith(CONTINUATION):
            raise DamagedStream("something other than Arrow's messages in it")
        length = int.from_bytes(prefix[4:], "little")
        if not length:
            return
        position += PREFIX_BYTES
        if length > size - position:
            raise DamagedStream(TRUNCATED)
        message = _message(file.read(length), position)
        position = message.place.end
        if position > size or position % ALIGNMENT:
            raise DamagedStream(TRUNCATED)
        yield message


def _message(data: bytes, position: int) -> _Message:
    try:
        (root,) = struct.unpack_from("<I", data)
        kind, body = _number(data, root, KIND, "<B"), _number(data, root, BODY_LENGTH, "<q")
        is_batch = kind == RECORD_BATCH
        rows = _number(data, _header(data), LENGTH, "<q") if is_batch else 0
    except struct.error as error:
        raise DamagedStream(OUTSIDE) from error
    if body < 0 or rows < 0:
        raise DamagedStream("a message of negative length")
    return _Message(kind, rows, Place(position, len(data), position + len(data) + body))


# -- Tables of FlatBuffers, as flatbuffers.dev/internals describes them


def _column(data: bytes, table: int) -> Field:
    """Return a column of a schema."""
    number = _number(data, table, TYPE_NUMBER, "<B")
    position = _field(data, table, TYPE)
    of_type = _target(data, position) if position else 0
    name, is_plain = PLAIN.get(number, OTHERS.get(number, f"type {number}")), number in PLAIN
    if number == INTEGER and of_type:
        bits = _number(data, of_type, BITS, "<i")
        name = f"{'' if _number(data, of_type, IS_SIGNED, '<B') else 'u'}int{bits}"
        is_plain = bits in {8, 16, 32, 64}
    elif number == REAL and of_type:
        precision = _number(data, of_type, PRECISION, "<h")
        is_plain = 0 <= precision < len(REALS)
        name = REALS[precision] if is_plain else "float"
    if _field(data, table, DICTIONARY):
        name, is_plain = "dictionary", False
    nullable = bool(_number(data, table, NULLABLE, "<B"))
    return Field(_text(data, table, NAME).decode(errors="replace"), nullable, name, is_plain)


def _header(data: bytes) -> int:
    """Return the position of the table of a schema or a record batch in its message."""
    (root,) = struct.unpack_from("<I", data)
    return _target(data, _field(data, root, HEADER))


def _target(data: bytes, position: int) -> int:
    """Return the position to which a field refers."""
    (offset,) = struct.unpack_from("<I", data, position)
    return position + int(offset)


def _tables(data: bytes, table: int, number: int) -> list[int]:
    """Return the positions of the tables in a vector."""
    position = _field(data, table, number)
    if not position:
        return []
    start = _target(data, position)
    (count,) = struct.unpack_from("<I", data, start)
    if start + 4 * (count + 1) > len(data):
        raise struct.error
    return [_target(data, start + 4 * place) for place in range(1, count + 1)]


def _text(data: bytes, table: int, number: int) -> bytes:
    """Return a text, empty if it is absent."""
    position = _field(data, table, number)
    if not position:
        return b""
    start = _target(data, position)
    (size,) = struct.unpack_from("<I", data, start)
    if start + 4 + size > len(data):
        raise struct.error
    return data[start + 4 : start + 4 + size]


def _pairs(data: bytes, table: int, number: int) -> Ints:
    """Return a vector of pairs of numbers."""
    position = _field(data, table, number)
    if not position:
        return np.empty((0, 2), np.int64)
    start = _target(data, position)
    (count,) = struct.unpack_from("<I", data, start)
    return np.frombuffer(data, "<i8", 2 * count, start + 4).astype(np.int64).reshape(-1, 2)


def _field(data: bytes, table: int, number: int) -> int:
    """Return the position of a field of a FlatBuffers table, 0 if it is absent."""
    (back,) = struct.unpack_from("<i", data, table)
    if not 0 <= table - back < len(data):
        raise struct.error
    (size,) = struct.unpack_from("<H", data, table - back)
    slot = 4 + 2 * number
    if slot + 2 > size:
        return 0
    (offset,) = struct.unpack_from("<H", data, table - back + slot)
    return table + int(offset) if offset else 0


def _number(data: bytes, table: int, number: int, form: str) -> int:
    """Return the value of a number of a FlatBuffers table, 0 if it is absent."""
    position = _field(data, table, number)
    return int(struct.unpack_from(form, data, position)[0]) if position else 0
