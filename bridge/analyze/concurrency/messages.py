"""What is known of a collective: which one, of what type, how large, among how many; told by names and details."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

UNKNOWN = -1

# The first that is found counts: AllGatherV is no AllGather, and Reduce stands in ReduceScatter.
COLLECTIVES = {
    "AllReduce": "all_?reduce",
    "ReduceScatter": "reduce_?scatter",
    "AllGatherV": "all_?gather_?v",
    "AllGather": "_?all_?gather",
    "AllToAll": "all_?to_?all",
    "SendRecv": "send_?recv",
    "Broadcast": "broad_?cast|bcast",
    "Gather": "gather",
    "Scatter": "scatter",
    "Reduce": "reduce",
    "Barrier": "barrier",
    "Send": "send",
    "Recv": "recv",
}
ANY = re.compile("|".join(f"(?P<{name}>{how})" for name, how in COLLECTIVES.items()), re.IGNORECASE)
OP = re.compile(r"(?:nccl|gloo|mpi|ucc):", re.IGNORECASE)  # PyTorch's own ranges around a collective

SIZES = {
    8: "i64 u64 f64 int64 uint64 int64_t uint64_t double float64 long long_int",
    4: "i32 u32 f32 int32 uint32 int32_t uint32_t int float float32 uint unsigned_int",
    2: "f16 bf16 half float16 bfloat16 __nv_bfloat16 int16 short c10::half c10::bfloat16",
    1: "i8 u8 int8 uint8 int8_t uint8_t char byte bool signed_char unsigned_char"
    " f8e4m3 f8e5m2 float8_e4m3fn float8_e5m2",
}
SIZE = {name: size for size, names in SIZES.items() for name in names.split()}
# NCCL moves bytes in all but reductions, whatever their type: kernels of those alone name the data's.
REDUCTIONS = ("AllReduce", "ReduceScatter", "Reduce")
TYPE = re.compile(
    r"_(?:sum|prod|minmax|min|max|premulsum|sumpostdiv|avg)_(\w+?)(?:_(?:ring|tree)_|$)",
    re.IGNORECASE,
)
ALGORITHM = re.compile(r"(?<=_)(?:RING|TREE)(?=_|$)|(?:Ring|Tree)(?=LL|Simple)")


@dataclass(frozen=True)
class Message:
    """A collective by what the names say: '' for what they do not."""

    collective: str
    dtype: str
    algorithm: str


def of_kernel(name: str) -> Message:
    """Read the name of a kernel: ``ncclDevKernel_AllReduce_Sum_f32_RING_LL``, ``ncclKernel_AllReduce_RING_LL_Sum_half``.

    Its last part, LL, is no protocol: it is in the names of NCCL's kernels whatever protocol they run.
    """
    head = name.partition("(")[0].partition("<")[0]
    collective = named(head)
    dtype = TYPE.search(head) if collective in REDUCTIONS else None
    algorithm = ALGORITHM.search(head)
    return Message(
        collective, dtype[1].lower() if dtype else "", algorithm[0].lower() if algorithm else ""
    )


def named(text: str) -> str:
    """Return the collective that a name says, in NCCL's spelling; '' if none."""
    found = ANY.search(text)
    return found.lastgroup or "" if found else ""


def size_of(dtype: str) -> int:
    """Return the bytes of an element of a type by its name as NCCL, C or PyTorch write it; -1 if unknown."""
    return SIZE.get(dtype.strip().lower().replace(" ", "_"), UNKNOWN)


@dataclass(frozen=True)
class Said:
    """What the details of a range say of the collective in it: -1 and '' for what they do not."""

    collective: str = ""
    dtype: str = ""
    sent: int = UNKNOWN
    received: int = UNKNOWN
    ranks: int = UNKNOWN

    @classmethod
    def of(cls, text: str) -> Said | None:
        """Read details as PyTorch's profiler writes them; None if they are of no collective."""
        if '"Group size"' not in text and '"In msg nelems"' not in text:
            return None
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return None
        return cls._read(found) if isinstance(found, dict) else None

    @classmethod
    def _read(cls, found: Mapping[str, Any]) -> Said:
        numbers = (found.get(key) for key in ("In msg nelems", "Out msg nelems", "Group size"))
        counts = (n if type(n) is int and n >= 0 else UNKNOWN for n in numbers)
        name, dtype = (str(found.get(key, "")) for key in ("Collective name", "dtype"))
        return cls(named(name), dtype.lower(), *counts)


def bytes_of(collective: str, dtype: str, said: Said) -> int:
    """Return how large a collective is, as NCCL's own tests count it; -1 if anything of it is unknown.

    Of an all-gather that is what each rank has in the end, of all others what each has in the beginning.
    """
    size, count = size_of(said.dtype or dtype), said.sent
    if collective.startswith("AllGather"):
        count = said.received
        if count < 0 and min(said.sent, said.ranks) >= 0:
            count = said.sent * said.ranks
    return size * count if min(size, count) >= 0 else UNKNOWN


def bus_factor(collective: str, ranks: int) -> float:
    """Return what the bandwidth is multiplied by to be that of the slowest link; -1 if the ranks are not known."""
    if collective in ("Broadcast", "Reduce", "SendRecv", "Send", "Recv"):
        return 1.0
    times = {"AllReduce": 2, "AllGather": 1, "ReduceScatter": 1, "AllToAll": 1}.get(collective, 0)
    return times * (ranks - 1) / ranks if times and ranks > 0 else float(UNKNOWN)
