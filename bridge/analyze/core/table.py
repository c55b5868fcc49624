"""`Table`: what an analysis returns, columns of one length in order. Users get it as a data frame of pandas.

Most methods are called as those of a data frame; columns are arrays, without an index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isnan
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from bridge.importers.arrays import MISSING, positions
from bridge.importers.frames import Names

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[Any]
NOTHING: Mapping[str, Any] = {}


class Table:
    """Columns of one length by name; texts are arrays of objects.

    A value that is no column stands in every row. ``attrs`` are facts about the table as a whole.
    """

    def __init__(
        self, columns: Mapping[str, Any] = NOTHING, attrs: Mapping[str, Any] = NOTHING
    ) -> None:
        rows = next((len(column) for column in columns.values() if not _is_scalar(column)), 1)
        self._columns = {name: _array(columns[name], rows) for name in columns}
        if odd := [name for name, column in self._columns.items() if len(column) != rows]:
            raise ValueError(f"column {odd[0]} has {len(self._columns[odd[0]])} rows, not {rows}")
        self.attrs: dict[str, Any] = dict(attrs)

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order."""
        return list(self._columns)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()), ()))

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    @overload
    def __getitem__(self, key: str) -> Array: ...
    @overload
    def __getitem__(self, key: list[str] | Array | slice) -> Table: ...
    def __getitem__(self, key: Any) -> Array | Table:
        """Return a column by its name; of a list of names, a mask, row numbers or a slice a table."""
        if isinstance(key, str):
            return self._columns[key]
        if isinstance(key, np.ndarray | slice):
            rows = {name: column[key] for name, column in self._columns.items()}
            return Table(rows, self.attrs)
        return Table({name: self._columns[name] for name in key}, self.attrs)

    def items(self) -> Iterable[tuple[str, Array]]:
        """Return the names and the columns."""
        return self._columns.items()

    def head(self, rows: int) -> Table:
        """Return the first rows."""
        return self[:rows]

    def assign(self, **columns: Any) -> Table:
        """Return the table with columns in place of those of the same name, or behind the others."""
        return Table(self._columns | columns, self.attrs)

    def inserted(self, name: str, column: Any, *, before: str = "") -> Table:
        """Return the table with a new column before another one, or at the end."""
        place = self.columns.index(before) if before else len(self.columns)
        names = [*self.columns[:place], name, *self.columns[place:]]
        return self.assign(**{name: column})[names]

    def drop(self, names: Sequence[str]) -> Table:
        """Return the table without some columns."""
        return self[[name for name in self._columns if name not in names]]

    def rename(self, names: Mapping[str, str]) -> Table:
        """Return the table with other names of some columns."""
        renamed = {names.get(name, name): column for name, column in self._columns.items()}
        return Table(renamed, self.attrs)

    def is_numeric(self, name: str) -> bool:
        """Return whether a column holds numbers, not texts."""
        return bool(self._columns[name].dtype != object)

    def sort_values(
        self, by: str | Sequence[str], ascending: bool | Sequence[bool] = True
    ) -> Table:
        """Return the rows sorted by columns; equal rows keep their order."""
        names = [by] if isinstance(by, str) else list(by)
        upward = [ascending] * len(names) if isinstance(ascending, bool) else ascending
        keys = [_key(self[name], is_upward) for name, is_upward in zip(names, upward, strict=True)]
        return self[np.lexsort(keys[::-1])]

    def records(self) -> list[dict[str, Any]]:
        """Return a dict per row, of plain Python values."""
        columns = [column.tolist() for column in self._columns.values()]
        return [dict(zip(self._columns, row, strict=True)) for row in zip(*columns, strict=True)]

    def row(self, number: int) -> dict[str, Any]:
        """Return the values of a row, as plain Python values."""
        return self[number : number + 1].records()[0]

    @classmethod
    def of_records(cls, rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> Table:
        """Return a table from a mapping per row; ``columns`` are its columns if there are no rows."""
        return cls({name: [row[name] for row in rows] for name in (rows[0] if rows else columns)})

    @classmethod
    def concat(cls, tables: Sequence[Table]) -> Table:
        """Return the rows of tables with the same columns one after another."""
        first = tables[0]
        return cls({name: np.concatenate([t[name] for t in tables]) for name in first}, first.attrs)

    @classmethod
    def of(cls, table: Table | pd.DataFrame) -> Table:
        """Return a copy of a table or data frame of others, with columns of int64, float64, flags or texts.

        A number that is not known or not finite is -1, and no text is ''. Raises TypeError for other values.
        """
        columns = {str(name): _plain(str(name), table[name]) for name in table.columns}
        return cls(columns, {str(name): value for name, value in table.attrs.items()})

    def to_pandas(self) -> pd.DataFrame:
        """Return the columns as a data frame, which shares their memory."""
        import pandas as pd

        frame = pd.DataFrame(self._columns, copy=False)
        frame.attrs.update(self.attrs)
        return frame


def _plain(name: str, values: Any) -> Array:
    """Return a copy of a column as int64, float64, flags or an array of texts."""
    column = np.asarray(values)
    if column.dtype == object or column.dtype.kind == "T":
        known = [value for value in column.tolist() if not _is_missing(value)]
        if any(isinstance(value, str) for value in known):
            return _texts(name, column.tolist())
        column = np.array([MISSING if _is_missing(value) else value for value in column.tolist()])
    if column.dtype.kind == "U":
        return column.astype(object)
    if column.dtype.kind not in "biuf" or column.ndim != 1:
        raise TypeError(f"column {name} holds {column.dtype} values, not numbers or texts")
    if column.dtype.kind == "u" and column.max(initial=0) > np.iinfo(np.int64).max:
        raise TypeError(f"column {name} holds numbers of more than 63 bits")
    if column.dtype.kind == "f":
        return np.where(np.isfinite(column), column, MISSING).astype(np.float64)
    return column.astype(bool if column.dtype.kind == "b" else np.int64)


def _is_missing(value: object) -> bool:
    """Return whether a value is None, NaN, or pandas' NA or NaT."""
    if isinstance(value, float):
        return isnan(value)
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _texts(name: str, values: Sequence[Any]) -> Array:
    result = np.empty(len(values), object)
    result[:] = ["" if _is_missing(value) else value for value in values]
    if not all(isinstance(value, str) for value in result.tolist()):
        raise TypeError(f"column {name} holds texts and other values")
    return result


def _is_scalar(values: Any) -> bool:
    return isinstance(values, str | int | float)


def _array(values: Any, rows: int) -> Array:
    if _is_scalar(values):
        return np.full(rows, values, object if isinstance(values, str) else None)
    if isinstance(values, np.ndarray):
        return values if values.dtype.kind != "U" else values.astype(object)
    if isinstance(values, Names):
        return values.to_numpy()
    listed = list(values)
    if all(isinstance(value, int | float | np.number) for value in listed):
        return np.array(listed)
    result = np.empty(len(listed), object)
    result[:] = listed
    return result


def _key(column: Array, is_upward: bool) -> Array:
    """Return numbers in the order of a column's values; numbers among texts come before these."""
    if column.dtype == object:
        names = Names.of(column.tolist())
        try:
            order = sorted(range(len(names.texts)), key=names.texts.__getitem__)
        except TypeError:  # numbers among texts
            places = [(isinstance(text, str), text) for text in names.texts]
            order = sorted(range(len(places)), key=places.__getitem__)
        rank = positions(np.array(order, np.int64), len(order))
        column = rank[names.codes]
    elif column.dtype.kind in "biu":  # of few bits, or without a sign, it has no negative
        column = column.astype(np.int64, copy=False)
    return column if is_upward else -column
