"""The spool of a process: what CUPTI handed over, on disk while the program runs.

A folder per process holds a file of records per kind, of nodes of graphs, and `journal.jsonl`, whose lines are small
facts: the process, pairs of clocks, names by pointer, dropped records. A killed process leaves all of it but what was
in flight; `export` makes a report of the folders.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridge.annotate.recording.sink import FOLDER_MODE
from bridge.capture.cupti.records import LAYOUTS, record_type

if TYPE_CHECKING:
    import numpy as np

FORMAT = "bridge.cupti/1"
JOURNAL, ANNOTATIONS, NODES, WITNESS = (
    "journal.jsonl",
    "annotations.jsonl",
    "nodes.bin",
    "witness.bin",
)
CHUNK = 1 << 18  # records that are read at once
NODE_FIELDS = ("time", "thread", "node", "original")  # int64 each
WITNESS_FIELDS = (
    "id",
    "thread",
    "start",
)  # int64 each: external id, thread, and the start of the range on the host


class Spool:
    """Writes the spool of this process into a new folder below ``parent``; raises OSError."""

    def __init__(self, parent: Path) -> None:
        name = f"{os.uname().nodename}-{os.getpid()}-{time.time_ns()}"
        self.folder = parent.absolute() / name
        self.folder.mkdir(FOLDER_MODE, parents=True)

    def remove(self) -> None:
        """Delete the spool, and the folder around it if that is empty."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):
            self.folder.parent.rmdir()

    def begin(self, version: str, path: str) -> None:
        """Write the first line: the process, and the libcupti in use."""
        self.note(
            {
                "format": FORMAT,
                "pid": os.getpid(),
                "host": os.uname().nodename,
                "program": Path(sys.argv[0]).name if sys.argv else "python",
                "cupti": version,
                "library": path,
            }
        )

    def note(self, fact: Mapping[str, Any]) -> None:
        """Append a line to the journal."""
        self._append(JOURNAL, json.dumps(fact).encode() + b"\n")

    def add(self, kind: int, records: np.ndarray) -> None:
        """Append records of a kind."""
        self._append(f"{kind}.bin", records.data)

    def add_rows(self, name: str, rows: Sequence[tuple[int, ...]]) -> None:
        """Append rows of integers to `NODES` or `WITNESS`."""
        self.add_integers(name, array("q", [value for row in rows for value in row]))

    def add_integers(self, name: str, values: array[int]) -> None:
        """Append integers of 64 bits."""
        self._append(name, values.tobytes())

    def _append(self, name: str, data: bytes | memoryview) -> None:
        # Opened each time, as recordings are: a program may close all of its files.
        with (self.folder / name).open("ab") as file:
            file.write(data)


@dataclass
class Process:
    """The spool of a process, read; times of ``clocks`` are CUPTI's and the host's (monotonic), ns."""

    folder: Path
    facts: dict[str, Any] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)  # by pointer
    clocks: list[tuple[int, int, int, int]] = field(
        default_factory=list
    )  # cupti, host, epoch, slack
    calls: dict[tuple[int, int], str] = field(default_factory=dict)  # names by domain and number
    dropped: int = 0
    lost_nodes: int = 0  # creations of nodes of graphs
    gpus: list[dict[str, Any]] = field(default_factory=list)  # as `driver.gpus` gives them
    failed: str = ""  # why it records no more
    missing: list[str] = field(default_factory=list)  # what CUPTI refused to record
    stopped: bool = False

    @property
    def pid(self) -> int:
        return int(self.facts["pid"])

    def records(self, kind: int) -> Iterator[np.ndarray]:
        """Yield the records of a kind in chunks, in the order in which they came."""
        import numpy as np

        path = self.folder / f"{kind}.bin"
        if not path.exists():
            return
        size = LAYOUTS[kind][0]
        whole = path.stat().st_size // size  # a killed process may leave a cut record
        for first in range(0, whole, CHUNK):
            count = min(CHUNK, whole - first)
            yield np.fromfile(path, record_type(kind), count=count, offset=first * size)

    def rows(self, name: str, fields: tuple[str, ...]) -> dict[str, np.ndarray]:
        """Return the columns of `NODES` or `WITNESS`."""
        import numpy as np

        path = self.folder / name
        values = np.fromfile(path, np.int64) if path.exists() else np.empty(0, np.int64)
        whole = values[: len(values) // len(fields) * len(fields)].reshape(-1, len(fields))
        return {column: whole[:, number] for number, column in enumerate(fields)}


def read_processes(folder: Path) -> list[Process]:
    """Return the spools below a folder, the earliest process first; those without a clock are left out."""
    found = [read_process(path.parent) for path in sorted(folder.glob(f"*/{JOURNAL}"))]
    return sorted((one for one in found if one.clocks), key=lambda one: one.clocks[0][1])


def read_process(folder: Path) -> Process:
    """Read the journal of a spool; a last line that was cut is ignored."""
    process = Process(folder)
    for line in (folder / JOURNAL).read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):
            _take(process, json.loads(line))
    return process


def _take(process: Process, fact: Mapping[str, Any]) -> None:
    if "format" in fact:
        process.facts = dict(fact)
    process.names |= {int(pointer): name for pointer, name in fact.get("names", {}).items()}
    process.calls |= {(domain, number): name for domain, number, name in fact.get("calls", ())}
    process.clocks += [tuple(pair) for pair in fact.get("clocks", ())]
    process.dropped += fact.get("dropped", 0)
    process.missing += fact.get("missing", ())
    process.gpus += fact.get("gpus", ())
    process.lost_nodes += fact.get("lost_nodes", 0)
    process.failed = process.failed or fact.get("failed", "")
    process.stopped |= fact.get("stopped", False)
