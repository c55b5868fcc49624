"""What a log of oneDNN says as a whole."""

from __future__ import annotations

from bridge.analyze.primitives import Totals
from bridge.render import units


def line(totals: Totals) -> str:
    """Return one line: how much ran and how long, and what it took to make it."""
    ran = _times(totals.calls, totals.total_ns, "execution")
    made = _times(totals.creations, totals.creation_ns, "creation")
    return f"{ran}; {made}" if totals.creations else ran


def _times(many: int, ns: int, what: str) -> str:
    return f"{units.count(many)} {what}{'' if many == 1 else 's'}, {units.time(ns)}"
