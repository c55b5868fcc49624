"""The lines of a recording become columns. The format is in docs/recordings.md.

The invariant: all whole lines are read; of the last one, cut where its writer was killed, nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from importers.errors import NotAReport
from importers.frames import MISSING
from importers.texts import Ints

FORMAT, VERSION = "bridge.recording/", "1"
BEGINNING = f'{{"format":"{FORMAT}'.encode()
CALL_IDS = 0x4E42 << 48  # what the numbers of calls begin from, as payloads
LABEL, KIND, THREAD, START, END = range(5)  # columns of ranges, the payloads apart
EVENTS = {"calls": 2, "ranges": 6, "marks": 4, "open": 6}  # columns of each

Label = tuple[str, str | None, str | None, int | None]  # name, domain, category, colour


@dataclass
class Payloads:
    """The payload of each row: integers, and the texts of those that are none, '' for the others."""

    ints: Ints
    others: Mapping[int, str]


@dataclass
class Recording:
    """One recording; ``columns`` are int64, a row per event."""

    name: str
    header: Mapping[str, Any]
    labels: list[Label] = field(default_factory=list)
    details: dict[int, str] = field(default_factory=dict)  # as JSON
    threads: dict[int, str] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, list[Ints]] = field(default_factory=dict)
    payloads: dict[str, Payloads] = field(default_factory=dict)
    torn: bool = False

    @property
    def process(self) -> int:
        """The process, as Nsight Systems numbers them."""
        return int(self.header["pid"]) << 24


def is_recording(path: Path) -> bool:
    """Tell whether a file begins as a recording does."""
    with path.open("rb") as file:
        return file.read(len(BEGINNING)) == BEGINNING


def header(path: Path) -> dict[str, Any]:
    """Return the first line of a recording, {} if it is none; raises OSError."""
    with path.open("rb") as file:
        line = file.readline()
    if not (line.startswith(BEGINNING) and line.endswith(b"\n")):
        return {}
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
    found = Recording(name, _header(name, first))
    batches: dict[str, list[list[Any]]] = {kind: [] for kind in EVENTS}
    for number, line in numbered:
        if not line.endswith(b"\n"):
            found.torn = True
            break
        try:
            _take(found, batches, json.loads(line))
        except (ValueError, TypeError, KeyError) as error:
            raise NotAReport(f"{name}: line {number} is damaged; copy the file again") from error
    _join(found, batches)
    return found


def _header(name: str, line: bytes) -> dict[str, Any]:
    try:
        head = json.loads(line)
        version = str(head["format"]).removeprefix(FORMAT)
        int(head["pid"]), int(head["epoch_ns"])
    except (ValueError, TypeError, KeyError) as error:
        raise NotAReport(f"{name}: not a recording: its first line is damaged") from error
    if version != VERSION:
        raise NotAReport(f"{name}: a recording of a newer nsight-bridge (format {version})")
    return dict(head)


def _take(found: Recording, batches: dict[str, list[list[Any]]], line: Mapping[str, Any]) -> None:
    for kind, value in line.items():
        if kind == "labels":
            found.labels += [tuple(label) for label in value]
        elif kind == "details":
            found.details |= {int(n): json.dumps(d, ensure_ascii=False) for n, d in value.items()}
        elif kind == "threads":
            found.threads |= {int(number): str(name) for number, name in value.items()}
        elif kind == "metadata":
            found.metadata |= value
        elif kind in EVENTS:
            if len(value) != EVENTS[kind] or len({len(column) for column in value}) > 1:
                raise ValueError(kind)
            # What is open now takes the place of what was open before.
            batches[kind] = [value] if kind == "open" else [*batches[kind], value]


def _join(found: Recording, batches: Mapping[str, list[list[Any]]]) -> None:
    """Put batches one after another, and what was open at the end behind the ranges."""
    opened = {"ranges": [*batches["ranges"], *batches["open"]]}
    for kind, parts in {**batches, **opened}.items():
        plain = EVENTS[kind] if kind == "calls" else EVENTS[kind] - 1
        found.columns[kind] = [_column([part[at] for part in parts]) for at in range(plain)]
        if plain < EVENTS[kind]:
            found.payloads[kind] = _payloads([one for part in parts for one in part[plain]])


def _column(parts: list[list[int]]) -> Ints:
    return np.concatenate([np.empty(0, np.int64), *(np.array(p, np.int64) for p in parts)])


def _payloads(values: list[Any]) -> Payloads:
    """Take the integers; a float is a text, and there are few."""
    try:
        return Payloads(np.array(values, np.int64), {}) if _all_ints(values) else _mixed(values)
    except OverflowError:
        return _mixed(values)


def _all_ints(values: list[Any]) -> bool:
    return set(map(type, values)) <= {int}


def _mixed(values: list[Any]) -> Payloads:
    others = {row: json.dumps(value) for row, value in enumerate(values) if type(value) is not int}
    ints = [MISSING if row in others else value for row, value in enumerate(values)]
    return Payloads(np.array(ints, np.int64), others)
