"""Read a report of Nsight Compute, or its CSV, into a `Capture` without a timeline."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bridge.importers import frames
from bridge.importers.arrays import MISSING, Ints
from bridge.importers.capture import NSIGHT_COMPUTE, Capture, Facts, Reader
from bridge.importers.errors import NothingRecorded
from bridge.importers.kineto.device import short_name
from bridge.importers.ncu import csv_text, printing, rep
from bridge.importers.ncu.metrics import DEFAULT_DOMAIN, NO_EXTENT, Kernel, OpenRange, metrics_of
from bridge.importers.ncu.rep import is_rep
from bridge.importers.nsys.tables import Details, has_detail
from bridge.importers.range_texts import name_lengths
from bridge.importers.records import record
from bridge.importers.texts import Texts

# -- A timeline of kernels, and the ranges on it


@record
class Slots:
    """Places of kernels on a timeline: one after another, in the order of profiling.

    ``room`` is the space before and after each kernel within its slot, in ns.
    """

    start: Ints
    length: Ints
    room: int

    @classmethod
    def of(cls, kernels: Sequence[Kernel]) -> Slots:
        """Return the slots of kernels; a kernel without a time has length 0."""
        durations = np.array([max(kernel.duration, 0) for kernel in kernels], np.int64)
        room = 1 + max((len(kernel.pushed) for kernel in kernels), default=0)
        length = durations + 2 * room
        return cls(np.cumsum(length) - length, length, room)

    @property
    def began(self) -> Ints:
        return self.start + self.room

    @property
    def ended(self) -> Ints:
        return self.start + self.length - self.room


@dataclass(frozen=True)
class Span:
    """A range over the kernels from ``first`` to ``last``, ``depth`` ranges being around it."""

    range: OpenRange
    process: int
    thread: int
    depth: int
    first: int
    last: int


def pushed_spans(kernels: Sequence[Kernel]) -> list[Span]:
    """Return the push/pop ranges, each before those in it.

    Consecutive kernels of a thread share the ranges that their stacks have in common from the
    outermost on. Two calls of an op without a kernel of another op between them become one.
    """
    return sorted(_pushed(kernels), key=lambda span: (span.first, span.depth))


def _pushed(kernels: Sequence[Kernel]) -> Iterator[Span]:
    stacks: dict[tuple[int, int], list[Span]] = {}
    for place, kernel in enumerate(kernels):
        key = kernel.process, kernel.thread
        stack = stacks.get(key, [])
        common = _common_depth([span.range for span in stack], kernel.pushed)
        yield from stack[common:]
        continued = [_extended(span, place) for span in stack[:common]]
        new = enumerate(kernel.pushed[common:], common)
        stacks[key] = continued + [
            Span(open_range, *key, depth, place, place) for depth, open_range in new
        ]
    for stack in stacks.values():
        yield from stack


def _extended(span: Span, last: int) -> Span:
    return Span(
        range=span.range,
        process=span.process,
        thread=span.thread,
        depth=span.depth,
        first=span.first,
        last=last,
    )


def _common_depth(before: Sequence[OpenRange], after: Sequence[OpenRange]) -> int:
    """Return how many ranges two stacks have in common, from the outermost on."""
    pairs = zip(before, after, strict=False)
    return next(
        (n for n, (open_range, other) in enumerate(pairs) if open_range != other),
        min(len(before), len(after)),
    )


def started_spans(kernels: Sequence[Kernel]) -> list[Span]:
    """Return the start/end ranges, each over consecutive kernels of its process."""
    result: list[Span] = []
    running: dict[int, dict[OpenRange, Span]] = {}
    for place, kernel in enumerate(kernels):
        before = running.get(kernel.process, {})
        now = {
            open_range: _extended(before.pop(open_range), place)
            if open_range in before
            else Span(
                range=open_range,
                process=kernel.process,
                thread=kernel.thread,
                depth=0,
                first=place,
                last=place,
            )
            for open_range in kernel.started
        }
        result += before.values()
        running[kernel.process] = now
    result += [span for spans in running.values() for span in spans.values()]
    return sorted(result, key=lambda span: (span.first, span.last))


# -- The capture


METRICS_DETAIL = "metrics"  # the detail of metrics and rules
PROCESS_SHIFT, LOW_BITS = 24, (1 << 24) - 1  # processes and threads as in Nsight Systems
UNKNOWN_CALL = "(not recorded)"  # Nsight Compute does not record which API call launched a kernel
DEVICE_FACTS = {
    "l2_bytes": "l2_cache_size",
    "compute_major": "compute_capability_major",
    "compute_minor": "compute_capability_minor",
    "sm_count": "multiprocessor_count",
    "warp_size": "warp_size",
    "warps_per_sm": "max_warps_per_multiprocessor",
    "blocks_per_sm": "max_blocks_per_multiprocessor",
    "threads_per_block": "max_threads_per_block",
    "registers_per_sm": "max_registers_per_multiprocessor",
    "registers_per_block": "max_registers_per_block",
    "shared_per_sm": "max_shared_memory_per_multiprocessor",
    "shared_per_block": "max_shared_memory_per_block",
    "shared_per_block_optin": "max_shared_memory_per_block_optin",
}
GEOMETRY_METRICS = {  # names in the raw page and in the details page
    "registers": ("launch__registers_per_thread", "Registers Per Thread"),
    "shared_static": ("launch__shared_mem_per_block_static", "Static Shared Memory Per Block"),
    "shared_dynamic": ("launch__shared_mem_per_block_dynamic", "Dynamic Shared Memory Per Block"),
}


def is_ncu(path: Path) -> bool:
    """Return whether a file is of Nsight Compute, by its contents or its name."""
    return is_rep(path) or csv_text.is_table(path)


def read(path: Path, details: Details = True) -> Capture:
    """Read a report; metrics and rules only if the detail "metrics" is requested.

    Raises a `ReportError` if the file is damaged or another format, or if neither NVIDIA's library
    nor ncu is there to read it.
    """
    has_metrics = has_detail(details, METRICS_DETAIL)
    kernels, schema, text = _kernels(path, metrics=has_metrics)
    name = os.fsencode(path.name).decode(errors="replace")
    if not kernels:
        raise NothingRecorded(f"{name}: no kernel was profiled; did a filter of ncu leave any?")
    capture = to_capture(name, schema, kernels, text)
    return replace(capture, metrics=metrics_of(kernels)) if has_metrics else capture


def _kernels(path: Path, *, metrics: bool) -> tuple[list[Kernel], str, str]:
    """Return the kernels of a file, the name of its form, and a warning or ''."""
    if not is_rep(path):
        return csv_text.kernels(path)
    library = rep.library()
    if library is not None:
        return rep.kernels(path, library, metrics=metrics), "ncu-rep", ""
    if not rep.processes(path):  # of a report that is not whole it says so
        return [], "ncu-rep", ""
    kernels, schema, text = csv_text.kernels(path, printing.raw_page(path))
    lines = filter(None, (text, "printed by ncu, so without its rules: pip install ncu-report"))
    return kernels, schema, "; ".join(lines)


def to_capture(name: str, schema: str, kernels: Sequence[Kernel], text: str = "") -> Capture:
    """Return the capture of kernels; ``text`` is a warning about their file."""
    slots = Slots.of(kernels)
    ranges, texts = _ranges(kernels, slots)
    span = (0, int(slots.start[-1] + slots.length[-1]))
    return Capture(
        source=(name,),
        facts=(Facts(NSIGHT_COMPUTE, schema, span, _warnings(name, kernels, text)),),
        ranges=ranges,
        launches=_launches(kernels, slots),
        activities=_activities(kernels, slots),
        marks=frames.Marks(),
        threads=_threads(kernels),
        processes=_processes(kernels),
        devices=_devices(kernels),
        texts=texts,
    )


def _warnings(name: str, kernels: Sequence[Kernel], file_warning: str) -> tuple[str, ...]:
    lines = [
        "a report of Nsight Compute, in which each kernel ran alone: it has no timeline and no CPU times"
    ]
    timeless = sum(kernel.duration == MISSING for kernel in kernels)
    if timeless:
        lines.append(
            f"{timeless} of {len(kernels)} kernels without a time;"
            " collect gpu__time_duration.sum, or the section SpeedOfLight"
        )
    lines += [file_warning] if file_warning else []
    if not any(kernel.pushed or kernel.started for kernel in kernels):
        lines.append(
            "no ranges were recorded, so no work belongs to an op; ncu --nvtx records them"
        )
    return tuple(f"{name}: {text}" for text in lines)


def _process_of(kernel: Kernel) -> int:
    return _process_number(kernel.process)


def _process_number(pid: int) -> int:
    return (max(pid, 0) & LOW_BITS) << PROCESS_SHIFT


def _thread_bits(parts: Sequence[Kernel] | Sequence[Span]) -> Ints:
    """Return the thread of each part, cut to the bits below those of the process."""
    return _ints([part.thread for part in parts]) & LOW_BITS


def _ints(values: Sequence[int]) -> Ints:
    return np.array(values, np.int64)


def _activities(kernels: Sequence[Kernel], slots: Slots) -> frames.Activities:
    full = [kernel.full_name for kernel in kernels]
    short = {name: short_name(name) for name in dict.fromkeys(full)}
    columns: dict[str, Any] = {
        "start": slots.began,
        "end": slots.ended,
        "kind": frames.Names.of([kernel.kind for kernel in kernels]),
        "process": _ints([_process_of(kernel) for kernel in kernels]),
        "correlation": np.arange(1, len(kernels) + 1),
        "name": frames.Names.of([k.name or short[k.full_name] for k in kernels]),
        "full_name": frames.Names.of(full),
        "mangled": frames.Names.of([kernel.mangled for kernel in kernels]),
    }
    for key in ("device", "context", "stream"):
        columns[key] = _ints(
            [_value_or_metric(k, getattr(k, key), f"launch__{key}_id") for k in kernels]
        )
    for key in ("grid", "block"):
        extents = [_extent(kernel, key) for kernel in kernels]
        columns |= {f"{key}_{axis}": _ints([e[n] for e in extents]) for n, axis in enumerate("xyz")}
    for column, names in GEOMETRY_METRICS.items():
        columns[column] = _ints([kernel.whole(*names) for kernel in kernels])
    return frames.Activities(columns)


def _value_or_metric(kernel: Kernel, value: int, metric: str) -> int:
    return kernel.whole(metric) if value == MISSING else value


def _extent(kernel: Kernel, what: str) -> tuple[int, ...]:
    extent: tuple[int, ...] = getattr(kernel, what)
    if extent != NO_EXTENT:
        return extent
    return tuple(kernel.whole(f"launch__{what}_dim_{axis}") for axis in "xyz")


def _launches(kernels: Sequence[Kernel], slots: Slots) -> frames.Launches:
    """Return the frame `launches`: one of no length per kernel, within the ranges around it."""
    process = _ints([_process_of(kernel) for kernel in kernels])
    columns: dict[str, Any] = {
        "start": slots.began,
        "end": slots.began,
        "thread": process | _thread_bits(kernels),
        "process": process,
        "correlation": np.arange(1, len(kernels) + 1),
        "name": frames.Names.of([UNKNOWN_CALL] * len(kernels)),
    }
    return frames.Launches(columns)


def _ranges(kernels: Sequence[Kernel], slots: Slots) -> tuple[frames.Ranges, Texts]:
    pushed, started = pushed_spans(kernels), started_spans(kernels)
    spans = [*pushed, *started]
    texts = Texts.of([span.range.name for span in spans])
    codes, names = texts.factorize(name_lengths(texts))
    domain, domain_name = _domains(spans)
    process = _ints([_process_number(span.process) for span in spans])
    depth = _ints([span.depth for span in spans])
    first, last = _ints([span.first for span in spans]), _ints([span.last for span in spans])
    is_started = np.arange(len(spans)) >= len(pushed)
    columns: dict[str, Any] = {
        "start": slots.start[first] + depth,
        "end": (slots.start + slots.length)[last] - depth,
        "thread": process | _thread_bits(spans),
        "process": process,
        "domain": domain,
        "domain_name": domain_name,
        "name": frames.Names(codes, names),
        "kind": frames.Names(is_started.astype(np.int64), frames.RANGE_KINDS),
        "payload": _ints([span.range.payload for span in spans]),
        "text": np.arange(len(spans)),
    }
    return frames.Ranges(columns), texts


def _domains(spans: Sequence[Span]) -> tuple[Ints, frames.Names]:
    """Return the number and name of each span's domain; the default one is 0 and ''."""
    names = ["" if s.range.domain == DEFAULT_DOMAIN else s.range.domain for s in spans]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(["", *names]))}
    return _ints([numbers[name] for name in names]), frames.Names.of(names)


def _threads(kernels: Sequence[Kernel]) -> frames.Threads:
    pairs = list(
        dict.fromkeys((_process_of(kernel), kernel.thread & LOW_BITS) for kernel in kernels)
    )
    process, thread = (_ints(column) for column in zip(*pairs, strict=True))
    name = frames.Names.of([""] * len(pairs))
    return frames.Threads(thread=process | thread, process=process, name=name)


def _processes(kernels: Sequence[Kernel]) -> frames.Processes:
    names = {_process_of(kernel): kernel.program for kernel in kernels}
    columns: dict[str, Any] = {
        "process": _ints(list(names)),
        "name": frames.Names.of(list(names.values())),
    }
    return frames.Processes(columns)


def _devices(kernels: Sequence[Kernel]) -> frames.Devices:
    """Return the frame `devices`: a row per GPU of a process, with the facts that metrics have."""
    first = {
        (_process_of(k), _value_or_metric(k, k.device, "launch__device_id")): k
        for k in reversed(kernels)
    }
    known = list(first.values())
    process, device = (_ints(column) for column in zip(*first, strict=True))
    facts = {
        fact: _ints([kernel.whole(f"{rep.DEVICE}{metric}") for kernel in known])
        for fact, metric in DEVICE_FACTS.items()
    }
    values = [kernel.metrics.get(f"{rep.DEVICE}display_name") for kernel in known]
    name = frames.Names.of(["" if value is None else value.text for value in values])
    keys = {"process": process, "device": device, "gpu": device}
    return frames.Devices(keys | facts, name=name)


READER = Reader("ncu", is_ncu, read)
