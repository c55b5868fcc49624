"""Tables of several reports become one: sums add up, times are merged, rows are matched by name.

Tables travel from workers, and into the store, as compressed bytes.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import pairwise
from typing import Any

import numpy as np

from bridge.importers.arrays import factorize
from bridge.importers.records import record
from bridge.join.arrays import Ints, number_groups, order_by

Labels = Mapping[str, np.ndarray]


Wholes = Mapping[str, int]
Part = Mapping[str, bytes]  # packed tables by name


@record
class Times:
    """A multiset of times in ns per row of a table: the value ``value`` occurs ``times`` times in row ``row``."""

    row: Ints
    value: Ints
    times: Ints

    @classmethod
    def of(cls, parts: Sequence[Ints]) -> Times:
        """Count the values of each row; the values of a row are sorted."""
        sizes = np.array([len(part) for part in parts], np.int64)
        values = np.concatenate([np.empty(0, np.int64), *parts])
        return cls._counted(np.repeat(np.arange(len(parts)), sizes), values, np.ones_like(values))

    @classmethod
    def combined(cls, parts: Sequence[Times], rows: Sequence[Ints]) -> Times:
        """Put multisets together: row r of part i is row ``rows[i][r]`` of all."""
        row = np.concatenate([to[part.row] for part, to in zip(parts, rows, strict=True)])
        value, times = (np.concatenate([getattr(p, c) for p in parts]) for c in ("value", "times"))
        order = order_by(row, value)
        return cls._counted(row[order], value[order], times[order])

    @classmethod
    def _counted(cls, row: Ints, value: Ints, times: Ints) -> Times:
        """Add the counts of equal neighbours."""
        if not len(row):
            return cls(row, value, times)
        new = np.ones(len(row), bool)
        new[1:] = (row[1:] != row[:-1]) | (value[1:] != value[:-1])
        return cls(row[new], value[new], np.add.reduceat(times, np.flatnonzero(new)))


@record
class PartialTable:
    """A table as columns: ``labels`` name its rows (texts or integers), ``sums`` add up, ``times`` are multisets."""

    labels: Labels
    sums: Mapping[str, Ints]
    times: Mapping[str, Times] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return len(next(iter(self.labels.values())))

    @property
    def size(self) -> int:
        """The number of values: what the table takes in memory."""
        columns = len(self.labels) + len(self.sums)
        return self.rows * columns + sum(3 * len(times.row) for times in self.times.values())


# Values of tables that are merged at once: 64 MB, and three times that to sort them.
BATCH = 8_000_000


def batches(parts: Iterable[PartialTable]) -> Iterator[list[PartialTable]]:
    """Yield tables together as long as they have few values."""
    batch: list[PartialTable] = []
    values = 0
    for part in parts:
        if batch and values + part.size > BATCH:
            yield batch
            batch, values = [], 0
        batch.append(part)
        values += part.size
    if batch:
        yield batch


def merge_all(parts: Iterable[PartialTable]) -> PartialTable:
    """Merge tables as they come: of any number, no more are in memory than one batch and the result.

    The result is merged again only when as much has come as it holds. Raises ValueError without
    any table.
    """
    waiting: list[PartialTable] = []
    values, most = 0, BATCH
    for part in parts:
        waiting.append(part)
        values += part.size
        if values > most:
            waiting = [merge_tables(waiting)]
            values = waiting[0].size
            most = max(BATCH, 2 * values)
    return merge_tables(waiting)


def merged(parts: Sequence[Part]) -> Part:
    """Merge packed tables of the same names."""
    return {name: packed(merge_all(unpacked(part[name]) for part in parts)) for name in parts[0]}


def merge_tables(parts: Sequence[PartialTable], *, apart: bool = False) -> PartialTable:
    """Put tables with the same columns together, rows that are called the same become one; ``apart``: none do.

    Raises ValueError without any table.
    """
    return match_rows(parts, apart=apart)[0]


def match_rows(
    parts: Sequence[PartialTable], *, apart: bool = False
) -> tuple[PartialTable, list[Ints]]:
    """Return the merged table, and for each input the merged row of each of its rows."""
    if not parts:
        raise ValueError("nothing to put together")
    labels = {c: np.concatenate([part.labels[c] for part in parts]) for c in parts[0].labels}
    sizes = np.array([part.rows for part in parts], np.int64)
    row, first = _row_numbers(labels, int(sizes.sum()), apart=apart)
    rows = [row[a:b] for a, b in pairwise([0, *np.cumsum(sizes).tolist()])]
    sums = {
        c: _added(row, np.concatenate([part.sums[c] for part in parts]), len(first))
        for c in parts[0].sums
    }
    times = {c: Times.combined([part.times[c] for part in parts], rows) for c in parts[0].times}
    return PartialTable({c: column[first] for c, column in labels.items()}, sums, times), rows


def _row_numbers(labels: Labels, rows: int, *, apart: bool) -> tuple[Ints, Ints]:
    """Return the merged row of each row, and the first row of each merged row."""
    if apart:
        return np.arange(rows), np.arange(rows)
    codes = [factorize(column)[0] for column in labels.values()]
    return number_groups(*codes)


def _added(row: Ints, values: Ints, rows: int) -> Ints:
    total = np.zeros(rows, np.int64)
    np.add.at(total, row, values)
    return total


LEVEL = 6


KINDS = tuple(np.dtype(f"<i{size}") for size in (1, 2, 4, 8))


COLUMNS = ("row", "value", "times")  # of a multiset


def packed(table: PartialTable) -> bytes:
    texts = {c: column.tolist() for c, column in table.labels.items() if column.dtype == object}
    columns: dict[str, Ints] = {
        f"label {c}": column for c, column in table.labels.items() if c not in texts
    }
    columns |= {f"sum {c}": column for c, column in table.sums.items()}
    for name, times in table.times.items():
        columns |= {f"{c} {name}": np.diff(getattr(times, c), prepend=0) for c in COLUMNS}
    narrow = {name: _narrow(column) for name, column in columns.items()}
    head = {
        "labels": list(table.labels),
        "texts": texts,
        "columns": [[name, column.dtype.itemsize, len(column)] for name, column in narrow.items()],
    }
    header = json.dumps(head).encode()  # in ASCII, so that any text comes back as it was
    data = [len(header).to_bytes(8, "little"), header, *(c.tobytes() for c in narrow.values())]
    return zlib.compress(b"".join(data), LEVEL)


def unpacked(data: bytes) -> PartialTable:
    """Return the table. Raises ValueError if the bytes are not a table."""
    try:
        return _table(zlib.decompress(data))
    except (zlib.error, ValueError, KeyError, TypeError, IndexError, StopIteration) as error:
        raise ValueError("damaged aggregates") from error


def _table(data: bytes) -> PartialTable:
    start = 8 + int.from_bytes(data[:8], "little")
    head: dict[str, Any] = json.loads(data[8:start])
    columns: dict[str, Ints] = {}
    for name, size, length in head["columns"]:
        kind = next(kind for kind in KINDS if kind.itemsize == size)
        columns[name] = np.frombuffer(data, kind, length, start).astype(np.int64)
        start += size * length
    texts = {name: np.array([*column, None], object)[:-1] for name, column in head["texts"].items()}
    labels = {c: texts[c] if c in texts else columns[f"label {c}"] for c in head["labels"]}
    sums = {c.partition(" ")[2]: v for c, v in columns.items() if c.startswith("sum ")}
    names = [c.partition(" ")[2] for c in columns if c.startswith("value ")]
    times = {n: Times(*(np.cumsum(columns[f"{c} {n}"]) for c in COLUMNS)) for n in names}
    return PartialTable(labels, sums, times)


def _narrow(column: Ints) -> np.ndarray:
    """Return the column in the smallest integer type that holds it."""
    low, high = int(column.min(initial=0)), int(column.max(initial=0))
    kind = next(k for k in KINDS if np.iinfo(k).min <= low and high <= np.iinfo(k).max)
    return column.astype(kind)
