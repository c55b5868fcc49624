"""Filter the rows of a table by conditions such as ``op=aten::*, total>10us, count>=3``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from fnmatch import translate
from typing import Any, NamedTuple

from bridge.analyze.core.catalog.lookup import column_meant
from bridge.analyze.core.table import Array, Table
from bridge.importers.arrays import Flags
from bridge.importers.frames import Names
from bridge.knowledge.abbreviations import abbreviation
from bridge.knowledge.amounts import PERCENT, parse_amount
from bridge.knowledge.expressions import Expression
from bridge.knowledge.suggestions import unknown_name

COLUMN = r"\w(?:[\w /-]*\w)?"  # a name, or a heading of several words
CONDITION = re.compile(rf"\s*({COLUMN})\s*(!=|>=|<=|=|>|<|~)\s*(.+?)\s*")
QUOTED = r"'[^']*'|\"[^\"]*\""
NEXT = rf",\s*{COLUMN}\s*(?:[!<>]=|[<>=~])"
CONDITIONS = re.compile(rf"(?:^|(?<=,))((?:{QUOTED}|(?!{NEXT}).)+)", re.DOTALL)
FILTER_LIST, SORT_LIST = "--filter list", "--sort list"  # what lists the columns
OF_NAMES = ("name", "names", "label", "title")  # words for the column that names a row
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}


class Condition(NamedTuple):
    """A column, an operator and the value to compare with."""

    column: str
    comparison: str
    value: str


def filter_rows(table: Table, conditions: str | Sequence[Condition]) -> Table:
    """Return the rows that meet all conditions, which are separated by commas.

    Names compare with ``=`` and ``!=``, as recorded or as tables show them, and may hold ``*`` and
    ``?`` (quote names with commas), or with ``~`` and a regular expression that matches anywhere.
    Numbers take a unit of time or ``%``, or two limits with ``..`` between, both included. A column
    goes by its name, with or without ``_ns``, or by its heading; ``gpu`` and ``cpu`` are the time of
    a row's own work. Raises ValueError for a condition that is not valid.
    """
    for name, comparison, value in (
        parse_conditions(conditions) if isinstance(conditions, str) else conditions
    ):
        column = column_of(table, name)
        table = table[_meets(column, table[column], comparison, value)]
    return table


def parse_conditions(conditions: str) -> list[Condition]:
    """Return the conditions in a text. Raises ValueError for one that is not valid."""
    result = []
    for text in _split(conditions):
        match = CONDITION.fullmatch(text)
        if not match:
            raise ValueError(f"cannot read {text.strip()!r}: write COLUMN=NAME or COLUMN>NUMBER")
        if match[2] == "=" and match[3].startswith(("=", "~")):
            name = match[3].lstrip("=~ ") or "NAME"
            raise ValueError(
                f"cannot read {text.strip()!r}: write {match[1]}={name}, with one =;"
                f" quote a name that begins with {match[3][0]}"
            )
        result.append(Condition(match[1], match[2], match[3]))
    return result


def column_of(table: Table, name: str, listed_by: str = FILTER_LIST) -> str:
    """Return the column with a name or a heading.

    Raises ValueError if there is none: the message suggests columns that are like it, and says that
    ``listed_by`` lists all.
    """
    if (column := column_meant(name, list(table.columns))) is not None:
        return column
    texts = [column for column in table.columns if not table.is_numeric(column)]
    meant = dict.fromkeys(OF_NAMES, texts[0]) if texts else {}
    raise ValueError(
        unknown_name("column", name, known=table.columns, listed_by=listed_by, synonyms=meant)
    )


def wildcard_pattern(pattern: str) -> re.Pattern[str]:
    """Return a pattern of whole names: ``*`` and ``?`` are wildcards, brackets literal."""
    return re.compile(translate(pattern.replace("[", "[[]")))


def _split(conditions: str) -> list[str]:
    """Split at the commas before a condition; a name with such a comma must be quoted."""
    return CONDITIONS.findall(conditions) if conditions.strip() else [conditions]


def _meets(name: str, column: Array, comparison: str, value: str) -> Flags:
    """Return which values of a column of this name meet a condition."""
    if column.dtype != object:
        return _compare_numbers(name, column, comparison, value)
    names = Names.of(column.tolist())
    if comparison == "~":
        return _matching(names, Expression(_unquoted(value), f"--filter {name}~").search)
    if comparison not in ("=", "!="):
        raise ValueError(f"{name} is a name: compare it with =, != or ~")
    matches = _matching(names, wildcard_pattern(_unquoted(value)).fullmatch)
    return matches if comparison == "=" else ~matches


def _compare_numbers(name: str, column: Array, comparison: str, value: str) -> Flags:
    """Compare numbers with a value, or with two limits."""
    first, is_interval, last = value.partition("..")
    if comparison == "~" or (is_interval and comparison not in ("=", "!=")):
        raise ValueError(f"{name} is a number: compare it as in >10us, or =3..5")
    meets: Flags = COMPARE[comparison](column, _number(first))
    if is_interval:
        inside = (column >= _number(first)) & (column <= _number(last))
        meets = inside if comparison == "=" else ~inside
    return meets


def _matching(names: Names, matches: Callable[[str], object]) -> Flags:
    """Return whether the name in each row, or the short form that tables show, meets a condition."""
    return names.matching(
        lambda name: any(matches(form) is not None for form in {name, abbreviation(name)})
    )


def _unquoted(value: str) -> str:
    return value[1:-1] if re.fullmatch(QUOTED, value) else value


def _number(text: str) -> float:
    """Return a number, exact if it is whole, as floats cannot hold large times to the ns."""
    try:
        number, unit = parse_amount(text, signed=True)
    except ValueError:
        raise ValueError(f"{text!r} is no number; units are ns, us, µs, ms, s and %") from None
    if unit == PERCENT:
        return float(number) / 100
    return int(number) if number == int(number) else float(number)
