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


class Live:
    """Which scope each live allocation belongs to."""

    def __init__(self) -> None:
        self._scopes: dict[tuple[int, int], str] = {}  # by device and address
        self._reused: set[tuple[int, int]] = set()
        self._segments: set[int] = set()

    def look(self, scope: str) -> list[Block]:
        """Give what is new to a scope, forget what is no more; return all that is alive."""
        found = list(blocks())
        alive = {(block.device, block.address): block for block in found}
        new = [place for place in alive if place not in self._scopes]
        self._reused = {place for place in self._reused if place in alive}
        self._reused |= {place for place in new if alive[place].segment in self._segments}
        self._scopes = {place: self._scopes.get(place, scope) for place in alive}
        self._segments |= {block.segment for block in found}
        return found

    def scope(self, block: Block) -> str:
        """Return the scope of an allocation that was seen."""
        return self._scopes[block.device, block.address]

    def reused(self, block: Block) -> bool:
        """Tell whether it lies in a segment that was there before it: the GPU was asked for nothing."""
        return (block.device, block.address) in self._reused


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
