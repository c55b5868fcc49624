"""The kernels of communication libraries: which collective each one is, how large, and on which rank and stream."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from bridge.analyze.devices import Devices
from bridge.analyze.groups import Floats, texts
from bridge.analyze.roles import is_communication
from bridge.join.arrays import NONE, Flags, Ints, number
from bridge.join.attributed import Attributed
from bridge.join.grammar import parse
from importers import frames

# -- What is known of a collective: which one, of what type, how large, among how many; told by names and details


UNKNOWN = -1
OURS = ("shapes", "dtypes")  # keys of details, PyTorch's profiler's: elements in and out, ranks
THEIRS = ("In msg nelems", "Out msg nelems", "Group size")

# The first that is found counts: AllGatherV is no AllGather, and Reduce stands in ReduceScatter.
COLLECTIVES = {
    "AllReduce": "all_?reduce",
    "ReduceScatter": "reduce_?scatter",
    "AllGatherV": "all_?gather_?v",
    "AllGather": "all_?gather",
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
OP = re.compile(
    r"(?:nccl|gloo|mpi|ucc):", re.IGNORECASE
)  # PyTorch's own ranges around a collective

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
    algorithm = ALGORITHM.search(head) if collective != "SendRecv" else None
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
    def of(cls, text: str, *, own: bool) -> Said | None:
        """Read details as PyTorch's profiler writes them, or as ours of the collective's ``own`` range; None for others."""
        if not any(f'"{key}"' in text for key in (OURS if own else ()) + THEIRS):
            return None
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return None
        return cls._read(found) if isinstance(found, dict) else None

    @classmethod
    def _read(cls, found: Mapping[str, Any]) -> Said:
        sent, received, ranks = (_count(found.get(key)) for key in THEIRS)
        types = found.get("dtype") or found.get("dtypes") or ""
        distinct = set(map(str, types)) if isinstance(types, list) else {str(types)}
        dtype = distinct.pop().lower() if len(distinct) == 1 else ""
        sent = elements(found.get("shapes")) if sent == UNKNOWN else sent
        return cls(named(str(found.get("Collective name", ""))), dtype, sent, received, ranks)


def elements(shapes: object) -> int:
    """Add up the elements of shapes, in whatever lists of lists; -1 without any. What is no tensor has an empty one."""
    found = _flat(shapes)
    return sum(map(prod, found)) if found else UNKNOWN


def _flat(value: object) -> list[Sequence[int]]:
    if not isinstance(value, tuple | list) or not value:
        return []
    if all(type(one) is int for one in value):
        return [value]
    return [shape for one in value for shape in _flat(one)]


def _count(value: object) -> int:
    return value if type(value) is int and value >= 0 else UNKNOWN


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


# -- What a report says of single collectives: details of the ranges around a kernel's launch, shapes in their texts


RECORDED_SIZES = "sizes"


@dataclass(frozen=True)
class Sent:
    """For each collective a code into the distinct details, and the elements that the shapes of its op make."""

    code: Ints
    details: Sequence[Said]
    elements: Ints

    @classmethod
    def of(cls, joined: Attributed, rows: Ints) -> Sent:
        """Read what is said of some activities; the innermost range with details counts."""
        nesting, column = joined.attribution.nesting, joined.report.ranges["json"]
        node = joined.attribution.node[rows]
        found = _of_shapes(joined, np.append(nesting.range, NONE)[node])
        json, written = frames.codes(column), column.cat.categories
        details, code = [Said()], np.zeros(len(rows), np.int64)
        left = np.flatnonzero(node != NONE)
        node = node[left]
        own = _is_collective(joined)
        while len(left):  # a turn per level
            level = 2 * json[nesting.range[node]] + own[joined.node_op[node]]
            distinct, of = np.unique(level, return_inverse=True)
            place = np.zeros(len(distinct), np.int64)
            for nth, one in enumerate(distinct.tolist()):  # a turn per distinct text
                if one >= 0 and (said := Said.of(written[one // 2], own=bool(one % 2))):
                    place[nth] = len(details)
                    details.append(said)
            code[left] = place[of]
            node = nesting.parent[node]
            on = (node != NONE) & (code[left] == 0)
            left, node = left[on], node[on]
        return cls(code, details, found)


def _of_shapes(joined: Attributed, rows: Ints) -> Ints:
    """Return how many elements the shapes in the texts of some ranges make, -1 where they say none."""
    report, found = joined.report, np.full(len(rows), UNKNOWN, np.int64)
    op = np.append(joined.op, NONE)[rows]
    there = np.flatnonzero(_is_collective(joined)[op])
    text, of = np.unique(frames.ints(report.ranges, "text")[rows[there]], return_inverse=True)
    said = [dict(parse(one).arguments).get(RECORDED_SIZES) for one in report.texts.decode(text)]
    counted = [elements(shapes) for shapes in said]
    found[there] = np.array(counted, np.int64)[of]
    return found


def _is_collective(joined: Attributed) -> Flags:
    """Tell which ops are PyTorch's own ranges around one; the last entry is for none."""
    return np.array([*(OP.match(op) is not None for op in joined.ops), False], bool)


# -- The kernels of communication libraries: which collective each one is, how large, and on which rank and stream


NO_OP = "(no op)"
UNNAMED = "(unnamed)"


@dataclass(frozen=True)
class Calls:
    """The kernels of communication libraries: the ``row`` of each, what it runs, its size in bytes.

    ``bus_factor`` times bytes is what the slowest link carries; both are -1 where unknown.
    """

    row: Ints
    collective: np.ndarray
    op: np.ndarray
    dtype: np.ndarray
    algorithm: np.ndarray
    bytes: Ints
    bus_factor: Floats

    @classmethod
    def of(cls, joined: Attributed) -> Calls:
        """Read names, texts and details: each combination of them once."""
        row = np.flatnonzero(is_communication(joined))
        kernel = joined.report.activities["name"]
        name, names = frames.codes(kernel)[row], kernel.cat.categories
        sent, op = Sent.of(joined, row), joined.attribution.node[row]
        op = np.append(joined.node_op, NONE)[op]
        code, first = number(name, op, sent.code, sent.elements)
        read = [
            _read(
                names[name[n]],
                joined.ops[op[n]] if op[n] != NONE else NO_OP,
                sent.details[sent.code[n]],
                int(sent.elements[n]),
            )
            for n in first.tolist()
        ]
        columns = [*zip(*read, strict=True)] or [()] * 6
        collective, own, dtype, algorithm = (texts(column)[code] for column in columns[:4])
        size, factor = np.array(columns[4], np.int64)[code], np.array(columns[5], np.float64)[code]
        return cls(row, collective, own, dtype, algorithm, size, factor)


def _read(kernel: str, op: str, said: Said, elements: int) -> tuple[str, str, str, str, int, float]:
    """Return collective, op, type, algorithm, bytes and bus factor of a kernel: from its own name what that says."""
    message = of_kernel(kernel)
    in_op = named(op) if OP.match(op) else ""
    told = in_op or said.collective
    collective = message.collective
    if collective in ("", "SendRecv"):  # of which NCCL makes all-to-all, gather and scatter
        collective = told or collective or UNNAMED
    said = said if said.sent != UNKNOWN else replace(said, sent=elements)
    dtype = said.dtype or message.dtype
    size = bytes_of(collective, dtype, said)
    return collective, op, dtype, message.algorithm, size, bus_factor(collective, said.ranks)


def sequences(joined: Attributed, calls: Calls, devices: Devices) -> tuple[Ints, ...]:
    """Return rank, stream, kind, start and time of each call; a rank is a GPU."""
    activities = joined.report.activities
    columns = ("process", "context", "stream")
    stream, _ = number(*(frames.ints(activities, c)[calls.row] for c in columns))
    kind = frames.codes(activities["name"])[calls.row]
    start = frames.ints(activities, "start")[calls.row]
    return devices.of[calls.row], stream, kind, start, joined.duration[calls.row]
