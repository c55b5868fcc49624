"""A made training as Nsight Systems would export it: large enough for `nsys stats` to be a real witness.

Two processes, three threads each, two GPUs; ranges of two domains that nest five deep and bear a text per call, as
PyTorch's do; kernels of several launches per range, copies and fills; correlation ids that both processes use; work outside of
any range. Every number comes from a seed. The rows bear NVIDIA's own names, and nothing of this project's code
takes part in writing them.
"""

from __future__ import annotations

import random
from pathlib import Path

from join.plain_writer import CALLS, COPIES, FILLS, KERNELS, NVTX, STRINGS, write

PUSH_POP, DOMAIN_NAME = 59, 75
DOMAIN = 4  # one that is declared by name; 0 is the default one
GEMMS = tuple(f"void gemm_{size}<float, {size}>(T1 *, const T1 *)" for size in (32, 64, 128))
NAMES = (
    *GEMMS,
    "void at::native::vectorized_elementwise_kernel<4>(int)",
    "ncclDevKernel_AllReduce()",
    "softmax",
)
LAYERS = ("forward", "backward", "block", "attention", "mlp", "optimizer")
COPY_KINDS = (1, 2, 8)  # host to device, device to host, device to device


class Training:
    """The rows in the making; ``chance`` decides everything that is not said."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.ids: dict[str, int] = {}
        self.tables: dict[str, list[dict[str, object]]] = {
            name: [] for name in (NVTX, CALLS, KERNELS, COPIES, FILLS)
        }
        self.correlation = 0
        self.calls = 0

    def string(self, text: str) -> int:
        return self.ids.setdefault(text, len(self.ids) + 1)

    def thread(self, process: int, number: int, steps: int) -> None:
        """Record some steps of one thread; the device runs behind the host."""
        host, device = self.chance.randrange(1_000, 9_000), [20_000]
        self.correlation = 100_000 * number  # the same in both processes
        for step in range(steps):
            host = self.range(process, process | number, device, host, f"step {step}", 5)
            host = self.launch(process, process | number, device, host)  # outside of every range
            host += self.chance.randrange(50, 5_000)

    def range(
        self, process: int, thread: int, device: list[int], host: int, text: str, depth: int
    ) -> int:
        """Record a range and what is in it; return the host's time after it."""
        start, row = host, {}
        self.tables[NVTX].append(row)
        host += self.chance.randrange(1, 200)
        for _ in range(self.chance.randrange(1, 4)):
            if depth and self.chance.random() < 0.6:
                self.calls += 1
                inner = f"{self.chance.choice(LAYERS)}, seq = {self.calls}, op_id = {self.calls}"
                host = self.range(process, thread, device, host, inner, depth - 1)
            else:
                host = self.launch(process, thread, device, host)
        named = {"text": text} if self.chance.random() < 0.5 else {"textId": self.string(text)}
        row |= {
            "start": start,
            "end": host,
            "eventType": PUSH_POP,
            "domainId": self.chance.choice((0, 0, 0, DOMAIN)),
        }
        row |= {"globalTid": thread, "endGlobalTid": None, **named}
        return host + self.chance.randrange(0, 3)

    def launch(self, process: int, thread: int, device: list[int], host: int) -> int:
        """Record a call and the work it issues; return the host's time after the call."""
        chance, kind = self.chance, self.chance.choice((KERNELS, KERNELS, KERNELS, COPIES, FILLS))
        end, self.correlation = host + chance.randrange(1, 60), self.correlation + 1
        issued = {
            KERNELS: "cudaLaunchKernel_v7000",
            COPIES: "cudaMemcpyAsync_v3020",
            FILLS: "cudaMemsetAsync_v3020",
        }
        called = {"start": host, "end": end, "eventClass": 0, "globalTid": thread, "returnValue": 0}
        self.tables[CALLS].append(
            called | {"correlationId": self.correlation, "nameId": self.string(issued[kind])}
        )
        start = max(device[0], end) + chance.randrange(0, 40)
        device[0] = start + chance.randrange(0, 3_000)
        row = {
            "start": start,
            "end": device[0],
            "deviceId": (process >> 24) % 2,
            "contextId": 1,
            "streamId": 7,
        }
        row |= {"correlationId": self.correlation, "globalPid": process}
        self.tables[kind].append(row | self.details(kind))
        return end + chance.randrange(1, 100)

    def details(self, kind: str) -> dict[str, object]:
        """Give what an activity of this kind has besides times and places."""
        if kind == COPIES:
            memory = {"srcKind": 1, "dstKind": 2, "copyCount": 1}
            return {
                "bytes": self.chance.randrange(1, 1 << 20),
                "copyKind": self.chance.choice(COPY_KINDS),
                **memory,
            }
        if kind == FILLS:
            return {"bytes": self.chance.randrange(1, 4_096), "value": 0, "memKind": 2}
        name = self.chance.choice(NAMES)
        short = self.string(name.removeprefix("void ").split("<")[0].split("(")[0].split("::")[-1])
        names = {
            "demangledName": self.string(name),
            "shortName": short,
            "mangledName": self.string(f"_Z{name}"),
        }
        grid = {"gridX": 8, "gridY": 1, "gridZ": 1, "blockX": 128, "blockY": 1, "blockZ": 1}
        return {
            **names,
            **grid,
            "registersPerThread": 32,
            "staticSharedMemory": 0,
            "dynamicSharedMemory": 0,
        }

    def written(self, path: Path) -> Path:
        """Write the export."""
        strings = [{"id": number, "value": text} for text, number in self.ids.items()]
        return write(path, {STRINGS: strings, **self.tables})


def export(path: Path, seed: int, *, steps: int = 12) -> Path:
    """Write the export of two processes with three threads each."""
    training = Training(seed)
    for process in (11 << 24, 12 << 24):
        declared = {
            "start": 1,
            "end": None,
            "eventType": DOMAIN_NAME,
            "domainId": DOMAIN,
            "text": "library",
        }
        training.tables[NVTX].append({**declared, "globalTid": process | 1, "endGlobalTid": None})
        for number in (1, 2, 3):
            training.thread(process, number, steps)
    return training.written(path)
