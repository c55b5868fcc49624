"""Read a snapshot file: the plain data of a pickle or JSON, as entries and stacks."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridge.importers import plain_data
from bridge.importers.arrays import MISSING, Ints
from bridge.importers.errors import NotAReport
from bridge.importers.kineto.events import GZIP, MAX_NS, clean, integers, unpacked
from bridge.importers.records import record

OPENING = re.compile(
    rb'(?:\xef\xbb\xbf)?\s*(?:\{\s*"(segments|device_traces|allocator_settings|external_annotations)"'
    rb'|\[\s*\{\s*"(device|address|total_size)")\s*:'
)
HEAD = 4096
MAX_BYTES = 2 << 30  # the objects take about ten times as much memory


def is_snapshot(path: Path) -> bool:
    """Return whether a file, packed or not, begins as a pickle or as JSON of a snapshot."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    if head.startswith(GZIP):
        with suppress(zlib.error):
            head = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head, HEAD)
    return bool(plain_data.PICKLE.match(head) or OPENING.match(head))


def read_snapshot(path: Path) -> dict[str, Any]:
    """Return the contents of a snapshot; raises NotAReport for other files."""
    data = unpacked(path, MAX_BYTES)
    try:
        result = plain_data.parse(path.name, data, "snapshot")
    except MemoryError as error:
        raise NotAReport(
            f"{path.name}: the objects in its {len(data)} bytes do not fit into memory;"
            " record fewer entries (max_entries)"
        ) from error
    if isinstance(result, list):  # of torch.cuda.memory_snapshot()
        result = {"segments": result}
    traces, segments = (_list_of(result, key) for key in ("device_traces", "segments"))
    if traces is None or segments is None or not isinstance(result, dict):
        raise NotAReport(
            f"{path.name}: a pickle or JSON, but no snapshot of torch.cuda.memory"
            " (segments and device_traces)"
        )
    if _count_entries(traces, segments) > len(data):
        raise NotAReport(f"{path.name}: damaged: more entries than bytes; dump the snapshot again")
    return {"device_traces": traces, "segments": segments}


def _count_entries(traces: list[Any], segments: list[Any]) -> int:
    """Count the entries to read; a list that a pickle refers to repeatedly counts each time."""
    blocks = [segment.get("blocks") for segment in segments if type(segment) is dict]
    return sum(
        len(entries) for entries in (segments, *traces, *blocks) if isinstance(entries, list)
    )


def _list_of(result: object, key: str) -> list[Any] | None:
    """Return a list of the snapshot, empty if it is absent; None if it is no list."""
    if not isinstance(result, dict) or not result.keys() & {"device_traces", "segments"}:
        return None
    entries = result.get(key, [])
    return entries if isinstance(entries, list) else None


# -- Entries of the traces as columns


ACTIONS = (
    "alloc free_requested free_completed segment_alloc segment_free segment_map segment_unmap oom snapshot"
).split()
ALLOC, REQUESTED, FREED, GROWN, SHRUNK, MAPPED, UNMAPPED, OOM, _ = range(len(ACTIONS))
MAX_ENTRIES = 50_000_000
NS = 1_000  # in a µs, the unit of times; also the distance of entries without times


@record
class Events:
    """Entries of the traces, by device and in the order of the trace.

    ``time`` is in ns and ascends strictly per device; ``action`` is an index into `ACTIONS`;
    ``frames`` are the lists of frames as in the file. ``timed`` is whether times were recorded,
    ``broken`` the number of invalid entries.
    """

    device: Ints
    time: Ints
    action: Ints
    address: Ints
    bytes: Ints
    free: Ints
    frames: list[Any]
    timed: bool = True
    broken: int = 0

    @classmethod
    def of(cls, name: str, traces: Sequence[Any]) -> Events:
        """Read the traces, one per device."""
        lists = [trace if isinstance(trace, list) else [] for trace in traces]
        if sum(map(len, lists)) > MAX_ENTRIES:
            raise NotAReport(
                f"{name}: over {MAX_ENTRIES} entries; record fewer of them (max_entries)"
            )
        entries = [entry if type(entry) is dict else {} for entry in chain.from_iterable(lists)]
        device = np.repeat(np.arange(len(lists)), [len(trace) for trace in lists])
        action = _actions([entry.get("action") for entry in entries])
        address, size, free, micros = (
            integers([entry.get(key) for entry in entries])
            for key in ("addr", "size", "device_free", "time_us")
        )
        timed = bool((micros[action != MISSING] != MISSING).all()) and len(micros) > 0
        is_valid = (action != MISSING) & ((address >= 0) | (action == OOM)) & (size >= 0)
        is_valid &= (micros >= 0) & (micros < MAX_NS // NS) if timed else True
        rows = np.flatnonzero(is_valid)
        time = _times(device[rows], micros[rows] * NS if timed else np.arange(len(rows)) * NS)
        stacks = [entries[row].get("frames") for row in rows.tolist()]
        return cls(
            device=device[rows],
            time=time,
            action=action[rows],
            address=address[rows],
            bytes=size[rows],
            free=free[rows],
            frames=stacks,
            timed=timed,
            broken=len(entries) - len(rows),
        )

    def __len__(self) -> int:
        return len(self.time)

    def take(self, rows: Ints | NDArray[np.bool_]) -> Events:
        """Return some entries, without their frames."""
        names = ("device", "time", "action", "address", "bytes", "free")
        return replace(self, frames=[], **{name: getattr(self, name)[rows] for name in names})


def _actions(names: Sequence[Any]) -> Ints:
    place: dict[Any, int] = {name: code for code, name in enumerate(ACTIONS)}
    return np.array(
        [place.get(action, MISSING) if type(action) is str else MISSING for action in names],
        np.int64,
    )


def _times(device: Ints, time: Ints) -> Ints:
    """Return times that ascend strictly per device; equal or earlier ones move by 1 ns each."""
    result = time.copy()
    for number in np.unique(device).tolist():  # a loop over devices
        rows = np.flatnonzero(device == number)
        place = np.arange(len(rows))
        result[rows] = np.maximum.accumulate(time[rows] - place) + place
    return result


# -- Stacks as ranges


MAX_DEPTH = 64  # lines of a stack, the innermost ones
MAX_LINE = 1 << 31  # of line numbers
TORCH_FILE = re.compile(
    r"(?:site|dist)-packages[/\\]torch[/\\]"
    r"|[/\\]torch[/\\](?:nn|optim|autograd|utils|cuda|fx|jit|distributed|profiler|_\w+|functional\.py)(?:[/\\]|$|\.py)"
)
PYTHON_FILE = re.compile(r"\.pyx?$|^<(?!frozen)|^/tmp/ipykernel", re.IGNORECASE)
OPERATOR = re.compile(r"at::_ops::(\w+)::(?:call|redispatch)")

Line = tuple[str, int, str]  # file, number, function


class Stacks:
    """Number the distinct stacks of entries, and return their lines."""

    def __init__(self) -> None:
        self.names: dict[Line, int] = {}
        self.known: dict[tuple[int, ...], int] = {(): 0}
        self.by_frames: dict[tuple[Line | None, ...], int] = {}

    def of(self, lists: Sequence[Any]) -> Ints:
        """Return the number of the stack of each list of frames, 0 for none."""
        shared: dict[int, int] = {}  # by the identity of the list
        result = []
        for frames in lists:  # a loop over entries
            if id(frames) not in shared:
                shared[id(frames)] = self._number(frames)
            result.append(shared[id(frames)])
        return np.array(result, np.int64)

    def _number(self, frames: Any) -> int:
        if type(frames) is not list or not frames:
            return 0
        stack = tuple(map(_line, frames))
        if stack not in self.by_frames:
            codes = tuple(
                self.names.setdefault(line, len(self.names)) for line in _program_lines(stack)
            )
            self.by_frames[stack] = self.known.setdefault(codes, len(self.known))
        return self.by_frames[stack]

    def lines(self) -> Ints:
        """Return the lines of each stack, a row each, outermost first; the rest is -1."""
        depth = max(map(len, self.known))
        result = np.full((len(self.known), depth), MISSING)
        for codes, row in self.known.items():  # a loop over distinct stacks
            result[row, : len(codes)] = codes
        return result

    def texts(self) -> list[str]:
        """Return the name of each line, such as ``train.py:12 forward``.

        It includes the folder where several files have the same name.
        """
        homes: dict[str, set[str]] = {}
        for file, _, _ in self.names:
            homes.setdefault(_parts(file)[-1], set()).add(file)
        return [clean(_line_name(line, len(homes[_parts(line[0])[-1]]) > 1)) for line in self.names]


def _program_lines(stack: Iterable[Line | None]) -> list[Line]:
    """Return the lines of the program, the outermost first.

    Lines of PyTorch and of C++ are left out unless there are no others. A stack without Python
    gives the operator of PyTorch that was called, if there is one.
    """
    lines = [line for line in stack if line]
    python = [line for line in lines if _is_python(line[0])]
    program = [line for line in python if not _is_of_torch(line[0])]
    if program or python:
        return [*reversed((program or python)[:MAX_DEPTH])]
    called = [match[1] for match in (OPERATOR.search(name) for _, _, name in lines) if match]
    return [("", 0, f"aten::{called[-1]}")] if called else []


@cache
def _is_python(file: str) -> bool:
    return PYTHON_FILE.search(file) is not None


@cache
def _is_of_torch(file: str) -> bool:
    return TORCH_FILE.search(file) is not None


def _line(frame: Any) -> Line | None:
    if type(frame) is not dict:
        return None
    file, line, name = frame.get("filename"), frame.get("line"), frame.get("name")
    if type(file) is not str or type(name) is not str:
        return None
    return file, line if type(line) is int and 0 <= line < MAX_LINE else 0, name


def _parts(file: str) -> list[str]:
    return re.split(r"[/\\]", file)


def _line_name(line: Line, several: bool) -> str:
    file, number, name = line
    return f"{'/'.join(_parts(file)[-2 if several else -1 :])}:{number} {name}" if file else name


def ranges(stack: Ints, time: Ints, lines: Ints) -> tuple[Ints, Ints, Ints]:
    """Return line, start and end of ranges from the stacks of entries, which are in order of time.

    A line of a stack is open from the first entry that has it to the first one that does not;
    outer ranges come before inner ones.
    """
    if not len(stack):
        return stack, stack, stack
    line_rows = lines[stack]
    common = (
        np.cumprod(line_rows[1:] == line_rows[:-1], axis=1).sum(axis=1)
        if lines.shape[1]
        else line_rows[1:, :0]
    )
    depth = (line_rows != MISSING).sum(axis=1)
    shared = np.append(0, np.minimum(common, np.minimum(depth[1:], depth[:-1])))
    over = int(time[-1]) + 1
    parts = [
        _ranges_of_depth(level, line_rows, depth=depth, shared=shared, time=np.append(time, over))
        for level in range(int(depth.max()))
    ]
    if not parts:
        return stack[:0], stack[:0], stack[:0]
    line, start, end = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.lexsort((-end, start))
    return line[order], start[order], end[order]


def _ranges_of_depth(
    level: int, line_rows: Ints, depth: Ints, shared: Ints, time: Ints
) -> tuple[Ints, Ints, Ints]:
    """Return the ranges of one depth; each begins and ends where stacks differ at this depth."""
    parts = np.flatnonzero(shared <= level)
    ends = np.append(parts[1:], len(line_rows))
    present = depth[parts] > level
    return line_rows[parts[present], level], time[parts[present]], time[ends[present]]
