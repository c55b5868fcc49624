"""Read a trace that PyTorch's Cuspy wrote for Perfetto into a `Capture`; see docs/kineto.md."""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from bridge.importers.arrays import MISSING, Flags, Ints
from bridge.importers.capture import MAX_DISTANCE_NS, MAX_SPAN_NS, Capture, Facts, Reader
from bridge.importers.errors import NotAReport, NothingRecorded
from bridge.importers.frames import Names, Timed
from bridge.importers.graph_annotations import MODULES, NAME, PHASE, annotated_by_arguments
from bridge.importers.kineto.device import DeviceEvents, activities, devices, owners, waits
from bridge.importers.kineto.events import (
    CALLS,
    COPIES,
    EVENT_NODES,
    FILLS,
    HOST_NODES,
    KERNELS,
    NS_PER_US,
    PYTORCH_CATEGORIES,
    RANGES,
    RECORDS,
    SKIPPED_CATEGORIES,
    SORT_OF,
    SYNCS,
    head_of,
    unpacked,
)
from bridge.importers.kineto.graph_nodes import FUNCTION, with_host_nodes
from bridge.importers.kineto.read import PRODUCT, missing_warnings, skipped_warnings, unread
from bridge.importers.nsys.tables import JSON, Details, has_detail
from bridge.importers.perfetto.host import Threads, launches, ranges
from bridge.importers.perfetto.packets import (
    AXES,
    CATEGORIES,
    CLOCKS,
    PACKET,
    REGISTERS,
    SHARED,
    STAGES,
    TIME,
    Slices,
    Stages,
    Trace,
)
from bridge.importers.perfetto.values import fields_of
from bridge.importers.records import record
from bridge.importers.wire import LARGEST, DamagedMessageError, Wire

LOG = logging.getLogger("bridge.importers")

SUFFIXES = (".pftrace", ".pftrace.gz", ".perfetto-trace", ".perfetto-trace.gz")
DAMAGED = "cut off or damaged; copy it again, or profile again"
FOREIGN = (
    "a Perfetto trace, but none of PyTorch's Cuspy; read the report or trace that it was made of"
)
SEVERAL = "several traces one after another; give each in a file of its own"
# The kinds of work of GPUs, as Cuspy calls them; annotations are derived from others.
KERNEL, COPY, FILL, EVENT_NODE, HOST_NODE = KINDS = (
    "Kernel", "Memcpy", "Memset", "EventRecord", "HostNode",
)  # fmt: skip
DERIVED = "Annotation"
UNNAMED = "unnamed"
# What Kineto calls the numbers of work, and where they are in this format.
EXTRA = {
    "device": "device id", "context": "context id", "stream": "stream id", "correlation": "correlation",
    "graph id": "graph id", "graph node id": "graph node id", "bytes": "bytes",
    "memory kind": "memory kind",
}  # fmt: skip
OF_LAUNCHES = {"registers per thread": REGISTERS, "shared memory": SHARED}
NUMBERS = EXTRA | OF_LAUNCHES
ARCHITECTURE, ARCHITECTURE_NAME = "arch", re.compile(r"sm_([0-9]{1,3})([0-9])")
SYNC_KIND = "cuda_sync_kind"
GRAPH, GRAPH_NODE = "graph id", "graph node id"
SAID = (NAME, *MODULES, PHASE)
SKIPPED = "skipped"
SLICES = (RANGES, CALLS, SYNCS)


def is_perfetto(path: Path) -> bool:
    """Return whether a file is a trace of Perfetto, by its name or its first packet."""
    if path.name.endswith(SUFFIXES):
        return True
    try:
        number, packet = next(fields_of(head_of(path)), (0, b""))
        told = {field for field, _ in fields_of(packet)} if isinstance(packet, bytes) else set()
    except DamagedMessageError:
        return False
    return number == PACKET and {TIME, CLOCKS} <= told


def read(path: Path, details: Details = True) -> Capture:
    """Read a trace; raises a `ReportError` if it is damaged, of another program, or nothing was recorded."""
    name = os.fsencode(path.name).decode(errors="replace")
    wire = Wire.of_bytes(unpacked(path, LARGEST))
    try:
        trace = Trace(wire)
        LOG.debug("%s: %d packets", name, trace.packets)
        _check_writer(name, trace)
        return _Found.of(trace).capture(name, with_json=has_detail(details, JSON))
    except DamagedMessageError as error:
        raise NotAReport(f"{name}: {DAMAGED}") from error


def _check_writer(name: str, trace: Trace) -> None:
    """Raise NotAReport for the trace of another program, or for several."""
    categories = {*trace.entries(CATEGORIES).names.texts}
    kinds = {*trace.entries(STAGES).names.texts}
    if not categories & PYTORCH_CATEGORIES and not kinds.issuperset(KINDS[:3]):
        raise NotAReport(f"{name}: {FOREIGN}")
    if len(trace.interned) > 1:
        raise NotAReport(f"{name}: {SEVERAL}")


@record
class _Found:
    """What a trace holds, with times from one µs before the first event; ``zero`` is that time in the file.

    ``broken`` and ``unknown`` count what is left out, as of traces in JSON.
    """

    threads: Threads
    slices: Mapping[str, Slices]
    work: Mapping[str, Stages]
    zero: int
    broken: int
    unknown: Counter[str]

    @classmethod
    def of(cls, trace: Trace) -> _Found:
        tracks = trace.tracks
        told = (*SAID, ARCHITECTURE, FUNCTION)
        slices, stages = trace.slices(tracks), trace.stages([*EXTRA.values()], told)
        slices, stages, zero, broken = _sound(slices, stages)
        sort = _sorts(slices)
        host = np.unique(slices.track[sort.among(RANGES, CALLS)])
        kinds = stages.kind
        left_out = ~kinds.among(*KINDS, DERIVED)
        return cls(
            threads=Threads.of(tracks, host),
            slices={kind: slices.take(np.flatnonzero(sort == kind)) for kind in SLICES},
            work={kind: stages.take(np.flatnonzero(kinds == kind)) for kind in KINDS},
            zero=zero,
            broken=broken,
            unknown=_counts(slices.category[sort.codes == MISSING]) + _counts(kinds[left_out]),
        )

    def _by_sort(self) -> dict[str, DeviceEvents]:
        """Return the events of devices by Kineto's sorts."""
        work, syncs = self.work, self.slices[SYNCS]
        return {
            KERNELS: _Work(work[KERNEL], work[KERNEL].name),
            COPIES: _Work(work[COPY], work[COPY].kind),
            FILLS: _Work(work[FILL], work[FILL].kind),
            EVENT_NODES: _Work(work[EVENT_NODE], work[EVENT_NODE].kind),
            HOST_NODES: _Work(work[HOST_NODE], work[HOST_NODE].kind),
            SYNCS: _Syncs(syncs),
            RECORDS: _Syncs(syncs.take(np.empty(0, np.int64))),
        }

    def capture(self, name: str, *, with_json: bool) -> Capture:
        host = len(self.slices[RANGES]) + len(self.slices[CALLS])
        if not host + sum(len(self.work[kind]) for kind in (KERNEL, COPY, FILL)):
            raise NothingRecorded(
                f"{name}: no ops, no CUDA calls and no kernels; was the profiler running while they were?"
            )
        range_frame, texts = ranges(self.slices[RANGES], self.threads, with_json=with_json)
        launch_frame = launches(self.slices[CALLS], self.threads)
        threads, processes = self.threads.frames()
        by = self._by_sort()
        process = owners(by, launch_frame, processes.process)
        activity_frame = activities(by, process)
        tables: list[Timed] = [t for t in (range_frame, launch_frame, activity_frame) if len(t)]
        missing = missing_warnings(
            name, self, ranges=range_frame, launches=launch_frame, activities=activity_frame
        )
        facts = Facts(
            product=PRODUCT,
            span=(min(int(t.start.min()) for t in tables), max(int(t.end.max()) for t in tables)),
            warnings=(*missing, *skipped_warnings(name, self)),
            epoch_ns=self.zero,
            beside=unread(self),
        )
        capture = Capture(
            source=(name,),
            facts=(facts,),
            ranges=range_frame,
            launches=launch_frame,
            activities=activity_frame,
            waits=waits(by, process),
            threads=threads,
            processes=processes,
            devices=devices(_properties(self.work[KERNEL]), by, activity_frame),
            texts=texts,
        )
        capture = with_host_nodes(capture, by, process)
        return annotated_by_arguments(capture, _Annotations(self.work[KERNEL]))


def _sound(slices: Slices, stages: Stages) -> tuple[Slices, Stages, int, int]:
    """Return what has a possible time, a name and a track, the time at which times are 0, and how many have not."""
    start = np.concatenate((slices.start, stages.start))
    possible = _are_possible(start, np.concatenate((slices.end, stages.end)))
    zero = int(start[possible].min(initial=MAX_SPAN_NS)) - NS_PER_US
    on_thread, on_gpu = np.split(possible, [len(slices)])
    on_thread &= (slices.track != MISSING) & (slices.name.codes != MISSING)
    on_gpu &= (stages.kind != KERNEL) | (stages.name.codes != MISSING)
    slices, stages = slices.take(np.flatnonzero(on_thread)), stages.take(np.flatnonzero(on_gpu))
    slices = replace(slices, start=slices.start - zero, end=slices.end - zero)
    stages = replace(stages, start=stages.start - zero, end=stages.end - zero)
    return slices, stages, zero, len(start) - len(slices) - len(stages)


def _are_possible(start: Ints, end: Ints) -> Flags:
    """Return which times are no longer than days, and no longer than days away from most others."""
    possible: Flags = (start >= 0) & (start < MAX_SPAN_NS) & (end >= start)
    possible &= end - start <= MAX_DISTANCE_NS
    if possible.any():
        middle = np.partition(start[possible], int(possible.sum()) // 2)[int(possible.sum()) // 2]
        possible &= np.abs(start - middle) <= MAX_DISTANCE_NS
    return possible


def _sorts(slices: Slices) -> Names:
    """Return what each slice is, none where it is not read."""
    sorts = (*SLICES, SKIPPED)
    skipped = sorts.index(SKIPPED)

    def sort_of(category: str) -> int:
        sort = SORT_OF.get(category)
        if sort in (RANGES, CALLS):
            return sorts.index(sort)
        return skipped if category in SKIPPED_CATEGORIES else MISSING

    result = slices.category.per_text(sort_of, skipped).astype(np.int64)
    is_sync = np.zeros(len(slices), bool)
    is_sync[slices.said.owner[slices.said.rows(SYNC_KIND)]] = True
    result[is_sync & (slices.category.codes == MISSING)] = sorts.index(SYNCS)
    return Names(result, sorts)


def _counts(names: Names) -> Counter[str]:
    codes, counts = np.unique(names.codes, return_counts=True)
    texts = [*names.texts, UNNAMED]
    return Counter(
        {texts[code]: n for code, n in zip(codes.tolist(), counts.tolist(), strict=True)}
    )


def _properties(kernels: Stages) -> list[dict[str, int]]:
    """Return what Cuspy tells of the first GPU, as traces in JSON have it."""
    matches = map(ARCHITECTURE_NAME.fullmatch, kernels.texts[ARCHITECTURE][:1])
    return [
        {"id": int(kernels.gpu[0]), "computeMajor": int(found[1]), "computeMinor": int(found[2])}
        for found in matches
        if found
    ]


# -- Events of devices in Kineto's words


@record
class _Work:
    """Work of one kind."""

    stages: Stages
    names: Names

    def __len__(self) -> int:
        return len(self.stages)

    @property
    def start(self) -> Ints:
        return self.stages.start

    @property
    def end(self) -> Ints:
        return self.stages.end

    @property
    def gpu(self) -> Ints:
        return self.stages.gpu

    def ints(self, key: str) -> Ints:
        """Return a number of each; Cuspy leaves out numbers that are 0, as the first node of a graph is."""
        if key not in NUMBERS:
            return np.full(len(self), MISSING)
        result = self.stages.numbers[NUMBERS[key]]
        if key != GRAPH_NODE:
            return result
        return np.where((self.ints(GRAPH) > 0) & (result == MISSING), 0, result)

    def texts(self, key: str) -> Names:
        return self.stages.texts.get(key, Names.none(len(self)))

    def extents(self, key: str) -> list[Ints]:
        return [self.stages.numbers[f"{key} {axis}"] for axis in AXES]


@record
class _Syncs:
    """Synchronizations, which are slices on tracks of streams."""

    slices: Slices

    def __len__(self) -> int:
        return len(self.slices)

    @property
    def start(self) -> Ints:
        return self.slices.start

    @property
    def end(self) -> Ints:
        return self.slices.end

    @property
    def names(self) -> Names:
        return self.slices.name

    @property
    def gpu(self) -> Ints:
        return self.ints("device")

    def ints(self, key: str) -> Ints:
        return self.slices.said.ints(key, len(self))

    def texts(self, key: str) -> Names:
        code, values = self.slices.said.values(key, len(self))
        return Names.of(map(str, values)).at(code)

    def extents(self, _key: str) -> list[Ints]:
        return [np.full(len(self), MISSING)] * len(AXES)


@record
class _Annotations:
    """What is said of kernels of CUDA graphs, by row."""

    kernels: Stages

    def __len__(self) -> int:
        return len(self.kernels)

    def __getitem__(self, row: int) -> Mapping[str, str]:
        said = ((key, self.kernels.texts[key][row]) for key in SAID)
        return {key: text for key, text in said if text}


READER = Reader("perfetto", is_perfetto, read)
