"""Values of the dimensions of tables (op, shape, step, thread …): a code per event, and names of codes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bridge.analyze.core import kinds
from bridge.analyze.core.call_details import (
    call_stacks,
    input_dtypes,
    input_shapes,
    input_strides,
    overloads,
)
from bridge.analyze.core.catalog.views import GEOMETRY
from bridge.analyze.core.devices import Devices
from bridge.analyze.core.groups import texts
from bridge.analyze.core.names import activity_names, file_names
from bridge.analyze.core.source_lines import NO_CALL, REASONS, activity_lines, source_lines
from bridge.analyze.run.ranks.members import Member, Ranks
from bridge.analyze.tables.batches import nodes_of_launch, phase_of_batches
from bridge.analyze.tables.modules import NO_MODULE
from bridge.importers import frames
from bridge.importers.arrays import factorize, lookup, scatter
from bridge.importers.frames import Names, key_codes
from bridge.importers.records import record
from bridge.importers.texts import unique_names
from bridge.join.arrays import NONE, Integers, Ints, number_groups, repeated
from bridge.join.attributed import DIRECTIONS, AttributedCapture
from bridge.join.batches import PHASES as OF_BATCHES
from bridge.join.nesting import Nesting, inherited

# -- Events: ranges, activities or API calls


@record
class Events:
    """Ranges, activities or API calls: columns with a row per event.

    Attributes:
        range: the innermost range that the event is in (for a range, the range itself), NONE for
            none.
        node: that range's node of the nesting, NONE for none; a range of no length has no node.
        launch: the API call of the event, NONE for none.
        activity: the row of the activity, NONE for other events.
        column: returns the report, process, thread or start of the events; computed only when
            called.

    """

    range: Ints
    node: Ints
    launch: Ints
    activity: Ints
    column: Callable[[str], Ints]

    @property
    def report(self) -> Ints:
        return self.column("report")

    @property
    def process(self) -> Ints:
        return self.column("process")

    @property
    def thread(self) -> Ints:
        """The thread that each event was called on, NONE if unknown."""
        return self.column("thread")

    @property
    def time(self) -> Ints:
        """The start of each event on the host; of an activity without an API call, its own."""
        return self.column("start")


def range_events(attributed: AttributedCapture, rows: Ints) -> Events:
    """Return the ranges of these rows as events."""
    ranges = attributed.capture.ranges
    node = attributed.attribution.nesting.first_nodes(len(ranges))[rows]
    none = repeated(NONE, len(rows))
    return Events(
        range=rows, node=node, launch=none, activity=none, column=lambda c: ranges[c][rows]
    )


def node_events(attributed: AttributedCapture) -> Events:
    """Return the nodes of the nesting (ranges, or pieces of a range) as events."""
    nesting, ranges = attributed.attribution.nesting, attributed.capture.ranges
    none = repeated(NONE, len(nesting))
    nodes = np.arange(len(nesting))
    return Events(
        range=nesting.range,
        node=nodes,
        launch=none,
        activity=none,
        column=lambda c: ranges[c][nesting.range],
    )


def activity_events(attributed: AttributedCapture, rows: Ints) -> Events:
    """Return the activities of these rows as events; without an API call they have no thread."""
    whole = attributed.unselected or attributed  # not cut by a window
    activities, launches = whole.capture.activities, attributed.capture.launches
    launch = attributed.attribution.launch[rows]

    def column(name: str) -> Ints:
        own: Ints = activities[name][rows] if name != "thread" else launch
        if name in {"report", "process"}:
            return own
        launch_value: Ints = lookup(launches[name], launch)
        if name == "thread":
            return launch_value
        return np.where(launch == NONE, own, launch_value)

    node = attributed.attribution.node[rows]
    return Events(
        range=lookup(attributed.attribution.nesting.range, node),
        node=node,
        launch=launch,
        activity=rows,
        column=column,
    )


def launch_events(attributed: AttributedCapture, rows: Ints) -> Events:
    """Return the API calls of these rows as events."""
    launches, node = attributed.capture.launches, attributed.launch_node[rows]
    range_row = lookup(attributed.attribution.nesting.range, node)
    none = repeated(NONE, len(rows))
    return Events(
        range=range_row, node=node, launch=rows, activity=none, column=lambda c: launches[c][rows]
    )


# -- Codes of events by one dimension or by several


@record
class DimensionCodes:
    """Events as codes of a dimension.

    Attributes:
        labels: the columns that name the codes, with an entry per code.
        codes: for each kind of events, the code of each event; NONE for an event that is in no row.

    """

    labels: Mapping[str, NDArray[np.generic]]
    codes: Sequence[Ints]

    @property
    def size(self) -> int:
        return len(next(iter(self.labels.values())))

    @classmethod
    def of_rows(
        cls,
        name: str,
        code: Integers,
        names: Collection[str],
        rows: Sequence[Ints],
        none: str | None = None,
    ) -> DimensionCodes:
        """Give each event the code of the row that it refers to.

        An event without a row, or whose row has no code, gets the name ``none``; if that is None,
        the event is in no row of the table.
        """
        names_listed = list(names if none is None or none in names else [*names, none])
        missing = NONE if none is None else names_listed.index(none)
        row_code = np.append(np.where(code == NONE, missing, code), missing)
        return cls({name: texts(names_listed)}, [row_code[row] for row in rows])

    @classmethod
    def of_keys(cls, keys: Sequence[Sequence[Ints]]) -> tuple[DimensionCodes, list[Ints]]:
        """Number the distinct keys over all kinds of events; also return these keys."""
        columns = [np.concatenate(column) for column in zip(*keys, strict=True)]
        code, rows = number_groups(*columns)
        parts = np.cumsum([0, *(len(key[0]) for key in keys)]).tolist()
        return cls({}, [code[a:b] for a, b in pairwise(parts)]), [c[rows] for c in columns]

    def joined(self, other: DimensionCodes) -> DimensionCodes:
        """Return codes for the pairs of both codes that occur."""
        pairs = [
            np.where((first == NONE) | (second == NONE), NONE, first * other.size + second)
            for first, second in zip(self.codes, other.codes, strict=True)
        ]
        every = np.concatenate(pairs)
        has_code = every != NONE
        code, distinct = factorize(every[has_code])
        every[has_code] = code
        first, second = np.divmod(distinct, max(1, other.size))
        labels = {name: column[first] for name, column in self.labels.items()}
        labels |= {
            name: column[second] for name, column in other.labels.items() if name not in labels
        }
        parts = np.cumsum([0, *(len(pair) for pair in pairs)]).tolist()
        return DimensionCodes(labels, [every[a:b] for a, b in pairwise(parts)])


def combine(dimensions: Sequence[DimensionCodes]) -> DimensionCodes:
    """Return codes for the combinations of all dimensions that occur."""
    return reduce(DimensionCodes.joined, dimensions)


# -- Dimensions of time and place


NO_PHASE = "(no phase)"


def step(attributed: AttributedCapture, events: Sequence[Events]) -> DimensionCodes:
    """Code events by the number of the step open in their process, -1 outside of all steps.

    Steps are found by the names of ranges, or by repetition. Activities are of the step in which they were issued.
    """
    steps, issued = attributed.iterations, np.append(attributed.issued, NONE)
    numbers, step_code = np.unique(steps.number, return_inverse=True)
    code = np.append(step_code, len(numbers))  # the last entry is for events in no step
    times = [np.where(e.activity == NONE, e.time, issued[e.activity]) for e in events]
    places = [steps.at(e.report, e.process, at) for e, at in zip(events, times, strict=True)]
    return DimensionCodes({"step": np.append(numbers, NONE)}, [code[place] for place in places])


def phase(attributed: AttributedCapture, events: Sequence[Events]) -> DimensionCodes:
    """Code events by the phase of their batch, else by that open in their process which began last."""
    ranges = attributed.capture.ranges
    rows = np.flatnonzero(ranges.kind.among(frames.START_END))
    keys = [[ranges.report[rows], ranges.process[rows]]]
    stack, *stacks = key_codes(*keys, *([e.report, e.process] for e in events))
    start, end = ranges.start[rows], ranges.end[rows]
    nesting = Nesting.of(stack, start, end, rows)
    names = ranges.name
    code = names.codes[nesting.range]
    nodes = [
        nesting.innermost(stack_of, e.time) for stack_of, e in zip(stacks, events, strict=True)
    ]
    at = np.append(nodes_of_launch(attributed, np.arange(len(attributed.counted))), NONE)
    places_of = (np.where(e.activity == NONE, e.node, at[e.activity]) for e in events)
    served = phase_of_batches(attributed, places_of)
    said = Names.concat([Names(code, names.texts), Names(np.arange(len(OF_BATCHES)), OF_BATCHES)])
    places = [
        np.where((of_batch >= 0) & (of_batch < len(OF_BATCHES) - 1), of_batch + len(code), node)
        for of_batch, node in zip(served, nodes, strict=True)
    ]
    return DimensionCodes.of_rows("phase", said.codes, said.texts, places, none=NO_PHASE)


def thread(attributed: AttributedCapture, events: Sequence[Events]) -> DimensionCodes:
    """Code events by the thread of their call; those without one are -1, a row per process."""
    keys = [(e.report, e.process, e.thread) for e in events]
    codes, (report_of, owner, ids) = DimensionCodes.of_keys(keys)
    names = _names_of(attributed, "threads", column="thread", report=report_of, ids=ids)
    labels = {
        "pid": _pid(owner),
        "tid": np.where(ids == NONE, NONE, ids & frames.ID_BITS),
        "thread": names,
    }
    return replace(codes, labels=labels | _files(attributed, report_of))


def process(attributed: AttributedCapture, events: Sequence[Events]) -> DimensionCodes:
    codes, (report_of, ids) = DimensionCodes.of_keys([(e.report, e.process) for e in events])
    programs = _names_of(attributed, "processes", column="process", report=report_of, ids=ids)
    names = texts(program.rpartition("/")[2] for program in programs)
    labels = {"pid": _pid(ids), "process": names}
    return replace(codes, labels=labels | _files(attributed, report_of))


def report(attributed: AttributedCapture, events: Sequence[Events]) -> DimensionCodes:
    """Code events by their file."""
    return DimensionCodes(
        {"report": texts(file_names(attributed.capture))}, [e.report for e in events]
    )


def rank(attributed: AttributedCapture, events: Sequence[Events]) -> DimensionCodes:
    """Code events by the rank of their process, -1 if unknown."""
    return _by_member(attributed, events, "rank", lambda member: member.rank)


def host(attributed: AttributedCapture, events: Sequence[Events]) -> DimensionCodes:
    """Code events by the host that their file was recorded on, '' if unknown."""
    return _by_member(attributed, events, "host", lambda member: member.host)


def _by_member(
    attributed: AttributedCapture,
    events: Sequence[Events],
    name: str,
    value_of: Callable[[Member], int | str],
) -> DimensionCodes:
    """Code events by a value of the rank that their process is."""
    # A window of a report has the ranks of the whole report.
    ranks = getattr(attributed, "ranks", None) or Ranks.of(attributed.capture, attributed.place)
    values = [value_of(member) for member in ranks.members]
    kind = np.int64 if name == "rank" else object
    names, code = np.unique(np.array(values, kind), return_inverse=True)
    labels = {name: names.astype(np.int64) if name == "rank" else texts(names)}
    return DimensionCodes(
        labels, [code.astype(np.int64)[ranks.place(e.report, e.process)] for e in events]
    )


def device(attributed: AttributedCapture, events: Sequence[Events]) -> DimensionCodes:
    devices = Devices.of_report(attributed)
    return DimensionCodes(
        {"device": texts(devices.names)}, [devices.gpu[e.activity] for e in events]
    )


def stream(attributed: AttributedCapture, events: Sequence[Events]) -> DimensionCodes:
    """Code activities by stream; each process, context and GPU has streams of its own."""
    activities, devices = attributed.capture.activities, Devices.of_report(attributed)
    columns = [devices.gpu, activities.process, activities.context, activities.stream]
    keys = [[column[e.activity] for column in columns] for e in events]
    codes, (gpu, owner, context, stream_id) = DimensionCodes.of_keys(keys)
    names = texts(devices.names)[gpu]
    labels = {"device": names, "pid": _pid(owner), "context": context, "stream": stream_id}
    return replace(codes, labels=labels)


def geometry(attributed: AttributedCapture, events: Sequence[Events]) -> DimensionCodes:
    """Code activities by launch geometry: grid, block, registers per thread, shared memory."""
    *sizes, static, dynamic = (attributed.capture.activities[c] for c in GEOMETRY)
    known = (static != NONE) | (dynamic != NONE)
    shared_bytes = np.where(known, np.maximum(static, 0) + np.maximum(dynamic, 0), NONE)
    keys = [[column[e.activity] for column in (*sizes, shared_bytes)] for e in events]
    codes, (*extents, registers, memory) = DimensionCodes.of_keys(keys)
    labels = {"grid": _sizes(extents[:3]), "block": _sizes(extents[3:])}
    return replace(codes, labels=labels | {"registers": registers, "shared_bytes": memory})


def _sizes(columns: Sequence[Ints]) -> np.ndarray:
    """Return sizes as texts like ``128x1x1``, '' for activities without sizes."""
    rows: Iterable[list[int]] = np.stack(columns, axis=1).tolist()
    return texts("x".join(map(str, row)) if row[0] != NONE else "" for row in rows)


def _pid(process: Ints) -> Ints:
    return np.where(process == NONE, NONE, frames.pid(process))


def _names_of(
    attributed: AttributedCapture, table: str, column: str, report: Ints, ids: Ints
) -> np.ndarray:
    """Return the names of threads or processes, '' if unknown."""
    frame = getattr(attributed.capture, table)
    keys = zip(frame.report.tolist(), frame[column].tolist(), strict=True)
    names = dict(zip(keys, frame.name, strict=True))
    requested = zip(report.tolist(), ids.tolist(), strict=True)
    return texts(names.get(key, "") for key in requested)


def _files(attributed: AttributedCapture, report: Ints) -> dict[str, np.ndarray]:
    """Return a column with the file names if there are several files."""
    names = file_names(attributed.capture)
    return {"report": texts(names)[report]} if len(names) > 1 else {}


# -- Dimensions of ranges, API calls and activities


# Returns the codes of several kinds of events by one dimension.
Coding = Callable[[AttributedCapture, Sequence[Events]], DimensionCodes]


def _op(attributed: AttributedCapture, events: Sequence[Events]) -> DimensionCodes:
    return _by_range(events, "op", attributed.op, attributed.ops)


def _path(attributed: AttributedCapture, events: Sequence[Events]) -> DimensionCodes:
    """Code events by the path of ops around them; the path of a range of no length is its name."""
    code, names = attributed.node_path
    text_code, distinct = unique_names(
        np.arange(len(names) + len(attributed.ops)), [*names, *attributed.ops]
    )
    range_code = lookup(text_code[len(names) :], attributed.op)
    return _by_node(
        events, "path", node_code=text_code[code], range_code=range_code, names=distinct
    )


CUSTOM_OP = "custom_op"  # NVTX category of the range of a custom operator
NO_CUSTOM_OP = "(no custom op)"
OWN_CODE = "pure_python"  # MXNet's name of the part of a custom operator that runs no op


def _custom_op(attributed: AttributedCapture, events: Sequence[Events]) -> DimensionCodes:
    """Code events by the part of the innermost custom operator around them.

    The parts of ``Op`` are ``Op::pure_python``, its own code, and ``Op::aten::add``, an op in it.
    """
    nesting, category = attributed.attribution.nesting, attributed.capture.ranges.category
    is_custom = category[nesting.range].among(CUSTOM_OP)
    owner = inherited(nesting, np.where(is_custom, np.arange(len(nesting)), NONE))
    rows = np.flatnonzero(owner != NONE)
    operator = attributed.node_op[owner[rows]]
    op = np.where(is_custom[rows], NONE, attributed.node_op[rows])
    pair, first = number_groups(operator, op)
    names = [*attributed.ops, OWN_CODE]  # NONE is the last one
    parts = zip(operator[first].tolist(), op[first].tolist(), strict=True)
    code = scatter(pair, rows, len(nesting))
    parts_listed = [f"{names[a]}::{names[b]}" for a, b in parts]
    nodes = [e.node for e in events]
    return DimensionCodes.of_rows("part", code, parts_listed, nodes, none=NO_CUSTOM_OP)


def _module(attributed: AttributedCapture, events: Sequence[Events]) -> DimensionCodes:
    modules = attributed.modules
    place = attributed.module_of_work
    code = lookup(modules.path, place)
    rows = [e.node for e in events]
    return DimensionCodes.of_rows("module", code, modules.paths, rows, none=NO_MODULE)


def _direction(attributed: AttributedCapture, events: Sequence[Events]) -> DimensionCodes:
    directions = attributed.directions
    codes = (directions.backward.astype(np.int64), directions.ranges.astype(np.int64))
    return _by_node(events, "direction", *codes, DIRECTIONS[:2])


def _shape(attributed: AttributedCapture, events: Sequence[Events]) -> DimensionCodes:
    return _by_range(events, "shape", *input_shapes(attributed), none="")


def _dtype(attributed: AttributedCapture, events: Sequence[Events]) -> DimensionCodes:
    return _by_range(events, "dtype", *input_dtypes(attributed), none="")


def _strides(attributed: AttributedCapture, events: Sequence[Events]) -> DimensionCodes:
    return _by_range(events, "strides", *input_strides(attributed), none="")


def _overload(attributed: AttributedCapture, events: Sequence[Events]) -> DimensionCodes:
    return _by_range(events, "overload", *overloads(attributed), none="")


def _stack(attributed: AttributedCapture, events: Sequence[Events]) -> DimensionCodes:
    """Code events by the call stack that was recorded for their op, on one line."""
    code, names = call_stacks(attributed)
    return _by_range(events, "stack", code, [" < ".join(n.splitlines()) for n in names], none="")


def _api(attributed: AttributedCapture, events: Sequence[Events]) -> DimensionCodes:
    column = attributed.capture.launches.name
    rows = [e.launch for e in events]
    return DimensionCodes.of_rows("api", column.codes, column.texts, rows, none="")


def _source(attributed: AttributedCapture, events: Sequence[Events]) -> DimensionCodes:
    """Code events by the line that made their API call or captured their CUDA graph, or why there is none."""
    known = source_lines(attributed)
    by_call = np.append(known.call, REASONS.index(NO_CALL))
    by_work = np.append(activity_lines(attributed, slice(None)), NONE)
    row = (np.where(e.activity == NONE, by_call[e.launch], by_work[e.activity]) for e in events)
    labels = {name: texts(known.lines[name]) for name in ("function", "source")}
    return DimensionCodes(labels, [*row])


def _kind(attributed: AttributedCapture, events: Sequence[Events]) -> DimensionCodes:
    return DimensionCodes.of_rows("kind", *kinds.kind(attributed), [e.activity for e in events])


def _library(attributed: AttributedCapture, events: Sequence[Events]) -> DimensionCodes:
    return DimensionCodes.of_rows(
        "library", *kinds.library(attributed), [e.activity for e in events]
    )


def _fused(attributed: AttributedCapture, events: Sequence[Events]) -> DimensionCodes:
    return DimensionCodes.of_rows(
        "fused", *kinds.fused_ops(attributed), [e.activity for e in events]
    )


def _memcpy(attributed: AttributedCapture, events: Sequence[Events]) -> DimensionCodes:
    return _named(
        attributed,
        events,
        label="operation",
        kernel_names="short",
        activity_kinds=(frames.MEMCPY, frames.MEMSET),
    )


def kernel(names: str) -> Coding:
    """Return the coding of kernels by one kind of name, a key of `KERNEL_NAMES`."""
    return lambda attributed, events: _named(
        attributed, events, label="kernel", kernel_names=names, activity_kinds=(frames.KERNEL,)
    )


# By the names of `bridge.analyze.core.catalog.dimensions.DIMENSIONS`.
CODINGS: Mapping[str, Coding] = {
    "op": _op,
    "path": _path,
    "module": _module,
    "custom-op": _custom_op,
    "direction": _direction,
    "shape": _shape,
    "dtype": _dtype,
    "strides": _strides,
    "overload": _overload,
    "stack": _stack,
    "step": step,
    "phase": phase,
    "thread": thread,
    "process": process,
    "report": report,
    "rank": rank,
    "host": host,
    "api": _api,
    "kernel": kernel("readable"),
    "memcpy": _memcpy,
    "kind": _kind,
    "library": _library,
    "fused": _fused,
    "device": device,
    "stream": stream,
    "geometry": geometry,
    "source": _source,
}


def _by_node(
    events: Sequence[Events], name: str, node_code: Ints, range_code: Ints, names: Collection[str]
) -> DimensionCodes:
    """Code events by their node of the nesting; ranges without a node by their row."""
    rows = [
        np.where((e.node == NONE) & (e.range != NONE), len(node_code) + e.range, e.node)
        for e in events
    ]
    return DimensionCodes.of_rows(
        name, np.concatenate((node_code, range_code)), names, rows, none=""
    )


def _by_range(
    events: Sequence[Events], name: str, code: Ints, names: Collection[str], none: str | None = None
) -> DimensionCodes:
    """Code events by the range that they are in."""
    return DimensionCodes.of_rows(
        name, code, names=names, rows=[e.range for e in events], none=none
    )


def _named(
    attributed: AttributedCapture,
    events: Sequence[Events],
    label: str,
    kernel_names: str,
    activity_kinds: Sequence[str],
) -> DimensionCodes:
    """Code activities of some kinds by their name; other activities are in no row."""
    activities, named = attributed.capture.activities, activity_names(attributed, kernel_names)
    code = np.where(activities.kind.among(*activity_kinds), named.codes, NONE)
    names = texts(named.texts)
    return DimensionCodes({label: names}, [code[e.activity] for e in events])
