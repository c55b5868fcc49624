"""`Texts`: a column of texts as one block of bytes, without a Python object per text.

Row i is ``data[offsets[i]:offsets[i + 1]]``, in UTF-8 as recorded, which may be invalid. A text is
decoded only on request, normally once per distinct text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridge.importers.arrays import Flags, Ints, factorize

Bytes = NDArray[np.uint8]

PADDING = 32  # positions past the end of a block that `Texts.words` has
WORD = 8  # bytes that are compared or hashed at a time
BLOCK = 16_384  # texts that are copied at a time; more do not fit into the cache
BLOCK_BYTES = 1 << 19  # of a part of `Texts.blocks`
MASKS = np.array(
    [(1 << (8 * n)) - 1 for n in range(WORD)] + [(1 << 64) - 1], np.uint64
)  # of n bytes
MIX = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio (Knuth's multiplicative hash)


@dataclass(frozen=True)
class Texts:
    """Texts in one block of bytes; ``offsets`` has one entry more than there are texts."""

    data: Bytes
    offsets: Ints

    @classmethod
    def of(cls, texts: Iterable[str | bytes]) -> Texts:
        """Return Python strings as texts."""
        parts = [t.encode() if isinstance(t, str) else t for t in texts]
        return cls(np.frombuffer(b"".join(parts), np.uint8), _offsets([len(p) for p in parts]))

    @classmethod
    def concat(cls, columns: Sequence[Texts]) -> Texts:
        """Return several columns one after another."""
        if len(columns) == 1:
            return columns[0]
        sizes = [np.diff(texts.offsets) for texts in columns]
        data = [t.data[t.offsets[0] : t.offsets[-1]] for t in columns if len(t)]
        padded = _concatenated([*data, np.zeros(WORD + PADDING, np.uint8)], np.uint8)
        offsets = _offsets(_concatenated(sizes, np.int64))
        return _with_words(cls(padded[: offsets[-1]], offsets), _words_of(padded))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> Ints:
        """The length of each text in bytes."""
        return np.diff(self.offsets)

    @cached_property
    def words(self) -> NDArray[np.uint64]:
        """The 8 bytes from every position of the block on, as one little-endian number each.

        Positions up to PADDING past the end are valid; the bytes there are zero.
        """
        return _words_of(np.concatenate((self.data, np.zeros(WORD + PADDING, np.uint8))))

    def blocks(self) -> Iterator[Texts]:
        """Yield the texts in parts that fit into the cache.

        Behind the end of a part its `words` hold the bytes of the next part.
        """
        edges = np.arange(self.offsets[0], self.offsets[-1], BLOCK_BYTES)[1:]
        rows = np.unique([0, *np.searchsorted(self.offsets, edges), len(self)])
        for first, last in pairwise(rows.tolist()):
            begin, end = self.offsets[first], self.offsets[last]
            part = Texts(self.data[begin:end], self.offsets[first : last + 1] - begin)
            yield _with_words(part, self.words[begin : end + 1 + PADDING])

    def decode(self, rows: Iterable[int] | None = None) -> list[str]:
        """Return texts as strings; invalid UTF-8 becomes the replacement character."""
        data, offsets = self.data.tobytes(), self.offsets.tolist()
        selected = range(len(self)) if rows is None else rows
        return [data[offsets[row] : offsets[row + 1]].decode(errors="replace") for row in selected]

    def part(self, rows: slice) -> Texts:
        """Return consecutive texts, which share the block."""
        first, last, _ = rows.indices(len(self))
        return Texts(self.data, self.offsets[first : last + 1])

    def take(self, rows: Ints) -> Texts:
        return self.slices(self.offsets[rows], self.offsets[rows + 1])

    def slices(self, starts: Ints, ends: Ints) -> Texts:
        """Return the byte ranges [start, end) of the block as texts."""
        offsets = _offsets(ends - starts)
        filled = np.flatnonzero(ends > starts)
        if len(filled) and (starts[filled][1:] == ends[filled][:-1]).all():  # adjacent
            return Texts(self.data[starts[filled[0]] : ends[filled[-1]]], offsets)
        data = np.empty(offsets[-1], np.uint8)
        for first in range(0, len(starts), BLOCK):
            last = min(first + BLOCK, len(starts))
            begin, end = offsets[first], offsets[last]
            # The source of each byte is its place in the output plus the offset of its text.
            shift = np.repeat((starts - offsets[:-1])[first:last], (ends - starts)[first:last])
            data[begin:end] = self.data[np.arange(begin, end) + shift]
        return Texts(data, offsets)

    def factorize(self, lengths: Ints | None = None) -> tuple[Ints, list[str]]:
        """Return a code per row, in order of first occurrence, and the distinct texts.

        With ``lengths`` only the first bytes of each text count. Texts are compared by their
        bytes, not only by their hashes. Two that decode to the same string (invalid UTF-8) share a
        code, because names must be unique.
        """
        lengths = self.sizes if lengths is None else lengths
        codes, first = distinct(self.words, self.offsets[:-1], lengths)
        heads = self.slices(self.offsets[first], self.offsets[first] + lengths[first])
        return unique_names(codes, heads.decode())


def distinct(words: NDArray[np.uint64], starts: Ints, lengths: Ints) -> tuple[Ints, Ints]:
    """Return a code per range of bytes, in order of first occurrence, and the first row of each code.

    ``words`` are the 8 bytes from every position on. Bytes are compared, not only their hashes.
    """
    block = _Words(words)
    codes, hashes = factorize(block.hashes(starts, lengths))
    first_row = np.full(len(hashes), len(codes), np.int64)
    np.minimum.at(first_row, codes, np.arange(len(codes)))
    first = first_row[codes]
    same = (lengths == lengths[first]) & block.equal(starts, starts[first], lengths)
    return (codes, first_row) if same.all() else _compared(words, starts, lengths)


def _compared(words: NDArray[np.uint64], starts: Ints, lengths: Ints) -> tuple[Ints, Ints]:
    """Return the same where hashes collide."""
    data = words.astype(np.uint8).tobytes()  # the lowest byte of each
    bounds = zip(starts.tolist(), lengths.tolist(), strict=True)
    places: dict[bytes, tuple[int, int]] = {}
    codes = [
        places.setdefault(data[start : start + length], (len(places), row))[0]
        for row, (start, length) in enumerate(bounds)
    ]
    return np.array(codes, np.int64), np.array([row for _, row in places.values()], np.int64)


class _Words:
    """Unaligned 8-byte words of a block of texts; bytes past the end of a text are zero."""

    def __init__(self, words: NDArray[np.uint64]) -> None:
        self.words = words

    def at(self, places: Ints, left: Ints) -> NDArray[np.uint64]:
        return self.words[places] & MASKS[np.minimum(left, WORD)]

    def hashes(self, starts: Ints, lengths: Ints) -> NDArray[np.uint64]:
        result = lengths.astype(np.uint64) * MIX
        rows, left, places = np.arange(len(starts)), lengths, starts
        while True:
            unfinished = left > 0
            rows, left, places = rows[unfinished], left[unfinished], places[unfinished]
            if not len(rows):
                return result
            mixed = (result[rows] ^ self.at(places, left)) * MIX
            result[rows] = mixed ^ (mixed >> np.uint64(29))
            left, places = left - WORD, places + WORD

    def equal(self, starts: Ints, other_starts: Ints, lengths: Ints) -> Flags:
        same = np.ones(len(starts), bool)
        for compared in range(0, int(lengths.max(initial=0)), WORD):
            rows = np.flatnonzero(lengths > compared)
            left = lengths[rows] - compared
            same[rows] &= self.at(starts[rows] + compared, left) == self.at(
                other_starts[rows] + compared, left
            )
        return same


def unique_names(codes: Ints, names: list[str]) -> tuple[Ints, list[str]]:
    """Merge the codes of equal names; returns the new codes and the distinct names."""
    # No pd.factorize: before 3.1 pandas takes objects for equal that are the same up to a NUL.
    places = {name: place for place, name in enumerate(dict.fromkeys(names))}
    if len(places) == len(names):
        return codes, names
    return np.array([places[name] for name in names], np.int64)[codes], list(places)


def _offsets(sizes: Ints | list[int]) -> Ints:
    return np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))).astype(np.int64)


def _with_words(texts: Texts, words: NDArray[np.uint64]) -> Texts:
    """Return texts whose `words` are known already, so that they need no copy of the block."""
    texts.__dict__["words"] = words
    return texts


def _words_of(padded: Bytes) -> NDArray[np.uint64]:
    """Return the words of a block of bytes with WORD + PADDING zeros behind it."""
    return np.ndarray((len(padded) - WORD + 1,), "<u8", padded, strides=(1,))


def _concatenated(parts: Sequence[NDArray[Any]], dtype: type) -> NDArray[Any]:
    return np.concatenate([np.empty(0, dtype), *parts])
