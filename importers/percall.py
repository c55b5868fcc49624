"""Where the name of a range ends and what belongs to a single call begins.

PyTorch writes ``aten::mm, seq = 7, op_id = 40, sizes = [[2, 3]], input_op_ids = [(38, 0)]``
(torch/csrc/profiler/util.cpp, getNvtxStr): every call a text of its own. Found on bytes, for all
texts at once; only the place is returned, the text itself is kept whole.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from importers.texts import WORD, Bytes, Ints, Texts

KEYS = (b", seq = ", b", op_id = ", b", sizes = ", b", input_op_ids = ")
COMMA, MINUS, OPEN, CLOSE = b",-[]"


def name_lengths(texts: Texts) -> Ints:
    """Return the length in bytes of each text's name, its per-call part left out.

    The per-call part starts at the first key that a value follows and runs to the end of the text,
    which must be the end of a value: ``loss, seq = none`` is a name.
    """
    lengths = texts.sizes
    if not len(texts):
        return lengths
    found = _keys(texts)
    row = np.searchsorted(texts.offsets, found, side="right") - 1
    closed = _ends_a_value(texts.data[texts.offsets[row + 1] - 1])
    row, found = row[closed], found[closed]
    first = np.flatnonzero(np.diff(row, prepend=-1))  # places ascend: the first key of each text
    lengths[row[first]] = found[first] - texts.offsets[row[first]]
    return lengths


def _keys(texts: Texts) -> Ints:
    """Return the places of every key that a value follows, in order."""
    commas = np.flatnonzero(texts.data == COMMA)
    words = texts.words
    heads = words[commas]
    places = [_of_key(words, commas, heads, key) for key in KEYS]
    found: Ints = np.sort(np.concatenate(places), kind="stable")  # merges what is sorted already
    return found


def _of_key(words: NDArray[np.uint64], commas: Ints, heads: NDArray[np.uint64], key: bytes) -> Ints:
    places: Ints = commas[heads == int.from_bytes(key[:WORD], "little")]
    for step in range(WORD, len(key)):
        places = places[_byte(words, places + step) == key[step]]
    value = _byte(words, places + len(key))
    found: Ints = places[_digit(value) | (value == MINUS) | (value == OPEN)]
    return found


def _byte(words: NDArray[np.uint64], places: Ints) -> Bytes:
    return words[places].astype(np.uint8)  # the low byte of a little-endian word is the first


def _ends_a_value(last: Bytes) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = _digit(last) | (last == CLOSE)
    return found


def _digit(byte: Bytes) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = (byte >= ord("0")) & (byte <= ord("9"))
    return found
