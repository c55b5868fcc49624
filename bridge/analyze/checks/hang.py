"""Why a distributed program hangs: the first collective of each group that did not complete, and who is missing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bridge.analyze.run.causes.operating_system import stacks_of
from bridge.analyze.run.ranks.members import PLACE, UNKNOWN, Member, Ranks
from bridge.importers.arrays import MISSING
from bridge.importers.flight_record import DONE, STARTED, FlightRecord, Operation
from bridge.importers.frames import ID_BITS, Launches, Ranges, SystemCalls
from bridge.join.arrays import NONE, Flags
from bridge.join.attributed import AttributedCapture
from bridge.knowledge.libraries import is_library_file

MISSING_RANK, UNLIKE, NOT_STARTED, STUCK, WAITING = KINDS = (
    "missing",
    "unlike",
    "not started",
    "stuck",
    "waiting",
)

SAME_SIZES = re.compile(
    r"_?all_?reduce(?!_coalesced)|broadcast|reduce$"
)  # others may take another size of each rank
TRANSFER = re.compile(r"(\d+)(->|<-)(\d+)")
NO_STACK = -2  # of a process without ranges and API calls


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
    ranks called it and their GPUs have not begun it, ``stuck`` means that all called it alike, ``waiting`` that a send
    or receive has no counterpart. ``culprits`` are the ranks that others wait for, ``waiting`` those, and
    ``without_dump`` ranks of which nothing is known in this group. ``recorded`` is where the culprits are in reports.
    """

    group: str
    number: int
    kind: str
    name: str
    culprits: tuple[RankState, ...]
    waiting: tuple[RankState, ...]
    without_dump: tuple[int, ...]
    recorded: tuple[Recorded, ...] = ()


@dataclass(frozen=True)
class Recorded:
    """Where a rank is at the end of a report, on its main thread, else on the one that calls CUDA most.

    ``path`` are the ops that are open there, ``call`` the last API or OS call, '' for none; ``since_ns`` is the time
    from the last event of the thread to the end of the report, of which nothing is recorded.
    """

    source: str
    rank: int
    path: str
    call: str
    since_ns: int


def hangs(records: Sequence[FlightRecord]) -> list[Hang]:
    """Return the first operation of each group that did not complete, the longest wait first; none if all did."""
    found = [*_collectives(records), *_transfers(records)]
    return sorted(found, key=lambda hang: -max((one.since_ns for one in hang.waiting), default=0))


def in_reports(found: Sequence[Hang], attributed: AttributedCapture) -> list[Hang]:
    """Return hangs with where their culprits are in the reports of a run, for those that a report says to hold."""
    ranks = Ranks.of(attributed.capture, attributed.place)
    known = [ranks.members[number] for number in reversed(ranks.workers)]
    by_rank = {one.rank: one for one in known if one.known_by not in {PLACE, UNKNOWN}}
    return [
        replace(
            hang,
            recorded=tuple(
                _at_the_end(attributed, by_rank[one.rank])
                for one in hang.culprits
                if one.rank in by_rank
            ),
        )
        for hang in found
    ]


def _at_the_end(attributed: AttributedCapture, member: Member) -> Recorded:
    """Return where a process is at the end of its report."""
    capture, attribution = attributed.capture, attributed.attribution
    nesting, ranges, facts = attribution.nesting, capture.ranges, capture.facts[member.report]
    stack = _main_stack(attributed, member)
    calls = [
        *_last_call(capture.launches, attribution.stack == stack),
        *_last_call(capture.system_calls, stacks_of(attributed, capture.system_calls) == stack),
    ]
    rows = nesting.range[nesting.stack == stack]
    edges = (ranges.start[rows], ranges.end[rows][~ranges.open[rows]])
    begin, end = facts.span[0], max(facts.span[1], facts.session_ns)
    last, call = max(calls, default=(begin, ""))
    last = min(end, max(last, *(int(edge.max(initial=begin)) for edge in edges)))
    node = int(nesting.innermost(np.array([stack]), np.array([last]))[0]) if len(rows) else NONE
    path, paths = attributed.node_path
    return Recorded(
        source=capture.source[member.report],
        rank=member.rank,
        path=paths[path[node]] if node != NONE else "",
        call=call,
        since_ns=end - last,
    )


def _main_stack(attributed: AttributedCapture, member: Member) -> int:
    """Return the stack of the main thread of a process, else of that which calls CUDA most, else of most ranges."""
    capture, attribution = attributed.capture, attributed.attribution
    calls, ranges = capture.launches, capture.ranges
    nesting = attribution.nesting
    own = _is_own(ranges, member)[nesting.range]
    stacks = attribution.stack[_is_own(calls, member)], nesting.stack[own]
    threads = calls.thread[_is_own(calls, member)], ranges.thread[nesting.range][own]
    for stack, thread in zip(stacks, threads, strict=True):
        main = np.flatnonzero(thread & ID_BITS == member.pid)
        if len(main):
            return int(stack[main[0]])
    some = next((stack for stack in stacks if len(stack)), np.array([NO_STACK]))
    return int(np.bincount(some).argmax()) if some[0] != NO_STACK else NO_STACK


def _is_own(table: Launches | Ranges, member: Member) -> Flags:
    result: Flags = (table.report == member.report) & (table.process == member.process)
    return result


def _last_call(table: Launches | SystemCalls, of_thread: Flags) -> Iterator[tuple[int, str]]:
    """Yield the end and the name of the last call of a thread, if there is one."""
    rows = np.flatnonzero(of_thread)
    if len(rows):
        row = rows[np.argmax(table.end[rows])]
        yield int(table.end[row]), str(table.name.texts[table.name.codes[row]])


@dataclass(frozen=True)
class _Member:
    """A rank of a group: its dump, its collectives there by number, and the last that it called, -1 if unknown."""

    record: FlightRecord
    called: dict[int, Operation]
    last: int


def _collectives(records: Sequence[FlightRecord]) -> Iterator[Hang]:
    groups = dict.fromkeys(one.group for record in records for one in record.operations)
    for group in groups:
        ranks = {rank for record in records for rank in record.groups.get(group, ())}
        members = {
            record.rank: _member(record, group)
            for record in records
            if record.rank in ranks or not ranks
        }
        unknown = [
            rank for rank in sorted(ranks) if rank not in members or members[rank].last == MISSING
        ]
        known = {rank: one for rank, one in sorted(members.items()) if one.last != MISSING}
        hang = _first_open(group, known, tuple(unknown))
        if hang is not None:
            yield hang


def _member(record: FlightRecord, group: str) -> _Member:
    mine = [one for one in record.operations if one.group == group and not one.point_to_point]
    called = {one.number: one for one in mine}
    return _Member(
        record, called, max([*called, record.enqueued.get(group, MISSING)], default=MISSING)
    )


def _first_open(group: str, members: dict[int, _Member], unknown: tuple[int, ...]) -> Hang | None:
    """Return the first collective of a group that some rank called and that did not complete there."""
    open_ones = {
        number
        for one in members.values()
        for number, operation in one.called.items()
        if operation.state != DONE
    }
    if not open_ones:
        return None
    number = min(open_ones)
    there = {rank: one.called[number] for rank, one in members.items() if number in one.called}
    absent = [rank for rank, one in members.items() if one.last < number]
    kind, culprits = _blame(there, absent)
    some = next(iter(there.values()))
    return Hang(
        group=some.described,
        number=number,
        kind=kind,
        name=_usual(one.name for one in there.values()),
        culprits=tuple(_state(members[rank].record, group, there.get(rank)) for rank in culprits),
        waiting=tuple(
            _state(members[rank].record, group, one)
            for rank, one in there.items()
            if rank not in culprits and one.state != DONE
        ),
        without_dump=unknown,
    )


def _blame(there: dict[int, Operation], absent: Sequence[int]) -> tuple[str, Sequence[int]]:
    """Return the kind of a hang and the ranks that others wait for."""
    if absent:
        return MISSING_RANK, absent
    said = {rank: _what(one) for rank, one in there.items()}
    usual = _usual(said.values())
    odd = [rank for rank, what in said.items() if what != usual]
    if odd:  # without a majority nobody can tell who is wrong
        return UNLIKE, odd if 2 * len(odd) < len(said) else [*said]
    late = [rank for rank, one in there.items() if one.state not in {DONE, STARTED}]
    if late and len(late) < len(there):
        return NOT_STARTED, late
    return STUCK, []


def _what(one: Operation) -> str:
    """Return what all ranks must call alike: the operation, and of some also the sizes."""
    return f"{one.name} {one.sizes}" if SAME_SIZES.match(one.name) else one.name


def _usual(names: Iterable[str]) -> str:
    """Return the name that most have; of several the first."""
    listed = list(names)
    return max(dict.fromkeys(listed), key=listed.count, default="")


def _transfers(records: Sequence[FlightRecord]) -> Iterator[Hang]:
    """Yield the first send or receive of each rank that did not complete, if no other rank called its counterpart."""
    waiting = [
        (record, one)
        for record in records
        for one in record.operations
        if one.point_to_point and one.state != DONE
    ]
    pairs = Counter((one.group, _pair(one)) for _, one in waiting)
    said: set[int] = set()
    for record, one in waiting:
        if record.rank in said:
            continue
        said.add(record.rank)
        kind = WAITING if pairs[one.group, _pair(one)] == 1 else STUCK
        own = (_state(record, one.group, one),)
        yield Hang(
            one.described, one.number, kind, one.name, culprits=(), waiting=own, without_dump=()
        )


def _pair(one: Operation) -> tuple[str, ...]:
    """Return the ranks from and to which a transfer goes, which ``send 0->1`` and ``recv 1<-0`` have in common."""
    match = TRANSFER.search(one.name)
    return (
        () if match is None else (match[1], match[3]) if match[2] == "->" else (match[3], match[1])
    )


def _state(record: FlightRecord, group: str, one: Operation | None) -> RankState:
    """Return how a rank stands to an operation that it called, else what it called last in the group."""
    called = _member(record, group).called
    last = one or called.get(max(called, default=MISSING))
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
