"""Keys of several columns become one number each, alike in several tables.

Most columns of ids say the same in every row, and take no memory: they are passed over unread.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from importers.texts import Ints


def shared(*tables: Sequence[Ints]) -> list[Ints]:
    """Number the distinct keys of several tables alike; a key is a value of each of a table's columns."""
    rows = [len(columns[0]) for columns in tables]
    codes = np.zeros(sum(rows), np.int64)
    telling = [column for column in zip(*tables, strict=True) if not _one_value(column)]
    for nth, column in enumerate(telling):
        own, values = pd.factorize(np.concatenate(column))
        codes = pd.factorize(codes * len(values) + own)[0] if nth else own
    return np.split(codes.astype(np.int64, copy=False), np.cumsum(rows)[:-1])


def _one_value(columns: Sequence[Ints]) -> bool:
    """Whether columns say the same in every row, as far as can be told without looking at all."""
    filled = [c for c in columns if len(c)]
    return all(c.strides == (0,) and c[0] == filled[0][0] for c in filled)
