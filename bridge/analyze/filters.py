"""Conditions on the rows of a table: ``op=aten::*, total>10us, count>=3``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from fnmatch import translate
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

CONDITION = re.compile(r"\s*(\w[\w-]*)\s*(!=|>=|<=|=|>|<|~)\s*(.+?)\s*")
QUOTED = r"'[^']*'|\"[^\"]*\""
NEXT = r",\s*\w[\w-]*\s*(?:[!<>]=|[<>=~])"
CONDITIONS = re.compile(rf"(?:^|(?<=,))((?:{QUOTED}|(?!{NEXT}).)+)", re.DOTALL)
ALSO = {  # what else a column may be called: the time of a row's own work
    "gpu": ("gpu_self_ns", "gap_ns", "total_ns"),
    "cpu": ("cpu_self_ns", "duration_ns"),
}
UNITS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
NUMBER = re.compile(rf"(-?\d+(?:\.\d+)?)\s*({'|'.join(UNITS)}|%)?")
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}


class Condition(NamedTuple):
    """What a column is compared with, and how."""

    column: str
    how: str
    value: str


def matching(table: pd.DataFrame, conditions: str | Sequence[Condition]) -> pd.DataFrame:
    """Return the rows that meet all conditions, which commas separate.

    Names compare with ``=`` and ``!=`` and may hold ``*`` and ``?``, quoted if they hold commas, or with ``~``
    and a regular expression found anywhere; numbers take a unit of time or ``%``, or two with ``..`` between, both
    included. A column in ns may be named without its ``_ns``, and the time of a row's own work ``gpu`` or ``cpu``.
    Raises ValueError for what it cannot read.
    """
    for name, how, value in parsed(conditions) if isinstance(conditions, str) else conditions:
        table = table[_meets(table[column_named(table, name)], how, value)]
    return table.reset_index(drop=True)


def parsed(conditions: str) -> list[Condition]:
    """Return the conditions that commas separate; ValueError for what is none."""
    found = []
    for text in _split(conditions):
        match = CONDITION.fullmatch(text)
        if not match:
            raise ValueError(f"cannot read {text.strip()!r}: write COLUMN=NAME or COLUMN>NUMBER")
        found.append(Condition(match[1], match[2], match[3]))
    return found


def column_named(table: pd.DataFrame, name: str) -> str:
    """Return the column that goes by a name, with or without ``_ns``; ValueError if none does."""
    for column in meant(name):
        if column in table.columns:
            return column
    raise ValueError(f"no column {name!r}: one of {', '.join(table.columns)}")


def meant(name: str) -> tuple[str, ...]:
    """Return the columns that may go by a name: the first of these that a table has."""
    return (name, f"{name}_ns", *ALSO.get(name, ()))


def wildcards(pattern: str) -> re.Pattern[str]:
    """Return what whole names match that may hold ``*`` and ``?``; brackets are brackets."""
    return re.compile(translate(pattern.replace("[", "[[]")))


def ns_of(text: str) -> int:
    """Return a time in ns; without a unit it is one of ns. Raises ValueError for what is none."""
    found = NUMBER.fullmatch(text.strip())
    if not found or found[2] == "%" or found[1].startswith("-"):
        raise ValueError(f"{text!r} is no time: write 1.5s, 20ms, 300us or 400ns")
    return round(Decimal(found[1]) * UNITS[found[2] or "ns"])


def _split(conditions: str) -> list[str]:
    """Split at the commas that a condition follows; a name that holds such a comma is quoted."""
    return CONDITIONS.findall(conditions) if conditions.strip() else [conditions]


def _meets(column: pd.Series, how: str, value: str) -> pd.Series:
    if is_numeric_dtype(column):
        return _compares(column, how, value)
    if how == "~":
        return _found(column, _unquoted(value))
    if how not in ("=", "!="):
        raise ValueError(f"{column.name} is a name: compare it with =, != or ~")
    matches = _among(column, wildcards(_unquoted(value)).fullmatch)
    return matches if how == "=" else ~matches


def _compares(column: pd.Series, how: str, value: str) -> pd.Series:
    """Compare numbers; with two, ask whether they lie between."""
    first, between, last = value.partition("..")
    if how == "~" or (between and how not in ("=", "!=")):
        raise ValueError(f"{column.name} is a number: compare it as in >10us, or =3..5")
    meets: pd.Series = COMPARE[how](column, _number(first))
    if between:
        inside = (column >= _number(first)) & (column <= _number(last))
        meets = inside if how == "=" else ~inside
    return meets


def _found(column: pd.Series, pattern: str) -> pd.Series:
    try:
        search = re.compile(pattern).search
    except re.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
    return _among(column, search)


def _among(column: pd.Series, meets: Callable[[str], object]) -> pd.Series:
    """Tell which rows have a name that meets a condition."""
    codes, names = pd.factorize(column)
    found = np.array([*(meets(name) is not None for name in names), False])
    return pd.Series(found[codes], index=column.index)


def _unquoted(value: str) -> str:
    return value[1:-1] if re.fullmatch(QUOTED, value) else value


def _number(text: str) -> float:
    """Return a number, whole ones exactly: floats tell no single ns of large times."""
    found = NUMBER.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is no number; units are {', '.join(UNITS)} and %")
    if found[2] == "%":
        return float(found[1]) / 100
    number = Decimal(found[1]) * UNITS[found[2] or "ns"]
    return int(number) if number == int(number) else float(number)
