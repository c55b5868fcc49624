"""Describe the kernels of communication libraries: collective, type, size, rank and stream."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from bridge.analyze.core.groups import Floats, texts
from bridge.analyze.core.kinds import is_communication
from bridge.analyze.run.concurrency.collective_names import collective_of, parse_kernel
from bridge.analyze.run.concurrency.nccl import NUMBERS, NcclMessages, communicator_texts
from bridge.importers.arrays import factorize, lookup
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, at_rows, number_groups
from bridge.join.attributed import AttributedCapture
from bridge.join.grammar import parse

# -- Names and details of collectives


UNKNOWN = -1
PYTORCH_KEYS = (
    "shapes",
    "dtypes",
)  # keys of PyTorch's profiler: elements in and out, ranks
MESSAGE_KEYS = ("In msg nelems", "Out msg nelems", "Group size")
GROUP_KEYS = ("Process Group Name", "Process Group Ranks")
SOURCE_KEY, TARGET_KEY, IDENTITY_KEY = "Src Rank", "Dst Rank", "Comms Id"

COLLECTIVE_OP = re.compile(
    r"(?:nccl|gloo|mpi|ucc):", re.IGNORECASE
)  # PyTorch's own ranges around a collective

SIZES = {
    8: "i64 u64 f64 int64 uint64 int64_t uint64_t double float64 long long_int",
    4: "i32 u32 f32 int32 uint32 int32_t uint32_t int float float32 uint unsigned_int",
    2: "f16 bf16 half float16 bfloat16 __nv_bfloat16 int16 short c10::half c10::bfloat16",
    1: "i8 u8 int8 uint8 int8_t uint8_t char byte bool signed_char unsigned_char"
    " f8e4m3 f8e5m2 float8_e4m3fn float8_e5m2",
}
SIZE_OF_DTYPE = {name: size for size, names in SIZES.items() for name in names.split()}


def element_size(dtype: str) -> int:
    """Return the bytes of an element of a type, named as in NCCL, C or PyTorch; -1 if unknown."""
    return SIZE_OF_DTYPE.get(dtype.strip().lower().replace(" ", "_"), UNKNOWN)


@record
class Details:
    """The collective as the details of a range describe it; -1 and '' for what they do not say.

    ``group`` names its ranks alike on all of them; ``identity`` is the same on all ranks of one collective alone.
    ``source`` and ``target`` are the ranks from and to which a transfer goes, one of them the other rank.
    """

    collective: str = ""
    dtype: str = ""
    sent: int = UNKNOWN
    received: int = UNKNOWN
    ranks: int = UNKNOWN
    group: str = ""
    identity: str = ""
    source: int = UNKNOWN
    target: int = UNKNOWN

    @classmethod
    def of(cls, text: str, *, own: bool) -> Details | None:
        """Read the details that PyTorch's profiler or this package wrote; None for other text.

        ``own`` is whether the range is that of the collective itself.
        """
        if not any(f'"{key}"' in text for key in (PYTORCH_KEYS if own else ()) + MESSAGE_KEYS):
            return None
        try:
            result = json.loads(text)
        except (ValueError, RecursionError):
            return None
        return cls._read(result) if isinstance(result, dict) else None

    @classmethod
    def _read(cls, result: Mapping[str, Any]) -> Details:
        sent, received, ranks = (_count(result.get(key)) for key in MESSAGE_KEYS)
        types = result.get("dtype") or result.get("dtypes") or ""
        distinct = set(map(str, types)) if isinstance(types, list) else {str(types)}
        dtype = distinct.pop().lower() if len(distinct) == 1 else ""
        sent = elements(result.get("shapes")) if sent == UNKNOWN else sent
        return cls(
            collective=collective_of(str(result.get("Collective name", ""))),
            dtype=dtype,
            sent=sent,
            received=received,
            ranks=ranks,
            group=" ".join(str(result.get(key, "")) for key in GROUP_KEYS).strip(),
            identity=str(result.get(IDENTITY_KEY, "")),
            source=_count(result.get(SOURCE_KEY)),
            target=_count(result.get(TARGET_KEY)),
        )


def elements(shapes: object) -> int:
    """Return the number of elements of shapes in nested lists, -1 if there is no shape.

    An input that is no tensor has an empty shape.
    """
    result = _flat(shapes)
    return sum(map(prod, result)) if result else UNKNOWN


def _flat(value: object) -> list[Sequence[int]]:
    if not isinstance(value, tuple | list) or not value:
        return []
    if all(type(item) is int for item in value):
        return [value]
    return [shape for item in value for shape in _flat(item)]


def _count(value: object) -> int:
    return value if type(value) is int and value >= 0 else UNKNOWN


def collective_bytes(collective: str, dtype: str, details: Details) -> int:
    """Return the size of a collective as NCCL's tests count it, -1 if it is unknown.

    The size of an all-gather is what each rank has at the end, that of others what each has at the
    start.
    """
    size, count = element_size(details.dtype or dtype), details.sent
    if collective.startswith("AllGather"):
        count = details.received
        if count < 0 and min(details.sent, details.ranks) >= 0:
            count = details.sent * details.ranks
    return size * count if min(size, count) >= 0 else UNKNOWN


def bus_factor(collective: str, ranks: int) -> float:
    """Return the bus bandwidth divided by the bandwidth, as in NCCL's tests; -1 if unknown."""
    if collective in ("Broadcast", "Reduce", "SendRecv", "Send", "Recv"):
        return 1.0
    times = {"AllReduce": 2, "AllGather": 1, "ReduceScatter": 1, "AllToAll": 1}.get(collective, 0)
    return times * (ranks - 1) / ranks if times and ranks > 0 else float(UNKNOWN)


# -- Details in the ranges around the launch of a kernel


RECORDED_SIZES = "sizes"


@record
class CollectiveDetails:
    """Details of each collective: a code into the distinct details.

    ``elements`` is the number of elements of the shapes of its op.
    """

    code: Ints
    details: Sequence[Details]
    elements: Ints

    @classmethod
    def of(cls, attributed: AttributedCapture, rows: Ints) -> CollectiveDetails:
        """Read the details around some activities; the innermost range with details counts."""
        nesting, column = attributed.attribution.nesting, attributed.capture.ranges.json
        node = attributed.attribution.node[rows]
        result = _elements_of_shapes(attributed, lookup(nesting.range, node))
        json, written = column.codes, column.texts
        details, code = [Details()], np.zeros(len(rows), np.int64)
        remaining = np.flatnonzero(node != NONE)
        node = node[remaining]
        is_collective = _is_collective(attributed)
        while len(remaining):  # one iteration per level
            level = 2 * json[nesting.range[node]] + is_collective[attributed.node_op[node]]
            distinct, inverse = np.unique(level, return_inverse=True)
            code_of_text = np.zeros(len(distinct), np.int64)
            for position, text in enumerate(distinct.tolist()):  # one iteration per distinct text
                if text >= 0 and (parsed := Details.of(written[text // 2], own=bool(text % 2))):
                    code_of_text[position] = len(details)
                    details.append(parsed)
            code[remaining] = code_of_text[inverse]
            node = nesting.parent[node]
            is_open = (node != NONE) & (code[remaining] == 0)
            remaining, node = remaining[is_open], node[is_open]
        return cls(code, details, result)


def _elements_of_shapes(attributed: AttributedCapture, rows: Ints) -> Ints:
    """Return the number of elements of the shapes in the texts of ranges, -1 if there are none."""
    capture, result = attributed.capture, np.full(len(rows), UNKNOWN, np.int64)
    op = lookup(attributed.op, rows)
    present = np.flatnonzero(_is_collective(attributed)[op])
    text, inverse = np.unique(capture.ranges.text[rows[present]], return_inverse=True)
    lines = [dict(parse(name).arguments).get(RECORDED_SIZES) for name in capture.texts.decode(text)]
    element_counts = [elements(shapes) for shapes in lines]
    result[present] = np.array(element_counts, np.int64)[inverse]
    return result


def _is_collective(attributed: AttributedCapture) -> Flags:
    """Return whether each op is PyTorch's range of a collective; the last entry is for no op."""
    return np.array([*(COLLECTIVE_OP.match(op) is not None for op in attributed.ops), False], bool)


# -- Calls


NO_OP = "(no op)"
UNNAMED = "(unnamed)"


@record
class CommunicationCalls:
    """The kernels of communication libraries: their rows, collectives and sizes in bytes.

    ``bus_factor`` times bytes is what the slowest link carries; both are -1 where unknown.
    ``messages`` is what NCCL itself says, which has precedence over what ops say in ``details``.
    """

    row: Ints
    collective: np.ndarray
    op: np.ndarray
    dtype: np.ndarray
    algorithm: np.ndarray
    bytes: Ints
    bus_factor: Floats
    messages: NcclMessages
    details: CollectiveDetails

    @classmethod
    def of(cls, attributed: AttributedCapture) -> CommunicationCalls:
        """Describe the kernels; each combination of name, text and details is read once."""
        row = np.flatnonzero(is_communication(attributed))
        kernel = attributed.capture.activities.name
        name, names = kernel.codes[row], kernel.texts
        sent = CollectiveDetails.of(attributed, row)
        op = attributed.attribution.node[row]
        op = lookup(attributed.node_op, op)
        code, first = number_groups(name, op, sent.code, sent.elements)
        descriptions = [
            _describe(
                names[name[n]],
                attributed.ops[op[n]] if op[n] != NONE else NO_OP,
                sent.details[sent.code[n]],
                int(sent.elements[n]),
            )
            for n in first.tolist()
        ]
        columns = [*zip(*descriptions, strict=True)] or [()] * 6
        collective, op_name, dtype, algorithm = (texts(column)[code] for column in columns[:4])
        size, factor = np.array(columns[4], np.int64)[code], np.array(columns[5], np.float64)[code]
        parsed = [parse_kernel(text).collective for text in names]
        kinds = texts([*parsed, ""])[name]
        messages = NcclMessages.of(attributed, row, kinds.tolist())
        recorded = size_of_messages(kinds, messages)
        size = np.where(recorded >= 0, recorded, size)
        factor = _factors(collective, messages.ranks, factor)
        return cls(
            row=row,
            collective=collective,
            op=op_name,
            dtype=dtype,
            algorithm=algorithm,
            bytes=size,
            bus_factor=factor,
            messages=messages,
            details=sent,
        )


MESSAGE_ARGUMENTS = {  # in a trace, and the column
    "message (bytes)": "bytes",
    "messages": "messages",
    "ranks": "ranks",
    "rank": "rank",
    "peer": "peer",
    "root": "root",
}
PER_RANK = (  # the message of one rank, of which the whole has as many as there are ranks
    "AllGather",
    "ReduceScatter",
    "AllToAll",
    "Gather",
    "Scatter",
)


def size_of_messages(kinds: np.ndarray, messages: NcclMessages) -> Ints:
    """Return the size of collectives as NCCL's tests count it, -1 if it is unknown.

    ``kinds`` are the collectives of the kernels. The messages of all other collectives are whole.
    """
    is_part, ranks = np.isin(kinds.astype(str), PER_RANK), messages.ranks
    whole = np.where(ranks > 0, messages.bytes * np.maximum(ranks, 1), UNKNOWN)
    return np.where(messages.bytes < 0, UNKNOWN, np.where(is_part, whole, messages.bytes))


def _factors(collective: np.ndarray, ranks: Ints, otherwise: Floats) -> Floats:
    """Return the bus factor of each call whose number of ranks NCCL says, else the given one."""
    result = otherwise.copy()
    rows = np.flatnonzero(ranks > 0)
    codes, names = factorize(collective[rows])
    pair, first = number_groups(codes.astype(np.int64), ranks[rows])
    factors = [bus_factor(names[codes[n]], int(ranks[rows[n]])) for n in first.tolist()]
    result[rows] = np.array(factors, np.float64)[pair]
    return result


def _describe(
    kernel: str, op: str, details: Details, elements: int
) -> tuple[str, str, str, str, int, float]:
    """Return collective, op, type, algorithm, bytes and bus factor of a kernel.

    The name of the kernel has precedence.
    """
    message = parse_kernel(kernel)
    in_op = collective_of(op) if COLLECTIVE_OP.match(op) else ""
    recorded = in_op or details.collective
    collective = message.collective
    if collective in ("", "SendRecv"):  # NCCL builds all-to-all, gather and scatter from these
        collective = recorded or collective or UNNAMED
    details = details if details.sent != UNKNOWN else replace(details, sent=elements)
    dtype = details.dtype or message.dtype
    size = collective_bytes(collective, dtype, details)
    return collective, op, dtype, message.algorithm, size, bus_factor(collective, details.ranks)


@record
class NcclMessage:
    """What NCCL says of the message of one kernel: the fields of `NcclMessages`, '' for no reduction."""

    bytes: int
    messages: int
    communicator: str
    ranks: int
    rank: int
    peer: int
    root: int
    reduction: str

    @classmethod
    def of(cls, attributed: AttributedCapture, row: int) -> NcclMessage | None:
        """Return what NCCL says of an activity, None if it says nothing of it."""
        if not len(attributed.capture.nccl_calls):
            return None
        calls = CommunicationCalls.of(attributed)
        [*place] = np.flatnonzero(calls.row == row).tolist()
        if not place or calls.messages.bytes[place[0]] < 0:
            return None
        said = calls.messages
        number = {name: int(getattr(said, name)[place[0]]) for name in NUMBERS}
        reduction, communicator = number.pop("reduction"), number.pop("communicator")
        return cls(
            **number,
            communicator="" if communicator == UNKNOWN else _id(communicator),
            reduction=said.reductions[reduction] if reduction >= 0 else "",
        )


def _id(communicator: int) -> str:
    return communicator_texts(np.array([communicator]))[0]


def message_columns(attributed: AttributedCapture) -> dict[str, tuple[Ints, list[str]]]:
    """Return what NCCL says of messages, for all activities: numbers, or codes and their names.

    It is empty if NCCL says nothing.
    """
    if not len(attributed.capture.nccl_calls):
        return {}
    calls = CommunicationCalls.of(attributed)
    said, size = calls.messages, len(attributed.capture.activities)
    result: dict[str, tuple[Ints, list[str]]] = {
        f"NCCL {name}": (at_rows(getattr(said, column), calls.row, size), [])
        for name, column in MESSAGE_ARGUMENTS.items()
    }
    has_id = (said.bytes >= 0) & (said.communicator != UNKNOWN)
    ids, code = np.unique(said.communicator[has_id], return_inverse=True)
    communicator = at_rows(code, calls.row[has_id], size)
    reduction = at_rows(said.reduction, calls.row, size)
    return {
        **result,
        "NCCL communicator": (communicator, communicator_texts(ids)),
        "NCCL reduction": (reduction, [*said.reductions]),
    }
