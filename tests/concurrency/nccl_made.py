"""Reports of programs that call NCCL, with payloads as nsys exports them, written byte by byte."""

from __future__ import annotations

import struct
from pathlib import Path

from made_reports import PUSH_POP, Made, process, thread

DOMAIN = 3
FIRST = 1 << 24
REDOP = FIRST + 16
COMM = ("NCCL communicator ID", 18, "Q", 0)
SIZE = ("Message size [bytes]", 22, "Q", 8)
# The schemas of NCCL 2.26 by their number: (name, type, format, offset) of each field.
SCHEMAS = {
    "init": (2, 24, [COMM, ("No. of ranks", 5, "i", 8), ("Rank", 5, "i", 12), ("CUDA device", 5, "i", 16)]),
    "all_gather": (4, 16, [COMM, SIZE]),
    "all_reduce": (5, 24, [COMM, SIZE, ("Reduction operation", REDOP, "i", 16)]),
    "broadcast": (6, 24, [COMM, SIZE, ("Root", 5, "i", 16)]),
    "reduce_scatter": (7, 24, [COMM, SIZE, ("Reduction operation", REDOP, "i", 16)]),
    "reduce": (8, 24, [COMM, SIZE, ("Root", 5, "i", 16), ("Reduction operation", REDOP, "i", 20)]),
    "p2p": (9, 24, [COMM, SIZE, ("Peer rank", 5, "i", 16)]),
}  # fmt: skip
OF_FUNCTION = {
    "ncclCommInitRank": "init", "ncclAllGather": "all_gather", "ncclAllReduce": "all_reduce",
    "ncclBroadcast": "broadcast", "ncclReduceScatter": "reduce_scatter", "ncclReduce": "reduce",
    "ncclSend": "p2p", "ncclRecv": "p2p",
}  # fmt: skip


def payload(function: str, *values: int) -> bytes:
    """Pack the fields of a function's payload at their offsets."""
    _, size, fields = SCHEMAS[OF_FUNCTION[function]]
    result = bytearray(size)
    for (_, _, form, offset), value in zip(fields, values, strict=True):
        struct.pack_into(f"<{form}", result, offset, value)
    return bytes(result)


def blob(function: str, *values: int, whole: bool = False) -> bytes:
    """Put the header before a payload; `whole` has the size of the blob in place of the payload's offset."""
    body = payload(function, *values)
    number = FIRST + SCHEMAS[OF_FUNCTION[function]][0]
    return struct.pack("<QQQQ", DOMAIN, number, len(body), 32 + len(body) * whole) + body


class Nccl(Made):
    """A report in the making: calls of NCCL one after another on a thread, and their kernels."""

    def __init__(self, enums: bool = True) -> None:
        super().__init__()
        self.now = 1_000
        for name, (number, size, fields) in SCHEMAS.items():
            for _ in range(2):  # once per process
                self.tables["payload_schemas"].append(
                    {"domain": DOMAIN, "schema": FIRST + number, "bytes": size}
                )
            for field, kind, _, offset in fields:
                self.tables["payload_entries"].append(
                    {"domain": DOMAIN, "schema": FIRST + number, "type": kind, "name": field, "offset": offset or None}
                )  # fmt: skip
            del name
        if enums:
            for value, name in enumerate(("Sum", "Product", "Max", "Min", "Avg")):
                self.tables["payload_enums"].append(
                    {"domain": DOMAIN, "schema": REDOP, "name": name, "value": value}
                )

    def function(
        self,
        name: str,
        data: bytes | str | None = None,
        *kernels: str,
        pid: int = 1,
        by: int = 1,
        json: str = "",
        time: int = 400,
    ) -> None:
        """Call a function of NCCL, which launches kernels."""
        start = self.now
        end = start + 20 + 10 * len(kernels)
        text = {"text_id": self.string(name), "domain": DOMAIN, "thread": thread(pid, by)}
        more = {"blob": data} if data is not None else {}
        more |= {"json": json} if json else {}
        self.annotation(PUSH_POP, start, end, **text, **more)
        for number, kernel in enumerate(kernels):
            at = start + 5 + 10 * number
            self.kernel(kernel, at, pid, at + 1_000, at + 1_000 + time, by)
        self.now = end + 10

    def gpu(self, name: str, pid: int = 1) -> None:
        """Name the GPU of a process."""
        self.tables["gpus"].append({"gpu": pid, "device": pid, "name": name})
        self.tables["devices"].append({"gpu": pid, "device": 0, "pid": pid})
        self.tables["processes"].append({"process": process(pid), "name": "python"})

    def report(self, path: Path) -> Path:
        return self.written(path)


RING = "ncclDevKernel_{}_RING_LL"
ALL_REDUCE, ALL_GATHER = RING.format("AllReduce_Sum_f32"), RING.format("AllGather")
REDUCE_SCATTER, SEND_RECV = RING.format("ReduceScatter_Sum_bf16"), "ncclDevKernel_SendRecv"
