"""The parts of a run: start-up, loops of iterations, what lies between them, the end; and how long iterations take.

An iteration lasts from its first work on the GPU that bounds the run to that of the next one.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from bridge.analyze.core.devices import Devices
from bridge.analyze.core.groups import highest, lowest, sums
from bridge.analyze.run.account import RunClocks, runs
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, unions
from bridge.join.attributed import AttributedCapture, once
from bridge.join.loops import Loop

Interval = tuple[int, int]  # start and end in ns
NEVER = int(np.iinfo(np.int64).min)


@record
class LoopPart:
    """A loop of iterations: how many, warm-up included, how many of these are warm-up, and when, in ns."""

    name: str
    count: int
    warm_up: int
    start: int
    end: int


@record
class Parts:
    """The parts of a run in ns on the clock of the run; they add up to it.

    ``start_up`` lies before the first iteration, or without any before the first device work.
    ``iterations`` are the times in which any of the ``loops`` runs, or without any the time from the
    first device work to the last; ``between`` is what separates them. ``end`` lies after the last
    iteration and its work. ``is_cut`` tells whether the capture begins and ends within an iteration.
    """

    loops: tuple[LoopPart, ...]
    start_up: Interval
    iterations: tuple[Interval, ...]
    between: tuple[Interval, ...]
    end: Interval
    is_cut: tuple[bool, bool] = (False, False)

    @classmethod
    def of(cls, attributed: AttributedCapture, start_ns: int, end_ns: int) -> Parts:
        """Return the parts of the run from ``start_ns`` to ``end_ns``."""
        loops = [
            LoopPart(loop.name, loop.count, loop.warm_up, *np.clip(span, start_ns, end_ns).tolist())
            for loop, span in zip(_iterations(attributed), _spans(attributed), strict=True)
        ]
        clipped = np.clip(
            np.array(_stretches(attributed), np.int64).reshape(-1, 2), start_ns, end_ns
        )
        stretches = [(first, last) for first, last in clipped.tolist() if last > first]
        first, last = (stretches[0][0], stretches[-1][1]) if stretches else (end_ns, end_ns)
        cuts = [loop.is_cut for loop in _iterations(attributed)]
        return cls(
            loops=tuple(loops),
            start_up=(start_ns, first),
            iterations=tuple(stretches),
            between=tuple((a[1], b[0]) for a, b in pairwise(stretches)),
            end=(last, end_ns),
            is_cut=(cuts[0][0], cuts[-1][1]) if cuts else (False, False),
        )

    @classmethod
    def of_run(cls, attributed: AttributedCapture) -> Parts | None:
        """Return the parts of the run; None of several runs, of a selected part and of no timeline."""
        found = runs(attributed)
        if len(found) != 1 or found[0].is_part:
            return None
        return cls.of(attributed, *found[0].whole)

    @property
    def by_name(self) -> dict[str, tuple[Interval, ...]]:
        """The times of the parts in order, by what they are called."""
        names = (
            "before the first whole iteration" if self.is_cut[0] else "start-up",
            "iterations" if self.loops else "work",
            "between",
            "after the last whole iteration" if self.is_cut[1] else "end",
        )
        parts = ((self.start_up,), self.iterations, self.between, (self.end,))
        return dict(zip(names, parts, strict=True))

    @property
    def lengths(self) -> dict[str, int]:
        """The lengths of the parts in ns, in order, by what they are called."""
        return {
            name: sum(last - first for first, last in times) for name, times in self.by_name.items()
        }


def _iterations(attributed: AttributedCapture) -> tuple[Loop, ...]:
    return attributed.loops.iterations


@record
class Times:
    """Start and end of each iteration, a row of `AttributedCapture.iterations`, and of each activity, in ns.

    They are on the clock of the run.
    """

    start: Ints
    end: Ints
    work_start: Ints
    work_end: Ints

    @classmethod
    def of(cls, attributed: AttributedCapture) -> Times:
        """Return the times as recorded, with the offset of the clock of each report."""
        steps, activities = attributed.iterations, attributed.capture.activities
        offset = RunClocks.of(attributed).offset
        of_step, of_work = offset[steps.report], offset[activities.report]
        start = activities.start
        if not offset.any():  # as in nearly every capture
            return cls(steps.start, steps.end, start, attributed.end)
        times = steps.start + of_step, steps.end + of_step
        return cls(*times, start + of_work, attributed.end + of_work)


@once
def _spans(attributed: AttributedCapture) -> list[Interval]:
    """Return start and end of each loop of iterations: from its first instance to the end of all their work.

    A loop whose work runs on while the next one begins on the host ends there.
    """
    steps, step, times = attributed.iterations, attributed.activity_iteration, Times.of(attributed)
    has_step = step != NONE
    work_end = highest(step[has_step], times.work_end[has_step], len(steps), empty=NEVER)
    count = len(_iterations(attributed))
    start = lowest(steps.loop, times.start, count, empty=0)
    host_end = highest(steps.loop, times.end, count, empty=0)
    end = highest(steps.loop, np.maximum(times.end, work_end), count, empty=0)
    following = np.append(start[1:], np.iinfo(np.int64).max)
    end = np.where(host_end <= following, np.minimum(end, following), end)
    return list(zip(start.tolist(), end.tolist(), strict=True))


def _stretches(attributed: AttributedCapture) -> list[Interval]:
    """Return the times in which a loop of iterations runs, or any device work where there are none."""
    spans, times = _spans(attributed), Times.of(attributed)
    if not spans and len(times.work_start):
        spans = [(int(times.work_start.min()), int(times.work_end.max()))]
    first, last = np.array(spans, np.int64).reshape(-1, 2).T
    _, start, end = unions(np.zeros(len(first), np.int64), first, last)
    return list(zip(start.tolist(), end.tolist(), strict=True))


# -- The GPU that bounds the run


@once
def bounding_gpu(attributed: AttributedCapture) -> int:
    """Return the GPU least idle over the iterations, or over all work without any: a position in `Devices`.

    Of equally idle ones it is the first by number; NONE without work.
    """
    devices = Devices.of_report(attributed)
    stretches = np.array(_stretches(attributed), np.int64).reshape(-1, 2)
    if not len(devices.names) or not len(stretches):
        return NONE
    times = Times.of(attributed)
    gpu, first, last = unions(devices.gpu, times.work_start, times.work_end)
    covered = _covered(stretches, last) - _covered(stretches, first)
    busy = sums(gpu, covered, len(devices.names))
    order = sorted(range(len(busy)), key=lambda one: (-int(busy[one]), devices.number[one], one))
    return order[0]


def _covered(stretches: Ints, time: Ints) -> Ints:
    """Return how much of disjoint stretches lies before each time, in ns."""
    start, end = stretches.T
    passed = np.append(0, np.cumsum(end - start))
    at = np.searchsorted(start, time, side="right")
    inside = np.minimum(time, np.append(0, end)[at]) - np.append(0, start)[at]
    before: Ints = passed[np.maximum(at - 1, 0)] + np.where(at > 0, inside, 0)
    return before


# -- The time of an iteration


@record
class IterationTime:
    """The times in ns from each iteration of a loop to the next one, without warm-up: on its GPU and on the host."""

    device: Ints
    host: Ints

    @property
    def samples(self) -> Ints:
        """The times on the GPU; without work on one those on the host."""
        return self.device if len(self.device) else self.host

    @property
    def ns(self) -> float:
        """The median time of an iteration, 0 if none follows another."""
        return float(np.median(self.samples)) if len(self.samples) else 0.0

    @property
    def host_ns(self) -> float:
        """The median on the host, 0 if none follows another."""
        return float(np.median(self.host)) if len(self.host) else 0.0


@once
def first_work(attributed: AttributedCapture) -> Ints:
    """Return when the first work of each iteration began on the GPU that bounds the run; `NEVER` for none.

    Times are in ns on the clock of the run.

    A loop without work on that GPU is timed on the one where it has most. Of several processes, only
    the one with most work on the GPU has times.
    """
    return first_work_at(attributed, Times.of(attributed).work_start)


def first_work_at(attributed: AttributedCapture, work_start: Ints) -> Ints:
    """Return what `first_work` does, if each activity began at another time."""
    steps, step = attributed.iterations, attributed.activity_iteration
    result = np.full(len(steps), NEVER)
    rows = np.flatnonzero(step != NONE)
    step, duration = step[rows], attributed.duration[rows]
    gpu = Devices.of_report(attributed).gpu[rows]
    start = work_start[rows]
    home, loop = _homes(attributed)[step], steps.loop[step]
    for one in np.unique(loop).tolist():  # one iteration per loop
        on = (loop == one) & (gpu == bounding_gpu(attributed))
        if not on.any():
            on = (loop == one) & (gpu == _most(gpu[loop == one], duration[loop == one]))
        on[on] = home[on] == _most(home[on], duration[on])
        result = np.maximum(result, lowest(step[on], start[on], len(steps), empty=NEVER))
    return result


def _most(group: Ints, duration: Ints) -> int:
    """Return the group with the largest sum, the first of several."""
    present, number = np.unique(group, return_inverse=True)  # all may have no duration
    return int(present[np.argmax(sums(number, duration, len(present)))])


def _homes(attributed: AttributedCapture) -> Ints:
    """Return a number of the process of each iteration."""
    steps = attributed.iterations
    result = np.zeros(len(steps), np.int64)
    for at, (first, last) in enumerate(steps.by_process()):
        result[first:last] = at
    return result


@once
def is_warm_up(attributed: AttributedCapture) -> Flags:
    """Return whether each row of `AttributedCapture.iterations` is warm-up."""
    steps, loops = attributed.iterations, _iterations(attributed)
    result = np.zeros(len(steps), bool)
    for first, last in steps.by_loop():
        result[first : min(last, first + loops[steps.loop[first]].warm_up)] = True
    return result


def iteration_times(
    attributed: AttributedCapture, selected: Flags | None = None, begun: Ints | None = None
) -> list[IterationTime]:
    """Return the times of the iterations of each loop, or of those between ``selected`` ones.

    ``begun`` are other times of the first work of each than those of `first_work`.
    """
    begun = first_work(attributed) if begun is None else begun
    steps = attributed.iterations
    counted = ~is_warm_up(attributed)
    if selected is not None:
        counted = counted & selected
    device: list[list[Ints]] = [[] for _ in _iterations(attributed)]
    host: list[list[Ints]] = [[] for _ in _iterations(attributed)]
    for first, last in steps.by_loop():
        part, loop = slice(first, last), int(steps.loop[first])
        times = begun[part], steps.start[part]
        for result, time in zip((device, host), times, strict=True):
            result[loop].append(intervals(steps.number[part], time, counted[part]))
    return [
        IterationTime(*(np.concatenate([np.empty(0, np.int64), *times]) for times in of_loop))
        for of_loop in zip(device, host, strict=True)
    ]


def intervals(number: Ints, time: Ints, counted: Flags) -> Ints:
    """Return the times from each counted step to the next one by number, if both have a time.

    The next one is as far away as most are: numbers have a stride in ``Step 0 to 10``, ``Step 10 to 20``.
    """
    has_time, apart = counted & (time != NEVER), np.diff(number)
    distances, times = np.unique(apart, return_counts=True)
    usual = distances[np.argmax(times)] if len(times) else 1
    follows = has_time[:-1] & has_time[1:] & (apart == usual)
    result: Ints = np.diff(time)[follows]
    return result
