"""Scopes that name allocations, and the list of live allocations by scope.

A scope is also a range, which exceptions close. Unless memory is sampled, a scope costs no more
than a range.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

from bridge import annotate
from bridge.annotate.memory import sampling
from bridge.annotate.memory.usage import process_bytes

# -- Live allocations of PyTorch's allocator on GPUs


ACTIVE = "active_allocated"


class Block(NamedTuple):
    """An allocation: the bytes requested, and the bytes that it takes in its segment."""

    device: int
    address: int
    requested: int
    size: int
    segment: int  # address of the segment


class LiveAllocation(NamedTuple):
    """A live allocation, its scope, and whether the allocator already had its segment."""

    block: Block
    scope: str
    reused: bool


class Live:
    """The scope of each live allocation. Threads may call `look` concurrently.

    Each result is a new list.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._named: dict[tuple[int, int], LiveAllocation] = {}  # by device and address
        self._segments: frozenset[int] = frozenset()

    def look(self, scope: str) -> list[LiveAllocation]:
        """Assign new allocations to ``scope``, drop freed ones, and return all live allocations."""
        known, segments = self._named, self._segments
        result = {}
        for block in blocks():
            place = (block.device, block.address)
            before = known.get(place)
            owner = before.scope if before else scope
            reused = before.reused if before else block.segment in segments
            result[place] = LiveAllocation(block, owner, reused)
        self._named = result
        self._segments = segments | {allocation.block.segment for allocation in result.values()}
        return list(result.values())


def blocks() -> Iterator[Block]:
    """Yield all live allocations; none for a program without PyTorch on a GPU."""
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return
    from inspect import signature  # takes 10 ms

    has_option = "include_traces" in signature(cuda.memory_snapshot).parameters
    for segment in (
        cuda.memory_snapshot(include_traces=False) if has_option else cuda.memory_snapshot()
    ):
        address = segment["address"]
        for block in segment["blocks"]:
            if block["state"] == ACTIVE:
                requested = block.get("requested_size", block["size"])
                yield Block(
                    segment["device"], address, requested, block["size"], segment["address"]
                )
            address += block["size"]


# -- Scopes and snapshots


UNNAMED = "<unk>:"
HEAD = ("Attribute Name", "Requested Size", "Device", "Actual Size", "Reuse?")
REST = "nvml_amend"  # other memory of the process on a GPU: CUDA context, libraries
_scope: ContextVar[str] = ContextVar("scope", default=UNNAMED)
_live = Live()
_watched: list[bool] = []
os.register_at_fork(after_in_child=_live.clear)


@contextmanager
def scope(name: str = UNNAMED, append: bool = True) -> Iterator[str]:
    """Open a scope for a block.

    Yields its path, ``outer:inner:``, or ``inner:`` without ``append``.

    Allocations of PyTorch on a GPU in the block are listed under the scope, if memory is sampled.
    """
    part = name if name.endswith(":") else f"{name}:"
    outer = _scope.get()
    path = outer + part if append and UNNAMED not in {outer, part} else part
    _look(outer)
    before = _scope.set(path)
    try:
        with annotate.scope(path):
            yield path
    finally:
        try:
            _look(path)
        finally:
            _scope.reset(before)


def watch(on: bool) -> None:
    """Track the allocations of scopes even if memory is not sampled, or stop doing so."""
    _watched[:] = [True] if on else []


def snapshot(path: str | Path) -> int:
    """Write live allocations on GPUs as CSV, one line per allocation; return their number.

    Columns: scope, bytes requested, GPU, bytes taken, and whether the allocator already had the
    memory (0 or 1). A line ``nvml_amend`` per GPU gives the other memory of the process, if
    NVIDIA's management library (NVML) reports it. Replaces the file; raises `OutputError`.
    """
    from bridge.output import write  # not needed to annotate

    values = _live.look(_scope.get())
    rows = [
        (
            allocation.scope,
            allocation.block.requested,
            allocation.block.device,
            allocation.block.size,
            int(allocation.reused),
        )
        for allocation in values
    ]
    known: dict[int, int] = {}
    for block, *_ in values:
        known[block.device] = known.get(block.device, 0) + block.size
    rest = [(REST, size, gpu, size, 0) for gpu, size in _other_memory(known)]
    write(Path(path), "".join(map(_line, (HEAD, *rows, *rest))), force=True)
    return len(rows)


def snapshot_of_process(prefix: str | Path) -> Path | None:
    """Write `snapshot` to ``<prefix>-pid_<process>.csv``.

    Return the path, or None without allocations.
    """
    if not any(blocks()):
        return None
    path = Path(f"{prefix}-pid_{os.getpid()}.csv")
    snapshot(path)
    return path


def _look(path: str) -> None:
    if sampling.is_running() or _watched:
        _live.look(path)


def _other_memory(known: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """Yield the memory of this process on each GPU beyond ``known`` bytes."""
    for gpu, size in known.items():
        used = process_bytes(gpu)
        if used is not None:
            yield gpu, max(0, used - size)


def _line(row: tuple[Any, ...]) -> str:
    return ",".join(f'"{_escaped(str(value))}"' for value in row) + "\n"


def _escaped(text: str) -> str:
    return text.replace('"', '""')
