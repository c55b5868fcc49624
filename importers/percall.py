"""Where the name of a range ends and what belongs to a single call begins, and what that says.

PyTorch writes ``aten::mm, seq = 7, op_id = 40, sizes = [[2, 3]], input_op_ids = [(38, 0)]``
(torch/csrc/profiler/util.cpp, getNvtxStr): every call a text of its own. Found on bytes, for all
texts at once; only the place is returned, the text itself is kept whole.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from importers.frames import MISSING
from importers.texts import WORD, Bytes, Ints, Texts

SEQ, OP_ID, SIZES, INPUT_OP_IDS = b", seq = ", b", op_id = ", b", sizes = ", b", input_op_ids = "
KEYS = (SEQ, OP_ID, SIZES, INPUT_OP_IDS)
DIGITS = 19  # of the largest number that fits into 64 bits
LARGEST = np.uint64(2**63 - 1)
# Eight digits are read at a time: a byte each of a little-endian word, the first one lowest.
ONE, ZEROS, SIXES, UPPER, PAIRS = (
    np.uint64(int(byte, 16))
    for byte in ("1", "30" * WORD, "06" * WORD, "F0" * WORD, "000000FF" * 2)
)
POWERS = np.array([10**n for n in range(WORD + 1)], np.uint64)
COMMA, MINUS, OPEN, CLOSE = b",-[]"


def name_lengths(texts: Texts) -> Ints:
    """Return the length in bytes of each text's name, its per-call part left out.

    The per-call part starts at the first key that a value follows and runs to the end of the text,
    which must be the end of a value: ``loss, seq = none`` is a name.
    """
    lengths = texts.sizes
    found, row = _places(texts, KEYS)
    first = _first(row)
    lengths[row[first]] = found[first] - texts.offsets[row[first]]
    return lengths


def numbers(texts: Texts, key: bytes) -> Ints:
    """Return the integer after a key in the per-call part of each text, -1 where there is none.

    The first that is one counts: digits, with a minus or not, that end with the text or at a comma.
    One of more than 19 digits or beyond 64 bits is -1 as well.
    """
    words, (found, row) = texts.words, _places(texts, (key,))
    negative = _byte(words, found + len(key)) == MINUS
    starts, ends = found + len(key) + negative, texts.offsets[row + 1]
    value, stops = _parsed(words, starts, ends)
    whole = (stops > starts) & ((stops == ends) | (_byte(words, stops) == COMMA))
    fits = (stops - starts <= DIGITS) & (value <= LARGEST)
    value = np.where(fits, value, 0).astype(np.int64)
    first = np.flatnonzero(whole)
    first = first[_first(row[first])]
    column = np.full(len(texts), MISSING)
    column[row[first]] = np.where(fits, np.where(negative, -value, value), MISSING)[first]
    return column


def values(texts: Texts, key: bytes) -> Texts:
    """Return what follows a key in the per-call part of each text, up to the next key; '' without."""
    found, row = _places(texts, KEYS)
    last = np.diff(row, append=-1) != 0
    end = np.where(last, texts.offsets[row + 1], np.append(found[1:], 0))
    ours = np.searchsorted(found, _places(texts, (key,))[0])
    ours = ours[_first(row[ours])]
    starts, ends = (np.zeros(len(texts), np.int64) for _ in range(2))
    starts[row[ours]], ends[row[ours]] = found[ours] + len(key), end[ours]
    return texts.slices(starts, ends)


def _places(texts: Texts, keys: tuple[bytes, ...]) -> tuple[Ints, Ints]:
    """Return where these keys are in per-call parts, in order, and in which text each is.

    A key that a value follows, in a text that ends with a value, is in the per-call part.
    """
    commas = np.flatnonzero(texts.data == COMMA)
    words = texts.words
    heads = words[commas]
    places = [_of_key(words, commas, heads, key) for key in keys]
    found: Ints = np.sort(np.concatenate(places), kind="stable")  # merges what is sorted already
    row = np.searchsorted(texts.offsets, found, side="right") - 1
    closed = _ends_a_value(texts.data[texts.offsets[row + 1] - 1])
    return found[closed], row[closed]


def _first(row: Ints) -> Ints:
    """Return the first place in each text; places ascend."""
    return np.flatnonzero(np.diff(row, prepend=-1))


def _of_key(words: NDArray[np.uint64], commas: Ints, heads: NDArray[np.uint64], key: bytes) -> Ints:
    places: Ints = commas[heads == int.from_bytes(key[:WORD], "little")]
    for step in range(WORD, len(key)):
        places = places[_byte(words, places + step) == key[step]]
    value = _byte(words, places + len(key))
    found: Ints = places[_digit(value) | (value == MINUS) | (value == OPEN)]
    return found


def _parsed(words: NDArray[np.uint64], places: Ints, ends: Ints) -> tuple[NDArray[np.uint64], Ints]:
    """Read the digits from each place on, none beyond its end: their value and where they stop.

    The value is right where they are no more than DIGITS.
    """
    value, stops = np.zeros(len(places), np.uint64), places.copy()
    going = np.arange(len(places))
    while len(going):
        at = stops[going]
        word = words[at] ^ ZEROS
        count = np.minimum(_leading_digits(word), ends[going] - at)
        value[going] = value[going] * POWERS[count] + _number(word, count)
        stops[going] = at + count
        going = going[count == WORD]
    return value, stops


def _leading_digits(word: NDArray[np.uint64]) -> Ints:
    """Count the bytes of 0 to 9 that a word begins with.

    Others have one of the upper four bits, if need be after adding 6; what that carries into is behind them.
    """
    other = ((word + SIXES) | word) & UPPER
    before = (other & (~other + ONE)) - ONE  # all bits below the lowest that is set
    return np.bitwise_count(before).astype(np.int64) >> 3


def _number(word: NDArray[np.uint64], count: Ints) -> NDArray[np.uint64]:
    """Return the number that the first ``count`` bytes of 0 to 9 write: digits, pairs, fours, all."""
    digits = word << (8 * (WORD - count)).astype(np.uint64)
    pairs = digits * np.uint64(10) + (digits >> np.uint64(8))
    high = (pairs & PAIRS) * np.uint64(100 + (1_000_000 << 32))
    low = ((pairs >> np.uint64(16)) & PAIRS) * np.uint64(1 + (10_000 << 32))
    found: NDArray[np.uint64] = (high + low) >> np.uint64(32)
    return found


def _byte(words: NDArray[np.uint64], places: Ints) -> Bytes:
    return words[places].astype(np.uint8)  # the low byte of a little-endian word is the first


def _ends_a_value(last: Bytes) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = _digit(last) | (last == CLOSE)
    return found


def _digit(byte: Bytes) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = (byte >= ord("0")) & (byte <= ord("9"))
    return found
