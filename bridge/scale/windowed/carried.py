"""Calls that go on from one window into others: what they amount to in each, put together at the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from bridge.analyze.breakdown.of_ranges import first_slices
from bridge.analyze.groups import sums
from bridge.analyze.tree import subtree_sums
from bridge.join.attributed import CALL_ID, CALL_ID_SHIFT, Attributed
from bridge.join.order import NONE, Flags, Ints
from bridge.scale.merging import Times
from bridge.scale.windowed.errors import WindowsError
from bridge.scale.windowed.part import Part
from importers import frames
from importers.nsys.windows import Window

GPU, CPU = "gpu_times", "cpu_times"
MIX = [np.uint64(odd) for odd in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)]


class Carried:
    """What calls of one direction amount to in the windows that they are in, by the row of their range."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.began: list[Mapping[str, Ints]] = []  # where they began: number, GPU, CPU
        self.went_on: list[Mapping[str, Ints]] = []  # where they went on
        self.slices: list[
            tuple[Ints, Ints]
        ] = []  # of a call in slices: each one's number, and the first one's

    def add(self, joined: Attributed, window: Window) -> Ints:
        """Note what a window has of them; return its ranges whose calls are, or may be, in other windows too."""
        number, ranges = window.number["ranges"], len(window.report.ranges)
        of_range = _of_ranges(joined, ranges)
        gone = np.flatnonzero(window.carried & ~window.begun)
        self.went_on.append({"number": number[gone], **{n: of[gone] for n, of in of_range.items()}})
        call = joined.call
        mine = np.flatnonzero(window.carried & (call != NONE))
        calls = np.unique(call[mine])
        first = first_slices(joined)
        listed = np.flatnonzero(call != NONE)
        total = {n: sums(call[listed], of[listed], len(first)) for n, of in of_range.items()}
        self.began.append(
            {"number": number[first[calls]], **{n: of[calls] for n, of in total.items()}}
        )
        self.slices.append((number[mine], number[first[call[mine]]]))
        return first[calls]

    def corrected(self, times: Times, calls: Times, which: str) -> Times:
        """Return the times of calls; ``calls`` are the numbers of those that went on, in the rows of ``times``."""
        if not len(calls.row):
            return times
        number, had = _sorted(_column(self.began, c) for c in ("number", which))
        asked = np.searchsorted(number, calls.value)
        more = self._more(number, which)
        before = Times(calls.row, had[asked], -calls.times)
        after = Times(calls.row, (had + more)[asked], calls.times)
        rows = np.arange(1 + int(max(calls.row.max(), times.row.max(initial=0))))
        found = Times.together([times, before, after], [rows] * 3)
        if (found.times < 0).any():  # better no figure than a wrong one
            raise WindowsError(self.name, "calls in several of its windows do not add up")
        left = found.times != 0
        return Times(found.row[left], found.value[left], found.times[left])

    def _more(self, number: Ints, which: str) -> Ints:
        """Return what calls, by the sorted numbers of their first slices, amount to where they only went on."""
        slice_, first = _sorted(np.concatenate(c) for c in zip(*self.slices, strict=True))
        on, added = (_column(self.went_on, c) for c in ("number", which))
        place = np.searchsorted(slice_, on)
        there = place < len(slice_)
        there[there] = slice_[place[there]] == on[there]  # no other is a call that is counted
        more = np.zeros(len(number), np.int64)
        np.add.at(more, np.searchsorted(number, first[place[there]]), added[there])
        return more


def _column(parts: Iterable[Mapping[str, Ints]], name: str) -> Ints:
    return np.concatenate([part[name] for part in parts])


def _sorted(columns: Iterable[Ints]) -> tuple[Ints, ...]:
    """Return columns in the order of the first one."""
    first, *others = columns
    order = np.argsort(first)
    return first[order], *(column[order] for column in others)


def _of_ranges(joined: Attributed, ranges: int) -> dict[str, Ints]:
    """Return the time on the GPU under each range, and on the host in it, as calls of its direction have them."""
    nesting, node, listed = joined.attribution.nesting, joined.node, joined.listed
    has = node != NONE
    total = subtree_sums(nesting, sums(node[has], joined.duration[has], len(nesting)))
    range_ = nesting.range[listed]
    return {
        GPU: sums(range_, total[listed], ranges),
        CPU: sums(range_, (nesting.end - nesting.start)[listed], ranges),
    }


class Slices:
    """Calls in slices, which share an id: none may have slices that begin in two windows."""

    def __init__(self, name: str) -> None:
        self.name, self.known = name, np.empty(0, np.uint64)

    def add(self, joined: Part) -> None:
        """Take those of a window; WindowsError for one that other windows had slices of."""
        ranges = joined.report.ranges
        payload = frames.ints(ranges, "payload")
        sliced: Flags = joined.listed_ranges & (payload >> CALL_ID_SHIFT == CALL_ID)
        if not sliced.any():
            return
        columns = [frames.ints(ranges, c)[sliced] for c in ("process", "domain", "payload")]
        mixed = [c.astype(np.uint64) * odd for c, odd in zip(columns, MIX, strict=True)]
        keys = np.unique(mixed[0] ^ mixed[1] ^ mixed[2])
        if np.isin(keys, self.known).any():
            raise WindowsError(self.name, "a call is in slices that begin in two of its windows")
        self.known = np.concatenate((self.known, keys))
