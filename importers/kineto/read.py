"""A trace of PyTorch's profiler becomes a `Report`: what docs/kineto.md says, and nothing that is not in the file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from importers import frames
from importers.errors import NotAReport, NothingRecorded
from importers.frames import MISSING
from importers.kineto import file
from importers.kineto.device import activities, devices, owners, waits
from importers.kineto.events import (
    ANNOTATION,
    CALLS,
    LATEST,
    LONGEST,
    MEMORY,
    OP,
    PYTHON,
    RANGES,
    Events,
    Sorted,
    clean,
    integers,
    is_ours,
    named,
)
from importers.percall import name_lengths
from importers.report import Facts, Report
from importers.texts import Ints, Texts

# -- Processes and threads by number, as Nsight Systems numbers them: 24 bits each, the process above the thread


BITS = 24
MOST = (1 << BITS) - 1
Where = tuple[Any, Any]


class Places:
    """The numbers of the processes and threads of the host that events are on."""

    def __init__(self, hosts: Sequence[Events]) -> None:
        where = [pair for events in hosts for pair in events.where]
        self.pids = _numbered(pid for pid, _ in where)
        self.tids = _numbered(tid for _, tid in where)
        self.used = {(_plain(pid), _plain(tid)) for pid, tid in where}

    def process(self, events: Events) -> Ints:
        """Return the process of each event."""
        return np.array([self.pids[_plain(pid)] for pid, _ in events.where], np.int64) << BITS

    def thread(self, events: Events) -> Ints:
        """Return the thread of each event."""
        own = np.array([self.tids[_plain(tid)] for _, tid in events.where], np.int64)
        return self.process(events) | own

    def threads(self, meta: Sequence[dict[str, Any]]) -> pd.DataFrame:
        """Return the named threads; of several names the last one counts."""
        said = {
            (_plain(event.get("pid")), _plain(event.get("tid"))): name
            for event, name in _names(meta, "thread_name")
        }
        known = [(pid, tid, name) for (pid, tid), name in said.items() if (pid, tid) in self.used]
        process = np.array([self.pids[pid] for pid, _, _ in known], np.int64) << BITS
        thread = process | np.array([self.tids[tid] for _, tid, _ in known], np.int64)
        name = frames.named([name for _, _, name in known])
        return frames.frame("threads", {"thread": thread, "process": process, "name": name})

    def processes(self, meta: Sequence[dict[str, Any]]) -> pd.DataFrame:
        """Return all processes, with their names where these are said."""
        said = {_plain(event.get("pid")): name for event, name in _names(meta, "process_name")}
        process = np.array(list(self.pids.values()), np.int64) << BITS
        name = frames.named([said.get(pid, "") for pid in self.pids])
        return frames.frame("processes", {"process": process, "name": name})


def _names(meta: Sequence[dict[str, Any]], what: str) -> Iterator[tuple[dict[str, Any], str]]:
    for event in meta:
        said = event.get("args")
        if event.get("name") == what and type(said) is dict and type(said.get("name")) is str:
            yield event, clean(said["name"]).strip()


def _plain(value: Any) -> int | str:
    """Return a number as such, also one in quotes; anything else as text."""
    if type(value) is int:
        return value
    if type(value) is str and len(value) <= LONGEST and value.isdecimal():
        return int(value)
    return str(value)


def _numbered(values: Iterable[Any]) -> dict[int | str, int]:
    """Number distinct values: their own number where it fits, else a free one, from the top."""
    distinct = dict.fromkeys(map(_plain, values))
    own = {v: v for v in distinct if type(v) is int and 0 <= v <= MOST}
    free = (number for number in range(MOST, -1, -1) if number not in own)
    return {v: own[v] if v in own else next(free, 0) for v in distinct}


# -- What ran on the host: ops, annotations and Python functions as ranges, CUDA API calls as launches


MODULE = "nn.Module: "  # a Python function that stands for a module: an op, as wherever else it comes from
DEFAULT, OF_PYTHON = 0, 1  # domains
CATEGORIES = (OP, ANNOTATION, PYTHON)
TYPES = "Input type"
DIMS = ("Input Dims", "Input dims")  # since 2021, before
# What is said of collectives and kept as details of the call, by PyTorch's own names.
KEPT = (
    "Collective name", "In msg nelems", "Out msg nelems", "Group size", "dtype", "Process Group Name",
    "Process Group Ranks", "Src Rank", "Dst Rank",
)  # fmt: skip


def ranges(events: Events, places: Places) -> tuple[pd.DataFrame, Texts]:
    """Return the ranges of a trace in its order, which is outer before inner, and their texts."""
    category = np.array([_category(one) for one in events.category], np.int64)
    written = map(_text, events.name, category.tolist(), events.said)
    own, distinct = pd.factorize(np.array([*written, ""], object))
    texts = Texts.of(clean(text) for text in distinct)
    code, names = texts.factorize(name_lengths(texts))
    text = own[:-1].astype(np.int64)
    columns = _where(events, places) | {
        "name": frames.names(code[text], names),
        "kind": frames.names(np.zeros(len(events), np.int64), frames.RANGE_KINDS),
        "category": frames.names(category, CATEGORIES),
        "json": named([_details(said) for said in events.said]),
        "text": text,
    }
    return frames.frame("ranges", columns | _domains(events.name, category)), texts


def launches(events: Events, places: Places) -> pd.DataFrame:
    """Return the calls of the CUDA runtime and driver."""
    columns = _where(events, places) | {
        "correlation": events.ints("correlation"),
        "name": named(events.name),
    }
    return frames.frame("launches", columns)


def _where(events: Events, places: Places) -> dict[str, Any]:
    return {
        "start": events.start,
        "end": events.end,
        "thread": places.thread(events),
        "process": places.process(events),
    }


def _category(name: str) -> int:
    return CATEGORIES.index(name) if name in CATEGORIES else CATEGORIES.index(OP)


def _domains(names: Sequence[str], category: Ints) -> dict[str, Any]:
    """Return each range's domain: Python's functions have one of their own, for they are no ops."""
    is_module = np.array([name.startswith(MODULE) for name in names], bool)
    domain = np.where((category == CATEGORIES.index(PYTHON)) & ~is_module, OF_PYTHON, DEFAULT)
    return {"domain": domain, "domain_name": frames.names(domain, ("", PYTHON))}


def _text(name: str, category: int, said: dict[str, Any]) -> str:
    """Return ``aten::mm, seq = 7, op_id = 40, sizes = [[2, 3], [3, 4]]``; what is no op says its name alone."""
    if CATEGORIES[category] != OP:
        return name
    seq, number = said.get("Sequence number"), said.get("External id")
    sizes = said.get(DIMS[0]) or said.get(DIMS[1])
    parts = (
        f", seq = {seq}" if type(seq) is int and seq >= 0 else "",
        f", op_id = {number}" if type(number) is int and number > 0 else "",
        f", sizes = {sizes}" if type(sizes) is list and sizes else "",
    )
    return name + "".join(parts)


def _details(said: dict[str, Any]) -> str:
    """Return the types of inputs, and what is said of a collective, as JSON; '' for nothing."""
    types = said.get(TYPES)
    found = {"dtypes": types} if type(types) is list and any(types) else {}
    found |= {key: said[key] for key in KEPT if key in said}
    return json.dumps(found) if found else ""


# -- What PyTorch's allocators gave and took back as the frame `memory`: with profile_memory=True


HOST_DEVICE = 0  # the type of device that is none: the host; 1 is CUDA
PAGEABLE, DEVICE, UNKNOWN = (
    frames.MEMORY_KINDS.index(kind) for kind in ("pageable", "device", "unknown")
)
CUDA = 1


def memory(events: Events, places: Places) -> pd.DataFrame:
    """Return a row per allocation and release: ``bytes`` of a release are written as negative.

    The allocator stands for one pool per device; on the host it reserves nothing beyond what it gave.
    """
    size = integers([0 if count is None else count for count in events.column("Bytes")])
    device = events.ints("Device Type")
    reserved = events.ints("Total Reserved")
    kind = np.select([device == HOST_DEVICE, device == CUDA], [PAGEABLE, DEVICE], UNKNOWN)
    columns: dict[str, Ints | pd.Categorical] = {
        "time": events.start,
        "thread": places.thread(events),
        "process": places.process(events),
        "device": events.ints("Device Id"),
        "kind": frames.names(kind.astype(np.int64), frames.MEMORY_KINDS),
        "operation": np.where(size < 0, frames.RELEASE, frames.ALLOCATE),
        "address": events.ints("Addr"),
        "bytes": np.abs(size),
        "reserved": np.where((device == HOST_DEVICE) | (reserved < 0), MISSING, reserved),
        "allocated": events.ints("Total Allocated"),
    }
    table = frames.frame("memory", columns)
    there = np.flatnonzero(size != 0)
    return table if len(there) == len(table) else table.iloc[there].reset_index(drop=True)


# -- A trace of PyTorch's profiler becomes a `Report`: what docs/kineto.md says, and nothing that is not in the file


VERSION, BASE = "schemaVersion", "baseTimeNanoseconds"
PRODUCT = "PyTorch profiler"
OF_THE_FILE = frozenset([VERSION, BASE, "displayTimeUnit", "traceName"])
DISTRIBUTED, HOST = "distributedInfo", "host_name"
MOST_KINDS = 20  # are named
PLACE = ("rank", "world_size", "backend")  # what of it counts


def read(path: Path) -> Report:
    """Return what a trace holds; raises a `ReportError` if it is none of PyTorch's, or damaged."""
    name = os.fsencode(path.name).decode(errors="replace")
    with file.without_collection():
        head, events = file.read(path)
        if VERSION not in head and not is_ours(events):
            raise NotAReport(
                f"{name}: a trace in Chrome's format, but not of PyTorch's profiler: no {VERSION}, no cpu_op"
            )
        found = Sorted.of(events)
        del events  # as large as all the rest
        if not any(len(found.by[sort]) for sort in (RANGES, CALLS, "kernels", "copies", "fills")):
            raise NothingRecorded(
                f"{name}: no ops, no CUDA calls and no kernels; was the profiler running while they were?"
            )
        return _report(name, head, found, _from(name, found))


def _from(name: str, found: Sorted) -> dict[str, Events]:
    """Return the events with times from the beginning of the trace."""
    zero, every = found.zero, [e for e in found.by.values() if len(e)]
    first = min(zero, *(int(e.start.min()) for e in every))
    if max(int(e.end.max()) for e in every) - first > LATEST:
        raise NotAReport(f"{name}: damaged (its times are centuries apart); export it again")
    return {
        sort: replace(e, start=e.start - zero, end=e.end - zero) for sort, e in found.by.items()
    }


def _report(name: str, head: dict[str, Any], found: Sorted, by: dict[str, Events]) -> Report:
    places = Places([by[RANGES], by[CALLS], by[MEMORY]])
    opened_by, texts = ranges(by[RANGES], places)
    called = launches(by[CALLS], places)
    processes = places.processes(found.meta)
    process = owners(by, called, frames.ints(processes, "process"))
    ran = activities(by, process)
    timed = [table for table in (opened_by, called, ran) if len(table)]
    span = (min(int(t["start"].min()) for t in timed), max(int(t["end"].max()) for t in timed))
    epoch = int(integers([head.get(BASE)])[0]) if BASE in head else 0
    warnings = (*_missing(name, opened_by, called, ran), *_left_out(name, found))
    version = str(head.get(VERSION, ""))
    return Report(
        source=(name,),
        facts=(Facts(PRODUCT, version, span, warnings, epoch + found.zero, _metadata(head)),),
        ranges=opened_by,
        launches=called,
        activities=ran,
        marks=frames.frame("marks", {}),
        waits=waits(by, process),
        memory=memory(by[MEMORY], places),
        threads=places.threads(found.meta),
        processes=processes,
        devices=devices(head.get("deviceProperties"), by, ran),
        texts=texts,
    )


def _metadata(head: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the trace says of the run: its place among ranks, its flags, what the program added."""
    distributed = head.get(DISTRIBUTED)
    said = {k: v for k, v in head.items() if k not in OF_THE_FILE}
    if type(distributed) is dict:
        said |= {key: distributed[key] for key in PLACE if key in distributed}
    if HOST in said:
        said["host"] = said.pop(HOST)
    return {
        clean(key): clean(value) if type(value) is str else value
        for key, value in said.items()
        if type(value) in {str, int, bool}
    }


def _missing(
    name: str, ranges: pd.DataFrame, launches: pd.DataFrame, activities: pd.DataFrame
) -> list[str]:
    """Say what is missing."""
    if not len(activities):
        return [f"{name}: no kernels, memcpys or memsets; was ProfilerActivity.CUDA on?"]
    said = [] if len(ranges) else ["no ops to attribute kernels to; was ProfilerActivity.CPU on?"]
    if not len(launches):
        said.append("no CUDA API calls: kernels cannot be led back to their ops")
    return [f"{name}: {text}" for text in said]


def _left_out(name: str, found: Sorted) -> list[str]:
    """Say what was left out of what is normally read."""
    said = []
    if found.broken:
        said.append(f"{found.broken} events left out: no name, no time, or one that makes no sense")
    if found.unknown:
        kinds = [clean(kind)[:LONGEST] for kind in sorted(found.unknown)[:MOST_KINDS]]
        more = ["…"] if len(found.unknown) > MOST_KINDS else []
        listed = ", ".join(kinds + more)
        said.append(f"{found.unknown.total()} events are of kinds that are not read: {listed}")
    return [f"{name}: {text}" for text in said]
