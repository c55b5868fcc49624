"""What a log of oneDNN says as a whole."""

from __future__ import annotations

import pandas as pd

from bridge.render import units


def totals(table: pd.DataFrame) -> str:
    """Return one line: how much ran and how long, and what it took to make it."""
    ran = _times(table, "calls", "total_ns", "execution")
    return (
        f"{ran}; {_times(table, 'creations', 'creation_ns', 'creation')}"
        if table["creations"].any()
        else ran
    )


def _times(table: pd.DataFrame, count: str, time: str, what: str) -> str:
    many = int(table[count].sum())
    return f"{units.count(many)} {what}{'' if many == 1 else 's'}, {units.time(int(table[time].sum()))}"
