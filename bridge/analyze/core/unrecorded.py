"""Tell that work ran on GPUs and was not recorded: launches that left no kernel, ranges of libraries that use GPUs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from bridge.analyze.core import no_timeline
from bridge.analyze.core.failed_calls import SUCCESS, results
from bridge.analyze.core.kinds import COPYING, HOST_FUNCTION, LAUNCHING, calls_matching
from bridge.importers import frames, profiler_words
from bridge.importers.capture import Capture
from bridge.join.arrays import Ints
from bridge.join.attributed import AttributedCapture

MOST_QUOTES = 2
SILENT = [frames.SEVERITIES.index(name) for name in ("info", "verbose")]
# Ranges that libraries put around work which they do on GPUs alone.
ON_GPUS = {
    "TensorRT": re.compile(r"ExecutionContext::(?:execute|enqueue)\w*"),
    "NCCL": re.compile(
        r"nccl(?:AllReduce|AllGather|ReduceScatter|Broadcast|Bcast|Reduce|AlltoAll|Send|Recv)"
    ),
}


@dataclass(frozen=True)
class RangesOnGpus:
    """The ranges of one name that a library puts around work on a GPU, and their number."""

    library: str
    name: str
    count: int


@dataclass(frozen=True)
class Unrecorded:
    """What shows that work ran on a GPU of which the capture holds nothing.

    ``launches`` is the number of calls that launched work and returned success, ``launch`` the most frequent of them,
    and ``is_part`` tells that other work was recorded, such as memcpys. ``calls`` is the number of all CUDA calls.
    ``messages`` are those of the profiler that explain it.
    """

    launches: int
    launch: str
    ranges: tuple[RangesOnGpus, ...]
    calls: int
    is_part: bool
    messages: tuple[str, ...] = ()

    @classmethod
    def of(cls, attributed: AttributedCapture) -> Self | None:
        """Return what shows it; None if nothing does, or kernels or graphs were recorded."""
        capture = attributed.capture
        work = capture.activities
        if not no_timeline.has_timeline(capture) or _has_kernels(capture):
            return None
        launched = _succeeded(attributed, with_copies=not len(work))
        ranges = _ranges_on_gpus(capture)
        if not len(launched) and not ranges:
            return None
        names = capture.launches["name"].iloc[launched].value_counts()
        return cls(
            launches=len(launched),
            launch=str(names.index[0]) if len(launched) else "",
            ranges=ranges,
            calls=len(capture.launches),
            is_part=len(work) > 0,
            messages=explaining(capture)[:MOST_QUOTES],
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return what `dataclasses.asdict` wrote, read back from JSON."""
        ranges = tuple(RangesOnGpus(**one) for one in values["ranges"])
        return cls(**{**values, "ranges": ranges, "messages": tuple(values["messages"])})


def _has_kernels(capture: Capture) -> bool:
    return bool(frames.is_kind(capture.activities, frames.KERNEL, frames.GRAPH).any())


def _succeeded(attributed: AttributedCapture, *, with_copies: bool) -> Ints:
    """Return the API calls that launched work and returned success."""
    is_launch = calls_matching(attributed, LAUNCHING) & ~calls_matching(attributed, HOST_FUNCTION)
    if with_copies:
        is_launch |= calls_matching(attributed, COPYING)
    return np.flatnonzero(is_launch & (results(attributed) == SUCCESS))


def _ranges_on_gpus(capture: Capture) -> tuple[RangesOnGpus, ...]:
    """Return the ranges of libraries around work on GPUs, the most frequent first."""
    names = capture.ranges["name"]
    counts = np.bincount(frames.codes(names) + 1, minlength=len(names.cat.categories) + 1)[1:]
    found = [
        RangesOnGpus(library, str(name), int(count))
        for name, count in zip(names.cat.categories, counts.tolist(), strict=True)
        for library, pattern in ON_GPUS.items()
        if count and pattern.fullmatch(str(name))
    ]
    return tuple(sorted(found, key=lambda one: (-one.count, one.name)))


def explaining(capture: Capture) -> tuple[str, ...]:
    """Return the messages of the profiler that explain missing work on GPUs, of those that say most."""
    table = capture.diagnostics
    is_profilers = frames.ints(table, "source") != frames.PROGRAM
    is_silent = np.isin(frames.ints(table, "severity"), SILENT)
    ranks: dict[str, int] = {}
    for text, silent in zip(
        table["name"].astype(object)[is_profilers], is_silent[is_profilers].tolist(), strict=True
    ):
        rank = profiler_words.rank(text)
        if rank is not None and not (rank and silent):  # information explains nothing but losses
            ranks.setdefault(text, rank)
    return tuple(text for text, rank in ranks.items() if rank == min(ranks.values()))


def losses(capture: Capture) -> tuple[str, ...]:
    """Return the messages in which the profiler says that it lost records."""
    return tuple(text for text in explaining(capture) if not profiler_words.rank(text))
