"""What a run pays for: in each iteration, and once, before, between and after them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bridge.analyze.core.devices import Devices
from bridge.analyze.core.folding import folded_ops
from bridge.analyze.core.groups import sums
from bridge.analyze.run.account import (
    COMMUNICATION,
    COMPUTE,
    STATES,
    RunClocks,
    Span,
    covered_times,
    states_of_work,
)
from bridge.analyze.run.causes.gaps import gaps_in
from bridge.analyze.run.host_time import ENDED, KIND, NO_CALL, NOT_BEGUN, HostTime, host_time
from bridge.analyze.run.idle.causes import UNKNOWN, WORDS, times_of_causes
from bridge.analyze.run.parts import LoopPart, Parts, Times, bounding_gpu, first_work, is_warm_up
from bridge.importers.records import record
from bridge.join.arrays import NONE, Ints, number_groups
from bridge.join.attributed import AttributedCapture

MIN_SHARE = 0.05  # of an iteration, or of the run, from which on a cost is named
MOST_COSTS = 2  # of each list
MOSTLY = 0.5  # of the time of a range in one call, from which on the call is named
NO_RANGE = "code in no range or call"


@record
class Cost:
    """What takes time: ``what``, "" for a range itself, in ``where``, a range, kernel or memcpy, "" for none.

    ``time_ns`` is the time in an iteration, or in the run; ``share`` the part of it. ``is_work`` tells that a GPU
    works in that time.
    """

    what: str
    where: str
    time_ns: int
    share: float = 0.0
    is_work: bool = False


@record
class Costs:
    """What an iteration of the longest loop pays for on the GPU that bounds the run, and what the host does besides.

    ``each_ns`` is the mean length of an iteration, 0 where there are none: ``in_each`` then is about the time from the
    first work on the GPU to the last. ``once`` is about start-up, end and what lies between loops. ``in_all_ns`` and
    ``once_ns`` are the times of both in the run.
    """

    in_each: tuple[Cost, ...] = ()
    each_ns: int = 0
    in_all_ns: int = 0
    once: tuple[Cost, ...] = ()
    once_ns: int = 0

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Costs:
        """Return what `dataclasses.asdict` wrote, read back from JSON."""
        lists = {key: tuple(Cost(**cost) for cost in values[key]) for key in ("in_each", "once")}
        return cls(**{**values, **lists})

    @classmethod
    def of(cls, attributed: AttributedCapture, parts: Parts) -> Costs:
        """Return the costs of a run with these parts."""
        gpu = bounding_gpu(attributed)
        in_all = sum(last - first for first, last in parts.iterations)
        once = [Span(*part) for part in (parts.start_up, *parts.between, parts.end)]
        once_costs = tuple(_of_host(attributed, once))
        if gpu == NONE or not parts.iterations:  # all work lies outside of the collection
            return cls(once=once_costs, once_ns=sum(span.length for span in once))
        steady = [loop for loop in parts.loops if loop.count > loop.warm_up]
        loop = max(steady, key=lambda one: one.end - one.start, default=None)
        span, count = _steady(attributed, loop, parts)
        return cls(
            in_each=tuple(_on_gpu(attributed, gpu, span, count)),
            each_ns=round(span.length / count) if loop else 0,
            in_all_ns=in_all,
            once=once_costs,
            once_ns=sum(part.length for part in once),
        )


def _steady(attributed: AttributedCapture, loop: LoopPart | None, parts: Parts) -> tuple[Span, int]:
    """Return the time of the iterations of a loop after warm-up, and their number; without a loop that of all work."""
    if loop is None:
        return Span(parts.iterations[0][0], parts.iterations[-1][1]), 1
    steps = attributed.iterations
    number = parts.loops.index(loop)
    rows = np.flatnonzero((steps.loop == number) & ~is_warm_up(attributed))
    begun = first_work(attributed)[rows]
    begun = begun[begun >= loop.start]
    start = int(begun.min() if len(begun) else Times.of(attributed).start[rows].min())
    return Span(start, loop.end), max(1, loop.count - loop.warm_up)


# -- What an iteration pays for, on the GPU that bounds the run


def _on_gpu(attributed: AttributedCapture, gpu: int, span: Span, count: int) -> Iterator[Cost]:
    own = RunClocks.of(attributed).in_report(span, Devices.of_report(attributed).report[gpu])
    costs = [*_idle(attributed, gpu, own), *_work(attributed, gpu, own)]
    for cost in _largest(costs, span.length):
        yield replace(cost, time_ns=round(cost.time_ns / count))


def _idle(attributed: AttributedCapture, gpu: int, span: Span) -> Iterator[Cost]:
    """Yield the causes of the idle time of a GPU within a span, with the op that has most of each."""
    names = ["", *folded_ops(attributed.ops)]
    times = np.roll(times_of_causes(attributed, gaps_in(attributed, gpu, span)), 1, axis=1)
    for cause, of_op in zip(WORDS, times, strict=True):
        time, most = int(of_op.sum()), int(np.argmax(of_op))
        if time and cause != UNKNOWN:
            yield Cost(cause, names[most] if of_op[most] >= MOSTLY * time else "", time)


def _work(attributed: AttributedCapture, gpu: int, span: Span) -> Iterator[Cost]:
    """Yield the time of a GPU in each state of work within a span, with the kernel that has most of it."""
    rows = np.flatnonzero(Devices.of_report(attributed).gpu == gpu)
    start = attributed.capture.activities.start[rows]
    end, state = attributed.end[rows], states_of_work(attributed)[rows]
    covered = covered_times(
        np.zeros(len(rows), np.int64), state, start=start, end=end, parts=[span]
    )[:, 0]
    length = np.maximum(np.minimum(end, span.end) - np.maximum(start, span.start), 0)
    code, names = _names_of_work(attributed)
    for number, time in enumerate(covered[: len(STATES)].tolist()):
        own = np.flatnonzero((state == number) & (code[rows] != NONE) & (length > 0))
        if time and len(own):
            of_name = sums(code[rows][own], length[own], len(names))
            where = names[int(np.argmax(of_name))]
            yield Cost(WORD_OF_STATE[STATES[number]], where, time, is_work=True)


def _names_of_work(attributed: AttributedCapture) -> tuple[Ints, list[str]]:
    """Return the op of each activity as a code, or its own name where it has none, and the names."""
    names, op = attributed.activity_name, attributed.activity_op
    own = names.codes
    code = np.where(op != NONE, op, np.where(own == NONE, NONE, own + len(attributed.ops)))
    return code, [*folded_ops(attributed.ops), *map(str, names.texts)]


WORD_OF_STATE = {
    COMPUTE: "kernels",
    COMMUNICATION: "communication",
    "copy": "memcpys",
    "other": "memsets",
    "graph": "CUDA graphs",
}


# -- What the host does before, between and after the iterations


def _of_host(attributed: AttributedCapture, parts: Sequence[Span]) -> Iterator[Cost]:
    lasting, clocks = [part for part in parts if part.length], RunClocks.of(attributed)
    whole = sum(span.length for span in clocks.whole.values())
    if lasting:
        yield from _largest([*host_costs(host_time(attributed, lasting))], whole)


def host_costs(host: HostTime) -> Iterator[Cost]:
    """Yield the time of each range, of each call outside of ranges, and of code in neither."""
    group, first = number_groups(host.range)
    total = sums(group, host.time, len(first))
    for number, row in enumerate(first.tolist()):  # one iteration per range
        rows = np.flatnonzero(group == number)
        calls = [*_calls(host, rows)]
        if host.range[row] == NONE:
            yield from calls
            continue
        where = host.ranges[host.range[row]]
        largest = max(calls, key=lambda one: one.time_ns)
        is_one_call = largest.what != NO_RANGE and largest.time_ns >= MOSTLY * total[number]
        yield Cost(largest.what if is_one_call else "", where, int(total[number]))


def _calls(host: HostTime, rows: Ints) -> Iterator[Cost]:
    """Yield the time of some rows by call, and outside of calls."""
    states = [f"the {name}" for name in (NOT_BEGUN, ENDED)]
    names, kind = [*host.calls, *states, NO_RANGE], host.kind[rows]
    code = np.where(kind == KIND[NO_CALL], NONE, host.call[rows])
    code = np.where(kind >= KIND[NOT_BEGUN], len(host.calls) + kind - KIND[NOT_BEGUN], code)
    group, first = number_groups(code)
    for row, time in zip(
        first.tolist(), sums(group, host.time[rows], len(first)).tolist(), strict=True
    ):
        yield Cost(names[code[row]], "", time)


def _largest(costs: Sequence[Cost], whole: int) -> Iterator[Cost]:
    """Yield the largest costs, each with its share of the whole."""
    for cost in sorted(costs, key=lambda one: (-one.time_ns, one.what, one.where))[:MOST_COSTS]:
        if cost.time_ns >= MIN_SHARE * whole:
            yield replace(cost, share=cost.time_ns / max(1, whole))
