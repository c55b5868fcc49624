"""Tell that work ran on GPUs and was not recorded: launches that left no kernel, ranges of libraries that use GPUs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from bridge.analyze.core import no_timeline
from bridge.analyze.core.failed_calls import SUCCESS, failed_groups, results
from bridge.analyze.core.kinds import COPYING, HOST_FUNCTION, LAUNCHING, calls_matching
from bridge.importers import frames, profiler_words
from bridge.importers.capture import Capture
from bridge.importers.records import record
from bridge.join.arrays import Ints, number_groups
from bridge.join.attributed import AttributedCapture
from bridge.join.attribution import NO_LAUNCH
from bridge.knowledge import cuda_errors

MOST_QUOTES = 2
LEAST_LEFT, MOST_LEFT = (
    10,
    0.5,
)  # launches without work, and their share of all, from which on most is missing
MAKING_GRAPHS = re.compile(r"cu(?:da)?(?:Stream(?:Begin|End)Capture|Graph)\w*")
SILENT = [frames.SEVERITIES.index(name) for name in ("info", "verbose")]
# Ranges that libraries put around work which they do on GPUs alone.
ON_GPUS = {
    "TensorRT": re.compile(r"ExecutionContext::(?:execute|enqueue)\w*"),
    "NCCL": re.compile(
        r"nccl(?:AllReduce|AllGather|ReduceScatter|Broadcast|Bcast|Reduce|AlltoAll|Send|Recv)"
    ),
}


@record
class RangesOnGpus:
    """The ranges of one name that a library puts around work on a GPU, and their number."""

    library: str
    name: str
    count: int


@record
class Unrecorded:
    """What shows that work ran on a GPU of which the capture holds nothing, or the smaller part.

    ``launches`` is the number of calls that launched work, returned success and left nothing, of ``every`` that
    returned success; ``launch`` is the most frequent of their functions. ``is_part`` tells that other work was
    recorded, such as memcpys or other kernels. ``calls`` is the number of all CUDA calls. ``messages`` are those of
    the profiler that explain it.
    """

    launches: int
    every: int
    launch: str
    ranges: tuple[RangesOnGpus, ...]
    calls: int
    is_part: bool
    messages: tuple[str, ...] = ()

    @classmethod
    def of(cls, attributed: AttributedCapture) -> Self | None:
        """Return what shows it; None if nothing does.

        After an error that ended all work of a process the profiler gets no more records: that error is told then.
        """
        capture = attributed.capture
        if not no_timeline.has_timeline(capture):
            return None
        has_kernels = capture.activities.kind.among(frames.KERNEL, frames.GRAPH).any()
        ranges = () if has_kernels else _ranges_on_gpus(capture)
        launched, every = _left_nothing(attributed)
        if has_kernels and not _is_most(attributed, len(launched), every):
            launched = launched[:0]
        if not (len(launched) or ranges) or _is_ended(attributed):
            return None
        names = capture.launches.name[launched].by_frequency
        return cls(
            launches=len(launched),
            every=every,
            launch=names[0] if names else "",
            ranges=ranges,
            calls=len(capture.launches),
            is_part=len(capture.activities) > 0,
            messages=explaining(capture)[:MOST_QUOTES],
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return what `dataclasses.asdict` wrote, read back from JSON."""
        ranges = tuple(RangesOnGpus(**one) for one in values["ranges"])
        return cls(**{**values, "ranges": ranges, "messages": tuple(values["messages"])})


def _left_nothing(attributed: AttributedCapture) -> tuple[Ints, int]:
    """Return the API calls that launched work with success and left no activity, and how many launched with success.

    A call of the runtime and the one of the driver in it share a correlation id, and count as one. Memcpys count where
    no activity at all was recorded.
    """
    calls, launch = attributed.capture.launches, attributed.attribution.launch
    is_launch = calls_matching(attributed, LAUNCHING) & ~calls_matching(attributed, HOST_FUNCTION)
    if not len(launch):
        is_launch |= calls_matching(attributed, COPYING)
    rows = np.flatnonzero(is_launch & (results(attributed) == SUCCESS))
    has_work = np.zeros(len(calls) + 1, bool)
    has_work[launch] = True
    if int(has_work[rows].sum()) > MOST_LEFT * len(
        rows
    ):  # no need to tell calls from calls inside of them
        return rows[:0], len(rows)
    keys = calls.report[rows], calls.process[rows], calls.correlation[rows]
    group, first = number_groups(*keys)
    left = np.bincount(group, has_work[rows], len(first)) == 0
    return rows[first[left]], len(first)


def _is_most(attributed: AttributedCapture, left: int, every: int) -> bool:
    """Return whether so many of all launches left nothing that most work is missing, beside kernels that are there.

    Launches into a CUDA graph in the making leave nothing, and kernels whose launch is unknown may be theirs.
    """
    unlaunched = int((attributed.attribution.reason == NO_LAUNCH).sum())
    is_many = left - unlaunched > max(LEAST_LEFT, MOST_LEFT * every)
    return is_many and not calls_matching(attributed, MAKING_GRAPHS).any()


def _is_ended(attributed: AttributedCapture) -> bool:
    """Return whether an error ended all work of a process."""
    return any(cuda_errors.is_sticky(group.number) for group in failed_groups(attributed))


def library_of(name: str) -> str:
    """Return the library that puts ranges of this name around work on GPUs; "" for other ranges."""
    return next((library for library, of in ON_GPUS.items() if of.fullmatch(name)), "")


def _ranges_on_gpus(capture: Capture) -> tuple[RangesOnGpus, ...]:
    """Return the ranges of libraries around work on GPUs, the most frequent first."""
    names = capture.ranges.name
    counts = np.bincount(names.codes + 1, minlength=len(names.texts) + 1)[1:]
    found = [
        RangesOnGpus(library_of(str(name)), str(name), count)
        for name, count in zip(names.texts, counts.tolist(), strict=True)
        if count and library_of(str(name))
    ]
    return tuple(sorted(found, key=lambda one: (-one.count, one.name)))


def explaining(capture: Capture) -> tuple[str, ...]:
    """Return the messages of the profiler that explain missing work on GPUs, of those that say most."""
    table = capture.diagnostics
    is_profilers = table.source < frames.PROGRAM
    is_silent = np.isin(table.severity, SILENT)
    ranks: dict[str, int] = {}
    for text, silent in zip(
        table.name[is_profilers], is_silent[is_profilers].tolist(), strict=True
    ):
        rank = profiler_words.rank(text)
        if rank is not None and not (rank and silent):  # information explains nothing but losses
            ranks.setdefault(text, rank)
    return tuple(text for text, rank in ranks.items() if rank == min(ranks.values()))


def losses(capture: Capture) -> tuple[str, ...]:
    """Return the messages in which the profiler says that it lost records."""
    return tuple(text for text in explaining(capture) if not profiler_words.rank(text))
