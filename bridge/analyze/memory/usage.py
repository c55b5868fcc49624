"""How much memory was held when, by address: used, and where pools or allocators say so, reserved."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bridge.analyze.groups import counts, sums, texts
from bridge.join.arrays import NONE, Flags, Ints, by, number, stable
from bridge.join.attributed import KEY, Attributed
from importers import frames
from importers.frames import MISSING, shared

# -- What rows of memory are called: the op, the kind of memory, the process, the step


NO_OP = "(no op)"
BEFORE_CAPTURE = "(before the capture)"
PID_BITS = 24
NAMES = NDArray[np.object_]


# -- Which release ends which allocation: that of the same address which comes next


@dataclass(frozen=True)
class Pairs:
    """Of each event, in order of time: the other of its pair, or NONE.

    ``next`` is of an allocation whose release was not recorded the one that took its address anew;
    ``before`` are the releases of what was allocated before the capture: the first events of their addresses.
    """

    partner: Ints
    next: Ints
    before: Flags

    @classmethod
    def of(cls, key: Ints, is_release: Flags) -> Pairs:
        """Pair events by the number of their address."""
        partner, following = np.full(len(key), NONE), np.full(len(key), NONE)
        order = stable(key) if len(key) else key
        release, first = is_release[order], np.ones(len(key), bool)
        first[1:] = key[order][1:] != key[order][:-1]
        here, after = order[:-1], order[1:]
        open_still = ~first[1:] & ~release[:-1]
        ended, taken = open_still & release[1:], open_still & ~release[1:]
        partner[here[ended]], partner[after[ended]] = after[ended], here[ended]
        following[here[taken]] = after[taken]
        before = np.zeros(len(key), bool)
        before[order[first & release]] = True
        return cls(partner, following, before)


# -- The allocations and releases of a report in order of time, each with the op that called for it


@dataclass(frozen=True)
class Events:
    """Columns of the frame `memory`, in order of time, ties as recorded.

    ``key`` numbers addresses (of a report, process and device), ``group`` where memory is: ``groups`` holds
    a row of these columns for each (report, process, device, kind). ``node`` is the innermost range that
    was open, ``step`` the step of `Attributed.iterations`; NONE for none. What ``is_held`` was allocated
    before the capture and is told of at its beginning; ``is_level`` tells only what is reserved.
    """

    row: Ints
    time: Ints
    is_release: Flags
    is_held: Flags
    is_level: Flags
    bytes: Ints
    key: Ints
    group: Ints
    groups: Ints
    node: Ints
    step: Ints

    @classmethod
    def of(cls, joined: Attributed) -> Events:
        """Take them from a report."""
        table = joined.report.memory
        time = frames.ints(table, "time")
        row = stable(time) if len(time) else np.empty(0, np.int64)
        report, process, device, address = (
            frames.ints(table, c)[row] for c in ("report", "process", "device", "address")
        )
        operation = frames.ints(table, "operation")[row]
        is_level = operation == frames.RESERVED
        apart = np.where(is_level, np.arange(len(row)), NONE)  # nothing ends them
        key, _ = number(report, process, device, address, apart)
        group, groups = number(report, process, device, frames.codes(table["kind"])[row])
        node, called = _called(joined)
        return cls(
            row=row,
            time=time[row],
            is_release=operation == frames.RELEASE,
            is_held=operation == frames.HELD,
            is_level=is_level,
            bytes=np.maximum(frames.ints(table, "bytes")[row], 0),
            key=key,
            group=group,
            groups=groups,
            node=node[row],
            step=joined.iterations.at(report, process, called[row]),
        )

    def __len__(self) -> int:
        return len(self.row)


def _called(joined: Attributed) -> tuple[Ints, Ints]:
    """Return of each row of `memory` the node that it belongs to, and when it was called for.

    That is the API call with its correlation id; without one, what was open on its thread then.
    """
    table = joined.report.memory
    call = joined.calls_of(*(frames.ints(table, c) for c in KEY))
    time = frames.ints(table, "time")
    node = np.append(joined.launch_node, NONE)[call]
    alone = np.flatnonzero((call == NONE) & (frames.ints(table, "thread") != NONE))
    node[alone] = open_on(joined, table, alone, time[alone])
    began = np.append(frames.ints(joined.report.launches, "start"), NONE)[call]
    return node, np.where(call == NONE, time, began)


def open_on(joined: Attributed, table: pd.DataFrame, rows: Ints, time: Ints) -> Ints:
    """Return the innermost node that was open at a time on the thread of each of these rows of a frame."""
    if not len(rows):
        return rows
    nesting, ranges = joined.attribution.nesting, joined.report.ranges
    ours, theirs = shared(
        [frames.ints(table, c)[rows] for c in ("report", "thread")],
        [frames.ints(ranges, c)[nesting.range] for c in ("report", "thread")],
    )
    stack = np.full(max(int(ours.max(initial=0)), int(theirs.max(initial=0))) + 1, NONE)
    stack[theirs] = nesting.stack
    return nesting.innermost(stack[ours], time)


# -- How much memory was held when, by address: used, and where pools or allocators say so, reserved


@dataclass(frozen=True)
class Held:
    """The memory of a report over time; docs/memory.md defines every figure.

    Columns are per event in order of time, but for `base`, which is per group: the bytes known to have
    been allocated before the capture.
    """

    joined: Attributed
    events: Events
    pairs: Pairs

    @classmethod
    def of(cls, joined: Attributed) -> Held:
        """Replay the events of a report."""
        events = Events.of(joined)
        return cls(joined, events, Pairs.of(events.key, events.is_release))

    @cached_property
    def counted(self) -> Flags:
        """Which events are of the time that is looked at; running totals are always of all."""
        chosen = self.joined.chosen
        whole = np.ones(len(self.events), bool)
        return whole if chosen is None else chosen.memory[self.events.row]

    @cached_property
    def size(self) -> Ints:
        """Bytes of the allocation that each event begins or ends; 0 for a release of nothing known."""
        events, pairs = self.events, self.pairs
        paired = events.is_release & (pairs.partner != NONE)
        lost = events.is_release & ~paired & ~pairs.before
        size = np.where(paired, events.bytes[pairs.partner], events.bytes)
        return np.where(lost, 0, size)

    @cached_property
    def group(self) -> Ints:
        """The group of each event; a release is where its allocation was."""
        events, pairs = self.events, self.pairs
        paired = events.is_release & (pairs.partner != NONE)
        return np.where(paired, events.group[pairs.partner], events.group)

    @cached_property
    def change(self) -> Ints:
        """What each event adds to the bytes that its group holds."""
        change = np.where(self.events.is_release, -self.size, self.size)
        return np.where(self.events.is_held, 0, change)

    @cached_property
    def is_made(self) -> Flags:
        """Which events are allocations of the capture."""
        return self.begins & ~self.events.is_held

    @cached_property
    def begins(self) -> Flags:
        """Which events are allocations, of the capture or told of at its beginning."""
        return ~self.events.is_release & ~self.events.is_level

    @cached_property
    def lost(self) -> Ints:
        """The allocations whose address was allocated anew without a release."""
        return np.flatnonzero(self.pairs.next != NONE)

    @cached_property
    def base(self) -> Ints:
        """Bytes that each group held before its first event, as far as that is known.

        What was released and never allocated, and what is told of; where an allocator says its total, at
        least that.
        """
        groups = len(self.events.groups)
        first = np.flatnonzero(self.pairs.before | self.events.is_held)
        found = sums(self.group[first], self.size[first], groups)
        rows, table = np.flatnonzero(~self.events.is_held), self.joined.report.memory
        at = rows[_firsts(self.group[rows])]
        rows = self.events.row[at]
        said = frames.ints(table, "allocated")[rows] - self.change[at]
        alone = (frames.ints(table, "pool")[rows] == MISSING) & (said >= 0)
        alone &= frames.ints(table, "allocated")[rows] != MISSING
        found[self.group[at]] = np.where(
            alone, np.maximum(said, found[self.group[at]]), found[self.group[at]]
        )
        return found

    @cached_property
    def used(self) -> Ints:
        """Bytes that the group of each event held after it."""
        return self._running(self.change, np.ones(len(self.events), bool), self.base)

    @cached_property
    def reserved(self) -> Ints:
        """Bytes that pools of the group had after each event, and what is held beside them; -1 without a pool."""
        table, row, events = self.joined.report.memory, self.events.row, self.events
        level, pool = (frames.ints(table, c)[row] for c in ("reserved", "pool"))
        tells = level != MISSING
        paired = events.is_release & (self.pairs.partner != NONE)
        pooled = np.where(paired, tells[self.pairs.partner], tells)
        told = np.flatnonzero(tells)
        change = np.where(pooled, 0, self.change)
        change[told] += _steps(*(column[told] for column in (self.group, pool, level)))
        any_pool = counts(self.group[told], len(events.groups)) > 0
        outside = self.pairs.before & ~pooled
        base = sums(self.group[outside], self.size[outside], len(events.groups))
        found = self._running(change, ~pooled, base)
        return np.where(any_pool[self.group], found, MISSING)

    def op_names(self, rows: Ints) -> NAMES:
        """Return the op that called for each event, `NO_OP` for none."""
        return texts([*self.joined.ops, NO_OP])[self.op_of(rows)]

    def op_of(self, rows: Ints) -> Ints:
        """Return the code of that op, NONE for none."""
        found: Ints = np.append(self.joined.node_op, NONE)[self.events.node[rows]]
        return found

    def places(self, group: Ints) -> dict[str, Ints | NAMES]:
        """Return the columns that tell groups apart: pid, device, memory, and the report if there are several."""
        table, row = self.joined.report.memory, self.events.row[self.events.groups[group]]
        found: dict[str, Ints | NAMES] = {
            "pid": frames.ints(table, "process")[row] >> PID_BITS & 0xFFFFFF,
            "device": frames.ints(table, "device")[row],
            "memory": self.kinds(group),
        }
        if len(self.joined.report.source) > 1:
            found["report"] = frames.ints(table, "report")[row]
        return found

    def kinds(self, group: Ints) -> NAMES:
        """Return the kind of memory of each group, as device, pinned, managed."""
        names: NAMES = texts(frames.MEMORY_KINDS)[self.kind_of(group)]
        return names

    def kind_of(self, group: Ints) -> Ints:
        """Return the place of each group's kind in `frames.MEMORY_KINDS`."""
        table, row = self.joined.report.memory, self.events.row[self.events.groups[group]]
        return frames.codes(table["kind"])[row]

    def steps(self, rows: Ints) -> Ints:
        """Return the number of each event's step, NONE outside of all."""
        numbers: Ints = np.append(self.joined.iterations.number, NONE)[self.events.step[rows]]
        return numbers

    def since_start(self, rows: Ints) -> Ints:
        """Return when each event was, in ns since the first event of the report."""
        return self.events.time[rows] - self.joined.report.began

    def _running(self, change: Ints, ends: Flags, base: Ints) -> Ints:
        """Return the running sums of changes per group; what was lost ends where its address is taken, of those that ``ends`` tells."""
        lost = self.lost[ends[self.lost]]
        at = np.concatenate((self.pairs.next[lost], np.arange(len(change))))
        group = np.concatenate((self.group[lost], self.group))
        every = np.concatenate((-self.size[lost], change))
        order = by(group, at) if len(at) else at
        total = np.cumsum(every[order])
        first = _firsts(group[order])
        before = np.zeros(len(base), np.int64)
        before[group[order][first]] = (total - every[order])[first]
        found = np.empty(len(at), np.int64)
        found[order] = total - before[group[order]] + base[group[order]]
        return found[len(lost) :]


def _firsts(group: Ints) -> Ints:
    """Return the first row of each group."""
    return np.unique(group, return_index=True)[1]


def _steps(group: Ints, pool: Ints, level: Ints) -> Ints:
    """Return how much each level of a pool differs from the one before, the first from 0."""
    own, _ = number(group, pool)
    order = by(own, np.arange(len(own))) if len(own) else own
    change = level[order].copy()
    same = own[order][1:] == own[order][:-1]
    change[1:] -= np.where(same, level[order][:-1], 0)
    found = np.empty(len(level), np.int64)
    found[order] = change
    return found
