"""What a report holds that no sound capture should: counted, with an example and what was made of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bridge.join.arrays import NONE, Flags, Ints, number
from bridge.join.attributed import KEY, Attributed
from bridge.join.attribution import BY_ADOPTION, INVALID_TIME
from bridge.join.nesting import Nesting
from importers import frames
from importers.frames import shared

TIMED = ("ranges", "launches", "activities")
ID_BITS = 40  # of a correlation id; CUPTI's have 32


@dataclass(frozen=True)
class Finding:
    """Rows of a frame that break one rule, and the words for it."""

    rows: Ints
    frame: str
    what: str
    handled: str


def warnings(joined: Attributed) -> tuple[str, ...]:
    """Return a line for each kind of unlawful row and report that has any, the first row as example."""
    return tuple(line for found in findings(joined) for line in _lines(joined, found))


def findings(joined: Attributed) -> Iterator[Finding]:
    """Return every rule, in order, with the rows that break it."""
    for frame in TIMED:
        early = np.flatnonzero(_early(joined, frame))
        yield Finding(early, frame, "begin before the session does", "kept, at times below 0")
    for frame, handled in (("ranges", "never open, so they own nothing"), ("launches", "kept")):
        ended = np.flatnonzero(_backwards(joined, frame))
        yield Finding(ended, frame, "end before they start", handled)
    invalid = np.flatnonzero(_backwards(joined, "activities"))
    yield Finding(invalid, "activities", "end before they start, or at 0", "counted with 0 ns")
    crossing = _crossing(joined)
    handled = "cut into pieces that nest, so that what is open at any instant stays exact"
    yield Finding(crossing, "ranges", "cross another of their thread and domain", handled)
    again = np.flatnonzero(_repeated(joined))
    what = "have the process and correlation id of an earlier one"
    yield Finding(again, "launches", what, "the earliest owns what they issued")
    guessed = np.flatnonzero(joined.attribution.rule == BY_ADOPTION)
    what = "have their op from another thread by time alone"
    yield Finding(guessed, "activities", what, "confidence is low; without --adopt they have none")
    what = "count for a range of another thread by time alone"
    yield Finding(
        _adopted(joined), "ranges", what, "confidence is low; without --adopt they do not"
    )


def wrong_times(joined: Attributed) -> dict[str, Ints]:
    """Return the rows of ranges, launches and activities whose times cannot be."""
    return {f: np.flatnonzero(_early(joined, f) | _backwards(joined, f)) for f in TIMED}


def _early(joined: Attributed, frame: str) -> Flags:
    early: Flags = frames.ints(getattr(joined.report, frame), "start") < 0
    return early


def _backwards(joined: Attributed, frame: str) -> Flags:
    """Tell what ends before it starts; of activities also what ends at 0."""
    table = getattr(joined.report, frame)
    if frame == "activities":
        ended: Flags = joined.attribution.reason == INVALID_TIME
    else:
        ended = frames.ints(table, "end") < frames.ints(table, "start")
    return ended


def _lines(joined: Attributed, found: Finding) -> Iterator[str]:
    report, table = joined.report, getattr(joined.report, found.frame)
    of = frames.ints(table, "report")[found.rows]
    for n in np.unique(of).tolist():
        rows = found.rows[of == n]
        yield line(report.source[n], found, len(rows), f"#{rows[0]} {shown(table, int(rows[0]))}")


def line(source: str, found: Finding, rows: int, example: str) -> str:
    """Return what is said of so many rows of a report."""
    return f"{source}: {rows} {found.frame} {found.what}: {found.handled} (first: {example})"


def shown(table: pd.DataFrame, row: int) -> str:
    """Return a row as an example: its name and times."""
    one = table.iloc[row]
    return f"{one['name']}, {one['start']} to {one['end']} ns"


def _crossing(joined: Attributed) -> Ints:
    """Return the ranges that end after the one of their thread and domain that they began in.

    Those that were cut for the nesting are looked at alone, with all of their threads: that ranges of
    different domains cross is lawful.
    """
    ranges, cut = joined.report.ranges, joined.attribution.nesting.crossed
    if not len(cut):
        return cut
    thread, _ = number(*(frames.ints(ranges, c) for c in ("report", "thread")))
    concerned = np.isin(thread, thread[cut]) & (joined.op != NONE)
    start, end = frames.ints(ranges, "start"), frames.ints(ranges, "end")
    rows = np.flatnonzero(concerned & (end > start))
    stack, _ = number(thread[rows], frames.ints(ranges, "domain")[rows])
    return Nesting.of(stack, start[rows], end[rows], rows).crossed


def _adopted(joined: Attributed) -> Ints:
    """Return the ranges that were given a parent on another thread."""
    nesting = joined.attribution.nesting
    inner = np.flatnonzero(nesting.parent != NONE)
    found: Ints = nesting.range[inner[nesting.stack[inner] != nesting.stack[nesting.parent[inner]]]]
    return np.sort(found)


def _repeated(joined: Attributed) -> Flags:
    """Tell which API calls have the key of an earlier one."""
    launches = joined.report.launches
    report, process, id_ = (frames.ints(launches, c) for c in KEY)
    if _all_different(report, process, id_):
        return np.zeros(len(id_), bool)
    again: Flags = (id_ > 0) & (joined.calls_of(report, process, id_) != np.arange(len(id_)))
    return again


def _all_different(report: Ints, process: Ints, id_: Ints) -> bool:
    """Tell that no key comes twice; sorted as one number each, for ids come nearly in order."""
    keys = ((shared((report, process))[0] << ID_BITS) + id_)[id_ > 0]
    keys.sort(kind="stable")
    return bool(id_.max(initial=0) < 1 << ID_BITS and (keys[1:] != keys[:-1]).all())
