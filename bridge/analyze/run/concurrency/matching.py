"""Match communication kernels over ranks: which of them are one collective, and who waits for whom in it."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from bridge.analyze.core.devices import Devices
from bridge.analyze.core.groups import counts, highest, lowest
from bridge.analyze.run.concurrency.communication import CommunicationCalls
from bridge.analyze.run.ranks.members import rank_of
from bridge.importers.arrays import factorize
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, number_groups, order_by, run_edges
from bridge.join.attributed import AttributedCapture, once

# Collectives that no rank can leave before all have arrived.
JOINT = ("AllReduce", "AllGather", "AllGatherV", "ReduceScatter", "AllToAll", "Barrier")
FROM_ROOT, TO_ROOT = ("Broadcast", "Scatter"), ("Reduce", "Gather")
TRANSFERS = ("SendRecv", "Send", "Recv")
PAIR = 2  # ranks of a transfer
TRANSFER = re.compile(r"send (\d+)->(\d+)|recv (\d+)<-(\d+)")  # in PyTorch's names of ops
SENDS, RECEIVES = 0, 1


@record
class MatchedCalls:
    """The communication kernels of a capture, a value per call.

    ``rank`` is its GPU, a position in `Devices`. ``number`` is the same for all calls of one collective, or of both
    sides of a transfer. No call that ``waits`` can end before those that are ``awaited`` in its collective have begun.
    """

    calls: CommunicationCalls
    rank: Ints
    number: Ints
    awaited: Flags
    waits: Flags

    @classmethod
    def of(cls, attributed: AttributedCapture) -> MatchedCalls:
        """Match the calls of a capture."""
        return _matched(attributed)

    @property
    def is_joint(self) -> Flags:
        """Whether each call is of a collective that all ranks leave at about the same time."""
        return np.isin(self.calls.collective, JOINT)


@once
def _matched(attributed: AttributedCapture) -> MatchedCalls:
    calls, activities = CommunicationCalls.of(attributed), attributed.capture.activities
    row, gpu = calls.row, Devices.of_report(attributed).gpu[calls.row]
    process = [activities[c][row] for c in ("report", "process")]
    member, _ = number_groups(gpu, *process)
    stream, _ = number_groups(member, *(activities[c][row] for c in ("context", "stream")))
    transfers = Transfers.of(attributed, calls)
    number = match_collectives(
        member,
        stream,
        activities.name.codes[row],
        start=activities.start[row],
        group=_groups(calls, transfers, stream),
        identity=_identities(calls),
    )
    awaited, waits = _sides(calls, transfers, member, number)
    return MatchedCalls(calls=calls, rank=gpu, number=number, awaited=awaited, waits=waits)


# -- What is one collective


def match_collectives(
    rank: Ints,
    stream: Ints,
    kind: Ints,
    *,
    start: Ints,
    group: Ints | None = None,
    identity: Ints | None = None,
) -> Ints:
    """Return a number per call; calls of one collective on several ranks have the same number.

    ``identity`` is the same for all calls of one collective, NONE where nobody says that. ``group`` is the same for all
    ranks that communicate with each other, NONE where unknown. Calls of a group match in their order, those of other
    streams if several ranks run the same kinds of kernels in the same order; if a rank has several such streams, they
    match in order.
    """
    unknown = np.full(len(rank), NONE)
    group, identity = (unknown if column is None else column for column in (group, identity))
    # Without a group, calls follow each other on their stream; those of one identity are mostly one per rank.
    home = np.where((group == NONE) & (identity == NONE), stream, NONE)
    order = order_by(rank, identity, group, home, start)
    one, first = number_groups(*(column[order] for column in (rank, identity, group, home)))
    edges = run_edges(one)
    size = np.diff(edges)
    position = np.empty(len(rank), np.int64)
    position[order] = np.arange(len(order)) - np.repeat(edges[:-1], size)
    heads = order[first]
    unsaid = np.flatnonzero(identity[heads] == NONE).tolist()
    streams = [order[edges[n] : edges[n + 1]] for n in unsaid]
    same = _match_streams(rank, kind, start=start, group=group, streams=streams)
    # An identity that ranks have unlike often tells nothing: nobody knows which of its calls are together.
    said, _ = number_groups(identity[heads], group[heads])
    few, many = (f(said, size, int(said.max(initial=NONE)) + 1)[said] for f in (lowest, highest))
    alone = np.empty(len(rank), np.int64)
    alone[order] = np.repeat(
        np.where((few < many) & (identity[heads] != NONE), rank[heads], NONE), size
    )
    return number_groups(same, identity, group, position, alone)[0]


def _match_streams(
    rank: Ints, kind: Ints, *, start: Ints, group: Ints, streams: Sequence[Ints]
) -> Ints:
    """Return a number per call, the same for ``streams`` or groups of several ranks that run the same; NONE in none."""
    numbers: dict[tuple[bytes, int, int], int] = {}
    occurrences: dict[tuple[bytes, int, int], int] = {}
    result = np.full(len(rank), NONE)
    for rows in sorted(
        streams, key=lambda rows: start[rows[0]]
    ):  # one iteration per stream of a rank
        said, owner = int(group[rows[0]]), int(rank[rows[0]])
        signature = kind[rows].tobytes()
        occurrences[signature, said, owner] = occurrences.get((signature, said, owner), 0) + 1
        key = (signature, said, occurrences[signature, said, owner])
        result[rows] = numbers.setdefault(key, len(numbers))
    return result


def transfer_times(number: Ints, time: Ints) -> Ints:
    """Return the minimum time of each collective over its ranks, -1 if only one rank ran it.

    Only durations are compared, so clocks do not matter.
    """
    if not len(number):
        return time
    rank_count = np.bincount(number)
    shortest = lowest(number, time, len(rank_count))
    result: Ints = np.where(rank_count > 1, shortest, NONE)[number]
    return result


# -- What calls say of their group


@record
class Transfers:
    """What is known of the two sides of sends and receives, a value per call; NONE for other calls and where unknown.

    ``low`` and ``high`` are the ranks from and to which it goes; of what NCCL says the smaller one is ``low``.
    ``side`` is `SENDS` or `RECEIVES`.
    """

    low: Ints
    high: Ints
    side: Ints

    @classmethod
    def of(cls, attributed: AttributedCapture, calls: CommunicationCalls) -> Transfers:
        """Return what the names of ops, details of PyTorch and NCCL say; what comes last of these counts."""
        result = np.full((3, len(calls.row)), NONE)
        for said in (_in_ops(calls), _in_details(attributed, calls), _in_messages(calls)):
            known = np.isin(calls.collective, TRANSFERS) & (said[0] != NONE) & (said[1] != NONE)
            result[:, known] = said[:, known]
        return cls(*result)


def _in_ops(calls: CommunicationCalls) -> Ints:
    """Return ranks and side in names such as ``nccl:send 0->1`` and ``nccl:recv 1<-0``; ranks count in their group."""
    code, ops = factorize(calls.op)
    columns: Ints = np.array([_in_op(op) for op in ops], np.int64).reshape(-1, 3)[code].T
    return columns


def _in_op(op: str) -> tuple[int, int, int]:
    match = TRANSFER.search(op)
    if match is None:
        return NONE, NONE, NONE
    source, target, receiver, sender = match.groups()
    if source is not None:
        return int(source), int(target), SENDS
    return int(sender), int(receiver), RECEIVES


def _in_details(attributed: AttributedCapture, calls: CommunicationCalls) -> Ints:
    """Return ranks and side by the rank of the other side, which PyTorch's profiler records; ranks are of the run."""
    capture = attributed.capture
    ranks = [rank_of(capture, n) for n in range(len(capture.facts))]
    own = np.array([NONE if rank is None else rank for rank in ranks], np.int64)
    own = own[capture.activities.report[calls.row]]
    pairs = [(one.source, one.target) for one in calls.details.details]
    source, target = np.array(pairs, np.int64).reshape(-1, PAIR)[calls.details.code].T
    sends, receives = target != NONE, source != NONE
    side = np.where(sends, SENDS, np.where(receives, RECEIVES, NONE))
    return np.stack((np.where(sends, own, source), np.where(sends, target, own), side))


def _in_messages(calls: CommunicationCalls) -> Ints:
    """Return the ranks that NCCL's payloads name, in their communicator."""
    rank, peer = calls.messages.rank, calls.messages.peer
    known = (rank != NONE) & (peer != NONE)
    pair = np.stack((np.minimum(rank, peer), np.maximum(rank, peer), np.full(len(rank), NONE)))
    return np.where(known, pair, NONE)


def _groups(calls: CommunicationCalls, transfers: Transfers, stream: Ints) -> Ints:
    """Return a code for the ranks that each call communicates with, NONE where nobody says it.

    A call of which nobody says it has the group of all others on its stream, if they have one alone.
    """
    details = calls.details
    named = factorize(np.array([one.group for one in details.details], object))[0][details.code]
    is_named = np.array([bool(one.group) for one in details.details], bool)[details.code]
    named = np.where(is_named, named, NONE)
    communicator = calls.messages.communicator
    is_known = (communicator != NONE) | is_named | (transfers.low != NONE)
    group, _ = number_groups(communicator, named, transfers.low, transfers.high)
    size = int(stream.max(initial=NONE)) + 1
    low, high = (f(stream[is_known], group[is_known], size)[stream] for f in (lowest, highest))
    return np.where(is_known, group, np.where(low == high, low, NONE))


def _identities(calls: CommunicationCalls) -> Ints:
    """Return a code that the calls of one collective have alone, NONE where nobody says it.

    Transfers have none: PyTorch counts them by the rank that makes them.
    """
    details = calls.details
    names = np.array([one.identity for one in details.details], object)
    code = np.where(names == "", NONE, factorize(names)[0])[details.code]
    return np.where(np.isin(calls.collective, TRANSFERS), NONE, code)


# -- Who waits for whom


def _sides(
    calls: CommunicationCalls, transfers: Transfers, rank: Ints, number: Ints
) -> tuple[Flags, Flags]:
    """Return which calls the others of their collective wait for, and which wait, if all ran at one time."""
    collective, messages = calls.collective, calls.messages
    size = int(number.max(initial=NONE)) + 1
    _, members = number_groups(number, rank)
    ranks = counts(number[members], size)[number]
    joint = np.isin(collective, JOINT)
    joint |= np.isin(collective, TRANSFERS) & (ranks == PAIR) & _fit(calls, transfers, rank, number)
    is_root = messages.rank == messages.root
    is_rooted = (messages.root != NONE) & (messages.rank != NONE)
    from_root, to_root = (is_rooted & np.isin(collective, names) for names in (FROM_ROOT, TO_ROOT))
    awaited = joint | (from_root & is_root) | (to_root & ~is_root)
    waits = joint | (from_root & ~is_root) | (to_root & is_root)
    several = ranks > 1
    return awaited & several, waits & several


def _fit(calls: CommunicationCalls, transfers: Transfers, rank: Ints, number: Ints) -> Flags:
    """Return whether calls of two ranks are two sides: one sends to the other, or there are no other ranks."""
    size = int(number.max(initial=NONE)) + 1
    low, high = (f(number, transfers.side, size)[number] for f in (lowest, highest))
    one_each = (low == SENDS) & (high == RECEIVES)
    said = np.array([one.ranks for one in calls.details.details], np.int64)[calls.details.code]
    of_group = np.where(calls.messages.ranks > 0, calls.messages.ranks, said)
    of_group = np.where(of_group > 0, of_group, len(np.unique(rank)))
    undirected = (high == NONE) & ((transfers.low != NONE) | (of_group == PAIR))
    result: Flags = one_each | undirected
    return result
