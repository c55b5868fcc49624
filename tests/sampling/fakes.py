"""PyTorch, CuPy and CUDA's bindings as far as memory is asked for, for machines without a GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class Torch:
    """Stands for `torch`: an allocator of blocks in one segment per device."""

    def __init__(self, devices: int = 1) -> None:
        self.blocks: dict[int, list[dict[str, Any]]] = {number: [] for number in range(devices)}
        self.initialized = True
        self.cuda = SimpleNamespace(
            is_initialized=lambda: self.initialized,
            device_count=lambda: len(self.blocks),
            memory_allocated=self.allocated,
            memory_reserved=lambda _device: 1 << 20,
            memory_snapshot=self.segments,
            memory_stats=lambda _device: {"num_alloc_retries": 2},
            _get_nvml_device_index=lambda device: device,
        )

    def allocate(self, requested: int, device: int = 0) -> dict[str, Any]:
        """Take the first free block that is large enough, else a new one at the end; blocks are of 512 bytes."""
        size = -(-requested // 512) * 512
        block = next(
            (b for b in self.blocks[device] if b["state"] == "inactive" and b["size"] == size), None
        )
        if block is None:
            block = {"size": size}
            self.blocks[device].append(block)
        block |= {"requested_size": requested, "state": "active_allocated"}
        return block

    def allocated(self, device: int) -> int:
        """Return what is handed out."""
        return sum(b["size"] for b in self.blocks[device] if b["state"] == "active_allocated")

    def segments(self) -> list[dict[str, Any]]:
        """Return all blocks, by segment."""
        return [
            {"device": device, "address": (device + 1) << 32, "blocks": [dict(b) for b in blocks]}
            for device, blocks in self.blocks.items()
            if blocks
        ]


def release(block: dict[str, Any]) -> None:
    """Give a block back."""
    block["state"] = "inactive"


class Runtime:
    """Stands for `cuda.bindings.runtime`: functions return a status before their results."""

    def __init__(self, status: int = 0) -> None:
        self.status = status

    def cudaGetDevice(self) -> tuple[int, int]:  # noqa: N802
        return self.status, 1

    def cudaMemGetInfo(self) -> tuple[int, int, int]:  # noqa: N802
        return self.status, 3 << 30, 8 << 30
