"""The ranks of a run, for people and as JSON in the format bridge.ranks/1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from bridge.render import document, units

FORMAT = "bridge.ranks/1"
UNKNOWN = -1


def line(totals: Mapping[str, float]) -> str:
    """Return ``4 ranks on 2 hosts, 1.234 s: GPUs busy 91.2 %, …``; the time is from the first event to the last."""
    hosts = int(totals["hosts"])
    where = f" on {_count(hosts, 'host')}" if hosts else ""
    found = [
        f"{units.count(int(totals['kernels']))} kernels",
        f"GPUs busy {units.percent(totals['busy_share'])}",
        f"{units.percent(totals['attributed_share'])} of GPU time in ops",
        f"{units.time(int(totals['exposed_ns']))} of communication exposed",
    ]
    head = f"{_count(int(totals['ranks']), 'rank')}{where}, {units.time(int(totals['span_ns']))}"
    return f"{head}: {', '.join(found)}{_clocks(int(totals['clock_spread_ns']))}"


def _clocks(spread: int) -> str:
    """Say how well clocks agree, where they are several."""
    if spread == 0:
        return ""
    known = f"within ± {units.time(spread)}" if spread != UNKNOWN else "only as hosts keep time"
    return f"; clocks agree {known}"


def _count(number: int, what: str) -> str:
    return f"{units.count(number)} {what}{'' if number == 1 else 's'}"


def as_json(source: Sequence[str], totals: Mapping[str, float], table: pd.DataFrame) -> str:
    """Return one JSON object, a line per rank."""
    return document.with_rows({"format": FORMAT, "source": list(source), "totals": totals}, table)
