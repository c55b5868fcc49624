"""Split the text of a range into the name of the op and the part that differs from call to call.

PyTorch writes ``aten::mm, seq = 7, op_id = 40, sizes = [[2, 3]], input_op_ids = [(38, 0)]``
(torch/csrc/profiler/util.cpp, getNvtxStr): every call has a text of its own. All texts are
searched at once, as bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bridge.importers.arrays import MISSING, Ints, scatter
from bridge.importers.texts import WORD, Bytes, Texts

SEQ, OP_ID, SIZES, INPUT_OP_IDS = b", seq = ", b", op_id = ", b", sizes = ", b", input_op_ids = "
KEYS = (SEQ, OP_ID, SIZES, INPUT_OP_IDS)
DIGITS = 19  # of the largest int64
MAX_INT64 = np.uint64(2**63 - 1)
# Eight digits are read at a time as the bytes of a little-endian word; the first is the lowest.
ONE, ONES, ZEROS, SIXES, UPPER, PAIRS = (
    np.uint64(int(byte, 16))
    for byte in ("1", "01" * WORD, "30" * WORD, "06" * WORD, "F0" * WORD, "000000FF" * 2)
)
POWERS = np.array([10**n for n in range(WORD + 1)], np.uint64)
COMMA, MINUS, OPEN, CLOSE = b",-[]"


def name_lengths(texts: Texts) -> Ints:
    """Return the length in bytes of the name in each text, without the per-call part.

    The per-call part begins at the first key that is followed by a value, and runs to the end of
    the text, which must be the end of a value: ``loss, seq = none`` is a name.
    """
    return _joined([_name_lengths(part) for part in texts.blocks()])


def _name_lengths(texts: Texts) -> Ints:
    lengths = texts.sizes
    values, row = _places(texts, KEYS)
    first = _first_of_text(row)
    lengths[row[first]] = values[first] - texts.offsets[row[first]]
    return lengths


def numbers(texts: Texts, key: bytes) -> Ints:
    """Return the integer after a key in the per-call part of each text, -1 where there is none.

    The first valid one counts: digits, with or without a minus, up to a comma or the end of the
    text. One of more than 19 digits or beyond 64 bits is -1 as well.
    """
    return _joined([_numbers(part, key) for part in texts.blocks()])


def _numbers(texts: Texts, key: bytes) -> Ints:
    words, (values, row) = texts.words, _places(texts, (key,))
    negative = _byte(words, values + len(key)) == MINUS
    starts, ends = values + len(key) + negative, texts.offsets[row + 1]
    value, stops = parse_digits(words, starts, ends)
    is_number = (stops > starts) & ((stops == ends) | (_byte(words, stops) == COMMA))
    is_int64 = (stops - starts <= DIGITS) & (value <= MAX_INT64)
    value = np.where(is_int64, value, 0).astype(np.int64)
    first = np.flatnonzero(is_number)
    first = first[_first_of_text(row[first])]
    return scatter(
        np.where(is_int64, np.where(negative, -value, value), MISSING)[first],
        row[first],
        len(texts),
    )


def values(texts: Texts, key: bytes) -> Texts:
    """Return the text after a key of the per-call part, up to the next key; '' if it is absent."""
    return Texts.concat([Texts.of([]), *(_values(part, key) for part in texts.blocks())])


def _values(texts: Texts, key: bytes) -> Texts:
    result, row = _places(texts, KEYS)
    last = np.diff(row, append=-1) != 0
    end = np.where(last, texts.offsets[row + 1], np.append(result[1:], 0))
    key_rows = np.searchsorted(result, _places(texts, (key,))[0])
    key_rows = key_rows[_first_of_text(row[key_rows])]
    starts, ends = (np.zeros(len(texts), np.int64) for _ in range(2))
    starts[row[key_rows]], ends[row[key_rows]] = result[key_rows] + len(key), end[key_rows]
    return texts.slices(starts, ends)


def _places(texts: Texts, keys: tuple[bytes, ...]) -> tuple[Ints, Ints]:
    """Return the positions of these keys in per-call parts, ascending, and the row of each.

    A key belongs to the per-call part if a value follows it and the text ends with a value.
    """
    commas = np.flatnonzero(texts.data == COMMA)
    words = texts.words
    heads = words[commas]
    places = [_key_places(words, commas, heads, key) for key in keys]
    result: Ints = np.sort(np.concatenate(places), kind="stable")  # merges sorted parts
    row = np.searchsorted(texts.offsets, result, side="right") - 1
    is_closed = _ends_value(texts.data[texts.offsets[row + 1] - 1])
    return result[is_closed], row[is_closed]


def _joined(parts: Sequence[Ints]) -> Ints:
    return np.concatenate([np.empty(0, np.int64), *parts])


def _first_of_text(row: Ints) -> Ints:
    """Return the index of the first position of each text; rows ascend."""
    return np.flatnonzero(np.diff(row, prepend=-1))


def _key_places(
    words: NDArray[np.uint64], commas: Ints, heads: NDArray[np.uint64], key: bytes
) -> Ints:
    places: Ints = commas[heads == int.from_bytes(key[:WORD], "little")]
    for step in range(WORD, len(key)):
        places = places[_byte(words, places + step) == key[step]]
    value = _byte(words, places + len(key))
    result: Ints = places[_is_digit(value) | (value == MINUS) | (value == OPEN)]
    return result


def parse_digits(
    words: NDArray[np.uint64], places: Ints, ends: Ints
) -> tuple[NDArray[np.uint64], Ints]:
    """Return the value of the digits from each position on, and where they end.

    No position at or after ``ends`` is read. The value is right for at most DIGITS digits.
    """
    value, stops = np.zeros(len(places), np.uint64), places.copy()
    unfinished = np.arange(len(places))
    while len(unfinished):
        at = stops[unfinished]
        word = words[at] ^ ZEROS
        count = np.minimum(_leading_digits(word), ends[unfinished] - at)
        value[unfinished] = value[unfinished] * POWERS[count] + _number(word, count)
        stops[unfinished] = at + count
        unfinished = unfinished[count == WORD]
    return value, stops


def _leading_digits(word: NDArray[np.uint64]) -> Ints:
    """Return how many bytes of 0 to 9 each word begins with.

    All other bytes have one of the upper four bits set, or have it after 6 is added; a carry only
    reaches the bytes behind them.
    """
    non_digits = ((word + SIXES) | word) & UPPER
    before = (non_digits & (~non_digits + ONE)) - ONE  # all bits below the lowest set bit
    whole = (before >> np.uint64(7)) & ONES  # one per byte that has all bits set
    return ((whole * ONES) >> np.uint64(56)).astype(np.int64)  # their sum; NumPy 1 counts no bits


def _number(word: NDArray[np.uint64], count: Ints) -> NDArray[np.uint64]:
    """Return the number that the first ``count`` digits write: by pairs, fours, eights."""
    digits = word << (8 * (WORD - count)).astype(np.uint64)
    pairs = digits * np.uint64(10) + (digits >> np.uint64(8))
    high = (pairs & PAIRS) * np.uint64(100 + (1_000_000 << 32))
    low = ((pairs >> np.uint64(16)) & PAIRS) * np.uint64(1 + (10_000 << 32))
    result: NDArray[np.uint64] = (high + low) >> np.uint64(32)
    return result


def _byte(words: NDArray[np.uint64], places: Ints) -> Bytes:
    return words[places].astype(np.uint8)  # the lowest byte is the first


def _ends_value(last: Bytes) -> NDArray[np.bool_]:
    result: NDArray[np.bool_] = _is_digit(last) | (last == CLOSE)
    return result


def _is_digit(byte: Bytes) -> NDArray[np.bool_]:
    result: NDArray[np.bool_] = (byte >= ord("0")) & (byte <= ord("9"))
    return result
