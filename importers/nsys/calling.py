"""The window of host time in which each (process, correlation id) was called: what sends activities to their call."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from importers.frames import MISSING
from importers.texts import Ints

DENSE = 8  # a table indexed by id may be this many times longer than there are ids
NEVER = np.iinfo(np.int16).max

Windows = NDArray[np.int16]


class Calling:
    """Calls are added as they are read; of several with one key the earliest counts, ids of 0 and below for none."""

    def __init__(self) -> None:
        self.added: dict[int, list[tuple[Ints, Windows]]] = {}
        self.found: dict[int, _Table] = {}

    def add(self, process: Ints, correlation: Ints, window: Windows) -> None:
        """Add some calls."""
        for one in np.unique(process).tolist():  # a turn per process
            rows = np.flatnonzero((process == one) & (correlation > 0))
            self.added.setdefault(one, []).append((correlation[rows], window[rows]))

    def finished(self) -> bool:
        """Make what `of` looks into; tell whether no key was called in two windows."""
        alone = True
        for process in list(self.added):
            ids, windows = (np.concatenate(c) for c in zip(*self.added.pop(process), strict=True))
            table = _Table.of(ids, windows)
            alone &= bool((table.at(ids) == windows).all())
            self.found[process] = table
        return alone

    def of(self, process: Ints, correlation: Ints) -> Ints:
        """Return the window of each call, MISSING where there is none."""
        window = np.full(len(process), MISSING)
        for one in np.unique(process).tolist():
            if one in self.found:
                rows = np.flatnonzero(process == one)
                window[rows] = self.found[one].at(correlation[rows])
        return window


class _Table:
    """The windows of one process's calls: by id where ids are nearly consecutive, else sorted."""

    def __init__(self, ids: Ints, windows: Windows, low: int | None) -> None:
        self.ids, self.windows, self.low = ids, windows, low

    @classmethod
    def of(cls, ids: Ints, windows: Windows) -> _Table:
        if not len(ids):
            return cls(ids, windows, None)
        low, high = int(ids.min()), int(ids.max())
        if high - low < DENSE * len(ids) + 1_000_000:
            table = np.full(high - low + 1, NEVER, np.int16)
            np.minimum.at(table, ids - low, windows)
            return cls(np.empty(0, np.int64), table, low)
        order = np.lexsort((windows, ids))
        return cls(ids[order], windows[order], None)

    def at(self, asked: Ints) -> Ints:
        if self.low is not None:
            inside = (asked >= self.low) & (asked < self.low + len(self.windows)) & (asked > 0)
            found = self.windows[np.where(inside, asked - self.low, 0)].astype(np.int64)
            return np.where(inside & (found != NEVER), found, MISSING)
        if not len(self.ids):
            return np.full(len(asked), MISSING)
        place = np.minimum(np.searchsorted(self.ids, asked), len(self.ids) - 1)
        hit = (self.ids[place] == asked) & (asked > 0)
        return np.where(hit, self.windows[place].astype(np.int64), MISSING)
