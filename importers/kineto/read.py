"""Read a trace of PyTorch's profiler into a `Capture`; see docs/kineto.md."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from bridge.importers import frames
from bridge.importers.arrays import MISSING, Ints
from bridge.importers.call_chains import CallChains, Frame, nodes_of, python_frame, tree
from bridge.importers.capture import UNREAD, Capture, Facts
from bridge.importers.errors import NotAReport, NothingRecorded
from bridge.importers.graph_annotations import annotated_by_arguments
from bridge.importers.kineto.device import activities, devices, owners, waits
from bridge.importers.kineto.events import (
    ANNOTATION,
    CALLS,
    KERNELS,
    MAX_NS,
    MAX_NUMBER_LENGTH,
    MEMORY,
    OP,
    PYTHON,
    RANGES,
    Events,
    TraceEvents,
    clean,
    clean_names,
    integers,
)
from bridge.importers.kineto.graph_nodes import with_host_nodes
from bridge.importers.range_texts import name_lengths
from bridge.importers.texts import Texts

# -- Processes and threads


BITS = 24
MAX_NUMBER = frames.HOST_NODES_THREAD - 1
Where = tuple[Any, Any]


class Located(Protocol):
    """Events with the pid and tid of each, as written."""

    @property
    def where(self) -> Sequence[Where]:
        """The pid and tid of each."""


class Places:
    """The processes and threads of the host that events ran on, by number.

    Numbers have 24 bits each, the process above the thread, as in Nsight Systems.
    """

    def __init__(self, hosts: Sequence[Located]) -> None:
        where = [pair for events in hosts for pair in events.where]
        self.pids = numbers_of(pid for pid, _ in where)
        self.tids = numbers_of(tid for _, tid in where)
        self.used = {(_identifier(pid), _identifier(tid)) for pid, tid in where}

    def process(self, events: Located) -> Ints:
        return np.array([self.pids[_identifier(pid)] for pid, _ in events.where], np.int64) << BITS

    def thread(self, events: Located) -> Ints:
        tids = np.array([self.tids[_identifier(tid)] for _, tid in events.where], np.int64)
        return self.process(events) | tids

    def threads(self, meta: Sequence[dict[str, Any]]) -> frames.Threads:
        """Return the frame `threads` of all named threads; the last of several names counts."""
        names = {
            (_identifier(event.get("pid")), _identifier(event.get("tid"))): name
            for event, name in _names(meta, "thread_name")
        }
        named = [(pid, tid, name) for (pid, tid), name in names.items() if (pid, tid) in self.used]
        process = np.array([self.pids[pid] for pid, _, _ in named], np.int64) << BITS
        thread = process | np.array([self.tids[tid] for _, tid, _ in named], np.int64)
        name = frames.Names.of([name for _, _, name in named])
        return frames.Threads(thread=thread, process=process, name=name)

    def processes(self, meta: Sequence[dict[str, Any]]) -> frames.Processes:
        """Return the frame `processes`, with names where the trace has them."""
        names = {
            _identifier(event.get("pid")): name for event, name in _names(meta, "process_name")
        }
        process = np.array(list(self.pids.values()), np.int64) << BITS
        name = frames.Names.of([names.get(pid, "") for pid in self.pids])
        return frames.Processes(process=process, name=name)


def _names(meta: Sequence[dict[str, Any]], kind: str) -> Iterator[tuple[dict[str, Any], str]]:
    for event in meta:
        args = event.get("args")
        if event.get("name") == kind and type(args) is dict and type(args.get("name")) is str:
            yield event, clean(args["name"]).strip()


def _identifier(value: Any) -> int | str:
    """Return a number, also one in quotes, as int; anything else as text."""
    if type(value) is int:
        return value
    if type(value) is str and len(value) <= MAX_NUMBER_LENGTH and value.isdecimal():
        return int(value)
    return str(value)


def numbers_of(values: Iterable[Any]) -> dict[int | str, int]:
    """Number distinct values: by themselves where they fit into 24 bits, else from the top.

    The largest numbers of all are left out: `frames.GRAPH_NODES_THREAD` and `frames.HOST_NODES_THREAD`.
    """
    distinct = dict.fromkeys(map(_identifier, values))
    numbers = {
        value: value for value in distinct if type(value) is int and 0 <= value <= MAX_NUMBER
    }
    free = (number for number in range(MAX_NUMBER, -1, -1) if number not in numbers)
    return {value: numbers[value] if value in numbers else next(free, 0) for value in distinct}


# -- The host: ops, annotations and Python functions as ranges, CUDA API calls as launches


MODULE = "nn.Module: "  # prefix of Python functions that are calls of modules: these are ops
DEFAULT_DOMAIN, PYTHON_DOMAIN = 0, 1  # domains
CATEGORIES = (OP, ANNOTATION, PYTHON)
# What is told of each input: types, strides, and the values of those that are no tensors.
TYPES = "Input type"
INPUT_DETAILS = (("dtypes", TYPES), ("strides", "Input Strides"), ("inputs", "Concrete Inputs"))
DIMS = ("Input Dims", "Input dims")  # since 2021; before
# Arguments of collectives that become details of the call, by PyTorch's names.
COLLECTIVE_KEYS = (
    "Collective name", "In msg nelems", "Out msg nelems", "Group size", "dtype", "Process Group Name",
    "Process Group Ranks", "Src Rank", "Dst Rank", "Comms Id",
)  # fmt: skip


def ranges(events: Events, places: Places) -> tuple[frames.Ranges, Texts]:
    """Return the frame `ranges`, in the order of the trace (outer before inner), and its texts."""
    category = np.array([_category(name) for name in events.category], np.int64)
    is_op = (category == CATEGORIES.index(OP)).tolist()
    op_names, overloads = split_overloads(events.name, is_op)
    raw_texts = map(_range_text, op_names, is_op, events.args)
    raw = frames.Names.of(raw_texts)
    text = raw.codes
    texts = Texts.of(map(clean, raw.texts))
    code, names = texts.factorize(name_lengths(texts))
    columns = _common_columns(events, places) | {
        "name": frames.Names(code[text], names),
        "kind": frames.Names(np.zeros(len(events), np.int64), frames.RANGE_KINDS),
        "category": frames.Names(category, CATEGORIES),
        "json": clean_names([*map(details_of, overloads, events.args)]),
        "text": text,
    }
    return frames.Ranges(columns | _domains(events.name, category)), texts


STACK = (
    "Call stack"  # frames of an op, the innermost first; PyTorch 1.8 to 1.11 with with_stack=True
)


def call_chains(events: Events) -> CallChains:
    """Return the call stacks that ops have; those of newer traces are ranges of Python functions."""
    if not any(STACK in args for args in events.args):
        return CallChains()
    stacks = [args.get(STACK) for args in events.args]
    stack = frames.Names.of(s if type(s) is str else "" for s in stacks)
    split = [[f for f in text.strip('"').split(";") if f.strip()] for text in stack.texts]
    number = {text: row for row, text in enumerate(dict.fromkeys(f for s in split for f in s))}
    rows = [(c, d, number[f]) for c, parts in enumerate(split) for d, f in enumerate(parts)]
    chain, depth, frame = np.array(rows, np.int64).reshape(-1, 3).T
    made = tree(chain, depth, frame, len(split))
    known = [python_frame(clean(text)) or Frame(clean(text), "", python=True) for text in number]
    return CallChains(nodes_of(made.parent, made.frame, known), range=made.leaf[stack.codes])


def launches(events: Events, places: Places) -> frames.Launches:
    """Return the frame `launches`: calls of the CUDA runtime and driver."""
    columns = _common_columns(events, places) | {
        "correlation": events.ints("correlation"),
        "name": clean_names(events.name),
    }
    return frames.Launches(columns)


def _common_columns(events: Events, places: Places) -> dict[str, Any]:
    return {
        "start": events.start,
        "end": events.end,
        "thread": places.thread(events),
        "process": places.process(events),
    }


def _category(name: str) -> int:
    return CATEGORIES.index(name) if name in CATEGORIES else CATEGORIES.index(OP)


def _domains(names: Sequence[str], category: Ints) -> dict[str, Any]:
    """Return the domain of each range; functions of Python have their own, as they are not ops."""
    is_module = np.array([name.startswith(MODULE) for name in names], bool)
    domain = np.where(
        (category == CATEGORIES.index(PYTHON)) & ~is_module, PYTHON_DOMAIN, DEFAULT_DOMAIN
    )
    return {"domain": domain, "domain_name": frames.Names(domain, ("", PYTHON))}


# An op with its overload, as traces have it with capture_overload_names=True.
OVERLOAD = re.compile(r"([a-z]\w*::\w+)\.(\w+)")


def split_overloads(
    names: Sequence[str], is_op: Sequence[bool]
) -> tuple[Sequence[str], Sequence[str]]:
    """Return the names of ops without overloads, and the overloads, '' for none."""
    found = {name: OVERLOAD.fullmatch(name) for name in dict.fromkeys(names) if "." in name}
    found = {name: match for name, match in found.items() if match}
    if not found:
        return names, [""] * len(names)
    matches = [found.get(n) if op else None for n, op in zip(names, is_op, strict=True)]
    pairs = [(n, "") if m is None else (m[1], m[2]) for n, m in zip(names, matches, strict=True)]
    return [name for name, _ in pairs], [overload for _, overload in pairs]


def _range_text(name: str, is_op: bool, args: dict[str, Any]) -> str:
    """Return the text of a range; of an op such as ``aten::mm, seq = 7, sizes = [[2, 3]]``."""
    if not is_op:
        return name
    seq, number = args.get("Sequence number"), args.get("External id")
    sizes = args.get(DIMS[0]) or args.get(DIMS[1])
    parts = (
        f", seq = {seq}" if type(seq) is int and seq >= 0 else "",
        f", op_id = {number}" if type(number) is int and number > 0 else "",
        f", sizes = {sizes}" if type(sizes) is list and sizes else "",
    )
    return name + "".join(parts)


def details_of(overload: str, args: dict[str, Any]) -> str:
    """Return overload, inputs and the arguments of a collective as JSON, '' for none."""
    result: dict[str, Any] = {"overload": overload} if overload else {}
    if TYPES in args:  # a trace has all of them, or none
        for key, name in INPUT_DETAILS:
            values = args.get(name)
            if type(values) is list and any(values):
                result[key] = values
    result |= {key: args[key] for key in COLLECTIVE_KEYS if key in args}
    return json.dumps(result) if result else ""


# -- Memory


HOST_DEVICE = 0  # device types
PAGEABLE, DEVICE, UNKNOWN = (
    frames.MEMORY_KINDS.index(kind) for kind in ("pageable", "device", "unknown")
)
CUDA = 1


def memory(events: Events, places: Places) -> frames.Memory:
    """Return the frame `memory`: a row per allocation and release of PyTorch's allocators.

    Traces have them with profile_memory=True; ``Bytes`` of a release are negative. The pool of a
    row is the allocator of its device; the allocator of the host reserves nothing beyond what is
    allocated.
    """
    size = integers([0 if count is None else count for count in events.column("Bytes")])
    device = events.ints("Device Type")
    reserved = events.ints("Total Reserved")
    kind = np.select([device == HOST_DEVICE, device == CUDA], [PAGEABLE, DEVICE], UNKNOWN)
    columns: dict[str, frames.Column] = {
        "time": events.start,
        "thread": places.thread(events),
        "process": places.process(events),
        "device": events.ints("Device Id"),
        "kind": frames.Names(kind.astype(np.int64), frames.MEMORY_KINDS),
        "operation": np.where(size < 0, frames.RELEASE, frames.ALLOCATE),
        "address": events.ints("Addr"),
        "bytes": np.abs(size),
        "reserved": np.where((device == HOST_DEVICE) | (reserved < 0), MISSING, reserved),
        "allocated": events.ints("Total Allocated"),
    }
    table = frames.Memory(columns)
    rows = np.flatnonzero(size != 0)
    return table if len(rows) == len(table) else table.take(rows)


# -- The capture


VERSION, BASE = "schemaVersion", "baseTimeNanoseconds"
PRODUCT = "PyTorch profiler"
FILE_KEYS = frozenset([VERSION, BASE, "displayTimeUnit", "traceName"])
DISTRIBUTED, HOST = "distributedInfo", "host_name"
MAX_KINDS = 20  # that a warning names
RANK_KEYS = ("rank", "world_size", "backend")  # of DISTRIBUTED


def read_events(name: str, head: dict[str, Any], events: list[Any]) -> Capture:
    """Return the capture of a trace of PyTorch's profiler from its top-level fields and its events.

    The events are given back as soon as they are sorted. Raises a `ReportError` if nothing was
    recorded.
    """
    trace_events = TraceEvents.of(events)
    events.clear()  # half of the memory
    if not any(
        len(trace_events.by[sort]) for sort in (RANGES, CALLS, "kernels", "copies", "fills")
    ):
        raise NothingRecorded(
            f"{name}: no ops, no CUDA calls and no kernels; was the profiler running while they were?"
        )
    return _capture(name, head, trace_events, _from_zero(name, trace_events))


def _from_zero(name: str, trace_events: TraceEvents) -> dict[str, Events]:
    """Return the events with times relative to the beginning of the trace."""
    zero, filled = trace_events.zero, [events for events in trace_events.by.values() if len(events)]
    first = min(zero, *(int(events.start.min()) for events in filled))
    if max(int(events.end.max()) for events in filled) - first > MAX_NS:
        raise NotAReport(f"{name}: damaged (its times are centuries apart); export it again")
    return {
        sort: replace(events, start=events.start - zero, end=events.end - zero)
        for sort, events in trace_events.by.items()
    }


def _capture(
    name: str, head: dict[str, Any], trace_events: TraceEvents, by: dict[str, Events]
) -> Capture:
    places = Places([by[RANGES], by[CALLS], by[MEMORY]])
    range_frame, texts = ranges(by[RANGES], places)
    launch_frame = launches(by[CALLS], places)
    processes = places.processes(trace_events.meta)
    process = owners(by, launch_frame, processes.process)
    activity_frame = activities(by, process)
    timed: tuple[frames.Timed, ...] = (range_frame, launch_frame, activity_frame)
    tables = [table for table in timed if len(table)]
    span = (min(int(t.start.min()) for t in tables), max(int(t.end.max()) for t in tables))
    epoch = int(integers([head.get(BASE)])[0]) if BASE in head else 0
    warnings = (
        *missing_warnings(
            name, trace_events, ranges=range_frame, launches=launch_frame, activities=activity_frame
        ),
        *skipped_warnings(name, trace_events),
    )
    version = str(head.get(VERSION, ""))
    capture = Capture(
        source=(name,),
        facts=(
            Facts(
                product=PRODUCT,
                schema=version,
                span=span,
                warnings=warnings,
                epoch_ns=epoch + trace_events.zero,
                metadata=_metadata(head),
                beside=unread(trace_events),
            ),
        ),
        ranges=range_frame,
        launches=launch_frame,
        activities=activity_frame,
        marks=frames.Marks(),
        waits=waits(by, process),
        memory=memory(by[MEMORY], places),
        threads=places.threads(trace_events.meta),
        processes=processes,
        devices=devices(head.get("deviceProperties"), by, activity_frame),
        texts=texts,
        chains=call_chains(by[RANGES]),
    )
    return annotated_by_arguments(with_host_nodes(capture, by, process), by[KERNELS].args)


def _metadata(head: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of the run: rank, flags, and what the program added."""
    distributed = head.get(DISTRIBUTED)
    metadata = {key: value for key, value in head.items() if key not in FILE_KEYS}
    if type(distributed) is dict:
        metadata |= {key: distributed[key] for key in RANK_KEYS if key in distributed}
    if HOST in metadata:
        metadata["host"] = metadata.pop(HOST)
    result: dict[str, Any] = {
        clean(key): clean(value) if type(value) is str else value
        for key, value in metadata.items()
        if type(value) in {str, int, bool}
    }
    has_groups = type(distributed) is dict and not distributed.keys() <= {*RANK_KEYS}
    return result | ({"distributed": distributed} if has_groups else {})


# Kinds of events that ran on a device, as far as their names tell; MTIA and others write kinds of their own.
ON_DEVICE = re.compile(
    r"kernel|gpu|memcpy|memset|mtia|xpu|hpu|privateuse|device|collective", re.IGNORECASE
)


class LeftOut(Protocol):
    """What is not read of a trace, as `TraceEvents` counts it."""

    @property
    def broken(self) -> int: ...
    @property
    def unknown(self) -> Counter[str]: ...


def unread(events: LeftOut) -> dict[str, int]:
    """Return the number of events of a device that are not read, as `Facts.beside` has it."""
    count = sum(n for kind, n in events.unknown.items() if ON_DEVICE.search(kind))
    return {UNREAD: count} if count else {}


def missing_warnings(
    name: str,
    events: LeftOut,
    ranges: frames.Ranges,
    launches: frames.Launches,
    activities: frames.Activities,
) -> list[str]:
    """Return the warnings about missing kinds of records."""
    if not len(activities):
        count = unread(events).get(UNREAD)
        why = (
            f"the {count} events of a device are of kinds that are not read"
            if count
            else "was ProfilerActivity.CUDA on?"
        )
        return [f"{name}: no kernels, memcpys or memsets; {why}"]
    lines = [] if len(ranges) else ["no ops to attribute kernels to; was ProfilerActivity.CPU on?"]
    if not len(launches):
        lines.append("no CUDA API calls: kernels cannot be attributed to ops")
    return [f"{name}: {text}" for text in lines]


def skipped_warnings(name: str, events: LeftOut) -> list[str]:
    """Return the warnings about events that are invalid or of unknown categories."""
    lines = []
    if events.broken:
        lines.append(f"{events.broken} events left out: without a name or with an invalid time")
    if events.unknown:
        kinds = [clean(kind)[:MAX_NUMBER_LENGTH] for kind in sorted(events.unknown)[:MAX_KINDS]]
        more = ["…"] if len(events.unknown) > MAX_KINDS else []
        listed = ", ".join(kinds + more)
        lines.append(f"{events.unknown.total()} events are of kinds that are not read: {listed}")
    return [f"{name}: {text}" for text in lines]
