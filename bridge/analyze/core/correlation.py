"""Judge whether correlation ids match activities with the API calls that launched them.

Ids that were changed, or are of another capture, match nothing or the wrong calls. Then the report
reads well, but its ops are wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bridge.importers import frames
from bridge.importers.records import record
from bridge.join.arrays import NONE, Ints, blocks
from bridge.join.attributed import AttributedCapture

MIN_ROWS = 24  # activities of a file; fewer are not judged
MIN_MATCHED = 0.05  # of the activities with a correlation id
MAX_WRONG = 0.25  # of the matched ones; random ids give about one half, real reports none

LAUNCH_PREFIXES = ("cu", "hip")  # of names whose meaning is known
AGAIN = "record again with nsys profile --trace=cuda,nvtx, and do not change the export"


NO_EXAMPLE = (int(np.iinfo(np.int64).max), "")


@record
class MatchCounts:
    """How the correlation ids of a file, or of a part of it, match activities with API calls.

    ``activities`` have an id, and of these ``matched`` a call. Of the ``kernels`` among these,
    ``wrong`` match calls that launch nothing; ``example`` is the first such one, as its number and
    the name of the call. ``early`` activities began before their calls.
    """

    calls: int
    activities: int
    matched: int
    kernels: int
    wrong: int
    early: int
    example: tuple[int, str]

    @classmethod
    def of(
        cls, attributed: AttributedCapture, report: int, numbers: Ints | None = None
    ) -> MatchCounts:
        """Count in the file with this number; ``numbers`` are those of the activities' rows."""
        calls = int(np.count_nonzero(attributed.capture.launches.report == report))
        counts = cls(
            calls, activities=0, matched=0, kernels=0, wrong=0, early=0, example=NO_EXAMPLE
        )
        for block in blocks(len(attributed.capture.activities)):
            counts += cls._of_block(attributed, report, numbers, block)
        return counts

    @classmethod
    def _of_block(
        cls, attributed: AttributedCapture, report: int, numbers: Ints | None, block: slice
    ) -> MatchCounts:
        """Count in some of the activities, and no calls."""
        capture, launch = attributed.capture, attributed.attribution.launch
        activities, launches = capture.activities, capture.launches
        ids = activities.correlation[block]
        rows = np.flatnonzero((activities.report[block] == report) & (ids != NONE) & (ids != 0))
        rows += block.start
        matched = rows[launch[rows] != NONE]
        kernels = matched[activities.kind[matched].among(frames.KERNEL)]
        names = launches.name
        wrong = kernels[names[launch[kernels]].matching(_launches_nothing)]
        start = activities.start[matched]
        call_start = launches.start[launch[matched]]
        example = NO_EXAMPLE
        if len(wrong):
            number = wrong if numbers is None else numbers[wrong]
            first = int(np.argmin(number))
            example = (int(number[first]), names[launch[wrong[first]]])
        return cls(
            calls=0,
            activities=len(rows),
            matched=len(matched),
            kernels=len(kernels),
            wrong=len(wrong),
            early=int(np.count_nonzero(start < call_start)),
            example=example,
        )

    def __add__(self, other: MatchCounts) -> MatchCounts:
        """Return the counts of two parts of a file together."""
        return MatchCounts(
            calls=self.calls + other.calls,
            activities=self.activities + other.activities,
            matched=self.matched + other.matched,
            kernels=self.kernels + other.kernels,
            wrong=self.wrong + other.wrong,
            early=self.early + other.early,
            example=min(self.example, other.example),
        )

    def warning(self) -> str:
        """Return a line if the ids match almost nothing or the wrong calls, else ''."""
        return (
            (self._unmatched() or self._issued_by_others() or self._early()) if self.calls else ""
        )

    def _unmatched(self) -> str:
        if self.activities < MIN_ROWS or self.matched >= MIN_MATCHED * self.activities:
            return ""
        return (
            f"{self.activities - self.matched} of {self.activities} activities match none of the"
            f" {self.calls} API calls, so almost no"
            " work has an op: the correlation ids were changed or are of another capture, or the calls"
            f" were made before the capture or in a process that was not recorded; {AGAIN}, from"
            " before the first launch"
        )

    def _issued_by_others(self) -> str:
        if self.kernels < MIN_ROWS or self.wrong <= MAX_WRONG * self.kernels:
            return ""
        return (
            f"{self.wrong} of {self.kernels} kernels match API calls that launch none (first:"
            f" {self.example[1]}), so their"
            f" ops are wrong: the correlation ids were changed or are of another capture; {AGAIN}"
        )

    def _early(self) -> str:
        if self.matched < MIN_ROWS or self.early <= MAX_WRONG * self.matched:
            return ""
        return (
            f"{self.early} of {self.matched} activities began before the API call that they match, so"
            " their ops may be"
            " wrong: the correlation ids were changed or are of another capture, or the clocks of host"
            f" and GPU differ; {AGAIN}, with a newer nsys or driver"
        )


def warnings(attributed: AttributedCapture) -> Iterator[str]:
    """Yield a line for each file whose ids match almost nothing, or the wrong calls."""
    for number, source in enumerate(attributed.capture.source):  # a loop over files
        if text := MatchCounts.of(attributed, number).warning():
            yield f"{source}: {text}"


def _launches_nothing(name: str) -> bool:
    """Return whether a name is that of a call that launches no kernel."""
    return name.startswith(LAUNCH_PREFIXES) and "launch" not in name.lower()
