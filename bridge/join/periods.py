"""Periods: parts of a sequence of work that recur, one after the other, found by what each contains once.

An anchor is a name, or several names in a row, that recurs. It cuts the sequence into sections, from
each of its occurrences to the next one. Sections are alike if the multisets of their kernels agree to
`ALIKE`. A run of alike sections is a period; of periods within one another the outermost counts, and
of periods that are multiples of one another the shortest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from bridge.importers.records import record
from bridge.join.arrays import Flags, Ints, run_edges

Floats = NDArray[np.float64]
Codes = NDArray[np.uint16]

ALIKE = 0.9  # Jaccard index of the multisets of two instances
MIN_ALIKE = 3  # instances
MIN_COVERED = 0.05  # share of the kernels, or of their time, in the instances of a period
NAMES_IN_A_ROW = (1, 2, 4, 8)  # lengths of anchors
MOST_ANCHORS = 16  # of each length, those that occur most
MOST_ALIKE = 4  # anchors that occur as often, of which the most regular counts
MOST_PAIRS = 64  # of unequal sections, for which the agreement is computed
MOST_EQUAL = 0.6  # share of the instances that are equal, if a period is exact
MOST_FOLDED = 12  # names of a part that may occur in each instance as often as it likes
MIN_REPEATED = 0.1  # share of the rows in such parts
MOST_ROWS = 200_000  # of a sequence that is searched for them
MIN_FOLDED = 8  # instances that are found in that way
MIN_ORDER = 0.2  # agreement of the longest sequences of names in unequal instances
MOST_ORDERED = 8  # pairs of instances whose order is compared
MIN_IN_RUN = 0.5  # share of the sections of an anchor in a run whose instances are not equal
MOST_ODD = 0.25  # share of the sections of an anchor that are unlike their neighbours
MAX_ODD = 1.5  # kernels of an unlike section within a loop, relative to those of the one before
MAX_WARM_UP = 4  # the same of leading sections, which may hold more
MOST_WARM_UP = 3  # leading sections that may hold more
COARSE = 50  # shares are compared in steps of one by this
SAME_LEVEL = 1.5  # periods whose numbers of instances are within this factor are of one level
MIN_SAME = 0.7  # share of the kernels of the inner period that an outer one holds
MIN_EXTRA = (
    3  # kernels that a section holds between the last part of an instance and the next instance
)
MOST_PARTS = 192  # alike parts within an instance; more are iterations with something in between
MAX_SHARED = 0.25  # share of an instance that two loops, one after the other, may both claim
MAX_SET_UP = 0.1  # share of an instance that may equal the end of what was done before the loop
SAME_PAUSE = np.log(1.5)  # mean logarithms of pauses that are alike
MIN_NEAR = 0.1  # share of the sections of an anchor that are about as long as the next one
MOST_PAUSES = 64  # rows that are tried as the begin of an instance


@dataclass(frozen=True, eq=False)
class Sequence:
    """The work of a loop's candidate, in the order of issue, a row per activity or range.

    ``name`` is a dense code. ``weight`` is 1 for what instances are compared by (kernels and graphs),
    else 0; ``spent`` is its time in ns. ``begins`` tells where an instance may begin: not within a
    graph. ``pause`` is the time in ns before a row in which the host had issued nothing.
    """

    name: Ints
    weight: Ints
    spent: Ints
    begins: Flags
    pause: Ints

    def __len__(self) -> int:
        return len(self.name)

    def select(self, rows: Flags | Ints | slice) -> Sequence:
        return Sequence(*(getattr(self, field.name)[rows] for field in fields(self)))

    @cached_property
    def weights(self) -> Ints:
        """The number of kernels before each row."""
        return np.append(0, np.cumsum(self.weight))

    @cached_property
    def times(self) -> Ints:
        """The time of the kernels before each row in ns."""
        return np.append(0, np.cumsum(self.spent))

    @cached_property
    def hashes(self) -> Ints:
        """Sums of hashes of the kernels before each row: equal differences are equal multisets."""
        return np.append(0, np.cumsum(self._hashed * self.weight))

    @cached_property
    def all_hashes(self) -> Ints:
        """The same of all rows."""
        return np.append(0, np.cumsum(self._hashed))

    @cached_property
    def _hashed(self) -> Ints:
        return scrambled(np.arange(int(self.name.max(initial=0)) + 1))[self.name]


@dataclass(frozen=True, eq=False)
class Period:
    """What recurs: instances are the rows from ``row`` up to ``end``, one entry each.

    ``kernels`` are those in the instances, of which ``equal`` hold the same work;
    ``pause`` is the logarithm of the host's pause before them. ``covered`` is the
    larger of their share of all kernels and of all time, ``share`` the smaller. ``odd`` is the number
    of sections that are unlike the others, ``unequal`` of those with `MIN_EXTRA` kernels more or less
    than usual. ``exact`` tells whether most instances are equal. ``is_cut`` tells whether the sequence
    begins and ends within an instance.
    """

    row: Ints
    end: Ints
    kernels: int
    equal: int
    pause: int
    covered: float
    share: float
    odd: int
    unequal: int
    exact: bool
    is_cut: tuple[bool, bool]

    def __len__(self) -> int:
        return len(self.row)

    @property
    def first(self) -> int:
        return int(self.row[0])

    @property
    def last(self) -> int:
        return int(self.end[-1])

    @property
    def merit(self) -> tuple[int, ...]:
        """What is compared of periods of one level: how much they hold, and how well they begin and end."""
        cuts = sum(self.is_cut)
        return round(self.covered * COARSE), len(self), self.equal, self.pause, -cuts, -self.first

    def unfolded(self, rows: Ints) -> Period:
        """Return the period in the sequence of which ``rows`` were kept."""
        return replace(self, row=rows[self.row], end=rows[self.end])

    def is_remnant_of(self, other: Period) -> bool:
        """Return whether the period lies in an instance of another one that the sequence holds in part."""
        length = int(np.median(other.end - other.row))
        is_before = other.is_cut[0] and 0 <= other.first - self.last <= length
        return is_before or (other.is_cut[1] and 0 <= self.first - other.last <= length)

    def overlaps(self, other: Period) -> bool:
        """Return whether both hold the same rows, but for a few between one loop and the next."""
        shared = min(self.last, other.last) - max(self.first, other.first)
        length = min(float(np.median(one.end - one.row)) for one in (self, other))
        return shared > MAX_SHARED * length

    def after(self, row: int) -> Period:
        """Return the period without what its first instance holds before a row."""
        return self if self.first >= row else replace(self, row=np.maximum(self.row, row))


def scrambled(numbers: Ints) -> Ints:
    """Return a hash of each number; equal numbers have equal hashes."""
    result = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, prime in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        result = (result ^ (result >> np.uint64(shift))) * np.uint64(prime)
    return (result ^ (result >> np.uint64(31))).view(np.int64)


def outermost_periods(work: Sequence, more: Iterable[Ints] = ()) -> list[Period]:
    """Return the outermost periods of a sequence in order; they do not overlap.

    ``more`` are rows at which something recurs, such as the first in each range of one name.
    """
    if not work.weight.any():
        return []
    anchors = chain(_anchors(work), more)
    found = [period for anchor in anchors for period in _periods(work, anchor)]
    found.sort(key=lambda one: (len(one), *(-merit for merit in one.merit)))
    chosen: list[Period] = []
    for one in found:
        rivals = [other for other in chosen if other.overlaps(one)]
        if all(_is_better(one, other) for other in rivals):
            chosen = [other for other in chosen if other not in rivals] + [one]
    units = sorted((_unit(one, found) for one in chosen), key=lambda one: -one.kernels)
    result: list[Period] = []
    for one in units:
        if not any(one.overlaps(other) or one.is_remnant_of(other) for other in result):
            result.append(one)
    result.sort(key=lambda one: one.first)
    ends = [0, *(one.last for one in result)]
    return [one.after(end) for one, end in zip(result, ends, strict=False)]


def periods_of_folded(work: Sequence) -> list[Period]:
    """Return the outermost periods of a sequence in which what repeats within instances counts once.

    Parts of 1, 2 … names that repeat at once are folded until instances are equal, however often such
    a part occurs in each. Empty if they never are.
    """
    rows = np.arange(len(work) if len(work) <= MOST_ROWS else 0)
    for length in range(1, MOST_FOLDED + 1):
        kept = rows[_is_new(work.name[rows], length)]
        is_much = len(kept) < (1 - MIN_REPEATED) * len(rows)
        rows = kept
        folded = outermost_periods(work.select(rows)) if is_much else []
        result = [one for one in folded if one.exact and len(one) >= MIN_FOLDED]
        if sum(one.covered for one in result) >= MIN_SAME:
            return [one.unfolded(np.append(rows, len(work))) for one in result]
    return []


def _is_new(name: Ints, length: int) -> Flags:
    """Return which rows stay if parts of one length that repeat at once are left out but for the first."""
    same = np.zeros(len(name), bool)
    same[length:] = name[length:] == name[:-length]
    edges = run_edges(same.astype(np.int64))
    first, size = edges[:-1], np.diff(edges) // length * length
    size[~same[first]] = 0
    dropped = np.zeros(len(name) + 1, np.int64)
    np.add.at(dropped, first, size > 0)
    np.add.at(dropped, first + size, -(size > 0).astype(np.int64))
    result: Flags = np.cumsum(dropped)[:-1] == 0
    return result


def _is_better(one: Period, other: Period) -> bool:
    """Return whether a period with at least as many instances replaces another one."""
    if len(one) <= SAME_LEVEL * len(other) and one.odd <= other.odd + 1:
        return one.merit > other.merit
    return other.kernels < MIN_SAME * one.kernels


def _unit(one: Period, found: list[Period]) -> Period:
    """Return the shortest period of which ``one`` is a multiple."""
    for other in reversed(found):  # those with most instances come last
        parts = len(other) / len(one)
        if parts < SAME_LEVEL or other.kernels < ALIKE * one.kernels or not other.overlaps(one):
            continue
        is_regular = other.odd < len(one) / 2
        has_own = one.exact and other.unequal >= len(one) / 2 and parts < MOST_PARTS
        if is_regular and not has_own:
            return other
    return one


# -- Anchors


def _anchors(work: Sequence) -> Iterator[Ints]:
    """Yield the rows of names, and of several names in a row, that may divide a sequence."""
    begins = np.flatnonzero(work.begins)
    total, spent = int(work.weights[-1]), max(1, int(work.times[-1]))
    for code in _grams(work.name):
        rows = begins[: np.searchsorted(begins, len(code))]
        of_row = code[rows]
        count = np.bincount(of_row, minlength=1 << 16)
        order = rows[np.argsort(of_row, kind="stable")]
        edge = np.append(0, np.cumsum(count))
        codes = np.flatnonzero(count >= MIN_ALIKE)
        first, last, number = order[edge[codes]], order[edge[codes + 1] - 1], count[codes]
        end = np.minimum(last + (last - first) // (number - 1), len(work))
        covered = np.maximum(
            (work.weights[end] - work.weights[first]) / total,
            (work.times[end] - work.times[first]) / spent,
        )
        possible = np.flatnonzero((covered >= MIN_COVERED) & (end - first >= number))
        for at in _distinct(number[possible], first[possible], len(work)):
            anchors = [order[edge[one] : edge[one + 1]] for one in codes[possible[at]].tolist()]
            yield min(anchors, key=_variation)


def _grams(name: Ints) -> Iterator[Codes]:
    """Yield a code per row for one name, then for two, four … names in a row."""
    code = scrambled(np.arange(int(name.max(initial=0)) + 1)).view(np.uint64)[name]
    if int(name.max(initial=0)) < 1 << 16:
        yield name.astype(np.uint16)
    else:
        yield (code >> np.uint64(48)).astype(np.uint16)
    for length in NAMES_IN_A_ROW[1:]:
        half = length // 2
        if len(code) <= half:
            return
        code = code[:-half] * np.uint64(0x9E3779B97F4A7C15) + (
            code[half:] ^ (code[half:] >> np.uint64(29))
        )
        yield (code >> np.uint64(48)).astype(np.uint16)


def _distinct(number: Ints, first: Ints, length: int) -> list[Ints]:
    """Return codes that occur as often in one part of the sequence, the earliest; of all, those that occur most."""
    place = first * 32 // max(1, length)
    order = np.lexsort((first, place, number))
    edges = run_edges(number[order] * 64 + place[order])
    support = np.diff(edges) * number[order][edges[:-1]]
    most = np.sort(np.argsort(-support, kind="stable")[:MOST_ANCHORS])
    return [order[edges[one] : min(edges[one] + MOST_ALIKE, edges[one + 1])] for one in most]


def _variation(row: Ints) -> float:
    """Return the coefficient of variation of the distances between rows, to one decimal."""
    distance = np.diff(row)
    return round(float(distance.std() / distance.mean()), 1)


# -- The sections of an anchor


def _periods(work: Sequence, row: Ints) -> list[Period]:
    """Return the runs of alike sections that an anchor cuts a sequence into."""
    size = np.diff(work.weights[row])
    near = np.minimum(size[1:], size[:-1]) >= ALIKE * np.maximum(size[1:], size[:-1])
    near &= size[1:] > 0
    if np.count_nonzero(near) < max(1, MIN_NEAR * len(near)):
        return []
    sections = np.arange(len(size))
    alike = near.copy()
    alike[near] = _agree(work, row, sections[:-1][near], sections[1:][near], of_all=False)
    runs = _joined(work, row, size, alike)
    return [period for run in runs if (period := _period(work, row, size, run)) is not None]


def _agree(work: Sequence, row: Ints, one: Ints, other: Ints, *, of_all: bool) -> Flags:
    """Return whether pairs of sections are alike; of many unequal pairs some are compared."""
    sums = work.all_hashes if of_all else work.hashes
    content = np.diff(sums[row])
    result: Flags = content[one] == content[other]
    unequal = np.flatnonzero(~result)
    if not len(unequal):
        return result
    pair = scrambled(content[one[unequal]]) + 3 * scrambled(content[other[unequal]])
    _, at, pair_of = np.unique(pair, return_index=True, return_inverse=True)
    step = max(1, -(-len(at) // MOST_PAIRS))
    sampled = at[::step]
    pairs = zip(one[unequal[sampled]].tolist(), other[unequal[sampled]].tolist(), strict=True)
    verdict = [
        jaccard(work, slice(row[a], row[a + 1]), slice(row[b], row[b + 1]), of_all=of_all) >= ALIKE
        for a, b in pairs
    ]
    result[unequal] = np.array(verdict, bool)[pair_of // step]
    return result


def jaccard(work: Sequence, one: slice, other: slice, *, of_all: bool = False) -> float:
    """Return the Jaccard index of the multisets of kernels (or of all names) in two parts."""
    a, b = _counts(work, one, other, of_all=of_all)
    return float(np.minimum(a, b).sum() / max(1, np.maximum(a, b).sum()))


@record
class _Run:
    """Alike sections [first, last) of an anchor, of which some are odd.

    The run before ends before the section ``floor``; the next one begins at the row ``limit``.
    """

    first: int
    last: int
    odd: int
    floor: int
    limit: int


def _joined(work: Sequence, row: Ints, size: Ints, alike: Flags) -> list[_Run]:
    """Return the runs of alike sections.

    A section unlike its neighbours lies within a run if those are alike, copies included, and if it is
    not much longer. The section after a run begins with the last instance of that.
    """
    linked = alike.copy()
    lone = np.flatnonzero(~alike[:-1] & ~alike[1:]) + 1 if len(alike) > 1 else np.empty(0, np.int64)
    lone = lone[(size[lone] <= MAX_ODD * size[lone - 1]) & (size[lone] > 0)]
    before, after = size[lone - 1], size[lone + 1]
    lone = lone[np.minimum(before, after) >= ALIKE * np.maximum(before, after)]
    if 0 < len(lone) <= MOST_ODD * len(size):
        lone = lone[_agree(work, row, lone - 1, lone + 1, of_all=True)]
        linked[lone] = linked[lone - 1] = True
    edges = run_edges(linked.astype(np.int64)) if len(linked) else np.zeros(1, np.int64)
    breaks = np.append(0, np.cumsum(~alike))
    first = edges[:-1][linked[edges[:-1]]]
    last = edges[1:][linked[edges[:-1]]] + 1
    held = (
        (sums[row[last]] - sums[row[first]]) / max(1, sums[-1])
        for sums in (work.weights, work.times)
    )
    enough = np.maximum(*held) >= MIN_COVERED / 2
    runs = list(zip(first[enough].tolist(), last[enough].tolist(), strict=True))
    floors = [0, *(last + 1 for _, last in runs)]
    limits = [*(int(row[first]) for first, _ in runs[1:]), len(work)]
    return [
        _Run(
            first=first,
            last=last,
            odd=int(breaks[last - 1] - breaks[first] + 1) // 2,
            floor=floor,
            limit=limit,
        )
        for (first, last), floor, limit in zip(runs, floors, limits, strict=False)
    ]


def _period(work: Sequence, row: Ints, size: Ints, run: _Run) -> Period | None:
    """Return the period of a run of sections, None if it is too short or holds too little."""
    first, last = run.first, run.last
    before = _leading(work, row, size, run)
    bounds = (int(row[run.floor]) + 1 if run.floor else 0, run.limit)
    start, end, is_cut = _instances(work, row[before : last + 1], first - before, bounds)
    if len(start) - (first - before) < MIN_ALIKE:
        return None
    kernels, spent = (int(sums[end] - sums[start[0]]) for sums in (work.weights, work.times))
    shares = kernels / max(1, work.weights[-1]), spent / max(1, work.times[-1])
    if max(shares) < MIN_COVERED:
        return None
    content = np.diff(work.hashes[row[first : last + 1]])
    values, at, counts = np.unique(content, return_index=True, return_counts=True)
    usual = int(np.argmax(counts))
    is_exact = bool(counts[usual] >= max(2, MOST_EQUAL * len(content)))
    if not is_exact and (len(content) < MIN_IN_RUN * len(size) or not _in_order(work, start)):
        return None
    unequal = content != values[usual]
    unequal &= np.abs(size[first:last] - size[first + at[usual]]) >= MIN_EXTRA
    return Period(
        row=start,
        end=np.append(start[1:], end),
        kernels=kernels,
        equal=_equal(work, start, np.append(start[1:], end)),
        pause=int(np.log1p(work.pause[start[1:]]).mean() / SAME_PAUSE),
        covered=float(max(shares)),
        share=float(min(shares)),
        odd=run.odd,
        unequal=int(np.count_nonzero(unequal)),
        exact=is_exact,
        is_cut=is_cut,
    )


def _in_order(work: Sequence, start: Ints) -> bool:
    """Return whether unequal instances hold their work in about the same order, not at random."""
    pairs = np.unique(np.linspace(0, len(start) - 3, MOST_ORDERED).astype(np.int64)).tolist()
    agreements = []
    for at in pairs:
        one, other = (list(_grams(work.name[start[k] : start[k + 1]]))[-1] for k in (at, at + 1))
        a, b = (np.bincount(codes, minlength=1 << 16) for codes in (one, other))
        agreements.append(np.minimum(a, b).sum() / max(1, np.maximum(a, b).sum()))
    return bool(np.median(agreements) >= MIN_ORDER)


def _equal(work: Sequence, first: Ints, last: Ints) -> int:
    """Return how many parts hold the same work."""
    _, counts = np.unique(work.all_hashes[last] - work.all_hashes[first], return_counts=True)
    return int(counts.max())


def _leading(work: Sequence, row: Ints, size: Ints, run: _Run) -> int:
    """Return the first section of a run and of the warm-up before it, which may hold more kernels."""
    first, last = run.first, run.last
    usual = slice(int(row[last - 1]), int(row[last]))
    before = first
    while before > run.floor and first - before < MOST_WARM_UP:
        section = slice(int(row[before - 1]), int(row[before]))
        if size[before - 1] > MAX_WARM_UP * size[last - 1] or not _holds(work, section, usual):
            break
        before -= 1
    return before


def _holds(work: Sequence, one: slice, usual: slice) -> bool:
    """Return whether a part holds nearly all kernels of a usual one."""
    a, b = _counts(work, one, usual)
    return bool(np.minimum(a, b).sum() >= ALIKE * b.sum() > 0)


def _counts(work: Sequence, *parts: slice, of_all: bool = False) -> list[Ints]:
    """Return how often each name is in each part, as a kernel unless ``of_all``."""
    names = [
        work.name[part] if of_all else work.name[part][work.weight[part] > 0] for part in parts
    ]
    size = max(int(name.max(initial=0)) for name in names) + 1
    return [np.bincount(name, minlength=size) for name in names]


# -- Where instances begin and end


def _instances(
    work: Sequence, anchor: Ints, leading: int, bounds: tuple[int, int]
) -> tuple[Ints, int, tuple[bool, bool]]:
    """Return the begins of the instances, the end of the last one, and whether the first and last are cut.

    Rows before the first anchor belong to the loop if they equal those before the second; rows after
    the last anchor if they equal those after the one before it, or if they are like them. The work
    lies in ``bounds``.
    """
    least, limit = bounds
    length = int(np.median(np.diff(anchor[leading:])))
    usual = slice(int(anchor[-2]), int(anchor[-1]))
    is_whole = _is_like(work, usual, begin=int(anchor[-1]), length=length, bounds=bounds)
    back = _common(work.name[least : anchor[0]][::-1], work.name[anchor[0] : anchor[1]][::-1])
    ahead = length if is_whole else _common(work.name[anchor[-1] : limit], work.name[usual])
    most = ahead - length if length - ahead <= back else ahead
    start = anchor + _begin(work, anchor, (-back, most), length)
    end = int(start[-1]) + length
    if most == ahead and not _is_like(
        work, usual, begin=int(start[-1]), length=length, bounds=bounds
    ):
        start, end = start[:-1], _end(work, start, limit)
    if _is_like(work, usual, begin=end, length=length, bounds=bounds):  # it lacks the anchor
        start, end = np.append(start, end), end + length
    elif short := _short_end(work, start, end, min(limit, end + length)):
        start, end = np.append(start, end), short
    if _is_like(work, usual, begin=int(start[0]) - length, length=length, bounds=bounds):
        start = np.append(start[0] - length, start)
    end = min(end, limit)
    is_cut = bool(start[0] > anchor[0] - back == 0)
    after = int(work.weights[-1] - work.weights[end])
    rest = _common(work.name[end:], work.name[start[-1] : end])
    return start, end, (is_cut, after > 0 and end + rest >= len(work))


def _is_like(
    work: Sequence, usual: slice, begin: int, length: int, bounds: tuple[int, int]
) -> bool:
    """Return whether the rows from ``begin`` are like a usual instance, and within bounds."""
    if begin < bounds[0]:
        return False
    return jaccard(work, usual, slice(begin, min(begin + length, bounds[1]))) >= ALIKE


def _end(work: Sequence, start: Ints, limit: int) -> int:
    """Return the end of the last but one of the instances."""
    if len(start) >= MIN_ALIKE:
        tail = _tail(work, slice(int(start[-3]), int(start[-2])))
        at = np.flatnonzero(_occurs(work.name[start[-2] : limit], tail))
        if len(tail) and len(at):
            return int(start[-2]) + int(at[0]) + len(tail)
    return int(start[-1])


def _short_end(work: Sequence, start: Ints, begin: int, limit: int) -> int:
    """Return where a last instance ends that is shorter, as a last batch may be; 0 if there is none.

    It ends with what the others end with, and nearly all their names occur in it.
    """
    if len(start) < MIN_ALIKE:
        return 0
    usual = slice(int(start[-2]), int(start[-1]))
    tail = _tail(work, usual)
    at = np.flatnonzero(_occurs(work.name[begin:limit], tail))
    if not len(tail) or not len(at):
        return 0
    end = begin + int(at[0]) + len(tail)
    a, b = _counts(work, slice(begin, end), usual)
    return end if np.count_nonzero(a[b > 0]) >= ALIKE * np.count_nonzero(b) > 0 else 0


def _tail(work: Sequence, part: slice) -> Ints:
    """Return the last names of a part: so many that they occur once in it, none if they never do."""
    names = work.name[part]
    for size in NAMES_IN_A_ROW:
        if len(names) >= size and _occurs(names, names[-size:]).sum() == 1:
            return names[-size:]
    return names[:0]


def _occurs(names: Ints, sought: Ints) -> Flags:
    """Return whether a series of names begins at each row."""
    size = max(0, len(names) - len(sought) + 1)
    result = np.ones(size, bool)
    for place, name in enumerate(sought.tolist()):
        result &= names[place : place + size] == name
    return result


def _common(one: Ints, other: Ints) -> int:
    """Return how many leading entries are equal."""
    size = min(len(one), len(other))
    differs = np.flatnonzero(one[:size] != other[:size])
    return int(differs[0]) if len(differs) else size


def _begin(work: Sequence, anchor: Ints, window: tuple[int, int], length: int) -> int:
    """Return the shift of the anchors, within a window, before which the host pauses longest.

    Where other work comes before the loop, an instance begins near the least shift.
    """
    least, most = window
    if anchor[0] + least > 0:
        most = min(most, least + int(MAX_SET_UP * length))
    some = anchor[1 : 1 + MOST_PAUSES]
    shifts = np.arange(least, most + 1)
    shifts = shifts[(some[-1] + shifts < len(work)) & (anchor[0] + shifts >= 0)]
    shifts = shifts[work.begins[some[0] + shifts]]
    if not len(shifts):
        return 0
    if len(shifts) > MOST_PAUSES:
        largest = np.argpartition(-work.pause[some[0] + shifts], MOST_PAUSES)[:MOST_PAUSES]
        shifts = np.sort(np.append(shifts[0], shifts[largest]))
    pause = np.log1p(work.pause[some[:, None] + shifts[None, :]]).mean(axis=0)
    return int(shifts[np.argmax(pause >= pause.max() - SAME_PAUSE)])
