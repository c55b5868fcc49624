"""Classify allocations of a training: parameter, gradient, activation and so on.

docs/memory.md has the rules.
"""

from __future__ import annotations

import re
from functools import cached_property

import numpy as np

from bridge.analyze.core.groups import counts, ratio, sums, texts
from bridge.analyze.core.table import Table
from bridge.analyze.cost.memory.groups import peak_events
from bridge.analyze.cost.memory.ops import ALIVE, NOT_RECORDED, STATES, lifetimes
from bridge.analyze.cost.memory.usage import MemoryUsage
from bridge.importers.arrays import lookup
from bridge.importers.frames import key_codes
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, number_groups, order_by
from bridge.join.attributed import AttributedCapture
from bridge.join.autograd import ENGINE
from bridge.join.forest import outermost_above
from bridge.join.grammar import Label, parse
from bridge.join.nesting import Nesting, inherited

# -- Calls and backward passes


OPERATORS = ("operator", "communication")
UPDATES = re.compile(  # ops of optimizers, which may have no range of an optimizer around them
    r"aten::_foreach_\w+|aten::_(?:multi_tensor|fused)_\w+|optimizers?(?:[.:_ ]?step)?",
    re.IGNORECASE,
)
INPUT_OPERATORS = re.compile(  # operators that create tensors from no others, or import them
    r"aten::(?:rand|randn|randint|randperm|normal|ones|zeros|full|arange|linspace|eye|empty|empty_strided|tensor"
    r"|scalar_tensor|to|_to_copy|pin_memory|_pin_memory|lift_fresh|from_file)"
)


@record
class TrainingCalls:
    """The calls around each node, NONE for none, and flags.

    ``operator`` is the outermost operator around the node; in the backward pass it is under the
    nodes of the engine. ``source`` are operators that create or import tensors; ``module`` and
    ``loader`` are nodes in a module or data loader.
    """

    operator: Ints
    optimizer: Ints
    backward: Flags
    source: Flags
    module: Flags
    loader: Flags

    @classmethod
    def of(cls, attributed: AttributedCapture) -> TrainingCalls:
        """Return the calls by the names of ops."""
        nesting = attributed.attribution.nesting
        names = list(attributed.capture.ranges.name.texts)
        code = attributed.capture.ranges.name.codes[nesting.range]
        labels = [parse(name) for name in names]

        def flags_of_nodes(flags: list[bool]) -> Flags:
            return np.array([*flags, False])[code]

        is_operator = flags_of_nodes([_is_call(label) for label in labels])
        is_update = flags_of_nodes(
            [label.kind == "optimizer" or _is_update(label.op) for label in labels]
        )
        is_source = flags_of_nodes(
            [INPUT_OPERATORS.fullmatch(label.op) is not None for label in labels]
        )
        return cls(
            operator=_outermost(nesting, is_operator),
            optimizer=_outermost(nesting, is_update),
            backward=attributed.directions.backward,
            source=is_source,
            module=_inherited_flags(
                nesting, flags_of_nodes([label.kind == "module" for label in labels])
            ),
            loader=_inherited_flags(
                nesting, flags_of_nodes([label.kind == "dataloader" for label in labels])
            ),
        )


def _is_call(label: Label) -> bool:
    """Return whether a range is an operator of a framework, not one that the engine adds."""
    return label.kind in OPERATORS and "::" in label.op and not label.op.startswith(ENGINE)


def _is_update(op: str) -> bool:
    return UPDATES.fullmatch(op) is not None


def _inherited_flags(nesting: Nesting, flags: Flags) -> Flags:
    result: Flags = inherited(nesting, np.where(flags, 1, NONE)) == 1
    return result


def _outermost(nesting: Nesting, flags: Flags) -> Ints:
    """Return the outermost flagged node among each node and its ancestors, NONE for none."""
    return outermost_above(nesting.parent, flags)


@record
class BackwardPasses:
    """Backward passes by process and time, from their first to the end of their last range.

    A pass ends when the process begins an operator of the next forward pass, or an optimizer.
    ``process`` is a number of a process.
    """

    process: Ints
    start: Ints
    end: Ints

    @classmethod
    def of(
        cls, attributed: AttributedCapture, calls: TrainingCalls, of_range: Ints
    ) -> BackwardPasses:
        """Return the passes of all processes; ``of_range`` is the process of each range."""
        nesting, ranges = attributed.attribution.nesting, attributed.capture.ranges
        is_in_backward = lookup(calls.backward, nesting.parent, False)
        is_backward = calls.backward & ~is_in_backward
        is_forward = _is_outermost_call(calls) & ~calls.backward
        nodes = np.flatnonzero(
            is_backward | (is_forward & _is_on_main_thread(attributed, is_forward))
        )
        rows = nesting.range[nodes]
        process = of_range[rows]
        start, end = ranges.start[rows], ranges.end[rows]
        order = order_by(process, start) if len(nodes) else nodes
        process, start, end = process[order], start[order], end[order]
        is_backward_sorted = is_backward[nodes][order]
        is_first = (
            np.append(True, (process[1:] != process[:-1]) | ~is_backward_sorted[:-1])[: len(order)]
            & is_backward_sorted
        )
        edges = np.flatnonzero(is_first)
        if not len(edges):
            return cls(edges, edges, edges)
        last = np.maximum.reduceat(np.where(is_backward_sorted, end, np.iinfo(np.int64).min), edges)
        return cls(process[edges], start[edges], last)

    def end_of(self, process: Ints, time: Ints) -> Ints:
        """Return the end of the last pass begun before each time, NONE for none."""
        result = np.full(len(time), NONE)
        for number in np.unique(self.process).tolist():  # one iteration per process
            is_of_process, mask = self.process == number, process == number
            start, end = self.start[is_of_process], self.end[is_of_process]
            position = np.searchsorted(start, time[mask], side="right") - 1
            result[mask] = np.where(position >= 0, end[np.maximum(position, 0)], NONE)
        return result

    def is_open(self, process: Ints, time: Ints) -> Flags:
        """Return whether a pass of the process was open at each time."""
        end = self.end_of(process, time)
        result: Flags = (end != NONE) & (time <= end)
        return result


def _is_outermost_call(calls: TrainingCalls) -> Flags:
    """Return whether each node is an outermost call of an operator or optimizer."""
    nodes = np.arange(len(calls.operator))
    result: Flags = (calls.operator == nodes) | (calls.optimizer == nodes)
    return result


def _is_on_main_thread(attributed: AttributedCapture, forward: Flags) -> Flags:
    """Return whether each node is on the thread of its process with the most such calls.

    Other threads load data.
    """
    nesting, ranges = attributed.attribution.nesting, attributed.capture.ranges
    columns = (
        ranges.report[nesting.range],
        ranges.process[nesting.range],
        ranges.thread[nesting.range],
    )
    report, process, thread = columns
    owner, _ = number_groups(report, process)
    home, first = number_groups(report, process, thread)
    calls = np.bincount(home[forward], minlength=len(first))
    order = np.lexsort((-calls, owner[first])) if len(first) else first
    is_main = np.zeros(len(first), bool)
    lead = owner[first][order]
    is_main[order[np.append(True, lead[1:] != lead[:-1])[: len(order)]]] = True
    return is_main[home]


# -- Categories


CATEGORIES = (
    "parameter", "optimizer state", "input", "temporary", "activation", "gradient", "autograd detail", "unknown",
)  # fmt: skip
(PARAMETER, STATE, INPUT, TEMPORARY, ACTIVATION, GRADIENT, DETAIL, UNKNOWN) = range(len(CATEGORIES))


@record
class Categories:
    """The category of each allocation, in the order of `lifetimes`, and of each event."""

    usage: MemoryUsage

    @cached_property
    def lives(self) -> tuple[Ints, Ints, Ints]:
        """First and last event of each allocation, and its state."""
        return lifetimes(self.usage)

    @cached_property
    def of_life(self) -> Ints:
        """The category of each allocation, a position in `CATEGORIES`; the first rule counts."""
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
            (facts.is_input, INPUT),
            (facts.in_forward & (facts.ended | facts.in_last_step), ACTIVATION),
        )
        conditions, result = zip(*rules, strict=True)
        return np.select(list(conditions), list(result), UNKNOWN)

    @cached_property
    def unreported(self) -> int:
        """The category of memory that only the total of an allocator reports."""
        return PARAMETER if self._facts.is_training else UNKNOWN

    @cached_property
    def _facts(self) -> _AllocationFacts:
        return _AllocationFacts(self.usage, *self.lives)

    @cached_property
    def of_event(self) -> Ints:
        """The category of what each event begins or ends; unknown for unmatched releases."""
        result = np.full(len(self.usage.events), UNKNOWN)
        first, end, state = self.lives
        closes = (end != NONE) & (state != STATES.index(NOT_RECORDED))
        result[first[first != NONE]] = self.of_life[first != NONE]
        result[end[closes]] = self.of_life[closes]
        return result


class _AllocationFacts:
    """Facts about each allocation, as flags."""

    def __init__(self, usage: MemoryUsage, first: Ints, end: Ints, state: Ints) -> None:
        self.usage, self.first, self.end, self.state = usage, first, end, state
        attributed, events = usage.attributed, usage.events
        self.calls = TrainingCalls.of(attributed)
        described = events.row[np.where(first == NONE, end, first)]
        columns = ("report", "process")
        self.owner = [attributed.capture.memory[c][described] for c in columns]
        of_range = [attributed.capture.ranges[c] for c in columns]
        self.process, process_of_range = key_codes(self.owner, of_range)
        self.passes = BackwardPasses.of(attributed, self.calls, process_of_range)
        time, node = np.append(events.time, 0), np.append(events.node, NONE)
        self.made_at, self.ended_at = time[first], time[end]
        self.made_in, self.ended_in = node[first], node[end]
        self.step = lookup(events.step, first)

    @property
    def is_training(self) -> bool:
        """Whether there are any operators."""
        return bool((self.calls.operator != NONE).any())

    @cached_property
    def before(self) -> Flags:
        is_held = lookup(self.usage.events.is_held, self.first, False)
        result: Flags = (self.first == NONE) | is_held
        return result

    @cached_property
    def ended(self) -> Flags:
        result: Flags = (self.state != STATES.index(ALIVE)) & (self.end != NONE)
        return result

    @cached_property
    def temporary(self) -> Flags:
        """Whether each allocation was released before the end of its call.

        The call is that of the optimizer or operator, or of the op if there are no operators.
        """
        optimizer, operator = self._around(self.calls.optimizer), self._around(self.calls.operator)
        call = np.where(optimizer != NONE, optimizer, operator)
        if not self.is_training:
            call = self.made_in
        nesting, ranges = (
            self.usage.attributed.attribution.nesting,
            self.usage.attributed.capture.ranges,
        )
        call_end = lookup(ranges.end[nesting.range], call, 0)
        result: Flags = (call != NONE) & self.ended & ~self.before & (self.ended_at <= call_end)
        return result

    @cached_property
    def in_optimizer(self) -> Flags:
        result: Flags = self._around(self.calls.optimizer) != NONE
        return result

    @cached_property
    def ends_in_optimizer(self) -> Flags:
        result: Flags = lookup(self.calls.optimizer, self.ended_in) != NONE
        return result & self.ended

    @cached_property
    def in_backward(self) -> Flags:
        result: Flags = lookup(self.calls.backward, self.made_in, False)
        return result

    @cached_property
    def ends_in_backward(self) -> Flags:
        return self.ended & self.passes.is_open(self.process, self.ended_at)

    @cached_property
    def outlives_pass(self) -> Flags:
        pass_end = self.passes.end_of(self.process, self.made_at)
        return ~self.ended | (self.ended_at > pass_end)

    @cached_property
    def in_forward(self) -> Flags:
        """Whether an operator outside of the backward pass made each allocation."""
        result: Flags = self._around(self.calls.operator) != NONE
        return result & ~self.in_backward & ~self.in_optimizer

    @cached_property
    def is_input(self) -> Flags:
        """Whether a data loader, or a source operator outside of modules, made each allocation."""
        operator = self._around(self.calls.operator)
        source = lookup(self.calls.source, operator, False)
        module = lookup(self.calls.module, self.made_in, False)
        loader = lookup(self.calls.loader, self.made_in, False)
        result: Flags = loader | (source & ~module & self.in_forward)
        return result

    @cached_property
    def before_steps(self) -> Flags:
        first, _ = self._first_step
        result: Flags = (first != NONE) & (self.made_at < first)
        return result

    @cached_property
    def outlives_first_step(self) -> Flags:
        _, step_end = self._first_step
        return ~self.ended | (self.ended_at > step_end)

    @cached_property
    def in_last_step(self) -> Flags:
        steps = self.usage.attributed.iterations
        last = np.full(len(steps), False)
        for _, end_of_process in steps.by_process():
            last[end_of_process - 1 : end_of_process] = True
        result: Flags = lookup(last, self.step, False) & (self.step != NONE)
        return result

    @cached_property
    def _first_step(self) -> tuple[Ints, Ints]:
        """Start and end of the first step of each allocation's process, NONE for none."""
        steps = self.usage.attributed.iterations
        start, end = np.full(len(self.process), NONE), np.full(len(self.process), NONE)
        for first, last in steps.by_process():
            if last > first:
                is_of_process = (self.owner[0] == steps.report[first]) & (
                    self.owner[1] == steps.process[first]
                )
                start[is_of_process], end[is_of_process] = steps.start[first], steps.end[first]
        return start, end

    def _around(self, call: Ints) -> Ints:
        result: Ints = lookup(call, self.made_in)
        return result


# -- Tables


def by_category(usage: MemoryUsage) -> Table:
    """Return one row per process, device, kind of memory and category in use.

    Categories are in the order of `CATEGORIES`. ``at_peak_bytes`` is the memory of the category at
    the overall peak, ``peak_bytes`` its own maximum.
    """
    categories = Categories(usage)
    parts = [_categories_of_group(categories, group) for group in range(len(usage.events.groups))]
    table = Table.concat(parts) if parts else Table()
    rows = np.flatnonzero(table["peak_bytes"] + table["allocations"] + table["at_peak_bytes"] > 0)
    return table[rows]


def category_levels(categories: Categories, group: int) -> tuple[Ints, Ints]:
    """Return the events of a group, and the memory per category over time.

    The levels are those at first (known to have been allocated before the capture), after each
    event, and at the end.
    """
    usage, size = categories.usage, len(CATEGORIES)
    rows = np.flatnonzero(usage.group == group)
    change = np.zeros((len(rows) + 2, size), np.int64)
    np.add.at(change, (np.arange(1, len(rows) + 1), categories.of_event[rows]), usage.change[rows])
    lost = usage.lost[
        usage.group[usage.lost] == group
    ]  # they end when their address is allocated again
    position = np.searchsorted(rows, usage.pairs.next[lost]) + 1
    np.add.at(change, (position, categories.of_event[lost]), -usage.size[lost])
    earlier = rows[usage.pairs.before[rows] | usage.events.is_held[rows]]
    base = sums(categories.of_event[earlier], usage.size[earlier], size)
    base[categories.unreported] += usage.base[group] - base.sum()
    change[0] = base
    return rows, np.cumsum(change, axis=0)


def _categories_of_group(categories: Categories, group: int) -> Table:
    usage, size = categories.usage, len(CATEGORIES)
    rows, level = category_levels(categories, group)
    is_selected = np.concatenate(
        ([usage.attributed.selection is None], usage.counted[rows], [False])
    )
    peak_event = int(peak_events(usage, usage.used)[group])
    row_at_peak = int(np.searchsorted(rows, peak_event)) + 1 if peak_event != NONE else 0
    if is_selected[0] and usage.base[group] >= usage.used[peak_event]:
        row_at_peak = 0
    allocations = rows[usage.is_made[rows] & usage.counted[rows]]
    category = categories.of_event[allocations]
    return Table(
        {
            "category": texts(CATEGORIES),
            **usage.places(np.full(size, group)),
            "allocations": counts(category, size),
            "allocated_bytes": sums(category, usage.size[allocations], size),
            "at_peak_bytes": level[row_at_peak],
            "share": ratio(level[row_at_peak], np.full(size, level[row_at_peak].sum())),
            "peak_bytes": level[is_selected].max(axis=0, initial=0),
            "end_bytes": level[-1],
        }
    )
