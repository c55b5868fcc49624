"""Events as codes, by one dimension or by several, and the columns that name the codes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bridge.analyze.groups import texts
from bridge.join.order import NONE, Ints, number


@dataclass(frozen=True)
class Coded:
    """``codes`` of each kind of events, NONE for what is in no row; ``labels``: columns, an entry per code."""

    labels: Mapping[str, NDArray[np.generic]]
    codes: Sequence[Ints]

    @property
    def size(self) -> int:
        """How many codes there are."""
        return len(next(iter(self.labels.values())))

    @classmethod
    def of_rows(
        cls,
        name: str,
        code: Ints,
        names: Collection[str],
        rows: Sequence[Ints],
        none: str | None = None,
    ) -> Coded:
        """Code events by the row that each leads to; without one they are named ``none``, or are in no row."""
        listed = list(names if none is None or none in names else [*names, none])
        missing = NONE if none is None else listed.index(none)
        filled = np.append(np.where(code == NONE, missing, code), missing)
        return cls({name: texts(listed)}, [filled[row] for row in rows])

    @classmethod
    def of_keys(cls, keys: Sequence[Sequence[Ints]]) -> tuple[Coded, list[Ints]]:
        """Code events by some columns, given for each kind of events; return the distinct keys too."""
        columns = [np.concatenate(column) for column in zip(*keys, strict=True)]
        code, rows = number(*columns)
        parts = np.cumsum([0, *(len(one[0]) for one in keys)]).tolist()
        return cls({}, [code[a:b] for a, b in pairwise(parts)]), [c[rows] for c in columns]

    def joined(self, other: Coded) -> Coded:
        """Code events by both, as many codes as there are combinations in use."""
        pairs = [
            np.where((ours == NONE) | (theirs == NONE), NONE, ours * other.size + theirs)
            for ours, theirs in zip(self.codes, other.codes, strict=True)
        ]
        every = np.concatenate(pairs)
        there = every != NONE
        code, distinct = pd.factorize(every[there])
        every[there] = code
        ours, theirs = np.divmod(distinct, max(1, other.size))
        labels = {name: column[ours] for name, column in self.labels.items()}
        labels |= {
            name: column[theirs] for name, column in other.labels.items() if name not in labels
        }
        parts = np.cumsum([0, *(len(one) for one in pairs)]).tolist()
        return Coded(labels, [every[a:b] for a, b in pairwise(parts)])


def together(dimensions: Sequence[Coded]) -> Coded:
    """Code events by all dimensions."""
    return reduce(Coded.joined, dimensions)
