"""The GPUs of a profile as frames: activities, and what their planes tell of them."""

from __future__ import annotations

import re

import numpy as np

from bridge.importers import frames
from bridge.importers.arrays import MISSING, Ints
from bridge.importers.capture import MAX_SPAN_NS
from bridge.importers.chrome.device import kind_of, named_columns
from bridge.importers.frames import Names, distinct_keys
from bridge.importers.nsys.schema import GRAPH as GRAPH_NAME
from bridge.importers.xplane.host import CORRELATION
from bridge.importers.xplane.space import Part, Space

PLANE = re.compile(r"/device:GPU:(\d{1,9})")
# Lines of a GPU with its work; others are made of these, or are counters.
STREAM = re.compile(r"Stream #(\d{1,18})")
CONTEXT = re.compile(r"\$*(\d{1,18})")
# Stats that tell the kind of work.
KINDS = {
    frames.KERNEL: "kernel_details",
    frames.MEMCPY: "memcpy_details",
    frames.MEMSET: "Memset_details",
    frames.GRAPH: "cuda_graph_exec_id",
}
GRAPH_OF_NODE, GRAPH_NODE = "cuda_graph_id", "cuda_graph_node_id"
# Events on a stream that are no work of it, by their stats or names: allocations, and how long they live.
NO_WORK_STATS = ("memalloc_details", "MemFree_details", "MemoryResidency_details")
NO_WORK = re.compile(r"Memory(?:Alloc|Free|Residency)|UnifiedMemory|Overhead")
DIGITS = 18  # of a number in a text
AXES = ("x", "y", "z")
NUMBERS = {
    "regs": "registers",
    "static_shared": "shared_static",
    "dynamic_shared": "shared_dynamic",
}
FACTS = {  # our names: those of stats of planes
    "memory_bytes": ("memory_size", 1),
    "memory_bandwidth": ("memory_bandwidth", 1),
    "clock_hz": ("clock_rate", 1000),
    "sm_count": ("core_count", 1),
    "compute_major": ("compute_cap_major", 1),
    "compute_minor": ("compute_cap_minor", 1),
}
DEVICE_NAME = "gpu_device_name"


def work_of(space: Space) -> tuple[Part, int]:
    """Return the work of GPUs, and how many events of other devices are not read.

    Lines that the profiler derives from streams, such as `XLA Ops` and `Steps`, hold the same work again.
    """
    is_device = space.planes.matching(lambda name: name.startswith("/device:"))
    is_gpu = space.planes.matching(PLANE.fullmatch)
    on_stream = space.line_name.matching(STREAM.match) & is_gpu[space.line_plane]
    rows = np.flatnonzero(on_stream[space.events.line])
    part = Part.of(space, rows)
    idle = part.names.matching(NO_WORK.fullmatch)
    for stat in NO_WORK_STATS:
        idle |= part.texts(stat).codes != MISSING
    others = int(np.count_nonzero((is_device & ~is_gpu)[space.events.plane]))
    return (Part.of(space, rows[~idle]) if idle.any() else part), others


def activities(space: Space, work: Part, process: int) -> frames.Activities:
    """Return the frame `activities`."""
    kind, events = _kinds(work), work.events
    gpu = space.planes.per_text(lambda name: _number(PLANE, name))
    stream = space.line_name.per_text(lambda name: _number(STREAM, name))
    graph_kind = kind == frames.ACTIVITY_KINDS.index(frames.GRAPH)
    graph = np.where(graph_kind, work.integers(KINDS[frames.GRAPH]), work.integers(GRAPH_OF_NODE))
    return frames.Activities(
        _names(work, kind, graph) | _kernel_columns(work) | _memory_columns(work),
        start=events.start,
        end=events.end,
        process=np.full(len(work), process),
        device=gpu[events.plane],
        context=work.texts("context_id").per_text(lambda text: _number(CONTEXT, text)),
        stream=stream[events.line],
        correlation=work.integers(CORRELATION),
        graph=graph,
        graph_node=work.integers(GRAPH_NODE),
    )


def _number(expression: re.Pattern[str], text: str) -> int:
    match = expression.match(text)
    return int(match[1]) if match else MISSING


def _kinds(work: Part) -> Ints:
    """Return the kind of each event, by its stats, or else by its name."""
    by_name = work.names.per_text(lambda name: frames.ACTIVITY_KINDS.index(kind_of(name)))
    told = [
        (work.integers(stat) if kind == frames.GRAPH else work.texts(stat).codes) != MISSING
        for kind, stat in KINDS.items()
    ]
    codes = [frames.ACTIVITY_KINDS.index(kind) for kind in KINDS]
    return np.select(told, codes, by_name).astype(np.int64)


def _names(work: Part, kind: Ints, graph: Ints) -> dict[str, frames.Column]:
    """Return the columns that say what each activity is."""
    code, first = distinct_keys(work.names.codes, kind, graph)
    kinds = [frames.ACTIVITY_KINDS[number] for number in kind[first].tolist()]
    names = [
        GRAPH_NAME.format(number) if of_kind == frames.GRAPH else name
        for name, of_kind, number in zip(
            work.names[first], kinds, graph[first].tolist(), strict=True
        )
    ]
    return named_columns(code, names or [""], kinds or [frames.KERNEL])


def _kernel_columns(work: Part) -> dict[str, frames.Column]:
    """Return registers, shared memory, grid and block of kernels."""
    texts = work.texts(KINDS[frames.KERNEL])
    known = [_details(text) for text in texts.texts]
    columns = {
        ours: [_integer(facts.get(key, "")) for facts in known] for key, ours in NUMBERS.items()
    }
    for key in ("grid", "block"):
        extents = [facts.get(key, "").split(",") for facts in known]
        for place, axis in enumerate(AXES):
            columns[f"{key}_{axis}"] = [
                _integer(values[place]) if len(values) == len(AXES) else MISSING
                for values in extents
            ]
    return {name: _of_texts(texts, values) for name, values in columns.items()}


def _memory_columns(work: Part) -> dict[str, frames.Column]:
    """Return the bytes of copies and memsets, and the kinds of memory at their ends."""
    copies, fills = (work.texts(KINDS[kind]) for kind in (frames.MEMCPY, frames.MEMSET))
    both = Names.concat([copies, fills])
    code = np.split(both.codes, 2)
    texts = Names(np.where(code[0] == MISSING, code[1], code[0]), both.texts)
    known = [_details(text) for text in texts.texts]
    values = {
        "bytes": [_integer(facts.get("size", facts.get("num_bytes", ""))) for facts in known],
        "source_kind": [_memory(facts.get("kind_src")) for facts in known],
        "target_kind": [_memory(facts.get("kind_dst", facts.get("kind"))) for facts in known],
    }
    return {name: _of_texts(texts, numbers) for name, numbers in values.items()}


def _details(text: str) -> dict[str, str]:
    """Return the details in a text such as `regs:32 grid:1,2,3 kind_src:pinned`."""
    return dict(part.split(":", 1) for part in text.split() if ":" in part)


def _of_texts(texts: Names, values: list[int]) -> Ints:
    return np.array([*values, MISSING], np.int64)[texts.codes]


def _integer(text: str | None) -> int:
    text = text or ""
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= DIGITS else MISSING


def _memory(kind: str | None) -> int:
    """Return the index of a kind of memory in `frames.MEMORY_KINDS`, -1 where none is told."""
    if kind is None:
        return MISSING
    known = frames.MEMORY_KINDS
    return known.index(kind if kind in known else "unknown")


def devices(space: Space, activities: frames.Activities) -> frames.Devices:
    """Return the frame `devices`: a row per GPU that was used."""
    used = frames.used_devices(activities)
    device = activities.device[used]
    numbers = [_number(PLANE, name) for name in space.planes]
    planes = np.array([numbers.index(number) for number in device.tolist()], np.int64)
    facts = {
        name: _scaled(space.plane_stats.integers(stat, len(numbers))[planes], factor)
        for name, (stat, factor) in FACTS.items()
    }
    return frames.Devices(
        facts,
        process=activities.process[used],
        device=device,
        gpu=device,
        name=space.plane_stats.names(DEVICE_NAME, len(numbers))[planes],
    )


def _scaled(values: Ints, factor: int) -> Ints:
    return np.where((values > 0) & (values < MAX_SPAN_NS // factor), values * factor, MISSING)
