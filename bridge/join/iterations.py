"""Iterations of a training loop, where the named steps are not exactly those.

A profiler's step lasts from one call of its ``step()`` to the next one. So the part of the program
after the last call looks like a step, and that before the first call may have no range. Without
named steps the optimizer's steps divide a training into iterations.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from bridge.importers import frames
from bridge.importers.capture import Capture
from bridge.join.arrays import NONE, Flags, Ints, order_by
from bridge.join.grammar import parse
from bridge.join.steps import (
    KINDS,
    OPTIMIZER,
    Steps,
    in_order,
    is_on_main_thread,
    outermost,
)

# -- The ops of one process in the order of their start


@dataclass(frozen=True)
class _Ops:
    """The op ranges of a process in the order of their start: rows, start in ns, code of the op."""

    row: Ints
    start: Ints
    op: Ints

    @classmethod
    def of(cls, capture: Capture, op: Ints, key: tuple[int, int], without: Ints) -> _Ops:
        """Return the ops of a process, (report, process), but for the rows ``without``."""
        report, process, start = (
            frames.ints(capture.ranges, column) for column in ("report", "process", "start")
        )
        is_member = (report == key[0]) & (process == key[1]) & (op != NONE)
        is_member[without] = False
        rows = np.flatnonzero(is_member)
        rows = rows[order_by(start[rows])]
        return cls(rows, start[rows], op[rows])

    def before(self, time: int) -> int:
        """Return the number of ops that start before a time."""
        return int(np.searchsorted(self.start, time))

    def first_of_iteration(self, end: int, second: tuple[int, int]) -> int:
        """Return the index of the op with which the first iteration begins, or NONE.

        The ops that start before ``end`` are set-up and first iteration; the ops that start in the
        interval ``second`` are the second iteration. Its first op that the ops before ``end``
        contain begins an iteration; of the calls before ``end``, as many belong to the first
        iteration as the second one has.
        """
        earlier = self.op[: self.before(end)]
        second_ops = self.op[self.before(second[0]) : self.before(second[1])]
        known = np.flatnonzero(np.isin(second_ops, earlier))
        if not len(known):
            return NONE
        first = second_ops[known[0]]
        calls = np.flatnonzero(earlier == first)
        count = min(len(calls), int(np.count_nonzero(second_ops == first)))
        return int(calls[-count])


# -- Steps of a profiler: the parts before its first and after its last call of step()


PROFILER_STEP = KINDS[0]
MIN_STEPS = 3  # of fewer, the last one is a step whatever it holds
MIN_HELD = 0.5  # share of what all steps hold that a last step holds at least
MIN_LENGTH = 0.5  # of the shortest step, for a last step if no step holds anything


def with_loop_ends(steps: Steps, capture: Capture, op: Ints, ops: Sequence[str]) -> Steps:
    """Return ``steps`` without what follows the last iteration, and with an unnamed first one.

    Only steps of a profiler (``ProfilerStep#N``) change. ``op`` is the code of each range into
    ``ops``, or NONE.
    """
    of_profiler = _matches(capture.ranges["name"], PROFILER_STEP)
    if not of_profiler[steps.range].any():
        return steps
    result = _with_first_steps(steps, of_profiler, capture, op)
    contents = _Contents.of(result, capture, np.where(_is_in(steps.range, op), NONE, op), ops)
    kept = np.ones(len(result), bool)
    for first, last in result.by_process():
        if last - first >= MIN_STEPS and of_profiler[result.range[last - 1]]:
            kept[last - 1] = not contents.is_trailing(result, first, last)
    return result if kept.all() else result.select(kept)


def _is_in(rows: Ints, table: Ints) -> Flags:
    result = np.zeros(len(table), bool)
    result[rows] = True
    return result


def _with_first_steps(steps: Steps, of_profiler: Flags, capture: Capture, op: Ints) -> Steps:
    """Return the steps with step 0 of each process whose first step is 1, if its begin is known.

    A session without a schedule knows that it has steps when the first one ends.
    """
    added = []
    for first, _ in steps.by_process():
        if steps.number[first] == 1 and of_profiler[steps.range[first]]:
            key = int(steps.report[first]), int(steps.process[first])
            ops = _Ops.of(capture, op, key, steps.range)
            start, end = int(steps.start[first]), int(steps.end[first])
            if (at := ops.first_of_iteration(start, (start, end))) != NONE:
                changed = {"range": ops.row[at], "number": 0, "start": ops.start[at], "end": start}
                columns = {name: np.array([value]) for name, value in changed.items()}
                added.append(replace(steps.select(np.array([first])), **columns))
    return Steps.concatenate([steps, *added]) if added else steps


@dataclass(frozen=True)
class _Contents:
    """What steps hold, once per step and name: a step, and a code of an op or an API call."""

    step: Ints
    name: Ints

    @classmethod
    def of(cls, steps: Steps, capture: Capture, op: Ints, ops: Sequence[str]) -> _Contents:
        """Return the contents, without waits for data; ``op`` is NONE for the steps themselves."""
        is_content = np.array([*(parse(name).kind != "dataloader" for name in ops), False], bool)[
            op
        ]
        is_content[steps.range] = False
        rows = np.flatnonzero(is_content)
        call = frames.codes(capture.launches["name"])
        places = [_places(steps, capture.ranges)[rows], _places(steps, capture.launches)]
        step, name = np.concatenate(places), np.concatenate((op[rows], call + len(ops)))
        inside = step != NONE
        size = int(name.max(initial=0)) + 1
        return cls(*np.divmod(np.unique(step[inside] * size + name[inside]), size))

    def is_trailing(self, steps: Steps, first: int, last: int) -> bool:
        """Return whether the last of the steps [first, last) is what follows the last iteration."""
        is_earlier = (self.step >= first) & (self.step < last - 1)
        names, counts = np.unique(self.name[is_earlier], return_counts=True)
        common = names[counts == last - 1 - first]
        if len(common):
            held = np.isin(common, self.name[self.step == last - 1])
            return bool(held.mean() < MIN_HELD)
        length = (steps.end - steps.start)[first:last]
        return bool(length[-1] < MIN_LENGTH * length[:-1].min())


def _places(steps: Steps, table: pd.DataFrame) -> Ints:
    """Return the step in which each row of a table starts, or NONE."""
    return steps.at(*(frames.ints(table, column) for column in ("report", "process", "start")))


# -- Steps of an optimizer


# The name in PyTorch's `record_function`; `emit_nvtx` appends ``, seq = 1`` to it.
OPTIMIZER_STEP = re.compile(r"Optimizer\.step#[^,]*(?:,.*)?", re.DOTALL)
MIN_OPTIMIZER_STEPS = 2  # a single one does not show where its iteration begins


def with_optimizer_steps(steps: Steps, capture: Capture, op: Ints) -> Steps:
    """Return ``steps`` and, for processes that have none, those that optimizers end.

    An iteration ends with the step of an optimizer, or of several optimizers with nothing between
    them, and begins where the one before ended. ``op`` is a code per range, or NONE.
    """
    ranges = capture.ranges
    is_optimizer = _matches(ranges["name"], OPTIMIZER_STEP)[:-1]
    report, process, start, end = (
        frames.ints(ranges, column) for column in ("report", "process", "start", "end")
    )
    rows = np.flatnonzero(is_optimizer & frames.is_kind(ranges, frames.PUSH_POP))
    rows = rows[is_on_main_thread(capture, rows, np.zeros(len(rows), np.int64))]
    unknown = np.full(len(rows), NONE)
    report, process, start, end = (column[rows] for column in (report, process, start, end))
    none = np.zeros(len(rows), np.int64)
    steps_of_calls = Steps(
        range=rows,
        number=rows,
        report=report,
        process=process,
        start=start,
        end=end,
        found_by=none,
        loop=none,
        first=unknown,
    )
    calls = outermost(in_order(steps_of_calls))
    with_steps = set(zip(steps.report.tolist(), steps.process.tolist(), strict=True))
    found = [
        _iterations(calls.select(np.arange(first, last)), capture, op)
        for first, last in calls.by_process()
        if (int(calls.report[first]), int(calls.process[first])) not in with_steps
    ]
    return Steps.concatenate([steps, *found]) if found else steps


def _iterations(calls: Steps, capture: Capture, op: Ints) -> Steps:
    """Return the iterations that the calls of optimizers in one process end."""
    ops = _Ops.of(capture, op, (int(calls.report[0]), int(calls.process[0])), calls.range)
    calls = calls.select(_ends_iteration(calls, ops))
    if len(calls) < MIN_OPTIMIZER_STEPS:
        return calls.select(np.empty(0, np.int64))
    begin, end = int(calls.start[0]), calls.end
    at = ops.first_of_iteration(begin, (int(end[0]), int(calls.start[1])))
    first = int(ops.start[max(at, 0)]) if len(ops.start) else begin
    return replace(
        calls,
        number=np.arange(len(calls)),
        start=np.append(min(first, begin), end[:-1]),
        found_by=np.full(len(calls), OPTIMIZER),
    )


def _ends_iteration(calls: Steps, ops: _Ops) -> Flags:
    """Return whether ops run between each call and the next; if none ever do, all calls count."""
    counts = np.diff(
        np.searchsorted(ops.start, np.stack((calls.end[:-1], calls.start[1:]))), axis=0
    )
    is_end = np.append(counts[0] > 0, True)
    return is_end if is_end[:-1].any() else np.ones(len(calls), bool)


def _matches(names: pd.Series, pattern: re.Pattern[str]) -> Flags:
    """Return whether each name matches a pattern, and False as the last entry, for no row."""
    flags = np.array([*map(bool, map(pattern.fullmatch, names.cat.categories)), False], bool)
    return np.append(flags[frames.codes(names)], False)
