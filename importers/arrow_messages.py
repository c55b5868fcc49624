"""Find the streams in a file of Apache Arrow: where each begins, and how many rows it has.

A stream is a sequence of messages, of which each says how long it is, up to a mark that ends it
(arrow.apache.org/docs/format/Columnar.html, "Encapsulated message format"). A file may hold several
streams, one after another. Only the messages' headers are read.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

CONTINUATION = b"\xff\xff\xff\xff"
MAGIC = b"ARROW1\0\0"  # before the stream in Arrow's file format, which has an index behind it
SCHEMA, RECORD_BATCH = 1, 3  # kinds of messages
KIND, HEADER, BODY_LENGTH = 1, 2, 3  # fields of a message
LENGTH = 0  # field of a record batch
ALIGNMENT = 8


class DamagedStream(Exception):  # noqa: N818 - it says what the file is, not that anything failed
    """The file is no sequence of whole streams; the message says what is wrong."""


@dataclass(frozen=True)
class Stream:
    """A stream: the position of its first byte, and the number of its rows."""

    position: int
    rows: int


class _Message(NamedTuple):
    """A message: its kind, its rows if it is a batch, and the position behind it."""

    kind: int
    rows: int
    end: int


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


def _stream(file: BinaryIO, position: int, size: int) -> tuple[Stream, int]:
    """Return the stream at a position, and the position behind it."""
    first, rows, end = position, 0, position
    for number, message in enumerate(_messages(file, position, size)):
        if (message.kind == SCHEMA) != (number == 0):
            raise DamagedStream("a stream without its schema")
        rows += message.rows
        end = message.end
    if end == first:
        raise DamagedStream("a stream without its schema")
    return Stream(first, rows), end + len(CONTINUATION) + 4


def _messages(file: BinaryIO, position: int, size: int) -> Iterator[_Message]:
    """Yield the messages of the stream at a position, without the mark that ends it."""
    while True:
        file.seek(position)
        prefix = file.read(8)
        if len(prefix) < len(CONTINUATION) + 4:
            raise DamagedStream("it ends within a table: truncated or still being written")
        if not prefix.startswith(CONTINUATION):
            raise DamagedStream("something other than Arrow's messages in it")
        length = int.from_bytes(prefix[4:], "little")
        if not length:
            return
        if length > size - position:
            raise DamagedStream("it ends within a table: truncated or still being written")
        message = _message(file.read(length), position + len(prefix) + length)
        if message.end > size or message.end % ALIGNMENT:
            raise DamagedStream("it ends within a table: truncated or still being written")
        yield message
        position = message.end


def _message(metadata: bytes, position: int) -> _Message:
    """Return a message whose body begins at a position."""
    try:
        (root,) = struct.unpack_from("<I", metadata)
        kind = _number(metadata, root, KIND, "<B")
        header = _field(metadata, root, HEADER)
        body = _number(metadata, root, BODY_LENGTH, "<q")
        rows = 0
        if kind == RECORD_BATCH and header:
            (offset,) = struct.unpack_from("<I", metadata, header)
            rows = _number(metadata, header + offset, LENGTH, "<q")
    except struct.error as error:
        raise DamagedStream("a message whose parts lie outside of it") from error
    if body < 0 or rows < 0:
        raise DamagedStream("a message of negative length")
    return _Message(kind, rows, position + body)


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
