"""Loops: work that recurs, found by what is issued once in each iteration.

An anchor is a name (a kernel, a copy, a graph launch) that recurs. It divides the work into sections,
from each of its occurrences to the next one. The sections are iterations if most of their work recurs
from section to section; how often it is issued within a section may vary. Of several such divisions
the one with the shortest sections counts, unless its sections are layers: parts of a longer period, or
of a single pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bridge.join.arrays import Flags, Ints, run_edges, stable_order

Floats = NDArray[np.float64]

MIN_SECTIONS = 3
MIN_RECURRING = 0.9  # share of the kernels that recur from section to section
MIN_RECURRING_TIME = 0.8  # and of their time: every second iteration may sweep in another direction
MIN_PRESENT = 0.55  # share of the sections that contain what recurs: more than every second
MIN_COVERED = 0.6  # share of all kernels, and of their time, in loops
MIN_LOOP = 0.1  # the same for each of several loops
MIN_ITERATIONS = 5  # of each of several loops
MIN_EQUAL = 0.9  # share of sections as long as the one before, where a single name recurs
MIN_HOST = 0.9  # share of the sections in which the host takes part, if these are no layers
MAX_ENCLOSED = 0.5  # share of the sections that begin within a range, if these are no layers
MAX_WITH_OWN = (
    0.75  # share of the layers next to kernels of the longer period; else these alternate
)
MOST_LAYERS = 100  # more sections are iterations, even if the host only issues them
MAX_EPILOGUE = 0.25  # share of a section: a pass ends with more than that, a loop does not
MAX_CUT = 2  # a section with this much more work than usual is cut where that begins
MAX_INTERRUPTED = 0.1  # share of the sections that are cut
SAME_NUMBER = 1.5  # numbers of sections within this factor are of the same iterations
SAME_PAUSE = np.log(1.5)  # pauses within this factor are alike
MOST_ANCHORS = 12  # that are tried


@dataclass(frozen=True)
class Issued:
    """The work of one process in the order of issue, a row per activity.

    ``name`` is a dense code. ``weight`` is 1 for kernels and graphs, else 0; ``spent`` is their time in ns.
    ``begins`` tells where a section may begin: not within a graph. ``pause`` is the time in ns before a
    row in which the host had issued nothing. ``host`` is how often the host took part before the next
    row. ``enclosed`` tells whether a range is open all the time from the row before.
    """

    name: Ints
    weight: Ints
    spent: Ints
    begins: Flags
    is_graph: Flags
    pause: Ints
    host: Ints
    enclosed: Flags


@dataclass(frozen=True)
class Loop:
    """A loop: its sections are the rows from ``row`` up to ``end``, one entry per iteration."""

    row: Ints
    end: Ints


@dataclass(frozen=True)
class LoopDetection:
    """The loops of a process in the order of time, or why there are none."""

    loops: tuple[Loop, ...]
    why: str = ""


def find_loops(work: Issued) -> LoopDetection:
    search = _Search.of(work)
    divisions = search.divisions()
    loops: list[Division] = []
    why = NO_RECURRENCE
    for division in divisions:  # those that cover most come first, and of these the shortest
        if all(division.last <= one.first or one.last <= division.first for one in loops):
            outer, reason = search.not_layers(
                division, divisions, is_alone=division.covered >= MIN_COVERED
            )
            if outer is None:
                why = reason
                if division.covered >= MIN_COVERED:
                    return LoopDetection((), why)
            else:
                loops.append(outer)
    if sum(one.covered for one in loops) < MIN_COVERED:
        return LoopDetection((), why)
    ordered = sorted(loops, key=lambda one: one.first)
    return LoopDetection(tuple(loop for one in ordered for loop in _alike(search.cut(one))))


def _alike(loop: Loop) -> list[Loop]:
    """Return the loop, or its parts if each has iterations of another length."""
    length = np.diff(loop.row)
    edges = run_edges(length)
    edges[-1] += 1  # the last iteration has no next one
    enough = max(MIN_ITERATIONS, MIN_LOOP * len(loop.row))
    if (np.diff(edges) < enough).any():
        return [loop]
    return [Loop(loop.row[a:b], loop.end[a:b]) for a, b in pairwise(edges.tolist())]


def _is_best(division: Division, divisions: list[Division]) -> bool:
    """Return whether no division with about as many sections has more names that occur once in each."""
    return not any(
        one.covered >= MIN_COVERED
        and len(one.row) <= SAME_NUMBER * len(division.row)
        and len(division.row) <= SAME_NUMBER * len(one.row)
        and (one.once.sum(), len(one.row)) > (division.once.sum(), len(division.row))
        for one in divisions
    )


NO_RECURRENCE = "no kernel recurs at regular distance"
ONE_RANGE = (
    "work recurs, but within one range and without a wait or a copy by the host, as layers do"
)
ENDS_OTHERWISE = (
    "work recurs, but other kernels follow and the host neither waits nor copies in between, as for"
    " the layers of one pass"
)
LAYERS = "what recurs is part of a longer period, as layers are, and that occurs less than 3 times"


@dataclass(frozen=True)
class Division:
    """The sections that an anchor divides a part of the work into.

    ``row`` are the rows of the anchor; the part ends before ``last``. ``recurs`` tells per name
    whether it recurs, ``once`` whether it is issued once in each section. ``covered`` is the share
    of all kernels, and of their time, whichever is less.
    """

    row: Ints
    last: int
    recurs: Flags
    once: Flags
    covered: float

    @property
    def first(self) -> int:
        return int(self.row[0])

    @property
    def length(self) -> int:
        """The number of rows of a usual section."""
        return int(np.median(np.diff(self.row)))


@dataclass(frozen=True)
class _Search:
    """The work, and its rows by name: ``order`` sorts rows by name, ``edge`` is where each name begins."""

    work: Issued
    order: Ints
    edge: Ints
    count: Ints
    can_begin: Ints
    pause: Floats
    weights: Ints
    times: Ints
    host: Ints

    @classmethod
    def of(cls, work: Issued) -> _Search:
        names = int(work.name.max(initial=-1)) + 1
        order = stable_order(work.name) if len(work.name) else work.name
        count = np.bincount(work.name, minlength=names)
        edge = np.append(0, np.cumsum(count))
        pauses = np.bincount(work.name[1:], np.log1p(work.pause[1:]), names)
        pause = pauses / np.maximum(np.bincount(work.name[1:], minlength=names), 1)
        return cls(
            work,
            order,
            edge,
            count,
            np.bincount(work.name, work.begins, names).astype(np.int64),
            pause,
            *(np.append(0, np.cumsum(column)) for column in (work.weight, work.spent, work.host)),
        )

    def rows_of(self, name: int) -> Ints:
        """Return the rows of a name, in order."""
        return self.order[self.edge[name] : self.edge[name + 1]]

    def divisions(self) -> list[Division]:
        """Return the divisions in which the work recurs: first those that cover most, then the shortest."""
        result = [
            division for name in self._anchors() if (division := self._division(name)) is not None
        ]
        whole = [one for one in result if one.covered >= MIN_COVERED and _is_best(one, result)]
        parts = [
            one
            for one in result
            if MIN_LOOP <= one.covered < MIN_COVERED and len(one.row) >= MIN_ITERATIONS
        ]
        whole.sort(key=lambda one: -len(one.row))
        parts.sort(key=lambda one: (-one.covered, -len(one.row)))
        return whole + parts

    def _anchors(self) -> list[int]:
        """Return names that may divide the work, one of each set of names that recur together."""
        names = np.flatnonzero((self.count >= MIN_SECTIONS) & (self.can_begin == self.count))
        if not len(names):
            return []
        first, last = self.order[self.edge[names]], self.order[self.edge[names + 1] - 1]
        count = self.count[names]
        last = np.minimum(last + (last - first) // (count - 1), len(self.order))
        covered = np.minimum(
            (self.weights[last] - self.weights[first]) / max(1, self.weights[-1]),
            (self.times[last] - self.times[first]) / max(1, self.times[-1]),
        )
        is_possible = (covered >= MIN_LOOP) & (self._bound(count) >= MIN_RECURRING_TIME * covered)
        # One name per count and part of the work: what is issued together has the same of both.
        part = np.round(first / len(self.order), 2) + np.round(last / len(self.order), 2) * 1000
        rank = np.lexsort((first, part, -count, -np.round(covered, 1)))
        rank = rank[is_possible[rank]]
        key = count[rank] * 1_000_000 + np.round(part[rank] * 100)
        _, chosen = np.unique(key, return_index=True)
        result: list[int] = names[rank[np.sort(chosen)]][:MOST_ANCHORS].tolist()
        return result

    def _bound(self, count: Ints) -> Floats:
        """Return the most that can recur: the share of kernels and time of names that occur often enough."""
        order = np.argsort(-self.count, kind="stable")
        weight = np.bincount(self.work.name, self.work.weight, len(self.count))[order]
        spent = np.bincount(self.work.name, self.work.spent, len(self.count))[order]
        place = np.searchsorted(-self.count[order], -MIN_PRESENT * count, side="right")
        shares = (np.append(0, np.cumsum(c)) / max(1, c.sum()) for c in (weight, spent))
        kernels, time = (share[place] for share in shares)
        bound: Floats = np.minimum(kernels, time)
        return bound

    def _division(self, name: int) -> Division | None:
        """Return the division by a name, None if too little recurs from section to section."""
        row = self.rows_of(name)
        present, in_part = self._presence(row)
        sections = len(row)
        once = (in_part == sections) & (present >= sections - 1)
        if not self._is_regular(row, once):
            return None
        row = self._best_border(row, once)
        last = min(int(row[-1]) + int(np.median(np.diff(row))), len(self.order))
        recurs = present >= MIN_PRESENT * sections
        part = slice(int(row[0]), last)
        of_recurring = recurs[self.work.name[part]]
        counted = of_recurring | ~self._interrupts(row, part, of_recurring)
        kernels, time = (c[part][counted].sum() for c in (self.work.weight, self.work.spent))
        weight = self.work.weight[part][of_recurring].sum() / max(1, kernels)
        spent = self.work.spent[part][of_recurring].sum() / max(1, time)
        if weight < MIN_RECURRING or spent < MIN_RECURRING_TIME:
            return None
        covered = min(kernels / max(1, self.weights[-1]), time / max(1, self.times[-1]))
        return Division(row, last, recurs, once, float(covered))

    def _interrupts(self, row: Ints, part: slice, of_recurring: Flags) -> Flags:
        """Return which rows of a part are in sections that other work interrupts: in few, and in these long."""
        border = np.append(row, part.stop) - part.start
        others = np.diff(np.append(0, np.cumsum(~of_recurring))[border])
        is_long = others > MAX_CUT * np.median(np.diff(row))
        if is_long.sum() > max(1, MAX_INTERRUPTED * len(row)):
            is_long[:] = False
        return np.repeat(is_long, np.diff(border))

    def _presence(self, row: Ints) -> tuple[Ints, Ints]:
        """Return per name the number of sections that contain it, and how often it is in any."""
        is_border = np.zeros(len(self.order), np.int64)
        is_border[row] = 1
        section = np.cumsum(is_border)
        last = min(int(row[-1]) + int(np.diff(row).max()), len(self.order))
        section[last:] = 0
        section = section[self.order]
        name = self.work.name[self.order]
        is_new = np.append(True, (section[1:] != section[:-1]) | (name[1:] != name[:-1]))
        names = len(self.count)
        in_part = section > 0
        return (
            np.bincount(name[is_new & in_part], minlength=names),
            np.bincount(name[in_part], minlength=names),
        )

    def _is_regular(self, row: Ints, once: Flags) -> bool:
        """Return whether several names recur in turn, or one with the same work after it each time."""
        length = np.diff(row)
        if np.median(length) <= 1 and not self.work.is_graph[row].all():
            return False
        if np.count_nonzero(once) > 1:
            return True
        return bool((length[1:] == length[:-1]).mean() >= MIN_EQUAL)

    def _best_border(self, row: Ints, once: Flags) -> Ints:
        """Return the rows of the name with which sections begin: after the longest pause, else the first."""
        names = np.flatnonzero(once & (self.can_begin == self.count) & (self.count == len(row)))
        if not len(names):
            return row
        longest = names[self.pause[names] >= self.pause[names].max() - SAME_PAUSE]
        first = self.order[self.edge[longest]]
        return self.rows_of(int(longest[np.argmin(first)]))

    def not_layers(
        self, division: Division, divisions: list[Division], *, is_alone: bool
    ) -> tuple[Division | None, str]:
        """Return the division, or a longer one that its sections are layers of; else None and why."""
        if self._host_share(division) >= MIN_HOST:
            return division, ""
        longer = [one for one in divisions if self._holds_layers(one, division)]
        if longer:
            return self.not_layers(longer[0], divisions, is_alone=is_alone)
        why = self._why_layers(division, is_alone=is_alone)
        return (None, why) if why else (division, "")

    def _why_layers(self, division: Division, *, is_alone: bool) -> str:
        """Return why sections in which the host takes no part are layers of one pass, "" if they are not."""
        if self._is_in_longer_period(division):
            return LAYERS
        if self.work.is_graph[division.row].all():
            return ""
        if self._is_enclosed(division):
            return ONE_RANGE
        is_many = len(division.row) >= MOST_LAYERS
        return "" if is_many or (is_alone and not self._has_epilogue(division)) else ENDS_OTHERWISE

    def _is_enclosed(self, division: Division) -> bool:
        """Return whether sections begin within a range that holds more than equal sections."""
        if self.work.enclosed[division.row[1:]].mean() < MAX_ENCLOSED:
            return False
        end, length = self._end(division), np.diff(division.row)
        outside = np.append(self.work.enclosed, False)[[division.first, end]]
        return bool(outside.any() or (length != length[0]).any())

    def _host_share(self, division: Division) -> float:
        """Return the share of the sections in which the host takes part; 0 if it does after each activity."""
        if (np.diff(self.host) > 0).mean() >= MIN_HOST:
            return 0.0
        border = np.append(division.row, division.last)
        return float((np.diff(self.host[border]) > 0)[:-1].mean())

    def _holds_layers(self, outer: Division, inner: Division) -> bool:
        """Return whether each section of ``outer`` holds as many of ``inner``, and kernels of its own."""
        if len(outer.row) >= len(inner.row):
            return False
        held = np.diff(np.searchsorted(inner.row, outer.row))
        is_same = (held == np.median(held)).mean() >= MIN_HOST
        part = slice(outer.first, outer.last)
        is_own = (outer.recurs & ~inner.recurs)[self.work.name[part]]
        rows = np.flatnonzero(is_own & (self.work.weight[part] > 0)) + outer.first
        with_own = np.unique(np.searchsorted(inner.row, rows, side="right"))
        is_between = 0 < len(with_own) <= MAX_WITH_OWN * len(inner.row)
        return bool(is_same and 1 < np.median(held) < MOST_LAYERS and is_between)

    def _is_in_longer_period(self, division: Division) -> bool:
        """Return whether kernels recur that are in every k-th section alone: in two, too few to be found."""
        part = slice(division.first, int(division.row[-1]))
        name = self.work.name[part]
        others = ~division.recurs[name] & (self.work.weight[part] > 0) & (self.count[name] > 1)
        rows = np.flatnonzero(others) + division.first
        if not len(rows):
            return False
        section = np.searchsorted(division.row, rows, side="right") - 1
        distinct = np.unique(section)
        sections = len(division.row)
        steps = np.diff(np.concatenate(([-1], distinct, [sections - 1])))
        return bool((steps == steps[0]).all() and 1 < steps[0] < MOST_LAYERS)

    def _has_epilogue(self, division: Division) -> bool:
        """Return whether more than a part of a section follows, of whatever kernels."""
        end, sections = self._end(division), len(division.row)
        usual = (
            (total[division.row[-1]] - total[division.first]) / (sections - 1)
            for total in (self.weights, self.times)
        )
        after = (total[-1] - total[end] for total in (self.weights, self.times))
        return any(a > MAX_EPILOGUE * u for a, u in zip(after, usual, strict=True))

    def cut(self, division: Division) -> Loop:
        """Return the sections without what follows an iteration that was the last for a while."""
        row = division.row
        end = np.append(row[1:], self._end(division))
        other = np.append(0, np.cumsum(~division.recurs[self.work.name]))
        is_long = other[end] - other[row] > MAX_CUT * division.length
        for at in np.flatnonzero(is_long).tolist():  # few: each is as long as several iterations
            following = self.work.name[row[at] : end[at]]
            end[at] = row[at] + max(1, int(np.argmin(division.recurs[following])))
        return Loop(row, end)

    def _end(self, division: Division) -> int:
        """Return where the last section ends: after what is issued once in each, before other work."""
        begin = int(division.row[-1])
        longest = int(np.diff(division.row).max())
        usual = int(np.diff(division.row)[-MIN_SECTIONS:].max())
        name = self.work.name[begin : min(begin + longest, len(self.order))]
        last_once = int(np.flatnonzero(division.once[name])[-1]) if division.once[name].any() else 0
        others = np.flatnonzero(~division.recurs[name[last_once:]])
        limit = last_once + int(others[0]) if len(others) else len(name)
        again = np.flatnonzero(name[1:] == name[0])
        limit = min(limit, int(again[0]) + 1 if len(again) else limit)
        return begin + max(last_once + 1, min(limit, max(usual, last_once + 1)))
