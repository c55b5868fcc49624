"""Read the lines of a recording into columns; docs/recordings.md describes the format.

All complete lines are read. A last line that was cut because its writer was killed is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bridge.importers.arrays import MISSING, Ints
from bridge.importers.errors import NotAReport
from bridge.importers.frames import CALL_ID, CALL_ID_SHIFT, RANGE_KINDS

# -- The events of a line as columns


LABEL, KIND, THREAD, START, END = range(5)  # columns of ranges, without payloads
COLUMN_COUNTS = {"calls": 2, "ranges": 6, "marks": 4, "open": 6}  # columns of each kind
INTEGER_COLUMNS = {"calls": 2, "ranges": 5, "marks": 3, "open": 5}  # without payloads
PROCESS_BITS = 24  # bits of the thread, below those of the process, as in Nsight Systems
CALL_BITS = 48
MAX_NS = 1 << 62  # sums of times fit into 64 bits

Label = tuple[str, str | None, str | None, int | None]  # name, domain, category, colour


@dataclass
class Payloads:
    """The payload of each row: integers, -1 for other types, whose texts are in ``others``."""

    ints: Ints
    others: Mapping[int, str]


@dataclass
class Batch:
    """The events of one line."""

    columns: list[Ints]
    payloads: Payloads


def read_batch(kind: str, value: Sequence[Sequence[Any]]) -> Batch:
    """Read the events of a line; raises ValueError or TypeError for invalid ones."""
    if len(value) != COLUMN_COUNTS[kind] or len({len(column) for column in value}) != 1:
        raise ValueError(kind)
    columns = [read_ints(column) for column in value[: INTEGER_COLUMNS[kind]]]
    CHECKS[kind](columns)
    return Batch(
        columns,
        read_payloads(
            value[INTEGER_COLUMNS[kind]] if INTEGER_COLUMNS[kind] < COLUMN_COUNTS[kind] else ()
        ),
    )


def read_label(name: Any, domain: Any, category: Any, color: Any) -> Label:
    """Read a label; raises ValueError or TypeError for an invalid one."""
    texts = [text for text in (domain, category) if text is not None]
    if not all(isinstance(text, str) for text in (name, *texts)):
        raise TypeError("a text")
    if color is not None:
        check_range(read_ints([color]), 1 << 32)
    return name, domain, category, color


def read_ints(column: Sequence[Any]) -> Ints:
    """Return integers as an array; raises TypeError for other values."""
    result = np.array(column)
    if result.ndim != 1 or (result.size and result.dtype.kind != "i"):
        raise TypeError("an integer of 64 bits")
    return result.astype(np.int64, copy=False)


def check_range(column: Ints, end: int, first: int = 0) -> None:
    """Raise ValueError for values outside of [first, end)."""
    if len(column) and not (first <= column.min() and column.max() < end):
        raise ValueError("out of range")


def read_payloads(values: Sequence[Any]) -> Payloads:
    """Return payloads; other values than integers become texts."""
    result = np.array(values) if all(type(v) is int for v in values) else None
    if result is not None and (result.dtype.kind == "i" or not len(values)):
        return Payloads(result.astype(np.int64, copy=False), {})
    others = {row: _text(v) for row, v in enumerate(values) if type(v) is not int}
    integers = [MISSING if row in others else value for row, value in enumerate(values)]
    return Payloads(np.array(integers, np.int64), others)


def _text(value: Any) -> str:
    """Return a payload as text."""
    return value if isinstance(value, str) else json.dumps(value)


def _check_calls(columns: Sequence[Ints]) -> None:
    check_range(columns[0], 1 << CALL_BITS)


def _check_ranges(columns: Sequence[Ints]) -> None:
    _, kind, thread, start, end = columns
    check_range(kind, len(RANGE_KINDS))
    check_range(thread, 1 << PROCESS_BITS)
    check_range(start, MAX_NS)
    ended = end != MISSING
    check_range(end[ended], MAX_NS)
    if (end < start)[ended].any():
        raise ValueError("an end before its start")


def _check_marks(columns: Sequence[Ints]) -> None:
    _, thread, time = columns
    check_range(thread, 1 << PROCESS_BITS)
    check_range(time, MAX_NS)


CHECKS = {
    "calls": _check_calls,
    "ranges": _check_ranges,
    "marks": _check_marks,
    "open": _check_ranges,
}


# -- Recordings


FORMAT, VERSION = "bridge.recording", "1"
PREFIX = f'{{"format":"{FORMAT}'.encode()
CALL_PAYLOAD_BASE = CALL_ID << CALL_ID_SHIFT  # added to the number of a call to get its payload
DAMAGE = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)


@dataclass
class Recording:
    """A recording; ``columns`` are int64, a row per event.

    Events refer to labels and details by their indices in ``labels`` and ``details``.
    """

    name: str
    header: Mapping[str, Any]
    labels: list[Label] = field(default_factory=list)
    details: list[str] = field(default_factory=list)  # as JSON
    threads: dict[int, str] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, list[Ints]] = field(default_factory=dict)
    payloads: dict[str, Payloads] = field(default_factory=dict)
    torn: bool = False

    @property
    def process(self) -> int:
        """The process, numbered as in Nsight Systems."""
        return int(self.header["pid"]) << PROCESS_BITS


def is_recording(path: Path) -> bool:
    """Return whether a file begins as a recording does."""
    with path.open("rb") as file:
        return file.read(len(PREFIX)) == PREFIX


def header(path: Path) -> dict[str, Any]:
    """Return the first line of a recording; raises NotAReport for other files, and OSError."""
    with path.open("rb") as file:
        line = file.readline()
    if not (line.startswith(PREFIX) and line.endswith(b"\n")):
        raise NotAReport(f"{path.name}: not a recording of nsight-bridge")
    return _header(path.name, line)


def read_recording(path: Path) -> Recording:
    """Read a recording; raises NotAReport if it is damaged or of a newer version."""
    with path.open("rb") as file:
        return parse_recording(path.name, file)


def parse_recording(name: str, lines: Iterable[bytes]) -> Recording:
    """Read the lines of a recording; raises as `read_recording`."""
    numbered = enumerate(lines, 1)
    _, first = next(numbered, (1, b""))
    if not first.endswith(b"\n"):
        raise NotAReport(f"{name}: not a recording, or its writer was killed at once")
    result = _LineReader(Recording(name, _header(name, first)))
    for number, line in numbered:
        if not line.endswith(b"\n"):
            result.recording.torn = True
            break
        try:
            result.take(_decode(line))
        except DAMAGE as error:
            raise NotAReport(f"{name}: line {number} is damaged; copy the file again") from error
    return result.joined()


def _header(name: str, line: bytes) -> dict[str, Any]:
    try:
        fields = _decode(line)
        format_, _, version = str(fields["format"]).rpartition("/")
        if format_ != FORMAT or not version.isalnum():
            raise ValueError("another format")
        if version == VERSION:
            check_range(read_ints([fields["pid"]]), 1 << PROCESS_BITS)
            check_range(read_ints([fields["epoch_ns"], fields["monotonic_ns"]]), MAX_NS)
    except DAMAGE as error:
        raise NotAReport(f"{name}: not a recording: its first line is damaged") from error
    if version != VERSION:
        raise NotAReport(f"{name}: a recording of a newer nsight-bridge (format {version})")
    return fields


def _decode(line: bytes) -> dict[str, Any]:
    result = json.loads(line)
    if not isinstance(result, dict):
        raise TypeError("no object")
    if b"\\u" in line:  # such as a lone surrogate, which UTF-8 cannot encode
        json.dumps(result, ensure_ascii=False).encode()
    return result


class _LineReader:
    """Collects the lines of a recording."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.labels: dict[int, Label] = {}
        self.details: dict[int, str] = {}
        self.batches: dict[str, list[Batch]] = {kind: [] for kind in COLUMN_COUNTS}

    def take(self, line: Mapping[str, Any]) -> None:
        """Add a line; unknown kinds of values are ignored."""
        for kind, value in line.items():
            if kind == "labels":
                self.labels |= {
                    int(number): read_label(*fields) for number, fields in value.items()
                }
            elif kind == "details":
                texts = {
                    int(number): json.dumps(detail, ensure_ascii=False)
                    for number, detail in value.items()
                }
                self.details |= texts
            elif kind == "threads":
                self.recording.threads |= {int(number): str(name) for number, name in value.items()}
            elif kind == "metadata":
                self.recording.metadata |= dict(value)
            elif kind == "open":  # replaces the ranges that were open before
                self.batches[kind] = [read_batch(kind, value)]
            elif kind in COLUMN_COUNTS:
                self.batches[kind].append(read_batch(kind, value))

    def joined(self) -> Recording:
        """Return the recording with all batches; ranges that are still open come last."""
        recording = self.recording
        recording.labels, recording.details = [*self.labels.values()], [*self.details.values()]
        parts = self.batches | {"ranges": [*self.batches["ranges"], *self.batches["open"]]}
        for kind, batches in parts.items():
            columns = zip(*(batch.columns for batch in batches), strict=True)
            joined = [np.concatenate(column) for column in columns]
            recording.columns[kind] = joined or [np.empty(0, np.int64)] * INTEGER_COLUMNS[kind]
            recording.payloads[kind] = _concat_payloads([batch.payloads for batch in batches])
        self._resolve_references()
        return recording

    def _resolve_references(self) -> None:
        """Replace the numbers of labels and details by their indices."""
        columns, name = self.recording.columns, self.recording.name
        for kind in ("ranges", "marks", "open"):
            columns[kind][LABEL] = _indices(self.labels, columns[kind][LABEL], f"{name}: names")
        columns["calls"][1] = _indices(self.details, columns["calls"][1], f"{name}: details")


def _concat_payloads(parts: Sequence[Payloads]) -> Payloads:
    first = np.cumsum([0, *(len(part.ints) for part in parts)]).tolist()
    others = {
        row + offset: text
        for part, offset in zip(parts, first, strict=False)
        for row, text in part.others.items()
    }
    return Payloads(np.concatenate([np.empty(0, np.int64), *(p.ints for p in parts)]), others)


def _indices(defined: Mapping[int, object], references: Ints, subject: str) -> Ints:
    """Return the index of each number among those that are defined."""
    numbers = np.array(list(defined), np.int64)
    order = np.argsort(numbers)
    place = np.searchsorted(numbers, references, sorter=order)
    if (place >= len(numbers)).any() or (numbers[order[place]] != references).any():
        raise NotAReport(f"{subject} are missing; copy the file again")
    return order[place]
