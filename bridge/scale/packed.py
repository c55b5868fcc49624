"""One table of aggregates as bytes, for the way from a worker and for the store: a head as JSON, then integers, compressed.

Integers take as few bytes as the largest of a column needs, and times are kept as what each is more than the one before.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

import numpy as np

from bridge.join.order import Ints
from bridge.scale.merging import Merged, Times

LEVEL = 6
KINDS = tuple(np.dtype(f"<i{size}") for size in (1, 2, 4, 8))
COLUMNS = ("row", "value", "times")  # of a multiset


def packed(table: Merged) -> bytes:
    """Return a table as bytes."""
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
    said = json.dumps(head).encode()  # in ASCII, so that any text comes back as it was
    data = [len(said).to_bytes(8, "little"), said, *(c.tobytes() for c in narrow.values())]
    return zlib.compress(b"".join(data), LEVEL)


def unpacked(data: bytes) -> Merged:
    """Return the table; ValueError if these are no bytes of one."""
    try:
        return _table(zlib.decompress(data))
    except (zlib.error, ValueError, KeyError, TypeError, IndexError, StopIteration) as error:
        raise ValueError("damaged aggregates") from error


def _table(data: bytes) -> Merged:
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
    return Merged(labels, sums, times)


def _narrow(column: Ints) -> np.ndarray:
    """Return the column in the smallest kind of integers that holds it."""
    low, high = int(column.min(initial=0)), int(column.max(initial=0))
    kind = next(k for k in KINDS if np.iinfo(k).min <= low and high <= np.iinfo(k).max)
    return column.astype(kind)
