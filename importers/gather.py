"""Integer columns put together from batches that several threads bring, each value copied once.

A column that holds one value throughout, as many do, is never written out: it takes no memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from importers.texts import Ints


class Gathered:
    """One integer column; part i takes at most ``room[i]`` rows."""

    def __init__(self, room: Sequence[int]) -> None:
        self.first = np.concatenate(([0], np.cumsum(room)))
        self.values = np.empty(int(self.first[-1]), np.int64)  # untouched, so not yet real memory
        self.parts = [_Part(self.values[a:b]) for a, b in pairwise(self.first)]

    def add(self, part: int, batch: Ints) -> None:
        """Append a batch to a part; only one thread may fill a part."""
        self.parts[part].add(batch)

    def column(self) -> Ints:
        """Return the whole column, its parts in order."""
        filled = [part for part in self.parts if part.rows]
        rows = sum(part.rows for part in filled)
        if filled and all(p.constant and p.value == filled[0].value for p in filled):
            return np.broadcast_to(np.int64(filled[0].value), (rows,))
        for part in filled:
            part.write_out()
        if rows == len(self.values):
            return self.values
        return np.concatenate([np.empty(0, np.int64), *(p.values[: p.rows] for p in filled)])


class _Part:
    def __init__(self, values: Ints) -> None:
        self.values, self.rows = values, 0
        self.constant, self.value = True, 0

    def add(self, batch: Ints) -> None:
        if not len(batch):
            return
        if not self.rows:
            self.value = int(batch[0])
        if self.constant and not _all_are(batch, self.value):
            self.write_out()
        if not self.constant:
            self.values[self.rows : self.rows + len(batch)] = batch
        self.rows += len(batch)

    def write_out(self) -> None:
        """Write the rows that were only counted so far."""
        if self.constant:
            self.values[: self.rows] = self.value
            self.constant = False


def _all_are(batch: Ints, value: int) -> bool:
    return bool(batch[0] == value and batch[-1] == value and (batch == value).all())
