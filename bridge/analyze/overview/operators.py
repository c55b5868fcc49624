"""The tree of ops and of what ran under each, with what ran in no op under its reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from bridge.analyze.groups import counts, highest, sums, times
from bridge.analyze.overview.axis import Names, largest
from bridge.analyze.tables.breakdown import by_op
from bridge.join.arrays import NONE, Flags, Ints, by, number
from bridge.join.attributed import Attributed
from bridge.join.attribution import REASONS
from importers import frames

# -- The demangled names of what ran: two kernels of one short name are told apart by them


LONGEST = 1_000  # letters: templates of templates would make the page large


def fuller(joined: Attributed, group: Ints, names: Ints, own: Flags) -> list[str]:
    """Return per group of activities (``group``, one per activity) the full name with most time in it.

    How many more there are stands after it. '' where it is the group's name itself (``names``), is not
    known, or where the group is not of one name (not in ``own``).
    """
    column = joined.report.activities["full_name"]
    pair, first = number(group, frames.codes(column))
    of, code = group[first], frames.codes(column)[first]
    order = by(of, -sums(pair, joined.duration, len(first)), code)
    _, top = np.unique(of[order], return_index=True)  # groups are numbered without gaps
    more = counts(of, len(names)) - 1
    texts = [*column.cat.categories, ""]
    chosen = (texts[c] for c in code[order][top].tolist())
    told = zip(names.tolist(), chosen, more.tolist(), own.tolist(), strict=True)
    return [_told(name, full, others) if is_own else "" for name, full, others, is_own in told]


def _told(name: str, full: str, others: int) -> str:
    if full in {"", name}:
        return ""
    cut = full if len(full) <= LONGEST else f"{full[:LONGEST]}…"
    return f"{cut} (and {others} more)" if others else cut


# -- The tree of ops and of what ran under each, with what ran in no op under its reason


MOST_OPS = 1_500
MOST_KERNELS = 6_000
ORDER = ["gpu_self_ns", "gpu_total_ns", "cpu_total_ns"]
FIGURES = "calls gpu_self_ns gpu_total_ns gpu_busy_ns gpu_mean_ns gpu_max_ns cpu_self_ns cpu_total_ns".split()


def operators(joined: Attributed, names: Names) -> dict[str, Any] | None:
    """Return the ops as columns, largest first, and under ``work`` what ran in each, by op and name.

    ``kind`` is "op", "reason" (no op: its time is a self alone) or "other" (ops too small to be listed,
    summed up). In ``work`` ``full`` is the demangled name where it says more than the name, else -1; ``of`` is the row of the op; the self of an op is the sum of its work.
    """
    table = _ops(joined)
    if not len(table):
        return None
    work = _work(joined, table)
    listed = {
        "name": names.of(table["op"]),
        "kind": table["kind"].tolist(),
        **{column: _whole(table[column]) for column in FIGURES},
    }
    return {
        **listed,
        "work": {**work, "name": names.of(work["name"]), "full": names.of_some(work["full"])},
    }


def _whole(column: pd.Series) -> list[int]:
    whole: list[int] = np.rint(column.to_numpy()).astype(np.int64).tolist()
    return whole


def _ops(joined: Attributed) -> pd.DataFrame:
    """Return the ops in order, then the rest of them as one row, then the reasons."""
    table = by_op(joined).assign(kind="op")
    table = table.sort_values(
        [*ORDER, "op"], ascending=[False] * len(ORDER) + [True], ignore_index=True
    )
    few, rest = table.head(MOST_OPS), table.iloc[MOST_OPS:]
    parts = [few[["op", "kind", *FIGURES]]]
    if len(rest):
        own = {c: int(rest[c].sum()) for c in ("calls", "gpu_self_ns", "cpu_self_ns")}
        parts.append(_row(f"{len(rest)} more ops", "other", **own))
    parts += _reasons(joined)
    return pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)


def _row(name: str, kind: str, **given: int) -> pd.DataFrame:
    return pd.DataFrame([{"op": name, "kind": kind, **dict.fromkeys(FIGURES, NONE), **given}])


def _reasons(joined: Attributed) -> list[pd.DataFrame]:
    """Return a row for each reason that activities have."""
    reason, time, size = joined.attribution.reason, joined.duration, len(REASONS)
    count, total = counts(reason, size), sums(reason, time, size)
    longest = highest(reason, time, size)
    return [
        _row(
            name,
            "reason",
            calls=int(count[code]),
            gpu_self_ns=int(total[code]),
            gpu_total_ns=int(total[code]),
            gpu_max_ns=int(longest[code]),
        )
        for code, name in enumerate(REASONS)
        if name and count[code]
    ]


def _work(joined: Attributed, table: pd.DataFrame) -> dict[str, Any]:
    """Return kernels, memcpys, memsets and graphs by op and name, the largest of each first."""
    row = _rows(joined, table)
    codes = frames.codes(joined.report.activities["name"])
    categories = joined.report.activities["name"].cat.categories
    group, first = number(row, codes)
    found = times(group, joined.duration, len(first))
    kept = largest(np.asarray(found["total_ns"]), MOST_KERNELS)
    if not kept.all():  # what is not listed becomes one more name under its op
        codes = np.where(kept[group], codes, len(categories))
        group, first = number(row, codes)
        found = times(group, joined.duration, len(first))
    names = np.array([*categories, "more names"], dtype=object)[codes[first]]
    full = fuller(joined, group, names, codes[first] < len(categories))
    work = pd.DataFrame({"of": row[first], "name": names, "full": full, **found})
    work = work.sort_values(
        ["of", "total_ns", "name"], ascending=[True, False, True], ignore_index=True
    )
    return {
        "of": work["of"].tolist(),
        "name": work["name"].tolist(),
        "full": work["full"].tolist(),
        **{c: _whole(work[c]) for c in ("count", "total_ns", "mean_ns", "max_ns")},
    }


def _rows(joined: Attributed, table: pd.DataFrame) -> Ints:
    """Return the row of the table that each activity is under."""
    ops = table["kind"] == "op"
    place = {name: at for at, name in enumerate(table["op"]) if ops.iloc[at]}
    other = int(np.argmax(table["kind"] == "other"))
    of_op = np.array([*(place.get(name, other) for name in joined.ops), NONE], np.int64)
    reasons = {
        name: at for at, name in enumerate(table["op"]) if table["kind"].iloc[at] == "reason"
    }
    of_reason = np.array([reasons.get(name, NONE) for name in REASONS], np.int64)
    row = of_op[joined.activity_op]
    return np.where(row == NONE, of_reason[joined.attribution.reason], row)
