"""Dimensions of time and place: step, phase, thread, process, report, rank, host, device, stream, geometry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from bridge.analyze.breakdown.coded import Coded
from bridge.analyze.breakdown.events import Events
from bridge.analyze.devices import Devices
from bridge.analyze.groups import texts
from bridge.analyze.names import files
from bridge.analyze.ranks.members import Member, Ranks
from bridge.analyze.tracks import ID_BITS
from bridge.join.attributed import Attributed
from bridge.join.nesting import Nesting
from bridge.join.order import NONE, Ints
from importers import frames
from importers.frames import shared

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
    names = _named(joined, "threads", "thread", of, ids)
    labels = {
        "pid": _pid(owner),
        "tid": np.where(ids == NONE, NONE, ids & ID_BITS),
        "thread": names,
    }
    return replace(found, labels=labels | _files(joined, of))


def process(joined: Attributed, events: Sequence[Events]) -> Coded:
    """Code events by process."""
    found, (of, ids) = Coded.of_keys([(e.report, e.process) for e in events])
    programs = _named(joined, "processes", "process", of, ids)
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


def _named(joined: Attributed, table: str, column: str, report: Ints, ids: Ints) -> np.ndarray:
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
