"""The time axis of a page: where it begins, and how work is spread over its bins, to the nanosecond."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bridge.analyze.devices import Devices
from bridge.analyze.groups import counts, sums
from bridge.analyze.totals import totals
from bridge.analyze.why import why
from bridge.join.arrays import NONE, Flags, Ints, busy, by, number
from bridge.join.attributed import Attributed
from bridge.join.attribution import REASONS
from importers import frames

# -- Names as numbers: what is named in many places is written once


class Names:
    """Hands out a number per distinct name: its place in ``listed``."""

    def __init__(self) -> None:
        self.listed: list[str] = []
        self._known: dict[str, int] = {}

    def of(self, texts: Iterable[str]) -> list[int]:
        """Return the number of each name."""
        return [self._number(str(text)) for text in texts]

    def of_some(self, texts: Iterable[str]) -> list[int]:
        """Return the number of each name, -1 where it is ''."""
        return [self._number(str(text)) if text else NONE for text in texts]

    def of_codes(self, codes: Ints, texts: Sequence[str]) -> list[int]:
        """Return the number of each row's name, given as a code into ``texts`` or NONE; -1 for none."""
        used, code = np.unique(codes, return_inverse=True)
        ours = [NONE if u == NONE else self._number(str(texts[u])) for u in used.tolist()]
        return np.array(ours, np.int64)[code].tolist() if ours else []

    def _number(self, text: str) -> int:
        if text not in self._known:
            self._known[text] = len(self.listed)
            self.listed.append(text)
        return self._known[text]


# -- The figures at the head of a page, and where the work without an op went


NAMES = ("kernels", "memcpys", "memsets", "graphs")  # of frames.ACTIVITY_KINDS


def figures(joined: Attributed, axis: Axis) -> dict[str, Any]:
    """Return the accounting and what stands at the head: times in ns, counts, the devices' busy time."""
    activities, devices = joined.report.activities, Devices.of_report(joined)
    kinds = counts(frames.codes(activities["kind"]), len(NAMES)).tolist()
    start = frames.ints(activities, "start")
    spans = [facts.span for facts in joined.report.facts]
    op = joined.activity_op
    return {
        "totals": totals(joined),
        "span_ns": axis.length,
        **dict(zip(NAMES, kinds, strict=True)),
        "ops": len(np.unique(op[op != NONE])),
        "calls": int(joined.call.max(initial=NONE)) + 1,
        "steps": _steps(joined),
        "devices": [
            {"name": name, "busy_ns": time, "span_ns": spans[report][1] - spans[report][0]}
            for name, report, time in zip(
                devices.names,
                devices.report,
                busy(devices.of, start, joined.end, len(devices.names)).tolist(),
                strict=True,
            )
        ],
    }


def reasons(joined: Attributed) -> list[dict[str, Any]]:
    """Return for every reason that any activity has what it means, and what would change it for the longest one."""
    codes, found = list(REASONS), []
    for reason, part in totals(joined)["unattributed"].items():
        rows = np.flatnonzero(joined.attribution.reason == codes.index(reason))
        longest = rows[[np.argmax(joined.duration[rows])]]
        changed = why(joined, longest).remedy
        found.append({"reason": reason, **part, "meaning": REASONS[reason], "remedy": changed})
    return found


def _steps(joined: Attributed) -> dict[str, int] | None:
    """Return how many steps there are, and how long one takes on the CPU: the middle one, the longest."""
    steps = joined.steps
    if not len(steps):
        return None
    length = np.sort(steps.end - steps.start)
    return {
        "count": len(steps),
        "median_ns": int(length[(len(length) - 1) // 2]),
        "max_ns": int(length[-1]),
    }


# -- The time axis of a page: where it begins, and how work is spread over its bins, to the nanosecond


@dataclass(frozen=True)
class Axis:
    """From ``start`` to ``end``, in ns of the report's clock: all that a report holds lies between."""

    start: int
    end: int

    @classmethod
    def of(cls, joined: Attributed) -> Axis:
        """Return the axis of a report: from its first event to its last."""
        spans = [facts.span for facts in joined.report.facts]
        start = frames.ints(joined.report.activities, "start")
        first, last = min(s[0] for s in spans), max(s[1] for s in spans)
        if len(start):
            first, last = min(first, int(start.min())), max(last, int(joined.end.max()))
        return cls(first, last)

    @property
    def length(self) -> int:
        """How long it is, in ns."""
        return self.end - self.start

    def bins(self, most: int) -> Bins:
        """Part the axis into at most so many bins of equal width."""
        width = max(1, -(-self.length // most))
        return Bins(self.start, width, max(1, -(-self.length // width)))


@dataclass(frozen=True)
class Bins:
    """``count`` bins of ``width`` ns, the first from ``start``; the last may reach beyond the axis."""

    start: int
    width: int
    count: int

    def at(self, time: Ints) -> Ints:
        """Return the bin of each time; a time at the very end is of the last bin."""
        return np.clip((time - self.start) // self.width, 0, self.count - 1)

    def spread(self, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
        """Cut intervals at the edges of bins; return the interval, the bin and the length in ns of each piece.

        Lengths of an interval's pieces add up to its own; one of no length has one piece of none.
        """
        first, last = self.at(start), self.at(np.maximum(end - 1, start))
        size = last - first + 1
        row = np.repeat(np.arange(len(start)), size)
        place = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size) + first[row]
        edge = self.start + place * self.width
        length = np.minimum(end[row], edge + self.width) - np.maximum(start[row], edge)
        return row, place, length


def summed(values: Ints, *keys: Ints) -> tuple[Ints, list[Ints], Ints]:
    """Return the sum of values, the keys, and the number of rows of each distinct combination of keys."""
    group, rows = number(*keys)
    return sums(group, values, len(rows)), [key[rows] for key in keys], counts(group, len(rows))


def largest(values: Ints, most: int) -> Flags:
    """Choose at most so many of the largest values; of equal ones the first."""
    chosen = np.zeros(len(values), bool)
    chosen[by(-values)[:most]] = True
    return chosen
