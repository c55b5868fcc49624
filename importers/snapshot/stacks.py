"""Which lines of the program allocated: stacks of Python as ranges, each of them open while it lasts.

A line of a stack is open from the first entry of the trace that has it, to the first one that does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from importers.errors import NotAReport
from importers.frames import MISSING
from importers.kineto.events import LATEST, clean, integers
from importers.texts import Ints

# -- What happened on the devices, as columns: a row per entry of the traces, those of a device in its order


ACTIONS = (
    "alloc free_requested free_completed segment_alloc segment_free segment_map segment_unmap oom snapshot"
).split()
ALLOC, REQUESTED, FREED, GROWN, SHRUNK, MAPPED, UNMAPPED, OOM, _ = range(len(ACTIONS))
MOST = 50_000_000  # entries
NS = 1_000  # in a µs, which times are in; and between entries without any


@dataclass(frozen=True)
class Events:
    """Entries of the traces; ``time`` in ns, no two of a device alike; ``action`` a place in `ACTIONS`.

    ``frames`` are the lists of frames as they are there; ``timed`` tells whether times were recorded, and
    ``broken`` how many entries make no sense.
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
        if sum(map(len, lists)) > MOST:
            raise NotAReport(f"{name}: over {MOST} entries; record fewer of them (max_entries)")
        entries = [entry if type(entry) is dict else {} for entry in chain.from_iterable(lists)]
        device = np.repeat(np.arange(len(lists)), [len(one) for one in lists])
        action = _actions([entry.get("action") for entry in entries])
        address, size, free, micros = (
            integers([entry.get(key) for entry in entries])
            for key in ("addr", "size", "device_free", "time_us")
        )
        timed = bool((micros[action != MISSING] != MISSING).all()) and len(micros) > 0
        whole = (action != MISSING) & ((address >= 0) | (action == OOM)) & (size >= 0)
        whole &= (micros >= 0) & (micros < LATEST // NS) if timed else True
        rows = np.flatnonzero(whole)
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
        """Return some of them, without their frames."""
        names = ("device", "time", "action", "address", "bytes", "free")
        return replace(self, frames=[], **{name: getattr(self, name)[rows] for name in names})


def _actions(said: Sequence[Any]) -> Ints:
    place: dict[Any, int] = {name: code for code, name in enumerate(ACTIONS)}
    return np.array([place.get(s, MISSING) if type(s) is str else MISSING for s in said], np.int64)


def _times(device: Ints, time: Ints) -> Ints:
    """Move entries of one time, or of a clock that went back, by a nanosecond each, so that their order is that of time."""
    found = time.copy()
    for one in np.unique(device).tolist():  # a turn per device
        rows = np.flatnonzero(device == one)
        place = np.arange(len(rows))
        found[rows] = np.maximum.accumulate(time[rows] - place) + place
    return found


# -- Which lines of the program allocated: stacks of Python as ranges, each of them open while it lasts


DEEPEST = 64  # lines of a stack that are kept, the innermost
LAST = 1 << 31  # no file has as many lines
OF_TORCH = re.compile(
    r"(?:site|dist)-packages[/\\]torch[/\\]"
    r"|[/\\]torch[/\\](?:nn|optim|autograd|utils|cuda|fx|jit|distributed|profiler|_\w+|functional\.py)(?:[/\\]|$|\.py)"
)
OF_PYTHON = re.compile(r"\.pyx?$|^<(?!frozen)|^/tmp/ipykernel", re.IGNORECASE)
OPERATOR = re.compile(r"at::_ops::(\w+)::(?:call|redispatch)")

Line = tuple[str, int, str]  # file, number, function


class Stacks:
    """Numbers the stacks of entries, each distinct one once, and says which lines they have."""

    def __init__(self) -> None:
        self.names: dict[Line, int] = {}
        self.known: dict[tuple[int, ...], int] = {(): 0}
        self.by_frames: dict[tuple[Line | None, ...], int] = {}

    def of(self, lists: Sequence[Any]) -> Ints:
        """Return the number of the stack of each list of frames, 0 for none."""
        shared: dict[int, int] = {}  # entries that have one list have one stack
        found = []
        for frames in lists:  # a turn per entry
            if id(frames) not in shared:
                shared[id(frames)] = self._one(frames)
            found.append(shared[id(frames)])
        return np.array(found, np.int64)

    def _one(self, frames: Any) -> int:
        if type(frames) is not list or not frames:
            return 0
        stack = tuple(map(_line, frames))
        if stack not in self.by_frames:
            codes = tuple(self.names.setdefault(line, len(self.names)) for line in _shown(stack))
            self.by_frames[stack] = self.known.setdefault(codes, len(self.known))
        return self.by_frames[stack]

    def lines(self) -> Ints:
        """Return the lines of each stack, a row each, the outermost first; -1 where there are no more."""
        depth = max(map(len, self.known))
        found = np.full((len(self.known), depth), MISSING)
        for codes, row in self.known.items():  # a turn per distinct stack
            found[row, : len(codes)] = codes
        return found

    def texts(self) -> list[str]:
        """Return what each line is called: ``train.py:12 forward``, with the folder where files share a name."""
        homes: dict[str, set[str]] = {}
        for file, _, _ in self.names:
            homes.setdefault(_parts(file)[-1], set()).add(file)
        return [clean(_called(line, len(homes[_parts(line[0])[-1]]) > 1)) for line in self.names]


def _shown(stack: Iterable[Line | None]) -> list[Line]:
    """Return the lines of the program, the outermost first: neither PyTorch's own nor C++, unless there are no others.

    Where there is no Python at all, that is the operator of PyTorch's that was called, if the stack tells.
    """
    found = [line for line in stack if line]
    python = [line for line in found if _is_python(line[0])]
    own = [line for line in python if not _is_of_torch(line[0])]
    if own or python:
        return [*reversed((own or python)[:DEEPEST])]
    called = [match[1] for match in (OPERATOR.search(name) for _, _, name in found) if match]
    return [("", 0, f"aten::{called[-1]}")] if called else []


@cache
def _is_python(file: str) -> bool:
    return OF_PYTHON.search(file) is not None


@cache
def _is_of_torch(file: str) -> bool:
    return OF_TORCH.search(file) is not None


def _line(frame: Any) -> Line | None:
    if type(frame) is not dict:
        return None
    file, line, name = frame.get("filename"), frame.get("line"), frame.get("name")
    if type(file) is not str or type(name) is not str:
        return None
    return file, line if type(line) is int and 0 <= line < LAST else 0, name


def _parts(file: str) -> list[str]:
    return re.split(r"[/\\]", file)


def _called(line: Line, several: bool) -> str:
    file, number, name = line
    return f"{'/'.join(_parts(file)[-2 if several else -1 :])}:{number} {name}" if file else name


def ranges(stack: Ints, time: Ints, lines: Ints) -> tuple[Ints, Ints, Ints]:
    """Return line, start and end of the ranges that entries in order of time were made in, outer before inner."""
    if not len(stack):
        return stack, stack, stack
    own = lines[stack]
    same = np.cumprod(own[1:] == own[:-1], axis=1).sum(axis=1) if lines.shape[1] else own[1:, :0]
    depth = (own != MISSING).sum(axis=1)
    shared = np.append(0, np.minimum(same, np.minimum(depth[1:], depth[:-1])))
    over = int(time[-1]) + 1
    found = [
        _at(level, own, depth, shared, np.append(time, over)) for level in range(int(depth.max()))
    ]
    if not found:
        return stack[:0], stack[:0], stack[:0]
    line, start, end = (np.concatenate(columns) for columns in zip(*found, strict=True))
    order = np.lexsort((-end, start))
    return line[order], start[order], end[order]


def _at(level: int, own: Ints, depth: Ints, shared: Ints, time: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the ranges of one depth: each begins where stacks part there, and ends where they do next."""
    parts = np.flatnonzero(shared <= level)
    ends = np.append(parts[1:], len(own))
    there = depth[parts] > level
    return own[parts[there], level], time[parts[there]], time[ends[there]]
