"""What the rules of Nsight Compute say of kernels, and what each estimates to save."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bridge.analyze.groups import counts, sums, texts
from bridge.analyze.metrics.columns import known
from bridge.analyze.names import KERNEL_NAMES, named
from bridge.join.attributed import Attributed
from bridge.join.order import Flags, Ints, number
from importers import frames

WHOLE = "global"  # an estimate of the kernel's time; others are of one unit of the GPU
PER_CENT = 100.0
TOLD_APART = ("rule", "kind", "scope")
COLUMNS = ("rule", "kernel", "kind", "saves_ns", "speedup", "scope", "count", "total_ns", "text")


def by_rule(joined: Attributed, kernel_names: str = "short") -> pd.DataFrame:
    """Return a row per rule and kernel name that it says something of.

    ``speedup`` is the estimate in per cent, of the kernel that took longest, -1 where there is none;
    ``saves_ns`` what the estimates of the whole kernel (scope "global") amount to. Rules overlap: savings
    do not add up; of what one rule says of one kernel in several texts, the largest estimate counts.
    ``text`` is of the kernel that took longest.
    """
    activity, place = largest(joined)
    rules = joined.report.metrics.rules.iloc[place]
    code, names = named(joined, KERNEL_NAMES[kernel_names], activity)
    group, first = number(code, *(frames.codes(rules[c]) for c in TOLD_APART))
    groups, time = len(first), joined.duration[activity]
    longest = _longest(group, time)
    speedup = rules["speedup"].to_numpy()
    saved = np.where(is_named(rules["scope"], WHOLE) & (speedup > 0), time * speedup / PER_CENT, 0)
    columns = {
        **{c: texts(rules[c].astype(object).iloc[longest]) for c in (*TOLD_APART, "text")},
        "kernel": texts(names[c] for c in code[longest].tolist()),
        "saves_ns": sums(group, saved.round().astype(np.int64), groups),
        "speedup": speedup[longest],
        "count": counts(group, groups),
        "total_ns": sums(group, time, groups),
    }
    return pd.DataFrame({name: columns[name] for name in COLUMNS})


def largest(joined: Attributed) -> tuple[Ints, Ints]:
    """Return pairs of an activity and a row of rules: of what each says of a kernel that with the largest estimate."""
    return _most(joined.report.metrics.rules, *_said(joined))


def _said(joined: Attributed) -> tuple[Ints, Ints]:
    """Return pairs of an activity and a row of rules: all that rules say of the kernel it is."""
    metrics = joined.report.metrics
    rows = np.flatnonzero(joined.counted & known(joined.report))
    of_rule = frames.ints(metrics.rules, "kernel")  # ascending
    first, end = (np.searchsorted(of_rule, metrics.of[rows], side) for side in ("left", "right"))
    many = end - first
    before = np.cumsum(many) - many
    return np.repeat(rows, many), np.repeat(first - before, many) + np.arange(many.sum())


def _most(rules: pd.DataFrame, activity: Ints, place: Ints) -> tuple[Ints, Ints]:
    """Keep of what a rule says of a kernel that with the largest estimate."""
    keys = [frames.codes(rules[c])[place] for c in TOLD_APART]
    code, first = number(activity, *keys)
    best = np.lexsort((-rules["speedup"].to_numpy()[place], code))
    best = best[np.unique(code[best], return_index=True)[1]] if len(first) else best
    return activity[best], place[best]


def _longest(group: Ints, time: Ints) -> Ints:
    """Return the row of each group that took longest, of several the first."""
    order = np.lexsort((-time, group))
    return order[np.unique(group[order], return_index=True)[1]]


def is_named(column: pd.Series, name: str) -> Flags:
    """Tell which rows of a column of names have this one."""
    categories = list(column.cat.categories)
    same: Flags = frames.codes(column) == (
        categories.index(name) if name in categories else len(categories)
    )
    return same
