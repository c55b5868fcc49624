"""The directions of a training, the forward range of backward work, its modules, phases and waits."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from witness.attribution import (
    Ownership,
    Profile,
    is_valid,
    statistics,
    union,
)

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
class Step:
    """A step of a process, and the row of its range."""

    range: int
    number: int
    report: int
    process: int
    start: int
    end: int


@dataclass(frozen=True)
class Wait:
    """A synchronization, or the record of an event."""

    report: int
    process: int
    correlation: int
    start: int
    end: int
    kind: str


def around(profile: Profile, row: int) -> tuple[int, ...]:
    """Return the stack of a range at its start, up to itself; () for one that is never open."""
    one = profile.ranges[row]
    stack = profile.stack(profile.ranges, one.report, one.thread, one.start)
    return stack[: stack.index(row) + 1] if row in stack else ()


@dataclass(frozen=True)
class OneWay(Profile):
    """A profile of which only these ranges are listed; its activities are of their direction."""

    listed: frozenset[int] = frozenset()

    def _attribute(self, activity) -> Ownership:
        found = super()._attribute(activity)
        return replace(found, stack=tuple(row for row in found.stack if row in self.listed))

    def on_stack(self, activity):
        stack = self.whole(super()._attribute(self.activities[activity]).stack)
        return tuple(row for row in stack if row in self.listed)

    def op_rows(self) -> list[int]:
        return [row for row in super().op_rows() if row in self.listed]

    @cached_property
    def cpu(self) -> dict[str, dict[str, int]]:
        """Time is still that of the innermost range of all, but only what is listed gets any."""
        time: dict[str, dict[str, int]] = defaultdict(lambda: {"cpu_self_ns": 0, "cpu_total_ns": 0})
        for first, last, stack in self.pieces():
            for op in {self.ranges[row].op for row in stack if row in self.listed}:
                time[op]["cpu_total_ns"] += last - first
            if stack[-1] in self.listed:
                time[self.ranges[stack[-1]].op]["cpu_self_ns"] += last - first
        return time


@dataclass(frozen=True)
class TrainingProfile:
    """A profile with the names and whole texts of its ranges, their categories, and what names say."""

    profile: Profile
    names: Sequence[str]
    texts: Sequence[str]
    categories: Sequence[str]
    say: Callable[[str], Said]

    def said(self, row: int) -> Said:
        return self.say(self.names[row])

    # -- directions

    def around(self, row: int) -> tuple[int, ...]:
        return around(self.profile, row)

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
        stack = self.profile.found[activity].stack
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
        one = self.profile.ranges[row]
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
        ranges, one = self.profile.ranges, self.profile.ranges[row]
        candidates = [at for at in self.offered[self._key(row)] if ranges[at].start < one.start]
        foreign = [at for at in candidates if ranges[at].thread != one.thread]
        if not candidates:
            return None
        chosen = max(foreign or candidates, key=lambda at: (ranges[at].start, -ranges[at].end, at))
        return chosen, len({ranges[at].thread for at in foreign}) > 1

    def forward(self, activity: int) -> tuple[int, bool]:
        """Return the forward range that an activity belongs to, or -1, and whether it is ambiguous."""
        stack = self.profile.found[activity].stack
        linked = [self.links[row] for row in stack if row in self.links]
        return linked[-1] if linked and self.way(activity) == "backward" else (-1, False)

    def home(self, activity: int) -> tuple[int, ...]:
        """Return the stack that an activity belongs to: the forward range's where it has one."""
        link, _ = self.forward(activity)
        return self.profile.found[activity].stack if link == -1 else self.around(link)

    # -- tables of one direction

    def one_way(self, way: str) -> OneWay:
        b = self.profile
        activities = [one for row, one in enumerate(b.activities) if self.way(row) == way]
        listed = [row for row in b.op_rows() if WAYS[self.backward[row]] == way]
        return OneWay(b.ranges, b.calls, activities, b.stack, b.launch, frozenset(listed))

    # -- modules

    @cached_property
    def modules(self) -> set[int]:
        """List the ranges that stand for modules, report by report."""
        reports = {self.profile.ranges[row].report for row in self.on_stack}
        return {row for report in reports for row in self._modules(report)}

    def _modules(self, report: int) -> list[int]:
        ours = [row for row in range(len(self.names)) if self.profile.ranges[row].report == report]
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
        return self.profile.whole(stack)

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
        stack = self.module_stack(self.profile.found[activity].stack)
        return ([None, *self.module_paths(stack)])[-1]

    # -- tables that bring both directions together

    def _attributed(self) -> list[int]:
        return [row for row, found in enumerate(self.profile.found) if found.stack]

    def _time(self, rows: Iterable[int]) -> int:
        return sum(map(self.profile.time, rows))

    def work(self, rows: Sequence[int]) -> dict[str, float]:
        everything = self._time(range(len(self.profile.activities)))
        kernels = [row for row in rows if self.profile.activities[row].kind == "kernel"]
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
            paths = self.module_paths(self.module_stack(self.profile.found[row].stack))
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
        for first, last, stack in self.profile.pieces():
            paths = self.module_paths(self.profile.whole(stack)) or ["(no module)"]
            others = self.module_paths(self.profile.caller(stack[0]))
            for path in set(paths[len(others) :]):  # time is of this thread alone
                time[path]["cpu_total_ns"] += last - first
            time[paths[-1]]["cpu_self_ns"] += last - first
        return time

    def by_forward_op(self) -> dict[str, dict[str, float]]:
        """Count work for the innermost op around it that backward work goes back to, or for its own."""
        own = defaultdict(list)
        returned_to = {self.profile.ranges[link].op for link, _ in self.links.values()}
        for row in self._attributed():
            ops = self.profile.ops_on(self.home(row))
            own[([ops[-1]] + [op for op in ops if op in returned_to])[-1]].append(row)
        return {op: self.work(rows) for op, rows in own.items()}

    # -- phases and waits

    def by_phase(self) -> dict[str, dict[str, float]]:
        named = defaultdict(list)
        for one, name in zip(self.profile.ranges, self.names, strict=True):
            if one.phase:
                named[name].append(one)
        return {name: self._phase(phases) for name, phases in named.items()}

    def _phase(self, phases) -> dict[str, float]:
        ran = [row for row in range(len(self.profile.activities)) if self._is_in(row, phases)]
        activities = [self.profile.activities[row] for row in ran]
        everything = self._time(range(len(self.profile.activities)))
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
        launch = self.profile.found[activity].launch
        if launch == -1:
            return False
        call = self.profile.calls[launch]
        return any(
            (one.report, one.process) == (call.report, call.process)
            and one.start <= call.start < one.end
            for one in phases
        )

    def by_wait(self, waits: Sequence[Wait]) -> dict[tuple[str, str], dict[str, float]]:
        times = defaultdict(list)
        for wait in waits:
            times[self._op_of(wait), wait.kind].append(max(0, wait.end - wait.start))
        return {key: statistics(ns) for key, ns in times.items()}

    def _op_of(self, wait: Wait) -> str:
        launch = self.profile.launch(self.profile.calls, wait)
        if launch == -1:
            return "(no op)"
        call = self.profile.calls[launch]
        stack = self.profile.stack(self.profile.ranges, call.report, call.thread, call.start)
        return self.profile.ranges[stack[-1]].op if stack else "(no op)"


def _union_each(records, *keys: str) -> int:
    groups = defaultdict(list)
    for one in records:
        groups[tuple(getattr(one, key) for key in keys)].append((one.start, one.end))
    return sum(map(union, groups.values()))
