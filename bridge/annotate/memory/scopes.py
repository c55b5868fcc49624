"""Scopes that name allocations, and the list of what is alive by scope.

The invariant: a scope is a range as well, and closed by exceptions; while nothing samples, it costs no more than that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

from bridge import annotate
from bridge.annotate.memory import sampling

# -- The live allocations of PyTorch's allocator on GPUs, by the scope that they were made in


ACTIVE = "active_allocated"


class Block(NamedTuple):
    """An allocation: bytes that were asked for, and bytes that it takes of its segment of the GPU's memory."""

    device: int
    address: int
    requested: int
    size: int
    segment: int  # its address


class Named(NamedTuple):
    """A live allocation, the scope that it was made in, and whether the allocator had its segment before it."""

    block: Block
    scope: str
    reused: bool


class Live:
    """Which scope each live allocation belongs to. Threads may look at once: what one saw is a value of its own."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self._named: dict[tuple[int, int], Named] = {}  # by device and address
        self._segments: frozenset[int] = frozenset()

    def look(self, scope: str) -> list[Named]:
        """Give what is new to a scope, forget what is no more; return all that is alive."""
        known, segments = self._named, self._segments
        found = {}
        for block in blocks():
            place = (block.device, block.address)
            before = known.get(place)
            of = before.scope if before else scope
            reused = before.reused if before else block.segment in segments
            found[place] = Named(block, of, reused)
        self._named = found
        self._segments = segments | {one.block.segment for one in found.values()}
        return list(found.values())


def blocks() -> Iterator[Block]:
    """Give all live allocations; of a program without PyTorch on a GPU none."""
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return
    brief = "include_traces" in signature(cuda.memory_snapshot).parameters
    for segment in cuda.memory_snapshot(include_traces=False) if brief else cuda.memory_snapshot():
        address = segment["address"]
        for block in segment["blocks"]:
            if block["state"] == ACTIVE:
                asked = block.get("requested_size", block["size"])
                yield Block(segment["device"], address, asked, block["size"], segment["address"])
            address += block["size"]


# -- Scopes that name allocations, and the list of what is alive by scope


UNNAMED = "<unk>:"
HEAD = ("Attribute Name", "Requested Size", "Device", "Actual Size", "Reuse?")
REST = "nvml_amend"  # what the process has of a GPU besides: CUDA's context, libraries
_scope: ContextVar[str] = ContextVar("scope", default=UNNAMED)
_live = Live()
_watched: list[bool] = []
os.register_at_fork(after_in_child=_live.forget)


@contextmanager
def scope(name: str = UNNAMED, append: bool = True) -> Iterator[str]:
    """Surround a block by a scope and give its path, ``outer:inner:``; within another one unless told otherwise.

    What is allocated in it on a GPU by PyTorch is listed under it, if memory is sampled meanwhile.
    """
    own = name if name.endswith(":") else f"{name}:"
    around = _scope.get()
    path = around + own if append and UNNAMED not in {around, own} else own
    _look(around)
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
    """Look at the allocations of scopes from now on though nothing samples, or no more."""
    _watched[:] = [True] if on else []


def snapshot(path: str | Path) -> int:
    """Write what is alive on GPUs as CSV, one line an allocation; return how many there are.

    Columns: scope, bytes asked for, GPU, bytes taken, whether the allocator had the memory before (0 or 1). A line
    ``nvml_amend`` a GPU is what the process has of it besides, if NVIDIA's management library tells. Replaces the
    file; raises `OutputError`.
    """
    from bridge.output import write  # what only annotates writes nothing

    found = _live.look(_scope.get())
    rows = [
        (one.scope, one.block.requested, one.block.device, one.block.size, int(one.reused))
        for one in found
    ]
    known: dict[int, int] = {}
    for block, *_ in found:
        known[block.device] = known.get(block.device, 0) + block.size
    rest = [(REST, size, gpu, size, 0) for gpu, size in _rest(known)]
    write(Path(path), "".join(map(_line, (HEAD, *rows, *rest))), force=True)
    return len(rows)


def snapshot_of_process(prefix: str | Path) -> Path | None:
    """Write `snapshot` to ``<prefix>-pid_<process>.csv`` and return it; nothing, and None, where no GPU has allocations."""
    if not any(blocks()):
        return None
    path = Path(f"{prefix}-pid_{os.getpid()}.csv")
    snapshot(path)
    return path


def _look(path: str) -> None:
    if sampling.running() or _watched:
        _live.look(path)


def _rest(known: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """Give what this process has of each GPU beyond what is known."""
    for gpu, size in known.items():
        used = _of_process(gpu)
        if used is not None:
            yield gpu, max(0, used - size)


def _of_process(gpu: int) -> int | None:
    """Ask NVML through PyTorch's or its own bindings; None where it is not there or does not know this process."""
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        pynvml = import_module("pynvml")  # which not everybody has
        pynvml.nvmlInit()
        device = cuda._get_nvml_device_index(gpu)  # noqa: SLF001 - as CUDA_VISIBLE_DEVICES has it
        handle = pynvml.nvmlDeviceGetHandleByIndex(device)
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except Exception:  # noqa: BLE001 - NVML's errors are classes of a library that may be absent
        return None
    own = (one.usedGpuMemory for one in processes if one.pid == os.getpid())
    return next((int(used) for used in own if used is not None), None)


def _line(row: tuple[Any, ...]) -> str:
    return ",".join(f'"{_escaped(str(value))}"' for value in row) + "\n"


def _escaped(text: str) -> str:
    return text.replace('"', '""')
