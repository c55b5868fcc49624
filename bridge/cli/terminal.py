"""A table for a terminal, cut where nobody reads on."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from bridge.cli import options
from bridge.render import table as tables

READABLE = 1_000  # rows that a terminal gets: nobody reads more, and to lay them out takes long


def for_people(
    by: str, table: pd.DataFrame, advice: str, *, to_terminal: bool, unit: str | None = None
) -> str:
    """Return a table as text; on a terminal its first rows, and how many are left out, with ``advice`` how to see them."""
    few = table.head(READABLE) if to_terminal else table
    left = len(table) - len(few)
    more = f"… and {left} more rows: {advice}, or --format csv for all\n" if left else ""
    look = replace(options.look(to_terminal=to_terminal), unit=unit)
    return tables.for_terminal(by, few, look) + more
