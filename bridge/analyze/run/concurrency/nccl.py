"""Find the call of NCCL behind each communication kernel, and what its payload says of the message.

NCCL launches a kernel in the range of the function that was called, or, for functions between
ncclGroupStart and ncclGroupEnd, in the range of the outermost ncclGroupEnd. A size that several
kernels of a group share in an unknown way stays unknown.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bridge.analyze.core.groups import counts, highest, lowest, sums
from bridge.analyze.run.concurrency.collective_names import collective_of
from bridge.importers.arrays import lookup, scatter
from bridge.importers.frames import NcclCalls, key_codes
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, number_groups, order_by, run_edges
from bridge.join.attributed import AttributedCapture, once
from bridge.join.nesting import Nesting

UNKNOWN = -1
MOST_BYTES = 1 << 50  # larger messages are errors; sums of smaller ones fit into 64 bits
GROUP_START, GROUP_END = "ncclGroupStart", "ncclGroupEnd"
SEND, RECV = "ncclSend", "ncclRecv"
NUMBERS = "bytes messages communicator ranks rank peer root reduction".split()
SAME = ("communicator", "peer", "root")  # columns that calls of a group may agree on


@record
class NcclMessages:
    """What NCCL says of the messages of some kernels, a value each; -1 where it is not known.

    Attributes:
        bytes: message size as NCCL's payload counts it, for several messages their sum.
        messages: the number of messages.
        communicator: its id, which is the same on all ranks.
        ranks: ranks of the communicator.
        rank: that of the process in the communicator.
        peer, root: the other rank of a send or receive, and the root of a broadcast or reduction.
        reduction: a code into ``reductions``, the operators of reductions.

    """

    bytes: Ints
    messages: Ints
    communicator: Ints
    ranks: Ints
    rank: Ints
    peer: Ints
    root: Ints
    reduction: Ints
    reductions: Sequence[str]

    @classmethod
    def of(cls, attributed: AttributedCapture, rows: Ints, kinds: Sequence[str]) -> NcclMessages:
        """Return the messages of some activities; ``kinds`` are the collectives of their kernels."""
        if not len(attributed.capture.nccl_calls) or not len(rows):
            return cls(**dict.fromkeys(NUMBERS, np.full(len(rows), UNKNOWN)), reductions=())
        return _Joined.of(attributed).messages(attributed, rows, kinds)


def communicator_texts(ids: Ints) -> list[str]:
    """Return ids of communicators as NCCL's log writes them: 0x and 16 hexadecimal digits."""
    return [f"0x{number & (1 << 64) - 1:016x}" for number in ids.tolist()]


def message_kind(function: str) -> str:
    """Return the collective whose kernels a function of NCCL launches, '' for other functions."""
    kind = collective_of(function)
    return "SendRecv" if kind in ("Send", "Recv") else kind


@record
class _Joined:
    """The calls of NCCL: their nesting per thread, and the group of each.

    ``kind`` is a position in ``kinds``, 0 for functions without a message. ``group`` is a number
    per group of calls, NONE outside of groups; that of an ncclGroupEnd is the group that it ends.
    """

    table: NcclCalls
    stack: Ints
    of_launch: Ints
    nesting: Nesting
    kinds: list[str]
    kind: Ints
    group: Ints
    is_end: Flags

    @classmethod
    def of(cls, attributed: AttributedCapture) -> _Joined:
        return _joined(attributed)

    def messages(
        self, attributed: AttributedCapture, rows: Ints, kinds: Sequence[str]
    ) -> NcclMessages:
        unit, kind = self._units(attributed, rows, kinds)
        members = np.flatnonzero(self.kind > 0)
        member_unit = self._unit(members)
        shared, of_member, of_row = _numbered(
            (member_unit, self.kind[members]), (unit, kind), unit != NONE
        )
        totals = _Totals.of(self, members, of_member, shared)
        kernels = counts(of_row[of_row != NONE], shared)
        return totals.messages(self, attributed, rows=rows, unit=of_row, kernels=kernels)

    def _units(
        self, attributed: AttributedCapture, rows: Ints, kinds: Sequence[str]
    ) -> tuple[Ints, Ints]:
        """Return the unit of each kernel, NONE if unknown, and the kind of messages in it."""
        launch = attributed.attribution.launch[rows]
        start = lookup(attributed.capture.launches.start, launch, 0)
        stack = lookup(self.of_launch, launch)
        node = self.nesting.innermost(stack, start)
        node = np.where(lookup(self.nesting.stack, node) == stack, node, NONE)
        call = np.where(launch == NONE, NONE, lookup(self.nesting.range, node))
        is_end = lookup(self.is_end, call, False)
        has_message = lookup(self.kind > 0, call, False)
        unit = np.where(
            is_end | has_message, lookup(self._unit(np.arange(len(self.kind))), call), NONE
        )
        codes = {name: code for code, name in enumerate(self.kinds)}
        of_kernel = np.array([codes.get(name, NONE) for name in kinds], np.int64)
        kind = np.where(has_message, lookup(self.kind, call), of_kernel)
        return np.where(kind > 0, unit, NONE), kind

    def _unit(self, calls: Ints) -> Ints:
        """Return a number for what may launch together: a group, or a call of its own."""
        group = self.group[calls]
        return np.where(group == NONE, calls, len(self.kind) + group)


@once
def _joined(attributed: AttributedCapture) -> _Joined:
    calls, launches = attributed.capture.nccl_calls, attributed.capture.launches
    columns = [[t.report, t.thread] for t in (calls, launches)]
    stack, of_launch = key_codes(*columns)
    start, end = calls.start, calls.end
    found = [message_kind(name) for name in calls.name.texts]
    kinds = ["", *dict.fromkeys(kind for kind in found if kind)]
    kind = np.array([kinds.index(name) for name in found], np.int64)[calls.name.codes]
    size = calls.bytes
    kind = np.where((size >= 0) & (size <= MOST_BYTES), kind, 0)
    is_start, is_end = calls.name.among(GROUP_START), calls.name.among(GROUP_END)
    return _Joined(
        table=calls,
        stack=stack,
        of_launch=of_launch,
        nesting=Nesting.of(stack, start, end),
        kinds=kinds,
        kind=kind,
        group=_groups(stack, start, is_start, is_end),
        is_end=is_end,
    )


def _groups(stack: Ints, start: Ints, is_start: Flags, is_end: Flags) -> Ints:
    """Return a number per group of calls, NONE outside; inner groups belong to the outermost."""
    order = order_by(stack, start)
    step = is_start[order].astype(np.int64) - is_end[order]
    edges = run_edges(stack[order])
    thread = np.repeat(np.arange(len(edges) - 1), np.diff(edges))
    total = np.cumsum(step)
    level = total - np.append(0, total)[edges[:-1]][thread]
    # The recording may begin within a group: the level counts from the lowest one so far. Lower
    # numbers for later threads keep what is the lowest so far apart.
    apart = thread * (2 * len(step) + 2)
    lowest_level = np.minimum.accumulate(level - apart) + apart
    depth = level - np.minimum(lowest_level, 0)
    closes = is_end[order] & (depth == 0)
    number, _ = number_groups(thread, np.cumsum(closes) - closes)
    return scatter(np.where((depth > 0) | closes, number, NONE), order, len(stack))


def _numbered(
    members: tuple[Ints, Ints], kernels: tuple[Ints, Ints], known: Flags
) -> tuple[int, Ints, Ints]:
    """Return the number of pairs of unit and kind of members, and the pair of each member and kernel."""
    of_member, of_kernel = key_codes(members, kernels)
    size = int(of_member.max(initial=NONE)) + 1
    return size, of_member, np.where(known & (of_kernel < size), of_kernel, NONE)


@record
class _Totals:
    """The messages of units: number, bytes, whether all are of one size, and what they agree on."""

    count: Ints
    bytes: Ints
    one_size: Flags
    same: dict[str, Ints]

    @classmethod
    def of(cls, joined: _Joined, members: Ints, unit: Ints, size: int) -> _Totals:
        table = joined.table
        byte_counts = table.bytes[members]
        is_received = table.name[members].among(RECV)
        has_sent = counts(unit[~is_received], size) > 0
        # What is received was sent by another rank, or by this one: it counts where nothing is sent.
        is_counted = ~is_received | ~has_sent[unit]
        columns = {name: table[name][members] for name in SAME}
        operators = table.reduction.texts
        code = np.array([n if name else NONE for n, name in enumerate(operators)], np.int64)
        columns["reduction"] = lookup(code, table.reduction.codes[members])
        same = {}
        for name, values in columns.items():
            low, high = (f(unit, values, size) for f in (lowest, highest))
            same[name] = np.where(low == high, low, UNKNOWN)
        low, high = (f(unit, byte_counts, size) for f in (lowest, highest))
        counted = unit[is_counted]
        return cls(
            counts(counted, size), sums(counted, byte_counts[is_counted], size), low == high, same
        )

    def messages(
        self, joined: _Joined, attributed: AttributedCapture, rows: Ints, unit: Ints, kernels: Ints
    ) -> NcclMessages:
        """Return the messages of kernels; ``kernels`` counts those of each unit."""
        # One kernel has all messages of its unit; of as many kernels as messages of one size, one each.
        is_alone, is_each = kernels == 1, (kernels == self.count) & self.one_size
        per_kernel = np.where(
            is_alone,
            self.bytes,
            np.where(is_each, self.bytes // np.maximum(self.count, 1), UNKNOWN),
        )
        number = np.where(is_alone, self.count, np.where(is_each, 1, UNKNOWN))
        taken = {name: lookup(values, unit, UNKNOWN) for name, values in self.same.items()}
        process = attributed.capture.activities.process[rows]
        report = attributed.capture.activities.report[rows]
        ranks, rank = _ranks(joined.table, taken["communicator"], report, process)
        return NcclMessages(
            bytes=lookup(per_kernel, unit, UNKNOWN),
            messages=lookup(number, unit, UNKNOWN),
            communicator=taken["communicator"],
            ranks=ranks,
            rank=rank,
            peer=taken["peer"],
            root=taken["root"],
            reduction=taken["reduction"],
            reductions=[*joined.table.reduction.texts],
        )


def _ranks(table: NcclCalls, communicator: Ints, report: Ints, process: Ints) -> tuple[Ints, Ints]:
    """Return the ranks of communicators, and the rank of the process; -1 where not said or not unique."""
    rows = np.flatnonzero(table.ranks > 0)
    said = [table[c][rows] for c in ("communicator", "report", "process", "ranks", "rank")]
    ranks = _agreed(said[:1], said[3], [communicator])
    rank = _agreed(said[:3], said[4], [communicator, report, process])
    unknown = communicator == UNKNOWN
    return np.where(unknown, UNKNOWN, ranks), np.where(unknown, UNKNOWN, rank)


def _agreed(keys: Sequence[Ints], values: Ints, sought: Sequence[Ints]) -> Ints:
    """Return the value of each sought key, -1 for one without a value or with several."""
    code, of_sought = key_codes(keys, sought)
    size = int(max(code.max(initial=NONE), of_sought.max(initial=NONE))) + 1
    low, high = (f(code, values, size) for f in (lowest, highest))
    result: Ints = np.where(low == high, low, UNKNOWN)[of_sought]
    return result
