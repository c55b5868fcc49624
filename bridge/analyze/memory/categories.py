"""What each allocation of a training is for: a parameter, a gradient, an activation …; docs/memory.md has the rules."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from bridge.analyze.groups import counts, ratio, sums, texts
from bridge.analyze.memory.groups import peaks
from bridge.analyze.memory.ops import ALIVE, STATES, TAKEN, lives
from bridge.analyze.memory.usage import Held
from bridge.join.arrays import NONE, Flags, Ints, by, number
from bridge.join.attributed import Attributed
from bridge.join.autograd import ENGINE, inherited
from bridge.join.grammar import Label, parse
from bridge.join.nesting import Nesting
from importers import frames
from importers.frames import shared

# -- Where in a training something was: in which call of an operator or optimizer, in which backward pass


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


# -- What each allocation of a training is for: a parameter, a gradient, an activation …; docs/memory.md has the rules


CATEGORIES = (
    "parameter", "optimizer state", "input", "temporary", "activation", "gradient", "autograd detail", "unknown",
)  # fmt: skip
(PARAMETER, STATE, INPUT, TEMPORARY, ACTIVATION, GRADIENT, DETAIL, UNKNOWN) = range(len(CATEGORIES))


@dataclass(frozen=True)
class Categories:
    """The category of each allocation, in the order of `lives`, and of each event that begins or ends one."""

    held: Held

    @cached_property
    def lives(self) -> tuple[Ints, Ints, Ints]:
        """Events that begin and end each allocation, and its state."""
        return lives(self.held)

    @cached_property
    def of_life(self) -> Ints:
        """The place of each allocation in `CATEGORIES`: the first rule that holds."""
        facts = self._facts
        if not facts.is_training:
            return np.where(facts.temporary, TEMPORARY, UNKNOWN)
        rules = (
            (facts.before & ~facts.ended, PARAMETER),
            (facts.before & facts.ends_in_backward, ACTIVATION),
            (facts.before & facts.ends_in_optimizer, GRADIENT),
            (facts.before, UNKNOWN),
            (facts.temporary, TEMPORARY),
            (facts.in_optimizer, STATE),
            (facts.in_backward & facts.outlives_pass, GRADIENT),
            (facts.in_backward, DETAIL),
            (facts.before_steps & facts.outlives_first_step, PARAMETER),
            (facts.brought, INPUT),
            (facts.in_forward & (facts.ended | facts.in_last_step), ACTIVATION),
        )
        conditions, found = zip(*rules, strict=True)
        return np.select(list(conditions), list(found), UNKNOWN)

    @cached_property
    def untold(self) -> int:
        """The category of what no event tells of, but an allocator's own total."""
        return PARAMETER if self._facts.is_training else UNKNOWN

    @cached_property
    def _facts(self) -> _Facts:
        return _Facts(self.held, *self.lives)

    @cached_property
    def of_event(self) -> Ints:
        """The category of what each event begins or ends; unknown for a release of nothing known."""
        found = np.full(len(self.held.events), UNKNOWN)
        first, end, state = self.lives
        closes = (end != NONE) & (state != STATES.index(TAKEN))
        found[first[first != NONE]] = self.of_life[first != NONE]
        found[end[closes]] = self.of_life[closes]
        return found


class _Facts:
    """What is known of each allocation, a flag each."""

    def __init__(self, held: Held, first: Ints, end: Ints, state: Ints) -> None:
        self.held, self.first, self.end, self.state = held, first, end, state
        joined, events = held.joined, held.events
        self.calls = Calls.of(joined)
        told = events.row[np.where(first == NONE, end, first)]
        columns = ("report", "process")
        self.owner = [frames.ints(joined.report.memory, c)[told] for c in columns]
        of_range = [frames.ints(joined.report.ranges, c) for c in columns]
        self.process, of_range_too = shared(self.owner, of_range)
        self.passes = Passes.of(joined, self.calls, of_range_too)
        time, node = np.append(events.time, 0), np.append(events.node, NONE)
        self.made_at, self.ended_at = time[first], time[end]
        self.made_in, self.ended_in = node[first], node[end]
        self.step = np.append(events.step, NONE)[first]

    @property
    def is_training(self) -> bool:
        """Whether operators are known at all."""
        return bool((self.calls.operator != NONE).any())

    @cached_property
    def before(self) -> Flags:
        told = np.append(self.held.events.is_held, False)[self.first]
        found: Flags = (self.first == NONE) | told
        return found

    @cached_property
    def ended(self) -> Flags:
        found: Flags = (self.state != STATES.index(ALIVE)) & (self.end != NONE)
        return found

    @cached_property
    def temporary(self) -> Flags:
        """Released before the call that it was made in ended: of the optimizer, or an operator, or where there are none the op."""
        optimizer, operator = self._around(self.calls.optimizer), self._around(self.calls.operator)
        call = np.where(optimizer != NONE, optimizer, operator)
        if not self.is_training:
            call = self.made_in
        nesting, ranges = self.held.joined.attribution.nesting, self.held.joined.report.ranges
        over = np.append(frames.ints(ranges, "end")[nesting.range], 0)[call]
        found: Flags = (call != NONE) & self.ended & ~self.before & (self.ended_at <= over)
        return found

    @cached_property
    def in_optimizer(self) -> Flags:
        found: Flags = self._around(self.calls.optimizer) != NONE
        return found

    @cached_property
    def ends_in_optimizer(self) -> Flags:
        found: Flags = np.append(self.calls.optimizer, NONE)[self.ended_in] != NONE
        return found & self.ended

    @cached_property
    def in_backward(self) -> Flags:
        found: Flags = np.append(self.calls.backward, False)[self.made_in]
        return found

    @cached_property
    def ends_in_backward(self) -> Flags:
        return self.ended & self.passes.is_open(self.process, self.ended_at)

    @cached_property
    def outlives_pass(self) -> Flags:
        over = self.passes.end_of(self.process, self.made_at)
        return ~self.ended | (self.ended_at > over)

    @cached_property
    def in_forward(self) -> Flags:
        """Made by an operator outside of the backward pass."""
        found: Flags = self._around(self.calls.operator) != NONE
        return found & ~self.in_backward & ~self.in_optimizer

    @cached_property
    def brought(self) -> Flags:
        """Made by a data loader, or in no module by an operator that brings tensors from elsewhere."""
        operator = self._around(self.calls.operator)
        source = np.append(self.calls.source, False)[operator]
        module = np.append(self.calls.module, False)[self.made_in]
        loader = np.append(self.calls.loader, False)[self.made_in]
        found: Flags = loader | (source & ~module & self.in_forward)
        return found

    @cached_property
    def before_steps(self) -> Flags:
        first, _ = self._first_step
        found: Flags = (first != NONE) & (self.made_at < first)
        return found

    @cached_property
    def outlives_first_step(self) -> Flags:
        _, over = self._first_step
        return ~self.ended | (self.ended_at > over)

    @cached_property
    def in_last_step(self) -> Flags:
        steps = self.held.joined.iterations
        last = np.full(len(steps), False)
        for _, after in steps.by_process():
            last[after - 1 : after] = True
        found: Flags = np.append(last, False)[self.step] & (self.step != NONE)
        return found

    @cached_property
    def _first_step(self) -> tuple[Ints, Ints]:
        """Return start and end of the first step of the process of each, NONE where there is none."""
        steps = self.held.joined.iterations
        start, end = np.full(len(self.process), NONE), np.full(len(self.process), NONE)
        for first, last in steps.by_process():
            if last > first:
                ours = (self.owner[0] == steps.report[first]) & (
                    self.owner[1] == steps.process[first]
                )
                start[ours], end[ours] = steps.start[first], steps.end[first]
        return start, end

    def _around(self, call: Ints) -> Ints:
        found: Ints = np.append(call, NONE)[self.made_in]
        return found


# -- How much of each category was allocated, held at the peak, and at most


def by_category(held: Held) -> pd.DataFrame:
    """Return one row per process, device, kind of memory and category that is there, in the order of `CATEGORIES`.

    ``at_peak_bytes`` is what the category held when most was used of all; ``peak_bytes`` its own maximum.
    """
    found = Categories(held)
    parts = [_of_group(found, group) for group in range(len(held.events.groups))]
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    there = np.flatnonzero(table["peak_bytes"] + table["allocations"] + table["at_peak_bytes"] > 0)
    return table.iloc[there].reset_index(drop=True)


def levels(found: Categories, group: int) -> tuple[Ints, Ints]:
    """Return the events of a group in order, and what each category held: at first, after each event, at the end.

    At first is what is known to have been allocated before the capture.
    """
    held, many = found.held, len(CATEGORIES)
    rows = np.flatnonzero(held.group == group)
    change = np.zeros((len(rows) + 2, many), np.int64)
    np.add.at(change, (np.arange(1, len(rows) + 1), found.of_event[rows]), held.change[rows])
    taken = held.lost[held.group[held.lost] == group]  # which end where their address is taken
    at = np.searchsorted(rows, held.pairs.next[taken]) + 1
    np.add.at(change, (at, found.of_event[taken]), -held.size[taken])
    before = rows[held.pairs.before[rows] | held.events.is_held[rows]]
    base = sums(found.of_event[before], held.size[before], many)
    base[found.untold] += held.base[group] - base.sum()
    change[0] = base
    return rows, np.cumsum(change, axis=0)


def _of_group(found: Categories, group: int) -> pd.DataFrame:
    held, many = found.held, len(CATEGORIES)
    rows, level = levels(found, group)
    shown = np.concatenate(([held.joined.chosen is None], held.counted[rows], [False]))
    at = int(peaks(held, held.used)[group])
    place = int(np.searchsorted(rows, at)) + 1 if at != NONE else 0
    if shown[0] and held.base[group] >= held.used[at]:
        place = 0
    made = rows[held.is_made[rows] & held.counted[rows]]
    of = found.of_event[made]
    return pd.DataFrame(
        {
            "category": texts(CATEGORIES),
            **held.places(np.full(many, group)),
            "allocations": counts(of, many),
            "allocated_bytes": sums(of, held.size[made], many),
            "at_peak_bytes": level[place],
            "share": ratio(level[place], np.full(many, level[place].sum())),
            "peak_bytes": level[shown].max(axis=0, initial=0),
            "end_bytes": level[-1],
        }
    )
