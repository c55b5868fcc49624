"""Lists of names as commands print them, instead of a report: tables, columns, rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from bridge.analyze.core.catalog.column import Column
    from bridge.cli.outputs import Output

FORMAT = "bridge.list/1"
TABLES, COLUMNS, RULES = ("tables", "columns", "rules")
DOCUMENTS = ("json", "csv", "md")


@dataclass(frozen=True)
class Listing:
    """Names with what each means.

    Attributes:
        of: what is listed: `TABLES`, `COLUMNS` or `RULES`.
        rows: an entry per name, with the fields of bridge.list/1.
        text: the list for people.
        fields: the fields of the document beside its rows.

    """

    of: str
    rows: Sequence[dict[str, Any]]
    text: str
    fields: dict[str, Any] = field(default_factory=dict)

    def write(self, output: Output) -> None:
        """Write the list in the format of the output; a usage error if no list has this format."""
        output.check(())
        output.write(self._as(output), f"{len(self.rows)} names")

    def _as(self, output: Output) -> str:
        if output.format == output.formats[0]:
            return self.text
        if output.format not in DOCUMENTS:
            known = [form for form in output.formats if form in (output.formats[0], *DOCUMENTS)]
            raise click.UsageError(
                f"--format {output.format}: a list of names is one of {', '.join(known)}"
            )

        from bridge.analyze.core.table import Table
        from bridge.render import document, table

        rows = Table.of_records(self.rows)
        if output.format == "csv":
            return document.as_csv(rows)
        if output.format == "md":
            return table.as_markdown("", rows, every=True)
        return document.with_rows({"format": FORMAT, "list": self.of, **self.fields}, rows)


def column_rows(columns: Iterable[Column]) -> list[dict[str, Any]]:
    """Return the entries of columns."""
    return [
        {
            "name": column.name,
            "heading": column.heading,
            "unit": column.unit,
            "type": column.type,
            "default": column.default,
            "meaning": column.meaning or column.heading,
        }
        for column in columns
    ]
