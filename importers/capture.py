"""`Capture`: what every importer returns, the facts of the files and one frame per kind of record.

Frames share their arrays with other objects: never write into them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from bridge.importers import call_chains, frames
from bridge.importers.arrays import MISSING, Ints
from bridge.importers.call_chains import CallChains
from bridge.importers.errors import NotAReport, ReportError
from bridge.importers.ncu.metrics import Metrics
from bridge.importers.ncu.metrics import concat as concat_metrics
from bridge.importers.nsys.tables import Details
from bridge.importers.texts import Texts

# Keys of the metadata: the ranks of each process, and what a range cost it in ns; both by its number as a text.
PROCESS_RANKS, ANNOTATION_COSTS = "process_ranks", "annotation_costs"
NSIGHT_COMPUTE = "Nsight Compute"
RANK = re.compile(r"(?<![a-z])rank[ _-]?(\d{1,9})(?!\d)", re.IGNORECASE)
UNREAD = "events of a device that are not read"  # their number in `Facts.beside`
MAX_SPAN_NS = 1 << 62  # 146 years: sums and differences of times fit into 64 bits
MAX_DISTANCE_NS = 1 << 48  # 3 days, between times of one capture


T = TypeVar("T", bound=frames.Records)


@dataclass(frozen=True)
class Facts:
    """The facts of one file.

    ``span`` is (first start, last end) in ns. ``epoch_ns`` is the time since the Unix epoch, in
    ns, at which the times of the capture are 0; -1 if unknown. ``metadata`` holds the properties
    of the program that recordings contain: host, rank, and what the program added. ``recordings``
    are the files with the details of its calls; a store does not keep them. ``beside`` counts the
    other records of the file, by name, and as `UNREAD` those of a device that are not read.
    ``session_ns`` is the length of the capture in ns, as the profiler states it; -1 if unknown.
    ``system_spans`` are the first start and the last end, in ns, of calls of the operating system by process, and of
    the profiler's marks that the tracing of the process begins and ends.
    ``path`` is the path as the user gave it; it is neither stored nor printed.
    """

    product: str = ""
    schema: str = ""
    span: tuple[int, int] = (0, 0)
    warnings: tuple[str, ...] = ()
    epoch_ns: int = MISSING
    metadata: Mapping[str, Any] = field(default_factory=dict)
    recordings: tuple[Path, ...] = ()
    beside: Mapping[str, int] = field(default_factory=dict)
    session_ns: int = MISSING
    system_spans: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    path: str = field(default="", compare=False)

    @property
    def timeline(self) -> bool:
        """Whether the times are points of a timeline, and not durations only."""
        return self.product != NSIGHT_COMPUTE


@dataclass(frozen=True)
class Capture:
    """One or more captures as frames; docs/frames.md lists the columns.

    ``source`` holds the base names of the files, ``facts`` one entry per file; the column
    ``report`` of each frame is the index of the file. ``texts`` holds the whole texts of ranges
    (``ranges.text`` is the index), of which ``ranges.name`` is the part that all calls of an op
    share. ``metrics`` are those that Nsight Compute measured for kernels. ``chains`` are the call
    stacks of API calls and others, where they were recorded and read.
    """

    source: tuple[str, ...]
    facts: tuple[Facts, ...]
    ranges: frames.Ranges = field(default_factory=frames.Ranges)
    launches: frames.Launches = field(default_factory=frames.Launches)
    activities: frames.Activities = field(default_factory=frames.Activities)
    marks: frames.Marks = field(default_factory=frames.Marks)
    threads: frames.Threads = field(default_factory=frames.Threads)
    processes: frames.Processes = field(default_factory=frames.Processes)
    devices: frames.Devices = field(default_factory=frames.Devices)
    graph_nodes: frames.GraphNodes = field(default_factory=frames.GraphNodes)
    waits: frames.Waits = field(default_factory=frames.Waits)
    cuda_streams: frames.CudaStreams = field(default_factory=frames.CudaStreams)
    memory: frames.Memory = field(default_factory=frames.Memory)
    overhead: frames.Overhead = field(default_factory=frames.Overhead)
    system_calls: frames.SystemCalls = field(default_factory=frames.SystemCalls)
    context_switches: frames.ContextSwitches = field(default_factory=frames.ContextSwitches)
    nccl_calls: frames.NcclCalls = field(default_factory=frames.NcclCalls)
    gpu_metrics: frames.GpuMetrics = field(default_factory=frames.GpuMetrics)
    diagnostics: frames.Diagnostics = field(default_factory=frames.Diagnostics)
    texts: Texts = field(default_factory=lambda: Texts.of([]))
    metrics: Metrics = field(default_factory=Metrics)
    chains: CallChains = field(default_factory=CallChains)

    @property
    def began(self) -> int:
        """The time of the first event of all captures, in ns."""
        return min(facts.span[0] for facts in self.facts)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings of all files, a line each, with a message for the user."""
        return tuple(w for facts in self.facts for w in facts.warnings)


class Reader(NamedTuple):
    """A format of files: ``fits`` tells by name and first bytes whether a file is of it, ``read`` reads one.

    ``details`` of ``read`` are the columns and frames that describe single rows, as
    `bridge.importers.load` takes them; a reader may read more. It raises `ReportError` with one line for the user.
    """

    name: str
    fits: Callable[[Path], bool]
    read: Callable[[Path, Details], Capture]


def defects(capture: object) -> Iterator[str]:
    """Yield what is wrong with a capture that the reader of another distribution made."""
    if not isinstance(capture, Capture):
        yield f"read returned {type(capture).__name__}, not a Capture"
        return
    if not capture.source or len(capture.facts) != len(capture.source):
        yield "a Capture has a source and facts for each file"
    for kind, frame in frames.FRAMES.items():
        table = getattr(capture, kind)
        if isinstance(table, frame):
            yield from (f"{kind}: {wrong}" for wrong in table.defects())
        else:
            yield f"{kind} is {type(table).__name__}, not {frame.__name__}"
    for table in (capture.ranges, capture.launches, capture.activities):
        if (table.name.compact < 0).any():
            yield f"{type(table).__name__}: a row without a name"
    text = capture.ranges.text
    if ((text < 0) | (text >= len(capture.texts))).any():
        yield "ranges: a row whose text is not in texts"


def total_ns(start: Ints, end: Ints) -> float:
    """Return the sum of the times from starts to ends, in ns, where these are later; or a bound that fits 64 bits."""
    if not len(start):
        return 0.0
    bound = len(start) * (int(end.max()) - int(start.min()))
    if bound <= MAX_SPAN_NS:  # as in every real capture of usual size: no need to sum
        return float(max(bound, 0))
    return float(np.maximum(end - start, 0).sum(dtype=np.float64))


def check_totals(name: str, totals: Iterable[float]) -> None:
    """Raise NotAReport if times of rows of one kind add up to more ns than 64 bits hold."""
    if max(totals, default=0) > MAX_SPAN_NS:
        raise NotAReport(
            f"{name}: damaged (its durations add up to centuries); export or copy it again"
        )


def check_durations(name: str, tables: Iterable[frames.Timed]) -> None:
    """Raise NotAReport if the durations of one of some frames add up to more ns than 64 bits hold."""
    check_totals(name, (total_ns(t.start, t.end) for t in tables))


def timed_frames(capture: Capture) -> list[frames.Timed]:
    """Return the frames of a capture whose rows have a start and an end."""
    on_host = [capture.ranges, capture.launches, capture.overhead, capture.system_calls]
    return [*on_host, capture.activities, capture.waits]


def concat(captures: Sequence[Capture]) -> Capture:
    """Return several captures as one; the column ``report`` tells their rows apart.

    Raises ReportError if the clocks of the reports are too far apart for 64 bits.
    """
    if len(captures) == 1:
        return captures[0]
    spans = [facts.span for capture in captures for facts in capture.facts]
    if max(last for _, last in spans) - min(first for first, _ in spans) > MAX_SPAN_NS:
        raise ReportError("the reports' clocks are centuries apart: load them one by one")
    starts = np.cumsum([0, *(len(capture.source) for capture in captures)])
    texts = np.cumsum([0, *(len(capture.texts) for capture in captures)])
    tables: dict[str, Any] = {
        kind: frame.concat(
            [
                _shifted(getattr(capture, kind), "report", report)
                for capture, report in zip(captures, starts, strict=False)
            ]
        )
        for kind, frame in frames.FRAMES.items()
    }
    tables["ranges"] = frames.Ranges.concat(
        [
            _shifted(_shifted(capture.ranges, "report", report), "text", text)
            for capture, report, text in zip(captures, starts, texts, strict=False)
        ]
    )
    result = replace(
        captures[0],
        source=tuple(name for capture in captures for name in capture.source),
        facts=tuple(f for capture in captures for f in capture.facts),
        texts=Texts.concat([capture.texts for capture in captures]),
        metrics=concat_metrics(
            [capture.metrics for capture in captures],
            [len(capture.activities) for capture in captures],
        ),
        chains=call_chains.concat(
            [capture.chains for capture in captures],
            [(len(c.launches), len(c.system_calls), len(c.ranges)) for c in captures],
            starts.tolist()[:-1],
        ),
        **tables,
    )
    check_durations("all reports together", timed_frames(result))
    return result


def _shifted(table: T, column: str, offset: int) -> T:
    return table.replace(**{column: table[column] + offset}) if offset else table


def rank_in_name(name: str) -> int:
    """Return the rank in a name such as ``rank3`` or ``my_rank-12``, -1 if there is none."""
    match = RANK.search(name)
    return int(match[1]) if match else MISSING
