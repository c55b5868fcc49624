"""Conditions on the rows of a table: ``op=aten::*, total>10us, count>=3``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from decimal import Decimal
from fnmatch import translate
from typing import Any

import pandas as pd
from pandas.api.types import is_numeric_dtype

CONDITION = re.compile(r"\s*(\w[\w-]*)\s*(!=|>=|<=|=|>|<)\s*(.+?)\s*")
QUOTED = r"'[^']*'|\"[^\"]*\""
NEXT = r",\s*\w[\w-]*\s*(?:[!<>]=|[<>=])"
CONDITIONS = re.compile(rf"(?:^|(?<=,))((?:{QUOTED}|(?!{NEXT}).)+)", re.DOTALL)
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


def matching(table: pd.DataFrame, conditions: str) -> pd.DataFrame:
    """Return the rows that meet all conditions, which commas separate.

    Names compare with ``=`` and ``!=`` and may hold ``*`` and ``?``, quoted if they hold commas; numbers take a unit of time or
    ``%``, and a column in ns may be named without its ``_ns``. Raises ValueError for what it cannot
    read.
    """
    for text in _split(conditions):
        found = CONDITION.fullmatch(text)
        if not found:
            raise ValueError(f"cannot read {text.strip()!r}: write COLUMN=NAME or COLUMN>NUMBER")
        column = column_named(table, found[1])
        table = table[_meets(table[column], found[2], found[3])]
    return table.reset_index(drop=True)


def column_named(table: pd.DataFrame, name: str) -> str:
    """Return the column that goes by a name, with or without ``_ns``; ValueError if none does."""
    for column in (name, f"{name}_ns"):
        if column in table.columns:
            return column
    raise ValueError(f"no column {name!r}: one of {', '.join(table.columns)}")


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
        meets: pd.Series = COMPARE[how](column, _number(value))
        return meets
    if how not in ("=", "!="):
        raise ValueError(f"{column.name} is a name: compare it with = or !=")
    matches = column.str.fullmatch(translate(_unquoted(value)))
    return matches if how == "=" else ~matches


def _unquoted(value: str) -> str:
    return value[1:-1] if re.fullmatch(QUOTED, value) else value


def _number(text: str) -> float:
    found = NUMBER.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is no number; units are {', '.join(UNITS)} and %")
    if found[2] == "%":
        return float(found[1]) / 100
    return float(found[1]) * UNITS[found[2] or "ns"]
