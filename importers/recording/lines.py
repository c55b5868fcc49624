"""The lines of a recording become columns. The format is in docs/recordings.md.

The invariant: all whole lines are read; of the last one, cut where its writer was killed, nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from importers.errors import NotAReport
from importers.frames import CALL_ID, CALL_ID_SHIFT, MISSING, RANGE_KINDS
from importers.texts import Ints

# -- One line's events as columns, each checked as it is read


LABEL, KIND, THREAD, START, END = range(5)  # columns of ranges, the payloads apart
EVENTS = {"calls": 2, "ranges": 6, "marks": 4, "open": 6}  # columns of each
PLAIN = {"calls": 2, "ranges": 5, "marks": 3, "open": 5}  # those that are no payloads
PROCESS_BITS = 24  # of threads, below the process, as Nsight Systems numbers them
CALL_BITS = 48
LATEST = 1 << 62  # ns: sums of times stay within 64 bits

Label = tuple[str, str | None, str | None, int | None]  # name, domain, category, colour


@dataclass
class Payloads:
    """The payload of each row: integers, and the texts of those that are none, -1 there."""

    ints: Ints
    others: Mapping[int, str]


@dataclass
class Batch:
    """The events of one line."""

    columns: list[Ints]
    payloads: Payloads


def batch(kind: str, value: Sequence[Sequence[Any]]) -> Batch:
    """Read the events of a line; raises ValueError or TypeError for what makes no sense."""
    if len(value) != EVENTS[kind] or len({len(column) for column in value}) != 1:
        raise ValueError(kind)
    columns = [ints(column) for column in value[: PLAIN[kind]]]
    CHECKS[kind](columns)
    return Batch(columns, payloads(value[PLAIN[kind]] if PLAIN[kind] < EVENTS[kind] else ()))


def label(name: Any, domain: Any, category: Any, color: Any) -> Label:
    """Read a label."""
    texts = [one for one in (domain, category) if one is not None]
    if not all(isinstance(one, str) for one in (name, *texts)):
        raise TypeError("a text")
    if color is not None:
        within(ints([color]), 1 << 32)
    return name, domain, category, color


def ints(column: Sequence[Any]) -> Ints:
    """Read integers; raises TypeError for anything else."""
    found = np.array(column)
    if found.ndim != 1 or (found.size and found.dtype.kind != "i"):
        raise TypeError("an integer of 64 bits")
    return found.astype(np.int64, copy=False)


def within(column: Ints, end: int, first: int = 0) -> None:
    """Raise ValueError for what is not in [first, end)."""
    if len(column) and not (first <= column.min() and column.max() < end):
        raise ValueError("out of range")


def payloads(values: Sequence[Any]) -> Payloads:
    """Take the integers; a float is a text, and there are few."""
    found = np.array(values) if all(type(v) is int for v in values) else None
    if found is not None and (found.dtype.kind == "i" or not len(values)):
        return Payloads(found.astype(np.int64, copy=False), {})
    others = {row: _text(v) for row, v in enumerate(values) if type(v) is not int}
    plain = [MISSING if row in others else value for row, value in enumerate(values)]
    return Payloads(np.array(plain, np.int64), others)


def _text(value: Any) -> str:
    """Return a payload as text; the names of what is no number are said as text already."""
    return value if isinstance(value, str) else json.dumps(value)


def _calls(columns: Sequence[Ints]) -> None:
    within(columns[0], 1 << CALL_BITS)


def _ranges(columns: Sequence[Ints]) -> None:
    _, kind, thread, start, end = columns
    within(kind, len(RANGE_KINDS))
    within(thread, 1 << PROCESS_BITS)
    within(start, LATEST)
    ended = end != MISSING
    within(end[ended], LATEST)
    if (end < start)[ended].any():
        raise ValueError("an end before its start")


def _marks(columns: Sequence[Ints]) -> None:
    _, thread, time = columns
    within(thread, 1 << PROCESS_BITS)
    within(time, LATEST)


CHECKS = {"calls": _calls, "ranges": _ranges, "marks": _marks, "open": _ranges}


# -- The lines of a recording become columns. The format is in docs/recordings.md


FORMAT, VERSION = "bridge.recording", "1"
BEGINNING = f'{{"format":"{FORMAT}'.encode()
CALL_IDS = CALL_ID << CALL_ID_SHIFT  # what the numbers of calls begin from, as payloads
DAMAGE = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)


@dataclass
class Recording:
    """One recording; ``columns`` are int64, a row per event.

    Labels and details are told of by their places among ``labels`` and ``details``.
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
        """The process, as Nsight Systems numbers them."""
        return int(self.header["pid"]) << PROCESS_BITS


def is_recording(path: Path) -> bool:
    """Tell whether a file begins as a recording does."""
    with path.open("rb") as file:
        return file.read(len(BEGINNING)) == BEGINNING


def header(path: Path) -> dict[str, Any]:
    """Return the first line of a recording; raises NotAReport if it is none, and OSError."""
    with path.open("rb") as file:
        line = file.readline()
    if not (line.startswith(BEGINNING) and line.endswith(b"\n")):
        raise NotAReport(f"{path.name}: not a recording of nsight-bridge")
    return _header(path.name, line)


def read(path: Path) -> Recording:
    """Read a recording; raises NotAReport for a damaged or a newer one."""
    with path.open("rb") as file:
        return parse(path.name, file)


def parse(name: str, lines: Iterable[bytes]) -> Recording:
    """Read the lines of a recording."""
    numbered = enumerate(lines, 1)
    _, first = next(numbered, (1, b""))
    if not first.endswith(b"\n"):
        raise NotAReport(f"{name}: not a recording, or its writer was killed at once")
    found = _Lines(Recording(name, _header(name, first)))
    for number, line in numbered:
        if not line.endswith(b"\n"):
            found.recording.torn = True
            break
        try:
            found.take(_decoded(line))
        except DAMAGE as error:
            raise NotAReport(f"{name}: line {number} is damaged; copy the file again") from error
    return found.joined()


def _header(name: str, line: bytes) -> dict[str, Any]:
    try:
        head = _decoded(line)
        named, _, version = str(head["format"]).rpartition("/")
        if named != FORMAT or not version.isalnum():
            raise ValueError("another format")
        if version == VERSION:
            within(ints([head["pid"]]), 1 << PROCESS_BITS)
            within(ints([head["epoch_ns"], head["monotonic_ns"]]), LATEST)
    except DAMAGE as error:
        raise NotAReport(f"{name}: not a recording: its first line is damaged") from error
    if version != VERSION:
        raise NotAReport(f"{name}: a recording of a newer nsight-bridge (format {version})")
    return head


def _decoded(line: bytes) -> dict[str, Any]:
    found = json.loads(line)
    if not isinstance(found, dict):
        raise TypeError("no object")
    if b"\\u" in line:  # a lone surrogate, say, of which no UTF-8 can be made later
        json.dumps(found, ensure_ascii=False).encode()
    return found


class _Lines:
    """The lines of a recording, put together."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.labels: dict[int, Label] = {}
        self.details: dict[int, str] = {}
        self.batches: dict[str, list[Batch]] = {kind: [] for kind in EVENTS}

    def take(self, line: Mapping[str, Any]) -> None:
        """Take a line; what is of a kind that is not known is passed over."""
        for kind, value in line.items():
            if kind == "labels":
                self.labels |= {int(n): label(*one) for n, one in value.items()}
            elif kind == "details":
                texts = {int(n): json.dumps(d, ensure_ascii=False) for n, d in value.items()}
                self.details |= texts
            elif kind == "threads":
                self.recording.threads |= {int(n): str(name) for n, name in value.items()}
            elif kind == "metadata":
                self.recording.metadata |= dict(value)
            elif kind == "open":  # what is open now takes the place of what was open before
                self.batches[kind] = [batch(kind, value)]
            elif kind in EVENTS:
                self.batches[kind].append(batch(kind, value))

    def joined(self) -> Recording:
        """Return all batches one after another, what was open at the end behind the ranges."""
        found = self.recording
        found.labels, found.details = [*self.labels.values()], [*self.details.values()]
        parts = self.batches | {"ranges": [*self.batches["ranges"], *self.batches["open"]]}
        for kind, of_kind in parts.items():
            columns = zip(*(one.columns for one in of_kind), strict=True)
            joined = [np.concatenate(column) for column in columns]
            found.columns[kind] = joined or [np.empty(0, np.int64)] * PLAIN[kind]
            found.payloads[kind] = _payloads([one.payloads for one in of_kind])
        self._place()
        return found

    def _place(self) -> None:
        """Let events tell of labels and details by their places."""
        columns, name = self.recording.columns, self.recording.name
        for kind in ("ranges", "marks", "open"):
            columns[kind][LABEL] = _places(self.labels, columns[kind][LABEL], f"{name}: names")
        columns["calls"][1] = _places(self.details, columns["calls"][1], f"{name}: details")


def _payloads(parts: Sequence[Payloads]) -> Payloads:
    first = np.cumsum([0, *(len(part.ints) for part in parts)]).tolist()
    others = {
        row + at: text
        for part, at in zip(parts, first, strict=False)
        for row, text in part.others.items()
    }
    return Payloads(np.concatenate([np.empty(0, np.int64), *(p.ints for p in parts)]), others)


def _places(defined: Mapping[int, object], wanted: Ints, what: str) -> Ints:
    """Return the place of each number among those that are defined."""
    numbers = np.array(list(defined), np.int64)
    order = np.argsort(numbers)
    place = np.searchsorted(numbers, wanted, sorter=order)
    if (place >= len(numbers)).any() or (numbers[order[place]] != wanted).any():
        raise NotAReport(f"{what} are missing in it; copy the file again")
    return order[place]
