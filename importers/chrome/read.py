"""Read a trace of another profiler in Chrome's format into a `Capture`; see docs/formats/chrome.md."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from bridge.importers import frames
from bridge.importers.arrays import MISSING, Ints
from bridge.importers.capture import Capture, Facts, Reader
from bridge.importers.chrome.device import activities, device_frame
from bridge.importers.chrome.events import ASYNCHRONOUS, Points, Slices, TraceEvents, distinct
from bridge.importers.chrome.launches import Launches, launches_of
from bridge.importers.chrome.producers import (
    CALL,
    DEVICE,
    NAMELESS,
    OP,
    OWN,
    Mask,
    Producer,
    producer_of,
)
from bridge.importers.errors import NotAReport, NothingRecorded
from bridge.importers.kineto.events import (
    MAX_NS,
    NS_PER_US,
    clean,
    clean_names,
    is_json,
    is_pytorch,
    no_garbage_collection,
    read_json,
)
from bridge.importers.kineto.read import VERSION, Places
from bridge.importers.kineto.read import read_events as read_pytorch
from bridge.importers.nsys.tables import JSON, Details, has_detail
from bridge.importers.range_texts import name_lengths
from bridge.importers.records import record
from bridge.importers.texts import Texts

LOG = logging.getLogger("bridge.importers")

HOST = 0  # the process of a trace whose pids are not those of processes
IN_NANOSECONDS = 10**17  # a time of the epoch above it is not in µs
OF_OWN = "; read the report that it was made of"
MAX_DETAILS = 2048  # characters of the arguments of an event that are kept


def read(path: Path, details: Details = True) -> Capture:
    """Read a trace, PyTorch's or another's; raises a `ReportError` if it is damaged or no trace."""
    name = os.fsencode(path.name).decode(errors="replace")
    with no_garbage_collection():
        head, events = read_json(path)
        if VERSION in head or is_pytorch(events):
            LOG.debug("%s: %d events of PyTorch's profiler", name, len(events))
            return read_pytorch(name, head, events)
        trace = TraceEvents.of(events)
        del events  # half of the memory
        if not len(trace.slices):
            raise NotAReport(
                f"{name}: JSON, but no trace of a profiler: no slices in it (phases X, B and E, b and e)"
            )
        return _Reader.of(name, head, trace).capture(with_json=has_detail(details, JSON))


@record
class _Reader:
    """A trace, its producer, and what each of its slices is."""

    name: str
    head: Mapping[str, Any]
    trace: TraceEvents
    zero: int  # the time in the file, in ns, at which times are 0 here
    producer: Producer
    results: Mapping[str, Mask]
    process: Sequence[str]  # of each slice: the name of its process, and that of its thread
    thread: Sequence[str]

    @classmethod
    def of(cls, name: str, head: Mapping[str, Any], trace: TraceEvents) -> _Reader:
        trace, zero = _from_zero(name, trace)
        slices, producer = trace.slices, producer_of(head, trace)
        process = [trace.process_names.get(pid, "") for pid, _ in slices.where]
        thread = [trace.thread_names.get(place, str(place[1])) for place in slices.where]
        labels = {
            "process": process,
            "thread": thread,
            "category": slices.category,
            "name": slices.name,
        }
        results = producer.results(trace, labels)
        return cls(
            name=name,
            head=head,
            trace=trace,
            zero=zero,
            producer=producer,
            results=results,
            process=process,
            thread=thread,
        )

    def capture(self, *, with_json: bool) -> Capture:
        slices, rows = self.trace.slices, self._rows
        if not any(len(rows[result]) for result in (OP, CALL, DEVICE)):
            raise NothingRecorded(f"{self.name}: no ops and no work of a device")
        places = Places([_Located(self._where(points)) for points in self._on_the_host])
        range_frame, texts = self._ranges(places, with_json=with_json)
        launched = self._launches(places)
        work = slices.take(rows[DEVICE])
        activity_frame = activities(
            work,
            self.producer,
            labels=self._labels(rows[DEVICE]),
            process=self._owners(work, places),
            correlation=launched.of_device,
        )
        tables = [t for t in (range_frame, launched.frame, activity_frame) if len(t)]
        span = (
            min(int(t.start.min()) for t in tables),
            max(int(t.end.max()) for t in tables),
        )
        facts = Facts(
            product=self.producer.name if self.producer not in NAMELESS else "Chrome trace",
            schema="",
            span=span,
            warnings=tuple(self._warnings(activity_frame)),
            epoch_ns=self._epoch(),
        )
        return Capture(
            source=(self.name,),
            facts=(facts,),
            ranges=range_frame,
            launches=launched.frame,
            activities=activity_frame,
            marks=self._marks(places),
            threads=places.threads(self._meta),
            processes=places.processes(self._meta),
            devices=device_frame(activity_frame),
            texts=texts,
        )

    @property
    def _rows(self) -> Mapping[str, Ints]:
        return {result: np.flatnonzero(mask) for result, mask in self.results.items()}

    @property
    def _on_the_host(self) -> Iterator[Any]:
        slices, rows = self.trace.slices, self._rows
        yield slices.take(rows[OP])
        yield slices.take(rows[CALL])
        yield self.trace.instants
        yield self.trace.counters
        if self.producer.flows:
            yield self.trace.flow_starts

    def _where(self, located: Any) -> list[tuple[Any, Any]]:
        """Return pid and tid of each; in one process only the threads differ."""
        where: list[tuple[Any, Any]] = located.where
        return [(HOST, tid) for _, tid in where] if self.producer.one_process else where

    @property
    def _meta(self) -> list[dict[str, Any]]:
        """The events that name processes and threads, as `Places` reads them."""
        if not self.producer.one_process:
            return [*self.trace.meta]
        return [
            {**event, "pid": HOST}
            for event in self.trace.meta
            if event.get("name") == "thread_name"
        ]

    def _labels(self, rows: Ints) -> list[str]:
        """Return the names of process and thread of slices, with a tab between them."""
        return [f"{self.process[row]}\t{self.thread[row]}" for row in rows.tolist()]

    # -- The host: ranges, marks and counters

    def _ranges(self, places: Places, *, with_json: bool) -> tuple[frames.Ranges, Texts]:
        rows = self._rows[OP]
        slices = self.trace.slices.take(rows)
        order = np.lexsort((slices.first, -slices.end, slices.start))  # outer before inner
        rows, slices = rows[order], slices.take(order)
        code, values = distinct([clean(name) for name in slices.name])
        texts = Texts.of(values or [""])
        name_code, names = texts.factorize(_name_lengths(texts, values, self.producer.per_call))
        category, categories = distinct([clean(text) for text in slices.category])
        located = _Located(self._where(slices))
        json_texts = self._details(rows, slices) if with_json else [""] * len(slices)
        columns: dict[str, Any] = {
            "start": slices.start,
            "end": slices.end,
            "thread": places.thread(located),
            "process": places.process(located),
            "domain": np.zeros(len(slices), np.int64),
            "domain_name": frames.Names(np.zeros(len(slices), np.int64), [""]),
            "name": frames.Names(name_code[code], names),
            "kind": frames.Names(
                (slices.kind == ASYNCHRONOUS).astype(np.int64), frames.RANGE_KINDS
            ),
            "category": frames.Names(category, categories),
            "json": clean_names(json_texts),
            "open": slices.open,
            "text": code,
        }
        return frames.Ranges(columns), texts

    def _details(self, rows: Ints, slices: Slices) -> list[str]:
        """Return the arguments of each slice as JSON, and its device if pids are devices."""
        of_device = self.producer.one_process
        return [
            _json_text(args, self.process[row] if of_device else "")
            for row, args in zip(rows.tolist(), slices.args, strict=True)
        ]

    def _marks(self, places: Places) -> frames.Marks:
        """Return the frame `marks`: instants, and a row for every value of a counter."""
        instants, counters = self.trace.instants, self.trace.counters
        samples = [*_samples(counters)]
        at = np.array([row for row, _, _ in samples], np.int64)
        names = [event.get("name", "") for event in instants.events] + [
            frames.COUNTER + label for _, label, _ in samples
        ]
        where = instants.where + [counters.where[row] for row in at.tolist()]
        located = _Located(self._where(_Located(where)))
        numbers = [number for _, _, number in samples]
        is_whole = [isinstance(number, int) for number in numbers]
        columns: dict[str, Any] = {
            "time": np.concatenate((instants.time, counters.time[at])),
            "thread": places.thread(located),
            "process": places.process(located),
            "domain": np.zeros(len(names), np.int64),
            "domain_name": frames.Names(np.zeros(len(names), np.int64), [""]),
            "name": clean_names(names),
            "payload": np.concatenate(
                (
                    np.full(len(instants), MISSING),
                    np.array(
                        [
                            n if whole else MISSING
                            for n, whole in zip(numbers, is_whole, strict=True)
                        ],
                        np.int64,
                    ),
                )
            ),
            "json": clean_names(
                [""] * len(instants)
                + ["" if whole else str(n) for n, whole in zip(numbers, is_whole, strict=True)]
            ),
        }
        return frames.Marks(columns)

    # -- Devices

    def _launches(self, places: Places) -> Launches:
        slices, rows = self.trace.slices, self._rows
        parts = {result: slices.take(rows[result]) for result in (OP, CALL, DEVICE)}
        return launches_of(
            self.trace,
            self.producer,
            parts,
            lambda where: _placed(places, self._where(_Located(where))),
        )

    def _owners(self, work: Slices, places: Places) -> Ints:
        """Return the process of device work: the only one of the host, or that with the same pid."""
        known = [*dict.fromkeys(pid for pid, _ in places.used)]
        numbers = {pid: number << 24 for pid, number in places.pids.items()}
        only = numbers[known[0]] if len(known) == 1 else MISSING
        pids = [pid for pid, _ in work.where]
        return np.array(
            [only if only != MISSING else numbers.get(pid, MISSING) for pid in pids], np.int64
        )

    # -- Facts

    def _epoch(self) -> int:
        """Return the time of the epoch at which times are 0, in ns; -1 if the trace has none."""
        metadata = self.head.get("metadata")
        value = metadata.get(self.producer.epoch) if type(metadata) is dict else None
        number = 0
        with suppress(ArithmeticError, ValueError):
            number = int(Decimal(value)) if isinstance(value, str | int) else 0
        if not 0 < number < MAX_NS:
            return MISSING
        return (number if number > IN_NANOSECONDS else number * NS_PER_US) + self.zero

    def _warnings(self, activities: frames.Activities) -> Iterator[str]:
        if self.producer in NAMELESS:
            yield (
                f"{self.name}: a Chrome trace of {self.producer.name}: its slices are read as ranges,"
                f" and no kernels are known{OF_OWN if self.producer is OWN else ''}"
            )
        elif not len(activities):
            yield f"{self.name}: {self.producer.name}: host times alone, no kernels"
        if self.producer.times:
            yield f"{self.name}: {self.producer.name}: {self.producer.times}"
        if self.trace.broken:
            yield f"{self.name}: {self.trace.broken} events left out: invalid, or without begin or end"


@record
class _Located:
    """Pid and tid of events, as `Places` reads them."""

    where: Sequence[tuple[Any, Any]]


def _placed(places: Places, where: Sequence[tuple[Any, Any]]) -> tuple[Ints, Ints]:
    located = _Located(where)
    return places.thread(located), places.process(located)


def _from_zero(name: str, trace: TraceEvents) -> tuple[TraceEvents, int]:
    """Return the trace with times from one µs before its first event, and that time in ns."""
    slices, points = trace.slices, [p for p in _points(trace) if len(p)]
    first = min(int(slices.start.min()), *(int(p.time.min()) for p in points), MAX_NS)
    last = max(int(slices.end.max()), *(int(p.time.max()) for p in points), -MAX_NS)
    zero = first - NS_PER_US
    if last - zero > MAX_NS:
        raise NotAReport(f"{name}: damaged (its times are centuries apart); export it again")
    instants, counters, flow_starts, flow_ends = (
        replace(p, time=p.time - zero) for p in _points(trace)
    )
    return replace(
        trace,
        slices=replace(slices, start=slices.start - zero, end=slices.end - zero),
        instants=instants,
        counters=counters,
        flow_starts=flow_starts,
        flow_ends=flow_ends,
    ), zero


def _points(trace: TraceEvents) -> tuple[Points, ...]:
    return trace.instants, trace.counters, trace.flow_starts, trace.flow_ends


def _name_lengths(texts: Texts, values: Sequence[str], per_call: re.Pattern[str] | None) -> Ints:
    """Return the length in bytes of the name in each text, without the per-call part."""
    lengths = name_lengths(texts)
    if per_call is None:
        return lengths
    matches = [per_call.match(text) for text in values]
    own = [len(match[1].encode()) if match else MISSING for match in matches]
    known = np.array(own or [MISSING], np.int64)
    return np.where(known == MISSING, lengths, known)


def _json_text(args: Mapping[str, Any], device: str) -> str:
    """Return the arguments as JSON, '' for none; what is too long is left out."""
    known = {key: value for key, value in args.items() if not key.startswith("__")}
    known |= {"device": device} if device and "device" not in known else {}
    text = json.dumps(known) if known else ""
    return text if len(text) <= MAX_DETAILS else ""


def _samples(counters: Points) -> Iterator[tuple[int, str, int | float]]:
    """Yield row, label and value of every value of a sample of a counter."""
    for row, event in enumerate(counters.events):
        args, name = event.get("args"), event.get("name", "")
        for key, value in (args if type(args) is dict else {}).items():
            number = _number(value)
            if number is not None:
                yield row, name if key in (name, "value") else f"{name}: {key}", number


def _number(value: Any) -> int | float | None:
    """Return a value of JSON as a number, None for others; numbers with a point are read as text."""
    if type(value) is int:
        return value if abs(value) < MAX_NS else None
    try:
        number = float(value) if type(value) is str else float("nan")
    except ValueError:
        return None
    if not isfinite(number):
        return None
    return int(number) if number.is_integer() and abs(number) < MAX_NS else number


READER = Reader("trace", is_json, read)
