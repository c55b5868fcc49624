"""A trace of PyTorch's profiler becomes a `Report`: what docs/kineto.md says, and nothing that is not in the file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from importers import frames
from importers.errors import NotAReport, NothingRecorded
from importers.kineto import opened
from importers.kineto.clean import clean
from importers.kineto.device import activities, waits
from importers.kineto.events import CALLS, MEMORY, RANGES, Events, Sorted, is_ours
from importers.kineto.gpus import devices
from importers.kineto.host import launches, ranges
from importers.kineto.memory import memory
from importers.kineto.numbers import LATEST, LONGEST, integers
from importers.kineto.owners import owners
from importers.kineto.places import Places
from importers.report import Facts, Report

VERSION, BASE = "schemaVersion", "baseTimeNanoseconds"
PRODUCT = "PyTorch profiler"
OF_THE_FILE = frozenset([VERSION, BASE, "displayTimeUnit", "traceName"])
DISTRIBUTED, HOST = "distributedInfo", "host_name"
MOST_KINDS = 20  # are named
PLACE = ("rank", "world_size", "backend")  # what of it counts


def read(path: Path) -> Report:
    """Return what a trace holds; raises a `ReportError` if it is none of PyTorch's, or damaged."""
    name = os.fsencode(path.name).decode(errors="replace")
    with opened.without_collection():
        head, events = opened.read(path)
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
        return [f"{name}: no kernels, copies or fills; was ProfilerActivity.CUDA on?"]
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
