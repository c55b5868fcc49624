"""What dimensions tell apart: ranges, activities or API calls, each with its place in the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bridge.join.arrays import NONE, Ints
from bridge.join.attributed import Attributed
from importers import frames


@dataclass(frozen=True)
class Events:
    """Columns with a row per event.

    ``range`` is the innermost one that it is in (a range: its own) and ``node`` the one of the nesting,
    which a range of no length lacks; ``launch`` is its API call, ``activity`` its row among these;
    NONE for none. ``column`` gives its report, process, thread and start, only where they are asked for.
    """

    range: Ints
    node: Ints
    launch: Ints
    activity: Ints
    column: Callable[[str], Ints]

    @property
    def report(self) -> Ints:
        """Which capture each is of."""
        return self.column("report")

    @property
    def process(self) -> Ints:
        """The process of each."""
        return self.column("process")

    @property
    def thread(self) -> Ints:
        """The thread that each was called on, NONE where that is not known."""
        return self.column("thread")

    @property
    def time(self) -> Ints:
        """When each began on the host; work without an API call began when it ran."""
        return self.column("start")


def of_ranges(joined: Attributed, rows: Ints) -> Events:
    """Return some ranges."""
    ranges = joined.report.ranges
    node = joined.attribution.nesting.first_nodes(len(ranges))[rows]
    nothing = np.full(len(rows), NONE)
    return Events(rows, node, nothing, nothing, lambda c: frames.ints(ranges, c)[rows])


def of_nodes(joined: Attributed) -> Events:
    """Return the nodes of the nesting: ranges, or pieces of one."""
    nesting, ranges = joined.attribution.nesting, joined.report.ranges
    nothing = np.full(len(nesting), NONE)
    nodes = np.arange(len(nesting))
    return Events(
        nesting.range, nodes, nothing, nothing, lambda c: frames.ints(ranges, c)[nesting.range]
    )


def of_activities(joined: Attributed, rows: Ints) -> Events:
    """Return some activities; without an API call they have no thread."""
    activities, launches = joined.report.activities, joined.report.launches
    launch = joined.attribution.launch[rows]

    def column(name: str) -> Ints:
        if name in {"report", "process"}:
            return frames.ints(activities, name)[rows]
        issued = np.append(frames.ints(launches, name), NONE)[launch]
        if name == "thread":
            return issued
        return np.where(launch == NONE, frames.ints(activities, name)[rows], issued)

    found = joined.attribution
    return Events(found.range[rows], found.node[rows], launch, rows, column)


def of_launches(joined: Attributed, rows: Ints) -> Events:
    """Return some API calls."""
    launches, node = joined.report.launches, joined.launch_node[rows]
    around = np.append(joined.attribution.nesting.range, NONE)[node]
    nothing = np.full(len(rows), NONE)
    return Events(around, node, rows, nothing, lambda c: frames.ints(launches, c)[rows])
