"""Match communication kernels over ranks: which of them are one collective, and who waits for whom in it."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from bridge.analyze.core.devices import Devices
from bridge.analyze.core.groups import counts, lowest
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
Pair = tuple[Ints, Ints]


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
    row, rank = calls.row, Devices.of_report(attributed).gpu[calls.row]
    columns = (activities[c][row] for c in ("process", "context", "stream"))
    number = match_collectives(
        rank,
        number_groups(*columns)[0],
        activities.name.codes[row],
        start=activities.start[row],
        group=_groups(attributed, calls),
        identity=_identities(calls),
    )
    awaited, waits = _sides(calls, rank, number)
    return MatchedCalls(calls=calls, rank=rank, number=number, awaited=awaited, waits=waits)


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
    one, _ = number_groups(*(column[order] for column in (rank, identity, group, home)))
    edges = run_edges(one)
    position = np.empty(len(rank), np.int64)
    position[order] = np.arange(len(order)) - np.repeat(edges[:-1], np.diff(edges))
    unsaid = np.flatnonzero(identity[order[edges[:-1]]] == NONE).tolist()
    streams = [order[edges[n] : edges[n + 1]] for n in unsaid]
    same = _match_streams(rank, kind, start=start, group=group, streams=streams)
    return number_groups(same, identity, position)[0]


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


def _groups(attributed: AttributedCapture, calls: CommunicationCalls) -> Ints:
    """Return a code for the ranks that each call communicates with, NONE where nobody says it."""
    details = calls.details
    named = factorize(np.array([one.group for one in details.details], object))[0][details.code]
    is_named = np.array([bool(one.group) for one in details.details], bool)[details.code]
    named = np.where(is_named, named, NONE)
    communicator = calls.messages.communicator
    low, high = _pairs(attributed, calls)
    is_known = (communicator != NONE) | is_named | (low != NONE)
    group, _ = number_groups(communicator, named, low, high)
    return np.where(is_known, group, NONE)


def _pairs(attributed: AttributedCapture, calls: CommunicationCalls) -> Pair:
    """Return the ranks from and to which transfers go, NONE for other calls and where nobody says it.

    Of what NCCL says the direction is not known; the smaller rank comes first then.
    """
    messages, is_transfer = calls.messages, np.isin(calls.collective, TRANSFERS)
    both = np.minimum(messages.rank, messages.peer), np.maximum(messages.rank, messages.peer)
    is_said = is_transfer & (both[0] != NONE)
    pair = [np.where(is_said, column, NONE) for column in both]
    ranks = [rank_of(attributed.capture, n) for n in range(len(attributed.capture.facts))]
    own = np.array([NONE if rank is None else rank for rank in ranks], np.int64)
    own = own[attributed.capture.activities.report[calls.row]]
    said = [(one.source, one.target) for one in calls.details.details]
    of_details = np.array(said, np.int64).reshape(-1, PAIR)[calls.details.code].T
    code, ops = factorize(calls.op)
    of_op = np.array([_pair_in(op) for op in ops], np.int64).reshape(-1, PAIR)[code].T
    is_one = (of_details != NONE).any(axis=0) & (own != NONE)
    for known, two in (
        (is_one, np.where(of_details == NONE, own, of_details)),
        (of_op[0] != NONE, of_op),
    ):
        pair = [np.where(is_transfer & known, new, old) for new, old in zip(two, pair, strict=True)]
    return pair[0], pair[1]


def _pair_in(op: str) -> tuple[int, int]:
    """Return the ranks in the name of a transfer, such as ``nccl:send 0->1`` and ``nccl:recv 1<-0``."""
    match = TRANSFER.search(op)
    if match is None:
        return NONE, NONE
    source, target, receiver, sender = match.groups()
    return (int(source), int(target)) if source is not None else (int(sender), int(receiver))


def _identities(calls: CommunicationCalls) -> Ints:
    """Return a code that the calls of one collective have alone, NONE where nobody says it.

    Transfers have none: PyTorch counts them by the rank that makes them.
    """
    details = calls.details
    names = np.array([one.identity for one in details.details], object)
    code = np.where(names == "", NONE, factorize(names)[0])[details.code]
    return np.where(np.isin(calls.collective, TRANSFERS), NONE, code)


# -- Who waits for whom


def _sides(calls: CommunicationCalls, rank: Ints, number: Ints) -> tuple[Flags, Flags]:
    """Return which calls the others of their collective wait for, and which wait, if all ran at one time."""
    collective, messages = calls.collective, calls.messages
    size = int(number.max(initial=NONE)) + 1
    _, members = number_groups(number, rank)
    ranks = counts(number[members], size)[number]
    joint = np.isin(collective, JOINT)
    joint |= np.isin(collective, TRANSFERS) & (ranks == PAIR)
    is_root = messages.rank == messages.root
    is_rooted = (messages.root != NONE) & (messages.rank != NONE)
    from_root, to_root = (is_rooted & np.isin(collective, names) for names in (FROM_ROOT, TO_ROOT))
    awaited = joint | (from_root & is_root) | (to_root & ~is_root)
    waits = joint | (from_root & ~is_root) | (to_root & is_root)
    several = ranks > 1
    return awaited & several, waits & several
