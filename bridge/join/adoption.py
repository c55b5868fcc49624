"""Work of threads that annotate nothing, given to the range that another thread waits in: a guess by time.

PyTorch's autograd engine launches the backward pass from threads of its own, while the thread that called
``loss.backward()`` waits with its range open and launches nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bridge.join.arrays import NONE, Flags, Ints, by, number
from bridge.join.attribution import ATTRIBUTED, BY_ADOPTION, NO_RANGE, Attribution, Launches
from bridge.join.autograd import inherited
from bridge.join.grammar import parse
from bridge.join.nesting import Nesting, paths
from importers import frames
from importers.frames import shared
from importers.report import Report
from importers.texts import Texts

# -- The module that each range runs in: the chain of ranges around it that stand for modules


CATEGORY = "module"  # of a range that says by its category that it is one
OF_LIBRARIES = ("operator", "communication")  # kinds of ranges that no program's author wrote


@dataclass(frozen=True)
class Modules:
    """Modules as a nesting of their own.

    ``of`` is the node of the nearest module for each node of all ranges, or NONE; ``path`` a code
    per module's node into ``paths``.
    """

    nesting: Nesting
    of: Ints
    path: Ints
    paths: Sequence[str]

    @classmethod
    def of_report(cls, report: Report, nesting: Nesting, op: Ints, ops: Sequence[str]) -> Modules:
        """Find the ranges that stand for modules; ``op`` is a code into ``ops`` per node, which name them.

        Those that say so (``nn.Module: X``, ``module:X``, ``layer:X``, category "module"), and in a
        report that has none, all that are neither operators of a framework nor communication.
        """
        chosen = np.flatnonzero(_standing(report, nesting))
        place = np.full(len(nesting), NONE)
        place[chosen] = np.arange(len(chosen))
        of = inherited(nesting, place)
        parent = nesting.parent[chosen]
        own = replace(
            nesting,
            **{c: getattr(nesting, c)[chosen] for c in ("stack", "start", "end", "range")},
            parent=np.where(parent == NONE, NONE, np.append(of, NONE)[parent]),
        )
        path, names = paths(own, op[chosen], [_name(one) for one in ops], dotted=True)
        return cls(own, of, path, names)


def _standing(report: Report, nesting: Nesting) -> Flags:
    ranges = report.ranges
    labels = [parse(name) for name in ranges["name"].cat.categories]
    code = frames.codes(ranges["name"])
    named = np.array([label.kind == "module" for label in labels], bool)[code]
    category = ranges["category"]
    is_module = np.array([*(name == CATEGORY for name in category.cat.categories), False])
    named = (named | is_module[frames.codes(category)])[nesting.range]
    written = np.array([label.kind not in OF_LIBRARIES for label in labels], bool)[code]
    written &= ~_of_pytorch(report, code)
    of = frames.ints(ranges, "report")[nesting.range]
    has = np.bincount(of[named], minlength=int(of.max(initial=0)) + 1) > 0
    return np.where(has[of], named, written[nesting.range])


def _of_pytorch(report: Report, name: Ints) -> Flags:
    """Tell which ranges have the name of one whose text goes on: PyTorch numbers calls of operators."""
    ranges = report.ranges
    sizes = report.texts.sizes[frames.ints(ranges, "text")]
    longer = sizes > Texts.of(ranges["name"].cat.categories).sizes[name]
    key, _ = number(frames.ints(ranges, "report"), name)
    return np.isin(key, np.unique(key[longer]))


def _name(op: str) -> str:
    label = parse(op)
    return str(dict(label.arguments).get("module", op)) if label.kind == "module" else op


# -- Work of threads that annotate nothing, given to the range that another thread waits in: a guess by time


@dataclass(frozen=True)
class Intervals:
    """What looks for a range of another thread: its process, its own stack, from when to when."""

    process: Ints
    stack: Ints
    start: Ints
    end: Ints


@dataclass(frozen=True)
class Threads:
    """The stacks of a nesting: the process of each, and when it launched work, by (stack, time)."""

    nesting: Nesting
    process: Ints
    stack: Ints
    time: Ints

    def idle(self, stack: int, start: Ints, end: Ints) -> Flags:
        """Tell whether a stack launched nothing in each [start, end]."""
        first, last = np.searchsorted(self.stack, (stack, stack + 1))
        time = self.time[first:last]
        idle: Flags = np.searchsorted(time, end, "right") == np.searchsorted(time, start, "left")
        return idle

    def working(self, nodes: Ints) -> Ints:
        """Return those of some nodes in which their own stack launched something."""
        stack, start, end = (
            c[nodes] for c in (self.nesting.stack, self.nesting.start, self.nesting.end)
        )
        idle = np.ones(len(nodes), bool)
        for one in np.unique(stack).tolist():  # one turn per thread
            ours = stack == one
            idle[ours] = self.idle(one, start[ours], end[ours] - 1)
        return nodes[~idle]

    def around(self, stack: int, start: Ints, end: Ints) -> Ints:
        """Return a stack's innermost node that is longer than each interval around it, or NONE."""
        nesting = self.nesting
        node = nesting.innermost(np.full(len(start), stack), start)
        left = np.flatnonzero(node != NONE)
        while len(left):
            at = node[left]
            equal = (nesting.start[at] == start[left]) & (nesting.end[at] == end[left])
            # Of two that are equal each could adopt the other.
            left = left[(nesting.end[at] < end[left]) | equal]
            node[left] = nesting.parent[node[left]]
            left = left[node[left] != NONE]
        return node


def with_adoption(
    found: Attribution, range_of: tuple[Ints, Ints], launches: Launches
) -> Attribution:
    """Let what stands outside all ranges of its thread belong to a range of one other thread.

    ``range_of`` holds report and process of each range. Outermost ranges get a parent, and activities
    without an op the op of that range, which `BY_ADOPTION` says. The range contains them in time,
    and its thread, which launches work at other times, launches nothing from their start to their
    end (of activities: from the first to the last of that thread within the range). Where several
    threads qualify, nothing is guessed; ranges in which nothing is launched stay as they are.
    """
    nesting = found.nesting
    of_range, of_call = shared(range_of, (launches.report, launches.process))
    threads = _threads(found, of_range, launches)
    roots = threads.working(np.flatnonzero(nesting.parent == NONE))
    outermost = Intervals(
        of_range[nesting.range[roots]],
        *(c[roots] for c in (nesting.stack, nesting.start, nesting.end)),
    )
    parent = nesting.parent.copy()
    parent[roots] = _of_one(threads, outermost, bursts=False)
    rows = np.flatnonzero(found.reason == NO_RANGE)
    call = found.launch[rows]
    when = launches.start[call]
    node = _of_one(threads, Intervals(of_call[call], found.stack[call], when, when), bursts=True)
    return _taken(replace(found, nesting=replace(nesting, parent=parent)), rows, node)


def _taken(found: Attribution, rows: Ints, node: Ints) -> Attribution:
    rows, node = rows[node != NONE], node[node != NONE]
    changed = {c: getattr(found, c).copy() for c in ("node", "range", "rule", "reason")}
    changed["node"][rows], changed["range"][rows] = node, found.nesting.range[node]
    changed["rule"][rows], changed["reason"][rows] = BY_ADOPTION, ATTRIBUTED
    return replace(found, **changed)


def _threads(found: Attribution, of_range: Ints, launches: Launches) -> Threads:
    nesting = found.nesting
    process = np.full(int(nesting.stack.max(initial=NONE)) + 1, NONE)
    process[nesting.stack] = of_range[nesting.range]
    working = np.unique(found.launch[found.launch != NONE])
    stack, time = found.stack[working], launches.start[working]
    order = by(stack, time)
    return Threads(nesting, process, stack[order], time[order])


def _of_one(threads: Threads, asking: Intervals, *, bursts: bool) -> Ints:
    """Return the node that each interval may belong to, NONE if no other stack has one or several do."""
    found, offers = np.full(len(asking.start), NONE), np.zeros(len(asking.start), np.int64)
    launching = np.intersect1d(
        threads.nesting.stack, threads.stack
    )  # one that loads data waits for none
    for stack in launching.tolist():  # one turn per thread
        rows = np.flatnonzero((asking.process == threads.process[stack]) & (asking.stack != stack))
        start, end = asking.start[rows], asking.end[rows]
        node = threads.around(stack, start, end)
        if bursts:
            start, end = _first_and_last(asking.stack[rows], node, start)
        fits = (node != NONE) & threads.idle(stack, start, end)
        found[rows[fits]] = node[fits]
        offers[rows[fits]] += 1
    return np.where(offers == 1, found, NONE)


def _first_and_last(stack: Ints, node: Ints, time: Ints) -> tuple[Ints, Ints]:
    """Return, for each row, the first and last time of all rows with its stack and node."""
    burst, some = number(stack, node)
    first, last = time[some].copy(), time[some].copy()
    np.minimum.at(first, burst, time)
    np.maximum.at(last, burst, time)
    return first[burst], last[burst]
