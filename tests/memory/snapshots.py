"""Snapshots as torch.cuda.memory dumps them, of an allocator that is played here: segments, blocks, a history that forgets."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

ROUND, SMALL, SEGMENT = 512, 1 << 20, 20 << 20
INTERNAL = [
    {"filename": "/env/lib/python3.11/site-packages/torch/nn/modules/linear.py", "line": 125, "name": "forward"},
    {"filename": "/env/lib/python3.11/site-packages/torch/nn/modules/module.py", "line": 1775, "name": "_call_impl"},
]  # fmt: skip


def frame(file: str, line: int, name: str) -> dict:
    return {"filename": file, "line": line, "name": name}


def stack(*lines: tuple[str, int, str], internal: bool = True) -> list[dict]:
    """Return frames, the innermost first, as PyTorch has them; given the outermost first."""
    own = [frame(*line) for line in reversed(lines)]
    return [*INTERNAL, *own] if internal else own


@dataclass
class Device:
    """A caching allocator: first fit in segments, blocks split and joined; its entries are kept up to ``most``."""

    number: int = 0
    most: int = 100_000
    timed: bool = True
    base: int = 0x7F0000000000
    clock: int = 1_700_000_000_000_000
    segments: list[dict] = field(default_factory=list)
    trace: deque = field(default_factory=deque)
    used: int = 0
    peak: int = 0
    levels: list[tuple[int, int]] = field(default_factory=list)

    def entry(self, action: str, address: int, size: int, frames: list, **more) -> None:
        self.clock += random.Random(len(self.trace)).choice([0, 0, 1, 3])
        said = {
            "action": action,
            "addr": address,
            "size": size,
            "stream": 0,
            "frames": frames,
            **more,
        }
        if self.timed:
            said["time_us"] = self.clock
        if action == "oom":
            said["device_free"] = said.pop("addr")
        self.trace.append(said)
        while len(self.trace) > self.most:
            self.trace.popleft()

    def alloc(self, size: int, frames: list) -> int:
        whole = -(-size // ROUND) * ROUND
        for segment in self.segments:
            for n, block in enumerate(segment["blocks"]):
                if block["state"] == "inactive" and block["size"] >= whole:
                    return self._take(segment, n, whole, size, frames)
        total = max(SEGMENT if whole > SMALL else 2 * SMALL, whole)
        address = (
            self.base + sum(s["total_size"] for s in self.segments) + (len(self.segments) << 30)
        )
        self.segments.append(
            {"device": self.number, "address": address, "total_size": total, "stream": 0, "segment_type": "large",
             "allocated_size": 0, "active_size": 0, "requested_size": 0, "segment_pool_id": (0, 0), "frames": [],
             "is_expandable": False,
             "blocks": [{"address": address, "size": total, "requested_size": 0, "state": "inactive", "frames": []}]}
        )  # fmt: skip
        self.entry("segment_alloc", address, total, frames)
        return self._take(self.segments[-1], 0, whole, size, frames)

    def _take(self, segment, n, whole, size, frames) -> int:
        block = segment["blocks"][n]
        address, left = block["address"], block["size"] - whole
        made = {
            "address": address,
            "size": whole,
            "requested_size": size,
            "state": "active_allocated",
            "frames": frames,
        }
        rest = [
            {
                "address": address + whole,
                "size": left,
                "requested_size": 0,
                "state": "inactive",
                "frames": [],
            }
        ]
        segment["blocks"][n : n + 1] = [made, *(rest if left else [])]
        self.entry("alloc", address, size, frames)
        self._count(segment, whole, size)
        return address

    def free(self, address: int, frames: list | None = None, *, complete: bool = True) -> None:
        segment, block = next(
            (s, b) for s in self.segments for b in s["blocks"] if b["address"] == address
        )
        said = block["frames"] if frames is None else frames
        self.entry("free_requested", address, block["requested_size"], said)
        if not complete:
            block["state"] = "active_awaiting_free"
            return
        self.entry("free_completed", address, block["requested_size"], said)
        self._count(segment, -block["size"], -block["requested_size"])
        block |= {"state": "inactive", "requested_size": 0, "frames": []}
        joined: list[dict] = []
        for one in segment["blocks"]:
            if joined and one["state"] == joined[-1]["state"] == "inactive":
                joined[-1]["size"] += one["size"]
            else:
                joined.append(one)
        segment["blocks"] = joined

    def empty_cache(self) -> None:
        for segment in [s for s in self.segments if len(s["blocks"]) == 1]:
            if segment["blocks"][0]["state"] == "inactive":
                self.segments.remove(segment)
                self.entry("segment_free", segment["address"], segment["total_size"], [])

    def out_of_memory(self, size: int, free: int, frames: list) -> None:
        self.entry("oom", free, size, frames)

    def _count(self, segment, whole, size) -> None:
        self.used += size
        self.peak = max(self.peak, self.used)
        for key, change in (
            ("allocated_size", whole),
            ("active_size", whole),
            ("requested_size", size),
        ):
            segment[key] += change

    @property
    def reserved(self) -> int:
        return sum(segment["total_size"] for segment in self.segments)


def snapshot(*devices: Device) -> dict:
    """Return what `torch.cuda.memory._snapshot()` would."""
    return {
        "segments": [s for device in devices for s in device.segments],
        "device_traces": [list(device.trace) for device in devices],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": False},
    }


MAIN = ("/home/me/train.py", 40, "main")
FORWARD = ("/home/me/model.py", 12, "forward")
LOSS = ("/home/me/train.py", 22, "loss")


def training(seed: int = 0, steps: int = 5, number: int = 0, **how) -> Device:
    """Play a training: weights first, then per step activations that are freed, and a tensor that is kept."""
    dice, device = random.Random(seed), Device(number, **how)
    for n in range(4):
        device.alloc(
            dice.choice([1000, 4 << 20, 300_000]),
            stack(MAIN, ("/home/me/model.py", 5 + n, "__init__")),
        )
    for n in range(steps):
        alive = [device.alloc(dice.randrange(1, 3 << 20), stack(MAIN, FORWARD)) for _ in range(6)]
        device.alloc(4096, stack(MAIN, LOSS, internal=False))
        for address in alive:
            device.free(
                address, stack(MAIN, ("/home/me/train.py", 30 + n, "step")) if n % 2 else None
            )
    return device
