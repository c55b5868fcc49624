"""What is true of training: directions, links, modules, phases, waits, adoption; as plainly as in `brute`.

Written from the rules, not from the code under test: nothing of `bridge` is imported here.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from statistics import mean

from join.brute import LIBRARY_OP, Brute, Found, is_backward, is_valid, outer_first, union

ENGINE = "autograd::engine::evaluate_function: "
SEQ = re.compile(r", seq = (\d+)")
WAYS = ("forward", "backward")


@dataclass(frozen=True)
class Said:
    """What a name says: its kind, whether it is backward, what it is called as a module."""

    kind: str
    backward: bool
    module: str


@dataclass(frozen=True)
class Wait:
    """A synchronization, or the record of an event."""

    report: int
    process: int
    correlation: int
    start: int
    end: int
    kind: str


def around(brute: Brute, row: int) -> tuple[int, ...]:
    """Return the stack of a range at its start, up to itself; () for one that is never open."""
    one = brute.ranges[row]
    stack = brute.stack(brute.ranges, one.report, one.thread, one.start)
    return stack[: stack.index(row) + 1] if row in stack else ()


@dataclass(frozen=True)
class OneWay(Brute):
    """A profile of which only these ranges are listed; its activities are of their direction."""

    listed: frozenset[int] = frozenset()

    def _attribute(self, activity) -> Found:
        found = super()._attribute(activity)
        return replace(found, stack=tuple(row for row in found.stack if row in self.listed))

    def on_stack(self, activity):
        stack = self.whole(super()._attribute(self.activities[activity]).stack)
        return tuple(row for row in stack if row in self.listed)

    def _busy(self, rows: Iterable[int]) -> int:
        """Reports share no clock, so their busy times add up."""
        return _union_each((self.activities[row] for row in rows), "report")

    def op_rows(self) -> list[int]:
        return [row for row in super().op_rows() if row in self.listed]

    @cached_property
    def cpu(self) -> dict[str, dict[str, int]]:
        """Time is still that of the innermost range of all, but only what is listed gets any."""
        time: dict[str, dict[str, int]] = defaultdict(lambda: {"cpu_self_ns": 0, "cpu_total_ns": 0})
        for first, last, stack in self._pieces():
            for op in {self.ranges[row].op for row in stack if row in self.listed}:
                time[op]["cpu_total_ns"] += last - first
            if stack and stack[-1] in self.listed:
                time[self.ranges[stack[-1]].op]["cpu_self_ns"] += last - first
        return time

    def _pieces(self) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        for report, thread in {(one.report, one.thread) for one in self.ranges}:
            ours = [one for one in self.ranges if (one.report, one.thread) == (report, thread)]
            edges = sorted({edge for one in ours for edge in (one.start, one.end)})
            for first, last in pairwise(edges):
                yield first, last, self.stack(self.ranges, report, thread, first)


@dataclass(frozen=True)
class BruteMore:
    """A profile with the names and whole texts of its ranges, their categories, and what names say."""

    brute: Brute
    names: Sequence[str]
    texts: Sequence[str]
    categories: Sequence[str]
    say: Callable[[str], Said]

    def said(self, row: int) -> Said:
        return self.say(self.names[row])

    # -- directions

    def around(self, row: int) -> tuple[int, ...]:
        return around(self.brute, row)

    @cached_property
    def on_stack(self) -> list[int]:
        return [row for row in range(len(self.names)) if self.around(row)]

    @cached_property
    def backward(self) -> list[bool]:
        """Tell of each range whether it is backward."""
        return [
            any(self.said(at).backward for at in self.around(row) or (row,))
            for row in range(len(self.names))
        ]

    def way(self, activity: int) -> str | None:
        """Return the direction of an activity, None for one without an op."""
        stack = self.brute.found[activity].stack
        return WAYS[any(self.said(row).backward for row in stack)] if stack else None

    def seq(self, row: int) -> str | None:
        found = SEQ.search(self.texts[row][len(self.names[row]) :])
        return found[1] if found else None

    @cached_property
    def offered(self) -> dict[object, list[int]]:
        """List the forward ranges of each report, process and number."""
        rows = defaultdict(list)
        for row in self.on_stack:
            if self.seq(row) and not self.backward[row]:
                rows[self._key(row)].append(row)
        return rows

    def _key(self, row: int) -> object:
        one = self.brute.ranges[row]
        return one.report, one.process, self.seq(row)

    @cached_property
    def links(self) -> dict[int, tuple[int, bool]]:
        """Return the forward range of each range that has one, and whether it is ambiguous."""
        own = {row: link for row in self.on_stack if (link := self._own_link(row))}
        engines = {
            stack[-2]: own[row]
            for row in own
            if len(stack := self.around(row)) > 1
            and self.names[stack[-2]].startswith(ENGINE)
            and stack[-2] not in own
        }
        return own | engines

    def _own_link(self, row: int) -> tuple[int, bool] | None:
        if not self.backward[row] or not self.seq(row):
            return None
        ranges, one = self.brute.ranges, self.brute.ranges[row]
        candidates = [at for at in self.offered[self._key(row)] if ranges[at].start < one.start]
        foreign = [at for at in candidates if ranges[at].thread != one.thread]
        if not candidates:
            return None
        chosen = max(foreign or candidates, key=lambda at: (ranges[at].start, -ranges[at].end, at))
        return chosen, len({ranges[at].thread for at in foreign}) > 1

    def forward(self, activity: int) -> tuple[int, bool]:
        """Return the forward range that an activity belongs to, or -1, and whether it is ambiguous."""
        stack = self.brute.found[activity].stack
        linked = [self.links[row] for row in stack if row in self.links]
        return linked[-1] if linked and self.way(activity) == "backward" else (-1, False)

    def home(self, activity: int) -> tuple[int, ...]:
        """Return the stack that an activity belongs to: the forward range's where it has one."""
        link, _ = self.forward(activity)
        return self.brute.found[activity].stack if link == -1 else self.around(link)

    # -- tables of one direction

    def one_way(self, way: str) -> OneWay:
        b = self.brute
        activities = [one for row, one in enumerate(b.activities) if self.way(row) == way]
        listed = [row for row in b.op_rows() if WAYS[self.backward[row]] == way]
        return OneWay(b.ranges, b.calls, activities, b.stack, b.launch, frozenset(listed))

    # -- modules

    @cached_property
    def modules(self) -> set[int]:
        """List the ranges that stand for modules, report by report."""
        reports = {self.brute.ranges[row].report for row in self.on_stack}
        return {row for report in reports for row in self._modules(report)}

    def _modules(self, report: int) -> list[int]:
        ours = [row for row in range(len(self.names)) if self.brute.ranges[row].report == report]
        numbered = {self.names[row] for row in ours if self.names[row] != self.texts[row]}
        ours = [row for row in ours if row in self.on_stack]
        say_so = [row for row in ours if self.is_marked(row)]
        return say_so or [
            row
            for row in ours
            if self.said(row).kind not in ("operator", "communication")
            and self.names[row] not in numbered
        ]

    def is_marked(self, row: int) -> bool:
        return self.said(row).kind == "module" or self.categories[row] == "module"

    def module_stack(self, stack: tuple[int, ...]) -> tuple[int, ...]:
        """Return the stack whose modules the work of a stack belongs to.

        That is the forward range's, if its innermost module is one by its name or category.
        """
        links = [self.links[row][0] for row in stack if row in self.links]
        if links and any(self.said(row).backward for row in stack):
            modules = [row for row in self.around(links[-1]) if row in self.modules]
            if modules and self.is_marked(modules[-1]):
                return self.around(links[-1])
        return self.brute.whole(stack)

    def module_paths(self, stack: Iterable[int]) -> list[str]:
        """Return the path of each module on a stack, outermost first."""
        paths: list[str] = []
        for row in stack:
            if row in self.modules:
                name = self.said(row).module
                dotted = not paths or name.startswith(paths[-1] + ".")
                paths.append(name if dotted else f"{paths[-1]}/{name}")
        return paths

    def module(self, activity: int) -> str | None:
        stack = self.module_stack(self.brute.found[activity].stack)
        return ([None, *self.module_paths(stack)])[-1]

    # -- tables that bring both directions together

    def _attributed(self) -> list[int]:
        return [row for row, found in enumerate(self.brute.found) if found.stack]

    def _time(self, rows: Iterable[int]) -> int:
        return sum(map(self.brute.time, rows))

    def work(self, rows: Sequence[int]) -> dict[str, float]:
        everything = self._time(range(len(self.brute.activities)))
        kernels = [row for row in rows if self.brute.activities[row].kind == "kernel"]
        return {
            "kernels": len(kernels),
            "gpu_forward_ns": self._time(row for row in rows if self.way(row) == "forward"),
            "gpu_backward_ns": self._time(row for row in rows if self.way(row) == "backward"),
            "gpu_self_ns": self._time(rows),
            "ambiguous_ns": self._time(row for row in rows if self.forward(row)[1]),
            "share": self._time(rows) / everything if everything else 0,
        }

    def by_module(self) -> dict[str, dict[str, float]]:
        own, under = defaultdict(list), defaultdict(list)
        for row in self._attributed():
            paths = self.module_paths(self.module_stack(self.brute.found[row].stack))
            own[paths[-1] if paths else "(no module)"].append(row)
            for path in set(paths) or {"(no module)"}:
                under[path].append(row)
        cpu = self._cpu_of_modules()
        return {
            path: self.work(own[path]) | {"gpu_total_ns": self._time(under[path])} | cpu[path]
            for path in {*under, *cpu}
        }

    def _cpu_of_modules(self) -> dict[str, dict[str, int]]:
        """Count every instant of a thread in a range for the module around it, and for those around that."""
        time = defaultdict(lambda: {"cpu_self_ns": 0, "cpu_total_ns": 0})
        ranges = self.brute.ranges
        for thread in {(one.report, one.thread) for one in ranges}:
            ours = [one for one in ranges if (one.report, one.thread) == thread]
            edges = sorted({edge for one in ours for edge in (one.start, one.end)})
            for first, last in pairwise(edges):
                stack = self.brute.stack(ranges, *thread, first)
                paths = self.module_paths(self.brute.whole(stack))
                others = self.module_paths(self.brute.caller(stack[0])) if stack else []
                paths = paths or (["(no module)"] if stack else [])
                for path in set(paths[len(others) :]):  # time is of this thread alone
                    time[path]["cpu_total_ns"] += last - first
                if paths:
                    time[paths[-1]]["cpu_self_ns"] += last - first
        return time

    def by_forward_op(self) -> dict[str, dict[str, float]]:
        """Count work for the innermost op around it that backward work goes back to, or for its own."""
        own = defaultdict(list)
        returned_to = {self.brute.ranges[link].op for link, _ in self.links.values()}
        for row in self._attributed():
            ops = self.brute.ops_on(self.home(row))
            own[([ops[-1]] + [op for op in ops if op in returned_to])[-1]].append(row)
        return {op: self.work(rows) for op, rows in own.items()}

    # -- phases and waits

    def by_phase(self) -> dict[str, dict[str, float]]:
        named = defaultdict(list)
        for one, name in zip(self.brute.ranges, self.names, strict=True):
            if one.phase:
                named[name].append(one)
        return {name: self._phase(phases) for name, phases in named.items()}

    def _phase(self, phases) -> dict[str, float]:
        ran = [row for row in range(len(self.brute.activities)) if self._is_in(row, phases)]
        activities = [self.brute.activities[row] for row in ran]
        everything = self._time(range(len(self.brute.activities)))
        return {
            "ranges": len(phases),
            "activities": len(ran),
            "kernels": sum(one.kind == "kernel" for one in activities),
            "gpu_ns": self._time(ran),
            "gpu_busy_ns": _union_each(filter(is_valid, activities), "report"),
            "wall_ns": _union_each(phases, "report", "process"),
            "share": self._time(ran) / everything if everything else 0,
        }

    def _is_in(self, activity: int, phases) -> bool:
        launch = self.brute.found[activity].launch
        if launch == -1:
            return False
        call = self.brute.calls[launch]
        return any(
            (one.report, one.process) == (call.report, call.process)
            and one.start <= call.start < one.end
            for one in phases
        )

    def by_wait(self, waits: Sequence[Wait]) -> dict[tuple[str, str], dict[str, float]]:
        times = defaultdict(list)
        for wait in waits:
            times[self._op_of(wait), wait.kind].append(max(0, wait.end - wait.start))
        return {
            key: {
                "count": len(ns),
                "total_ns": sum(ns),
                "mean_ns": mean(ns),
                "min_ns": min(ns),
                "max_ns": max(ns),
            }
            for key, ns in times.items()
        }

    def _op_of(self, wait: Wait) -> str:
        launch = self.brute.launch(self.brute.calls, wait)
        if launch == -1:
            return "(no op)"
        call = self.brute.calls[launch]
        stack = self.brute.stack(self.brute.ranges, call.report, call.thread, call.start)
        return self.brute.ranges[stack[-1]].op if stack else "(no op)"


def _union_each(records, *keys: str) -> int:
    groups = defaultdict(list)
    for one in records:
        groups[tuple(getattr(one, key) for key in keys)].append((one.start, one.end))
    return sum(map(union, groups.values()))


# -- what autograd's threads launch outside of ranges


@dataclass(frozen=True)
class AutogradWork:
    """A profile in which the range that waits for autograd has what autograd launches outside of ranges.

    ``named`` are the (report, thread) with autograd's name.
    """

    brute: Brute
    named: frozenset[tuple[int, int]]

    @cached_property
    def found(self) -> list[tuple[tuple[int, ...], str, bool]]:
        """Return stack, reason, and whether it is adopted, of each activity."""
        return [self._found(row) for row in range(len(self.brute.activities))]

    def _found(self, activity: int) -> tuple[tuple[int, ...], str, bool]:
        found = self.brute.found[activity]
        if found.reason != "no_range":
            return found.stack, found.reason, False
        call = self.brute.calls[found.launch]
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
            self.brute.stack(self.brute.ranges, call.report, thread, call.start)
            for thread in self._threads(call.report, call.process)
            if thread != call.thread and (call.report, thread) not in self.named
        ]
        return [
            stack
            for stack in stacks
            if stack and not any(LIBRARY_OP.fullmatch(op) for op in self.brute.ops_on(stack))
        ]

    def _is_like_autograd(self, report: int, process: int, thread: int) -> bool:
        if thread & 0xFFFFFF == process >> 24 & 0xFFFFFF or any(
            (report, process) == (other, home & -(1 << 24)) for other, home in self.named
        ):
            return False
        kinds = set()
        for activity, found in zip(self.brute.activities, self.brute.found, strict=True):
            call = self.brute.calls[found.launch] if found.launch != -1 else None
            if call is None or (call.report, call.thread) != (report, thread):
                continue
            kinds.add(activity.kind)
            offers = self._offers(call)
            if len(offers) != 1 or not any(map(is_backward, self.brute.ops_on(offers[0]))):
                return False
        return bool(kinds & {"kernel", "graph"})

    def _threads(self, report: int, process: int) -> set[int]:
        return {r.thread for r in self.brute.ranges if (r.report, r.process) == (report, process)}


# -- adoption, where the ranges of each thread nest


@dataclass(frozen=True)
class Adopting:
    """A profile in which the range that another thread waits in takes what stands outside all ranges.

    What autograd launches is its range's before.
    """

    brute: Brute

    @cached_property
    def of_autograd(self) -> list[tuple[tuple[int, ...], str, bool]]:
        return AutogradWork(self.brute, frozenset()).found

    @cached_property
    def stacks(self) -> list[tuple[int, ...]]:
        """Return the whole stack of each activity, of whatever threads; () for none."""
        return [self._stack_of(row) for row in range(len(self.brute.activities))]

    def _stack_of(self, activity: int) -> tuple[int, ...]:
        found = self.brute.found[activity]
        stack = self.of_autograd[activity][0]
        if stack:
            return self.above(stack[0])[:-1] + stack
        return self._adopted(activity) if found.reason == "no_range" else ()

    def above(self, row: int) -> tuple[int, ...]:
        """Return the stack of a range, that of whoever adopted its outermost one first."""
        own = around(self.brute, row)
        root = self.brute.ranges[own[0]]
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
        return self.brute.calls[self.brute.found[activity].launch]

    def _others(self, one) -> set[int]:
        """Return the threads of its process, but its own, that have ranges and launch work."""
        return {
            other.thread
            for other in self.brute.ranges
            if (other.report, other.process) == (one.report, one.process)
            and other.thread != one.thread
            and self._launches(other.report, other.thread)
        }

    def _around(self, report: int, thread: int, start: int, end: int) -> int | None:
        """Return the innermost range of a thread around an interval that is longer, None without."""
        rows = [
            row
            for row in self.brute.stack(self.brute.ranges, report, thread, start)
            if (one := self.brute.ranges[row]).end >= end and (one.start, one.end) != (start, end)
        ]
        return outer_first(self.brute.ranges, rows)[-1] if rows else None

    def _launches(self, report: int, thread: int) -> list[int]:
        """Return when a thread launched work."""
        working = {found.launch for found in self.brute.found} - {-1}
        calls = [self.brute.calls[row] for row in working]
        return [call.start for call in calls if (call.report, call.thread) == (report, thread)]

    def _idle(self, report: int, thread: int, start: int, end: int) -> bool:
        return not any(start <= time <= end for time in self._launches(report, thread))
