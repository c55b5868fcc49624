"""What each allocation of a training is for: a parameter, a gradient, an activation …; docs/memory.md has the rules."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bridge.analyze.memory.allocations import ALIVE, STATES, TAKEN, lives
from bridge.analyze.memory.held import Held
from bridge.analyze.memory.passes import Calls, Passes
from bridge.join.order import NONE, Flags, Ints
from importers import frames
from importers.frames import shared

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
