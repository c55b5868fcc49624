"""The timeline as PyTorch's profiler (Kineto) draws it, for the tools that read its traces.

Ops are ``cpu_op`` and ``user_annotation``, API calls lie on the thread that made them, device work is on the
streams of process 0, 1 …, which are the devices, and ids hold them together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from bridge.analyze import lanes
from bridge.analyze.dialects.torch_device import device_work
from bridge.analyze.dialects.torch_ids import EXTERNAL, around_calls, of_calls
from bridge.analyze.dialects.torch_memory import instants
from bridge.analyze.timeline import host
from bridge.analyze.timeline.parts import (
    Arrows,
    Column,
    Json,
    Links,
    Named,
    Slices,
    Timeline,
    drawn,
    named,
    times,
)
from bridge.analyze.tracks import Group, Home, Tracks
from bridge.join.attributed import Attributed
from bridge.join.grammar import parse
from bridge.join.order import NONE, Flags, Ints, outer_first
from importers import frames
from importers.percall import SEQ, SIZES, numbers, values
from importers.report import Report

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

    def _stream(self, report: int, process: int, device: int, context: int, stream: int) -> int:  # noqa: ARG002
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
    lane[order] = lanes.nested(home[order], start[order], (start + duration)[order])
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
