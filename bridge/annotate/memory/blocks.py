"""The live allocations of PyTorch's allocator on GPUs, by the scope that they were made in.

Whose an allocation is, is found out by looking when a scope begins and when it ends: what is new belongs to the
scope that was innermost meanwhile. What is released and its address used again between two looks keeps its old scope.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from inspect import signature
from typing import Any, NamedTuple

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
