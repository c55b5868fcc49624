"""Tables of an export read some rows at a time, and what of them was wanted put together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pandas as pd

from importers.columns import LEAST_ROW_BYTES, Columns, Database, Query, ints_of
from importers.errors import NotAReport
from importers.nsys.table import Table
from importers.texts import Ints, Texts


@dataclass(frozen=True)
class Chunk:
    """Rows of a table by their rowids, both included."""

    first: int
    last: int


def chunks(database: Database, query: Query, rows: int, *, sparse: bool = False) -> list[Chunk]:
    """Part a table into chunks of about so many rows, one whose row numbers lie far apart (``sparse``) not at all.

    Raises NotAReport where they may not.
    """
    first, last = database.bounds([query.table])[query.table]
    if last - first >= database.path.stat().st_size // LEAST_ROW_BYTES:
        if sparse:
            return [Chunk(first, last)]
        name = database.path.name
        raise NotAReport(f"{name}: row numbers of {query.table} lie far apart: not with --memory")
    edges = [*range(first, last + 1, rows), last + 1]
    return [Chunk(a, b - 1) for a, b in pairwise(edges)]


def integers(
    database: Database, query: Query, table: Table, parts: Sequence[Chunk], *columns: str
) -> Iterator[dict[str, Ints]]:
    """Read some integer columns chunk by chunk, those missing in every row that the export lacks."""
    there = {c: query.columns[c] for c in columns if c in query.columns}
    # Whatever is lacking: that there is one row per row is known only from a column that is not.
    wanted = there or dict([next(iter(query.columns.items()))])
    for found in read(database, Query(query.table, wanted), parts):
        rows = len(next(iter(found.values())))
        lacking = {
            c: np.broadcast_to(np.int64(table.columns[c].missing), (rows,))
            for c in columns
            if c not in there
        }
        yield {c: lacking[c] if c in lacking else ints_of(found, c) for c in columns}


def read(database: Database, query: Query, parts: Sequence[Chunk]) -> Iterator[Columns]:
    """Read all columns chunk by chunk, as many at once as there are threads."""
    for first in range(0, len(parts), database.threads):
        some = parts[first : first + database.threads]
        asked = {str(n): replace(query, rows=(p.first, p.last)) for n, p in enumerate(some)}
        found = database.read(asked)
        yield from (found.pop(name) for name in asked)


def distinct(values: Ints) -> list[int]:
    """Return the distinct values of a column, sorted."""
    if len(values) and (values.strides == (0,) or (values == values[0]).all()):
        return [int(values[0])]
    return sorted(pd.unique(values).tolist())


def picked(columns: Columns, rows: Ints) -> Columns:
    """Return some rows; a column of one value throughout takes no memory, as before."""
    return {name: _picked(column, rows) for name, column in columns.items()}


def _picked(column: Ints | Texts, rows: Ints) -> Ints | Texts:
    if isinstance(column, Texts):
        return column if len(rows) == len(column) else column.take(rows)
    if column.strides == (0,):
        return np.broadcast_to(np.int64(column[0] if len(column) else 0), (len(rows),))
    return column if len(rows) == len(column) else column[rows]


def concatenated(parts: Sequence[Columns]) -> Columns:
    """Put columns one after another."""
    return {name: _concatenated([part[name] for part in parts]) for name in parts[0]}


def _concatenated(parts: Sequence[Ints | Texts]) -> Ints | Texts:
    texts = [part for part in parts if isinstance(part, Texts)]
    if texts:
        return Texts.concat(texts)
    filled = [part for part in parts if isinstance(part, np.ndarray) and len(part)]
    if filled and all(p.strides == (0,) and p[0] == filled[0][0] for p in filled):
        return np.broadcast_to(filled[0][0], (sum(map(len, filled)),))
    return np.concatenate([np.empty(0, np.int64), *filled])
