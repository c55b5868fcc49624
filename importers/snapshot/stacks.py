"""Which lines of the program allocated: stacks of Python as ranges, each of them open while it lasts.

A line of a stack is open from the first entry of the trace that has it, to the first one that does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np

from importers.frames import MISSING
from importers.kineto.clean import clean
from importers.texts import Ints

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
