"""The values of debug annotations of a Perfetto trace: numbers, texts, lists and dicts, as JSON has them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from bridge.importers.wire import (
    FIXED32,
    FIXED64,
    GROUP,
    GROUP_BITS,
    LENGTH,
    LONGEST,
    MORE,
    VARINT,
    WIRE,
    WIRE_BITS,
    DamagedMessageError,
)

BOOLEAN, UNSIGNED, SIGNED, DOUBLE, TEXT, KEY, ENTRIES, ITEMS = 2, 3, 4, 5, 6, 10, 11, 12
DEEPEST = 20  # lists within lists; sizes of inputs have three
SIZES = {FIXED64: 8, FIXED32: 4}
BITS = 64


def value_of(annotation: bytes) -> Any:
    """Return the value of a serialized annotation; [] where it has none, as empty lists are written."""
    return _entry(annotation, 0)[1]


def _entry(data: bytes, depth: int) -> tuple[str, Any]:
    """Return the key and the value of an annotation."""
    if depth > DEEPEST:
        raise DamagedMessageError
    key, value, items = "", None, []
    entries: dict[str, Any] = {}
    for number, content in fields_of(data):
        if number == KEY and isinstance(content, bytes):
            key = content.decode(errors="replace")
        elif number == ITEMS and isinstance(content, bytes):
            items.append(_entry(content, depth + 1)[1])
        elif number == ENTRIES and isinstance(content, bytes):
            entries |= [_entry(content, depth + 1)]
        else:
            value = _scalar(number, content, value)
    return key, entries or items if value is None else value


def _scalar(number: int, content: int | bytes, former: Any) -> Any:
    """Return the value in a field; ``former`` where the field holds none."""
    if number == TEXT and isinstance(content, bytes):
        return content.decode(errors="replace")
    if not isinstance(content, int):
        return former
    if number == SIGNED:
        return content - (1 << BITS) if content >> (BITS - 1) else content
    if number == DOUBLE:
        return struct.unpack("<d", content.to_bytes(8, "little"))[0]
    return bool(content) if number == BOOLEAN else content if number == UNSIGNED else former


def fields_of(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the content of each field."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        wire = tag & WIRE
        size, start = (0, at) if wire in SIZES else _varint(data, at)
        end = start + SIZES.get(wire, size) if wire != VARINT else start
        if end > len(data) or wire not in (VARINT, LENGTH, *SIZES):
            raise DamagedMessageError
        content = data[start:end]
        if wire == VARINT:
            yield tag >> WIRE_BITS, size
        else:
            yield tag >> WIRE_BITS, content if wire == LENGTH else int.from_bytes(content, "little")
        at = end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a position, and the position behind it."""
    value = 0
    for place, byte in enumerate(data[at : at + LONGEST]):
        value |= (byte & GROUP) << (GROUP_BITS * place)
        if byte < MORE:
            return value & ((1 << BITS) - 1), at + place + 1
    raise DamagedMessageError
