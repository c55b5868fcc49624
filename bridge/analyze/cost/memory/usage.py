"""Replay allocations and releases: used memory and, where pools report it, reserved memory."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bridge.analyze.core.groups import counts, sums, texts
from bridge.importers import frames
from bridge.importers.arrays import MISSING, lookup
from bridge.importers.frames import key_codes
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, number_groups, order_by, stable_order
from bridge.join.attributed import KEY, AttributedCapture

# -- Names


NO_OP = "(no op)"
BEFORE_CAPTURE = "(before the capture)"
PID_BITS = 24
NAMES = NDArray[np.object_]


# -- Pairs of allocations and releases


@record
class EventPairs:
    """The partner of each event: the release of an allocation and the reverse, or NONE.

    ``next`` is, for an allocation without a recorded release, the next allocation at its address.
    ``before`` are releases of what was allocated before the capture: the first events of their
    addresses.
    """

    partner: Ints
    next: Ints
    before: Flags

    @classmethod
    def of(cls, key: Ints, is_release: Flags) -> EventPairs:
        """Pair each allocation with the next release at its address; ``key`` numbers addresses."""
        partner, following = np.full(len(key), NONE), np.full(len(key), NONE)
        order = stable_order(key) if len(key) else key
        release, is_first = is_release[order], np.ones(len(key), bool)
        is_first[1:] = key[order][1:] != key[order][:-1]
        current, following_row = order[:-1], order[1:]
        is_open = ~is_first[1:] & ~release[:-1]
        is_ended, is_taken = is_open & release[1:], is_open & ~release[1:]
        partner[current[is_ended]], partner[following_row[is_ended]] = (
            following_row[is_ended],
            current[is_ended],
        )
        following[current[is_taken]] = following_row[is_taken]
        before = np.zeros(len(key), bool)
        before[order[is_first & release]] = True
        return cls(partner, following, before)


# -- Events


@record
class Events:
    """The frame `memory` as columns in order of time, ties as recorded.

    ``key`` numbers addresses by file, process and device. ``group`` is the (file, process, device,
    kind) of the memory; ``groups`` has an event for each group. ``node`` is the innermost open
    range, ``step`` the step of `AttributedCapture.iterations`; NONE for none. ``is_held`` events
    report what was allocated before the capture; ``is_level`` events report only reserved memory.
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
    def of(cls, attributed: AttributedCapture) -> Events:
        table = attributed.capture.memory
        time = table.time
        row = stable_order(time) if len(time) else np.empty(0, np.int64)
        report, process, device, address = (
            table.report[row],
            table.process[row],
            table.device[row],
            table.address[row],
        )
        operation = table.operation[row]
        is_level = operation == frames.RESERVED
        level_number = np.where(is_level, np.arange(len(row)), NONE)  # levels are never released
        key, _ = number_groups(report, process, device, address, level_number)
        group, groups = number_groups(report, process, device, table.kind.codes[row])
        node, call_time = _nodes_and_calls(attributed)
        return cls(
            row=row,
            time=time[row],
            is_release=operation == frames.RELEASE,
            is_held=operation == frames.HELD,
            is_level=is_level,
            bytes=np.maximum(table.bytes[row], 0),
            key=key,
            group=group,
            groups=groups,
            node=node[row],
            step=attributed.iterations.at(report, process, call_time[row]),
        )

    def __len__(self) -> int:
        return len(self.row)


def _nodes_and_calls(attributed: AttributedCapture) -> tuple[Ints, Ints]:
    """Return the node of each row of `memory`, and the time of its API call.

    The node is that of the API call with its correlation id; without one, the innermost range that
    was open on its thread.
    """
    table = attributed.capture.memory
    call = attributed.calls_of(*(table[c] for c in KEY))
    time = table.time
    node = lookup(attributed.launch_node, call)
    without_call = np.flatnonzero((call == NONE) & (table.thread != NONE))
    node[without_call] = innermost_open(attributed, table, without_call, time[without_call])
    call_start = lookup(attributed.capture.launches.start, call)
    return node, np.where(call == NONE, time, call_start)


def innermost_open(
    attributed: AttributedCapture, table: frames.Instants, rows: Ints, time: Ints
) -> Ints:
    """Return the innermost node open at a time on the thread of each of these rows."""
    if not len(rows):
        return rows
    nesting, ranges = attributed.attribution.nesting, attributed.capture.ranges
    thread_code, thread_of_node = key_codes(
        [table.report[rows], table.thread[rows]],
        [ranges.report[nesting.range], ranges.thread[nesting.range]],
    )
    stack = np.full(
        max(int(thread_code.max(initial=0)), int(thread_of_node.max(initial=0))) + 1, NONE
    )
    stack[thread_of_node] = nesting.stack
    return nesting.innermost(stack[thread_code], time)


# -- Usage over time


@record
class MemoryUsage:
    """The memory of a capture over time; docs/memory.md defines every column.

    Columns are per event in order of time, except `base`, which is per group: the bytes known to
    have been allocated before the capture.
    """

    attributed: AttributedCapture
    events: Events
    pairs: EventPairs

    @classmethod
    def of(cls, attributed: AttributedCapture) -> MemoryUsage:
        """Replay the events of a capture."""
        events = Events.of(attributed)
        return cls(attributed, events, EventPairs.of(events.key, events.is_release))

    @cached_property
    def counted(self) -> Flags:
        """Whether each event is selected; running totals always cover all events."""
        selection = self.attributed.selection
        whole = np.ones(len(self.events), bool)
        return whole if selection is None else selection.memory[self.events.row]

    @cached_property
    def size(self) -> Ints:
        """Bytes of the allocation that each event begins or ends; 0 for unmatched releases."""
        events, pairs = self.events, self.pairs
        paired = events.is_release & (pairs.partner != NONE)
        lost = events.is_release & ~paired & ~pairs.before
        size = np.where(paired, events.bytes[pairs.partner], events.bytes)
        return np.where(lost, 0, size)

    @cached_property
    def group(self) -> Ints:
        """The group of each event; a release has the group of its allocation."""
        events, pairs = self.events, self.pairs
        paired = events.is_release & (pairs.partner != NONE)
        return np.where(paired, events.group[pairs.partner], events.group)

    @cached_property
    def change(self) -> Ints:
        """Change of the used bytes of the group by each event."""
        change = np.where(self.events.is_release, -self.size, self.size)
        return np.where(self.events.is_held, 0, change)

    @cached_property
    def is_made(self) -> Flags:
        """Whether each event is an allocation during the capture."""
        return self.begins & ~self.events.is_held

    @cached_property
    def begins(self) -> Flags:
        """Whether each event is an allocation, including those reported at the beginning."""
        return ~self.events.is_release & ~self.events.is_level

    @cached_property
    def lost(self) -> Ints:
        """Allocations whose address was allocated again without a release."""
        return np.flatnonzero(self.pairs.next != NONE)

    @cached_property
    def base(self) -> Ints:
        """Bytes that each group is known to have used before its first event.

        It includes what was released but never allocated and what was reported at the beginning; it
        is at least the total that an allocator reported.
        """
        groups = len(self.events.groups)
        first = np.flatnonzero(self.pairs.before | self.events.is_held)
        result = sums(self.group[first], self.size[first], groups)
        rows, table = np.flatnonzero(~self.events.is_held), self.attributed.capture.memory
        first_events = rows[_first_rows(self.group[rows])]
        rows = self.events.row[first_events]
        reported = table.allocated[rows] - self.change[first_events]
        is_usable = (table.pool[rows] == MISSING) & (reported >= 0)
        is_usable &= table.allocated[rows] != MISSING
        result[self.group[first_events]] = np.where(
            is_usable,
            np.maximum(reported, result[self.group[first_events]]),
            result[self.group[first_events]],
        )
        return result

    @cached_property
    def used(self) -> Ints:
        """Used bytes of the group after each event."""
        return self._running(self.change, np.ones(len(self.events), bool), self.base)

    @cached_property
    def reserved(self) -> Ints:
        """Reserved bytes of the group's pools after each event, plus what is used outside of pools.

        It is -1 without a pool.
        """
        table, row, events = self.attributed.capture.memory, self.events.row, self.events
        level, pool = table.reserved[row], table.pool[row]
        has_level = level != MISSING
        paired = events.is_release & (self.pairs.partner != NONE)
        is_pooled = np.where(paired, has_level[self.pairs.partner], has_level)
        reporting = np.flatnonzero(has_level)
        change = np.where(is_pooled, 0, self.change)
        change[reporting] += _level_changes(
            *(column[reporting] for column in (self.group, pool, level))
        )
        has_pool = counts(self.group[reporting], len(events.groups)) > 0
        earlier = self.pairs.before & ~is_pooled
        base = sums(self.group[earlier], self.size[earlier], len(events.groups))
        result = self._running(change, ~is_pooled, base)
        return np.where(has_pool[self.group], result, MISSING)

    def op_names(self, rows: Ints) -> NAMES:
        """Return the name of the op of each event, `NO_OP` for none."""
        return texts([*self.attributed.ops, NO_OP])[self.op_of(rows)]

    def op_of(self, rows: Ints) -> Ints:
        """Return the code of the op of each event, NONE for none."""
        result: Ints = lookup(self.attributed.node_op, self.events.node[rows])
        return result

    def places(self, group: Ints) -> dict[str, Ints | NAMES]:
        """Return the columns that identify groups: pid, device, memory, and the file of several."""
        table, row = self.attributed.capture.memory, self.events.row[self.events.groups[group]]
        result: dict[str, Ints | NAMES] = {
            "pid": table.process[row] >> PID_BITS & 0xFFFFFF,
            "device": table.device[row],
            "memory": self.kinds(group),
        }
        if len(self.attributed.capture.source) > 1:
            result["report"] = table.report[row]
        return result

    def kinds(self, group: Ints) -> NAMES:
        """Return the name of the kind of memory of each group, such as device or pinned."""
        names: NAMES = texts(frames.MEMORY_KINDS)[self.kind_of(group)]
        return names

    def kind_of(self, group: Ints) -> Ints:
        """Return the kind of each group, a position in `frames.MEMORY_KINDS`."""
        table, row = self.attributed.capture.memory, self.events.row[self.events.groups[group]]
        return table.kind.codes[row]

    def steps(self, rows: Ints) -> Ints:
        """Return the number of the step of each event, NONE outside of steps."""
        numbers: Ints = lookup(self.attributed.iterations.number, self.events.step[rows])
        return numbers

    def since_start(self, rows: Ints) -> Ints:
        """Return the time of each event in ns since the first event of the capture."""
        return self.events.time[rows] - self.attributed.capture.began

    def _running(self, change: Ints, ends: Flags, base: Ints) -> Ints:
        """Return running sums of changes per group.

        An allocation without a release ends when its address is allocated again, if ``ends`` is
        set.
        """
        lost = self.lost[ends[self.lost]]
        position = np.concatenate((self.pairs.next[lost], np.arange(len(change))))
        group = np.concatenate((self.group[lost], self.group))
        changes = np.concatenate((-self.size[lost], change))
        order = order_by(group, position) if len(position) else position
        total = np.cumsum(changes[order])
        first = _first_rows(group[order])
        previous = np.zeros(len(base), np.int64)
        previous[group[order][first]] = (total - changes[order])[first]
        result = np.empty(len(position), np.int64)
        result[order] = total - previous[group[order]] + base[group[order]]
        return result[len(lost) :]


def _first_rows(group: Ints) -> Ints:
    return np.unique(group, return_index=True)[1]


def _level_changes(group: Ints, pool: Ints, level: Ints) -> Ints:
    """Return the change of each level of a pool since the one before, the first one from 0."""
    pool_code, _ = number_groups(group, pool)
    order = order_by(pool_code, np.arange(len(pool_code))) if len(pool_code) else pool_code
    change = level[order].copy()
    is_same_pool = pool_code[order][1:] == pool_code[order][:-1]
    change[1:] -= np.where(is_same_pool, level[order][:-1], 0)
    result = np.empty(len(level), np.int64)
    result[order] = change
    return result
