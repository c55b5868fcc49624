"""A column of texts as one block of bytes, so that a million texts cost no Python object each.

Row i is ``data[offsets[i]:offsets[i + 1]]``, UTF-8 as recorded (which may be invalid). A text
becomes a Python string only when somebody asks for it, normally one per distinct text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

BEYOND = 32  # words that may be looked at past the end of a block
WORD = 8  # bytes compared or hashed at a time
BLOCK = 16_384  # texts moved at a time: more would not fit into the cache
MIX = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio: spreads every bit (Knuth)


@dataclass(frozen=True)
class Texts:
    """Texts in one block of bytes; ``offsets`` has one more entry than there are texts."""

    data: Bytes
    offsets: Ints

    @classmethod
    def of(cls, texts: Iterable[str | bytes]) -> Texts:
        """Pack Python strings."""
        parts = [t.encode() if isinstance(t, str) else t for t in texts]
        return cls(np.frombuffer(b"".join(parts), np.uint8), _offsets([len(p) for p in parts]))

    @classmethod
    def concat(cls, many: Sequence[Texts]) -> Texts:
        """Put columns one after another."""
        if len(many) == 1:
            return many[0]
        sizes = [np.diff(texts.offsets) for texts in many]
        data = [t.data[t.offsets[0] : t.offsets[-1]] for t in many if len(t)]
        return cls(_joined(data, np.uint8), _offsets(_joined(sizes, np.int64)))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> Ints:
        """Length of each text in bytes."""
        return np.diff(self.offsets)

    @cached_property
    def words(self) -> NDArray[np.uint64]:
        """The 8 bytes from every place of the block on, as one little-endian number each.

        There are some for places past the end; bytes out there are zero.
        """
        padded = np.concatenate((self.data, np.zeros(WORD + BEYOND, np.uint8)))
        return np.ndarray((len(self.data) + 1 + BEYOND,), "<u8", padded, strides=(1,))

    def decode(self, rows: Iterable[int] | None = None) -> list[str]:
        """Return texts as strings; what is not UTF-8 shows as the replacement character."""
        data, offsets = self.data.tobytes(), self.offsets.tolist()
        wanted = range(len(self)) if rows is None else rows
        return [data[offsets[r] : offsets[r + 1]].decode(errors="replace") for r in wanted]

    def take(self, rows: Ints) -> Texts:
        """Return the texts of some rows, packed anew."""
        return self.slices(self.offsets[rows], self.offsets[rows + 1])

    def slices(self, starts: Ints, ends: Ints) -> Texts:
        """Pack the byte ranges [start, end) of the block as texts of their own."""
        offsets = _offsets(ends - starts)
        full = np.flatnonzero(ends > starts)
        if len(full) and (starts[full][1:] == ends[full][:-1]).all():  # they lie end to end
            return Texts(self.data[starts[full[0]] : ends[full[-1]]], offsets)
        data = np.empty(offsets[-1], np.uint8)
        for first in range(0, len(starts), BLOCK):
            last = min(first + BLOCK, len(starts))
            a, b = offsets[first], offsets[last]
            # Every byte's source is its place in the output, moved by where its text came from.
            move = np.repeat((starts - offsets[:-1])[first:last], (ends - starts)[first:last])
            data[a:b] = self.data[np.arange(a, b) + move]
        return Texts(data, offsets)

    def factorize(self, lengths: Ints | None = None) -> tuple[Ints, list[str]]:
        """Return a code per row, by first occurrence, and the distinct texts (or heads of ``lengths``).

        Equality is of bytes, never of hashes alone;
        two that decode alike (both invalid UTF-8) share one code, for names must be unique.
        """
        lengths = self.sizes if lengths is None else lengths
        words = _Words(self.words)
        codes, firsts = pd.factorize(words.hashes(self.offsets[:-1], lengths))
        first_row = np.full(len(firsts), len(self), np.int64)
        np.minimum.at(first_row, codes, np.arange(len(codes)))
        twin = first_row[codes]
        same = (lengths == lengths[twin]) & words.equal(
            self.offsets[:-1], self.offsets[twin], lengths
        )
        if not same.all():  # two texts share a 64-bit hash: decide by the texts themselves
            texts = self.slices(self.offsets[:-1], self.offsets[:-1] + lengths)
            return unique_names(np.arange(len(self)), texts.decode())
        heads = self.slices(self.offsets[first_row], self.offsets[first_row] + lengths[first_row])
        return unique_names(codes.astype(np.int64), heads.decode())


class _Words:
    """Unaligned 8-byte words of a block of texts; bytes past the end of a text count as zero."""

    MASKS = np.array([(1 << (8 * n)) - 1 for n in range(WORD)] + [(1 << 64) - 1], np.uint64)

    def __init__(self, words: NDArray[np.uint64]) -> None:
        self.words = words

    def at(self, places: Ints, left: Ints) -> NDArray[np.uint64]:
        return self.words[places] & self.MASKS[np.minimum(left, WORD)]

    def hashes(self, starts: Ints, lengths: Ints) -> NDArray[np.uint64]:
        found = lengths.astype(np.uint64) * MIX
        rows, left, places = np.arange(len(starts)), lengths, starts
        while True:
            going = left > 0
            rows, left, places = rows[going], left[going], places[going]
            if not len(rows):
                return found
            mixed = (found[rows] ^ self.at(places, left)) * MIX
            found[rows] = mixed ^ (mixed >> np.uint64(29))
            left, places = left - WORD, places + WORD

    def equal(self, ours: Ints, theirs: Ints, lengths: Ints) -> NDArray[np.bool_]:
        same = np.ones(len(ours), bool)
        for done in range(0, int(lengths.max(initial=0)), WORD):
            rows = np.flatnonzero(lengths > done)
            left = lengths[rows] - done
            same[rows] &= self.at(ours[rows] + done, left) == self.at(theirs[rows] + done, left)
        return same


def unique_names(codes: Ints, names: list[str]) -> tuple[Ints, list[str]]:
    """Give equal names one code; returns the new codes and the distinct names."""
    same, distinct = pd.factorize(np.array(names, dtype=object))
    if len(distinct) == len(names):
        return codes, names
    return same.astype(np.int64)[codes], list(distinct)


def _offsets(sizes: Ints | list[int]) -> Ints:
    return np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))).astype(np.int64)


def _joined(parts: Sequence[NDArray[Any]], dtype: type) -> NDArray[Any]:
    return np.concatenate([np.empty(0, dtype), *parts])
