"""Texts written once and meant by number after that: the interned data of a Perfetto trace.

The fields are those of protos/perfetto/trace/interned_data/interned_data.proto.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from bridge.analyze.timeline import Chain, Named
from bridge.render.packet_paths import Paths, PathText
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
    integer,
    message,
    tag,
    through,
    varints,
)
from bridge.render.rows import Names

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
