"""How much memory was held when, by address: used, and where pools or allocators say so, reserved."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bridge.analyze.groups import counts, sums
from bridge.analyze.memory.events import Events
from bridge.analyze.memory.pairs import Pairs
from bridge.join.attributed import Attributed
from bridge.join.order import NONE, Flags, Ints, by, number
from importers import frames
from importers.frames import MISSING


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
