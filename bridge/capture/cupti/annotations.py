"""The program's ranges and marks as rows of a report, and the second witness of the join."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np

from bridge.capture.cupti import records, witness
from bridge.capture.cupti.clock import Clock
from bridge.capture.cupti.spool import ANNOTATIONS, WITNESS, WITNESS_FIELDS, Process
from bridge.importers import frames
from bridge.importers.nsys import schema
from bridge.importers.nsys.write import where, without_zero
from bridge.importers.recording.lines import (
    END,
    KIND,
    PROCESS_BITS,
    START,
    THREAD,
    Payloads,
    Recording,
    read_recording,
)

Ints = np.ndarray
Columns = dict[str, Any]

LAST = np.iinfo(np.int64).max  # the end of a range that was still open
PUSH_POP, START_END, MARK = (kinds[0] for kinds in (schema.PUSH_POP, schema.START_END, schema.MARK))
INFO, WARNING = (frames.SEVERITIES.index(name) for name in ("info", "warning"))


class Report(Protocol):
    """The report that is written."""

    pids: set[int]  # the processes that have a spool

    def add(self, table: str, columns: Mapping[str, Any]) -> None:
        """Append rows to a table."""

    def text(self, text: str) -> int:
        """Return the id of a text."""

    def note(self, process: int, text: str, severity: int = WARNING) -> None:
        """Add a message of the profiler."""

    def extend(self, end: int) -> None:
        """Note a time up to which the capture lasted."""


class AnnotationTables:
    """Writes the rows of one process."""

    def __init__(self, export: Report, process: Process, clock: Clock) -> None:
        self._export, self._process, self._clock = export, process, clock
        self._bits = process.pid << PROCESS_BITS

    def write(self) -> None:
        """Write the ranges of the process, and of forked children that have no spool of their own.

        A forked child records its ranges beside its parent's. If it has a spool, its own clocks count.
        """
        own = self._process.folder / ANNOTATIONS
        inherited = [*own.parent.parent.glob(f"*/{own.stem}-{self._process.pid}{own.suffix}")]
        of_children = own.parent.glob(f"{own.stem}-*{own.suffix}")
        for path in [*([own] if own.exists() else []), *inherited, *of_children]:
            recording = read_recording(path)
            pid = int(recording.header["pid"])
            if pid == self._process.pid or pid not in self._export.pids:
                self._recorded_ranges(recording, pid << PROCESS_BITS)
            if pid == self._process.pid:
                self._witness(recording)

    def _recorded_ranges(self, recording: Recording, process: int) -> None:
        labels = [self._export.text(name) for name, *_ in recording.labels]
        domains = _numbers(domain for _, domain, _, _ in recording.labels)
        categories = _numbers(category for _, _, category, _ in recording.labels)
        table = _LabelTable(recording, labels, domains, categories)
        self._ranges(recording, table, process)
        self._marks(recording, table, process)
        for name, number in domains.items():
            self._name_row(schema.DOMAIN_NAME, name, process, {"domain": number})
        # A category is named in its domain: every pair that occurs.
        for domain, name in dict.fromkeys((d, c) for _, d, c, _ in recording.labels if c):
            numbers = {"domain": domains.get(domain or "", 0), "category": categories[name]}
            self._name_row(schema.CATEGORY_NAME, name, process, numbers)
        for thread, name in recording.threads.items():
            row = {"thread": process | thread, "name": self._export.text(name)}
            self._export.add("threads", row)

    def _ranges(self, recording: Recording, table: _LabelTable, process: int) -> None:
        label, kind, thread, start, end = recording.columns["ranges"][:5]
        ended = end >= 0
        payload = recording.payloads["ranges"].ints
        self._export.add(
            "annotations",
            {
                **table.columns(label),
                "type": np.where(kind == 0, PUSH_POP, START_END),
                "start": self._clock.of_host(start),
                "end": where(ended, self._clock.of_host(np.where(ended, end, start))),
                "thread": thread | process,
                "payload": without_zero(payload),
            },
        )
        if len(start):
            self._export.extend(int(self._clock.of_host(np.where(ended, end, start)).max()))

    def _marks(self, recording: Recording, table: _LabelTable, process: int) -> None:
        label, thread, time = recording.columns["marks"]
        self._export.add(
            "annotations",
            {
                **table.columns(label),
                "type": [MARK] * len(time),
                "start": self._clock.of_host(time),
                "thread": thread | process,
                "payload": without_zero(recording.payloads["marks"].ints),
                "number": _numbers_of(recording.payloads["marks"]),
            },
        )

    def _name_row(self, event: int, name: str, process: int, numbers: Mapping[str, int]) -> None:
        """Write the event that names a domain or a category."""
        row = {"type": event, "start": 0, "thread": process, "text_id": self._export.text(name)}
        self._export.add("annotations", {**row, **numbers})

    def _witness(self, recording: Recording) -> None:
        """Compare the innermost range of each call by time with the one that CUPTI noted, and note the result."""
        notes = [*self._process.records(records.EXTERNAL)]
        calls = [
            rows
            for kind in (records.RUNTIME, records.DRIVER)
            for rows in self._process.records(kind)
        ]
        if not (notes and calls):
            return
        columns = recording.columns["ranges"]
        pushed = columns[KIND] == 0
        thread, start, end = (columns[number][pushed] for number in (THREAD, START, END))
        of_report = self._clock.of_host
        result = witness.compare(
            np.concatenate(notes),
            witness.Calls(
                _joined(calls, "correlation"),
                _joined(calls, "thread"),
                self._clock.of_cupti(_joined(calls, "start")),
            ),
            self._process.rows(WITNESS, WITNESS_FIELDS),
            witness.Ranges(
                thread, start, of_report(start), np.where(end < 0, LAST, of_report(end))
            ),
        )
        severity = INFO if result.agreed == result.noted else WARNING
        text = (
            f"process {self._process.pid}: the open range that CUPTI noted is the one by time for"
            f" {result.agreed} of {result.noted} calls"
        )
        self._export.note(self._bits, text, severity)


class _LabelTable:
    """The labels of a recording as columns of the table of annotations."""

    def __init__(
        self,
        recording: Recording,
        texts: list[int],
        domains: Mapping[str, int],
        categories: Mapping[str, int],
    ) -> None:
        self._texts = np.array(texts, np.int64)
        of_label = [
            (domains.get(d or "", 0), categories.get(c or "", 0)) for _, d, c, _ in recording.labels
        ]
        self._domains, self._categories = np.array(of_label, np.int64).reshape(-1, 2).T
        self._colors = np.array([color for *_, color in recording.labels], object)

    def columns(self, label: Ints) -> Columns:
        """Return the columns for events with these labels."""
        return {
            "text_id": self._texts[label],
            "domain": self._domains[label],
            "category": self._categories[label],
            "color": self._colors[label].tolist(),
        }


def _numbers(names: Iterator[str | None]) -> dict[str, int]:
    """Return a number from 1 on for each distinct name."""
    return {name: number for number, name in enumerate(dict.fromkeys(filter(None, names)), 1)}


def _numbers_of(payloads: Payloads) -> list[float | None]:
    """Return the payloads that are no integers, such as samples of a counter."""
    result: list[float | None] = [None] * len(payloads.ints)
    for row, text in payloads.others.items():
        with suppress(ValueError):
            result[row] = float(text)
    return result


def _joined(parts: Sequence[np.ndarray], name: str) -> Ints:
    """Return a field of all records."""
    return np.concatenate([rows[name] for rows in parts]).astype(np.int64)
