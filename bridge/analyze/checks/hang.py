"""Why a distributed program hangs: the first collective of each group that did not complete, and who is missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from bridge.importers.arrays import MISSING
from bridge.importers.flight_record import DONE, STARTED, FlightRecord, Operation
from bridge.knowledge.libraries import is_library_file

MISSING_RANK, UNLIKE, NOT_STARTED, STUCK, WAITING = KINDS = (
    "missing",
    "unlike",
    "not started",
    "stuck",
    "waiting",
)


@dataclass(frozen=True)
class RankState:
    """What a rank does in a group: the operation it called last, or None, since when, and its line.

    ``since_ns`` is the time from the call to the dump, -1 if it is not known.
    """

    rank: int
    number: int
    name: str
    sizes: str
    state: str
    since_ns: int
    function: str
    line: str


@dataclass(frozen=True)
class Hang:
    """An operation that did not complete: of which group, its number, and how its ranks stand to it.

    ``kind`` is one of `KINDS`: ``missing`` ranks did not call it, ``unlike`` ranks called other things, ``not started``
    ranks called it and their GPUs have not begun it, ``stuck`` means that all began it, ``waiting`` that a send or
    receive has no counterpart. ``culprits`` are the ranks that others wait for, ``waiting`` those.
    """

    group: str
    number: int
    kind: str
    name: str
    culprits: tuple[RankState, ...]
    waiting: tuple[RankState, ...]
    without_dump: tuple[int, ...]


def hangs(records: Sequence[FlightRecord]) -> list[Hang]:
    """Return the first operation of each group that did not complete, the longest wait first; none if all did."""
    found = [*_collectives(records), *_transfers(records)]
    return sorted(found, key=lambda hang: -max((one.since_ns for one in hang.waiting), default=0))


def _collectives(records: Sequence[FlightRecord]) -> Iterator[Hang]:
    groups = dict.fromkeys(one.group for record in records for one in record.operations)
    for group in groups:
        called = {
            record.rank: {
                one.number: one
                for one in record.operations
                if one.group == group and not one.point_to_point
            }
            for record in records
        }
        members = {rank for record in records for rank in record.groups.get(group, ())} or {
            rank for rank, own in called.items() if own
        }
        hang = _first_open(records, group, {rank: called.get(rank) for rank in sorted(members)})
        if hang is not None:
            yield hang


Called = dict[int, dict[int, Operation] | None]  # by rank; None without a dump


def _first_open(records: Sequence[FlightRecord], group: str, called: Called) -> Hang | None:
    """Return the first collective of a group that some rank called and not all completed."""
    with_dump = {rank: own for rank, own in called.items() if own is not None}
    numbers = sorted({number for own in with_dump.values() for number in own})
    for number in numbers:
        own = {rank: operations.get(number) for rank, operations in with_dump.items()}
        there = {rank: one for rank, one in own.items() if one is not None}
        absent = [
            rank
            for rank, operations in with_dump.items()
            if number not in operations and number > max(operations, default=MISSING)
        ]
        if absent or any(one.state != DONE for one in there.values()):
            kind, culprits = _blame(there, absent)
            state = {record.rank: record for record in records}
            return Hang(
                group=group,
                number=number,
                kind=kind,
                name=_usual(one.name for one in there.values()),
                culprits=tuple(_state(state[rank], group, there.get(rank)) for rank in culprits),
                waiting=tuple(
                    _state(state[rank], group, one)
                    for rank, one in there.items()
                    if rank not in culprits and one.state != DONE
                ),
                without_dump=tuple(
                    rank for rank, operations in called.items() if operations is None
                ),
            )
    return None


def _blame(there: dict[int, Operation], absent: Sequence[int]) -> tuple[str, Sequence[int]]:
    """Return the kind of a hang and the ranks that others wait for."""
    if absent:
        return MISSING_RANK, absent
    usual = _usual(one.name for one in there.values())
    odd = [rank for rank, one in there.items() if one.name != usual]
    if odd:
        return UNLIKE, odd
    late = [rank for rank, one in there.items() if one.state not in {DONE, STARTED}]
    if late and len(late) < len(there):
        return NOT_STARTED, late
    return STUCK, []


def _usual(names: Iterable[str]) -> str:
    """Return the name that most have; of several the first."""
    listed = list(names)
    return max(dict.fromkeys(listed), key=listed.count, default="")


def _transfers(records: Sequence[FlightRecord]) -> Iterator[Hang]:
    """Yield sends and receives that did not complete."""
    for record in records:
        for one in record.operations:
            if one.point_to_point and one.state != DONE:
                waiting = (_state(record, one.group, one),)
                yield Hang(
                    one.group,
                    one.number,
                    WAITING,
                    one.name,
                    culprits=(),
                    waiting=waiting,
                    without_dump=(),
                )
                break


def _state(record: FlightRecord, group: str, one: Operation | None) -> RankState:
    """Return how a rank stands to an operation that it called, else what it called last in the group."""
    mine = [op for op in record.operations if op.group == group and not op.point_to_point]
    last = one or max(mine, key=lambda op: op.number, default=None)
    if last is None:
        return RankState(
            record.rank, MISSING, "", sizes="", state="", since_ns=MISSING, function="", line=""
        )
    frame = next((f for f in last.frames if not is_library_file(f.file)), None)
    since = record.dumped_ns - last.called_ns if last.called_ns != MISSING else MISSING
    return RankState(
        rank=record.rank,
        number=last.number,
        name=last.name,
        sizes=last.sizes,
        state=last.state,
        since_ns=max(since, MISSING),
        function=frame.function if frame else "",
        line=f"{frame.file}:{frame.line}" if frame else "",
    )
