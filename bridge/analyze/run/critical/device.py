"""The points of devices: the begin and the end of each activity, and what it waits for before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bridge.analyze.core.groups import highest, lowest
from bridge.analyze.core.kinds import is_communication
from bridge.analyze.run.concurrency.matching import MatchedCalls
from bridge.analyze.run.critical.graph import NEVER
from bridge.analyze.run.critical.waits import Waits
from bridge.analyze.run.critical.work import Work
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, Rows, order_by


@record
class DevicePoints:
    """Points of all lanes, one after the other; after them those at which ranks met.

    ``time``, ``chained`` and ``cross`` are as in `Graph`. ``end`` is the point at which each activity
    ends, by its place in `Work`; ``activity`` is the activity of each point, NONE where ranks met.
    ``ruled`` are the points at which activities wait by a rule, see `Waits`.
    """

    time: Ints
    chained: Flags
    cross: Rows
    end: Ints
    activity: Rows
    ruled: Ints

    @property
    def start(self) -> Ints:
        """The point at which each activity begins: the one before its end."""
        return self.end - 1

    @classmethod
    def of(cls, work: Work, waits: Waits) -> DevicePoints:
        """Return the points of a capture; activities are not linked to their API calls yet."""
        before, previous = work.before, np.arange(-1, len(work.row) - 1)
        is_next = (before != NONE) & (before == previous)
        activity, awaited, by_rule = _further(work, waits, before, ~is_next)
        size = np.bincount(activity, minlength=len(work.row)) + 2
        end = np.cumsum(size) - 1
        start = end - 1
        points = int(size.sum())
        owner = np.repeat(np.arange(len(size), dtype=np.int32), size)
        chained = np.ones(points, bool)
        chained[(end - size + 1)[~is_next]] = False
        cross = np.full(points, NONE, np.int32)
        earlier = np.append(0, np.cumsum(size - 2))[activity]  # points of activities before
        waiting = (end - size + 1)[activity] + np.arange(len(activity)) - earlier
        cross[waiting] = end[awaited]
        time = np.empty(points, np.int64)
        time[start], time[end] = work.start, work.end
        ended = work.end[awaited]
        follows = is_next[activity]
        ended[follows] = np.maximum(ended[follows], work.end[previous[activity[follows]]])
        time[waiting] = ended
        return _with_collectives(
            work,
            cls(
                time=time,
                chained=chained,
                cross=cross,
                end=end,
                activity=owner,
                ruled=waiting[by_rule],
            ),
        )


def _with_collectives(work: Work, points: DevicePoints) -> DevicePoints:
    """Return the points with those at which the ranks of each collective met."""
    met = Met.of(work)
    if not len(met.awaited):
        return points
    is_first = np.append(True, met.of_awaited[1:] != met.of_awaited[:-1])
    last = np.flatnonzero(np.append(is_first[1:], True))
    hub = len(points.time) + last
    cross = np.concatenate((points.cross, points.start[met.awaited]), dtype=np.int32)
    cross[points.end[met.waiting]] = hub[np.searchsorted(met.of_awaited[last], met.of_waiting)]
    return replace(
        points,
        time=np.concatenate((points.time, work.start[met.awaited])),
        chained=np.concatenate((points.chained, ~is_first)),
        cross=cross,
        activity=np.concatenate((points.activity, np.full(len(met.awaited), NONE)), dtype=np.int32),
    )


def _further(work: Work, waits: Waits, before: Ints, is_apart: Flags) -> tuple[Ints, Ints, Flags]:
    """Return activities, what they wait for besides the activity right before them, and whether by a rule.

    ``is_apart`` is whether the activity that each one follows is not the one right before it.
    """
    apart = np.flatnonzero(is_apart & (before != NONE))
    in_launch = work.before_in_launch
    others = np.flatnonzero((in_launch != NONE) & (in_launch != before))
    activity = np.concatenate((apart, others, waits.activity))
    awaited = np.concatenate((before[apart], in_launch[others], waits.awaited))
    by_rule = np.concatenate((np.zeros(len(apart) + len(others), bool), waits.by_rule))
    order = order_by(activity, work.end[awaited], work.rank[awaited], by_rule.astype(np.int64))
    activity, awaited, by_rule = activity[order], awaited[order], by_rule[order]
    is_new = np.ones(len(activity), bool)
    is_new[1:] = (activity[1:] != activity[:-1]) | (awaited[1:] != awaited[:-1])
    return activity[is_new], awaited[is_new], by_rule[is_new]


@record
class Met:
    """Collectives of which all ranks ran at one time, so that some waited for the others.

    ``awaited`` are the activities, by their place in `Work`, that those ``waiting`` in the same collective waited for;
    ``of_awaited`` and ``of_waiting`` are the numbers of their collectives. Both are sorted by collective and start.
    """

    awaited: Ints
    of_awaited: Ints
    waiting: Ints
    of_waiting: Ints

    @classmethod
    def of(cls, work: Work) -> Met:
        """Return the collectives of all ranks on one clock."""
        nothing = np.empty(0, np.int64)
        if work.apart or not is_communication(work.attributed).any():
            return cls(nothing, nothing, nothing, nothing)
        matched = MatchedCalls.of(work.attributed)
        place, number = work.place[matched.calls.row], matched.number
        awaited, waits = matched.awaited & (place != NONE), matched.waits & (place != NONE)
        size = int(number.max()) + 1
        began = highest(number[awaited], work.start[place[awaited]], size, empty=NEVER)
        left = lowest(number[waits], work.end[place[waits]], size, empty=NEVER)
        meets = (began < left) & (began != NEVER)
        return cls(
            *_in_order(work, place, number, awaited & meets[number]),
            *_in_order(work, place, number, waits & meets[number]),
        )


def _in_order(work: Work, place: Ints, number: Ints, chosen: Flags) -> tuple[Ints, Ints]:
    """Return some calls and their collectives by collective and start."""
    place, number = place[chosen], number[chosen]
    order = order_by(number, work.start[place], work.rank[place])
    return place[order], number[order]
