"""Where in a training something was: in which call of an operator or optimizer, in which backward pass."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from bridge.join.attributed import Attributed
from bridge.join.autograd import ENGINE, inherited
from bridge.join.grammar import Label, parse
from bridge.join.nesting import Nesting
from bridge.join.order import NONE, Flags, Ints, by, number
from importers import frames

OPERATORS = ("operator", "communication")
UPDATES = re.compile(  # ops of optimizers that no range of an optimizer is around
    r"aten::_foreach_\w+|aten::_(?:multi_tensor|fused)_\w+|optimizers?(?:[.:_ ]?step)?",
    re.IGNORECASE,
)
SOURCES = re.compile(  # operators that make tensors of no others, or bring them from elsewhere
    r"aten::(?:rand|randn|randint|randperm|normal|ones|zeros|full|arange|linspace|eye|empty|empty_strided|tensor"
    r"|scalar_tensor|to|_to_copy|pin_memory|_pin_memory|lift_fresh|from_file)"
)


@dataclass(frozen=True)
class Calls:
    """Of each node the node of the call that it is in, NONE for none; ``backward`` and ``source`` are flags.

    ``operator`` is the outermost operator around it, which in the backward pass is under the pass's own nodes;
    ``source`` tells which operators bring inputs, ``module`` and ``loader`` what is in a module or data loader.
    """

    operator: Ints
    optimizer: Ints
    backward: Flags
    source: Flags
    module: Flags
    loader: Flags

    @classmethod
    def of(cls, joined: Attributed) -> Calls:
        """Find them by the names of ops."""
        nesting = joined.attribution.nesting
        names = list(joined.report.ranges["name"].cat.categories)
        code = frames.codes(joined.report.ranges["name"])[nesting.range]
        labels = [parse(name) for name in names]

        def told(flags: list[bool]) -> Flags:
            return np.array([*flags, False])[code]

        operator = told([_is_call(label) for label in labels])
        updates = told([one.kind == "optimizer" or _updates(one.op) for one in labels])
        source = told([SOURCES.fullmatch(one.op) is not None for one in labels])
        return cls(
            operator=_outermost(nesting, operator),
            optimizer=_outermost(nesting, updates),
            backward=joined.directions.backward,
            source=source,
            module=_within(nesting, told([one.kind == "module" for one in labels])),
            loader=_within(nesting, told([one.kind == "dataloader" for one in labels])),
        )


def _is_call(label: Label) -> bool:
    """An operator of a framework: not what the engine puts around those of the backward pass."""
    return label.kind in OPERATORS and "::" in label.op and not label.op.startswith(ENGINE)


def _updates(op: str) -> bool:
    return UPDATES.fullmatch(op) is not None


def _within(nesting: Nesting, flags: Flags) -> Flags:
    found: Flags = inherited(nesting, np.where(flags, 1, NONE)) == 1
    return found


def _outermost(nesting: Nesting, flags: Flags) -> Ints:
    """Return of each node the outermost flagged one of it and those around it, NONE for none."""
    found, level = np.full(len(nesting), NONE), nesting.levels()
    for depth in range(int(level.max(initial=-1)) + 1):
        nodes = np.flatnonzero(level == depth)
        above = np.append(found, NONE)[nesting.parent[nodes]]
        found[nodes] = np.where(above != NONE, above, np.where(flags[nodes], nodes, NONE))
    return found


@dataclass(frozen=True)
class Passes:
    """Backward passes, by process in order of time: from the first range of one to the end of its last.

    A pass ends where the process begins an operator of the next forward pass, or an optimizer. ``process``
    are numbers of processes, as they are given for each range.
    """

    process: Ints
    start: Ints
    end: Ints

    @classmethod
    def of(cls, joined: Attributed, calls: Calls, of_range: Ints) -> Passes:
        """Find the passes of all processes; ``of_range`` numbers that of each range."""
        nesting, ranges = joined.attribution.nesting, joined.report.ranges
        above = np.append(calls.backward, False)[nesting.parent]
        backward = calls.backward & ~above
        forward = _forward(calls) & ~calls.backward
        nodes = np.flatnonzero(backward | (forward & _of_main_thread(joined, forward)))
        rows = nesting.range[nodes]
        process = of_range[rows]
        start, end = (frames.ints(ranges, c)[rows] for c in ("start", "end"))
        order = by(process, start) if len(nodes) else nodes
        process, start, end, is_back = (c[order] for c in (process, start, end, backward[nodes]))
        new = np.append(True, (process[1:] != process[:-1]) | ~is_back[:-1])[: len(order)] & is_back
        edges = np.flatnonzero(new)
        if not len(edges):
            return cls(edges, edges, edges)
        last = np.maximum.reduceat(np.where(is_back, end, np.iinfo(np.int64).min), edges)
        return cls(process[edges], start[edges], last)

    def end_of(self, process: Ints, time: Ints) -> Ints:
        """Return the end of the pass that was open at each time, or the last one begun before it; NONE for none."""
        found = np.full(len(time), NONE)
        for one in np.unique(self.process).tolist():  # a turn per process
            ours, rows = self.process == one, process == one
            start, end = self.start[ours], self.end[ours]
            place = np.searchsorted(start, time[rows], side="right") - 1
            found[rows] = np.where(place >= 0, end[np.maximum(place, 0)], NONE)
        return found

    def is_open(self, process: Ints, time: Ints) -> Flags:
        """Tell at which times a pass of the process was open."""
        end = self.end_of(process, time)
        found: Flags = (end != NONE) & (time <= end)
        return found


def _forward(calls: Calls) -> Flags:
    """Tell which nodes are outermost calls of operators or optimizers."""
    every = np.arange(len(calls.operator))
    found: Flags = (calls.operator == every) | (calls.optimizer == every)
    return found


def _of_main_thread(joined: Attributed, forward: Flags) -> Flags:
    """Tell which nodes are on the thread of their process that has most such calls: others load data."""
    nesting, ranges = joined.attribution.nesting, joined.report.ranges
    columns = (frames.ints(ranges, c)[nesting.range] for c in ("report", "process", "thread"))
    report, process, thread = columns
    owner, _ = number(report, process)
    home, first = number(report, process, thread)
    calls = np.bincount(home[forward], minlength=len(first))
    order = np.lexsort((-calls, owner[first])) if len(first) else first
    of_main = np.zeros(len(first), bool)
    lead = owner[first][order]
    of_main[order[np.append(True, lead[1:] != lead[:-1])[: len(order)]]] = True
    return of_main[home]
