"""The launch, the ranges and the op of all work of a profile, and the tables that follow from them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from statistics import mean

CALL_ID = 0x4E42  # the top 16 bits of an int64 payload that marks the slices of one call
# What PyTorch's engine calls its ranges, what libraries call theirs, and what a backward range is called.
ENGINE_OP = re.compile(
    r"autograd::engine::evaluate_function: .+|torch::autograd::\w+|\w+Backward\d*|backward:\S+"
    r"|aten::\w+_backward(_\w+)?"
)
LIBRARY_OP = re.compile(
    r"autograd::engine::evaluate_function: .+|\w+Backward\d*|[a-z_]\w*::[a-z_]\w*|nccl\w+"
)
BACKWARD_OP = re.compile(r"(?<![a-z])backward(?![a-z])", re.IGNORECASE)
MODULE_OP = re.compile(r"(nn\.Module: |module:|layer:).+")  # a module may have any name
LIBRARIES = {"nccl", "cublas", "cccl", "mpi"}  # domains in which libraries annotate themselves


@dataclass(frozen=True)
class Range:
    """An NVTX range; a phase is a start/end range. ``op`` is "" for what is no op."""

    report: int
    process: int
    thread: int
    start: int
    end: int
    op: str
    domain: int = 0
    payload: int = -1
    phase: bool = False


@dataclass(frozen=True)
class Call:
    """A CUDA API call."""

    report: int
    process: int
    thread: int
    correlation: int
    start: int
    end: int


@dataclass(frozen=True)
class Activity:
    """Work on a device."""

    report: int
    process: int
    correlation: int
    start: int
    end: int
    kind: str = "kernel"
    name: str = "k"
    bytes: int = -1


# -- the rules


def is_backward(op: str) -> bool:
    return bool(BACKWARD_OP.search(op)) and not MODULE_OP.fullmatch(op)


def only_phases(ranges: Sequence[Range], report: int) -> bool:
    """Tell whether a report has no push/pop range at all: then its phases are ops, on a stack per process."""
    return all(one.phase for one in ranges if one.report == report)


def is_open(one: Range, report: int, thread: int, instant: int) -> bool:
    on_stack = bool(one.op) and not one.phase
    here = (one.report, one.thread) == (report, thread)
    return on_stack and here and one.start <= instant < one.end


def is_open_phase(one: Range, report: int, thread: int, instant: int) -> bool:
    here = (one.report, one.process) == (report, thread & -(1 << 24))
    return bool(one.op) and here and one.start <= instant < one.end


def outer_first(ranges: Sequence[Range], rows: Iterable[int]) -> list[int]:
    """Sort rows: who starts first is outer, then who is longer, then who was pushed first."""
    return sorted(rows, key=lambda row: (ranges[row].start, -ranges[row].end, row))


def stack_at(ranges: Sequence[Range], report: int, thread: int, instant: int) -> tuple[int, ...]:
    """Return the rows of the ranges open at an instant, outermost first."""
    opens = is_open_phase if only_phases(ranges, report) else is_open
    rows = [row for row, one in enumerate(ranges) if opens(one, report, thread, instant)]
    return tuple(outer_first(ranges, rows))


def launch_of(calls: Sequence[Call], activity: Activity) -> int:
    """Return the row of the API call that issued an activity, -1 for none."""
    wanted = (activity.report, activity.process, activity.correlation)
    found = [
        (call.start, row)
        for row, call in enumerate(calls)
        if (call.report, call.process, call.correlation) == wanted and call.correlation > 0
    ]
    return min(found)[1] if found else -1


def is_valid(activity: Activity) -> bool:
    return activity.end >= activity.start and activity.end != 0


def union(intervals: Iterable[tuple[int, int]]) -> int:
    """Return how many instants lie in any of the intervals."""
    length, reached = 0, None
    for start, end in sorted(intervals):
        if end > start:
            fresh = start if reached is None else max(start, reached)
            length += max(0, end - fresh)
            reached = end if reached is None else max(end, reached)
    return length


def quantile(values: Iterable[int], share: float) -> float:
    """Return a quantile, interpolated between the two values nearest to its place."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low, high = ordered[int(place)], ordered[min(int(place) + 1, len(ordered) - 1)]
    return low + (high - low) * (place - int(place))


def statistics(times: Sequence[int]) -> dict[str, float]:
    """Return the columns that describe some times."""
    return {
        "count": len(times),
        "total_ns": sum(times),
        "mean_ns": mean(times),
        "min_ns": min(times),
        "max_ns": max(times),
    }


# -- a whole profile


@dataclass(frozen=True)
class Ownership:
    """Where an activity belongs: its launch (a row or -1), the ranges around that, or a reason."""

    launch: int
    stack: tuple[int, ...]
    reason: str

    @property
    def range(self) -> int:
        return self.stack[-1] if self.stack else -1


@dataclass(frozen=True)
class Profile:
    """A profile and everything that follows from it.

    ``stack`` answers which ranges are open; the quadratic `stack_at` unless told otherwise.
    """

    ranges: Sequence[Range]
    calls: Sequence[Call]
    activities: Sequence[Activity]
    stack: Callable[..., tuple[int, ...]] = field(default=stack_at)
    launch: Callable[..., int] = field(default=launch_of)

    @cached_property
    def found(self) -> list[Ownership]:
        """Attribute every activity."""
        return [self._attribute(activity) for activity in self.activities]

    def _attribute(self, activity: Activity) -> Ownership:
        launch = self.launch(self.calls, activity)
        if not is_valid(activity):
            return Ownership(launch, (), "invalid_time")
        if launch == -1:
            return Ownership(launch, (), "no_launch")
        call = self.calls[launch]
        stack = self.stack(self.ranges, call.report, call.thread, call.start)
        return Ownership(launch, stack, "" if stack else "no_range")

    def issued(self, row: int) -> int | None:
        """Return when an activity was issued: when its call began; by its own start where its process issues by no call.

        None for other work without a call: that was issued before the records begin.
        """
        one, launch = self.activities[row], self.found[row].launch
        if launch != -1:
            return self.calls[launch].start
        return None if (one.report, one.process) in self.with_calls else one.start

    @cached_property
    def with_calls(self) -> set[tuple[int, int]]:
        """The processes that have a call of some work."""
        pairs = zip(self.activities, self.found, strict=True)
        return {(one.report, one.process) for one, found in pairs if found.launch != -1}

    def time(self, row: int) -> int:
        one = self.activities[row]
        return one.end - one.start if is_valid(one) else 0

    def ops_on(self, stack: Iterable[int]) -> list[str]:
        return [self.ranges[row].op for row in stack]

    def call_of(self, row: int) -> tuple[object, ...]:
        """Name the call that a range is, or is a slice of."""
        one = self.ranges[row]
        sliced = one.payload >> 48 == CALL_ID
        return (one.report, one.process, one.domain, one.payload) if sliced else (row,)

    # -- what is around the ranges of PyTorch's engine: the range of who called the backward pass

    def whole(self, stack: tuple[int, ...]) -> tuple[int, ...]:
        """Return a stack after that of its caller on another thread, if it has one."""
        return (self.caller(stack[0]) if stack else ()) + stack

    def caller(self, root: int) -> tuple[int, ...]:
        """Return the whole stack in which one other thread waits for an outermost range."""
        if root not in self._callers:
            self._callers[root] = self._find_caller(root)
        return self._callers[root]

    @cached_property
    def _callers(self) -> dict[int, tuple[int, ...]]:
        return {}

    @cached_property
    def _threads(self) -> dict[tuple[int, int], set[int]]:
        threads = defaultdict(set)
        for one in self.ranges:
            threads[one.report, one.process].add(one.thread)
        return threads

    def _find_caller(self, root: int) -> tuple[int, ...]:
        one = self.ranges[root]
        if not ENGINE_OP.fullmatch(one.op) or one.start == one.end:
            return ()  # what takes no time is in no stack, not even its own
        # Where it crosses ranges that began before it, it is outermost after their ends only.
        start = max([one.start, *(self.ranges[at].end for at in self._before(root))])
        offers = []
        for thread in self._threads[one.report, one.process] - {one.thread}:
            stack = self._around(one.report, thread, start, one.end)
            if stack and not any(LIBRARY_OP.fullmatch(op) for op in self.ops_on(stack)):
                offers.append(stack)
        named = [stack for stack in offers if any(map(is_backward, self.ops_on(stack)))]
        chosen = offers if len(offers) == 1 else named
        return self.whole(chosen[0]) if len(chosen) == 1 else ()

    def _before(self, row: int) -> tuple[int, ...]:
        """Return what is open when a range begins and began before it."""
        one = self.ranges[row]
        stack = self.stack(self.ranges, one.report, one.thread, one.start)
        return stack[: stack.index(row)]

    def _around(self, report: int, thread: int, start: int, end: int) -> tuple[int, ...]:
        """Return the longest stack of a thread that an interval lies in, and is not equal to."""
        stack = self.stack(self.ranges, report, thread, start)
        while stack:
            ends = [self.ranges[at].end for at in self._before(stack[-1])]
            first = max([self.ranges[stack[-1]].start, *(at for at in ends if at <= start)])
            last = min(self.ranges[at].end for at in stack)
            if last >= end and (first, last) != (start, end):
                break
            stack = stack[:-1]
        return stack

    def on_stack(self, activity: int) -> tuple[int, ...]:
        """Return all ranges that an activity is under, of whatever threads."""
        return self.whole(self.found[activity].stack)

    # -- totals

    def totals(self) -> dict[str, object]:
        where: dict[str, list[int]] = defaultdict(list)
        for row, found in enumerate(self.found):
            where[found.reason].append(self.time(row))
        return {
            "activities": len(self.activities),
            "gpu_ns": sum(map(sum, where.values())),
            "attributed_ns": sum(where[""]),
            "unattributed": {
                reason: {"activities": len(times), "gpu_ns": sum(times)}
                for reason, times in where.items()
                if reason
            },
        }

    # -- per op

    def op_rows(self) -> list[int]:
        return [
            row
            for row, one in enumerate(self.ranges)
            if one.op and (not one.phase or only_phases(self.ranges, one.report))
        ]

    def by_op(self) -> dict[str, dict[str, float]]:
        own, under = defaultdict(list), defaultdict(list)
        for row in range(len(self.found)):
            ops = self.ops_on(self.on_stack(row))
            for op in set(ops):
                under[op].append(row)
            if ops:
                own[ops[-1]].append(row)
        return {
            op: self._op(own[op], under[op], calls) | self.cpu[op]
            for op, calls in self.calls_by_op.items()
        }

    def _op(self, own: list[int], under: list[int], of_calls: list[int]) -> dict[str, float]:
        kinds = [self.activities[row].kind for row in own]
        everything = sum(map(self.time, range(len(self.activities))))
        gpu_self = sum(map(self.time, own))
        return {
            "calls": len(of_calls),
            "kernels": kinds.count("kernel"),
            "memcpys": kinds.count("memcpy"),
            "memsets": kinds.count("memset"),
            "graphs": kinds.count("graph"),
            "gpu_self_ns": gpu_self,
            "gpu_total_ns": sum(map(self.time, under)),
            "gpu_busy_ns": self._busy(under),
            "gpu_mean_ns": mean(of_calls),
            "gpu_p50_ns": quantile(of_calls, 0.5),
            "gpu_p95_ns": quantile(of_calls, 0.95),
            "gpu_max_ns": max(of_calls),
            "share": gpu_self / everything if everything else 0,
        }

    @cached_property
    def calls_by_op(self) -> dict[str, list[int]]:
        """List the total of each call of each op."""
        total = {self.call_of(row): 0 for row in self.op_rows()}
        op = {self.call_of(row): self.ranges[row].op for row in self.op_rows()}
        for row in range(len(self.found)):
            for call in {self.call_of(at) for at in self.on_stack(row)}:
                total[call] += self.time(row)
        return {
            each: [total[call] for call in total if op[call] == each] for each in set(op.values())
        }

    def _busy(self, rows: Iterable[int]) -> int:
        """Captures share no clock: their times add up."""
        clocks = defaultdict(list)
        for one in (self.activities[row] for row in rows):
            clocks[one.report].append((one.start, one.end))
        return sum(map(union, clocks.values()))

    @cached_property
    def cpu(self) -> dict[str, dict[str, int]]:
        """Return for how long each op was open, and for how long it was the innermost one."""
        time: dict[str, dict[str, int]] = defaultdict(lambda: {"cpu_self_ns": 0, "cpu_total_ns": 0})
        for first, last, stack in self.pieces():
            ops = self.ops_on(stack)
            for op in set(ops):
                time[op]["cpu_total_ns"] += last - first
            time[ops[-1]]["cpu_self_ns"] += last - first
        return time

    def pieces(self) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        """Cut each thread where any range starts or ends; yield start, end and stack where one is open."""
        cuts: dict[tuple[int, int], set[int]] = defaultdict(set)
        for one in self.ranges:
            home = one.process if only_phases(self.ranges, one.report) else one.thread
            cuts[one.report, home] |= {one.start, one.end}
        for (report, thread), instants in cuts.items():
            for first, last in pairwise(sorted(instants)):
                if stack := self.stack(self.ranges, report, thread, first):
                    yield first, last, stack

    # -- per kernel and copy

    def _named(self, *kinds: str) -> dict[str, list[int]]:
        names: dict[str, list[int]] = defaultdict(list)
        for row, one in enumerate(self.activities):
            if one.kind in kinds:
                names[one.name].append(row)
        return names

    def _times(self, rows: Iterable[int]) -> dict[str, float]:
        return statistics([self.time(row) for row in rows])

    def by_kernel(self) -> dict[str, dict[str, float]]:
        named = self._named("kernel")
        everything = sum(self.time(row) for rows in named.values() for row in rows)
        return {
            name: {
                **self._times(rows),
                "median_ns": quantile(map(self.time, rows), 0.5),
                "share": self._times(rows)["total_ns"] / everything if everything else 0,
            }
            for name, rows in named.items()
        }

    def by_memcpy(self) -> dict[str, dict[str, float]]:
        table = {}
        for name, rows in self._named("memcpy", "memset").items():
            times = self._times(rows)
            size = sum(max(0, self.activities[row].bytes) for row in rows)
            speed = size / times["total_ns"] if times["total_ns"] else 0
            table[name] = times | {"bytes": size, "gb_per_s": speed}
        return table

    def by_op_kernel(self, *, inclusive: bool) -> dict[tuple[str, str], dict[str, float]]:
        rows = defaultdict(list)
        for row in range(len(self.found)):
            ops = self.ops_on(self.on_stack(row))
            if self.activities[row].kind == "kernel":
                for op in set(ops if inclusive else ops[-1:]):
                    rows[op, self.activities[row].name].append(row)
        return {pair: self._times(found) for pair, found in rows.items()}

    # -- per range

    def path(self, row: int) -> str:
        """Return the ops around a range and its own; one of no length is never open: its own alone."""
        one = self.ranges[row]
        stack = self.stack(self.ranges, one.report, one.thread, one.start)
        above = stack[: stack.index(row) + 1] if row in stack else [row]
        return "/".join(self.ops_on(self.whole(tuple(above))))

    def by_range(self) -> list[dict[str, object]]:
        under = defaultdict(list)
        for row in range(len(self.found)):
            for at in self.on_stack(row):
                under[at].append(row)
        return [self._projection(row, under[row]) for row in self.op_rows()]

    def _projection(self, row: int, under: list[int]) -> dict[str, object]:
        one, ran = self.ranges[row], [self.activities[at] for at in under]
        first = min((a.start for a in ran), default=-1)
        return {
            "name": one.op,
            "path": self.path(row),
            "start_ns": one.start,
            "duration_ns": one.end - one.start,
            "thread": one.thread,
            "gpu_start_ns": first,
            "gpu_span_ns": max((a.end for a in ran), default=-1) - first,
            "gpu_busy_ns": self._busy(under),
            "activities": len(ran),
        }
