"""The dimensions that rows are told apart by: what ranges are called and say, where and when work ran."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bridge.analyze import kinds
from bridge.analyze.devices import Devices
from bridge.analyze.groups import texts
from bridge.analyze.names import KERNEL_NAMES, files
from bridge.analyze.ranks.members import Member, Ranks
from bridge.analyze.tables import input_shapes
from bridge.analyze.tables.events import Events
from bridge.analyze.tables.modules import NO_MODULE
from bridge.analyze.tracks import ID_BITS
from bridge.join.arrays import NONE, Ints, number
from bridge.join.attributed import DIRECTIONS, Attributed
from bridge.join.nesting import Nesting
from importers import frames
from importers.frames import shared
from importers.texts import unique_names

# -- Events as codes, by one dimension or by several, and the columns that name the codes


@dataclass(frozen=True)
class Coded:
    """``codes`` of each kind of events, NONE for what is in no row; ``labels``: columns, an entry per code."""

    labels: Mapping[str, NDArray[np.generic]]
    codes: Sequence[Ints]

    @property
    def size(self) -> int:
        """How many codes there are."""
        return len(next(iter(self.labels.values())))

    @classmethod
    def of_rows(
        cls,
        name: str,
        code: Ints,
        names: Collection[str],
        rows: Sequence[Ints],
        none: str | None = None,
    ) -> Coded:
        """Code events by the row that each leads to; without one they are named ``none``, or are in no row."""
        listed = list(names if none is None or none in names else [*names, none])
        missing = NONE if none is None else listed.index(none)
        filled = np.append(np.where(code == NONE, missing, code), missing)
        return cls({name: texts(listed)}, [filled[row] for row in rows])

    @classmethod
    def of_keys(cls, keys: Sequence[Sequence[Ints]]) -> tuple[Coded, list[Ints]]:
        """Code events by some columns, given for each kind of events; return the distinct keys too."""
        columns = [np.concatenate(column) for column in zip(*keys, strict=True)]
        code, rows = number(*columns)
        parts = np.cumsum([0, *(len(one[0]) for one in keys)]).tolist()
        return cls({}, [code[a:b] for a, b in pairwise(parts)]), [c[rows] for c in columns]

    def joined(self, other: Coded) -> Coded:
        """Code events by both, as many codes as there are combinations in use."""
        pairs = [
            np.where((ours == NONE) | (theirs == NONE), NONE, ours * other.size + theirs)
            for ours, theirs in zip(self.codes, other.codes, strict=True)
        ]
        every = np.concatenate(pairs)
        there = every != NONE
        code, distinct = pd.factorize(every[there])
        every[there] = code
        ours, theirs = np.divmod(distinct, max(1, other.size))
        labels = {name: column[ours] for name, column in self.labels.items()}
        labels |= {
            name: column[theirs] for name, column in other.labels.items() if name not in labels
        }
        parts = np.cumsum([0, *(len(one) for one in pairs)]).tolist()
        return Coded(labels, [every[a:b] for a, b in pairwise(parts)])


def together(dimensions: Sequence[Coded]) -> Coded:
    """Code events by all dimensions."""
    return reduce(Coded.joined, dimensions)


# -- Dimensions of time and place: step, phase, thread, process, report, rank, host, device, stream, geometry


NO_PHASE = "(no phase)"
GEOMETRY = (
    "grid_x grid_y grid_z block_x block_y block_z registers shared_static shared_dynamic".split()
)


def step(joined: Attributed, events: Sequence[Events]) -> Coded:
    """Code events by the number of the step (found by name, or by repetition) that was open in their process; -1 for none."""
    steps = joined.iterations
    numbers, of_step = np.unique(steps.number, return_inverse=True)
    code = np.append(of_step, len(numbers))  # the last: in no step
    places = [steps.at(e.report, e.process, e.time) for e in events]
    return Coded({"step": np.append(numbers, NONE)}, [code[place] for place in places])


def phase(joined: Attributed, events: Sequence[Events]) -> Coded:
    """Code events by the phase of their process that was open and began last."""
    ranges = joined.report.ranges
    rows = np.flatnonzero(frames.is_kind(ranges, frames.START_END))
    keys = [[frames.ints(ranges, c)[rows] for c in ("report", "process")]]
    stack, *stacks = shared(*keys, *([e.report, e.process] for e in events))
    start, end = (frames.ints(ranges, c)[rows] for c in ("start", "end"))
    nesting = Nesting.of(stack, start, end, rows)
    names = ranges["name"]
    code = frames.codes(names)[nesting.range]
    nodes = [nesting.innermost(of, e.time) for of, e in zip(stacks, events, strict=True)]
    return Coded.of_rows("phase", code, names.cat.categories, nodes, none=NO_PHASE)


def thread(joined: Attributed, events: Sequence[Events]) -> Coded:
    """Code events by the thread that they were called on; what has none has -1, a row per process."""
    keys = [(e.report, e.process, e.thread) for e in events]
    found, (of, owner, ids) = Coded.of_keys(keys)
    names = _places_named(joined, "threads", "thread", of, ids)
    labels = {
        "pid": _pid(owner),
        "tid": np.where(ids == NONE, NONE, ids & ID_BITS),
        "thread": names,
    }
    return replace(found, labels=labels | _files(joined, of))


def process(joined: Attributed, events: Sequence[Events]) -> Coded:
    """Code events by process."""
    found, (of, ids) = Coded.of_keys([(e.report, e.process) for e in events])
    programs = _places_named(joined, "processes", "process", of, ids)
    names = texts(program.rpartition("/")[2] for program in programs)
    labels = {"pid": _pid(ids), "process": names}
    return replace(found, labels=labels | _files(joined, of))


def report(joined: Attributed, events: Sequence[Events]) -> Coded:
    """Code events by the file that they are from."""
    return Coded({"report": texts(files(joined.report))}, [e.report for e in events])


def rank(joined: Attributed, events: Sequence[Events]) -> Coded:
    """Code events by the rank of their process; -1 where that is not known."""
    return _by_member(joined, events, "rank", lambda one: one.rank)


def host(joined: Attributed, events: Sequence[Events]) -> Coded:
    """Code events by the host that their file is of; '' where nothing says it."""
    return _by_member(joined, events, "host", lambda one: one.host)


def _by_member(
    joined: Attributed, events: Sequence[Events], name: str, told: Callable[[Member], int | str]
) -> Coded:
    """Code events by what is told of their process."""
    # A window of a report has those of the whole one.
    ranks = getattr(joined, "ranks", None) or Ranks.of(joined.report, joined.place)
    said = [told(one) for one in ranks.members]
    code, names = pd.factorize(np.array(said, np.int64 if name == "rank" else object), sort=True)
    labels = {name: names.astype(np.int64) if name == "rank" else texts(names)}
    return Coded(labels, [code.astype(np.int64)[ranks.place(e.report, e.process)] for e in events])


def device(joined: Attributed, events: Sequence[Events]) -> Coded:
    """Code activities by GPU."""
    devices = Devices.of_report(joined)
    return Coded({"device": texts(devices.names)}, [devices.of[e.activity] for e in events])


def stream(joined: Attributed, events: Sequence[Events]) -> Coded:
    """Code activities by stream: each process, context and GPU has its own."""
    activities, devices = joined.report.activities, Devices.of_report(joined)
    columns = [devices.of, *(frames.ints(activities, c) for c in ("process", "context", "stream"))]
    keys = [[column[e.activity] for column in columns] for e in events]
    found, (gpu, owner, context, number) = Coded.of_keys(keys)
    names = texts(devices.names)[gpu]
    labels = {"device": names, "pid": _pid(owner), "context": context, "stream": number}
    return replace(found, labels=labels)


def geometry(joined: Attributed, events: Sequence[Events]) -> Coded:
    """Code activities by how they were launched: grid, block, registers per thread, bytes of shared memory."""
    *sizes, static, dynamic = (frames.ints(joined.report.activities, c) for c in GEOMETRY)
    known = (static != NONE) | (dynamic != NONE)
    shared_bytes = np.where(known, np.maximum(static, 0) + np.maximum(dynamic, 0), NONE)
    keys = [[column[e.activity] for column in (*sizes, shared_bytes)] for e in events]
    found, (*extents, registers, memory) = Coded.of_keys(keys)
    labels = {"grid": _sizes(extents[:3]), "block": _sizes(extents[3:])}
    return replace(found, labels=labels | {"registers": registers, "shared_bytes": memory})


def _sizes(columns: Sequence[Ints]) -> np.ndarray:
    """Write sizes as ``128x1x1``; '' for what has none."""
    rows: Iterable[list[int]] = np.stack(columns, axis=1).tolist()
    return texts("x".join(map(str, row)) if row[0] != NONE else "" for row in rows)


def _pid(process: Ints) -> Ints:
    return np.where(process == NONE, NONE, process >> 24 & ID_BITS)


def _places_named(
    joined: Attributed, table: str, column: str, report: Ints, ids: Ints
) -> np.ndarray:
    """Return the names of threads or processes, '' where none is known."""
    known = getattr(joined.report, table)
    keys = zip(known["report"].tolist(), known[column].tolist(), strict=True)
    names = dict(zip(keys, known["name"].astype(str).tolist(), strict=True))
    asked = zip(report.tolist(), ids.tolist(), strict=True)
    return texts(names.get(key, "") for key in asked)


def _files(joined: Attributed, report: Ints) -> dict[str, np.ndarray]:
    """Return the column of files where there are several."""
    names = files(joined.report)
    return {"report": texts(names)[report]} if len(names) > 1 else {}


# -- The dimensions that rows are told apart by: what ranges are called and say, where and when work ran


Dimension = Callable[[Attributed, Sequence[Events]], Coded]


def _op(joined: Attributed, events: Sequence[Events]) -> Coded:
    return _by_range(events, "op", joined.op, joined.ops)


def _path(joined: Attributed, events: Sequence[Events]) -> Coded:
    """Code events by the ops around them; a range of no length is never open: its path is its name alone."""
    code, names = joined.node_path
    same, distinct = unique_names(np.arange(len(names) + len(joined.ops)), [*names, *joined.ops])
    of_range = np.append(same[len(names) :], NONE)[joined.op]
    return _by_node(events, "path", same[code], of_range, distinct)


def _module(joined: Attributed, events: Sequence[Events]) -> Coded:
    modules = joined.modules
    place = modules.of[joined.belongs]
    code = np.where(place == NONE, NONE, np.append(modules.path, NONE)[place])
    rows = [e.node for e in events]
    return Coded.of_rows("module", code, modules.paths, rows, none=NO_MODULE)


def _direction(joined: Attributed, events: Sequence[Events]) -> Coded:
    found = joined.directions
    codes = (found.backward.astype(np.int64), found.ranges.astype(np.int64))
    return _by_node(events, "direction", *codes, DIRECTIONS[:2])


def _shape(joined: Attributed, events: Sequence[Events]) -> Coded:
    return _by_range(events, "shape", *input_shapes.shapes(joined), none="")


def _dtype(joined: Attributed, events: Sequence[Events]) -> Coded:
    return _by_range(events, "dtype", *input_shapes.dtypes(joined), none="")


def _api(joined: Attributed, events: Sequence[Events]) -> Coded:
    column = joined.report.launches["name"]
    rows = [e.launch for e in events]
    return Coded.of_rows("api", frames.codes(column), column.cat.categories, rows, none="")


def _kind(joined: Attributed, events: Sequence[Events]) -> Coded:
    return Coded.of_rows("kind", *kinds.kind(joined), [e.activity for e in events])


def _library(joined: Attributed, events: Sequence[Events]) -> Coded:
    return Coded.of_rows("library", *kinds.library(joined), [e.activity for e in events])


def _fused(joined: Attributed, events: Sequence[Events]) -> Coded:
    return Coded.of_rows("fused", *kinds.made_of(joined), [e.activity for e in events])


def _memcpy(joined: Attributed, events: Sequence[Events]) -> Coded:
    return _named(joined, events, "operation", "name", (frames.MEMCPY, frames.MEMSET))


def kernel(names: str) -> Dimension:
    """Return the dimension of kernels by one of their `KERNEL_NAMES`."""
    column = KERNEL_NAMES[names]
    return lambda joined, events: _named(joined, events, "kernel", column, (frames.KERNEL,))


# Of ranges, and all that they launch; of API calls, and what these launch; of activities alone.
OF_RANGES: Mapping[str, Dimension] = {
    "op": _op,
    "path": _path,
    "module": _module,
    "direction": _direction,
    "shape": _shape,
    "dtype": _dtype,
    "step": step,
    "phase": phase,
    "thread": thread,
    "process": process,
    "report": report,
    "rank": rank,
    "host": host,
}
OF_CALLS: Mapping[str, Dimension] = {"api": _api}
OF_ACTIVITIES: Mapping[str, Dimension] = {
    "kernel": kernel("short"),
    "memcpy": _memcpy,
    "kind": _kind,
    "library": _library,
    "fused": _fused,
    "device": device,
    "stream": stream,
    "geometry": geometry,
}


def _by_node(
    events: Sequence[Events], name: str, of_node: Ints, of_range: Ints, names: Collection[str]
) -> Coded:
    """Code events by the piece of a range that they are in; ranges without one by themselves."""
    rows = [
        np.where((e.node == NONE) & (e.range != NONE), len(of_node) + e.range, e.node)
        for e in events
    ]
    return Coded.of_rows(name, np.concatenate((of_node, of_range)), names, rows, none="")


def _by_range(
    events: Sequence[Events], name: str, code: Ints, names: Collection[str], none: str | None = None
) -> Coded:
    """Code events by the range that they are in."""
    return Coded.of_rows(name, code, names, [e.range for e in events], none)


def _named(
    joined: Attributed, events: Sequence[Events], label: str, column: str, kinds: Sequence[str]
) -> Coded:
    """Code activities of some kinds by their name; all others are in no row."""
    activities = joined.report.activities
    code = np.where(frames.is_kind(activities, *kinds), frames.codes(activities[column]), NONE)
    names = texts(activities[column].cat.categories)
    return Coded({label: names}, [code[e.activity] for e in events])
