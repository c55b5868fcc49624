"""The greatest value among stretches of a column, many at once."""

from __future__ import annotations

import numpy as np

from bridge.join.order import Ints


def highest_within(values: Ints, first: Ints, last: Ints) -> Ints:
    """Return the greatest of ``values[first:last]`` of each stretch, none of which is empty.

    Maxima of 1, 2, 4 … neighbours are made in turn; two of one length cover any stretch.
    """
    found = np.empty(len(first), np.int64)
    length = last - first
    level = np.frexp(length)[1] - 1  # the greatest power of two in it
    maxima, width = values, 1
    for power in range(int(level.max(initial=-1)) + 1):
        rows = np.flatnonzero(level == power)
        found[rows] = np.maximum(maxima[first[rows]], maxima[last[rows] - width])
        maxima = np.maximum(maxima[:-width], maxima[width:]) if len(maxima) > width else maxima
        width *= 2
    return found
