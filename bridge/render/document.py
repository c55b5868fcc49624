"""Tables as documents that programs read: JSON in the format bridge.report/1, and CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

FORMAT = "bridge.report/1"


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
    """Return the table as comma-separated values (RFC 4180), names and units as in the JSON."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(zip(*(table[c].tolist() for c in table.columns), strict=True))
    return text.getvalue()


def _rows(table: pd.DataFrame) -> list[str]:
    """Encode column by column: one call of the encoder for a whole column."""
    columns = [
        [f"{json.dumps(name)}: {value}" for value in _encoded(table[name])]
        for name in table.columns
    ]
    return ["{" + ", ".join(row) + "}" for row in zip(*columns, strict=True)]


def _encoded(column: pd.Series) -> list[str]:
    return [json.dumps(value, ensure_ascii=False) for value in column.tolist()]
