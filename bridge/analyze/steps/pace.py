"""How steady steps are: which are warm-up, which stand out, and figures of the rest."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd

from bridge.analyze.groups import Floats, highest, lowest, texts
from bridge.analyze.roles import is_communication, loads_data
from bridge.join.arrays import NONE, Flags, Ints, runs, stable, unions
from bridge.join.attributed import Attributed
from bridge.join.steps import Steps
from importers import frames
from importers.frames import shared

# -- From when to when a step took: on the host, and until the last work that it launched was done


NEVER = int(np.iinfo(np.int64).min)


@dataclass(frozen=True)
class Walls:
    """When each step started and ended, and the one before it ended (the first: itself started), in ns.

    A step whose work ran on while the host began the next one is followed by that where it ends.
    """

    before: Ints
    start: Ints
    end: Ints

    @classmethod
    def of(cls, joined: Attributed) -> Walls:
        """Measure the steps as TensorBoard's PyTorch plugin does."""
        steps, step = joined.iterations, _issued_in(joined)
        ran = step != NONE
        done = highest(step[ran], joined.end[ran], len(steps), empty=NEVER)
        end = np.maximum(steps.end, done)
        before = steps.start.copy()
        turns = [*steps.by_process()]
        left_over = _left_over(joined, step, [first for first, _ in turns])
        for (first, last), done_before in zip(turns, left_over, strict=True):
            end[first:last] = np.maximum.accumulate(end[first:last])
            before[first] = max(before[first], done_before)
            before[first + 1 : last] = end[first : last - 1]
        start = np.maximum(steps.start, before)
        return cls(before, start, np.maximum(start, end))

    @property
    def length(self) -> Ints:
        """How long each took, in ns."""
        return self.end - self.start

    @property
    def between(self) -> Ints:
        """How long after the end of the one before each started, in ns."""
        return self.start - self.before


def _issued_in(joined: Attributed) -> Ints:
    """Return the step that each activity was launched in, NONE for what was launched before the report began.

    That is what has no launch where other work of its process has one; where none has, what ran in a step is of it.
    """
    steps, step, launch = joined.iterations, joined.activity_iteration, joined.attribution.launch
    if not (launch == NONE).any():
        return step
    has = np.append(np.zeros(len(steps), bool), False)
    has[step[(launch != NONE) & (step != NONE)]] = True
    for first, last in steps.by_process():
        has[first:last] = has[first:last].any()
    return np.where((launch == NONE) & has[step], NONE, step)


def _left_over(joined: Attributed, step: Ints, firsts: list[int]) -> list[int]:
    """Return for each first step when the work of its process was done that is of no step and ended before its own began."""
    activities, steps = joined.report.activities, joined.iterations
    ran, loose = np.flatnonzero(step != NONE), np.flatnonzero(step == NONE)
    start, end = frames.ints(activities, "start"), joined.end[loose]
    began = lowest(step[ran], start[ran], len(steps), empty=NEVER)
    report, process = (frames.ints(activities, key)[loose] for key in ("report", "process"))
    found = []
    for first in firsts:  # a turn per process
        ours = (report == steps.report[first]) & (process == steps.process[first])
        found.append(int(end[ours & (end < began[first])].max(initial=NEVER)))
    return found


# -- What the time of each step was spent on: of all that went on at an instant, what counts first


# As in TensorBoard's PyTorch plugin, and in its order.
ROLES = tuple("kernel memcpy memset communication runtime dataloader cpu other".split())
DATALOADER = "dataloader"
Intervals = tuple[Ints, Ints]


def breakdown(joined: Attributed, *windows: Intervals) -> list[dict[str, Ints]]:
    """Return for each role the time of some windows, in ns, at which it was going on and none before it was.

    Windows are given as start and end for each of the steps; what is returned is a dict for each set of windows.
    """
    found = [np.zeros((len(ROLES), len(joined.iterations)), np.int64) for _ in windows]
    for own, (start, end) in zip(found, windows, strict=True):
        own[-1] = end - start
    for (first, last), roles in _by_process(joined):
        going_on = Open.of(np.empty(0, np.int64), np.empty(0, np.int64))
        for nth, role in enumerate(roles):
            going_on = going_on.also(*role)
            for own, (start, end) in zip(found, windows, strict=True):
                passed = (going_on.before(time[first:last]) for time in (end, start))
                own[nth, first:last] = np.subtract(*passed)
    return [dict(zip(ROLES, np.diff(own, axis=0, prepend=0), strict=True)) for own in found]


@dataclass(frozen=True)
class Open:
    """Times at which anything of what was added was going on: from ``start`` to ``end``, apart and in order."""

    start: Ints
    end: Ints
    passed: Ints

    @classmethod
    def of(cls, start: Ints, end: Ints) -> Open:
        """Unite intervals."""
        _, start, end = unions(np.zeros(len(start), np.int64), start, end)
        return cls(start, end, np.append(0, np.cumsum(end - start)))

    def also(self, start: Ints, end: Ints) -> Open:
        """Add intervals."""
        if not len(start):
            return self
        return Open.of(np.concatenate((self.start, start)), np.concatenate((self.end, end)))

    def before(self, time: Ints) -> Ints:
        """Return how much of the time before each instant it was going on, in ns."""
        place = np.searchsorted(self.start, time, side="left")
        late = np.append(np.iinfo(np.int64).min, self.end)[place]
        passed: Ints = self.passed[place] - np.maximum(late, time) + time
        return passed


def _by_process(joined: Attributed) -> Iterator[tuple[tuple[int, int], list[Intervals]]]:
    """Give, for each process with steps, where they are and the intervals of each role but the last."""
    steps, report = joined.iterations, joined.report
    tables = (report.activities, report.launches, report.ranges)
    keys = [[frames.ints(table, c) for c in ("report", "process")] for table in tables]
    own, *codes = shared((steps.report, steps.process), *keys)
    rows = [_apart(code) for code in codes]
    device, dataloader = _device_roles(joined), loads_data(joined)[joined.op]
    pushed = frames.is_kind(report.ranges, frames.PUSH_POP)
    start, end = frames.ints(report.activities, "start"), joined.end
    none = np.empty(0, np.int64)
    for first, last in steps.by_process():
        work, calls, ranges = (of.get(int(own[first]), none) for of in rows)
        loading = ranges[dataloader[ranges]]
        others = ranges[pushed[ranges]]
        others = others[
            ~_around(report.ranges, others, steps.start[first:last], steps.end[first:last])
        ]
        moving = [work[flags[work]] for flags in device]
        yield (
            (first, last),
            [
                *((start[of], end[of]) for of in moving),
                _times(report.launches, calls),
                _times(report.ranges, loading),
                _times(report.ranges, others),
            ],
        )


def _device_roles(joined: Attributed) -> list[Flags]:
    activities, communicates = joined.report.activities, is_communication(joined)
    memcpys, memsets = (frames.is_kind(activities, kind) for kind in (frames.MEMCPY, frames.MEMSET))
    return [~memcpys & ~memsets & ~communicates, memcpys, memsets, communicates]


def _around(ranges: pd.DataFrame, rows: Ints, start: Ints, end: Ints) -> Flags:
    """Tell which ranges hold a whole step, or are one: they say nothing of what the host did in it."""
    opened, closed = _times(ranges, rows)
    place = np.searchsorted(start, opened, side="left")
    found: Flags = np.append(end, np.iinfo(np.int64).max)[place] <= closed
    return found


def _times(table: pd.DataFrame, rows: Ints) -> Intervals:
    return frames.ints(table, "start")[rows], frames.ints(table, "end")[rows]


def _apart(code: Ints) -> dict[int, Ints]:
    """Return the rows of each code."""
    order = stable(code) if len(code) else code
    return {int(code[order[a]]): order[a:b] for a, b in pairwise(runs(code[order]).tolist())}


# -- How steady steps are: which are warm-up, which stand out, and figures of the rest


STEADY, WARM_UP, OUTLIER = STATES = ("", "warm-up", "outlier")
LEAST = 4  # steps to judge any of them
DEVIATIONS = 5  # median absolute deviations from the median that are out of the ordinary
FLOOR = 0.1  # and as much of the median


@dataclass(frozen=True)
class Pace:
    """The pace of one process, times in ns: over its steps after warm-up, outliers included.

    ``slower_by`` is the role that the slowest of them spent most on beyond that role's median, by ``excess_ns``;
    ``between_ns`` the median time between two steps, of which ``between_dataloader`` is the share that waited for data.
    ``home`` is the process's id, its name and, of several files, the file.
    """

    home: tuple[Hashable, ...]
    found: str
    steps: int
    warm_up: int
    outliers: int
    median_ns: float
    mean_ns: float
    p95_ns: float
    std_ns: float
    slowest: int
    slowest_ns: int
    slower_by: str
    excess_ns: float
    between_ns: float
    between_dataloader: float

    @property
    def variation(self) -> float:
        """The coefficient of variation: standard deviation over mean."""
        return self.std_ns / self.mean_ns if self.mean_ns else 0.0


def judged(steps: Steps, wall: Ints) -> tuple[Floats, np.ndarray]:
    """Return how much longer than the median of its process each step took, as a fraction, and its state."""
    change, state = np.zeros(len(steps)), np.zeros(len(steps), np.int64)
    for first, last in steps.by_process():
        own = wall[first:last]
        state[first:last] = _states(own)
        median = float(np.median(own[state[first:last] != STATES.index(WARM_UP)]))
        if median:
            change[first:last] = own / median - 1
    return change, texts(STATES)[state]


def paces(table: pd.DataFrame) -> list[Pace]:
    """Return the pace of each process of a table per step, however that is sorted."""
    homes = [c for c in ("pid", "process", "report") if c in table]
    parts = table.groupby(homes, sort=False, observed=True)
    return [_pace(home, part) for home, part in parts]


def _pace(home: tuple[Hashable, ...], table: pd.DataFrame) -> Pace:
    steady = table[table["state"] != WARM_UP]
    wall = steady["wall_ns"].to_numpy()
    spent = steady[[f"{role}_ns" for role in ROLES]].to_numpy()
    slowest = int(np.argmax(wall))
    between, loading = (
        steady[column].to_numpy() for column in ("between_ns", "between_dataloader_ns")
    )
    excess = spent[slowest] - np.median(spent, axis=0)
    return Pace(
        home=home,
        found=str(table["found"].iloc[0]),
        steps=len(table),
        warm_up=len(table) - len(steady),
        outliers=int((table["state"] == OUTLIER).sum()),
        median_ns=float(np.median(wall)),
        mean_ns=float(wall.mean()),
        p95_ns=float(np.quantile(wall, 0.95)),
        std_ns=float(wall.std()),
        slowest=int(steady["step"].iloc[slowest]),
        slowest_ns=int(wall[slowest]),
        slower_by=ROLES[int(np.argmax(excess))],
        excess_ns=float(excess.max()),
        between_ns=float(np.median(between)),
        between_dataloader=float(loading.sum() / max(1, between.sum())),
    )


def _states(wall: Ints) -> Ints:
    """Return which of `STATES` each step of a process is.

    Warm-up are the leading steps that took longer than is ordinary for the second half: two, or a quarter of all,
    at most, for where more did the work itself becomes less. Outliers are those after them that took longer, or
    shorter, than is ordinary for these.
    """
    state = np.zeros(len(wall), np.int64)
    if len(wall) < LEAST:
        return state
    half = len(wall) // 2
    median, bound = _ordinary(wall[half:])
    slow = np.append(wall[:half] > median + bound, False)
    leading = int(np.argmin(slow))
    leading = leading if leading <= max(2, len(wall) // 4) else 0
    state[:leading] = STATES.index(WARM_UP)
    median, bound = _ordinary(wall[leading:])
    state[leading:][np.abs(wall[leading:] - median) > bound] = STATES.index(OUTLIER)
    return state


def _ordinary(wall: Ints) -> tuple[float, float]:
    """Return the median, and how far from it is still ordinary."""
    median = float(np.median(wall))
    spread = float(np.median(np.abs(wall - median)))
    return median, max(DEVIATIONS * spread, FLOOR * median)
