"""Marks of steps: ranges that bear the name of a step or count up, and the steps of optimizers.

A family of ranges marks steps if its number counts up from range to range. A family within the steps,
whose numbers start again in each of them, numbers parts of a step, such as layers. A profiler's step
lasts from one call of its ``step()`` to the next one: the part of the program after the last call looks
like a step, and that before the first call may have no range.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bridge.importers import frames
from bridge.importers.arrays import lookup
from bridge.importers.capture import Capture
from bridge.importers.frames import Names
from bridge.importers.graph_annotations import is_of_graph_node
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, number_groups, order_by, run_edges
from bridge.join.families import EPOCH, NAMED, Families, chosen_names
from bridge.join.grammar import parse
from bridge.join.loops import Evidence
from bridge.join.periods import ALIKE
from bridge.join.sequences import Key, is_of_process
from bridge.join.steps import (
    KINDS,
    OPTIMIZER,
    Steps,
    is_on_main_thread,
)

# -- Families that mark steps


MIN_NAMED = 2  # ranges of a family whose name has a word for steps
MIN_MEMBERS = 3  # ranges of another family
MAX_TIMES = 2  # how often the number of another family occurs, on average
MIN_COUNTING = (
    0.9  # share of the ranges of another family whose number is higher than the one before
)
MIN_NAMED_COUNTING = 0.5  # the same where the name has a word for steps: each epoch begins anew
MIN_COVERED = 0.5  # share of the GPU time that other families cover together
MIN_NAMED_COVERED = 0.1  # of less, steps by name give way to another family
MIN_INSIDE = 0.9  # share of the ranges of a family that lie in those of another one
MAX_FAMILIES = 32  # per process, those with the longest ranges


@dataclass(frozen=True)
class Marks:
    """Ranges that may mark the steps of a process, in the order of time and apart from each other.

    ``covered`` is the share of the GPU time (without GPU work: of the host time) in them.
    """

    row: Ints
    number: Ints
    start: Ints
    end: Ints
    rank: int
    covered: float

    @property
    def restarts(self) -> bool:
        """Whether a number occurs twice."""
        return len(np.unique(self.number)) < len(self.number)

    def inside(self, other: Marks) -> bool:
        """Return whether most ranges lie in ranges of ``other``."""
        at = np.searchsorted(other.start, self.start, side="right") - 1
        is_in = (at >= 0) & (self.end <= other.end[np.maximum(at, 0)])
        return bool(is_in.mean() >= MIN_INSIDE)

    def apart(self, other: Marks) -> bool:
        """Return whether no range overlaps one of ``other``."""
        following = np.searchsorted(other.start, self.start, side="right")
        before = np.append(np.iinfo(np.int64).min, other.end)[following]
        after = np.append(other.start, np.iinfo(np.int64).max)[following]
        return bool(((before <= self.start) & (self.end <= after)).all())


def marked_steps(evidence: Evidence) -> Steps:
    """Return the steps that ranges mark, by a word for steps or by a number that counts up."""
    capture = evidence.capture
    steps = Steps.of(capture)
    families = Families.of(list(capture.ranges.name.texts))
    by_process: dict[Key, list[tuple[int, Ints]]] = {}
    for key, family, rows in _counting_groups(capture, families):
        by_process.setdefault(key, []).append((family, rows))
    named = {
        (int(steps.report[a]), int(steps.process[a])): steps.range[a:b]
        for a, b in steps.by_process()
    }
    parts = [Steps.none()]
    for key in dict.fromkeys([*named, *by_process]):  # one iteration per process
        own = named.get(key, np.empty(0, np.int64))
        members = by_process.get(key, [])
        chosen = (
            _chosen(_marks(evidence, families, members=members, named=own, key=key), own)
            if members
            else []
        )
        if not members or (len(chosen) == 1 and chosen[0].row is own):
            is_own = (steps.report == key[0]) & (steps.process == key[1])
            parts.append(steps.select(is_own))
        else:
            parts.append(_steps_of(capture, chosen))
    return Steps.concatenate(parts)


def _shares(evidence: Evidence, key: Key, marks: Sequence[tuple[Ints, Ints]]) -> list[float]:
    """Return the share of a process's GPU time in each set of intervals, start and end.

    Without GPU time it is the share of the host time from the first start to the last end.
    """
    rows = np.flatnonzero(is_of_process(evidence.capture.activities, key))
    rows = rows[order_by(evidence.issued[rows])]
    when, total = evidence.issued[rows], np.append(0, np.cumsum(evidence.duration[rows]))
    if total[-1]:
        parts = (
            total[np.searchsorted(when, end)] - total[np.searchsorted(when, start)]
            for start, end in marks
        )
        return [float(part.sum() / total[-1]) for part in parts]
    span = max(int(e[-1]) for _, e in marks) - min(int(s[0]) for s, _ in marks)
    return [float((end - start).sum() / max(1, span)) for start, end in marks]


def _counting_groups(capture: Capture, families: Families) -> list[tuple[Key, int, Ints]]:
    """Return the families whose number counts up: process, family, and ranges by start, of one thread."""
    ranges, code = capture.ranges, capture.ranges.name.codes
    family = lookup(families.family, code)
    if not len(families.text):
        return []
    names = np.bincount(families.family[families.family != NONE], minlength=len(families.text))
    count = np.bincount(family[family != NONE], minlength=len(families.text))
    is_named = families.rank == NAMED
    wanted = (families.rank != NONE) & (is_named | (count <= MAX_TIMES * names))
    rows = np.flatnonzero(lookup(wanted, family, False) & ~is_of_graph_node(ranges.thread))
    keys = [ranges.report[rows], ranges.process[rows], ranges.thread[rows]]
    start = ranges.start[rows]
    group, first = number_groups(*keys, family[rows])
    order = order_by(group, start)
    rows, group = rows[order], group[order]
    number = families.number[code[rows]]
    is_higher = (number[1:] > number[:-1]) & (group[1:] == group[:-1])
    size = np.bincount(group, minlength=len(first))
    higher = np.bincount(group[1:][is_higher], minlength=len(first))
    named = is_named[family[rows]][run_edges(group)[:-1]] if len(rows) else np.empty(0, bool)
    counts_up = higher >= np.where(named, MIN_NAMED_COUNTING, MIN_COUNTING) * (size - 1)
    counts_up &= size >= np.where(named, MIN_NAMED, MIN_MEMBERS)
    edges = run_edges(group)
    result = []
    for at in np.flatnonzero(counts_up).tolist():
        members = rows[edges[at] : edges[at + 1]]
        key = int(keys[0][first[at]]), int(keys[1][first[at]])
        result.append((key, int(family[members[0]]), members))
    return result


def _marks(
    evidence: Evidence, families: Families, members: list[tuple[int, Ints]], named: Ints, key: Key
) -> list[Marks]:
    """Return the sets of ranges that may mark the steps of a process; ``named`` are its steps by name."""
    ranges = evidence.capture.ranges
    start, end = ranges.start, ranges.end
    number = lookup(families.number, ranges.name.codes)
    kind_of = {family: _kind(ranges.name[rows[0]]) for family, rows in members}
    own_kind = _kind(ranges.name[named[0]]) if len(named) else NONE
    sets = [(NAMED, named)] if len(named) else []
    if own_kind != 0 or not len(named):  # a profiler's own steps come first
        sets += [
            (int(families.rank[family]), _apart(rows, start, end))
            for family, rows in members
            if kind_of[family] == NONE or kind_of[family] != own_kind
        ]
    sets.sort(key=lambda one: -int((end - start)[one[1]].sum()))
    sets = [one for at, one in enumerate(sets) if at < MAX_FAMILIES or one[1] is named]
    shares = _shares(evidence, key, [(start[rows], end[rows]) for _, rows in sets])
    return [
        Marks(
            row=rows,
            number=number[rows],
            start=start[rows],
            end=end[rows],
            rank=rank,
            covered=share,
        )
        for (rank, rows), share in zip(sets, shares, strict=True)
    ]


def _kind(name: str) -> int:
    """Return the index into `KINDS` of the pattern that a range's name matches, or NONE."""
    return next((kind for kind, pattern in enumerate(KINDS) if pattern.fullmatch(name)), NONE)


def _apart(rows: Ints, start: Ints, end: Ints) -> Ints:
    """Return the ranges that start after all earlier ones have ended."""
    ended = np.append(np.iinfo(np.int64).min, np.maximum.accumulate(end[rows])[:-1])
    return rows[start[rows] >= ended]


def _chosen(marks: list[Marks], own: Ints) -> list[Marks]:
    """Return the sets of ranges that mark steps: several if they follow one another; none if nothing does.

    ``own`` are ranges whose whole name is that of a step: they mark steps whatever they cover.
    """
    marks = sorted(marks, key=lambda one: (one.rank, -one.covered))
    kept = [
        one
        for at, one in enumerate(marks)
        if not any(_gives_way(one, other, later=at > k) for k, other in enumerate(marks) if k != at)
    ]
    named = _in_turn([one for one in kept if one.rank == NAMED])
    others = _in_turn([one for one in kept if one.rank != NAMED])
    if sum(one.covered for one in named) >= MIN_NAMED_COVERED:
        return named
    if sum(one.covered for one in others) >= MIN_COVERED:
        return others
    return [one for one in kept if one.row is own]


def _gives_way(one: Marks, other: Marks, *, later: bool) -> bool:
    """Return whether ranges mark no steps because others do, around them or within them."""
    is_around = other.inside(one)
    if not one.inside(other):
        return is_around and one.rank == EPOCH
    if other.rank == EPOCH:
        return one.rank == EPOCH and later
    several = len(one.row) > MAX_TIMES * len(other.row)
    is_part = several and (one.restarts or bool((one.number == NONE).any()))
    if is_part:
        return other.covered >= MIN_COVERED or one.rank >= other.rank
    return one.rank > other.rank or (one.rank == other.rank and (later or not is_around))


def _in_turn(marks: list[Marks]) -> list[Marks]:
    """Return the sets with most GPU time that do not overlap in time."""
    result: list[Marks] = []
    for one in sorted(marks, key=lambda one: -one.covered):
        if all(one.apart(other) for other in result):
            result.append(one)
    return sorted(result, key=lambda one: int(one.start[0]))


def _steps_of(capture: Capture, marks: list[Marks]) -> Steps:
    """Return the steps that sets of ranges mark: each set in a row is a loop of its own."""
    none = np.empty(0, np.int64)
    rows, number = (
        np.concatenate([none, *(getattr(one, column) for one in marks)]).astype(np.int64)
        for column in ("row", "number")
    )
    mark = np.repeat(np.arange(len(marks)), [len(one.row) for one in marks])
    steps = Steps.of_ranges(capture.ranges, rows, number)
    order = np.argsort(rows)
    mark = mark[order][np.searchsorted(rows[order], steps.range)]
    return replace(steps, loop=np.cumsum(np.diff(mark, prepend=mark[:1]) != 0))


def chosen_steps(capture: Capture, wanted: str) -> Steps:
    """Return the ranges of a name or a family as steps: in each process the outermost, on one thread."""
    ranges = capture.ranges
    names = list(ranges.name.texts)
    code = ranges.name.codes
    rows = np.flatnonzero(lookup(chosen_names(names, wanted), code, False))
    rows = rows[is_on_main_thread(capture, rows, np.zeros(len(rows), np.int64))]
    number = lookup(Families.of(names).number, code[rows])
    return Steps.of_ranges(ranges, rows, number)


# -- The ops of one process in the order of their start


@record
class _Ops:
    """The op ranges of a process in the order of their start: rows, start in ns, code of the op."""

    row: Ints
    start: Ints
    op: Ints

    @classmethod
    def of(cls, capture: Capture, op: Ints, key: tuple[int, int], without: Ints) -> _Ops:
        """Return the ops of a process, (report, process), but for the rows ``without``."""
        report, process, start = capture.ranges.report, capture.ranges.process, capture.ranges.start
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
    of_profiler = np.append(capture.ranges.name.matching(PROFILER_STEP.fullmatch), False)
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


@record
class _Contents:
    """What steps hold, once per step and name: a step, and a code of an op or an API call."""

    step: Ints
    name: Ints

    @classmethod
    def of(cls, steps: Steps, capture: Capture, op: Ints, ops: Sequence[str]) -> _Contents:
        """Return the contents, without waits for data; ``op`` is NONE for the steps themselves."""
        is_content = Names(op, ops).matching(lambda name: parse(name).kind != "dataloader")
        is_content[steps.range] = False
        rows = np.flatnonzero(is_content)
        call = capture.launches.name.codes
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


def _places(steps: Steps, table: frames.HostEvents) -> Ints:
    """Return the step in which each row of a table starts, or NONE."""
    return steps.at(table.report, table.process, table.start)


# -- Steps of an optimizer


# The name in PyTorch's `record_function`; `emit_nvtx` appends ``, seq = 1`` to it.
OPTIMIZER_STEP = re.compile(r"Optimizer\.step#[^,]*(?:,.*)?", re.DOTALL)
MIN_OPTIMIZER_STEPS = 2  # a single one does not show where its iteration begins
MOST_OPTIMIZERS = 16  # steps of optimizers in one iteration
SAME_AGREEMENT = 0.05  # of the sections before the steps of optimizers


def with_optimizer_steps(steps: Steps, evidence: Evidence, op: Ints) -> Steps:
    """Return ``steps`` and, for processes that have none, those that optimizers end.

    An iteration ends with the step of an optimizer, or of several in turn, and begins where the one
    before ended. ``op`` is a code per range, or NONE; ``issued`` is when each activity was issued.
    """
    ranges = evidence.capture.ranges
    is_optimizer = ranges.name.matching(OPTIMIZER_STEP.fullmatch)
    rows = np.flatnonzero(is_optimizer & ranges.kind.among(frames.PUSH_POP))
    rows = rows[is_on_main_thread(evidence.capture, rows, np.zeros(len(rows), np.int64))]
    calls = Steps.of_ranges(ranges, rows, np.arange(len(rows)))
    with_steps = set(zip(steps.report.tolist(), steps.process.tolist(), strict=True))
    found = [
        _iterations(calls.select(np.arange(first, last)), evidence, op)
        for first, last in calls.by_process()
        if (int(calls.report[first]), int(calls.process[first])) not in with_steps
    ]
    return Steps.concatenate([steps, *found]) if found else steps


def _iterations(calls: Steps, evidence: Evidence, op: Ints) -> Steps:
    """Return the iterations that the calls of optimizers in one process end."""
    key = int(calls.report[0]), int(calls.process[0])
    ops = _Ops.of(evidence.capture, op, key, calls.range)
    calls = calls.select(_ends_iteration(calls, ops))
    in_turn = _optimizers_in_turn(calls, evidence, key, ops)
    first_end = calls.end[0] if len(calls) else 0
    calls = calls.select(np.arange(in_turn - 1, len(calls), in_turn))
    if len(calls) < MIN_OPTIMIZER_STEPS:
        return calls.select(np.empty(0, np.int64))
    end = calls.end
    at = ops.first_of_iteration(int(first_end), (int(end[0]), int(end[1])))
    first = int(ops.start[max(at, 0)]) if len(ops.start) else int(first_end)
    return replace(
        calls,
        number=np.arange(len(calls)),
        start=np.append(min(first, int(first_end)), end[:-1]),
        found_by=np.full(len(calls), OPTIMIZER),
    )


def _ends_iteration(calls: Steps, ops: _Ops) -> Flags:
    """Return whether ops run between each call and the next; if none ever do, all calls count."""
    counts = np.diff(
        np.searchsorted(ops.start, np.stack((calls.end[:-1], calls.start[1:]))), axis=0
    )
    is_end = np.append(counts[0] > 0, True)
    return is_end if is_end[:-1].any() else np.ones(len(calls), bool)


def _optimizers_in_turn(calls: Steps, evidence: Evidence, key: Key, ops: _Ops) -> int:
    """Return how many steps of optimizers an iteration has: the shortest period of the work between them.

    What comes before an iteration, such as an evaluation, does not count: as much is compared as both
    sections hold before their ends. Copies and memsets do not count either: values are logged now and then.
    """
    activities = evidence.capture.activities
    works = activities.kind.among(frames.KERNEL, frames.GRAPH)
    rows = np.flatnonzero(is_of_process(activities, key) & works)
    rows = rows[order_by(evidence.issued[rows])]
    name, time = activities.name.codes[rows] + 1, evidence.issued[rows]
    if not len(rows):
        name, time = ops.op, ops.start
    edge = np.searchsorted(time, np.append(calls.start[:1], calls.end))
    agreement = [0.0]
    for turn in range(1, min(MOST_OPTIMIZERS, (len(calls) - 1) // 2) + 1):
        pairs = range(1, min(len(calls) - turn, 4 * MOST_OPTIMIZERS))
        parts = [
            (name[edge[a] : edge[a + 1]], name[edge[a + turn] : edge[a + turn + 1]]) for a in pairs
        ]
        agreement.append(float(np.mean([_tails_agree(*part) for part in parts])))
    if max(agreement) < ALIKE:
        return 1
    return int(np.argmax(np.array(agreement) >= max(agreement) - SAME_AGREEMENT))


def _tails_agree(one: Ints, other: Ints) -> float:
    """Return the Jaccard index of the last names of two sections, as many of each."""
    size = min(len(one), len(other))
    if not size:
        return float(len(one) == len(other))
    one, other = one[len(one) - size :], other[len(other) - size :]
    most = int(max(one.max(), other.max())) + 1
    a, b = (np.bincount(names, minlength=most) for names in (one, other))
    return float(np.minimum(a, b).sum() / np.maximum(a, b).sum())
