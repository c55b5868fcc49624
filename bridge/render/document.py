"""Tables for programs: JSON in the format bridge.report/2, and CSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType, SimpleNamespace
from typing import Any

from bridge.analyze.core.table import Array, Table

FORMAT = "bridge.report/2"
END = "\r\n"
BLOCK = 8_192  # rows that are encoded at a time
FORMULA = (
    "=",
    "+",
    "-",
    "@",
    "\t",
    "\r",
    "\n",
)  # a cell that begins so is a formula to spreadsheets


BETWEEN = "\n"


ATTRIBUTES = ("units", "run_ns")  # of tables: units of metrics, the length of a run


def as_json(
    by: str,
    source: Sequence[str],
    totals: Mapping[str, Any],
    table: Table,
    beside: Mapping[str, Table] = MappingProxyType({}),
) -> str:
    """Return one JSON object, a line per row; integers stay integers.

    ``beside`` are other tables by name, which stand before the rows.
    """
    head = {"format": FORMAT, "by": by, "source": list(source), "totals": totals}
    known = {name: table.attrs[name] for name in ATTRIBUTES if name in table.attrs}
    return with_rows({**head, **known}, table, beside)


def with_rows(
    head: Mapping[str, Any],
    table: Table,
    beside: Mapping[str, Table] = MappingProxyType({}),
) -> str:
    """Return one JSON object with the entries of ``head``, other tables, and the ``rows`` of the table."""
    pieces = [json.dumps(head, ensure_ascii=False, indent=1)[:-2]]
    for name, rows in {**beside, "rows": table}.items():
        pieces += [f',\n "{name}": [', *_rows(rows), "\n ]"]
    return "".join([*pieces, "\n}\n"])


def as_csv(table: Table) -> str:
    """Return the table as comma-separated values (RFC 4180); names and units are those of the JSON.

    A text that a spreadsheet would run as a formula is preceded by an apostrophe, so that it is
    shown.
    """
    lines: list[str] = []
    # With "\r\n" as its line end, the writer quotes cells that hold either; lines are written with "\n".
    writer = csv.writer(SimpleNamespace(write=lines.append), lineterminator=END)
    writer.writerow(map(_harmless, table.columns))
    writer.writerows(zip(*(_cells(table[c]) for c in table.columns), strict=True))
    return "".join([f"{line.removesuffix(END)}\n" for line in lines])


def _cells(column: Array) -> Sequence[Any]:
    values: list[Any] = column.tolist()
    return values if column.dtype != object else [_harmless(value) for value in values]


def _harmless(value: Any) -> Any:
    """Return a cell; a text that begins like a formula is preceded by an apostrophe."""
    if isinstance(value, str) and value.startswith(FORMULA):
        return f"'{value}"
    return value


def _rows(table: Table) -> Iterator[str]:
    """Yield the rows as JSON, some at a time: the values of a large table take less memory than their texts."""
    for first in range(0, len(table), BLOCK):
        rows = table[first : first + BLOCK]
        columns = [
            [f"{key}: {value}" for value in _encoded(rows[name])]
            for name, key in zip(rows.columns, map(json.dumps, rows.columns), strict=True)
        ]
        texts = ("\n  {" + ", ".join(row) + "}" for row in zip(*columns, strict=True))
        yield ("," if first else "") + ",".join(texts)


def _encoded(column: Array) -> list[str]:
    """Return each value as JSON; a text in JSON has no line break, so one stands between values."""
    values = column.tolist()
    texts = json.dumps(values, ensure_ascii=False, separators=(BETWEEN, ": "))[1:-1].split(BETWEEN)
    if len(texts) != len(values):  # no rows, or lists in cells
        return [json.dumps(value, ensure_ascii=False) for value in values]
    return texts
