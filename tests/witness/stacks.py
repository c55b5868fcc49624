"""The stacks of a profile, with times and counts by path, one piece of work after the other."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from witness.attribution import Profile
from witness.training import Step, TrainingProfile


@dataclass(frozen=True)
class TrueStacks:
    """The stacks of a profile: figures by path, a path being pairs of level and name."""

    more: TrainingProfile
    steps: list[Step]
    by_step: bool
    by_kernel: bool

    @property
    def profile(self) -> Profile:
        return self.more.profile

    @cached_property
    def step_rows(self) -> set[int]:
        """List the ranges that are called what a step is."""
        names = self.more.names
        called = {names[step.range] for step in self.steps}
        return {row for row, name in enumerate(names) if name in called}

    def step_at(self, one, instant: int | None) -> list[tuple[str, str]]:
        if instant is None:  # of no step
            return []
        here = [
            step.number
            for step in self.steps
            if (step.report, step.process) == (one.report, one.process)
            and step.start <= instant < step.end
        ]
        return [("step", f"step {number}") for number in here] if self.by_step else []

    def path(self, step, stack: tuple[int, ...]) -> tuple[tuple[str, str], ...]:
        modules, steps = self.more.modules, self.step_rows
        home, whole = self.more.module_stack(stack), self.profile.whole(stack)
        of_modules = [row for row in home if row in modules and row not in steps]
        of_ops = [row for row in whole if row not in modules and row not in steps]
        found = [
            *step,
            *(("module", self.more.said(row).module) for row in of_modules),
            *(("op", self.profile.ranges[row].op) for row in of_ops),
        ]
        return tuple(found) or ((("step", "step"),) if stack else ())

    def gpu(self) -> tuple[Counter, Counter]:
        """Return time and number of activities by path."""
        times, numbers = Counter(), Counter()
        for row, (one, found) in enumerate(
            zip(self.profile.activities, self.profile.found, strict=True)
        ):
            path = self.path(self.step_at(one, self.profile.issued(row)), found.stack)
            path += (("reason", found.reason),) if found.reason else ()
            path += (("kernel", one.name),) if self.by_kernel else ()
            times[path] += self.profile.time(row)
            numbers[path] += 1 if self.by_kernel or found.reason else 0
        return times, numbers

    def cpu(self) -> Counter:
        """Return by path for how long a range of it was the innermost one."""
        times = Counter()
        for first, last, stack in self.profile.pieces():
            times[self._of_range(stack)] += last - first
        return times

    def calls(self) -> Counter:
        """Return the number of calls by path: each where its first range began."""
        firsts: dict[object, int] = {}
        rows = [row for row in self.profile.op_rows() if self.more.around(row)]
        for row in sorted(rows, key=lambda row: (self.profile.ranges[row].start, row)):
            firsts.setdefault(self.profile.call_of(row), row)
        return Counter(self._of_range(self.more.around(row)) for row in firsts.values())

    def _of_range(self, stack: tuple[int, ...]):
        one = self.profile.ranges[stack[-1]]
        step, row = self.step_at(one, one.start), stack[-1]
        if row in self.step_rows:
            return tuple(step) or (("step", "step"),)
        if row in self.more.modules:
            whole = self.profile.whole(stack)
            rows = [at for at in whole if at in self.more.modules and at not in self.step_rows]
            return (*step, *(("module", self.more.said(at).module) for at in rows))
        return self.path(step, stack)
