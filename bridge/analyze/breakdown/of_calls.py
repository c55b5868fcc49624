"""What API calls of a group amount to: count, time on the host, and the work that they launched."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np

from bridge.analyze.breakdown.statistics import (
    TIMES,
    Columns,
    computed,
    named,
    spread,
    times_of,
)
from bridge.analyze.groups import counts, ratio, sums
from bridge.join.attributed import Attributed
from bridge.join.order import NONE, Ints
from importers import frames


@dataclass(frozen=True)
class Groups:
    """Rows of a table of API calls: the group of each of some calls."""

    joined: Attributed
    count: int
    rows: Ints
    group: Ints

    def columns(self, wanted: Collection[str]) -> Columns:
        """Return the columns that are wanted, in the order of `COLUMNS`."""
        return computed(self, FIGURES, (*COLUMNS, TIMES), wanted)

    @property
    def time(self) -> Ints:
        """Time of each call on the host, in ns; 0 for one that ends before it starts."""
        return call_time(self.joined)[self.rows]


def call_time(joined: Attributed) -> Ints:
    """Return the time of each API call in ns; 0 for one that ends before it starts."""
    launches = joined.report.launches
    length: Ints = np.maximum(frames.ints(launches, "end") - frames.ints(launches, "start"), 0)
    return length


def _sums(groups: Groups) -> Columns:
    total = sums(groups.group, groups.time, groups.count)
    whole = int(call_time(groups.joined)[groups.joined.accounted_launches].sum())
    return {
        "count": counts(groups.group, groups.count),
        "total_ns": total,
        "share": ratio(total, whole),
    }


def _spread(groups: Groups) -> Columns:
    return spread("", groups.group, groups.time, groups.count)


def _times(groups: Groups) -> Columns:
    return {TIMES: times_of(groups.group, groups.time, groups.count)}


def _launched(groups: Groups) -> Columns:
    """The work that the calls launched, whenever it ran."""
    joined = groups.joined
    group = np.full(len(joined.report.launches) + 1, NONE)
    group[groups.rows] = groups.group
    of_activity = group[joined.attribution.launch]
    there = np.flatnonzero(of_activity != NONE)
    launched = of_activity[there]
    return {
        "activities": counts(launched, groups.count),
        "gpu_ns": sums(launched, joined.duration[there], groups.count),
    }


FIGURES: Mapping[tuple[str, ...], Callable[[Groups], Columns]] = {
    ("count", "total_ns", "share"): _sums,
    named(""): _spread,
    (TIMES,): _times,
    ("activities", "gpu_ns"): _launched,
}
COLUMNS = ("count", "total_ns", *named(""), "activities", "gpu_ns", "share")
