"""Names, head figures and the time axis of a page, with bins that are exact to the nanosecond."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bridge.analyze.checks.summary import Summary
from bridge.analyze.checks.why import why
from bridge.analyze.core.groups import counts, sums
from bridge.analyze.core.totals import totals
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, number_groups
from bridge.join.attributed import AttributedCapture
from bridge.join.attribution import REASONS

# -- Names, each of which is written once


class Names:
    """Assigns a number to each distinct name: its position in ``listed``."""

    def __init__(self) -> None:
        self.listed: list[str] = []
        self._known: dict[str, int] = {}

    def of(self, texts: Iterable[str]) -> list[int]:
        """Return the number of each name."""
        return [self._number(str(text)) for text in texts]

    def of_some(self, texts: Iterable[str]) -> list[int]:
        """Return the number of each name, -1 for ''."""
        return [self._number(str(text)) if text else NONE for text in texts]

    def of_codes(self, codes: Ints, texts: Sequence[str]) -> list[int]:
        """Return the number of each row's name, a code into ``texts``; -1 for NONE."""
        is_used = np.zeros(len(texts) + 1, bool)  # the last entry is for NONE
        is_used[codes] = True
        number = np.full(len(is_used), NONE)
        used = np.flatnonzero(is_used[:-1])
        number[used] = [self._number(str(texts[code])) for code in used.tolist()]
        result: list[int] = number[codes].tolist()
        return result

    def _number(self, text: str) -> int:
        if text not in self._known:
            self._known[text] = len(self.listed)
            self.listed.append(text)
        return self._known[text]


# -- Figures at the head of a page, and reasons


KIND_NAMES = ("kernels", "memcpys", "memsets", "graphs")  # of frames.ACTIVITY_KINDS


def figures(attributed: AttributedCapture, axis: Axis, summary: Summary) -> dict[str, Any]:
    """Return the figures at the head of a page: totals, counts, and times in ns.

    ``devices`` are the accounts of the GPUs, none where next to nothing ran; ``idle`` lists the causes of their idle
    time, largest first. ``iteration`` is that of the process with the longest iterations, None if there are none.
    """
    runs, gpus = summary.use.runs, () if summary.use.nothing else summary.use.gpus
    kinds = counts(attributed.capture.activities.kind.codes, len(KIND_NAMES)).tolist()
    op, iterations = attributed.activity_op, summary.by_iteration
    return {
        "totals": totals(attributed),
        "run_ns": sum(run.part.length for run in runs) if runs else axis.length,
        **dict(zip(KIND_NAMES, kinds, strict=True)),
        "ops": len(np.unique(op[op != NONE])),
        "calls": int(attributed.call.max(initial=NONE)) + 1,
        "steps": sum(one.steps for one in summary.iterations),
        "iteration": iterations[-1].as_dict() if iterations else None,
        "devices": [
            {
                "name": gpu.device,
                "busy_ns": gpu.busy_ns,
                "idle_ns": gpu.idle_ns,
                "run_ns": gpu.length_ns,
            }
            for gpu in gpus
        ],
        "idle": [
            {"cause": cause.cause, "op": cause.op, "idle_ns": cause.idle_ns}
            for cause in summary.use.causes
        ],
    }


def reasons(attributed: AttributedCapture) -> list[dict[str, Any]]:
    """Return each reason with its activities, meaning, and a remedy for the longest one."""
    codes, result = list(REASONS), []
    for reason, part in totals(attributed)["unattributed"].items():
        rows = np.flatnonzero(attributed.attribution.reason == codes.index(reason))
        longest = rows[[np.argmax(attributed.duration[rows])]]
        remedy = why(attributed, longest).remedy
        result.append({"reason": reason, **part, "meaning": REASONS[reason], "remedy": remedy})
    return result


# -- The time axis


@record
class Axis:
    """The time from ``start`` to ``end`` in ns, which contains everything in a capture."""

    start: int
    end: int

    @classmethod
    def of(cls, attributed: AttributedCapture) -> Axis:
        """Return the axis of a capture, from its first event to its last."""
        spans = [facts.span for facts in attributed.capture.facts]
        start = attributed.capture.activities.start
        first, last = min(s[0] for s in spans), max(s[1] for s in spans)
        if len(start):
            first, last = min(first, int(start.min())), max(last, int(attributed.end.max()))
        return cls(first, last)

    @property
    def length(self) -> int:
        """Length in ns."""
        return self.end - self.start

    def bins(self, limit: int) -> Bins:
        """Divide the axis into at limit ``limit`` bins of equal width."""
        width = max(1, -(-self.length // limit))
        return Bins(self.start, width, max(1, -(-self.length // width)))


@record
class Bins:
    """``count`` bins of ``width`` ns from ``start`` on; the last may extend beyond the axis."""

    start: int
    width: int
    count: int

    def at(self, time: Ints) -> Ints:
        """Return the bin of each time; the very end belongs to the last bin."""
        return np.clip((time - self.start) // self.width, 0, self.count - 1)

    def spread(self, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
        """Cut intervals at the edges of bins; return interval, bin and length in ns of each piece.

        The pieces of an interval add up to its length; an interval of length 0 has one piece.
        """
        first, last = self.at(start), self.at(np.maximum(end - 1, start))
        is_cut = first != last
        if not is_cut.any():
            return np.arange(len(start)), first, end - start
        whole, cut = np.flatnonzero(~is_cut), np.flatnonzero(is_cut)
        first_of_cut, size = first[cut], (last - first)[cut] + 1
        row = np.repeat(cut, size)
        bin_number = np.arange(size.sum()) + np.repeat(first_of_cut - np.cumsum(size) + size, size)
        edge = self.start + bin_number * self.width
        length = np.minimum(end[row], edge + self.width) - np.maximum(start[row], edge)
        return (
            np.concatenate((whole, row)),
            np.concatenate((first[whole], bin_number)),
            np.concatenate(((end - start)[whole], length)),
        )


def grouped_sums(values: Ints, *keys: Ints) -> tuple[Ints, list[Ints], Ints]:
    """Return the sum, the keys and the number of rows of each distinct combination of keys."""
    group, rows = number_groups(*keys)
    return sums(group, values, len(rows)), [key[rows] for key in keys], counts(group, len(rows))


def largest_mask(values: Ints, limit: int) -> Flags:
    """Return a mask of the ``limit`` largest values; of equal ones the first."""
    if len(values) <= limit:
        return np.ones(len(values), bool)
    if not limit:
        return np.zeros(len(values), bool)
    smallest = np.partition(values, len(values) - limit)[len(values) - limit]
    mask: Flags = values > smallest
    mask[np.flatnonzero(values == smallest)[: limit - np.count_nonzero(mask)]] = True
    return mask
