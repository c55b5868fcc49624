"""docs/columns.md, what every column of every table means, and the lists of tables and dimensions in docs/report.md."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.analyze.core.catalog import ON_HOST, TABLES, VIEWS, TableColumns, View
from bridge.analyze.core.catalog.column import WHOLES
from bridge.analyze.core.catalog.dimensions import DIMENSIONS, Dimension

from .pages import DOCS, Files, with_list

HEAD = """# Columns

Every column of every table: its name in JSON, CSV and data frames, its heading for people, its unit and its meaning. Which
tables there are, and how columns are chosen, is told in [tables](report.md#tables). Columns marked with `+` are there only
where `--columns` asks for them. −1 in a column marked with `?` means that the value is not known.
This page is made by `python -m tests.docs columns`.
"""
TITLES = {
    "ranges": "Tables whose rows are ranges",
    "calls": "Tables whose rows are API calls (`api` among the dimensions)",
    "activities": "Tables whose rows are activities",
    "diff": "`bridge diff`",
    "trend": "`bridge trend`",
    "ranks": "`--by rank`: who is who",
    "onednn": "`bridge onednn`",
}
# The same columns as those of another table.
LEFT_OUT = ("op", *(name for name in TABLES if name.endswith(ON_HOST)))


def files() -> Files:
    """Yield the page of columns, and that of tables with its lists."""
    parts = (section(name, table) for name, table in TABLES.items() if name not in LEFT_OUT)
    yield DOCS / "columns.md", "\n".join([HEAD, *parts])
    tables = DOCS / "report.md"
    yield tables, with_lists(tables.read_text(encoding="utf-8"))


def section(name: str, table: TableColumns) -> str:
    """Return the part of one table."""
    title = TITLES.get(name) or (f"`bridge {name}`" if " " in name else f"`--by {name}`")
    if name.startswith("memory "):
        title = f"`bridge memory`, {name.removeprefix('memory ')}"
    rows = "\n".join(lines(table))
    return f"## {title}\n\n| column | heading | unit | meaning |\n|---|---|---|---|\n{rows}\n"


def lines(table: TableColumns) -> Iterator[str]:
    """Give a row of the table per column."""
    for column in table.columns:
        marks = f"{'' if column.default else ' +'}{' ?' if column.missing else ''}"
        meaning = column.meaning
        if column.ratio and not any(word in meaning for word in (" by ", "per ")):
            part, whole = column.ratio
            meaning = f"{meaning}: {part} by {WHOLES.get(whole, whole)}"
        yield f"| `{column.name}`{marks} | {column.heading} | {column.unit} | {meaning} |"


def with_lists(page: str) -> str:
    """Return docs/report.md with the lists of tables and of dimensions as they are now."""
    tables = [f"| {view.question} | {link(view)} |" for view in VIEWS.values()]
    dimensions = [f"| {link(one)} | {one.meaning} | {one.kind} |" for one in DIMENSIONS.values()]
    page = with_list(page, "tables", ["| question | `--by` |", "|---|---|", *tables])
    heads = ["| dimension | a row is | of |", "|---|---|---|"]
    return with_list(page, "dimensions", [*heads, *dimensions])


def link(one: View | Dimension) -> str:
    """Return the name of a table or dimension, with the page that says more."""
    return f"[`{one.name}`]({one.page})" if one.page else f"`{one.name}`"
