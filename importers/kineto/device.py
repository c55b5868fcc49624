"""What ran on devices: kernels, copies and fills as activities, synchronisations as waits.

They are named as Nsight Systems names them. The process is the one of the host that made the call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from importers import frames
from importers.frames import MISSING
from importers.kineto.clean import clean
from importers.kineto.events import Events
from importers.kineto.kernels import short_name
from importers.kineto.numbers import integers
from importers.nsys.schema import COPY_KINDS, FILL, NONE
from importers.texts import Ints, unique_names

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
    """Return kernels, then copies and fills; ``process`` holds that of each event, by sort."""
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
        "kind": _kinds(np.full(len(events), frames.ACTIVITY_KINDS.index(frames.COPY))),
        "copy_kind": np.array([numbers[label] for label in labels], np.int64)[code],
        "source_kind": _memory([one["source"] if one else None for one in found])[code],
        "target_kind": _memory([one["target"] if one else None for one in found])[code],
        **_same(code, names),
    }


def _fills(events: Events) -> dict[str, Column]:
    code, distinct = _distinct(events)
    found = [SET.fullmatch(name) for name in distinct]
    return {
        "kind": _kinds(np.full(len(events), frames.ACTIVITY_KINDS.index(frames.FILL))),
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
