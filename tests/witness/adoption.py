"""The range that takes what other threads launch outside of all ranges: those of autograd, and any that it waits for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from witness.attribution import LIBRARY_OP, Profile, is_backward, outer_first
from witness.training import around

# -- what autograd's threads launch outside of ranges


@dataclass(frozen=True)
class AutogradWork:
    """A profile in which the range that waits for autograd has what autograd launches outside of ranges.

    ``named`` are the (report, thread) with autograd's name.
    """

    profile: Profile
    named: frozenset[tuple[int, int]]

    @cached_property
    def found(self) -> list[tuple[tuple[int, ...], str, bool]]:
        """Return stack, reason, and whether it is adopted, of each activity."""
        return [self._found(row) for row in range(len(self.profile.activities))]

    def _found(self, activity: int) -> tuple[tuple[int, ...], str, bool]:
        found = self.profile.found[activity]
        if found.reason != "no_range":
            return found.stack, found.reason, False
        call = self.profile.calls[found.launch]
        offers = self._offers(call)
        if (call.report, call.thread) in self.named:
            if len(offers) == 1:
                return offers[0], "", True
            return (), "ambiguous" if offers else "no_range", False
        if self._is_like_autograd(call.report, call.process, call.thread):
            return offers[0], "", True
        return (), "no_range", False

    def _offers(self, call) -> list[tuple[int, ...]]:
        """Return the stacks in which other threads wait when a call begins."""
        stacks = [
            self.profile.stack(self.profile.ranges, call.report, thread, call.start)
            for thread in self._threads(call.report, call.process)
            if thread != call.thread and (call.report, thread) not in self.named
        ]
        return [
            stack
            for stack in stacks
            if stack and not any(LIBRARY_OP.fullmatch(op) for op in self.profile.ops_on(stack))
        ]

    def _is_like_autograd(self, report: int, process: int, thread: int) -> bool:
        if thread & 0xFFFFFF == process >> 24 & 0xFFFFFF or any(
            (report, process) == (other, home & -(1 << 24)) for other, home in self.named
        ):
            return False
        kinds = set()
        for activity, found in zip(self.profile.activities, self.profile.found, strict=True):
            call = self.profile.calls[found.launch] if found.launch != -1 else None
            if call is None or (call.report, call.thread) != (report, thread):
                continue
            kinds.add(activity.kind)
            offers = self._offers(call)
            if len(offers) != 1 or not any(map(is_backward, self.profile.ops_on(offers[0]))):
                return False
        return bool(kinds & {"kernel", "graph"})

    def _threads(self, report: int, process: int) -> set[int]:
        return {r.thread for r in self.profile.ranges if (r.report, r.process) == (report, process)}


# -- adoption, where the ranges of each thread nest


@dataclass(frozen=True)
class Adopting:
    """A profile in which the range that another thread waits in takes what stands outside all ranges.

    What autograd launches is its range's before.
    """

    profile: Profile

    @cached_property
    def of_autograd(self) -> list[tuple[tuple[int, ...], str, bool]]:
        return AutogradWork(self.profile, frozenset()).found

    @cached_property
    def stacks(self) -> list[tuple[int, ...]]:
        """Return the whole stack of each activity, of whatever threads; () for none."""
        return [self._stack_of(row) for row in range(len(self.profile.activities))]

    def _stack_of(self, activity: int) -> tuple[int, ...]:
        found = self.profile.found[activity]
        stack = self.of_autograd[activity][0]
        if stack:
            return self.above(stack[0])[:-1] + stack
        return self._adopted(activity) if found.reason == "no_range" else ()

    def above(self, row: int) -> tuple[int, ...]:
        """Return the stack of a range, that of whoever adopted its outermost one first."""
        own = around(self.profile, row)
        root = self.profile.ranges[own[0]]
        times = self._launches(root.report, root.thread)
        if not any(root.start <= time < root.end for time in times):
            return own
        offers = [
            inner
            for thread in self._others(root)
            if (inner := self._around(root.report, thread, root.start, root.end)) is not None
            and self._idle(root.report, thread, root.start, root.end)
        ]
        return (self.above(offers[0]) if len(offers) == 1 else ()) + own

    def _adopted(self, activity: int) -> tuple[int, ...]:
        call = self._call(activity)
        offers = []
        for thread in self._others(call):
            inner = self._around(call.report, thread, call.start, call.start)
            if inner is not None and self._idle(
                call.report, thread, *self._burst(call, thread, inner)
            ):
                offers.append(inner)
        return self.above(offers[0]) if len(offers) == 1 else ()

    def _burst(self, call, thread: int, inner: int) -> tuple[int, int]:
        """Return when a call's thread launched first and last from outside all ranges within a range."""
        bare = [row for row, found in enumerate(self.of_autograd) if found[1] == "no_range"]
        times = [
            other.start
            for other in map(self._call, bare)
            if (other.report, other.thread) == (call.report, call.thread)
            and self._around(call.report, thread, other.start, other.start) == inner
        ]
        return min(times), max(times)

    def _call(self, activity: int):
        return self.profile.calls[self.profile.found[activity].launch]

    def _others(self, one) -> set[int]:
        """Return the threads of its process, but its own, that have ranges and launch work."""
        return {
            other.thread
            for other in self.profile.ranges
            if (other.report, other.process) == (one.report, one.process)
            and other.thread != one.thread
            and self._launches(other.report, other.thread)
        }

    def _around(self, report: int, thread: int, start: int, end: int) -> int | None:
        """Return the innermost range of a thread around an interval that is longer, None without."""
        rows = [
            row
            for row in self.profile.stack(self.profile.ranges, report, thread, start)
            if (one := self.profile.ranges[row]).end >= end and (one.start, one.end) != (start, end)
        ]
        return outer_first(self.profile.ranges, rows)[-1] if rows else None

    def _launches(self, report: int, thread: int) -> list[int]:
        """Return when a thread launched work."""
        working = {found.launch for found in self.profile.found} - {-1}
        calls = [self.profile.calls[row] for row in working]
        return [call.start for call in calls if (call.report, call.thread) == (report, thread)]

    def _idle(self, report: int, thread: int, start: int, end: int) -> bool:
        return not any(start <= time <= end for time in self._launches(report, thread))
