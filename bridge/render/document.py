"""Tables as documents that programs read: JSON in the format bridge.report/2, and CSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pandas as pd
from pandas.api.types import is_numeric_dtype

FORMAT = "bridge.report/2"
END = "\r\n"
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # what spreadsheets take for the beginning of one


def as_json(by: str, source: Sequence[str], totals: Mapping[str, Any], table: pd.DataFrame) -> str:
    """Return one JSON object, a line per row; integers stay integers."""
    head = {"format": FORMAT, "by": by, "source": list(source), "totals": totals}
    units = table.attrs.get("units")  # of metrics
    return with_rows({**head, "units": units} if units else head, table)


def with_rows(head: Mapping[str, Any], table: pd.DataFrame) -> str:
    """Return one JSON object: what is known of a table, and its ``rows``."""
    opening = json.dumps(head, ensure_ascii=False, indent=1)[:-2]
    return (
        f'{opening},\n "rows": [{",".join(f"{chr(10)}  {row}" for row in _rows(table))}\n ]\n}}\n'
    )


def as_csv(table: pd.DataFrame) -> str:
    """Return the table as comma-separated values (RFC 4180), names and units as in the JSON.

    A text that a spreadsheet would run as a formula has an apostrophe before it, which shows it as it is.
    """
    lines: list[str] = []
    # With "\r\n" for the end of a line a cell that holds either is put in quotes; what is written ends with "\n" alone.
    writer = csv.writer(SimpleNamespace(write=lines.append), lineterminator=END)
    writer.writerow(map(_harmless, table.columns))
    writer.writerows(zip(*(_cells(table[c]) for c in table.columns), strict=True))
    return "".join([f"{line.removesuffix(END)}\n" for line in lines])


def _cells(column: pd.Series) -> Sequence[Any]:
    values: list[Any] = column.tolist()
    return values if is_numeric_dtype(column.dtype) else [_harmless(value) for value in values]


def _harmless(value: Any) -> Any:
    """Return a cell; a text that begins as formulas do comes with an apostrophe, numbers stay as they are."""
    if isinstance(value, str) and value.startswith(FORMULA):
        return f"'{value}"
    return value


def _rows(table: pd.DataFrame) -> list[str]:
    """Encode column by column: one call of the encoder for a whole column."""
    columns = [
        [f"{json.dumps(name)}: {value}" for value in _encoded(table[name])]
        for name in table.columns
    ]
    return ["{" + ", ".join(row) + "}" for row in zip(*columns, strict=True)]


def _encoded(column: pd.Series) -> list[str]:
    return [json.dumps(value, ensure_ascii=False) for value in column.tolist()]
