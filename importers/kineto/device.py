"""Device records of a trace as frames: `activities`, `waits` and `devices`.

Names are those of Nsight Systems. The process of a record is that of the host which made the call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from bridge.importers import frames
from bridge.importers.arrays import MISSING, Ints
from bridge.importers.kineto.events import clean, clean_names, integers
from bridge.importers.nsys.schema import COPY_KINDS, FILL, NONE
from bridge.importers.texts import unique_names

# -- The short names of kernels


OPEN, CLOSE = "<([{", ">)]}"
OPERATOR = "operator"
UNNAMED = re.compile(r"\(anonymous namespace\)|<unnamed>")
BRACKET = re.compile(r"[<>()\[\]{}]")


def short_name(name: str) -> str:
    """Return a demangled name without types, namespaces and arguments; other names unchanged."""
    outer = "".join(_outside_brackets(UNNAMED.sub("_", name)))
    result = outer.strip().rpartition("::")[2].rpartition(" ")[2]
    return result or name


def _outside_brackets(name: str) -> list[str]:
    """Return the parts of a name outside of brackets, up to the arguments."""
    parts, depth, start = [], 0, 0
    for match in BRACKET.finditer(name):
        at, mark = match.start(), match[0]
        if not depth:
            parts.append(name[start:at])
            if mark == "(" and parts[-1].endswith(OPERATOR) and name.startswith("()", at):
                parts.append("()")
            elif mark == "(" and "".join(parts).strip():
                return parts
        depth = max(0, depth + (1 if mark in OPEN else -1))
        start = at + 1
    return [*parts, name[start:]] if not depth else parts


# -- The processes of device events


ON_DEVICE = ("kernels", "copies", "fills", "syncs", "records", "host_nodes", "event_nodes")


class DeviceEvents(Protocol):
    """Events of one sort on devices, in the words of Kineto; ``gpu`` is the number of the GPU of each."""

    @property
    def start(self) -> Ints: ...
    @property
    def end(self) -> Ints: ...
    @property
    def names(self) -> frames.Names: ...
    @property
    def gpu(self) -> Ints: ...

    def __len__(self) -> int: ...

    def ints(self, key: str) -> Ints:
        """Return an integer argument of each, -1 where it is absent."""

    def texts(self, key: str) -> frames.Names:
        """Return an argument of each that is a text."""

    def extents(self, key: str) -> Sequence[Ints]:
        """Return the numbers of a grid or a block along each of `AXES`, -1 where they are absent."""


def owners(
    by: Mapping[str, DeviceEvents], launches: frames.Launches, hosts: Ints
) -> dict[str, Ints]:
    """Return the process of each device event, by sort; -1 where it is ambiguous.

    It is the process of the call with the same correlation id; without one, the process of all
    other events of the same device.
    """
    if len(hosts) == 1:
        return {sort: np.full(len(by[sort]), hosts[0]) for sort in ON_DEVICE}
    callers = _processes_of_calls(launches)
    result = {sort: callers.get(by[sort].ints("correlation")) for sort in ON_DEVICE}
    homes = _processes_of_devices([by[sort].gpu for sort in ON_DEVICE], list(result.values()))
    return {
        sort: np.where(process == MISSING, homes.get(by[sort].gpu), process)
        for sort, process in result.items()
    }


class UniqueValues:
    """Map keys to values; -1 for unknown keys and for keys with several values."""

    def __init__(self, keys: Ints, values: Ints) -> None:
        pairs = np.unique(np.stack((keys, values)), axis=1)
        single = np.ones(pairs.shape[1], bool)
        same = pairs[0, 1:] == pairs[0, :-1]
        single[1:] &= ~same
        single[:-1] &= ~same
        self.keys, self.values = pairs[:, single]

    def get(self, keys: Ints) -> Ints:
        if not len(self.keys):
            return np.full(len(keys), MISSING)
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[place] == keys, self.values[place], MISSING)


def _processes_of_calls(launches: frames.Launches) -> UniqueValues:
    ids, process = launches.correlation, launches.process
    calls = np.flatnonzero(ids > 0)
    return UniqueValues(ids[calls], process[calls])


def _processes_of_devices(pids: Sequence[Ints], process: Sequence[Ints]) -> UniqueValues:
    """Map the pids of devices in the trace to the process of all their known events."""
    all_pids, processes = np.concatenate(pids), np.concatenate(process)
    known = np.flatnonzero(processes != MISSING)
    return UniqueValues(all_pids[known], processes[known])


# -- Activities and waits


AXES = ("x", "y", "z")
KERNELS, GRAPHS = (frames.ACTIVITY_KINDS.index(kind) for kind in (frames.KERNEL, frames.GRAPH))
UNKNOWN, NSYS_PREFIX = "Unknown", "[CUDA "
# Kineto's letters for the ends of a copy, and the words of nsys.
PLACES = {"H": "Host", "D": "Device", "A": "Array", "P": "Peer"}
COPY = re.compile(r"Memcpy (?P<way>\S+)(?: \((?P<source>.*) -> (?P<target>.*)\))?")
# Cuspy calls all copies alike, and tells the rest as arguments; of memsets the kind of memory as CUPTI counts them.
ALIKE = "Memcpy"
COPY_PARTS, FILL_PART = ("copy kind", "src kind", "dst kind"), "memory kind"
MEMORY_OF_CUPTI = np.roll(np.arange(len(frames.MEMORY_KINDS)), 1)  # CUPTI's 0 is unknown
SET = re.compile(r"Memset(?: \((?P<target>.*)\))?")
WAY = re.compile(r"([HDAP])to([HDAP])")
# The name of a CUDA graph that was traced as a whole, in traces of nsight-bridge.
GRAPH = re.compile(r"\[CUDA graph -?\d+\]")
SYNCS = {
    "Event Sync": "event",
    "Stream Wait Event": "stream_wait",
    "Stream Sync": "stream",
    "Context Sync": "context",
}


def activities(by: Mapping[str, DeviceEvents], process: Mapping[str, Ints]) -> frames.Activities:
    """Return the frame `activities`: kernels, memcpys, memsets; ``process`` is by sort."""
    parts = [
        _frame(_kernels(by["kernels"]), by["kernels"], process["kernels"]),
        _frame(_copies(by["copies"]), by["copies"], process["copies"]),
        _frame(_fills(by["fills"]), by["fills"], process["fills"]),
    ]
    return frames.Activities.concat([part for part in parts if len(part)] or parts[:1])


def waits(by: Mapping[str, DeviceEvents], process: Mapping[str, Ints]) -> frames.Waits:
    """Return the frame `waits`: synchronizations, then event records."""
    syncs, records = by["syncs"], by["records"]
    kinds = syncs.texts("cuda_sync_kind").per_text(
        lambda kind: _wait_kind(SYNCS.get(kind, "unknown")), _wait_kind("unknown")
    )
    event = {"event": syncs.ints("wait_on_cuda_event_id")}
    parts = [
        _waits(syncs, process["syncs"], kinds, event),
        _waits(
            records,
            process["records"],
            np.full(len(records), _wait_kind("event_record")),
            {"event": records.ints("event_id")},
        ),
    ]
    return frames.Waits.concat([part for part in parts if len(part)] or parts[:1])


def _wait_kind(name: str) -> int:
    return frames.WAIT_KINDS.index(name)


def _waits(events: DeviceEvents, process: Ints, kind: Ints, event: dict[str, Ints]) -> frames.Waits:
    place = _common_columns(events, process) | event
    place |= {c: np.where(place[c] == NONE, MISSING, place[c]) for c in ("stream", "event")}
    return frames.Waits(place | {"kind": frames.Names(kind, frames.WAIT_KINDS)})


def _common_columns(events: DeviceEvents, process: Ints) -> dict[str, Ints]:
    where = {c: events.ints(c) for c in ("device", "context", "stream", "correlation")}
    real = events.ints("original_stream")  # of work of graphs that was moved to a lane of its own
    where["stream"] = np.where(real == MISSING, where["stream"], real)
    return {"start": events.start, "end": events.end, "process": process, **where}


def _frame(
    specific: dict[str, frames.Column], events: DeviceEvents, process: Ints
) -> frames.Activities:
    graph, node = nodes_of(events)
    columns = {
        **_common_columns(events, process),
        "graph": graph,
        "graph_node": node,
        "bytes": events.ints("bytes"),
        **specific,
    }
    return frames.Activities(columns)


def nodes_of(events: DeviceEvents) -> tuple[Ints, Ints]:
    """Return the graph and the node of each event, -1 where it is of none, which is written as 0."""
    graph, node = (events.ints(key) for key in ("graph id", "graph node id"))
    # Cuspy writes the lower half of CUDA's id of a node; the upper is the id of the graph.
    is_half = (graph > 0) & (node >= 0) & (node >> 32 == 0)
    node = np.where(is_half, graph << 32 | node, node)
    return np.where(graph > 0, graph, MISSING), np.where(node > 0, node, MISSING)


def _kernels(events: DeviceEvents) -> dict[str, frames.Column]:
    """Return the columns of kernels; the trace has only the sum of their shared memory."""
    code, distinct = _coded(events)
    full = [clean(name) for name in distinct]
    graph = np.array([bool(GRAPH.fullmatch(name)) for name in full], bool)[code]
    short = [name if GRAPH.fullmatch(name) else short_name(name) for name in full]
    whole = frames.Names(*unique_names(code, full))
    return {
        "kind": _kinds(np.where(graph, GRAPHS, KERNELS)),
        "name": frames.Names(*unique_names(code, short)),
        "full_name": whole,
        "mangled": whole,
        "registers": events.ints("registers per thread"),
        "shared_dynamic": events.ints("shared memory"),
        **_shape(events, "grid"),
        **_shape(events, "block"),
    }


def _shape(events: DeviceEvents, prefix: str) -> dict[str, frames.Column]:
    return {
        f"{prefix}_{axis}": extent
        for axis, extent in zip(AXES, events.extents(prefix), strict=True)
    }


def _copies(events: DeviceEvents) -> dict[str, frames.Column]:
    code, distinct = _copy_names(events)
    matches = [COPY.fullmatch(name) for name in distinct]
    labels = [_copy_label(match["way"]) if match else UNKNOWN for match in matches]
    numbers = {label: number for number, label in COPY_KINDS.items()}
    names = [
        clean(name) if name.startswith(NSYS_PREFIX) else f"[CUDA memcpy {label}]"
        for name, label in zip(distinct, labels, strict=True)
    ]
    return {
        "kind": _kinds(np.full(len(events), frames.ACTIVITY_KINDS.index(frames.MEMCPY))),
        "copy_kind": np.array([numbers[label] for label in labels], np.int64)[code],
        "source_kind": _memory_kinds([match["source"] if match else None for match in matches])[
            code
        ],
        "target_kind": _memory_kinds([match["target"] if match else None for match in matches])[
            code
        ],
        **_all_names(code, names),
    }


def _copy_names(events: DeviceEvents) -> tuple[Ints, list[str]]:
    """Return a code per copy and the distinct names, in the form of Kineto."""
    names = events.names
    if ALIKE not in names.texts:
        return names.codes, names.texts
    parts = [events.texts(key) for key in COPY_PARTS]
    code, first = frames.distinct_keys(names.codes, *(part.codes for part in parts))
    texts = []
    for row in first.tolist():
        way, source, target = (part[row] for part in parts)
        is_told = names[row] == ALIKE and way
        texts.append(f"{names[row]} {way} ({source} -> {target})" if is_told else names[row])
    return unique_names(code, texts)


def _fills(events: DeviceEvents) -> dict[str, frames.Column]:
    code, distinct = _coded(events)
    matches = [SET.fullmatch(name) for name in distinct]
    kinds = _memory_kinds([match["target"] if match else None for match in matches])
    told = events.ints(FILL_PART)
    told = np.where((told >= 0) & (told < len(frames.MEMORY_KINDS)), told, MISSING)
    return {
        "kind": _kinds(np.full(len(events), frames.ACTIVITY_KINDS.index(frames.MEMSET))),
        "target_kind": np.where(told >= 0, MEMORY_OF_CUPTI[told], kinds[code]),
        **_all_names(code, [FILL for _ in distinct]),
    }


def _coded(events: DeviceEvents) -> tuple[Ints, list[str]]:
    """Return a code per event and the distinct names."""
    names = events.names
    return names.codes, names.texts


def _kinds(codes: Ints) -> frames.Names:
    return frames.Names(codes.astype(np.int64), frames.ACTIVITY_KINDS)


def _all_names(code: Ints, names: list[str]) -> dict[str, frames.Column]:
    """Return the three name columns of an activity that is no kernel: they are equal."""
    return dict.fromkeys(("name", "full_name", "mangled"), frames.Names(*unique_names(code, names)))


def _copy_label(letters: str) -> str:
    match = WAY.fullmatch(letters)
    label = f"{PLACES[match[1]]}-to-{PLACES[match[2]]}" if match else UNKNOWN
    return label if label in COPY_KINDS.values() else UNKNOWN


def _memory_kinds(labels: Sequence[str | None]) -> Ints:
    """Return indices into `frames.MEMORY_KINDS`, -1 where the trace has no kind."""
    kinds = [None if label is None else label.lower().replace(" ", "_") for label in labels]
    known = frames.MEMORY_KINDS
    unknown = len(known) - 1
    result = [
        MISSING if kind is None else known.index(kind) if kind in known else unknown
        for kind in kinds
    ]
    return np.array(result, np.int64)


# -- Devices


KINETO_FACTS = {  # our names: Kineto's
    "memory_bytes": "totalGlobalMem",
    "compute_major": "computeMajor",
    "compute_minor": "computeMinor",
    "sm_count": "numSms",
    "warp_size": "warpSize",
    "threads_per_block": "maxThreadsPerBlock",
    "registers_per_sm": "regsPerMultiprocessor",
    "registers_per_block": "regsPerBlock",
    "shared_per_sm": "sharedMemPerMultiprocessor",
    "shared_per_block": "sharedMemPerBlock",
    "shared_per_block_optin": "sharedMemPerBlockOptin",
}
THREADS = "maxThreadsPerMultiprocessor"


def devices(
    properties: Any, by: Mapping[str, DeviceEvents], activities: frames.Activities
) -> frames.Devices:
    """Return the frame `devices`: a row per (process, device) that was used.

    The pid of a device in the trace is the number of the GPU.
    """
    gpus_of = np.concatenate([by[sort].gpu for sort in ("kernels", "copies", "fills")])
    used = frames.used_devices(activities)
    process, device, gpu = activities.process[used], activities.device[used], gpus_of[used]
    known = _properties_by_id(properties)
    gpus = [known.get(number, {}) for number in gpu.tolist()]
    name = clean_names([str(gpu_properties.get("name", "")) for gpu_properties in gpus])
    facts = {
        c: integers([gpu_properties.get(key) for gpu_properties in gpus])
        for c, key in KINETO_FACTS.items()
    }
    facts["warps_per_sm"] = _warps_per_sm(
        integers([gpu_properties.get(THREADS) for gpu_properties in gpus]), facts["warp_size"]
    )
    return frames.Devices(facts, process=process, device=device, gpu=gpu, name=name)


def _properties_by_id(properties: Any) -> dict[int, dict[str, Any]]:
    gpus = properties if type(properties) is list else []
    return {gpu["id"]: gpu for gpu in gpus if type(gpu) is dict and type(gpu.get("id")) is int}


def _warps_per_sm(threads: Ints, size: Ints) -> Ints:
    return np.where((threads > 0) & (size > 0), threads // np.maximum(size, 1), MISSING)
