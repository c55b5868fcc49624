"""What is alive in memory after each event: a dictionary of allocations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from witness.attribution import Activity, Call, Range, launch_of, stack_at


@dataclass(frozen=True)
class Event:
    """An allocation or a release. ``reserved``, ``allocated``: what the pool says, -1 for nothing."""

    report: int
    process: int
    device: int
    kind: int
    address: int
    bytes: int
    is_release: bool
    time: int
    correlation: int = -1
    thread: int = -1
    pool: int = -1
    reserved: int = -1
    allocated: int = -1

    @property
    def key(self):
        return self.report, self.process, self.device, self.address

    @property
    def group(self):
        return self.report, self.process, self.device, self.kind


@dataclass
class Life:
    """An allocation: rows of the events that begin and end it, None for none."""

    group: tuple
    bytes: int
    first: int | None
    end: int | None = None
    pooled: bool = False
    state: str = "alive at the end"


@dataclass
class Replay:
    """The events, and what follows from them; rows of events are as given."""

    events: Sequence[Event]
    ranges: Sequence[Range]
    calls: Sequence[Call]
    lives: list[Life] = field(default_factory=list)
    used: dict[int, int] = field(default_factory=dict)
    reserved: dict[int, int] = field(default_factory=dict)
    size: dict[int, int] = field(default_factory=dict)
    group: dict[int, tuple] = field(default_factory=dict)

    @cached_property
    def order(self) -> list[int]:
        return sorted(range(len(self.events)), key=lambda row: (self.events[row].time, row))

    @cached_property
    def base(self) -> dict[tuple, int]:
        """Bytes from before: of addresses whose first event is a release; at least what an allocator says."""
        found: dict[tuple, int] = defaultdict(int)
        seen, groups = set(), set()
        for row in self.order:
            event = self.events[row]
            if event.is_release and event.key not in seen:
                found[event.group] += event.bytes
            seen.add(event.key)
        for row in self.order:
            event, group = self.events[row], self.group[row]
            change = -self.size[row] if event.is_release else self.size[row]
            if group not in groups and event.pool == -1 and event.allocated != -1:
                found[group] = max(found[group], event.allocated - change)
            groups.add(group)
        return found

    def __post_init__(self) -> None:
        alive: dict[tuple, Life] = {}
        seen = set()
        ends: dict[int, Life] = {}
        taken: dict[int, Life] = {}
        before: dict[int, Life] = {}
        for row in self.order:
            event = self.events[row]
            old = alive.pop(event.key, None)
            self.group[row], self.size[row] = event.group, event.bytes
            if event.is_release and old:
                ends[row], old.end, old.state = old, row, "released"
                self.group[row], self.size[row] = old.group, old.bytes
            elif event.is_release and event.key not in seen:
                life = Life(
                    event.group, event.bytes, None, row, event.reserved != -1, "before the capture"
                )
                self.lives.append(life)
                before[row] = life
            elif event.is_release:
                self.size[row] = 0
            else:
                if old:
                    taken[row], old.end, old.state = old, row, "release not recorded"
                alive[event.key] = Life(event.group, event.bytes, row, None, event.reserved != -1)
                self.lives.append(alive[event.key])
            seen.add(event.key)
        self._levels(ends, taken, before)

    def _levels(self, ends, taken, before) -> None:
        used = defaultdict(int, self.base)
        pools: dict[tuple, int] = {}
        outside: dict[tuple, int] = defaultdict(int)
        for life in before.values():
            outside[life.group] += 0 if life.pooled else life.bytes
        with_pool = {self.group[row] for row in self.order if self.events[row].reserved != -1}
        for row in self.order:
            event = self.events[row]
            for life in (taken.get(row), ends.get(row), before.get(row)):
                if life:
                    used[life.group] -= life.bytes
                    outside[life.group] -= 0 if life.pooled else life.bytes
            group = self.group[row]
            if not event.is_release:
                used[group] += event.bytes
                outside[group] += event.bytes if event.reserved == -1 else 0
            if event.reserved != -1:
                pools[group, event.pool] = event.reserved
            self.used[row] = used[group]
            total = outside[group] + sum(size for (of, _), size in pools.items() if of == group)
            self.reserved[row] = total if group in with_pool else -1

    def stack(self, row: int) -> tuple[int, ...]:
        """Return the ranges that were open where the event was called for, outermost first."""
        event = self.events[row]
        call = launch_of(self.calls, Activity(event.report, event.process, event.correlation, 1, 2))
        if call != -1:
            at = self.calls[call]
            return stack_at(self.ranges, at.report, at.thread, at.start)
        if event.thread == -1:
            return ()
        return stack_at(self.ranges, event.report, event.thread, event.time)

    def op(self, row: int) -> str:
        stack = self.stack(row)
        return self.ranges[stack[-1]].op if stack else "(no op)"

    def workspaces(self) -> dict[tuple[int, tuple], int]:
        """Return by range and group the most alive at a time of what was made in it and released before its end."""
        own: dict[tuple[int, tuple], list[Life]] = defaultdict(list)
        for life in self.lives:
            if life.state == "released" and life.first is not None:
                for r in self.stack(life.first):
                    if self.events[life.end].time < self.ranges[r].end:
                        own[r, life.group].append(life)
        found = {}
        for key, lives in own.items():
            alive = most = 0
            for row in self.order:
                alive += sum(life.bytes for life in lives if life.first == row)
                alive -= sum(life.bytes for life in lives if life.end == row)
                most = max(most, alive)
            found[key] = most
        return found

    def rise(self, one: Range, group: tuple) -> int:
        """Return how far the group rose above what it held when the range began, until it ended."""
        level, most = self.base[group], 0
        start = None
        for row in self.order:
            if self.group[row] != group:
                continue
            time = self.events[row].time
            if time >= one.end:
                break
            if time >= one.start:
                start = level if start is None else start
                most = max(most, self.used[row] - start)
            level = self.used[row]
        return most
