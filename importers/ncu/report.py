"""A report of Nsight Compute, or a CSV that it printed, becomes a `Report` without a timeline."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from importers import frames
from importers.errors import NothingRecorded
from importers.frames import MISSING
from importers.kineto.device import short_name
from importers.ncu import csv_text, rep
from importers.ncu.metrics import DEFAULT_DOMAIN, NO_EXTENT, Kernel, Open
from importers.ncu.metrics import of as metrics_of
from importers.ncu.rep import is_rep
from importers.nsys.table import Details, asked
from importers.percall import name_lengths
from importers.report import NSIGHT_COMPUTE, Facts, Report
from importers.texts import Ints, Texts

# -- Where kernels stand that have no timeline: one after another, in the order they were profiled


@dataclass(frozen=True)
class Slots:
    """The slot of each kernel; ``room`` is what stands before and after the kernel itself, in ns."""

    start: Ints
    length: Ints
    room: int

    @classmethod
    def of(cls, kernels: Sequence[Kernel]) -> Slots:
        """Lay out kernels; one whose time is not known takes none."""
        taken = np.array([max(kernel.duration, 0) for kernel in kernels], np.int64)
        room = 1 + max((len(kernel.pushed) for kernel in kernels), default=0)
        length = taken + 2 * room
        return cls(np.cumsum(length) - length, length, room)

    @property
    def began(self) -> Ints:
        """When each kernel began."""
        return self.start + self.room

    @property
    def ended(self) -> Ints:
        """When each kernel ended."""
        return self.start + self.length - self.room


@dataclass(frozen=True)
class Span:
    """A range over the kernels from ``first`` to ``last``, so many ranges being around it."""

    range: Open
    process: int
    thread: int
    depth: int
    first: int
    last: int


def pushed_spans(kernels: Sequence[Kernel]) -> list[Span]:
    """Return the push/pop ranges, each before those in it.

    Kernels of a thread that follow one another share the ranges that their stacks begin with alike: two
    calls of an op without a kernel of another between them cannot be told apart.
    """
    return sorted(_pushed(kernels), key=lambda span: (span.first, span.depth))


def _pushed(kernels: Sequence[Kernel]) -> Iterator[Span]:
    stacks: dict[tuple[int, int], list[Span]] = {}
    for place, kernel in enumerate(kernels):
        key = kernel.process, kernel.thread
        stack = stacks.get(key, [])
        same = _alike([span.range for span in stack], kernel.pushed)
        yield from stack[same:]
        kept = [_until(span, place) for span in stack[:same]]
        new = enumerate(kernel.pushed[same:], same)
        stacks[key] = kept + [Span(one, *key, depth, place, place) for depth, one in new]
    for stack in stacks.values():
        yield from stack


def _until(span: Span, last: int) -> Span:
    return Span(span.range, span.process, span.thread, span.depth, span.first, last)


def _alike(before: Sequence[Open], after: Sequence[Open]) -> int:
    """Return how many ranges two stacks have in common, from the outermost on."""
    pairs = zip(before, after, strict=False)
    return next(
        (n for n, (one, other) in enumerate(pairs) if one != other), min(len(before), len(after))
    )


def started_spans(kernels: Sequence[Kernel]) -> list[Span]:
    """Return the start/end ranges: each from the first to the last kernel of its process that follow one another in it."""
    found: list[Span] = []
    running: dict[int, dict[Open, Span]] = {}
    for place, kernel in enumerate(kernels):
        before = running.get(kernel.process, {})
        now = {
            one: _until(before.pop(one), place)
            if one in before
            else Span(one, kernel.process, kernel.thread, 0, place, place)
            for one in kernel.started
        }
        found += before.values()
        running[kernel.process] = now
    found += [span for spans in running.values() for span in spans.values()]
    return sorted(found, key=lambda span: (span.first, span.last))


# -- A report of Nsight Compute, or a CSV that it printed, becomes a `Report` without a timeline


METRICS = "metrics"  # the detail that all metrics and rules are read for
PROCESS_SHIFT, LOW_BITS = (
    24,
    (1 << 24) - 1,
)  # ids of processes and threads are as those of Nsight Systems
LAUNCH = "(not recorded)"  # Nsight Compute does not say which API call launched a kernel
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
GEOMETRY = {  # what tells it where a column of its own does not: metrics, and what details call them
    "registers": ("launch__registers_per_thread", "Registers Per Thread"),
    "shared_static": ("launch__shared_mem_per_block_static", "Static Shared Memory Per Block"),
    "shared_dynamic": ("launch__shared_mem_per_block_dynamic", "Dynamic Shared Memory Per Block"),
}


def is_ncu(path: Path) -> bool:
    """Tell whether a file is of Nsight Compute, or by its name should be."""
    return is_rep(path) or csv_text.is_table(path)


def load(path: Path, details: Details = True) -> Report:
    """Read a report; its metrics and rules only if "metrics" is among the details asked for.

    Raises a `ReportError` for what is none, or cut off, and where NVIDIA's library is missing.
    """
    wanted = asked(details, METRICS)
    if is_rep(path):
        kernels, schema, said = rep.kernels(path, metrics=wanted), "ncu-rep", ""
    else:
        kernels, schema, said = csv_text.kernels(path)
    name = os.fsencode(path.name).decode(errors="replace")
    if not kernels:
        raise NothingRecorded(f"{name}: no kernel was profiled; did a filter of ncu leave any?")
    found = report(name, schema, kernels, said)
    return replace(found, metrics=metrics_of(kernels)) if wanted else found


def report(name: str, schema: str, kernels: Sequence[Kernel], said: str = "") -> Report:
    """Return the frames of kernels; ``said`` is a warning about their file."""
    slots = Slots.of(kernels)
    ranges, texts = _ranges(kernels, slots)
    span = (0, int(slots.start[-1] + slots.length[-1]))
    return Report(
        source=(name,),
        facts=(Facts(NSIGHT_COMPUTE, schema, span, _warnings(name, kernels, said)),),
        ranges=ranges,
        launches=_launches(kernels, slots),
        activities=_activities(kernels, slots),
        marks=frames.frame("marks", {}),
        threads=_threads(kernels),
        processes=_processes(kernels),
        devices=_devices(kernels),
        texts=texts,
    )


def _warnings(name: str, kernels: Sequence[Kernel], of_file: str) -> tuple[str, ...]:
    said = ["of Nsight Compute: each kernel ran alone, no timeline and no times of the CPU"]
    without = sum(kernel.duration == MISSING for kernel in kernels)
    if without:
        said.append(
            f"{without} of {len(kernels)} kernels without a time;"
            " collect gpu__time_duration.sum, or the section SpeedOfLight"
        )
    said += [of_file] if of_file else []
    return tuple(f"{name}: {text}" for text in said)


def _process(kernel: Kernel) -> int:
    return _number(kernel.process)


def _number(pid: int) -> int:
    return (max(pid, 0) & LOW_BITS) << PROCESS_SHIFT


def _threads_of(parts: Sequence[Kernel] | Sequence[Span]) -> Ints:
    """Return the number of each one's thread, in as many bits as there are for it below the process."""
    return _ints([part.thread for part in parts]) & LOW_BITS


def _ints(values: Sequence[int]) -> Ints:
    return np.array(values, np.int64)


def _activities(kernels: Sequence[Kernel], slots: Slots) -> pd.DataFrame:
    full = [kernel.full_name for kernel in kernels]
    short = {name: short_name(name) for name in dict.fromkeys(full)}
    columns: dict[str, Any] = {
        "start": slots.began,
        "end": slots.ended,
        "kind": frames.named([kernel.kind for kernel in kernels]),
        "process": _ints([_process(kernel) for kernel in kernels]),
        "correlation": np.arange(1, len(kernels) + 1),
        "name": frames.named([k.name or short[k.full_name] for k in kernels]),
        "full_name": frames.named(full),
        "mangled": frames.named([kernel.mangled for kernel in kernels]),
    }
    for what in ("device", "context", "stream"):
        columns[what] = _ints([_known(k, getattr(k, what), f"launch__{what}_id") for k in kernels])
    for what in ("grid", "block"):
        extents = [_extent(kernel, what) for kernel in kernels]
        columns |= {
            f"{what}_{axis}": _ints([e[n] for e in extents]) for n, axis in enumerate("xyz")
        }
    for column, names in GEOMETRY.items():
        columns[column] = _ints([kernel.whole(*names) for kernel in kernels])
    return frames.frame("activities", columns)


def _known(kernel: Kernel, value: int, metric: str) -> int:
    return kernel.whole(metric) if value == MISSING else value


def _extent(kernel: Kernel, what: str) -> tuple[int, ...]:
    said: tuple[int, ...] = getattr(kernel, what)
    if said != NO_EXTENT:
        return said
    return tuple(kernel.whole(f"launch__{what}_dim_{axis}") for axis in "xyz")


def _launches(kernels: Sequence[Kernel], slots: Slots) -> pd.DataFrame:
    """Return a launch of no length per kernel, by which it belongs to the ranges around it."""
    process = _ints([_process(kernel) for kernel in kernels])
    columns: dict[str, Any] = {
        "start": slots.began,
        "end": slots.began,
        "thread": process | _threads_of(kernels),
        "process": process,
        "correlation": np.arange(1, len(kernels) + 1),
        "name": frames.named([LAUNCH] * len(kernels)),
    }
    return frames.frame("launches", columns)


def _ranges(kernels: Sequence[Kernel], slots: Slots) -> tuple[pd.DataFrame, Texts]:
    pushed, started = pushed_spans(kernels), started_spans(kernels)
    spans = [*pushed, *started]
    texts = Texts.of([span.range.name for span in spans])
    codes, names = texts.factorize(name_lengths(texts))
    domain, domain_name = _domains(spans)
    process = _ints([_number(span.process) for span in spans])
    depth = _ints([span.depth for span in spans])
    first, last = _ints([span.first for span in spans]), _ints([span.last for span in spans])
    is_started = np.arange(len(spans)) >= len(pushed)
    columns: dict[str, Any] = {
        "start": slots.start[first] + depth,
        "end": (slots.start + slots.length)[last] - depth,
        "thread": process | _threads_of(spans),
        "process": process,
        "domain": domain,
        "domain_name": domain_name,
        "name": frames.names(codes, names),
        "kind": frames.names(is_started.astype(np.int64), frames.RANGE_KINDS),
        "payload": _ints([span.range.payload for span in spans]),
        "text": np.arange(len(spans)),
    }
    return frames.frame("ranges", columns), texts


def _domains(spans: Sequence[Span]) -> tuple[Ints, pd.Categorical]:
    """Number domains by name, the default one 0, which has no name."""
    names = ["" if s.range.domain == DEFAULT_DOMAIN else s.range.domain for s in spans]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(["", *names]))}
    return _ints([numbers[name] for name in names]), frames.named(names)


def _threads(kernels: Sequence[Kernel]) -> pd.DataFrame:
    pairs = list(dict.fromkeys((_process(kernel), kernel.thread & LOW_BITS) for kernel in kernels))
    process, thread = (_ints(column) for column in zip(*pairs, strict=True))
    name = frames.named([""] * len(pairs))
    return frames.frame("threads", {"thread": process | thread, "process": process, "name": name})


def _processes(kernels: Sequence[Kernel]) -> pd.DataFrame:
    names = {_process(kernel): kernel.program for kernel in kernels}
    columns: dict[str, Any] = {
        "process": _ints(list(names)),
        "name": frames.named(list(names.values())),
    }
    return frames.frame("processes", columns)


def _devices(kernels: Sequence[Kernel]) -> pd.DataFrame:
    """Return a row per GPU of a process, with what metrics say of it."""
    first = {(_process(k), _known(k, k.device, "launch__device_id")): k for k in reversed(kernels)}
    known = list(first.values())
    process, device = (_ints(column) for column in zip(*first, strict=True))
    facts = {
        fact: _ints([kernel.whole(f"{rep.DEVICE}{theirs}") for kernel in known])
        for fact, theirs in DEVICE_FACTS.items()
    }
    named = [kernel.metrics.get(f"{rep.DEVICE}display_name") for kernel in known]
    name = frames.named(["" if value is None else value.text for value in named])
    own = {"process": process, "device": device, "gpu": device}
    return frames.frame("devices", {**own, **facts, "name": name})
