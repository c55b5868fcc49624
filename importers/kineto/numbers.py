"""Numbers of JSON as columns: microseconds to whole nanoseconds, exactly, and integers.

A value is what `importers.kineto.opened` gives: an integer, a text (of a number with a point, or of one that
the writer put in quotes), or anything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import numpy as np

from importers.frames import MISSING
from importers.texts import Ints

NS, DECIMALS = 1_000, 3  # in a µs
LATEST = 1 << 62  # ns: sums and differences of times stay within 64 bits
LONGEST = 40  # characters: no writer needs more for a number
UNKNOWN = -(1 << 63)  # stands for what is no time


def nanoseconds(values: Sequence[Any]) -> Ints:
    """Return microseconds as nanoseconds, halves away from 0; `UNKNOWN` for what is no time of 64 bits."""
    return np.array([_nanoseconds(value) for value in values], np.int64)


def integers(values: Sequence[Any]) -> Ints:
    """Return integers, and texts of them, -1 for anything else and for what is beyond 62 bits."""
    return np.array([_integer(value) for value in values], np.int64)


def _nanoseconds(value: Any) -> int:
    if type(value) is int:
        return value * NS if -LATEST < value * NS < LATEST else UNKNOWN
    if type(value) is not str or len(value) > LONGEST:
        return UNKNOWN
    whole, _, part = value.partition(".")
    if part.isdecimal() and len(part) <= DECIMALS and whole.isdecimal():
        found = int(whole + part) * 10 ** (DECIMALS - len(part))
        return found if found < LATEST else UNKNOWN
    return _exactly(value)


def _exactly(text: str) -> int:
    """Read what is written otherwise: a minus, more decimals, an exponent."""
    try:
        found = Decimal(text) * NS
        fits = found.is_finite() and abs(found) < LATEST
        return int(found.to_integral_value(ROUND_HALF_UP)) if fits else UNKNOWN
    except ArithmeticError:
        return UNKNOWN


def _integer(value: Any) -> int:
    if type(value) is str and len(value) <= LONGEST and value.isdecimal():
        value = int(value)
    return value if type(value) is int and -LATEST < value < LATEST else MISSING
