"""The timeline as PyTorch's profiler (Kineto) draws it, for the tools that read its traces.

Ops are ``cpu_op`` and ``user_annotation``, API calls lie on the thread that made them, device work is on the
streams of process 0, 1 …, which are the devices, and ids hold them together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from bridge.analyze.memory import Held
from bridge.analyze.occupancy import Occupancy
from bridge.analyze.timeline import host
from bridge.analyze.timeline.parts import (
    Arrows,
    Column,
    Json,
    Links,
    Listed,
    Named,
    Slices,
    Timeline,
    drawn,
    named,
    times,
)
from bridge.analyze.tracks import Group, Home, Tracks, apart, nested
from bridge.join.arrays import NONE, Flags, Ints, by, number, outer_first
from bridge.join.attributed import Attributed
from bridge.join.autograd import inherited
from bridge.join.grammar import parse
from importers import frames
from importers.percall import SEQ, SIZES, numbers, values
from importers.report import Report

# -- The numbers by which PyTorch's traces hold an op, its API calls and their work on devices together


EXTERNAL = "External id"  # of an op, from 1; what belongs to none has 0


def around_calls(joined: Attributed, annotated: Flags) -> Ints:
    """Return the external id of the innermost op around each API call; annotations are none."""
    found, nesting = joined.attribution, joined.attribution.nesting
    node = nesting.innermost(found.stack, frames.ints(joined.report.launches, "start"))
    own = np.where(annotated[nesting.range], NONE, nesting.range)
    return np.append(inherited(nesting, own), NONE)[node] + 1


def of_calls(joined: Attributed) -> Ints:
    """Return the correlation of each API call: its own, or a number of ours where processes share numbers."""
    own = frames.ints(joined.report.launches, "correlation")
    return own if _of_one_process(joined) else np.arange(1, len(own) + 1)


def of_activities(joined: Attributed, around: Ints) -> tuple[Ints, Ints]:
    """Return the external id and the correlation of each activity, those of its call; 0 and -1 without.

    ``around`` is the external id of each call.
    """
    launch = joined.attribution.launch
    correlation = np.append(of_calls(joined), NONE)[launch]
    if _of_one_process(joined):
        correlation = frames.ints(joined.report.activities, "correlation")
    return np.append(around, 0)[launch], correlation


def _of_one_process(joined: Attributed) -> bool:
    tables = (joined.report.launches, joined.report.activities)
    columns = (np.concatenate([frames.ints(t, c) for t in tables]) for c in ("report", "process"))
    return len(number(*columns)[1]) <= 1


# -- Work on devices as PyTorch's traces have it: kernels with their geometry, memcpys and memsets by their names there


KINDS = {"kernel": "kernel", "memcpy": "gpu_memcpy", "memset": "gpu_memset", "graph": "kernel"}
DIGITS = 3
SPACES = {"Host": "H", "Device": "D", "Array": "A", "Peer": "P"}
MEMORY = {"device_static": "Device Static", "managed_static": "Managed Static"}
OPERATION = "[CUDA memcpy "


@dataclass(frozen=True)
class Work:
    """All activities, and the same parted by kind, each with its own arguments."""

    all: Slices
    kinds: list[Slices]


def device_work(joined: Attributed, tracks: Tracks, around: Ints) -> Work:
    """Draw all activities on their streams; ``around`` is the external id of each call."""
    table = joined.report.activities
    stream = tracks.streams(table)
    start, duration = times(table)
    track = tracks.lane(stream, apart(stream, start, start + duration), "stream")
    everything = drawn("kernel", np.arange(len(table)), track, (start, duration), names_of(table))
    common = _common(joined, around)
    own = {
        "kernel": _of_kernels(joined),
        "memcpy": _of_copies(joined),
        "memset": _of_copies(joined),
    }
    return Work(
        everything,
        [
            replace(
                everything.only(frames.is_kind(table, word)),
                kind=kind,
                args={**common, **own.get(word, {})},
            )
            for word, kind in KINDS.items()
        ],
    )


def _common(joined: Attributed, around: Ints) -> dict[str, Column]:
    table = joined.report.activities
    external, correlation = of_activities(joined, around)
    places: Mapping[str, Column] = {
        name: frames.ints(table, name) for name in ("device", "context", "stream")
    }
    return {EXTERNAL: external, **places, "correlation": correlation}


def _of_kernels(joined: Attributed) -> dict[str, Column]:
    table, found = joined.report.activities, Occupancy.of(joined)
    grid, block = (
        Listed(tuple(frames.ints(table, f"{what}_{axis}") for axis in "xyz"))
        for what in ("grid", "block")
    )
    shared = (frames.ints(table, c) for c in ("shared_static", "shared_dynamic"))
    return {
        "queued": np.zeros(len(table), np.int64),
        "registers per thread": frames.ints(table, "registers"),
        "shared memory": sum(np.maximum(one, 0) for one in shared),  # type: ignore[dict-item]
        "blocks per SM": Json.reals(found.blocks_per_sm, DIGITS),
        "warps per SM": Json.reals(found.warps_per_sm, DIGITS),
        "grid": grid,
        "block": block,
        "est. achieved occupancy %": Json.reals(found.percent, 0),
    }


def _of_copies(joined: Attributed) -> dict[str, Column]:
    count = frames.ints(joined.report.activities, "bytes")
    there = (count >= 0) & (joined.duration > 0)
    speed = np.divide(count, joined.duration, out=np.full(len(count), np.nan), where=there)
    return {"bytes": count, "memory bandwidth (GB/s)": Json.reals(speed, DIGITS)}


def names_of(table: pd.DataFrame) -> Named:
    """Return whole names of kernels, and of memcpys and memsets what PyTorch calls them."""
    full = named(table["full_name"])
    moves = ~frames.is_kind(table, frames.KERNEL, frames.GRAPH)
    keys = ("source_kind", "target_kind")
    code, rows = number(frames.codes(table["name"]), *(frames.ints(table, c) for c in keys))
    distinct = table.iloc[rows]
    names = list(map(_of_move, *(distinct[column].tolist() for column in ("name", *keys))))
    return Named(np.where(moves, code + len(full.names), full.codes), [*full.names, *names])


def _of_move(name: str, source: int, target: int) -> str:
    """Return ``Memcpy HtoD (Pageable -> Device)``, ``Memset (Device)``."""
    if not name.startswith(OPERATION):
        return f"Memset ({_memory(target)})" if name.startswith("[CUDA memset") else name
    way = name.removeprefix(OPERATION).rstrip("]").removeprefix("Unified ")
    short = "to".join(SPACES.get(part, part) for part in way.split("-to-"))
    return f"Memcpy {short} ({_memory(source)} -> {_memory(target)})"


def _memory(kind: int) -> str:
    name = frames.MEMORY_KINDS[kind] if 0 <= kind < len(frames.MEMORY_KINDS) else "unknown"
    return MEMORY.get(name, name.capitalize())


# -- Allocations and releases as PyTorch's traces have them: instants ``[memory]`` on the threads that made them


CATEGORY, NAME = "cpu_instant_event", "[memory]"
CPU, CUDA = 0, 1  # types of devices
HOST = frozenset(frames.MEMORY_KINDS.index(kind) for kind in ("pageable", "pinned"))


def instants(joined: Attributed, tracks: Tracks) -> tuple[Slices, ...]:
    """Draw the events of memory; bytes of a release are negative, as they are there.

    Totals are those of a type of device and its number, of all kinds of memory together.
    """
    if not len(joined.report.memory):
        return ()
    held = Held.of(joined)
    events, table = held.events, joined.report.memory
    report, process, thread, device, address = (
        frames.ints(table, c)[events.row]
        for c in ("report", "process", "thread", "device", "address")
    )
    kind = held.kind_of(held.group)
    of = np.where(np.isin(kind, [*HOST]), CPU, CUDA)
    number_of = np.where(of == CPU, NONE, device)
    owner, _ = number(report, process, of, number_of)
    home = tracks.host(report, np.where(thread == NONE, process, thread))
    track = tracks.lane(home, np.zeros(len(events), np.int64), "ops")
    args: dict[str, Column] = {
        "Bytes": held.change,
        "Addr": address,
        "Device Type": of,
        "Device Id": _texts(number_of),
        "Total Allocated": _together(owner, held.group, held.used, held.base),
        "Total Reserved": _reserved(held, owner),
    }
    spans = events.time, np.zeros_like(events.time)
    named = Named(np.zeros(len(events), np.int64), [NAME])
    return (drawn(CATEGORY, np.arange(len(events)), track, spans, named, args),)


def _texts(values: Ints) -> Json:
    """Return integers as JSON, -1 among them, which elsewhere is none."""
    distinct, code = np.unique(values, return_inverse=True)
    return Json(code.astype(np.int64), [str(value) for value in distinct.tolist()])


def _reserved(held: Held, owner: Ints) -> Json:
    """Return what was reserved; where no pool says so 0, as PyTorch has it on the host."""
    known = np.where(held.reserved == NONE, 0, held.reserved)
    return _texts(_together(owner, held.group, known, np.zeros_like(held.base)))


def _together(owner: Ints, group: Ints, level: Ints, base: Ints) -> Ints:
    """Return the sum of the levels of all groups of an owner after each event, from what each has at first."""
    change = np.empty(len(level), np.int64)
    order = by(group, np.arange(len(group)))
    own = group[order]
    first = np.append(True, own[1:] != own[:-1])[: len(own)]
    before = np.append(0, level[order][:-1])[: len(own)]
    change[order] = level[order] - np.where(first, base[own], before)
    order = by(owner, np.arange(len(owner)))
    own = owner[order]
    first = np.flatnonzero(np.append(True, own[1:] != own[:-1])[: len(own)])
    total = np.cumsum(change[order])
    pairs = np.unique(np.stack((owner, group)), axis=1)
    at_first = np.zeros(int(owner.max(initial=-1)) + 1, np.int64)
    np.add.at(at_first, pairs[0], base[pairs[1]])
    earlier = np.repeat((total - change[order])[first], np.diff(np.append(first, len(own))))
    found = np.empty(len(level), np.int64)
    found[order] = total - earlier + at_first[own]
    return found


# -- The timeline as PyTorch's profiler (Kineto) draws it, for the tools that read its traces


OPERATORS = ("operator", "communication")
DRIVER = re.compile(r"cu[A-Z]")
DEVICES_APART = 1_000  # between the numbers of the devices of two processes


class KinetoTracks(Tracks):
    """Devices are processes 0, 1 …, and streams their threads, by their own numbers.

    With ``together`` those of a second process are 1000, 1001 …, for one file to hold both.
    """

    def __init__(self, report: Report, *, together: bool) -> None:
        super().__init__(report)
        self.together = together

    def _stream(self, report: int, process: int, device: int, context: int, stream: int) -> int:  # noqa: ARG002 (the interface of `Tracks`)
        self.homes.append(Home(self._device(report, process, device), stream, f"stream {stream}"))
        return len(self.homes) - 1

    def _process(self, report: int, process: int) -> Group:
        """A process whose own number may be a device's, as the first of a container has, gets another."""
        found = super()._process(report, process)
        if found.pid < DEVICES_APART:
            found = replace(found, pid=next(self.numbers))
            self.processes[report, process] = found
        return found

    def _device(self, report: int, process: int, device: int) -> Group:
        key = (report, process, device)
        if key not in self.devices:
            of = self._process(report, process)
            others = len({k[:2] for k in self.devices} - {key[:2]}) if self.together else 0
            pid, name = device + DEVICES_APART * others, f"{of.name}, GPU {device}"
            self.devices[key] = Group(pid, name, of.order + 1, report, process, device)
        return self.devices[key]


def torch(joined: Attributed, *, together: bool = True) -> Timeline:
    """Lay out a report, its processes for one file ``together`` or for one file each."""
    tracks = KinetoTracks(joined.report, together=together)
    name, annotated = _names(joined)
    around = around_calls(joined, annotated)
    ops, calls = _host(joined, tracks, name, around)
    work = device_work(joined, tracks, around)
    arrows = Arrows.to_launched(joined.attribution.launch, ops, calls, work.all)
    phases, (marks, counters) = host.phases(joined, tracks), host.marks(joined, tracks)
    slices = [*_parted(ops, annotated), *_by_api(calls), *work.kinds]
    memory = instants(joined, tracks)
    return Timeline(
        base=joined.report.began,
        tracks=tracks.made,
        slices=slices,
        phases=phases,
        marks=marks,
        counters=counters,
        arrows=arrows,
        links=(_autograd(joined, ops),),
        instants=memory,
    )


def _host(joined: Attributed, tracks: Tracks, name: Named, around: Ints) -> tuple[Slices, Slices]:
    """Draw ranges and calls on the threads that made them, nested as one."""
    ranges, launches = joined.report.ranges, joined.report.launches
    rows = np.flatnonzero(frames.is_kind(ranges, frames.PUSH_POP))
    ran, called = times(ranges), times(launches)
    report, thread, start, duration = (
        np.concatenate((own[rows], calls))
        for own, calls in zip(
            (*(frames.ints(ranges, c) for c in ("report", "thread")), *ran),
            (*(frames.ints(launches, c) for c in ("report", "thread")), *called),
            strict=True,
        )
    )
    home = tracks.host(report, thread)
    order = outer_first(home, start, start + duration)
    lane = np.empty(len(order), np.int64)
    lane[order] = nested(home[order], start[order], (start + duration)[order])
    track = tracks.lane(home, lane, "ops")
    of_range = np.full(len(ranges), NONE)
    of_range[rows] = track[: len(rows)]
    ops = replace(drawn("cpu_op", rows, of_range, ran, name, _op_args(joined)), role="op")
    args = {EXTERNAL: around, "correlation": of_calls(joined)}
    every = np.arange(len(launches))
    return ops, drawn("api", every, track[len(rows) :], called, named(launches["name"]), args)


def _names(joined: Attributed) -> tuple[Named, Flags]:
    """Return the names of ranges, steps called as the profiler does, and which ranges are annotations.

    What is no operator of a framework is one; in a report without operators only the steps are.
    """
    name = named(joined.report.ranges["name"])
    is_operator = [parse(text).kind in OPERATORS for text in name.names]
    operator = np.array([*is_operator, False])[name.codes]
    annotated = ~operator if operator.any() else np.zeros(len(operator), bool)
    steps = joined.steps
    annotated[steps.range] = True
    numbers_of, code = np.unique(steps.number, return_inverse=True)
    codes = name.codes.copy()
    codes[steps.range] = len(name.names) + code
    called = [f"ProfilerStep#{number}" for number in numbers_of.tolist()]
    return Named(codes, [*name.names, *called]), annotated


def _op_args(joined: Attributed) -> dict[str, Column]:
    ranges, texts = joined.report.ranges, joined.report.texts
    text = frames.ints(ranges, "text")
    args: dict[str, Column] = {
        EXTERNAL: np.arange(1, len(ranges) + 1),
        "Sequence number": numbers(texts, SEQ)[text],
    }
    code, sizes = values(texts, SIZES).factorize()
    shapes = _valid(code[text], sizes)
    return args | {
        "Input Dims": shapes,
        **_described(ranges["json"].cat.categories, frames.codes(ranges["json"])),
    }


def _described(said: Iterable[str], codes: Ints) -> dict[str, Column]:
    """Return shapes and types as the details of calls have them."""
    found = [_details(text) for text in said]
    if not any(found):
        return {}
    keys = {"Input Dims": "shapes", "Input type": "dtypes"}
    return {
        name: Json(np.where(has[codes], codes, NONE), [json.dumps(one.get(key)) for one in found])
        for name, key in keys.items()
        for has in (np.array([*(bool(one.get(key)) for one in found), False]),)
    }


def _details(text: str) -> dict[str, list[object]]:
    try:
        found = json.loads(text) if text.startswith("{") else {}
    except ValueError:
        return {}
    shapes = [shape or [] for shape in found.get("shapes") or []]
    return {"shapes": shapes, "dtypes": found.get("dtypes") or []}


def _valid(codes: Ints, texts: list[str]) -> Json:
    """Return a column of JSON of the texts that are such."""
    return Json(np.where(np.array([*map(_is_json, texts), False])[codes], codes, NONE), list(texts))


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), list)
    except (ValueError, RecursionError):
        return False


def _parted(ops: Slices, annotated: Flags) -> list[Slices]:
    return [ops.only(~annotated), replace(ops.only(annotated), kind="user_annotation")]


def _by_api(calls: Slices) -> list[Slices]:
    """Part the calls of the driver from those of the runtime."""
    driver = np.array([*(bool(DRIVER.match(name)) for name in calls.name.names), False])
    of_driver = driver[calls.name.codes]
    parts = (("cuda_runtime", ~of_driver), ("cuda_driver", of_driver))
    return [replace(calls.only(of), kind=kind) for kind, of in parts]


def _autograd(joined: Attributed, ops: Slices) -> Links:
    """Lead from forward ranges to the outermost ranges of the backward pass that go back to them."""
    forward, nesting = joined.directions.forward, joined.attribution.nesting
    above = np.where(nesting.parent == NONE, NONE, forward[nesting.parent])
    nodes = np.flatnonzero((forward != NONE) & (forward != above))
    return Links("fwdbwd", forward[nodes], nesting.range[nodes], ops)
