"""Steps: the ranges of the iterations of a run, found by their names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from itertools import pairwise

import numpy as np

from bridge.importers import frames
from bridge.importers.arrays import lookup
from bridge.importers.capture import Capture
from bridge.importers.graph_annotations import is_of_graph_node
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, number_groups, order_by, run_edges

PREFIX = r"(?:train(?:ing)?|global)[ _-]?"
NUMBERED = r"(?:[ _#:=-]*(\d{1,18})(?: *(?:to|of|/|-) *\d+)?)"
KINDS = tuple(  # the first of these that occurs in a process marks its steps
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"ProfilerStep{NUMBERED}",
        r"\[Executor\] _forward_step (\d{1,18}): .*",  # of TensorRT-LLM
        r"denoising_step_(\d{1,18})_t\d+",  # of SGLang
        r"[^#]+#(?:[^#]*,)?step_num=(\d{1,18})(?:,[^#]*)?#",  # jax.profiler.StepTraceAnnotation
        rf"(?:{PREFIX})?step{NUMBERED}?",
        rf"(?:{PREFIX})?iter(?:ation)?{NUMBERED}?",
        rf"(?:{PREFIX})?(?:mini[ _-]?)?batch{NUMBERED}",
    )
)
FOUND = ("range", "optimizer", "repetition")
RANGE, OPTIMIZER, REPETITION = range(len(FOUND))


@record
class Steps:
    """The steps of all processes, sorted by report, process and time.

    They do not overlap in a process.

    ``range`` is the row of each step's range; of a step that an optimizer ends it is the range of
    that, of a step that was found by repetition NONE, or the range with which it begins. ``number`` is
    the number in its name, or else its index among the steps of its process, from 0. ``found_by`` is a
    position in `FOUND`. ``loop`` is the index of each step's loop. ``first`` is the first kernel or graph
    of a step found by repetition, NONE for other steps.
    """

    range: Ints
    number: Ints
    report: Ints
    process: Ints
    start: Ints
    end: Ints
    found_by: Ints
    loop: Ints
    first: Ints

    @classmethod
    def of(cls, capture: Capture) -> Steps:
        """Find the steps: per process the outermost ranges of one kind on one thread."""
        ranges = capture.ranges
        kind, step_number = _step_kinds(ranges.name.texts)
        code = ranges.name.codes
        is_marked = lookup(kind, code) != NONE
        rows = np.flatnonzero(is_marked & ~is_of_graph_node(ranges.thread))
        rows = rows[is_on_main_thread(capture, rows, kind[code[rows]])]
        return cls.of_ranges(ranges, rows, step_number[code[rows]])

    @classmethod
    def none(cls) -> Steps:
        """Return no steps."""
        return cls(*(np.empty(0, np.int64) for _ in fields(cls)))

    @classmethod
    def of_ranges(cls, ranges: frames.Ranges, rows: Ints, number: Ints) -> Steps:
        """Return these rows of ranges as steps in order of time; a range inside of another is no step."""
        report, process, start, end = (
            ranges.report[rows],
            ranges.process[rows],
            ranges.start[rows],
            ranges.end[rows],
        )
        steps = cls(
            range=rows,
            number=number,
            report=report,
            process=process,
            start=start,
            end=end,
            found_by=np.full(len(rows), RANGE),
            loop=np.zeros(len(rows), np.int64),
            first=np.full(len(rows), NONE),
        )
        return numbered(outermost(steps))

    @classmethod
    def concatenate(cls, parts: Sequence[Steps]) -> Steps:
        """Concatenate steps that do not overlap; an empty one comes before one with the same start."""
        columns = (
            np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)
        )
        steps = cls(*columns)
        return steps.select(order_by(steps.report, steps.process, steps.start, steps.end))

    def __len__(self) -> int:
        return len(self.range)

    def at(self, report: Ints, process: Ints, time: Ints) -> Ints:
        """Return the index of the step that was open at each time in ns, or NONE."""
        result = np.full(len(time), NONE)
        for first, last in self.by_process():
            in_process = (report == self.report[first]) & (process == self.process[first])
            place = (
                np.searchsorted(self.start[first:last], time[in_process], side="right") + first - 1
            )
            inside = (place >= first) & (time[in_process] < self.end[np.maximum(place, first)])
            result[in_process] = np.where(inside, place, NONE)
        return result

    def by_process(self) -> Iterable[tuple[int, int]]:
        """Return the first and the end index of the steps of each process."""
        return pairwise(run_edges(number_groups(self.report, self.process)[0]).tolist())

    def by_loop(self) -> Iterable[tuple[int, int]]:
        """Return the first and the end index of the steps of each loop of a process."""
        keys = self.report, self.process, self.loop
        return pairwise(run_edges(number_groups(*keys)[0]).tolist())

    def select(self, rows: Ints | Flags) -> Steps:
        columns = (getattr(self, field.name) for field in fields(self))
        return Steps(*(column[rows] for column in columns))


def outermost(steps: Steps) -> Steps:
    """Sort steps by report, process and time, and drop those that start before an earlier one has ended.

    Of two with the same start the longer one stays.
    """
    steps = steps.select(order_by(steps.report, steps.process, steps.start, -steps.end))
    ended = np.full(len(steps), np.iinfo(np.int64).min)
    for first, last in steps.by_process():
        ended[first + 1 : last] = np.maximum.accumulate(steps.end[first : last - 1])
    return steps.select(steps.start >= ended)


def numbered(steps: Steps) -> Steps:
    """Number the steps of a process from 0 if names lack numbers or repeat them."""
    step_number = steps.number.copy()
    for first, last in steps.by_process():
        own_numbers = step_number[first:last]
        if (own_numbers == NONE).any() or len(np.unique(own_numbers)) < len(own_numbers):
            step_number[first:last] = np.arange(last - first)
    return replace(steps, number=step_number)


def without_number(name: str) -> str:
    """Return the name of a step with ``*`` in place of its number; other names are returned as they are."""
    for pattern in KINDS:
        if (match := pattern.fullmatch(name)) and match[1]:
            return f"{name[: match.start(1)]}*{name[match.end(1) :]}"
    return name


def _step_kinds(names: Iterable[str]) -> tuple[Ints, Ints]:
    """Return for each name the index into `KINDS` or NONE, and the number in it or NONE."""
    names = list(names)
    kind, step_number = np.full(len(names), NONE), np.full(len(names), NONE)
    for index, name in enumerate(names):
        for kind_index, pattern in enumerate(KINDS):
            if match := pattern.fullmatch(name):
                kind[index] = kind_index
                step_number[index] = int(match[1]) if match[1] else NONE
                break
    return kind, step_number


def is_on_main_thread(capture: Capture, rows: Ints, kind: Ints) -> Flags:
    """Select per process its first kind of steps, on the thread that spends most time in those."""
    columns = ("report", "process", "thread", "start", "end")
    report, process, thread, start, end = (capture.ranges[c][rows] for c in columns)
    group, first = number_groups(report, process)
    first_kind = np.full(len(first), len(KINDS))
    np.minimum.at(first_kind, group, kind)
    has_kind: Flags = kind == first_kind[group]
    member, member_row = number_groups(group, thread)
    member_time = np.zeros(len(member_row), np.int64)
    np.add.at(member_time, member[has_kind], (end - start)[has_kind])
    max_time = np.zeros(len(first), np.int64)
    np.maximum.at(max_time, group[member_row], member_time)
    winner = np.full(len(first), len(member_row))
    np.minimum.at(
        winner,
        group[member_row],
        np.where(
            member_time == max_time[group[member_row]], np.arange(len(member_row)), len(member_row)
        ),
    )
    is_winner: Flags = member == winner[group]
    return has_kind & is_winner
