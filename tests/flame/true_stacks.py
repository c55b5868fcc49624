"""What the stacks of a profile are, walked in Python one piece of work at a time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from join.brute import Brute
from join.brute_more import BruteMore

from bridge.analyze.core.calltree import LEVELS, CallTree


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
class TrueStacks:
    """The stacks of a profile: figures by path, a path being pairs of level and name."""

    more: BruteMore
    steps: list[Step]
    by_step: bool
    by_kernel: bool

    @property
    def brute(self) -> Brute:
        return self.more.brute

    @cached_property
    def step_rows(self) -> set[int]:
        """List the ranges that are called what a step is."""
        names = self.more.names
        called = {names[step.range] for step in self.steps}
        return {row for row, name in enumerate(names) if name in called}

    def step_at(self, one, instant: int) -> list[tuple[str, str]]:
        here = [
            step.number
            for step in self.steps
            if (step.report, step.process) == (one.report, one.process)
            and step.start <= instant < step.end
        ]
        return [("step", f"step {number}") for number in here] if self.by_step else []

    def path(self, step, stack: tuple[int, ...]) -> tuple[tuple[str, str], ...]:
        modules, steps = self.more.modules, self.step_rows
        home, whole = self.more.module_stack(stack), self.brute.whole(stack)
        of_modules = [row for row in home if row in modules and row not in steps]
        of_ops = [row for row in whole if row not in modules and row not in steps]
        found = [
            *step,
            *(("module", self.more.said(row).module) for row in of_modules),
            *(("op", self.brute.ranges[row].op) for row in of_ops),
        ]
        return tuple(found) or ((("step", "step"),) if stack else ())

    def gpu(self) -> tuple[Counter, Counter]:
        """Return time and number of activities by path."""
        times, numbers = Counter(), Counter()
        for row, (one, found) in enumerate(
            zip(self.brute.activities, self.brute.found, strict=True)
        ):
            calls, launch = self.brute.calls, found.launch
            instant = one.start if launch == -1 else calls[launch].start
            path = self.path(self.step_at(one, instant), found.stack)
            path += (("reason", found.reason),) if found.reason else ()
            path += (("kernel", one.name),) if self.by_kernel else ()
            times[path] += self.brute.time(row)
            numbers[path] += 1 if self.by_kernel or found.reason else 0
        return times, numbers

    def cpu(self) -> Counter:
        """Return by path for how long a range of it was the innermost one."""
        times, ranges = Counter(), self.brute.ranges
        for report, thread in {(one.report, one.thread) for one in ranges}:
            ours = [one for one in ranges if (one.report, one.thread) == (report, thread)]
            edges = sorted({edge for one in ours for edge in (one.start, one.end)})
            for first, last in pairwise(edges):
                if stack := self.brute.stack(ranges, report, thread, first):
                    times[self._of_range(stack)] += last - first
        return times

    def calls(self) -> Counter:
        """Return the number of calls by path: each where its first range began."""
        firsts: dict[object, int] = {}
        rows = [row for row in self.brute.op_rows() if self.more.around(row)]
        for row in sorted(rows, key=lambda row: (self.brute.ranges[row].start, row)):
            firsts.setdefault(self.brute.call_of(row), row)
        return Counter(self._of_range(self.more.around(row)) for row in firsts.values())

    def _of_range(self, stack: tuple[int, ...]):
        one = self.brute.ranges[stack[-1]]
        step, row = self.step_at(one, one.start), stack[-1]
        if row in self.step_rows:
            return tuple(step) or (("step", "step"),)
        if row in self.more.modules:
            whole = self.brute.whole(stack)
            rows = [at for at in whole if at in self.more.modules and at not in self.step_rows]
            return (*step, *(("module", self.more.said(at).module) for at in rows))
        return self.path(step, stack)


def hold(tree: CallTree, truth: TrueStacks) -> None:
    """Hold a tree to the truth: its shape, its paths, its figures, its totals."""
    paths, parent = paths_of(tree), tree.parent.tolist()
    assert all(above < row for row, above in enumerate(parent))
    assert len(set(paths)) == len(paths)
    gpu, activities = truth.gpu()
    count = truth.calls() + activities
    assert figures(paths, tree.gpu_self_ns) == +gpu
    assert figures(paths, tree.cpu_self_ns) == truth.cpu()
    assert figures(paths, tree.count) == count
    assert {*paths} == {p[:n] for p in {*gpu, *truth.cpu(), *count} for n in range(1, len(p) + 1)}
    under = Counter()
    for path, ns in gpu.items():
        under.update({path[:n]: ns for n in range(1, len(path) + 1)})
    assert figures(paths, tree.total(tree.gpu_self_ns)) == +under


def figures(paths, values) -> Counter:
    return +Counter(dict(zip(paths, values.tolist(), strict=True)))


def paths_of(tree: CallTree):
    paths: list[tuple[tuple[str, str], ...]] = []
    rows = zip(tree.parent.tolist(), tree.level.tolist(), tree.code.tolist(), strict=True)
    for parent, level, code in rows:
        paths.append((() if parent == -1 else paths[parent]) + ((LEVELS[level], tree.names[code]),))
    return paths
