"""Analyse training steps: how long each took, on what the time was spent, and which are unusual.

docs/steps.md defines every column.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from bridge.analyze.core.groups import Floats, counts, highest, lowest, sums, texts
from bridge.analyze.core.kinds import is_communication, is_data_loading
from bridge.analyze.core.names import file_names
from bridge.importers import frames
from bridge.importers.frames import key_codes
from bridge.join.arrays import NONE, Flags, Ints, busy_time, run_edges, stable_order, unions
from bridge.join.attributed import AttributedCapture, once
from bridge.join.families import Families
from bridge.join.steps import FOUND, Steps


def by_step(attributed: AttributedCapture) -> pd.DataFrame:
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
    return all_steps(attributed)[is_counted(attributed)].reset_index(drop=True)


@once
def all_steps(attributed: AttributedCapture) -> pd.DataFrame:
    """Return the table of steps, the ones that are not counted included."""
    steps, walls = attributed.iterations, Walls.of(attributed)
    step, size = attributed.activity_iteration, len(attributed.iterations)
    has_step = np.flatnonzero((step != NONE) & attributed.counted)
    start = attributed.capture.activities["start"].to_numpy()
    change, state = judge_steps(steps, walls.length)
    within, between = breakdown(attributed, (walls.start, walls.end), (walls.before, walls.start))
    return pd.DataFrame(
        {
            "step": steps.number,
            **_process_columns(attributed),
            "found_by": texts(FOUND)[steps.found_by],
            **dict(zip(("name", "loop"), names_of_steps(attributed), strict=True)),
            "start_ns": walls.start,
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
    keys = zip(processes["report"].tolist(), processes["process"].tolist(), strict=True)
    names = dict(zip(keys, processes["name"].astype(str).tolist(), strict=True))
    keys_of_steps = zip(steps.report.tolist(), steps.process.tolist(), strict=True)
    result: dict[str, Ints | np.ndarray] = {
        "pid": frames.pid(steps.process),
        "process": texts(names.get(key, "").rpartition("/")[2] for key in keys_of_steps),
    }
    of_file = file_names(attributed.capture)
    return result | ({"report": texts(of_file)[steps.report]} if len(of_file) > 1 else {})


def names_of_steps(attributed: AttributedCapture) -> tuple[np.ndarray, np.ndarray]:
    """Return the name of each step, and that of its loop; loops of one process have different names."""
    steps, ranges = attributed.iterations, attributed.capture.ranges
    begins = _texts_of(attributed.activity_name, steps.first)
    name = np.where(steps.range == NONE, begins, _texts_of(ranges["name"], steps.range))
    loop = name.copy()
    used: dict[tuple[int, int, str], int] = {}
    for first, last in steps.by_loop():  # one iteration per loop
        text = _common_name(dict.fromkeys(name[first:last].tolist()))
        key = int(steps.report[first]), int(steps.process[first]), text
        used[key] = used.get(key, 0) + 1
        loop[first:last] = text if used[key] == 1 else f"{text} ({used[key]})"
    return name, loop


def _texts_of(column: pd.Series, rows: Ints) -> np.ndarray:
    """Return the texts of a categorical in rows, "" for NONE."""
    code = np.append(frames.codes(column), NONE)[rows]
    result: np.ndarray = texts([*column.cat.categories, ""])[code]
    return result


def _common_name(names: Iterable[str]) -> str:
    """Return what the names of the steps of a loop have in common, or the first one."""
    distinct = list(names)
    families = Families.of(distinct)
    is_one = len(families.text) == 1 and (families.family != NONE).all()
    return families.text[0] if is_one else distinct[0]


def is_counted(attributed: AttributedCapture) -> Flags:
    """Return whether the range of each step is selected, or for a step without one its work."""
    steps = attributed.iterations
    if attributed.selection is None:
        return np.ones(len(steps), bool)
    step = attributed.activity_iteration[attributed.accounted]
    has_work = counts(step[step != NONE], len(steps)) > 0
    is_selected: Flags = np.append(attributed.selection.ranges, False)[steps.range]
    return is_selected | has_work


__all__ = ["FOUND", "ROLES", "by_step"]


# -- Start and end of steps


NEVER = int(np.iinfo(np.int64).min)


@dataclass(frozen=True)
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
        steps, step = attributed.iterations, _launch_steps(attributed)
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


def _launch_steps(attributed: AttributedCapture) -> Ints:
    """Return the step in which each activity was launched.

    It is NONE for work launched before the recording began, that is work without a launch in a
    process whose other work in steps has launches. In other processes work belongs to the step in
    which it ran.
    """
    steps, step, launch = (
        attributed.iterations,
        attributed.activity_iteration,
        attributed.attribution.launch,
    )
    if not (launch == NONE).any():
        return step
    has_launch = np.append(np.zeros(len(steps), bool), False)
    has_launch[step[(launch != NONE) & (step != NONE)]] = True
    for first, last in steps.by_process():
        has_launch[first:last] = has_launch[first:last].any()
    return np.where((launch == NONE) & has_launch[step], NONE, step)


def _loose_work_ends(attributed: AttributedCapture, step: Ints, firsts: list[int]) -> list[int]:
    """Return, for the first step of each process, the end of earlier work that belongs to no step.

    Work counts if it ended before the work of the step began.
    """
    activities, steps = attributed.capture.activities, attributed.iterations
    in_steps, outside = np.flatnonzero(step != NONE), np.flatnonzero(step == NONE)
    start, end = frames.ints(activities, "start"), attributed.end[outside]
    work_start = lowest(step[in_steps], start[in_steps], len(steps), empty=NEVER)
    report, process = (frames.ints(activities, key)[outside] for key in ("report", "process"))
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
        for number, role in enumerate(roles):
            coverage = coverage.union(*role)
            for times, (start, end) in zip(result, windows, strict=True):
                passed = (coverage.before(time[first:last]) for time in (end, start))
                times[number, first:last] = np.subtract(*passed)
    return [dict(zip(ROLES, np.diff(times, axis=0, prepend=0), strict=True)) for times in result]


@dataclass(frozen=True)
class Coverage:
    """Union of intervals, disjoint and in order; ``passed`` is the covered time before each."""

    start: Ints
    end: Ints
    passed: Ints

    @classmethod
    def of(cls, start: Ints, end: Ints) -> Coverage:
        """Return the union of intervals."""
        _, start, end = unions(np.zeros(len(start), np.int64), start, end)
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


def _by_process(attributed: AttributedCapture) -> Iterator[tuple[tuple[int, int], list[Intervals]]]:
    """Yield the positions of each process's steps, and the intervals of all roles but the last."""
    steps, capture = attributed.iterations, attributed.capture
    tables = (capture.activities, capture.launches, capture.ranges)
    keys = [[frames.ints(table, c) for c in ("report", "process")] for table in tables]
    code_of_step, *codes = key_codes((steps.report, steps.process), *keys)
    rows = [_rows_by_code(code) for code in codes]
    device = _device_roles(attributed)
    loads_data = is_data_loading(attributed)[attributed.op]
    is_pushed = frames.is_kind(capture.ranges, frames.PUSH_POP)
    start, end = frames.ints(capture.activities, "start"), attributed.end
    none = np.empty(0, np.int64)
    for first, last in steps.by_process():
        work, calls, ranges = (by_code.get(int(code_of_step[first]), none) for by_code in rows)
        loading = ranges[loads_data[ranges]]
        others = ranges[is_pushed[ranges]]
        others = others[
            ~_encloses_step(capture.ranges, others, steps.start[first:last], steps.end[first:last])
        ]
        device_rows = [work[flags[work]] for flags in device]
        yield (
            (first, last),
            [
                *((start[mask], end[mask]) for mask in device_rows),
                _times(capture.launches, calls),
                _times(capture.ranges, loading),
                _times(capture.ranges, others),
            ],
        )


def _device_roles(attributed: AttributedCapture) -> list[Flags]:
    activities, communicates = attributed.capture.activities, is_communication(attributed)
    memcpys, memsets = (frames.is_kind(activities, kind) for kind in (frames.MEMCPY, frames.MEMSET))
    return [~memcpys & ~memsets & ~communicates, memcpys, memsets, communicates]


def _encloses_step(ranges: pd.DataFrame, rows: Ints, start: Ints, end: Ints) -> Flags:
    """Return whether each range encloses a whole step, as such a range does not tell what ran."""
    starts, ends = _times(ranges, rows)
    following = np.searchsorted(start, starts, side="left")
    result: Flags = np.append(end, np.iinfo(np.int64).max)[following] <= ends
    return result


def _times(table: pd.DataFrame, rows: Ints) -> Intervals:
    return frames.ints(table, "start")[rows], frames.ints(table, "end")[rows]


def _rows_by_code(code: Ints) -> dict[int, Ints]:
    order = stable_order(code) if len(code) else code
    return {int(code[order[a]]): order[a:b] for a, b in pairwise(run_edges(code[order]).tolist())}


# -- Warm-up, outliers and pace


STEADY, WARM_UP, OUTLIER = STATES = ("", "warm-up", "outlier")
MIN_STEPS = 4  # fewer steps are not judged
DEVIATIONS = (
    5  # an unusual step is further from the median than this many median absolute deviations
)
MIN_DEVIATION = 0.1  # and than this fraction of the median


@dataclass(frozen=True)
class Pace:
    """The pace of one loop: figures over its steps after warm-up, outliers included; in ns.

    ``slower_by`` is the role in which the slowest step exceeds the median the most, by
    ``excess_ns``. ``iteration_ns`` is the median time from the start of a step to the start of the
    next one, and ``between_ns`` that from its end, both 0 if no two steps follow each other;
    ``loading_ns`` is the median of the time between two steps that waited for data. ``home`` is the
    process id, the process name and, with several files, the file; where a process has several
    loops also the loop. ``loop`` is its name, ``names`` are those of its first and its last step.
    """

    home: tuple[Hashable, ...]
    found_by: str
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
    iteration_ns: float
    between_ns: float
    loading_ns: float
    loop: str = ""
    names: tuple[str, str] = ("", "")

    @property
    def variation(self) -> float:
        """Coefficient of variation: standard deviation over mean."""
        return self.std_ns / self.mean_ns if self.mean_ns else 0.0


def judge_steps(steps: Steps, wall: Ints) -> tuple[Floats, np.ndarray]:
    """Return the change of each step against the median of its loop, and its state.

    The change is a fraction; the median is that of the steps after warm-up.
    """
    change, state = np.zeros(len(steps)), np.zeros(len(steps), np.int64)
    for first, last in steps.by_loop():
        wall_of_loop = wall[first:last]
        state[first:last] = _states(wall_of_loop)
        median = float(np.median(wall_of_loop[state[first:last] != STATES.index(WARM_UP)]))
        if median:
            change[first:last] = wall_of_loop / median - 1
    return change, texts(STATES)[state]


def paces(table: pd.DataFrame) -> list[Pace]:
    """Return the pace of each loop in a table of steps, which may be in any order."""
    homes = [c for c in ("pid", "process", "report") if c in table]
    if "loop" in table and len(table[[*homes, "loop"]].drop_duplicates()) > len(
        table[homes].drop_duplicates()
    ):
        homes.append("loop")
    parts = table.groupby(homes, sort=False, observed=True)
    return [_pace(home, part) for home, part in parts]


def _pace(home: tuple[Hashable, ...], table: pd.DataFrame) -> Pace:
    steady = table[table["state"] != WARM_UP]
    wall = steady["wall_ns"].to_numpy()
    spent = steady[[f"{role}_ns" for role in ROLES]].to_numpy()
    slowest = int(np.argmax(wall))
    excess = spent[slowest] - np.median(spent, axis=0)
    iteration, between = _iteration(table)
    return Pace(
        home=home,
        found_by=str(table["found_by"].iloc[0]),
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
        iteration_ns=iteration,
        between_ns=between,
        loading_ns=float(np.median(steady["between_dataloader_ns"])),
        **_names(table),
    )


def _names(table: pd.DataFrame) -> dict[str, Any]:
    """Return the name of the loop, and of its first and its last step."""
    if "loop" not in table:
        return {}
    in_order = table.sort_values("start_ns", kind="stable")
    first, last = (str(in_order["name"].iloc[at]) for at in (0, -1))
    return {"loop": str(table["loop"].iloc[0]), "names": (first, last)}


def _iteration(table: pd.DataFrame) -> tuple[float, float]:
    """Return the median times from start to start, and from end to start, of consecutive steps in ns.

    Steps after warm-up count; both are 0 if none of them follows another.
    """
    table = table.sort_values("step")
    is_counted = _is_followed(table)
    times = np.diff(table["start_ns"])[is_counted]
    between = table["between_ns"].to_numpy()[1:][is_counted]
    return (float(np.median(times)), float(np.median(between))) if len(times) else (0.0, 0.0)


def iteration_times(attributed: AttributedCapture) -> Ints:
    """Return the times from the start of each step to that of the next one, in ns.

    They are those of all processes, without steps of the warm-up, and of the selected steps alone.
    """
    steps, walls = attributed.iterations, Walls.of(attributed)
    table = pd.DataFrame(
        {
            "step": steps.number,
            "start_ns": walls.start,
            "state": judge_steps(steps, walls.length)[1],
        }
    )
    is_selected = is_counted(attributed)
    result = [np.empty(0, np.int64)]
    for first, last in steps.by_loop():
        of_loop = table[first:last][is_selected[first:last]].sort_values("step")
        result.append(np.diff(of_loop["start_ns"])[_is_followed(of_loop)])
    return np.concatenate(result)


def _is_followed(table: pd.DataFrame) -> Flags:
    """Return whether the next step of a process follows each step but the last, and it is no warm-up."""
    result: Flags = (np.diff(table["step"]) == 1) & (table["state"] != WARM_UP).to_numpy()[:-1]
    return result


def _states(wall: Ints) -> Ints:
    """Return the state of each step of a process, a position in `STATES`.

    Warm-up are the leading steps that take longer than is ordinary in the second half. They are at
    most two or a quarter of all steps; if more are slow, the work itself becomes shorter. Outliers
    are later steps that take longer or shorter than is ordinary.
    """
    state = np.zeros(len(wall), np.int64)
    if len(wall) < MIN_STEPS:
        return state
    half = len(wall) // 2
    median, bound = _ordinary(wall[half:])
    is_slow = np.append(wall[:half] > median + bound, False)
    leading = int(np.argmin(is_slow))
    leading = leading if leading <= max(2, len(wall) // 4) else 0
    state[:leading] = STATES.index(WARM_UP)
    median, bound = _ordinary(wall[leading:])
    state[leading:][np.abs(wall[leading:] - median) > bound] = STATES.index(OUTLIER)
    return state


def _ordinary(wall: Ints) -> tuple[float, float]:
    """Return the median, and the deviation from it that is still ordinary."""
    median = float(np.median(wall))
    spread = float(np.median(np.abs(wall - median)))
    return median, max(DEVIATIONS * spread, MIN_DEVIATION * median)
