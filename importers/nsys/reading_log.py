"""What the log says of an export: which tables were read, which were not there, and what they lacked."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from bridge.importers.nsys import schema
from bridge.importers.nsys.tables import Present, Table
from bridge.importers.query import Query
from bridge.importers.sqlite_columns import Columns

LOG = logging.getLogger("bridge.importers")


def log_tables(
    path: Path,
    tables: Mapping[str, Present],
    queries: Mapping[str, Query],
    read: Mapping[str, Columns],
    skipped: Collection[str],
) -> None:
    """Log which tables of an export were read, with their rows, and why others were not.

    ``queries`` are those of the tables that were to be read; ``skipped`` are tables of the side
    that was not asked for. The names are those of `schema.READ`.
    """
    if not LOG.isEnabledFor(logging.DEBUG):
        return
    rows = {name: len(next(iter(columns.values()), ())) for name, columns in read.items()}
    filled = (f"{name} {count}" for name, count in rows.items() if count)
    LOG.debug("%s: rows read: %s", path.name, ", ".join(filled) or "none")
    _log_names(path, "read, and empty", (name for name, count in rows.items() if not count))
    _log_names(path, "not of the side that was asked for", skipped)
    left_out = [name for name in schema.READ if name not in queries and name not in skipped]
    present = {name for name in left_out if schema.READ[name].is_in(tables)}
    _log_names(path, "absent", (name for name in left_out if name not in present))
    _log_names(path, "not asked for, or a required column is absent", sorted(present))
    for name in queries:
        if lacking := _lacking(schema.READ[name], tables[queries[name].table]):
            _log_names(path, f"columns that {name} lacks", lacking)


def _log_names(path: Path, what: str, names: Iterable[str]) -> None:
    if text := ", ".join(names):
        LOG.debug("%s: %s: %s", path.name, what, text)


def _lacking(table: Table, present: Present) -> list[str]:
    """Return our names of the columns of which an export has no source."""
    return [
        name for name, column in table.columns.items() if present.keys().isdisjoint(column.sources)
    ]
