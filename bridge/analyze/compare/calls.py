"""Single calls of two reports matched: call k of a path in a process with call k of that path in the same process."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from bridge.analyze.compare.parts import Parts
from bridge.analyze.groups import counts, quantiles, ratio, sums
from bridge.analyze.tables import events
from bridge.analyze.tables.breakdown import DIMENSIONS
from bridge.analyze.tables.range_metrics import first_slices
from bridge.join.arrays import NONE, Ints, by, number, runs, stable
from bridge.join.attributed import Attributed
from importers import frames


@dataclass(frozen=True)
class Calls:
    """Pairs of calls: the call ``before`` and ``after`` in each, by place among the calls of its report."""

    before: Ints
    after: Ints


def matched_calls(before: Attributed, after: Attributed) -> Calls:
    """Match calls by process, path and order.

    Processes are told by their place among those of their report, by id: ranks are started in that order.
    """
    sides = [_Ordered.of(joined) for joined in (before, after)]
    codes = pd.factorize(np.concatenate([side.paths for side in sides]))[0].astype(np.int64)
    paths = np.split(codes, [len(sides[0].paths)])
    reports, places = (
        max(int(getattr(side, name).max(initial=0)) for side in sides) + 1
        for name in ("report", "place")
    )
    group, size = _grouped(
        [
            (shared[side.path] * places + side.place) * reports + side.report
            for side, shared in zip(sides, paths, strict=True)
        ]
    )
    orders = [
        order[stable(of[order])] for of, order in zip(group, (s.order for s in sides), strict=True)
    ]
    many = np.minimum(*(counts(of, size) for of in group))
    return Calls(*(_first(of[order], order, many) for of, order in zip(group, orders, strict=True)))


@dataclass(frozen=True)
class _Ordered:
    """The calls of a side: which path, which report and which process of it each is of, and their order in time."""

    path: Ints
    paths: np.ndarray
    report: Ints
    place: Ints
    order: Ints

    @classmethod
    def of(cls, joined: Attributed) -> _Ordered:
        firsts = first_slices(joined)
        coded = DIMENSIONS["path"](joined, [events.of_ranges(joined, firsts)])
        ranges = joined.report.ranges
        report, process, start = (
            frames.ints(ranges, c)[firsts] for c in ("report", "process", "start")
        )
        place = _places(report, process)
        return cls(coded.codes[0], coded.labels["path"], report, place, by(start))


def _places(report: Ints, process: Ints) -> Ints:
    """Return the place of each call's process among those of its report."""
    lane, rows = number(report, process)
    place = np.arange(len(rows))
    start = np.zeros(len(rows), np.int64)
    for first in runs(report[rows])[:-1].tolist():
        start[first:] = first
    found: Ints = (place - start)[lane]
    return found


def _grouped(keys: list[Ints]) -> tuple[list[Ints], int]:
    """Return the keys of both sides as common codes, and how many there are."""
    codes, distinct = pd.factorize(np.concatenate(keys))
    return np.split(codes.astype(np.int64), [len(keys[0])]), len(distinct)


def _first(group: Ints, rows: Ints, many: Ints) -> Ints:
    """Return the first so many rows of each group, groups being in order."""
    edges = runs(group)
    place = np.arange(len(group)) - np.repeat(edges[:-1], np.diff(edges))
    return rows[place < many[group]]


def call_figures(
    pairs: Calls, sides: tuple[Parts, Parts], rows: tuple[Ints, Ints], many: int
) -> dict[str, np.ndarray]:
    """Return figures of the calls of each of ``many`` rows, of the time that is a call's own.

    ``rows`` are the row of each part of either side. Columns: matched_calls, unmatched_before, unmatched_after,
    call_mean_diff_ns, call_median_diff_ns (of matched calls, 0 where none is). A pair whose calls are of different
    rows is no match.
    """
    row = [of[side.call_part] for of, side in zip(rows, sides, strict=True)]
    same = row[0][pairs.before] == row[1][pairs.after]
    one, other = pairs.before[same], pairs.after[same]
    diff = call_times(sides[1])[other] - call_times(sides[0])[one]
    of_pair = row[0][one]
    count, total = counts(of_pair, many), sums(of_pair, diff, many)
    (median,) = quantiles(of_pair, diff, many, 0.5)
    return {
        "matched_calls": count,
        "unmatched_before": counts(row[0], many) - count,
        "unmatched_after": counts(row[1], many) - count,
        "call_mean_diff_ns": ratio(total, count),
        "call_median_diff_ns": median,
    }


def call_times(parts: Parts) -> Ints:
    """Return the time in ns that is each call's own."""
    call = np.append(parts.joined.call, NONE)[parts.range]
    owned = call != NONE
    return sums(call[owned], parts.ns[owned], len(parts.call_part))
