"""What ran on devices: kernels, memcpys and memsets as activities, synchronisations as waits.

They are named as Nsight Systems names them. The process is the one of the host that made the call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from importers import frames
from importers.frames import MISSING
from importers.kineto.events import Events, clean, integers, named
from importers.nsys.schema import COPY_KINDS, FILL, NONE
from importers.texts import Ints, unique_names

# -- The short names of kernels: what is left of a demangled one without types, namespaces and arguments


OPEN, CLOSE = "<([{", ">)]}"
OPERATOR = "operator"
UNNAMED = re.compile(r"\(anonymous namespace\)|<unnamed>")
BRACKET = re.compile(r"[<>()\[\]{}]")


def short_name(name: str) -> str:
    """Return the name of a kernel alone; one that is no C++ comes back as it is."""
    outer = "".join(_outside(UNNAMED.sub("_", name)))
    found = outer.strip().rpartition("::")[2].rpartition(" ")[2]
    return found or name


def _outside(name: str) -> list[str]:
    """Return the parts that are in no brackets, up to the arguments."""
    parts, depth, start = [], 0, 0
    for found in BRACKET.finditer(name):
        at, mark = found.start(), found[0]
        if not depth:
            parts.append(name[start:at])
            if mark == "(" and parts[-1].endswith(OPERATOR) and name.startswith("()", at):
                parts.append("()")
            elif mark == "(" and "".join(parts).strip():
                return parts
        depth = max(0, depth + (1 if mark in OPEN else -1))
        start = at + 1
    return [*parts, name[start:]] if not depth else parts


# -- Whose process the work on a device is: that of the host which called for it, by the correlation id


ON_DEVICE = ("kernels", "copies", "fills", "syncs", "records")


def owners(by: Mapping[str, Events], launches: pd.DataFrame, hosts: Ints) -> dict[str, Ints]:
    """Return the process of each event on a device, by sort; -1 where several may be meant."""
    if len(hosts) == 1:
        return {sort: np.full(len(by[sort]), hosts[0]) for sort in ON_DEVICE}
    callers = _callers(launches)
    found = {sort: callers.get(by[sort].ints("correlation")) for sort in ON_DEVICE}
    homes = _homes([_pids(by[sort]) for sort in ON_DEVICE], list(found.values()))
    return {
        sort: np.where(own == MISSING, homes.get(_pids(by[sort])), own)
        for sort, own in found.items()
    }


class _Known:
    """A value per key, -1 for a key of several values and for others."""

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


def _callers(launches: pd.DataFrame) -> _Known:
    ids, process = (frames.ints(launches, c) for c in ("correlation", "process"))
    calls = np.flatnonzero(ids > 0)
    return _Known(ids[calls], process[calls])


def _homes(pids: Sequence[Ints], process: Sequence[Ints]) -> _Known:
    """Return the process that all other work of the same device (a pid in the trace) is of."""
    every, own = np.concatenate(pids), np.concatenate(process)
    known = np.flatnonzero(own != MISSING)
    return _Known(every[known], own[known])


def _pids(events: Events) -> Ints:
    return integers([pid for pid, _ in events.where])


# -- What ran on devices: kernels, memcpys and memsets as activities, synchronisations as waits


AXES = ("x", "y", "z")
KERNELS, GRAPHS = (frames.ACTIVITY_KINDS.index(kind) for kind in (frames.KERNEL, frames.GRAPH))
UNKNOWN, OURS = "Unknown", "[CUDA "
# Kineto's letters for the places between which a copy goes, and nsys' words.
PLACES = {"H": "Host", "D": "Device", "A": "Array", "P": "Peer"}
COPY = re.compile(r"Memcpy (?P<way>\S+)(?: \((?P<source>.*) -> (?P<target>.*)\))?")
SET = re.compile(r"Memset(?: \((?P<target>.*)\))?")
WAY = re.compile(r"([HDAP])to([HDAP])")
# So our own traces call a graph that was recorded as a whole.
GRAPH = re.compile(r"\[CUDA graph -?\d+\]")
SYNCS = {
    "Event Sync": "event",
    "Stream Wait Event": "stream_wait",
    "Stream Sync": "stream",
    "Context Sync": "context",
}

Column = Ints | pd.Categorical


def activities(by: Mapping[str, Events], process: Mapping[str, Ints]) -> pd.DataFrame:
    """Return kernels, then memcpys and memsets; ``process`` holds that of each event, by sort."""
    parts = [
        _frame(_kernels(by["kernels"]), by["kernels"], process["kernels"]),
        _frame(_copies(by["copies"]), by["copies"], process["copies"]),
        _frame(_fills(by["fills"]), by["fills"], process["fills"]),
    ]
    return frames.concat([part for part in parts if len(part)] or parts[:1])


def waits(by: Mapping[str, Events], process: Mapping[str, Ints]) -> pd.DataFrame:
    """Return synchronisations, then records of events."""
    syncs, records = by["syncs"], by["records"]
    kinds = [SYNCS.get(str(kind), "unknown") for kind in syncs.column("cuda_sync_kind")]
    event = {"event": syncs.ints("wait_on_cuda_event_id")}
    parts = [
        _waits(syncs, process["syncs"], kinds, event),
        _waits(records, process["records"], ["event_record"] * len(records), {"event": records.ints("event_id")}),
    ]  # fmt: skip
    return frames.concat([part for part in parts if len(part)] or parts[:1])


def _waits(
    events: Events, process: Ints, kinds: Sequence[str], event: dict[str, Ints]
) -> pd.DataFrame:
    place = _place(events, process) | event
    place |= {c: np.where(place[c] == NONE, MISSING, place[c]) for c in ("stream", "event")}
    kind = np.array([frames.WAIT_KINDS.index(one) for one in kinds], np.int64)
    return frames.frame("waits", {**place, "kind": frames.names(kind, frames.WAIT_KINDS)})


def _place(events: Events, process: Ints) -> dict[str, Ints]:
    where = {c: events.ints(c) for c in ("device", "context", "stream", "correlation")}
    return {"start": events.start, "end": events.end, "process": process, **where}


def _frame(own: dict[str, Column], events: Events, process: Ints) -> pd.DataFrame:
    graph = {c: events.ints(f"{c.replace('_', ' ')} id") for c in ("graph", "graph_node")}
    graph = {c: np.where(ids > 0, ids, MISSING) for c, ids in graph.items()}  # 0 is none
    columns = {**_place(events, process), **graph, "bytes": events.ints("bytes"), **own}
    return frames.frame("activities", columns)


def _kernels(events: Events) -> dict[str, Column]:
    """Name kernels, and give their shape; of shared memory the trace knows only the sum."""
    code, distinct = _distinct(events)
    full = [clean(name) for name in distinct]
    graph = np.array([bool(GRAPH.fullmatch(name)) for name in full], bool)[code]
    short = [name if GRAPH.fullmatch(name) else short_name(name) for name in full]
    whole = frames.names(*unique_names(code, full))
    return {
        "kind": _kinds(np.where(graph, GRAPHS, KERNELS)),
        "name": frames.names(*unique_names(code, short)),
        "full_name": whole,
        "mangled": whole,
        "registers": events.ints("registers per thread"),
        "shared_dynamic": events.ints("shared memory"),
        **_shape(events, "grid"),
        **_shape(events, "block"),
    }


def _shape(events: Events, what: str) -> dict[str, Column]:
    lists = [one if type(one) is list else () for one in events.column(what)]
    return {
        f"{what}_{axis}": integers([one[at] if len(one) > at else None for one in lists])
        for at, axis in enumerate(AXES)
    }


def _copies(events: Events) -> dict[str, Column]:
    code, distinct = _distinct(events)
    found = [COPY.fullmatch(name) for name in distinct]
    labels = [_way(one["way"]) if one else UNKNOWN for one in found]
    numbers = {label: number for number, label in COPY_KINDS.items()}
    names = [
        clean(name) if name.startswith(OURS) else f"[CUDA memcpy {label}]"
        for name, label in zip(distinct, labels, strict=True)
    ]
    return {
        "kind": _kinds(np.full(len(events), frames.ACTIVITY_KINDS.index(frames.MEMCPY))),
        "copy_kind": np.array([numbers[label] for label in labels], np.int64)[code],
        "source_kind": _memory([one["source"] if one else None for one in found])[code],
        "target_kind": _memory([one["target"] if one else None for one in found])[code],
        **_same(code, names),
    }


def _fills(events: Events) -> dict[str, Column]:
    code, distinct = _distinct(events)
    found = [SET.fullmatch(name) for name in distinct]
    return {
        "kind": _kinds(np.full(len(events), frames.ACTIVITY_KINDS.index(frames.MEMSET))),
        "target_kind": _memory([one["target"] if one else None for one in found])[code],
        **_same(code, [FILL for _ in distinct]),
    }


def _distinct(events: Events) -> tuple[Ints, list[str]]:
    """Return a code per event and the distinct names."""
    code, distinct = pd.factorize(np.array([*events.name, ""], object))
    return code[:-1].astype(np.int64), list(distinct)


def _kinds(codes: Ints) -> pd.Categorical:
    return frames.names(codes.astype(np.int64), frames.ACTIVITY_KINDS)


def _same(code: Ints, names: list[str]) -> dict[str, Column]:
    """What is no kernel has one name, however it is asked for."""
    return dict.fromkeys(("name", "full_name", "mangled"), frames.names(*unique_names(code, names)))


def _way(letters: str) -> str:
    found = WAY.fullmatch(letters)
    label = f"{PLACES[found[1]]}-to-{PLACES[found[2]]}" if found else UNKNOWN
    return label if label in COPY_KINDS.values() else UNKNOWN


def _memory(said: Sequence[str | None]) -> Ints:
    """Return places in `frames.MEMORY_KINDS`, -1 where nothing is said."""
    kinds = [None if one is None else one.lower().replace(" ", "_") for one in said]
    known = frames.MEMORY_KINDS
    last = len(known) - 1  # unknown
    found = [
        MISSING if one is None else known.index(one) if one in known else last for one in kinds
    ]
    return np.array(found, np.int64)


# -- What a trace knows of its GPUs, as the frame `devices`


FACTS = {  # what Kineto calls it
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


def devices(properties: Any, by: Mapping[str, Events], activities: pd.DataFrame) -> pd.DataFrame:
    """Return a row per (process, device) that was used; a device's pid in the trace says which GPU it is."""
    pids = [pid for sort in ("kernels", "copies", "fills") for pid, _ in by[sort].where]
    used = activities[["process", "device"]].assign(gpu=integers(pids))
    used = used.drop_duplicates(["process", "device"]).sort_values(["process", "device"])
    process, device, gpu = (used[c].to_numpy() for c in ("process", "device", "gpu"))
    known = _known(properties)
    said = [known.get(number, {}) for number in gpu.tolist()]
    name = named([str(one.get("name", "")) for one in said])
    facts = {c: integers([one.get(theirs) for one in said]) for c, theirs in FACTS.items()}
    facts["warps_per_sm"] = _warps(integers([one.get(THREADS) for one in said]), facts["warp_size"])
    own = {"process": process, "device": device, "gpu": gpu}
    return frames.frame("devices", {**own, **facts, "name": name})


def _known(properties: Any) -> dict[int, dict[str, Any]]:
    every = properties if type(properties) is list else []
    return {one["id"]: one for one in every if type(one) is dict and type(one.get("id")) is int}


def _warps(threads: Ints, size: Ints) -> Ints:
    return np.where((threads > 0) & (size > 0), threads // np.maximum(size, 1), MISSING)
