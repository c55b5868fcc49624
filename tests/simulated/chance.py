"""Random numbers that belong to the identity of an event, so that a changed program draws the same ones elsewhere."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist
from zlib import crc32

_MASK = (1 << 64) - 1
_BINS = 4096
# Quantiles of the normal distribution between about -3.5 and 3.5.
_NORMAL = [NormalDist().inv_cdf((i + 0.5) / _BINS) for i in range(_BINS)]


@lru_cache(maxsize=65_536)
def number_of(text: str) -> int:
    """Return a number for a text, the same in every process."""
    return crc32(text.encode()) * 0x9E3779B97F4A7C15 & _MASK


def event_number(scope: int, name: int, count: int) -> int:
    """Return 64 bits for the n-th event of a name in a scope."""
    state = (scope ^ name * 3 ^ (count + 1) * 0xD6E8FEB86659FD93) & _MASK
    state = (state ^ state >> 32) * 0xBF58476D1CE4E5B9 & _MASK
    return state ^ state >> 29


def mixed(*numbers: int) -> int:
    """Return 64 bits that depend on all numbers and on their order."""
    state = 0x243F6A8885A308D3
    for number in numbers:
        state = ((state ^ number) * 0xBF58476D1CE4E5B9 + 0x94D049BB133111EB) & _MASK
        state ^= state >> 29
    state = (state ^ state >> 31) * 0x94D049BB133111EB & _MASK
    return state ^ state >> 32


def factor(spread: float, identity: int) -> float:
    """Return a factor around 1 (its median) of a lognormal distribution of this spread."""
    return math.exp(spread * _NORMAL[identity >> 40 & _BINS - 1])
