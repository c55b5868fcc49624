"""Steps found by repetition: the sequence of work that repeats in one process.

A step may begin with a name, with a few names in a row, or with a range that recurs. The work
between two occurrences is a stretch. Two stretches are equal if they contain the same work, each
name equally often. Steps are the stretches whose equals cover most of the work and in each of which
the host takes part: it copies, waits, or queries. Layers repeat too, but the host only issues them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bridge.importers import frames
from bridge.importers.capture import Capture
from bridge.join.arrays import (
    NONE,
    Flags,
    Ints,
    number_groups,
    order_by,
    run_edges,
    stable_order,
    unions,
)
from bridge.join.forest import nearest
from bridge.join.loops import MIN_HOST, Issued, Loop, find_loops
from bridge.join.nesting import Nesting
from bridge.join.steps import REPETITION, Steps

# -- Reading the work of a process from a capture


# API calls that wait for work or query whether it is done.
WAITING_CALLS = re.compile(r"cu\w*(?:Synchronize|EventQuery|StreamQuery)")
HOST_COPIES = re.compile(r".*(?:Host|HtoD|DtoH)")  # copies to and from the host
NEVER = np.iinfo(np.int64).min


def with_repetition(
    steps: Steps, capture: Capture, launch: Ints, duration: Ints, nesting: Nesting
) -> Steps:
    """Return ``steps`` and, for processes that have none, the steps found by repetition.

    ``launch`` and ``duration`` (ns) are per activity. Steps found by repetition have no range.
    """
    with_steps = set(zip(steps.report.tolist(), steps.process.tolist(), strict=True))
    result = [steps]
    for key, activities in _processes(capture):
        if key not in with_steps:
            rows, work = _process_work(capture, activities, key, launch, duration)
            issued = _issued(capture, nesting, key, (rows, launch), work)
            start, end = repeated_steps(work, *_recurring_ranges(capture, nesting, key))
            loops = find_loops(issued).loops
            result.append(
                _of_loops(key, work, rows, loops)
                if _is_finer(loops, work, start)
                else _steps(key, start, end, rows[np.searchsorted(work.issued, start)])
            )
    return steps if len(result) == 1 else Steps.concatenate(result)


def why_no_repetition(capture: Capture, launch: Ints, duration: Ints, nesting: Nesting) -> str:
    """Return in one clause why the work of the process with most activities does not repeat."""
    key, activities = max(_processes(capture), key=lambda one: len(one[1]))
    rows, work = _process_work(capture, activities, key, launch, duration)
    return find_loops(_issued(capture, nesting, key, (rows, launch), work)).why


def _processes(capture: Capture) -> Iterator[tuple[tuple[int, int], Ints]]:
    """Yield the processes, (report, process), with the rows of their activities."""
    report, process = (frames.ints(capture.activities, c) for c in ("report", "process"))
    group, _ = number_groups(report, process)
    order = stable_order(group) if len(group) else group
    for a, b in pairwise(run_edges(group[order]).tolist()):
        yield (int(report[order[a]]), int(process[order[a]])), order[a:b]


MIN_FINER = 1.5  # times as many iterations as steps that are equal


def _is_finer(loops: Sequence[Loop], work: Work, start: Ints) -> bool:
    """Return whether loops are the steps, rather than the equal stretches that begin at ``start``.

    They are if there are no such stretches, if a stretch is but one of several loops, or if it holds
    several iterations, in each of which the host takes part; also if the host takes part after nearly
    every activity, so that stretches may be layers.
    """
    if not len(loops) or not len(start) or (work.host_parts > 0).mean() >= MIN_HOST:
        return len(loops) > 0
    host = np.append(0, np.cumsum(work.host_parts))
    takes_part = np.concatenate([host[loop.end] > host[loop.row] for loop in loops])
    iterations = len(takes_part)
    is_finer = iterations >= MIN_FINER * len(start) and takes_part.mean() >= MIN_HOST
    return is_finer or (len(loops) > 1 and iterations > len(start))


def _of_loops(key: tuple[int, int], work: Work, rows: Ints, loops: Sequence[Loop]) -> Steps:
    """Return the steps of the loops of a process; ``rows`` are the activities of ``work``."""
    row = np.concatenate([loop.row for loop in loops])
    end_row = np.concatenate([loop.end for loop in loops])
    start = _resume_times(work, row)
    following = np.append(row[1:], len(work))
    next_start = np.append(start[1:], np.iinfo(np.int64).max)
    is_open = (end_row < following) | (following == len(work))
    end = np.where(is_open, np.minimum(work.done[end_row - 1], next_start), next_start)
    steps = _steps(key, start, end, rows[row])
    loop = np.repeat(np.arange(len(loops)), [len(one.row) for one in loops])
    return replace(steps, loop=loop)


def _steps(key: tuple[int, int], start: Ints, end: Ints, first: Ints) -> Steps:
    report, process = (np.full(len(start), value) for value in key)
    number = np.arange(len(start))
    unknown = np.full(len(start), NONE)
    found_by = np.full(len(start), REPETITION)
    return Steps(
        range=unknown,
        number=number,
        report=report,
        process=process,
        start=start,
        end=end,
        found_by=found_by,
        loop=number * 0,
        first=first,
    )


def _issued(
    capture: Capture,
    nesting: Nesting,
    key: tuple[int, int],
    of_activities: tuple[Ints, Ints],
    work: Work,
) -> Issued:
    """Return the work of a process for the search of loops; its activities, and the launch of each."""
    rows, launch = of_activities
    table = capture.activities
    own = launch[rows]
    is_new = np.append(True, (own[1:] != own[:-1]) | (own[1:] == NONE))
    is_whole = frames.is_kind(table, frames.GRAPH)[rows]
    is_graph = is_whole | (is_new & np.append(~is_new[1:], False))  # or recorded node by node
    is_kernel = frames.is_kind(table, frames.KERNEL)[rows]
    return Issued(
        name=work.name,
        weight=(is_kernel | is_whole).astype(np.int64),
        spent=work.spent,
        begins=is_new,
        is_graph=is_graph,
        pause=work.pause,
        host=work.host_parts,
        enclosed=_enclosed(capture, nesting, key, work.issued),
    )


def _enclosed(capture: Capture, nesting: Nesting, key: tuple[int, int], issued: Ints) -> Flags:
    """Return whether a range is open all the time from each row's predecessor to the row."""
    outer = np.flatnonzero(
        (nesting.parent == NONE) & _is_of_process(capture.ranges, key)[nesting.range]
    )
    _, start, end = unions(np.zeros(len(outer), np.int64), nesting.start[outer], nesting.end[outer])
    if not len(start):
        return np.zeros(len(issued), bool)
    at = np.searchsorted(start, issued, side="right") - 1
    at = np.where((at >= 0) & (issued < end[np.maximum(at, 0)]), at, NONE)
    result: Flags = (at != NONE) & (at == np.append(NONE, at[:-1]))
    return result


def _process_work(
    capture: Capture, rows: Ints, key: tuple[int, int], launch: Ints, duration: Ints
) -> tuple[Ints, Work]:
    """Return the activities of one process, (report, process), by issue, and the same as work."""
    table, launched = capture.activities, launch[rows] != NONE
    has_launches = bool(
        launched.any()
    )  # activities without a launch were issued before the report began
    rows = rows[launched] if has_launches else rows
    began = frames.ints(table, "start")
    issued = frames.ints(capture.launches, "start")[launch[rows]] if has_launches else began[rows]
    order = order_by(issued)
    rows, issued = rows[order], issued[order]
    ran = began[rows] + duration[rows]
    start, end, is_wait = _host_calls(capture, key, launch)
    last_return = np.maximum.accumulate(np.append(NEVER, end))
    last_time = max(int(issued[-1]) + 1, int(ran.max()))  # later waits are not for this work
    returned, done = (
        last_return[np.searchsorted(start, when)]
        for when in (issued, np.append(issued[1:], last_time))
    )
    is_kernel = frames.is_kind(table, frames.KERNEL, frames.GRAPH)[rows]
    copies = np.flatnonzero(_matches(table["name"], HOST_COPIES)[rows] & ~is_kernel)
    waited_for = np.searchsorted(issued, start[is_wait], side="right") - 1
    host_parts = np.bincount(
        np.concatenate((copies, waited_for[waited_for >= 0])), minlength=len(rows)
    )
    return rows, Work(
        name=_kernel_names(table, rows),
        issued=issued,
        returned=np.where(returned == NEVER, issued, returned) if has_launches else issued,
        done=done if has_launches else ran,
        spent=np.where(is_kernel, duration[rows], 0),
        host_parts=host_parts,
    )


def _kernel_names(table: pd.DataFrame, rows: Ints) -> Ints:
    """Return a dense code from 0 per row: of the demangled name, or else of the short name."""
    full, short = (frames.codes(table[c])[rows] for c in ("full_name", "name"))
    full_names = len(table["full_name"].cat.categories)
    code = np.where(full == NONE, short + 1 + full_names, full)
    used = np.bincount(code) > 0
    names: Ints = (np.cumsum(used) - 1)[code]
    return names


def _host_calls(capture: Capture, key: tuple[int, int], launch: Ints) -> tuple[Ints, Ints, Flags]:
    """Return start and end of the calls that issue work or wait for it, and which calls wait."""
    calls = capture.launches
    is_wait = _matches(calls["name"], WAITING_CALLS)
    is_relevant = is_wait.copy()
    is_relevant[launch[launch != NONE]] = True
    rows = np.flatnonzero(is_relevant & _is_of_process(calls, key))
    rows = rows[order_by(frames.ints(calls, "start")[rows])]
    return frames.ints(calls, "start")[rows], frames.ints(calls, "end")[rows], is_wait[rows]


def _recurring_ranges(
    capture: Capture, nesting: Nesting, key: tuple[int, int]
) -> tuple[Ints, Ints]:
    """Return name and start of the outermost recurring ranges of a process."""
    ranges, parent = capture.ranges, nesting.parent
    in_process = _is_of_process(ranges, key)[nesting.range]
    name = frames.codes(ranges["name"])[nesting.range]
    is_recurring = np.bincount(name[in_process & (name != NONE)], minlength=1) >= MIN_REPEATS
    recurs = np.append(is_recurring, False)[np.where(name < len(is_recurring), name, NONE)]
    is_inside = np.append(nearest(parent, recurs), NONE)[parent] != NONE
    result = np.flatnonzero(recurs & in_process & ~is_inside)
    result = result[stable_order(nesting.level[result])]
    return name[result], nesting.start[result]


def _matches(column: pd.Series, pattern: re.Pattern[str]) -> Flags:
    is_match = [pattern.match(name) is not None for name in column.cat.categories]
    result: Flags = np.array([*is_match, False], bool)[frames.codes(column)]
    return result


def _is_of_process(table: pd.DataFrame, key: tuple[int, int]) -> Flags:
    report, process = key
    result: Flags = (frames.ints(table, "report") == report) & (
        frames.ints(table, "process") == process
    )
    return result


# -- Finding what repeats in the work of one process


Floats = NDArray[np.float64]
Numbers = TypeVar("Numbers", Ints, Floats)

MIN_REPEATS = 3  # equal stretches
MIN_COVERED = 0.6  # share of the kernels' time and of the activities in equal stretches
COVERED_TOLERANCE = (
    0.1  # a group that covers this much less than the best is only a part of each step
)
SAME_FACTOR = (
    1.5  # lengths (and pauses) within this factor of the best belong to the same repetition
)
MIN_SHARED = 0.8  # share of the work of an equal stretch that every other step contains
MAX_FACTOR = 2  # a step has at most this many times the work of an equal stretch
NAMES_IN_A_ROW = (1, 2, 4)  # lengths of the sequences of names with which a step may begin
PRIMES = tuple(np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


@dataclass(frozen=True)
class Work:
    """The work of one process in the order of issue: one row per activity, times in ns.

    ``name`` is a code. ``returned`` is when the host had returned from all calls before the row,
    ``done`` from all calls before the next row. ``spent`` is the time of a kernel, 0 for other
    activities. ``host_parts`` is how often the host took part between the row and the next.
    """

    name: Ints
    issued: Ints
    returned: Ints
    done: Ints
    spent: Ints
    host_parts: Ints

    def __len__(self) -> int:
        return len(self.name)

    @property
    def pause(self) -> Ints:
        """Time in ns before each row in which the host had issued nothing."""
        pause: Ints = np.maximum(self.issued - self.returned, 0)
        return pause


@dataclass(frozen=True)
class PrefixSums:
    """Sums over the rows before each index, with one entry more than rows.

    The sum over a stretch is a difference of two entries. ``names`` sums `scrambled` codes, so that
    equal sums mean equal names.
    """

    names: Ints
    spent: Ints
    host_parts: Ints

    @classmethod
    def of(cls, work: Work) -> PrefixSums:
        return cls(
            *(
                np.append(0, np.cumsum(c))
                for c in (scrambled(work.name), work.spent, work.host_parts)
            )
        )

    def equal(self, row: Ints, other: Ints, length: Ints) -> Flags:
        """Return whether ``length`` rows from ``row`` and from ``other`` contain the same work."""
        rows = len(self.names) - 1
        end, other_end = np.minimum(row + length, rows), np.minimum(other + length, rows)
        same: Flags = self.names[end] - self.names[row] == self.names[other_end] - self.names[other]
        return same & (np.maximum(row, other) + length <= rows)


@dataclass(frozen=True)
class Candidates:
    """Rows at which a step may begin, sorted.

    Rows with the same ``key`` begin with the same names or range.

    ``time`` is the start of the range in ns, and empty for rows that begin with names.
    """

    row: Ints
    key: Ints
    time: Ints


@dataclass(frozen=True)
class Repeats:
    """Groups of equal stretches: first row of the first stretch, its key, and the rows per stretch.

    ``covered`` is the share of the work in the group. ``pause`` is the mean logarithm of the time
    in which the host had issued nothing before a stretch began.
    """

    row: Ints
    key: Ints
    length: Ints
    covered: Floats
    pause: Floats

    def select(self, rows: Flags) -> Repeats:
        return Repeats(*(getattr(self, field.name)[rows] for field in fields(self)))


def repeated_steps(work: Work, name: Ints, start: Ints) -> tuple[Ints, Ints]:
    """Return start and end in ns of the steps of a process; empty if its work does not repeat.

    ``name`` (a code) and ``start`` (ns) are of the ranges that may begin a step.
    """
    if np.count_nonzero(work.host_parts) < MIN_REPEATS - 1:  # the host takes part in each stretch
        return np.empty(0, np.int64), np.empty(0, np.int64)
    sums = PrefixSums.of(work)
    beginnings = [
        _range_candidates(work, name, start),
        *(_name_candidates(work, count) for count in NAMES_IN_A_ROW),
    ]
    groups = [_repeats(work, sums, candidates) for candidates in beginnings]
    kind = np.repeat(np.arange(len(groups)), [len(group.row) for group in groups])
    if not len(kind):
        return kind, kind
    columns = ([getattr(group, field.name) for group in groups] for field in fields(Repeats))
    repeats = Repeats(*(np.concatenate(column) for column in columns))
    best = _best(repeats)
    repeats = repeats.select(np.arange(len(kind)) == best)
    return _cut_steps(work, sums, beginnings[kind[best]], repeats)


def scrambled(numbers: Ints) -> Ints:
    """Return a hash of each number; equal numbers have equal hashes."""
    result = (numbers.astype(np.uint64) + np.uint64(1)) * PRIMES[0]
    for shift, prime in ((30, PRIMES[1]), (27, PRIMES[2])):
        result = (result ^ (result >> np.uint64(shift))) * prime
    return (result ^ (result >> np.uint64(31))).view(np.int64)


def _name_candidates(work: Work, count: int) -> Candidates:
    """Return all rows as candidates, keyed by the ``count`` names that begin there."""
    key, name_count = work.name, int(work.name.max(initial=0)) + 1
    for offset in range(1, min(count, len(work))):
        key = key[: len(work) - offset] * name_count + work.name[offset:]
        if offset > 1:  # keeps the key within 64 bits
            key = scrambled(key)
    return Candidates(np.arange(len(key)), key, np.empty(0, np.int64))


def _range_candidates(work: Work, name: Ints, start: Ints) -> Candidates:
    """Return the first row issued in each range as candidates, keyed by the range's name."""
    order = order_by(start)
    row = np.searchsorted(work.issued, start[order])
    present = row < len(work)
    return Candidates(row[present], name[order][present], start[order][present])


def _repeats(work: Work, sums: PrefixSums, candidates: Candidates) -> Repeats:
    """Return the groups of equal stretches that cover enough of the work."""
    order = _stable_order(candidates.key)
    row, key = candidates.row[order], candidates.key[order]
    next_to = np.flatnonzero(key[1:] == key[:-1])
    begin_row, end_row = row[next_to], row[next_to + 1]
    is_stretch = (end_row - begin_row > 1) & (sums.host_parts[end_row] > sums.host_parts[begin_row])
    begin_row, end_row, stretch_key = (
        begin_row[is_stretch],
        end_row[is_stretch],
        key[next_to][is_stretch],
    )
    content = scrambled(scrambled(sums.names[end_row] - sums.names[begin_row]) + stretch_key)
    order = _stable_order(content)
    edges = run_edges(content[order])
    repeated = np.flatnonzero(np.diff(edges) >= MIN_REPEATS - 1)
    first_stretch = order[edges[repeated]]
    begin, stretch_key, length = (
        begin_row[first_stretch],
        stretch_key[first_stretch],
        (end_row - begin_row)[first_stretch],
    )
    last = row[
        np.searchsorted(key, stretch_key, side="right") - 1
    ]  # begins no stretch, because no candidate follows
    is_last_equal = sums.equal(begin, last, length)
    times = np.diff(edges)[repeated] + is_last_equal
    spent = _run_sums((sums.spent[end_row] - sums.spent[begin_row])[order], edges)[repeated]
    spent += is_last_equal * (sums.spent[np.minimum(last + length, len(work))] - sums.spent[last])
    pause = (
        _run_sums(np.log1p(work.pause[begin_row[order]]), edges)[repeated]
        / np.diff(edges)[repeated]
    )
    covered = np.minimum(spent / max(1, sums.spent[-1]), times * length / max(1, len(work)))
    return Repeats(begin, stretch_key, length, covered, pause).select(
        (times >= MIN_REPEATS) & (covered >= MIN_COVERED)
    )


def _best(repeats: Repeats) -> int:
    """Return the best group: of those that cover most, the shortest with the longest pause."""
    is_candidate = repeats.covered >= repeats.covered.max() - COVERED_TOLERANCE
    is_candidate &= repeats.length <= SAME_FACTOR * repeats.length[is_candidate].min()
    is_candidate &= repeats.pause >= repeats.pause[is_candidate].max() - np.log(SAME_FACTOR)
    covered = np.where(is_candidate, repeats.covered, 0)
    return int(
        np.argmax(covered)
    )  # the first of equal groups: ranges come first, then single names


def _cut_steps(
    work: Work, sums: PrefixSums, candidates: Candidates, repeats: Repeats
) -> tuple[Ints, Ints]:
    """Return start and end in ns of the steps.

    Drop stretches with too little or far too much work.
    """
    first, length = int(repeats.row[0]), int(repeats.length[0])
    beginnings = np.flatnonzero(candidates.key == repeats.key)
    beginnings = beginnings[np.diff(candidates.row[beginnings], append=len(work)) > length // 2]
    row = candidates.row[beginnings]
    end_row = np.append(row[1:], len(work))
    is_last = np.arange(len(row)) == len(row) - 1
    is_too_long = end_row - row > MAX_FACTOR * length
    is_equal = sums.equal(row, np.full(len(row), first), np.full(len(row), length))
    is_cut = (is_too_long | is_last) & is_equal
    end_row = np.where(is_cut, row + length, end_row)
    is_step = is_cut | (is_equal & (end_row - row == length))
    unequal = np.flatnonzero(~is_step & ~is_too_long)
    name_counts = np.bincount(work.name[first : first + length], minlength=int(work.name.max()) + 1)
    is_step[unequal] = (
        _shared_work(work, row[unequal], end_row[unequal], name_counts) >= MIN_SHARED * length
    )
    start = candidates.time[beginnings] if len(candidates.time) else _resume_times(work, row)
    next_start = np.append(start[1:], np.iinfo(np.int64).max)
    end = np.where(is_cut | is_last, np.minimum(work.done[end_row - 1], next_start), next_start)
    return start[is_step], end[is_step]


def _shared_work(work: Work, row: Ints, end_row: Ints, name_counts: Ints) -> Ints:
    """Return how many activities of ``name_counts`` each stretch [row, end_row) contains."""
    size = end_row - row
    stretch = np.repeat(np.arange(len(row)), size)
    place = np.arange(len(stretch)) + np.repeat(row - np.cumsum(size) + size, size)
    pair, counts = np.unique(stretch * len(name_counts) + work.name[place], return_counts=True)
    stretch_of, name = np.divmod(pair, len(name_counts))
    result = np.zeros(len(row), np.int64)
    np.add.at(result, stretch_of, np.minimum(counts, name_counts[name]))
    return result


def _resume_times(work: Work, row: Ints) -> Ints:
    """Return when the host returned before each row in ns.

    The first pause is at most the median pause.
    """
    pause = work.pause[row]
    pause[0] = min(int(pause[0]), int(np.median(pause)))
    return work.issued[row] - pause


def _stable_order(key: Ints) -> Ints:
    return stable_order(key) if len(key) else np.empty(0, np.int64)


def _run_sums(values: Numbers, edges: Ints) -> Numbers:
    """Return the sum of ``values`` in each run."""
    result: Numbers = np.add.reduceat(values, edges[:-1]) if len(values) else values
    return result
