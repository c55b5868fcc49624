"""What several reports of Nsight Compute say of the same kernels of a timeline, as one.

Of a metric that several measured of a kernel that of the surest match counts, of equally sure ones that of the report
named last; what one of them alone measured is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bridge.join.order import NONE, Ints, number
from importers import frames
from importers.ncu.metrics import Metrics
from importers.ncu.metrics import concat as one_after_another


@dataclass(frozen=True)
class _Sources:
    """Each combination of measured kernels that activities have: the kernel (or NONE) and how sure, by report."""

    kernel: tuple[Ints, ...]
    sure: tuple[Ints, ...]

    @property
    def least(self) -> Ints:
        """How sure the least sure one is."""
        found: Ints = np.max(self.sure, axis=0)
        return found


def united(parts: Sequence[Metrics]) -> Metrics:
    """Put together what was matched to the same activities, in the order named; ``sure`` is of the least sure match."""
    if len(parts) == 1:
        return parts[0]
    together = one_after_another(parts, [len(part.of) for part in parts])
    of = np.split(together.of, len(parts))
    keys = [column for one, part in zip(of, parts, strict=True) for column in (one, part.sure)]
    code, first = number(*keys)
    measured = np.max([one[first] for one in of], axis=0) != NONE
    rows = first[measured]
    sources = _Sources(tuple(one[rows] for one in of), tuple(part.sure[rows] for part in parts))
    new = np.full(len(first), NONE)
    new[measured] = np.arange(len(rows))
    return Metrics(
        _gathered(together.table, sources, "metric"),
        _gathered(together.rules, sources, "rule"),
        new[code],
        np.append(sources.least, NONE)[new[code]],
        tuple(name for part in parts for name in part.source),
    )


def _gathered(table: pd.DataFrame, sources: _Sources, what: str) -> pd.DataFrame:
    """Return the rows of each combination, of the surest report that has any of that metric or rule."""
    parts = [_rows(table, kernel) for kernel in sources.kernel]
    many = len(parts)
    combination = np.concatenate([of for of, _ in parts])
    row = np.concatenate([rows for _, rows in parts])
    rank = np.concatenate(
        [
            sure[of] * many + (many - 1 - nth)
            for nth, ((of, _), sure) in enumerate(zip(parts, sources.sure, strict=True))
        ]
    )
    code, distinct = number(combination, frames.codes(table[what])[row])
    best = np.full(len(distinct), np.iinfo(np.int64).max)
    np.minimum.at(best, code, rank)
    kept = np.flatnonzero(rank == best[code])
    kept = kept[np.lexsort((row[kept], combination[kept]))]
    found = table.iloc[row[kept]].assign(kernel=combination[kept])
    return found.reset_index(drop=True)


def _rows(table: pd.DataFrame, kernel: Ints) -> tuple[Ints, Ints]:
    """Return pairs of a combination and a row of its kernel; rows of a kernel stand together, in order."""
    of_row = frames.ints(table, "kernel")
    known = np.flatnonzero(kernel != NONE)
    first, end = (np.searchsorted(of_row, kernel[known], side) for side in ("left", "right"))
    count = end - first
    before = np.cumsum(count) - count
    place = np.repeat(first - before, count) + np.arange(count.sum())
    return np.repeat(known, count), place
