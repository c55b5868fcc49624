"""Read columns of the tables of a columnar export into NumPy arrays and `Texts`.

The counterpart of `bridge.importers.sqlite_columns`: a `Query` gives the same columns, whether its table is
in SQLite, Arrow or Parquet.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bridge.importers.arrays import Ints
from bridge.importers.column_files import Batch, Present, TableFile, damaged, open_tables
from bridge.importers.query import Query, Value
from bridge.importers.sqlite_columns import THREADS, Columns, texts_of_numbers
from bridge.importers.texts import Texts

Flags = NDArray[np.bool_]


class ColumnarExport:
    """The tables of a columnar export, a folder or a file; use it as a context manager.

    Raises NotAReport if one of its files is damaged.
    """

    def __init__(self, path: Path, *, threads: int | None = None) -> None:
        self.path = path
        self.pool = ThreadPoolExecutor(threads or min(THREADS.get(), os.cpu_count() or 1))
        self.files: Mapping[str, TableFile] = open_tables(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.pool.shutdown(cancel_futures=True)

    def tables(self) -> dict[str, Present]:
        """Return the columns of every table, and for each whether it is never NULL."""
        return {name: file.columns for name, file in self.files.items()}

    def computed_views(self) -> frozenset[str]:
        """Return the names of tables that are not read because they are computed: none."""
        return frozenset()

    def bounds(self, tables: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Return the first and last row number of each table; they count from 0."""
        return {name: (0, self.files[name].rows - 1) for name in tables}

    def read(self, queries: Mapping[str, Query]) -> dict[str, Columns]:
        """Run all queries, concurrently; rows come in the order of the files."""
        running = {
            name: self.pool.submit(read_columns, self.files[query.table], query)
            for name, query in queries.items()
        }
        return {name: columns.result() for name, columns in running.items()}


def read_columns(file: TableFile, query: Query) -> Columns:
    """Return the columns of a query; raises NotAReport if the file is damaged."""
    used = [(*value.sources, *value.flags) for value in query.values.values()]
    used += [*query.numbers.values(), (*query.blobs.values(),)]
    names = [*dict.fromkeys(name for of in used for name in of)]
    parts: dict[str, list[Ints | Texts]] = {name: [] for name in query.columns}
    try:
        for batch in file.batches(names):
            for name in query.columns:
                parts[name].append(_column(query, name, batch))
    except TypeError as error:
        raise damaged(file.label, str(error)) from error
    return {name: _joined(parts[name], is_text=name in query.texts) for name in query.columns}


def _column(query: Query, name: str, batch: Batch) -> Ints | Texts:
    if name in query.numbers:
        return _number_texts(query.columns[name], query.numbers[name], batch)
    if name in query.blobs:
        return _texts_of(Value((query.blobs[name],), "", is_text=True, mixed=True), batch)
    value = query.values[name]
    return _texts_of(value, batch) if value.is_text else _ints_of(value, batch)


def _joined(parts: Sequence[Ints | Texts], *, is_text: bool) -> Ints | Texts:
    """Return a column from its batches; a broadcast if all of its integers are equal."""
    if is_text:
        return Texts.concat([part for part in parts if isinstance(part, Texts)] or [Texts.of([])])
    ints = [part for part in parts if isinstance(part, np.ndarray) and len(part)]
    if ints and all((part == ints[0][0]).all() for part in ints):
        return np.broadcast_to(np.int64(ints[0][0]), (sum(map(len, ints)),))
    return ints[0] if len(ints) == 1 else np.concatenate([np.empty(0, np.int64), *ints])


# -- Columns of a batch as they are stored


class NullableColumn(NamedTuple):
    """Values of a column, and which of them are not NULL; ``valid`` is None if all are."""

    values: Any
    valid: Flags | None


INTEGERS = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
REALS = frozenset(("half_float", "float", "double"))
TEXTS = frozenset(("string", "large_string", "binary", "large_binary"))


def _stored_ints(view: Any) -> NullableColumn | None:
    """Return a column of integers, None for a column of another type.

    Numbers above the range of int64 wrap around, as in SQLite.
    """
    if view.storage_type == "bool":
        return NullableColumn(_bits(view, 1).astype(np.int64), _valid(view))
    if view.storage_type not in INTEGERS:
        return None
    return NullableColumn(_values(view, 1).astype(np.int64, copy=False), _valid(view))


def _stored_reals(view: Any) -> NullableColumn | None:
    """Return a column of numbers as float64, None for a column of another type."""
    if view.storage_type not in INTEGERS | REALS:
        return None
    return NullableColumn(_values(view, 1).astype(np.float64), _valid(view))


def _stored_texts(view: Any) -> NullableColumn | None:
    """Return a column of texts, None for a column of another type."""
    if view.dictionary is not None:
        index, words = _stored_ints(view), _stored_texts(view.dictionary)
        if index is None or words is None:
            return None
        rows = index.values if index.valid is None else np.where(index.valid, index.values, 0)
        if rows.min(initial=0) < 0 or rows.max(initial=0) >= max(1, len(words.values)):
            raise TypeError("a text that is not in its dictionary")
        empty = Texts.concat([words.values, _empty_texts(1)])  # for a dictionary without words
        return NullableColumn(empty.take(rows), index.valid)
    if view.storage_type not in TEXTS:
        return None
    if not view.length:
        return NullableColumn(Texts.of([]), None)
    offsets = _values(view, 1, more=1).astype(np.int64)
    data = np.frombuffer(view.buffer(2), np.uint8)
    if offsets[0] < 0 or offsets[-1] > len(data) or (np.diff(offsets) < 0).any():
        raise TypeError("texts outside of their block")
    return NullableColumn(
        Texts(data[offsets[0] : offsets[-1]].copy(), offsets - offsets[0]), _valid(view)
    )


def _values(view: Any, buffer: int, *, more: int = 0) -> NDArray[Any]:
    """Return the values in a buffer of numbers, ``more`` than there are rows; they share its memory."""
    return _rows(np.asarray(view.buffer(buffer)), view, more)


def _bits(view: Any, buffer: int) -> Flags:
    data = np.frombuffer(view.buffer(buffer), np.uint8)
    return _rows(np.unpackbits(data, bitorder="little"), view, 0).astype(bool)


def _rows(values: NDArray[Any], view: Any, more: int) -> NDArray[Any]:
    """Return the values of a column's rows; raises TypeError if there are fewer."""
    end = view.offset + view.length + more
    if len(values) < end:
        raise TypeError("fewer values than rows")
    return values[view.offset : end]


def _valid(view: Any) -> Flags | None:
    """Return which values are not NULL, None if all are."""
    if not view.null_count or not len(np.frombuffer(view.buffer(0), np.uint8)):
        return None
    return _bits(view, 0)


def _is_null(view: Any) -> bool:
    """Return whether a column has nothing but NULL."""
    return bool(view.storage_type in {"na", "null"} or view.null_count == view.length)


# -- What a query makes of them


def _ints_of(value: Value, batch: Batch) -> Ints:
    """Return a column of integers: the first source that is not NULL."""
    rows = batch[value.sources[0]].length
    values, valid = np.zeros(rows, np.int64), np.zeros(rows, bool)
    for source in (_source(batch[name], value) for name in value.sources):
        if source is None:
            continue
        if source.valid is None and not valid.any():
            values, valid = source.values, np.ones(rows, bool)
            break
        values = np.where(valid, values, source.values)
        valid = valid | (True if source.valid is None else source.valid)
    if not valid.all():
        if value.missing is None:
            raise TypeError("nothing where an integer belongs")
        values = np.where(valid, values, value.missing)
    if value.flags:
        flagged = np.logical_or.reduce([_is_filled(batch[name]) for name in value.flags])
        values = values + flagged * np.int64(value.flag)
    return np.array(values, np.int64)  # a copy: the memory of a batch is used again


def _texts_of(value: Value, batch: Batch) -> Texts:
    """Return a column of texts: the first source that is not NULL, '' if all are."""
    rows = batch[value.sources[0]].length
    sources = [source for name in value.sources if (source := _source(batch[name], value))]
    if not sources or sources[0].valid is None:
        return sources[0].values if sources else _empty_texts(rows)
    columns: list[Texts] = [source.values for source in sources]
    starts = np.cumsum([0, *map(len, columns)])
    row = np.full(rows, starts[-1])  # the empty text behind all of them
    for source, start in reversed([*zip(sources, starts[:-1], strict=True)]):
        numbers = start + np.arange(rows)
        row = numbers if source.valid is None else np.where(source.valid, numbers, row)
    return Texts.concat([*columns, _empty_texts(1)]).take(row)


def _empty_texts(rows: int) -> Texts:
    return Texts(np.empty(0, np.uint8), np.zeros(rows + 1, np.int64))


def _source(view: Any, value: Value) -> NullableColumn | None:
    """Return a source of a column, None if it has nothing but NULL.

    Values of another type are NULL, or raise TypeError.
    """
    if _is_null(view):
        return None
    stored = _stored_texts(view) if value.is_text else _stored_ints(view)
    if stored is None and not value.mixed:
        kind = "a text" if value.is_text else "an integer"
        raise TypeError(f"a {view.storage_type} where {kind} belongs")
    return stored


def _is_filled(view: Any) -> Flags:
    """Return which rows of a column are not NULL."""
    if _is_null(view):
        return np.zeros(view.length, bool)
    valid = _valid(view)
    return np.ones(view.length, bool) if valid is None else valid


def _number_texts(sql: str, names: Sequence[str], batch: Batch) -> Texts:
    """Return the texts that an expression of SQL makes of numbers: the first that is not NULL.

    SQLite writes them, one of each, so that they are the same as from an SQLite export.
    """
    sources = [_stored_reals(batch[name]) for name in names]
    rows = next(iter(batch.values())).length
    values, known = np.zeros(rows), np.zeros(rows, bool)
    for source in sources:
        if source is not None:
            valid = np.ones(rows, bool) if source.valid is None else source.valid
            values = np.where(known, values, np.where(valid, source.values, 0.0))
            known = known | valid
    numbers, codes = np.unique(values[known], return_inverse=True)
    texts = Texts.concat([texts_of_numbers(sql, names, numbers), _empty_texts(1)])
    code = np.full(rows, len(numbers))
    code[known] = codes
    return texts.take(code)
