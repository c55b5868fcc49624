"""Loops: a tree of what a program repeats, and which of it are its iterations.

Ranges that name steps decide first, then the steps of optimizers, then what recurs of the work: of
kernels and graphs, or where none were recorded of ranges or API calls. Of the levels of a recurrence the
outermost with three alike instances are iterations, unless these are parts of a model: then ranges name
a module with another index in each, or they lie in a longer period that was not recorded three times.
docs/steps.md has the whole definition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bridge.importers.arrays import lookup
from bridge.importers.capture import Capture
from bridge.importers.frames import Names
from bridge.join.arrays import NONE, Flags, Ints, order_by
from bridge.join.families import EPOCH, PART, WARM_UP, Families, part_shapes
from bridge.join.nesting import Nesting
from bridge.join.periods import (
    ALIKE,
    MIN_ALIKE,
    Period,
    jaccard,
    outermost_periods,
    periods_of_folded,
)
from bridge.join.sequences import (
    Issued,
    Key,
    is_of_process,
    issued_calls,
    issued_ranges,
    issued_work,
    processes,
)
from bridge.join.steps import RANGE, REPETITION, Steps, numbered

KINDS = ITERATIONS, EPOCHS, PARTS, OTHER = ("iterations", "epochs", "parts", "other")
NO_RECURRENCE = "no work recurs three times in a row"
NO_WHOLE = "the capture holds no whole iteration; what repeats: {name}, {count} times"
FEW = "what recurs is too small a part of the work: {name}, {count} times"

MIN_LOOP = 0.1  # share of the kernels, or of their time, in the iterations of one of several loops
MIN_LOOPS = 0.5  # the same of all loops of a process together
MIN_REGULAR = 0.5  # share of the work in equal instances; below, each thread is searched
MIN_THREAD = 0.25  # share of the work that a thread issues, if its loops are those of the process
MOST_THREADS = 2  # that are searched
MIN_HOST = 0.9  # share of the instances in which the host takes part, if these are no layers
MOST_LAYERS = 100  # more instances are no layers, even if the host only issues them
MAX_EPILOGUE = 0.25  # of an instance: a pass ends with more kernels than that, a loop does not
MIN_INNER = 0.5  # share of an instance in parts that recur: then it is no layer itself
LONG = 1.5  # times the median of the rest: leading instances that are longer are warm-up
MOST_ROUNDS = 16  # in which the rest of the instances becomes less by those that are warm-up
MOST_NAMED = 3  # families of parts that are listed of a loop, the longest
MOST_ENCLOSING = 8  # names of ranges that are tried as the marks of instances, the longest


@dataclass(frozen=True, eq=False)
class Loop:
    """A level of the tree at one place: instances one after the other, of one or several processes.

    ``kind`` is one of `KINDS`, ``found_by`` a position in `FOUND`, ``parent`` the index of the loop
    around it, or NONE. ``steps`` are the instances: of several processes, an instance is one entry of
    each. The first ``warm_up`` of them are warm-up. ``is_cut`` tells whether the capture begins and
    ends in the middle of an instance, which is not counted.
    """

    kind: str
    found_by: int
    name: str
    steps: Steps
    parent: int = NONE
    warm_up: int = 0
    is_cut: tuple[bool, bool] = (False, False)

    @property
    def count(self) -> int:
        """The number of instances, warm-up included."""
        return max((last - first for first, last in self.steps.by_process()), default=0)

    @property
    def start(self) -> int:
        return int(self.steps.start.min())

    @property
    def end(self) -> int:
        return int(self.steps.end.max())

    @property
    def is_marked(self) -> bool:
        """Whether the names of ranges alone tell the instances."""
        return self.found_by == RANGE and bool((self.steps.first == NONE).all())

    def runs_with(self, other: Loop, origin: Ints) -> bool:
        """Return whether a loop of other processes overlaps in time; ``origin`` is that of each report."""
        homes, spans = [], []
        for steps in (self.steps, other.steps):
            homes.append(set(zip(steps.report.tolist(), steps.process.tolist(), strict=True)))
            shift = origin[steps.report]
            spans.append((int((steps.start + shift).min()), int((steps.end + shift).max())))
        is_overlap = spans[0][0] < spans[1][1] and spans[1][0] < spans[0][1]
        return is_overlap and not homes[0] & homes[1]

    def with_rank(self, other: Loop) -> Loop:
        """Return the loop with the instances of other processes."""
        is_cut = (self.is_cut[0] or other.is_cut[0], self.is_cut[1] or other.is_cut[1])
        return replace(self, steps=Steps.concatenate([self.steps, other.steps]), is_cut=is_cut)


@dataclass(frozen=True, eq=False)
class LoopTree:
    """The loops of a capture, each after the loop around it, by time; ``why`` there are no iterations.

    ``steps`` are the instances of the loops of iterations; their ``loop`` is the index among those.
    """

    loops: tuple[Loop, ...]
    steps: Steps
    why: str = ""

    @property
    def iterations(self) -> tuple[Loop, ...]:
        """The loops of iterations, by time."""
        return tuple(loop for loop in self.loops if loop.kind == ITERATIONS)


@dataclass(frozen=True, eq=False)
class Evidence:
    """What loops are found in: a capture, its nesting, and per activity launch, issue and duration in ns."""

    capture: Capture
    nesting: Nesting
    launch: Ints
    issued: Ints
    duration: Ints

    @classmethod
    def of(cls, capture: Capture, nesting: Nesting, launch: Ints, duration: Ints) -> Evidence:
        called = lookup(capture.launches.start, launch, 0)
        began = capture.activities.start
        return cls(
            capture=capture,
            nesting=nesting,
            launch=launch,
            issued=np.where(launch == NONE, began, called),
            duration=duration,
        )

    @cached_property
    def parts(self) -> tuple[Ints, list[str]]:
        """What each range that names a part of a model has in common with others, or NONE; and the texts."""
        names = self.capture.ranges.name
        shape, texts = part_shapes(list(names.texts))
        return lookup(shape, names.codes), texts


def loops_of(evidence: Evidence, marked: Steps, *, by_work: bool) -> LoopTree:
    """Return the loops of a capture; ``marked`` are the steps that ranges and optimizers mark.

    Without ``by_work`` there are no others.
    """
    keys = _keys(evidence.capture)
    found = [loop for key in keys for loop in _of_marks(evidence, key, marked)]
    if by_work:
        found += _of_work(evidence, keys, marked)
    return _tree(_with_warm_up(evidence, _joined_ranks(evidence, found)))


def _keys(capture: Capture) -> list[Key]:
    """Return the processes that have ranges, activities or API calls."""
    tables = (capture.ranges, capture.activities, capture.launches)
    return sorted({key for table in tables for key, _ in processes(table)})


# -- Loops that ranges and optimizers mark


def _of_marks(evidence: Evidence, key: Key, marked: Steps) -> Iterator[Loop]:
    """Yield the loops of a process's marked steps, the epochs around them and the parts in them."""
    own = marked.select((marked.report == key[0]) & (marked.process == key[1]))
    if not len(own):
        return
    names = evidence.capture.ranges.name
    for first, last in own.by_loop():
        steps = own.select(np.arange(first, last))
        yield Loop(ITERATIONS, int(steps.found_by[0]), common_name(names, steps.range), steps)
    yield from _epochs(evidence.capture, key, own)
    yield from _named_parts(evidence, key, own)


def common_name(names: Names, rows: Ints) -> str:
    """Return what the names of ranges have in common, with ``*`` for a number that differs, or the first."""
    texts = names.texts
    distinct = [texts[code] for code in dict.fromkeys(names.codes[rows].tolist())]
    families = Families.of(distinct)
    is_one = len(families.text) == 1 and bool((families.family != NONE).all())
    return families.text[0] if is_one else distinct[0]


def _epochs(capture: Capture, key: Key, steps: Steps) -> Iterator[Loop]:
    """Yield the ranges of epochs that hold steps."""
    names = capture.ranges.name
    families = Families.of(list(names.texts))
    of_range = lookup(families.family, names.codes)
    for family in np.flatnonzero(families.rank == EPOCH).tolist():
        rows = np.flatnonzero((of_range == family) & is_of_process(capture.ranges, key))
        number = families.number[names.codes[rows]]
        epochs = Steps.of_ranges(capture.ranges, rows, number)
        held = np.diff(np.searchsorted(steps.start, np.stack((epochs.start, epochs.end))), axis=0)
        is_around = not np.isin(epochs.range, steps.range).any()
        if len(epochs) and held.any() and is_around:
            yield Loop(EPOCHS, RANGE, families.text[family], epochs)


def _named_parts(evidence: Evidence, key: Key, around: Steps) -> Iterator[Loop]:
    """Yield the ranges of a process that name modules with an index and recur within steps."""
    ranges, (code, texts) = evidence.capture.ranges, evidence.parts
    rows = np.flatnonzero((code != NONE) & is_of_process(ranges, key))
    start, end = ranges.start[rows], ranges.end[rows]
    report, process = (np.full(len(rows), value) for value in key)
    inside = around.at(report, process, start) != NONE
    code, rows, time = code[rows][inside], rows[inside], (end - start)[inside]
    spent = np.bincount(code, time, minlength=len(texts))
    for one in np.argsort(-spent, kind="stable")[:MOST_NAMED].tolist():
        own = rows[code == one]
        if len(own) >= MIN_ALIKE:
            parts = Steps.of_ranges(ranges, own, np.full(len(own), NONE))
            yield Loop(PARTS, RANGE, texts[one], parts)


# -- Loops of work that recurs


@dataclass(frozen=True, eq=False)
class _Process:
    """The work of a process, and the periods in it; ``named`` tells whether ranges mark other steps of it."""

    key: Key
    work: Issued
    periods: tuple[Period, ...]
    named: bool = False

    @property
    def regularity(self) -> float:
        """The share of the work in instances that are equal."""
        return sum(one.covered * one.equal / len(one) for one in self.periods)

    def last_like(self, period: Period) -> Period:
        """Return the last period whose instances are like those of ``period``: itself, if its own are empty."""

        def part(one: Period) -> slice:
            return slice(int(one.row[-1]), int(one.end[-1]))

        alike = [
            one
            for one in self.periods
            if jaccard(self.work.sequence, part(one), part(period)) >= ALIKE
        ]
        return alike[-1] if alike else period


def _of_work(evidence: Evidence, keys: Iterable[Key], marked: Steps) -> Iterator[Loop]:
    """Yield what recurs in the processes without marked steps; of others, ranges of one name outside of those."""
    capture = evidence.capture
    activities = dict(processes(capture.activities))
    for key in keys:
        own = marked.select((marked.report == key[0]) & (marked.process == key[1]))
        for one in _searched(evidence, key, activities.get(key), own):
            yield from _loops_of_process(evidence, one)


def _searched(evidence: Evidence, key: Key, rows: Ints | None, marked: Steps) -> Iterator[_Process]:
    """Yield the work of a process with its periods: all of it, or the parts outside of marked steps."""
    if len(marked):
        if rows is not None:
            yield from _outside(evidence, key, rows, marked)
        return
    if rows is not None:
        work, thread = issued_work(
            evidence.capture, key, rows=rows, launch=evidence.launch, duration=evidence.duration
        )
        yield _by_thread(evidence, key, work, thread)
        return
    work_of_host = issued_ranges(evidence.capture, key, evidence.nesting)
    calls = dict(processes(evidence.capture.launches)).get(key)
    if work_of_host is None and calls is not None:
        work_of_host = issued_calls(evidence.capture, calls)
    if work_of_host is not None:
        yield _Process(key, work_of_host, _periods(evidence, key, work_of_host))


def _by_thread(evidence: Evidence, key: Key, work: Issued, thread: Ints) -> _Process:
    """Return the work of a process with its periods, or that of one of its threads if more of it is equal."""
    best = _Process(key, work, _periods(evidence, key, work))
    distinct, count = np.unique(thread, return_counts=True)
    if len(distinct) == 1 or best.regularity >= MIN_REGULAR:
        return best
    for one in distinct[np.argsort(-count, kind="stable")][:MOST_THREADS].tolist():
        part = work.select(thread == one)
        if part.sequence.weights[-1] >= MIN_THREAD * work.sequence.weights[-1]:
            other = _Process(key, part, _periods(evidence, key, part))
            best = max(best, other, key=lambda one: one.regularity)
    return best


def _outside(evidence: Evidence, key: Key, rows: Ints, marked: Steps) -> Iterator[_Process]:
    """Yield the work before, between and after the loops of marked steps, if it is much."""
    spans = [(int(marked.start[a]), int(marked.end[b - 1])) for a, b in marked.by_loop()]
    spans.sort()
    edges = np.array(spans).ravel()
    part = np.searchsorted(edges, evidence.issued[rows], side="right")
    for one in range(0, len(edges) + 1, 2):
        inside = rows[part == one]
        if len(inside) >= max(MIN_ALIKE, MIN_LOOP * len(rows)):
            work, _ = issued_work(
                evidence.capture,
                key,
                rows=inside,
                launch=evidence.launch,
                duration=evidence.duration,
            )
            if work.sequence.weight.any():
                yield _Process(key, work, _periods(evidence, key, work), named=True)


def _periods(evidence: Evidence, key: Key, work: Issued) -> tuple[Period, ...]:
    """Return the outermost periods of the work of a process."""
    starts = [start for _, start, _ in _recurring_ranges(evidence, key, work)]
    anchors = [np.unique(np.searchsorted(work.issued, start)) for start in starts]
    anchors = [row[row < len(work)] for row in anchors]
    anchors = [row for row in anchors if len(row) >= MIN_ALIKE]
    periods = tuple(outermost_periods(work.sequence, anchors))
    if _covered(periods) < MIN_LOOPS:
        return tuple(periods_of_folded(work.sequence)) or periods
    return periods


def _covered(periods: Iterable[Period]) -> float:
    return sum(one.covered for one in periods if one.covered >= MIN_LOOP)


def _loops_of_process(evidence: Evidence, one: _Process) -> Iterator[Loop]:
    """Yield the loops of the periods of a process, with the repetitions in each."""
    enough = _covered(one.periods) >= MIN_LOOPS or one.named
    for period in one.periods:
        steps, name = _steps_of(one.key, one.work, period)
        marks = _marking_ranges(evidence, one, period)
        part = _part_of_model(evidence, one, period)
        if marks is not None:
            names = evidence.capture.ranges.name
            steps, name = _on_ranges(evidence.capture, steps, marks), common_name(names, marks)
            part = part or (name if PART.search(name) else "")
        inner = _inner(one.work, period)
        if part:
            kind, name = PARTS, part
        elif (
            not enough
            or period.covered < MIN_LOOP
            or (one.named and marks is None)
            or _is_lone(period)
        ):
            kind = OTHER
        elif marks is None and _is_pass(evidence, one, period, inner):
            kind = PARTS
        else:
            kind = ITERATIONS
        yield Loop(kind, int(steps.found_by[0]), name, steps, is_cut=period.is_cut)
        if kind == ITERATIONS:
            yield from _parts_within(evidence, one, steps=steps, period=period, inner=inner)


def _steps_of(key: Key, work: Issued, period: Period) -> tuple[Steps, str]:
    """Return the instances of a period, each from when the host was free to issue it, and their first kernel's name."""
    pause = work.sequence.pause[period.row]
    pause[0] = min(int(pause[0]), int(np.median(pause)))
    start = work.issued[period.row] - pause
    following = np.append(start[1:], np.iinfo(np.int64).max)
    is_open = period.end < np.append(period.row[1:], len(work) + 1)
    end = np.where(is_open, np.minimum(work.done[period.end - 1], following), following)
    weights = work.sequence.weights
    kernel = np.searchsorted(weights, weights[period.row], side="right") - 1
    kernel = np.where(kernel < period.end, kernel, period.row)
    steps = _steps(key, start, end, REPETITION)
    steps = replace(steps, first=work.row[kernel], range=work.range[period.row])
    return steps, work.name(int(kernel[0]))


def _steps(key: Key, start: Ints, end: Ints, found_by: int) -> Steps:
    size = len(start)
    report, process = (np.full(size, value) for value in key)
    return Steps(
        range=np.full(size, NONE),
        number=np.arange(size),
        report=report,
        process=process,
        start=start,
        end=end,
        found_by=np.full(size, found_by),
        loop=np.zeros(size, np.int64),
        first=np.full(size, NONE),
    )


def _is_lone(period: Period) -> bool:
    """Return whether instances are one activity each, and not most of what the process does."""
    return bool(np.median(period.end - period.row) <= 1) and period.share < MIN_LOOPS


def _inner(work: Issued, period: Period) -> tuple[Period, ...]:
    """Return the periods within a usual instance."""
    length = period.end - period.row
    at = int(np.argsort(length, kind="stable")[len(length) // 2])
    part = slice(int(period.row[at]), int(period.end[at]))
    if part.stop - part.start < 2 * MIN_ALIKE:
        return ()
    inner = outermost_periods(work.sequence.select(part))
    return tuple(one for one in inner if one.covered >= MIN_LOOP)


def _parts_within(
    evidence: Evidence, one: _Process, steps: Steps, period: Period, inner: Iterable[Period]
) -> Iterator[Loop]:
    """Yield what recurs within the instances: what ranges name, or else the work in instances of usual length."""
    named = list(_named_parts(evidence, one.key, steps))
    yield from named
    length = period.end - period.row
    alike = period.row[length == np.median(length)]
    for part in () if named or not len(alike) else inner:
        row, end = ((alike[:, None] + rows[None, :]).ravel() for rows in (part.row, part.end))
        whole = replace(part, row=row, end=end)
        parts, name = _steps_of(one.key, one.work, whole)
        yield Loop(PARTS, REPETITION, name, parts)


# -- What ranges tell of a period


def _recurring_ranges(
    evidence: Evidence, key: Key, work: Issued
) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Yield the ranges of one name that recurs, the longest first: rows, starts and ends in ns."""
    if work.row[0] == NONE:  # the work is ranges itself
        return
    ranges, nesting = evidence.capture.ranges, evidence.nesting
    code = ranges.name.codes[nesting.range]
    nodes = np.flatnonzero(is_of_process(ranges, key)[nesting.range] & (code != NONE))
    code = code[nodes]
    time = np.bincount(code, nesting.end[nodes] - nesting.start[nodes], minlength=1)
    time[np.bincount(code, minlength=1) < MIN_ALIKE] = 0
    for one in np.argsort(-time, kind="stable")[:MOST_ENCLOSING].tolist():
        if time[one] > 0:
            own = nodes[code == one]
            own = own[order_by(nesting.start[own])]
            yield nesting.range[own], nesting.start[own], nesting.end[own]


def _marking_ranges(evidence: Evidence, one: _Process, period: Period) -> Ints | None:
    """Return the ranges of one name that hold the work of an instance each, None if there are none."""
    work = one.work
    begin, last = work.issued[period.row], int(work.issued[period.last - 1])
    for columns in _recurring_ranges(evidence, one.key, work):
        inside = (columns[2] > begin[0]) & (columns[1] <= last)
        rows, start, end = (column[inside] for column in columns)
        if len(rows) == len(period) and (end[:-1] <= start[1:]).all():
            first, stop = (np.searchsorted(work.issued, when) for when in (start, end))
            held = np.minimum(stop, period.end) - np.maximum(first, period.row)
            if (held >= ALIKE * (period.end - period.row)).mean() >= ALIKE:
                return np.asarray(rows)
    return None


def _on_ranges(capture: Capture, steps: Steps, rows: Ints) -> Steps:
    """Return steps that last as long as ranges, one each."""
    start, end = capture.ranges.start[rows], capture.ranges.end[rows]
    found_by = np.full(len(rows), RANGE)
    return replace(steps, range=rows, start=start, end=end, found_by=found_by)


def _part_of_model(evidence: Evidence, one: _Process, period: Period) -> str:
    """Return which part of a model instances are: ranges of another index in each; '' for none."""
    ranges, (code, texts) = evidence.capture.ranges, evidence.parts
    name, start = ranges.name.codes, ranges.start
    begin, end = one.work.issued[period.row], int(one.work.issued[period.last - 1])
    is_inside = (code != NONE) & (start >= begin[0]) & (start <= end)
    rows = np.flatnonzero(is_inside & is_of_process(ranges, one.key))
    rows = rows[order_by(start[rows])]
    instance = np.searchsorted(begin, start[rows], side="right") - 1
    best, most = "", MIN_HOST * (len(period) - 1)
    for part in np.unique(code[rows]).tolist():
        own = code[rows] == part
        _, first = np.unique(instance[own], return_index=True)
        first_name = name[rows[own][first]]
        differs = int(np.count_nonzero(first_name[1:] != first_name[:-1])) + 1
        if differs >= most and "*" in texts[part]:
            best, most = texts[part], differs
    return best


# -- Whether a period is but a part of one pass


def _is_pass(evidence: Evidence, one: _Process, period: Period, inner: Iterable[Period]) -> bool:
    """Return whether instances in which the host takes no part are the layers of one pass.

    Then other kernels follow the last one, or a range holds the instances and other kernels.
    """
    work, weights = one.work, one.work.sequence.weights
    is_graph = work.is_graph[period.first : period.last]
    if len(period) >= MOST_LAYERS or work.row[0] == NONE or is_graph.any():
        return False
    host = np.append(0, np.cumsum(work.host))
    takes_part = (host[period.end] > host[period.row]).mean() >= MIN_HOST
    is_telling = (work.host > 0).mean() < MIN_HOST
    if (takes_part and is_telling) or any(part.covered >= MIN_INNER for part in inner):
        return False
    own = int(weights[period.last] - weights[period.first])
    last = one.last_like(period)
    after = int(weights[-1] - weights[last.last])
    for other in one.periods:  # a loop of another number of instances is none of the pass
        if other.first >= last.last and abs(len(other) - len(period)) > 1:
            after -= other.kernels
    if after > MAX_EPILOGUE * own / len(period) and not last.is_cut[1]:
        return True
    begin, end = int(work.issued[period.first]), int(work.issued[period.last - 1])
    nesting, ranges = evidence.nesting, evidence.capture.ranges
    outer = (nesting.parent == NONE) & (nesting.start <= begin) & (nesting.end > end)
    nodes = np.flatnonzero(outer & is_of_process(ranges, one.key)[nesting.range])
    first, stop = (np.searchsorted(work.issued, c[nodes]) for c in (nesting.start, nesting.end))
    return bool((weights[stop] - weights[first] > own).any())


# -- Loops of several processes, and the tree


def _joined_ranks(evidence: Evidence, loops: Iterable[Loop]) -> list[Loop]:
    """Return the loops, those as one that ranks run together: as many instances of one name at one time.

    Reports are on one clock if all say when they began.
    """
    epochs = [facts.epoch_ns for facts in evidence.capture.facts]
    is_one_clock = NONE not in epochs
    origin = np.array(epochs if is_one_clock else [0] * len(epochs))
    groups: dict[tuple[object, ...], list[Loop]] = {}
    for loop in loops:
        clock = NONE if is_one_clock else int(loop.steps.report[0])
        together = groups.setdefault((loop.kind, loop.found_by, loop.name, loop.count, clock), [])
        mate = next((at for at, one in enumerate(together) if one.runs_with(loop, origin)), None)
        if mate is None:
            together.append(loop)
        else:
            together[mate] = together[mate].with_rank(loop)
    return [loop for group in groups.values() for loop in group]


# -- Warm-up


def _with_warm_up(evidence: Evidence, loops: list[Loop]) -> list[Loop]:
    """Return the loops with the numbers of their instances that are warm-up."""
    iterations = [loop.steps for loop in loops if loop.kind == ITERATIONS]
    steps = Steps.concatenate([Steps.none(), *iterations])
    length, is_called = _lengths(evidence, steps), _in_warm_up(evidence.capture, steps)
    result = []
    for loop in loops:
        warm_up = 0
        for first, last in loop.steps.by_process() if loop.kind == ITERATIONS else ():
            own = loop.steps.select(np.arange(first, last))
            place = np.flatnonzero(
                (steps.report == own.report[0]) & (steps.process == own.process[0])
            )
            place = place[np.searchsorted(steps.start[place], own.start)]
            by_name = int(np.argmin(np.append(is_called[place], False)))
            warm_up = max(warm_up, by_name or warm_up_of(length[place]))
        result.append(replace(loop, warm_up=warm_up))
    return _with_named_warm_up(result)


def _in_warm_up(capture: Capture, steps: Steps) -> Flags:
    """Return whether most of each step lies in a range called warm-up."""
    rows = np.flatnonzero(capture.ranges.name.matching(WARM_UP.search))
    warm_up = Steps.of_ranges(capture.ranges, rows, np.full(len(rows), NONE))
    middle = (steps.start + steps.end) // 2
    result: Flags = warm_up.at(steps.report, steps.process, middle) != NONE
    return result


def warm_up_of(length: Ints) -> int:
    """Return how many leading instances are longer than `LONG` times the median of the rest.

    Where these are more than two and more than a quarter of all, the work itself becomes less.
    """
    warm_up = 0
    for _ in range(MOST_ROUNDS if len(length) >= MIN_ALIKE else 0):
        is_long = length > LONG * np.median(length[warm_up:])
        leading = int(np.argmin(np.append(is_long, False)))
        if leading <= warm_up:
            break
        warm_up = leading
    return warm_up if warm_up <= max(2, len(length) // 4) else 0


def _lengths(evidence: Evidence, steps: Steps) -> Ints:
    """Return the lengths of steps in ns: from when the work of the step before has ended to the end of its own."""
    activities = evidence.capture.activities
    report, process, began = activities.report, activities.process, activities.start
    step = steps.at(report, process, evidence.issued)
    launched = np.flatnonzero(step != NONE)
    end, start = steps.end.copy(), steps.start.copy()
    np.maximum.at(end, step[launched], (began + evidence.duration)[launched])
    for first, last in steps.by_process():
        end[first:last] = np.maximum.accumulate(end[first:last])
        start[first + 1 : last] = np.maximum(start[first + 1 : last], end[first : last - 1])
    return end - start


def _with_named_warm_up(loops: list[Loop]) -> list[Loop]:
    """Return the loops, one that ranges call warm-up as the begin of the loop that ranges mark after it."""
    result = sorted(loops, key=lambda one: one.start)
    for loop in loops:
        homes = set(loop.steps.process.tolist())
        if loop.kind != ITERATIONS or loop.warm_up < loop.count or not loop.is_marked:
            continue
        for at, one in enumerate(result):
            is_next = one.kind == ITERATIONS and one.is_marked and one.start >= loop.end
            if is_next and set(one.steps.process.tolist()) == homes:
                steps = Steps.concatenate([loop.steps, one.steps])
                result[at] = replace(one, steps=steps, warm_up=loop.count + one.warm_up)
                result = [other for other in result if other is not loop]
                break
    return result


# -- The tree


def _tree(loops: list[Loop]) -> LoopTree:
    """Return the tree of loops: each lies in the last one of a higher rank that holds it."""
    rank = {EPOCHS: 0, ITERATIONS: 1, OTHER: 1, PARTS: 2}
    result: list[Loop] = []
    for loop in sorted(loops, key=lambda one: (one.start, rank[one.kind], -one.end)):
        around = [
            at
            for at, one in enumerate(result)
            if rank[one.kind] < rank[loop.kind] and one.start <= loop.start and loop.end <= one.end
        ]
        result.append(replace(loop, parent=around[-1] if around else NONE))
    iterations = [loop for loop in result if loop.kind == ITERATIONS]
    steps = [
        replace(loop.steps, loop=np.full(len(loop.steps), at)) for at, loop in enumerate(iterations)
    ]
    whole = numbered(Steps.concatenate([Steps.none(), *steps]))
    return LoopTree(tuple(result), whole, "" if iterations else _why_none(result))


def _why_none(loops: Sequence[Loop]) -> str:
    """Return why no loop is one of iterations, and what repeats instead."""
    for kind, text in ((PARTS, NO_WHOLE), (OTHER, FEW)):
        if own := [loop for loop in loops if loop.kind == kind]:
            longest = max(own, key=lambda one: one.end - one.start)
            return text.format(name=longest.name, count=longest.count)
    return NO_RECURRENCE
