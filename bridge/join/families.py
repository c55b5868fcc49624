"""Families of range names: names that differ in a number alone, and the steps that such ranges mark.

A family marks steps if its number counts up from range to range. A family within the steps, whose
numbers start again in each of them, numbers parts of a step, such as layers.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd

from bridge.importers import frames
from bridge.importers.capture import Capture
from bridge.join.arrays import NONE, Flags, Ints, number_groups, order_by, run_edges
from bridge.join.steps import (
    KINDS,
    RANGE,
    Steps,
    in_order,
    is_on_main_thread,
    numbered,
)

# -- Names that differ in a number


NUMBER = re.compile(r"([0-9]+)")
SEPARATOR = "\n"  # of names that are searched at once
MAX_DIGITS = 18  # more do not fit into 64 bits
WORD = re.compile(  # a word for steps with its number, anywhere in a name
    r"(?:(?<![a-zA-Z])|(?<=[a-z])(?=[SIBM]))(?i:step|iter(?:ation)?|(?:mini[ _-]?)?batch)[ _#:=-]*([0-9]+)"
)
LAST_WORD = re.compile(r"([A-Z]?[a-z]+|[A-Z]+)[^A-Za-z0-9]*$")
FIRST_WORD = re.compile(r"^[^A-Za-z0-9]*([A-Z]?[a-z]+|[A-Z]+)")
MODULE_PATH = re.compile(r"[A-Za-z_\])]\.$")  # as in blocks.3
PARTS = frozenset(  # what numbers tell apart within one step: parts of a model, devices, threads
    "layer layers block blocks module modules stage stages head heads expert experts bucket buckets rank"
    " ranks gpu device cuda stream worker thread conv bn fc linear norm encoder decoder level part shard"
    " group node h".split()
)
EPOCHS = frozenset(["epoch", "epochs"])  # each is a loop of steps
NAMED, OTHER, EPOCH = range(3)  # ranks of families: what is called a step comes first


@dataclass(frozen=True)
class Families:
    """Families of names: per name its family and its number, both NONE for a name without a family.

    Per family: ``text`` is the name with ``*`` in place of numbers that differ, ``rank`` one of
    `NAMED`, `OTHER` and `EPOCH`, or NONE if the number tells parts of a step apart.
    """

    family: Ints
    number: Ints
    text: tuple[str, ...]
    rank: Ints

    @classmethod
    def of(cls, names: Sequence[str]) -> Families:
        """Find the families of two or more names."""
        family, number = np.full(len(names), NONE), np.full(len(names), NONE)
        texts: list[str] = []
        ranks: list[int] = []
        for rows in _alike(names):
            found = _family([names[row] for row in rows.tolist()])
            if found:
                family[rows], number[rows] = len(texts), found[0]
                texts.append(found[1])
                ranks.append(found[2])
        return cls(family, number, tuple(texts), np.array(ranks, np.int64))


def _alike(names: Sequence[str]) -> list[Ints]:
    """Return the rows of names that are the same but for their numbers, two or more, by first row."""
    joined = NUMBER.sub("0", SEPARATOR.join(names))  # all at once: there may be a name per request
    shapes = joined.split(SEPARATOR)
    if len(shapes) != len(names):  # a name holds the separator
        shapes = [NUMBER.sub("0", name) for name in names]
    shape, _ = pd.factorize(np.array(shapes, object))
    rows = order_by(shape)
    edges = run_edges(shape[rows])
    several = np.flatnonzero(np.diff(edges) > 1)
    groups = (rows[edges[at] : edges[at + 1]] for at in several.tolist())
    return [group for group in groups if "0" in shapes[group[0]]]


def _family(names: list[str]) -> tuple[Ints, str, int] | None:
    """Return the numbers of names that differ in numbers, their common text and its rank.

    None if several numbers differ that do not grow together, as in ``layer 3 head 5``.
    """
    digits = NUMBER.findall(SEPARATOR.join(names))
    if max(map(len, digits)) > MAX_DIGITS:
        return None
    values = np.fromiter(map(int, digits), np.int64, len(digits)).reshape(len(names), -1)
    differs = np.flatnonzero((values != values[0]).any(axis=0))
    if not len(differs):
        return None  # 1 and 01
    parts = NUMBER.split(names[0])
    counted = _number_of_step(parts, differs)
    rank = NAMED
    if counted == NONE:
        counted = int(differs[0])
        rows = values[np.argsort(values[:, counted], kind="stable")]
        if (np.diff(rows[:, differs], axis=0) < 0).any():
            return None
        rank = _rank(parts[2 * counted], parts[2 * counted + 2])
    shown = parts.copy()
    for place in differs.tolist():
        shown[2 * place + 1] = "*"
    return values[:, counted], "".join(shown), rank


def _number_of_step(parts: list[str], differs: Ints) -> int:
    """Return which number of a name follows a word for steps, and differs; NONE if none does."""
    for match in WORD.finditer("".join(parts)):
        place = len(NUMBER.findall("".join(parts)[: match.start(1)]))
        if place in differs:
            return place
    return NONE


def _rank(before: str, after: str) -> int:
    """Return the rank of a family by the texts before and after its number, NONE for parts of a step."""
    if MODULE_PATH.search(before):
        return NONE
    match = LAST_WORD.search(before) or FIRST_WORD.search(after)
    word = match[1].lower() if match else ""
    if word in PARTS:
        return NONE
    return EPOCH if word in EPOCHS else OTHER


MIN_FOLDED = 8  # names of a family other than steps that are shown as one
MIN_DENSITY = (
    0.5  # share of the numbers from the lowest to the highest, in their stride, that occur
)


def folded_names(names: Sequence[str]) -> list[str]:
    """Return the names, those of a family whose numbers count up as one, such as ``token_*_processing``."""
    families = Families.of(names)
    result = list(names)
    order = order_by(families.family)
    edges = run_edges(families.family[order]).tolist()
    for first, last in pairwise(edges):
        rows = order[first:last]
        family = int(families.family[rows[0]])
        if family != NONE and _is_folded(families, family, families.number[rows]):
            for row in rows.tolist():
                result[row] = families.text[family]
    return result


def _is_folded(families: Families, family: int, number: Ints) -> bool:
    if families.rank[family] == NAMED:
        return True
    distinct = np.unique(number)
    if len(distinct) < MIN_FOLDED:
        return False
    stride = np.gcd.reduce(np.diff(distinct))  # 10 in Compute 10, Compute 20, Compute 30
    last = int((distinct[-1] - distinct[0]) // stride)
    return len(distinct) >= MIN_DENSITY * (last + 1)


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
        """Return whether all ranges end before those of ``other``, or start after them."""
        return bool(self.end[-1] <= other.start[0] or other.end[-1] <= self.start[0])


@dataclass(frozen=True)
class WorkTimes:
    """When the work of a capture was issued, and how long it ran; rows are activities."""

    report: Ints
    process: Ints
    issued: Ints
    duration: Ints

    @classmethod
    def of(cls, capture: Capture, launch: Ints, duration: Ints) -> WorkTimes:
        """Return the times; work without a launch counts as issued when it began."""
        table = capture.activities
        own, issued = frames.ints(table, "start"), frames.ints(capture.launches, "start")
        issued = np.where(launch == NONE, own, np.append(issued, 0)[launch])
        return cls(frames.ints(table, "report"), frames.ints(table, "process"), issued, duration)

    def shares(self, key: tuple[int, int], marks: Sequence[tuple[Ints, Ints]]) -> list[float]:
        """Return the share of a process's GPU time in each set of intervals, start and end.

        Without GPU time it is the share of the host time from the first start to the last end.
        """
        rows = np.flatnonzero((self.report == key[0]) & (self.process == key[1]))
        order = order_by(self.issued[rows])
        when = self.issued[rows][order]
        total = np.append(0, np.cumsum(self.duration[rows][order]))
        if total[-1]:
            parts = (
                total[np.searchsorted(when, end)] - total[np.searchsorted(when, start)]
                for start, end in marks
            )
            return [float(part.sum() / total[-1]) for part in parts]
        span = max(int(e[-1]) for _, e in marks) - min(int(s[0]) for s, _ in marks)
        return [float((end - start).sum() / max(1, span)) for start, end in marks]


def marked_steps(capture: Capture, launch: Ints, duration: Ints) -> Steps:
    """Return the steps that ranges mark, by a word for steps or by a number that counts up."""
    steps = Steps.of(capture)
    families = Families.of(list(capture.ranges["name"].cat.categories))
    groups = _counting_groups(capture, families)
    if not groups:
        return steps
    work = WorkTimes.of(capture, launch, duration)
    by_process: dict[tuple[int, int], list[tuple[int, Ints]]] = {}
    for key, family, rows in groups:
        by_process.setdefault(key, []).append((family, rows))
    named = {
        (int(steps.report[a]), int(steps.process[a])): steps.range[a:b]
        for a, b in steps.by_process()
    }
    parts = [steps.select(_is_without(steps, by_process))]
    for key, members in by_process.items():  # one iteration per process
        own = named.get(key, np.empty(0, np.int64))
        chosen = _chosen(_marks(capture, families, members, own, (work, key)), own)
        is_own = len(chosen) == 1 and chosen[0].row is own
        parts.append(_of_process(steps, key) if is_own else _steps_of(chosen, key))
    result = Steps.concatenate(parts)
    is_same = len(result) == len(steps) and (result.range == steps.range).all()
    return steps if is_same else result


def _of_process(steps: Steps, key: tuple[int, int]) -> Steps:
    return steps.select((steps.report == key[0]) & (steps.process == key[1]))


def _is_without(steps: Steps, keys: Iterable[tuple[int, int]]) -> Flags:
    result = np.ones(len(steps), bool)
    for report, process in keys:
        result &= (steps.report != report) | (steps.process != process)
    return result


def _counting_groups(
    capture: Capture, families: Families
) -> list[tuple[tuple[int, int], int, Ints]]:
    """Return the families whose number counts up: process, family, and ranges by start, of one thread."""
    ranges, code = capture.ranges, frames.codes(capture.ranges["name"])
    family = np.append(families.family, NONE)[code]
    if not len(families.text):
        return []
    names = np.bincount(families.family[families.family != NONE], minlength=len(families.text))
    count = np.bincount(family[family != NONE], minlength=len(families.text))
    is_named = families.rank == NAMED
    wanted = (families.rank != NONE) & (is_named | (count <= MAX_TIMES * names))
    rows = np.flatnonzero(np.append(wanted, False)[family])
    keys = [frames.ints(ranges, c)[rows] for c in ("report", "process", "thread")]
    start = frames.ints(ranges, "start")[rows]
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
    capture: Capture,
    families: Families,
    members: list[tuple[int, Ints]],
    named: Ints,
    of_process: tuple[WorkTimes, tuple[int, int]],
) -> list[Marks]:
    """Return the sets of ranges that may mark the steps of a process; ``named`` are its steps by name."""
    ranges = capture.ranges
    start, end = frames.ints(ranges, "start"), frames.ints(ranges, "end")
    number = np.append(families.number, NONE)[frames.codes(ranges["name"])]
    names = ranges["name"].cat.categories
    kind_of = {family: _kind(names, ranges, rows[0]) for family, rows in members}
    own_kind = _kind(names, ranges, named[0]) if len(named) else NONE
    sets = [(NAMED, named)] if len(named) else []
    if own_kind != 0 or not len(named):  # a profiler's own steps come first
        sets += [
            (int(families.rank[family]), _apart(rows, start, end))
            for family, rows in members
            if kind_of[family] == NONE or kind_of[family] != own_kind
        ]
    sets.sort(key=lambda one: -int((end - start)[one[1]].sum()))
    sets = [one for at, one in enumerate(sets) if at < MAX_FAMILIES or one[1] is named]
    work, key = of_process
    shares = work.shares(key, [(start[rows], end[rows]) for _, rows in sets])
    return [
        Marks(rows, number[rows], start[rows], end[rows], rank, share)
        for (rank, rows), share in zip(sets, shares, strict=True)
    ]


def _kind(names: pd.Index, ranges: pd.DataFrame, row: int) -> int:
    """Return the index into `KINDS` of the pattern that a range's name matches, or NONE."""
    name = names[ranges["name"].cat.codes.iloc[row]]
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


def _steps_of(marks: list[Marks], key: tuple[int, int]) -> Steps:
    """Return the steps that sets of ranges mark, each set a loop of its own."""
    size = [len(one.row) for one in marks]
    count = sum(size)

    def joined(parts: list[Ints]) -> Ints:
        return np.concatenate([np.empty(0, np.int64), *parts])

    return numbered(
        in_order(
            Steps(
                range=joined([one.row for one in marks]),
                number=joined([one.number for one in marks]),
                report=np.full(count, key[0]),
                process=np.full(count, key[1]),
                start=joined([one.start for one in marks]),
                end=joined([one.end for one in marks]),
                found_by=np.full(count, RANGE),
                loop=np.repeat(np.arange(len(marks)), size),
                first=np.full(count, NONE),
            )
        )
    )


# -- Steps that the user chooses by name (``--steps``)


NAMELESS = " _#:=-./"  # what separates a number from the name of a family


def chosen_names(names: Sequence[str], wanted: str) -> Flags:
    """Return which names ``wanted`` chooses.

    It is a name, which may hold ``*`` and ``?``, or a family: ``Batch``, ``Batch N`` or ``Batch *``.
    """
    pattern = re.compile(fnmatch.translate(wanted.replace("[", "[[]")))
    families = Families.of(names)
    is_family = [*(wanted.lower() in _called(text) for text in families.text), False]
    by_family: Flags = np.array(is_family, bool)[families.family]
    by_name = np.array([pattern.match(name) is not None for name in names], bool)
    return by_name if by_name.any() else by_family


def _called(text: str) -> tuple[str, ...]:
    """Return what a family may be called."""
    text = text.lower()
    return text, text.replace("*", "n"), text.replace("*", "").strip(NAMELESS)


def chosen_steps(capture: Capture, wanted: str) -> Steps:
    """Return the ranges of a name or a family as steps: in each process the outermost, on one thread."""
    ranges = capture.ranges
    names = list(ranges["name"].cat.categories)
    code = frames.codes(ranges["name"])
    rows = np.flatnonzero(np.append(chosen_names(names, wanted), False)[code])
    rows = rows[is_on_main_thread(capture, rows, np.zeros(len(rows), np.int64))]
    number = np.append(Families.of(names).number, NONE)[code[rows]]
    return Steps.of_ranges(ranges, rows, number)


# -- Why ranges mark no steps


def why_no_marks(capture: Capture, launch: Ints, duration: Ints) -> str:
    """Return in one clause why no ranges mark steps."""
    names = list(capture.ranges["name"].cat.categories)
    families = Families.of(names)
    groups = _counting_groups(capture, families)
    if not groups:
        is_part = families.rank == NONE
        if is_part.any():
            text = families.text[int(np.argmax(is_part))]
            return f"the numbers of the ranges {text} tell parts of a step apart"
        return "no range family counts up" if names else "there are no ranges"
    work = WorkTimes.of(capture, launch, duration)
    start, end = (frames.ints(capture.ranges, c) for c in ("start", "end"))
    apart = [(key, family, _apart(rows, start, end)) for key, family, rows in groups[:MAX_FAMILIES]]
    shares = [work.shares(key, [(start[rows], end[rows])])[0] for key, _, rows in apart]
    best = int(np.argmax(shares))
    return (
        f"the ranges {families.text[apart[best][1]]} count up, but cover only"
        f" {100 * shares[best]:.0f} % of the process's time on the GPU"
    )
