"""Analyse training steps: how long each took, on what the time was spent, and which are unusual.

docs/steps.md defines every column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from bridge.analyze.core.groups import Floats, counts, highest, lowest, sums, texts
from bridge.analyze.core.kinds import is_communication, is_data_loading
from bridge.analyze.core.names import file_names
from bridge.analyze.core.table import Table
from bridge.analyze.run.parts import (
    NEVER,
    IterationTime,
    first_work,
    intervals,
    is_warm_up,
)
from bridge.importers import frames
from bridge.importers.arrays import lookup
from bridge.importers.frames import Names, distinct_keys, key_codes
from bridge.importers.records import record
from bridge.join.arrays import (
    NONE,
    Flags,
    Ints,
    Rows,
    busy_time,
    is_single_value,
    repeated,
    run_edges,
    stable_order,
    unions,
)
from bridge.join.attributed import AttributedCapture, once
from bridge.join.loops import common_name
from bridge.join.steps import FOUND, RANGE


def by_step(attributed: AttributedCapture) -> Table:
    """Return one row per step of each process, in order of time.

    ``wall_ns`` is the time from ``start_ns`` to the end of the last work launched in the step; a
    step starts where the step before ended, so that no time counts twice. ``name`` is the range of
    the step, or the work that it begins with, ``loop`` what the names of its loop have in common,
    with ``*`` for a number that differs. The times of the roles
    add up to it; of several roles at one instant the first of `ROLES` counts. ``between_ns`` is the
    time since the step before. ``activities`` and ``gpu_ns`` are those of the work launched in the
    step, whenever it ran. ``change`` is relative to the median of the steps after warm-up. With a
    selection of time, only steps with selected ranges or work are listed.
    """
    return all_steps(attributed)[is_counted(attributed)]


@once
def all_steps(attributed: AttributedCapture) -> Table:
    """Return the table of steps, the ones that are not counted included."""
    steps, walls = attributed.iterations, Walls.of(attributed)
    step, size = attributed.activity_iteration, len(attributed.iterations)
    has_step = np.flatnonzero((step != NONE) & attributed.counted)
    start, first = attributed.capture.activities.start, first_work(attributed)
    change, state = judge_steps(attributed, walls.length)
    within, between = breakdown(attributed, (walls.start, walls.end), (walls.before, walls.start))
    return Table(
        {
            "step": steps.number,
            **_process_columns(attributed),
            "found_by": texts(FOUND)[steps.found_by],
            **dict(zip(("name", "loop"), names_of_steps(attributed), strict=True)),
            "start_ns": walls.start,
            "host_start_ns": steps.start,
            "first_work_ns": np.where(first == NEVER, NONE, first),
            "wall_ns": walls.length,
            **{f"{role}_ns": time for role, time in within.items()},
            "between_ns": walls.between,
            "between_dataloader_ns": between[DATALOADER],
            "activities": counts(step[has_step], size),
            "gpu_ns": sums(step[has_step], attributed.duration[has_step], size),
            "gpu_busy_ns": busy_time(
                step[has_step], start[has_step], attributed.end[has_step], size
            ),
            "change": change,
            "state": state,
        }
    )


def _process_columns(attributed: AttributedCapture) -> dict[str, Ints | np.ndarray]:
    """Return the columns of the process of each step, and of the file if there are several."""
    steps, processes = attributed.iterations, attributed.capture.processes
    keys = zip(processes.report.tolist(), processes.process.tolist(), strict=True)
    names = dict(zip(keys, processes.name, strict=True))
    keys_of_steps = zip(steps.report.tolist(), steps.process.tolist(), strict=True)
    result: dict[str, Ints | np.ndarray] = {
        "pid": frames.pid(steps.process),
        "process": texts(names.get(key, "").rpartition("/")[2] for key in keys_of_steps),
    }
    of_file = file_names(attributed.capture)
    return result | ({"report": texts(of_file)[steps.report]} if len(of_file) > 1 else {})


def names_of_steps(attributed: AttributedCapture) -> tuple[np.ndarray, np.ndarray]:
    """Return the name of each step, and that of its loop; no two loops have one name."""
    steps, ranges = attributed.iterations, attributed.capture.ranges
    begins = _texts_of(attributed.activity_name, steps.first)
    name = np.where(steps.range == NONE, begins, _texts_of(ranges.name, steps.range))
    used: Counter[str] = Counter()
    loops = []
    for at in range(len(attributed.loops.iterations)):  # one iteration per loop
        own = np.flatnonzero(steps.loop == at)
        ranges_of_loop = steps.range[own][steps.range[own] != NONE]
        is_named = steps.found_by[own[0]] == RANGE and len(ranges_of_loop)
        text = common_name(ranges.name, ranges_of_loop) if is_named else name[own[0]]
        used[text] += 1
        loops.append(text if used[text] == 1 else f"{text} ({used[text]})")
    return name, texts(loops)[steps.loop]


def _texts_of(column: Names, rows: Ints) -> np.ndarray:
    """Return the texts of a column in rows, "" for NONE."""
    return Names(lookup(column.codes, rows), column.texts).to_numpy()


def is_counted(attributed: AttributedCapture) -> Flags:
    """Return whether the range of each step is selected, or for a step without one its work."""
    steps = attributed.iterations
    if attributed.selection is None:
        return np.ones(len(steps), bool)
    step = attributed.activity_iteration[attributed.accounted]
    has_work = counts(step[step != NONE], len(steps)) > 0
    is_selected: Flags = lookup(attributed.selection.ranges, steps.range, False)
    return is_selected | has_work


__all__ = ["FOUND", "ROLES", "by_step"]


# -- Start and end of steps


@record
class Walls:
    """Start and end of each step, and the end of the step before, in ns.

    ``before`` of the first step is its own start. A step whose work runs on while the host begins
    the next one delays the start of that one.
    """

    before: Ints
    start: Ints
    end: Ints

    @classmethod
    def of(cls, attributed: AttributedCapture) -> Walls:
        """Return the times of steps as the PyTorch plugin of TensorBoard defines them."""
        steps, step = attributed.iterations, attributed.activity_iteration
        has_step = step != NONE
        work_end = highest(step[has_step], attributed.end[has_step], len(steps), empty=NEVER)
        end = np.maximum(steps.end, work_end)
        before = steps.start.copy()
        processes = [*steps.by_process()]
        loose_ends = _loose_work_ends(attributed, step, [first for first, _ in processes])
        for (first, last), loose_end in zip(processes, loose_ends, strict=True):
            end[first:last] = np.maximum.accumulate(end[first:last])
            before[first] = max(before[first], loose_end)
            before[first + 1 : last] = end[first : last - 1]
        start = np.maximum(steps.start, before)
        return cls(before, start, np.maximum(start, end))

    @property
    def length(self) -> Ints:
        """Length of each step in ns."""
        return self.end - self.start

    @property
    def between(self) -> Ints:
        """Time between the end of the step before and the start of each step, in ns."""
        return self.start - self.before


def _loose_work_ends(attributed: AttributedCapture, step: Ints, firsts: list[int]) -> list[int]:
    """Return, for the first step of each process, the end of earlier work that belongs to no step.

    Work counts if it ended before the work of the step began.
    """
    activities, steps = attributed.capture.activities, attributed.iterations
    in_steps, outside = np.flatnonzero(step != NONE), np.flatnonzero(step == NONE)
    start, end = activities.start, attributed.end[outside]
    work_start = lowest(step[in_steps], start[in_steps], len(steps), empty=NEVER)
    report, process = activities.report[outside], activities.process[outside]
    result = []
    for first in firsts:  # one iteration per process
        is_of_process = (report == steps.report[first]) & (process == steps.process[first])
        result.append(int(end[is_of_process & (end < work_start[first])].max(initial=NEVER)))
    return result


# -- Time of steps by role


# The roles of the PyTorch plugin of TensorBoard, in its order.
ROLES = tuple("kernel memcpy memset communication runtime dataloader cpu other".split())
DATALOADER = "dataloader"
Intervals = tuple[Ints, Ints]


def breakdown(attributed: AttributedCapture, *windows: Intervals) -> list[dict[str, Ints]]:
    """Return the time of each role within windows, in ns, while no earlier role was active.

    Each set of windows is a start and an end per step; the result has one dict per set.
    """
    result = [np.zeros((len(ROLES), len(attributed.iterations)), np.int64) for _ in windows]
    for times, (start, end) in zip(result, windows, strict=True):
        times[-1] = end - start
    for (first, last), roles in _by_process(attributed):
        coverage = Coverage.of(np.empty(0, np.int64), np.empty(0, np.int64))
        for number, of_role in enumerate(roles):
            coverage = coverage.union(*of_role)
            for times, (start, end) in zip(result, windows, strict=True):
                passed = (coverage.before(time[first:last]) for time in (end, start))
                times[number, first:last] = np.subtract(*passed)
    return [dict(zip(ROLES, np.diff(times, axis=0, prepend=0), strict=True)) for times in result]


@record
class Coverage:
    """Union of intervals, disjoint and in order; ``passed`` is the covered time before each."""

    start: Ints
    end: Ints
    passed: Ints

    @classmethod
    def of(cls, start: Ints, end: Ints) -> Coverage:
        """Return the union of intervals."""
        _, start, end = unions(repeated(0, len(start)), start, end)
        return cls(start, end, np.append(0, np.cumsum(end - start)))

    def union(self, start: Ints, end: Ints) -> Coverage:
        """Return the union with more intervals."""
        if not len(start):
            return self
        return Coverage.of(np.concatenate((self.start, start)), np.concatenate((self.end, end)))

    def before(self, time: Ints) -> Ints:
        """Return the covered time before each instant, in ns."""
        following = np.searchsorted(self.start, time, side="left")
        next_end = np.append(np.iinfo(np.int64).min, self.end)[following]
        covered: Ints = self.passed[following] - np.maximum(next_end, time) + time
        return covered


def _by_process(
    attributed: AttributedCapture,
) -> Iterator[tuple[tuple[int, int], Iterator[Intervals]]]:
    """Yield the positions of each process's steps, and the intervals of all roles but the last, one after another."""
    steps, capture = attributed.iterations, attributed.capture
    tables = (capture.activities, capture.launches, capture.ranges)
    keys = [[table.report, table.process] for table in tables]
    code_of_step, *codes = key_codes((steps.report, steps.process), *keys)
    rows = [_rows_by_code(code) for code in codes]
    start, end = capture.activities.start, attributed.end
    device = _device_roles(attributed)
    loads_data = is_data_loading(attributed)[attributed.op]
    is_pushed = capture.ranges.kind.among(frames.PUSH_POP)

    def intervals_of(own: slice, work: Rows, calls: Rows, ranges: Rows) -> Iterator[Intervals]:
        for flags in device:
            of_role = work[flags[work]]
            yield start[of_role], end[of_role]
        yield _times(capture.launches, calls)
        yield _times(capture.ranges, ranges[loads_data[ranges]])
        others = ranges[is_pushed[ranges]]
        encloses = _encloses_step(capture.ranges, others, steps.start[own], steps.end[own])
        yield _times(capture.ranges, others[~encloses])

    none = np.empty(0, np.int32)
    for first, last in steps.by_process():
        own = (by_code.get(int(code_of_step[first]), none) for by_code in rows)
        yield (first, last), intervals_of(slice(first, last), *own)


def _device_roles(attributed: AttributedCapture) -> list[Flags]:
    activities, communicates = attributed.capture.activities, is_communication(attributed)
    memcpys, memsets = (activities.kind.among(kind) for kind in (frames.MEMCPY, frames.MEMSET))
    return [~memcpys & ~memsets & ~communicates, memcpys, memsets, communicates]


def _encloses_step(ranges: frames.Ranges, rows: Rows, start: Ints, end: Ints) -> Flags:
    """Return whether each range encloses a whole step, as such a range does not tell what ran."""
    starts, ends = _times(ranges, rows)
    following = np.searchsorted(start, starts, side="left")
    result: Flags = np.append(end, np.iinfo(np.int64).max)[following] <= ends
    return result


def _times(table: frames.HostEvents, rows: Rows) -> Intervals:
    return table.start[rows], table.end[rows]


def _rows_by_code(code: Ints) -> dict[int, Rows]:
    if is_single_value(code) and len(code):
        return {int(code[0]): np.arange(len(code), dtype=np.int32)}
    order = (stable_order(code) if len(code) else code).astype(np.int32)
    return {int(code[order[a]]): order[a:b] for a, b in pairwise(run_edges(code[order]).tolist())}


# -- Warm-up, outliers and pace


STEADY, WARM_UP, OUTLIER = STATES = ("", "warm-up", "outlier")
STEADY_STATE = STATES.index(STEADY)
MIN_STEPS = 4  # fewer steps are not judged
DEVIATIONS = (
    5  # an unusual step is further from the median than this many median absolute deviations
)
MIN_DEVIATION = 0.1  # and than this fraction of the median


@record
class Pace:
    """The pace of one loop: figures over its steps after warm-up, outliers included; in ns.

    ``count`` is the number of iterations, each of all processes of the loop, warm-up included.
    ``slower_by`` is the role in which the slowest step exceeds the median the most, by
    ``excess_ns``. ``iteration_ns`` is the median time of an iteration (`IterationTime`), ``host_ns``
    that on the host, and ``between_ns`` that from the end of a step to the next one, 0 if no two
    steps follow each other; ``loading_ns`` is the median of the time between two steps that waited
    for data. ``pids`` are the processes, ``file`` with several files the first one's. ``loop`` is its
    name, ``names`` are those of its first and its last step.
    """

    loop: str
    pids: tuple[int, ...]
    file: str
    found_by: str
    count: int
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
    iteration: IterationTime
    between_ns: float
    loading_ns: float
    names: tuple[str, str]

    @property
    def iteration_ns(self) -> float:
        return self.iteration.ns

    @property
    def host_ns(self) -> float:
        return self.iteration.host_ns

    @property
    def variation(self) -> float:
        """Coefficient of variation: standard deviation over mean."""
        return self.std_ns / self.mean_ns if self.mean_ns else 0.0


def judge_steps(attributed: AttributedCapture, wall: Ints) -> tuple[Floats, np.ndarray]:
    """Return the change of each iteration against the median of its loop in its process, and its state.

    The change is a fraction; the median is that of the steps after warm-up, if there are any. Outliers
    are later steps that take longer or shorter than is ordinary.
    """
    steps, state = attributed.iterations, is_warm_up(attributed).astype(np.int64)
    change = np.zeros(len(steps))
    for first, last in steps.by_loop():
        own, length = state[first:last], wall[first:last]
        counted = length if own.all() else length[own == STEADY_STATE]
        median = float(np.median(counted))
        bound = max(DEVIATIONS * float(np.median(np.abs(counted - median))), MIN_DEVIATION * median)
        if median:
            change[first:last] = length / median - 1
        if len(length) >= MIN_STEPS:
            own[(own == STEADY_STATE) & (np.abs(length - median) > bound)] = STATES.index(OUTLIER)
    return change, texts(STATES)[state]


def paces(table: Table) -> list[Pace]:
    """Return the pace of each loop in a table of steps, which may be in any order."""
    return [_pace(part) for part in _parts(table, ["loop"])]


def _parts(table: Table, keys: Sequence[str]) -> list[Table]:
    """Return the rows of each combination of keys, in the order of their first rows."""
    codes, first = distinct_keys(*(Names.of(map(str, table[key].tolist())).codes for key in keys))
    return [table[codes == code] for code in np.argsort(first).tolist()]


def _pace(table: Table) -> Pace:
    is_steady = table["state"] != WARM_UP
    steady = table[is_steady] if is_steady.any() else table
    wall = steady["wall_ns"]
    spent = np.stack([steady[f"{role}_ns"] for role in ROLES], axis=1)
    slowest = int(np.argmax(wall))
    excess = spent[slowest] - np.median(spent, axis=0)
    home = [c for c in ("report", "pid") if c in table]
    own = _parts(table, home)
    in_order = table.sort_values("start_ns")
    between = np.concatenate([_between(part) for part in own])
    return Pace(
        loop=str(table["loop"][0]),
        pids=tuple(dict.fromkeys(int(pid) for pid in table["pid"])),
        file=str(table["report"][0]) if "report" in table else "",
        found_by=str(table["found_by"][0]),
        count=max(map(len, own)),
        warm_up=max(int((part["state"] == WARM_UP).sum()) for part in own),
        outliers=int((table["state"] == OUTLIER).sum()),
        median_ns=float(np.median(wall)),
        mean_ns=float(wall.mean()),
        p95_ns=float(np.quantile(wall, 0.95)),
        std_ns=float(wall.std()),
        slowest=int(steady["step"][slowest]),
        slowest_ns=int(wall[slowest]),
        slower_by=ROLES[int(np.argmax(excess))],
        excess_ns=float(excess.max()),
        iteration=_iteration(own),
        between_ns=float(np.median(between)) if len(between) else 0.0,
        loading_ns=float(np.median(steady["between_dataloader_ns"])),
        names=(str(in_order["name"][0]), str(in_order["name"][-1])),
    )


def _iteration(parts: Iterable[Table]) -> IterationTime:
    """Return the times of the iterations of a loop; ``parts`` are its steps in each process."""
    columns: list[list[Ints]] = [[np.empty(0, np.int64)], [np.empty(0, np.int64)]]
    for part in parts:
        steps = part.sort_values("step")
        counted = steps["state"] != WARM_UP
        first = steps["first_work_ns"]
        times = np.where(first == NONE, NEVER, first), steps["host_start_ns"]
        for column, time in zip(columns, times, strict=True):
            column.append(intervals(steps["step"], time, counted))
    return IterationTime(*map(np.concatenate, columns))


def _between(table: Table) -> Ints:
    """Return the time between each step of a process and the next one by number, without warm-up."""
    steps = table.sort_values("step")
    counted = steps["state"] != WARM_UP
    follows = counted[:-1] & (np.diff(steps["step"]) == 1)
    result: Ints = steps["between_ns"][1:][follows]
    return result
