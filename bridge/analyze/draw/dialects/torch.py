"""Lay out the timeline as PyTorch's profiler (Kineto) does, for tools that read its traces.

Ops are ``cpu_op`` and ``user_annotation``. API calls are on the thread that made them. Processes 0,
1 … are the devices, with a track per stream. Ids connect ops, calls and activities.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from bridge.analyze.cost.memory import MemoryUsage
from bridge.analyze.cost.occupancy import Occupancy
from bridge.analyze.draw.timeline import host
from bridge.analyze.draw.timeline.parts import (
    Arrows,
    Column,
    Json,
    Links,
    ListColumn,
    NameColumn,
    Slices,
    Timeline,
    make_slices,
    name_column,
    times,
)
from bridge.analyze.draw.tracks import Group, Home, Tracks, disjoint_lanes, nested_lanes
from bridge.importers import frames
from bridge.importers.arrays import lookup, scatter
from bridge.importers.capture import Capture
from bridge.importers.range_texts import SEQ, SIZES, numbers, values
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, number_groups, order_by, outer_first_order
from bridge.join.attributed import AttributedCapture
from bridge.join.grammar import parse
from bridge.join.nesting import inherited

# -- Ids that connect ops, API calls and activities


EXTERNAL = "External id"  # of an op, from 1; 0 for no op


def enclosing_op_ids(attributed: AttributedCapture, annotated: Flags) -> Ints:
    """Return the external id of the innermost op around each API call, not of annotations."""
    attribution, nesting = attributed.attribution, attributed.attribution.nesting
    node = nesting.innermost(attribution.stack, attributed.capture.launches.start)
    op_range = np.where(annotated[nesting.range], NONE, nesting.range)
    return lookup(inherited(nesting, op_range), node) + 1


def call_correlations(attributed: AttributedCapture) -> Ints:
    """Return the correlation of each API call.

    Calls are renumbered if the capture has several processes, whose numbers may be equal.
    """
    correlation = attributed.capture.launches.correlation
    return correlation if _is_single_process(attributed) else np.arange(1, len(correlation) + 1)


def activity_ids(attributed: AttributedCapture, around: Ints) -> tuple[Ints, Ints]:
    """Return the external id and the correlation of each activity, which are those of its call.

    They are 0 and -1 without a call. ``around`` is the external id of each call.
    """
    launch = attributed.attribution.launch
    correlation = lookup(call_correlations(attributed), launch)
    if _is_single_process(attributed):
        correlation = attributed.capture.activities.correlation
    return lookup(around, launch, 0), correlation


def _is_single_process(attributed: AttributedCapture) -> bool:
    tables = (attributed.capture.launches, attributed.capture.activities)
    columns = (np.concatenate([t[c] for t in tables]) for c in ("report", "process"))
    return len(number_groups(*columns)[1]) <= 1


# -- Activities


KINDS = {"kernel": "kernel", "memcpy": "gpu_memcpy", "memset": "gpu_memset", "graph": "kernel"}
DIGITS = 3
SPACES = {"Host": "H", "Device": "D", "Array": "A", "Peer": "P"}
MEMORY = {"device_static": "Device Static", "managed_static": "Managed Static"}
OPERATION = "[CUDA memcpy "


@record
class DeviceWork:
    """All activities, and the same by kind, each with its own arguments."""

    all: Slices
    kinds: list[Slices]


def device_work(attributed: AttributedCapture, tracks: Tracks, around: Ints) -> DeviceWork:
    """Draw all activities on their streams; ``around`` is the external id of each call."""
    table = attributed.capture.activities
    stream = tracks.streams(table)
    start, duration = times(table)
    track = tracks.lane(stream, disjoint_lanes(stream, start, start + duration), "stream")
    all_activities = make_slices(
        "kernel",
        np.arange(len(table)),
        track=track,
        times=(start, duration),
        name=activity_names(table),
    )
    common = _common_args(attributed, around)
    args_of_kind = {
        "kernel": _kernel_args(attributed),
        "memcpy": _copy_args(attributed),
        "memset": _copy_args(attributed),
    }
    return DeviceWork(
        all_activities,
        [
            replace(
                all_activities.only(table.kind.among(name)),
                kind=kind,
                args={**common, **args_of_kind.get(name, {})},
            )
            for name, kind in KINDS.items()
        ],
    )


def _common_args(attributed: AttributedCapture, around: Ints) -> dict[str, Column]:
    table = attributed.capture.activities
    external, correlation = activity_ids(attributed, around)
    places: Mapping[str, Column] = {name: table[name] for name in ("device", "context", "stream")}
    return {EXTERNAL: external, **places, "correlation": correlation}


def _kernel_args(attributed: AttributedCapture) -> dict[str, Column]:
    table, occupancy = attributed.capture.activities, Occupancy.of(attributed)
    grid, block = (
        ListColumn(tuple(table[f"{part}_{axis}"] for axis in "xyz")) for part in ("grid", "block")
    )
    shared = table.shared_static, table.shared_dynamic
    return {
        "queued": np.zeros(len(table), np.int64),
        "registers per thread": table.registers,
        "shared memory": sum(np.maximum(one, 0) for one in shared),  # type: ignore[dict-item]
        "blocks per SM": Json.reals(occupancy.blocks_per_sm, DIGITS),
        "warps per SM": Json.reals(occupancy.warps_per_sm, DIGITS),
        "grid": grid,
        "block": block,
        "est. achieved occupancy %": Json.reals(occupancy.percent, 0),
    }


def _copy_args(attributed: AttributedCapture) -> dict[str, Column]:
    count = attributed.capture.activities.bytes
    is_known = (count >= 0) & (attributed.duration > 0)
    bandwidth = np.divide(
        count, attributed.duration, out=np.full(len(count), np.nan), where=is_known
    )
    return {"bytes": count, "memory bandwidth (GB/s)": Json.reals(bandwidth, DIGITS)}


def activity_names(table: frames.Activities) -> NameColumn:
    """Return full names of kernels, and PyTorch's names of memcpys and memsets."""
    full = name_column(table.full_name)
    is_copy = ~table.kind.among(frames.KERNEL, frames.GRAPH)
    source, target = table.source_kind, table.target_kind
    code, rows = number_groups(table.name.codes, source, target)
    names = list(map(_copy_name, table.name[rows], source[rows].tolist(), target[rows].tolist()))
    return NameColumn(np.where(is_copy, code + len(full.names), full.codes), [*full.names, *names])


def _copy_name(name: str, source: int, target: int) -> str:
    """Return a name such as ``Memcpy HtoD (Pageable -> Device)`` or ``Memset (Device)``."""
    if not name.startswith(OPERATION):
        return f"Memset ({_memory_kind(target)})" if name.startswith("[CUDA memset") else name
    direction = name.removeprefix(OPERATION).rstrip("]").removeprefix("Unified ")
    short = "to".join(SPACES.get(part, part) for part in direction.split("-to-"))
    return f"Memcpy {short} ({_memory_kind(source)} -> {_memory_kind(target)})"


def _memory_kind(kind: int) -> str:
    name = frames.MEMORY_KINDS[kind] if 0 <= kind < len(frames.MEMORY_KINDS) else "unknown"
    return MEMORY.get(name, name.capitalize())


# -- Allocations and releases: instants ``[memory]``


CATEGORY, NAME = "cpu_instant_event", "[memory]"
CPU, CUDA = 0, 1  # types of devices
HOST = frozenset(frames.MEMORY_KINDS.index(kind) for kind in ("pageable", "pinned"))


def memory_instants(attributed: AttributedCapture, tracks: Tracks) -> tuple[Slices, ...]:
    """Draw allocations and releases as instants; the bytes of a release are negative.

    Totals are per type and number of the device, over all kinds of memory.
    """
    if not len(attributed.capture.memory):
        return ()
    usage = MemoryUsage.of(attributed)
    events, table = usage.events, attributed.capture.memory
    report, process, thread, device, address = (
        table[c][events.row] for c in ("report", "process", "thread", "device", "address")
    )
    kind = usage.kind_of(usage.group)
    device_type = np.where(np.isin(kind, [*HOST]), CPU, CUDA)
    device_number = np.where(device_type == CPU, NONE, device)
    owner, _ = number_groups(report, process, device_type, device_number)
    home = tracks.host(report, np.where(thread == NONE, process, thread))
    track = tracks.lane(home, np.zeros(len(events), np.int64), "ops")
    args: dict[str, Column] = {
        "Bytes": usage.change,
        "Addr": address,
        "Device Type": device_type,
        "Device Id": _integer_json(device_number),
        "Total Allocated": _summed_levels(owner, usage.group, usage.used, usage.base),
        "Total Reserved": _reserved(usage, owner),
    }
    spans = events.time, np.zeros_like(events.time)
    event_name = NameColumn(np.zeros(len(events), np.int64), [NAME])
    return (
        make_slices(
            CATEGORY, np.arange(len(events)), track=track, times=spans, name=event_name, args=args
        ),
    )


def _integer_json(values: Ints) -> Json:
    """Return integers as JSON, so that -1 is written, which as an integer means no value."""
    distinct, code = np.unique(values, return_inverse=True)
    return Json(code.astype(np.int64), [str(value) for value in distinct.tolist()])


def _reserved(usage: MemoryUsage, owner: Ints) -> Json:
    """Return the reserved bytes, 0 where no pool reports them, as PyTorch does on the host."""
    reserved = np.where(usage.reserved == NONE, 0, usage.reserved)
    return _integer_json(_summed_levels(owner, usage.group, reserved, np.zeros_like(usage.base)))


def _summed_levels(owner: Ints, group: Ints, level: Ints, base: Ints) -> Ints:
    """Return the sum of the levels of all groups of an owner after each event, from ``base`` on."""
    change = np.empty(len(level), np.int64)
    order = order_by(group, np.arange(len(group)))
    owner_or_group = group[order]
    first = np.append(True, owner_or_group[1:] != owner_or_group[:-1])[: len(owner_or_group)]
    previous = np.append(0, level[order][:-1])[: len(owner_or_group)]
    change[order] = level[order] - np.where(first, base[owner_or_group], previous)
    order = order_by(owner, np.arange(len(owner)))
    owner_or_group = owner[order]
    first = np.flatnonzero(
        np.append(True, owner_or_group[1:] != owner_or_group[:-1])[: len(owner_or_group)]
    )
    total = np.cumsum(change[order])
    pairs = np.unique(np.stack((owner, group)), axis=1)
    initial = np.zeros(int(owner.max(initial=-1)) + 1, np.int64)
    np.add.at(initial, pairs[0], base[pairs[1]])
    earlier = np.repeat(
        (total - change[order])[first], np.diff(np.append(first, len(owner_or_group)))
    )
    result = np.empty(len(level), np.int64)
    result[order] = total - earlier + initial[owner_or_group]
    return result


# -- The timeline


OPERATORS = ("operator", "communication")
DRIVER = re.compile(r"cu[A-Z]")
DEVICE_OFFSET = 1_000  # between the devices of two processes


class KinetoTracks(Tracks):
    """Tracks as in Kineto: devices are processes 0, 1 …, streams are threads by number.

    With ``together`` the devices of a second process are 1000, 1001 …, so that one file can hold
    both.
    """

    def __init__(self, capture: Capture, *, together: bool) -> None:
        super().__init__(capture)
        self.together = together

    def _stream(self, report: int, process: int, device: int, context: int, stream: int) -> int:  # noqa: ARG002 (the interface of `Tracks`)
        self.homes.append(Home(self._device(report, process, device), stream, f"stream {stream}"))
        return len(self.homes) - 1

    def _process(self, report: int, process: int) -> Group:
        """Return the group of a process, renumbered if its pid could be a device.

        The first process of a container has such a pid.
        """
        group = super()._process(report, process)
        if group.pid < DEVICE_OFFSET:
            group = replace(group, pid=next(self.numbers))
            self.processes[report, process] = group
        return group

    def _device(self, report: int, process: int, device: int) -> Group:
        key = (report, process, device)
        if key not in self.devices:
            process_group = self._process(report, process)
            others = len({k[:2] for k in self.devices} - {key[:2]}) if self.together else 0
            pid, name = device + DEVICE_OFFSET * others, f"{process_group.name}, GPU {device}"
            self.devices[key] = Group(
                pid=pid,
                name=name,
                order=process_group.order + 1,
                report=report,
                process=process,
                device=device,
            )
        return self.devices[key]


def torch(attributed: AttributedCapture, *, together: bool = True) -> Timeline:
    """Return the timeline of a capture, for one file (``together``) or for a file per process."""
    tracks = KinetoTracks(attributed.capture, together=together)
    name, annotated = _names(attributed)
    around = enclosing_op_ids(attributed, annotated)
    ops, calls = _host(attributed, tracks, name, around)
    work = device_work(attributed, tracks, around)
    arrows = Arrows.to_launched(attributed.attribution.launch, ops, calls, work.all)
    phases, (marks, counters) = host.phases(attributed, tracks), host.marks(attributed, tracks)
    slices = [*_by_annotation(ops, annotated), *_by_api_level(calls), *work.kinds]
    memory = memory_instants(attributed, tracks)
    return Timeline(
        base=attributed.capture.began,
        tracks=tracks.made,
        slices=slices,
        phases=phases,
        marks=marks,
        counters=counters,
        arrows=arrows,
        links=(_backward_links(attributed, ops),),
        instants=memory,
    )


def _host(
    attributed: AttributedCapture, tracks: Tracks, name: NameColumn, around: Ints
) -> tuple[Slices, Slices]:
    """Draw ranges and calls nested on the threads that made them."""
    ranges, launches = attributed.capture.ranges, attributed.capture.launches
    rows = np.flatnonzero(ranges.kind.among(frames.PUSH_POP))
    range_times, call_times = times(ranges), times(launches)
    report, thread, start, duration = (
        np.concatenate((own[rows], calls))
        for own, calls in zip(
            (ranges.report, ranges.thread, *range_times),
            (launches.report, launches.thread, *call_times),
            strict=True,
        )
    )
    home = tracks.host(report, thread)
    order = outer_first_order(home, start, start + duration)
    lane = np.empty(len(order), np.int64)
    lane[order] = nested_lanes(home[order], start[order], (start + duration)[order])
    track = tracks.lane(home, lane, "ops")
    range_track = scatter(track[: len(rows)], rows, len(ranges))
    ops = replace(
        make_slices(
            "cpu_op",
            rows,
            track=range_track,
            times=range_times,
            name=name,
            args=_op_args(attributed),
        ),
        role="op",
    )
    args = {EXTERNAL: around, "correlation": call_correlations(attributed)}
    call_rows = np.arange(len(launches))
    return ops, make_slices(
        "api",
        call_rows,
        track=track[len(rows) :],
        times=call_times,
        name=name_column(launches.name),
        args=args,
    )


def _names(attributed: AttributedCapture) -> tuple[NameColumn, Flags]:
    """Return the names of ranges, with the profiler's names of steps, and which are annotations.

    Annotations are ranges that are no operators of a framework; in a capture without operators only
    the steps are.
    """
    name = name_column(attributed.capture.ranges.name)
    is_operator = attributed.capture.ranges.name.matching(
        lambda text: parse(text).kind in OPERATORS
    )
    annotated = ~is_operator if is_operator.any() else is_operator
    steps = attributed.steps
    annotated[steps.range] = True
    numbers_of, code = np.unique(steps.number, return_inverse=True)
    codes = name.codes.astype(np.int64)
    codes[steps.range] = len(name.names) + code
    step_names = [f"ProfilerStep#{number}" for number in numbers_of.tolist()]
    return NameColumn(codes, [*name.names, *step_names]), annotated


def _op_args(attributed: AttributedCapture) -> dict[str, Column]:
    ranges, texts = attributed.capture.ranges, attributed.capture.texts
    text = ranges.text
    args: dict[str, Column] = {
        EXTERNAL: np.arange(1, len(ranges) + 1),
        "Sequence number": numbers(texts, SEQ)[text],
    }
    code, sizes = values(texts, SIZES).factorize()
    shapes = _json_lists(code[text], sizes)
    return args | {
        "Input Dims": shapes,
        **_input_args(ranges.json.texts, ranges.json.codes),
    }


# Arguments of ops, by the names of what recordings and traces tell of the inputs of a call.
INPUT_ARGS = {
    "shapes": "Input Dims",
    "dtypes": "Input type",
    "strides": "Input Strides",
    "inputs": "Concrete Inputs",
}


def _input_args(details: Iterable[str], codes: Ints) -> dict[str, Column]:
    """Return what is known of the inputs, from the details of calls."""
    result = [_details(text) for text in details]
    return {
        name: Json(np.where(has[codes], codes, NONE), [json.dumps(one.get(key)) for one in result])
        for key, name in INPUT_ARGS.items()
        if any(one.get(key) for one in result)
        for has in (np.array([*(bool(one.get(key)) for one in result), False]),)
    }


def _details(text: str) -> dict[str, list[object]]:
    try:
        result = json.loads(text) if text.startswith("{") else {}
    except ValueError:
        return {}
    sizes = {key: [one or [] for one in result.get(key) or []] for key in ("shapes", "strides")}
    return {**sizes, **{key: result.get(key) or [] for key in ("dtypes", "inputs")}}


def _json_lists(codes: Ints, texts: list[str]) -> Json:
    """Return a column of the texts that are JSON lists."""
    return Json(np.where(np.array([*map(_is_json, texts), False])[codes], codes, NONE), list(texts))


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), list)
    except (ValueError, RecursionError):
        return False


def _by_annotation(ops: Slices, annotated: Flags) -> list[Slices]:
    return [ops.only(~annotated), replace(ops.only(annotated), kind="user_annotation")]


def _by_api_level(calls: Slices) -> list[Slices]:
    """Separate calls of the driver API from those of the runtime API."""
    driver = np.array([*(bool(DRIVER.match(name)) for name in calls.name.names), False])
    is_driver = driver[calls.name.codes]
    parts = (("cuda_runtime", ~is_driver), ("cuda_driver", is_driver))
    return [replace(calls.only(mask), kind=kind) for kind, mask in parts]


def _backward_links(attributed: AttributedCapture, ops: Slices) -> Links:
    """Return links from forward ranges to the outermost backward ranges that refer to them."""
    forward, nesting = attributed.directions.forward, attributed.attribution.nesting
    forward_of_parent = np.where(nesting.parent == NONE, NONE, forward[nesting.parent])
    nodes = np.flatnonzero((forward != NONE) & (forward != forward_of_parent))
    return Links("fwdbwd", forward[nodes], nesting.range[nodes], ops)
