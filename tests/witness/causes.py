"""Where time goes and why a GPU is idle, one definition of docs/causes.md after the other.

Attribution (which call, which range) is taken as given: another witness holds it to the truth.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from statistics import mean, median

from bridge.join.attributed import AttributedCapture
from witness.attribution import outer_first, union
from witness.critical_path import CriticalPath

ORDER = (
    *("work elsewhere", "late rank", "profiler", "input", "data loading", "Python's lock"),
    *("synchronization", "blocking memcpy", "memcpy calls", "launch calls", "other CUDA calls"),
    *("loading of code", "OS calls", "compilation", "host code", "host code outside ops"),
    *("launch latency", "not running", "unknown"),
)
Told = tuple[str, str, str]  # cause, op and call
TELLING = ("profiler", "input", "data loading")  # of a wait, whatever it waits for
TIMES = ("host_ns", "api_ns", "sync_ns", "queue_ns", "launch_gap_ns", "starved_ns")
WORK = ("gpu", "moved")
COMPILING = ("cuModuleLoad", "cuLibraryLoad", "cuLibraryGetKernel", "cudaGraphInstantiate", "nvrtc")


@dataclass(frozen=True)
class Range:
    where: tuple[int, int]  # report and thread
    start: int
    end: int
    op: str


@dataclass(frozen=True)
class Call:
    where: tuple[int, int]
    process: int
    start: int
    end: int
    name: str

    @property
    def back(self) -> int:
        """When it returned."""
        return max(self.start, self.end)


@dataclass(frozen=True)
class Activity:
    row: int
    gpu: object
    device: int
    start: int
    end: int
    kind: str
    name: str
    to_host: bool
    valid: bool
    launch: int  # a row of the calls, or -1
    range: int  # a row of the ranges, or -1

    @property
    def time(self) -> int:
        return self.end - self.start if self.valid else 0

    @property
    def done(self) -> int:
        return self.start + self.time


@dataclass(frozen=True)
class Gap:
    start: int
    end: int
    ended_by: Activity | None  # None behind the last work of a GPU
    before: Activity | None  # None before the first

    @property
    def length(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class Open:
    """What a thread has open: ranges outermost first, and calls."""

    ranges: tuple[int, ...] = ()
    calls: tuple[int, ...] = ()


@dataclass(frozen=True)
class History:
    ranges: list[Range]  # those that are ops
    calls: list[Call]
    activities: list[Activity]
    loads: Callable[[str], bool]
    compiles: Callable[[str], bool]
    runs: dict[object, tuple[int, int]]  # by GPU: the first and the last event of its report

    # -- the host

    @cached_property
    def late(self) -> set[int]:
        """Calls that returned only after their copy to the host had ended."""
        copies = (a for a in self.activities if a.to_host and a.launch >= 0)
        return {a.launch for a in copies if a.done <= self.calls[a.launch].back}

    @cached_property
    def kinds(self) -> list[str]:
        return [self.kind(row) for row in range(len(self.calls))]

    def kind(self, row: int) -> str:
        name = self.calls[row].name
        if name.startswith(COMPILING):
            return "loading of code"
        if name.endswith("Synchronize"):
            return "synchronization"
        if "Memcpy" in name and "Async" not in name:
            return "blocking memcpy"
        if "Memcpy" in name or "Memset" in name:
            return "blocking memcpy" if row in self.late else "memcpy calls"
        return "launch calls" if "Launch" in name else "other CUDA calls"

    @cached_property
    def walks(self) -> dict[tuple[int, int], tuple[list[int], list[Open]]]:
        """Per thread its edges, and what is open from each to the next."""
        rows = defaultdict(lambda: ([], []))
        for row, one in enumerate(self.ranges):
            if one.end > one.start:
                rows[one.where][0].append(row)
        for row, call in enumerate(self.calls):
            if call.end > call.start:
                rows[call.where][1].append(row)
        return {where: self._walk(*both) for where, both in rows.items()}

    def _walk(self, ranges: list[int], calls: list[int]) -> tuple[list[int], list[Open]]:
        def timed(row, of):
            return of[row].start, of[row].end

        both = [timed(r, self.ranges) for r in ranges] + [timed(c, self.calls) for c in calls]
        edges = sorted({edge for times in both for edge in times})
        waiting = outer_first(self.ranges, ranges)[::-1]
        calling = sorted(calls, key=lambda row: self.calls[row].start)[::-1]
        now, called, found = [], [], []
        for edge in edges:
            while waiting and self.ranges[waiting[-1]].start <= edge:
                now.append(waiting.pop())
            while calling and self.calls[calling[-1]].start <= edge:
                called.append(calling.pop())
            now = [row for row in now if self.ranges[row].end > edge]
            called = [row for row in called if self.calls[row].end > edge]
            found.append(Open(tuple(now), tuple(called)))
        return edges, found

    def open_at(self, where: tuple[int, int], instant: int) -> Open:
        edges, found = self.walks.get(where, ([], []))
        place = bisect_right(edges, instant) - 1
        return found[place] if place >= 0 else Open()

    def edges(self, where: tuple[int, int], start: int, end: int) -> list[int]:
        edges, _ = self.walks.get(where, ([], []))
        return edges[bisect_right(edges, start) : bisect_left(edges, end)]

    @cached_property
    def own(self) -> list[dict[str, int]]:
        """Per range the time without ranges inside it: outside calls, in those that wait, in others."""
        found = [dict.fromkeys(("host_ns", "api_ns", "sync_ns"), 0) for _ in self.ranges]
        for edges, opened in self.walks.values():
            for (start, end), now in zip(pairwise(edges), opened, strict=False):
                if now.ranges:
                    kinds = {self.kinds[row] for row in now.calls}
                    waits = kinds & {"synchronization", "blocking memcpy"}
                    column = "sync_ns" if waits else "api_ns" if kinds else "host_ns"
                    found[now.ranges[-1]][column] += end - start
        return found

    # -- the device

    @cached_property
    def by_gpu(self) -> dict[object, list[Activity]]:
        found = defaultdict(list)
        for activity in self.activities:
            if activity.valid:
                found[activity.gpu].append(activity)
        return found

    @cached_property
    def gaps(self) -> list[Gap]:
        found = []
        for ran in self.by_gpu.values():
            ran.sort(key=lambda a: (a.start, a.row))
            before = ran[0]
            for activity in ran[1:]:
                if activity.start > before.done:
                    found.append(Gap(before.done, activity.start, activity, before))
                if activity.done > before.done:
                    before = activity
        return found

    @cached_property
    def gaps_of_run(self) -> list[Gap]:
        """All gaps, and those of each GPU from the begin of the run and to its end."""
        found = list(self.gaps)
        for gpu, ran in self.by_gpu.items():
            first = min(ran, key=lambda a: (a.start, a.row))
            last_end = max(a.done for a in ran)
            last = min((a for a in ran if a.done == last_end), key=lambda a: (a.start, a.row))
            found.append(Gap(self.runs[gpu][0], first.start, first, None))
            found.append(Gap(last_end, self.runs[gpu][1], None, last))
        return [gap for gap in found if gap.length > 0]

    @property
    def idle_in_run(self) -> int:
        """The time of the run in which each GPU did nothing, over all GPUs."""
        return sum(
            self.runs[gpu][1] - self.runs[gpu][0] - union((a.start, a.done) for a in ran)
            for gpu, ran in self.by_gpu.items()
        )

    @property
    def idle(self) -> int:
        """The time of all GPUs between their first and last work in which nothing ran."""
        return sum(
            max(a.done for a in ran)
            - min(a.start for a in ran)
            - union((a.start, a.done) for a in ran)
            for ran in self.by_gpu.values()
        )

    def queue(self, activity: Activity) -> int:
        if activity.launch < 0 or not activity.valid:
            return 0
        return max(0, activity.start - self.calls[activity.launch].back)

    # -- what the host did while a GPU was idle

    def starved(self, gap: Gap) -> int:
        """Return the part of a gap before work in which the host was not about to launch."""
        call, before = (
            self.calls[a.launch] if a and a.launch >= 0 else None
            for a in (gap.ended_by, gap.before)
        )
        edges = {gap.start, gap.end}
        for one in (call, before):
            edges |= set(self.edges(one.where, gap.start, gap.end)) if one else set()
        if call and gap.start < call.back < gap.end:
            edges.add(call.back)
        pairs = pairwise(sorted(edges))
        return sum(end - start for start, end in pairs if self.starves(call, before, start))

    def starves(self, call: Call | None, before: Call | None, instant: int) -> bool:
        if call is None or instant >= call.back:
            return call is None
        for one in (call, before):
            now = self.open_at(one.where, instant) if one else Open()
            if now.ranges or now.calls:
                ops = [self.ranges[row].op for row in now.ranges]
                kinds = {self.kinds[row] for row in now.calls}
                waits = kinds & {"synchronization", "blocking memcpy", "loading of code"}
                return bool(waits) or any(self.loads(op) or self.compiles(op) for op in ops)
        return True

    def op_of(self, activity: Activity) -> str:
        return self.ranges[activity.range].op if activity.range >= 0 else ""

    # -- tables

    def causes(self) -> dict[str, dict[str, int | str]]:
        table = {one.op: dict.fromkeys((*TIMES, *WORK), 0) for one in self.ranges}
        for one, times in zip(self.ranges, self.own, strict=True):
            for column, ns in times.items():
                table[one.op][column] += ns
        self._add_work(table)
        for row in table.values():
            row["bound"] = bound(row)
        return {op: {c: row[c] for c in (*TIMES, "bound")} for op, row in table.items()}

    def _add_work(self, table) -> None:
        for activity in self.activities:
            if activity.range >= 0:
                row = table[self.op_of(activity)]
                row["queue_ns"] += self.queue(activity)
                row["moved" if activity.kind in ("memcpy", "memset") else "gpu"] += activity.time
        for gap in self.gaps:
            if gap.ended_by.range >= 0:
                row, starved = table[self.op_of(gap.ended_by)], self.starved(gap)
                row["starved_ns"] += starved
                row["launch_gap_ns"] += gap.length - starved

    def listed(self, over: int) -> list[tuple]:
        """Return start, length, what ended it and its kernel of each gap longer than some ns."""
        ended = [(gap, gap.ended_by) for gap in self.gaps_of_run if gap.length > over]
        return sorted(
            (
                gap.start,
                gap.length,
                (self.op_of(by) or by.name) if by else "",
                by.name if by else "",
            )
            for gap, by in ended
        )

    def by_launch(self) -> list[tuple]:
        groups = defaultdict(list)
        for a in self.activities:
            if a.kind == "kernel" and a.launch >= 0:
                call = self.calls[a.launch]
                groups[call.where, call.process, a.device, call.name, a.name].append((a, call))
        rows = []
        for (where, process, device, api, kernel), launched in groups.items():
            key = kernel, api, process >> 24 & 0xFFFFFF, where[1] & 0xFFFFFF, device, len(launched)
            queue = [a.start - call.back for a, call in launched if a.start >= call.back]
            figures = [
                *five([max(a.done, call.back) - call.start for a, call in launched]),
                *five([call.back - call.start for _, call in launched]),
                len(queue),
                *five(queue),
                *five([a.done - a.start for a, _ in launched]),
            ]
            rows.append((*key, *figures))
        return sorted(rows)


def five(times: list[int]) -> tuple[float, ...]:
    if not times:
        return 0, 0, 0, -1, -1
    return sum(times), mean(times), median(times), min(times), max(times)


def bound(row: dict[str, int]) -> str:
    own = row["gpu"] + row["moved"]
    awake = row["host_ns"] + row["api_ns"]
    figures = [
        ("GPU", row["gpu"]),
        ("memcpy", row["moved"]),
        ("launch", row["launch_gap_ns"]),
        ("sync", row["sync_ns"] - own if row["sync_ns"] > awake else 0),
        ("starved", row["starved_ns"]),
    ]
    most = max(ns for _, ns in figures)
    return next(word for word, ns in figures if ns == most) if most > 0 else "host"


class TwoWaysError(Exception):
    """Two ends at the same time, of which the walk may take either."""


class Walk(CriticalPath):
    """The walk back from the end of each gap through the graph of the run, instant by instant."""

    def __init__(self, attributed: AttributedCapture, history: History) -> None:
        [(first, last)] = set(history.runs.values())
        super().__init__(attributed, first, last)
        self.history = history
        nesting = attributed.attribution.nesting
        times = (c.tolist() for c in (nesting.stack, nesting.start, nesting.end))
        op = [attributed.ops[op] for op in attributed.node_op.tolist()]
        self.nodes = [*zip(*times, op, strict=True)]
        self.stack_of = {key: stack for stack, keys in self.points_of.items() for key in keys}

    def told(self, gap: Gap) -> list[Told] | None:
        """Return cause, op and call of each ns of a gap, None where the walk might go two ways."""
        found = dict.fromkeys(range(gap.start, gap.end), ("unknown", "", ""))
        try:
            for start, end, words in self.elements(gap):
                for t in range(max(start, gap.start), min(end, gap.end)):
                    found[t] = words(t, found[t])
        except TwoWaysError:
            return None
        return [*found.values()]

    def elements(self, gap: Gap) -> Iterator[tuple[int, int, Callable[[int, Told], Told]]]:
        """Return from when to when each element lasts, and what it says of an instant of which something was said."""
        key, waits = self.last_of(gap), []
        if key:
            yield self.time[key], gap.end, not_running
        while key and self.time[key] > gap.start and not self.is_foreign(key) and self.before[key]:
            before, stack = self.latest(key), self.stack_of.get(key)
            start, end = self.time[before], self.time[key]
            if stack is None:
                yield start, end, partial(self.of_device, key, gap)
            else:
                yield start, end, partial(self.of_thread, stack)
                if key[:2] == ("call", "end") and self.stack_of.get(before) != stack:
                    waits.append((self.calls[key[2]]["start"], start, stack))
            key = before
        if key in self.stack_of and not self.before[key]:
            yield gap.start, self.time[key], not_running
        for start, end, stack in waits:
            yield start, end, partial(self.of_wait, stack)

    def last_of(self, gap: Gap) -> tuple | None:
        if gap.ended_by:
            return "start", gap.ended_by.row
        gpu = gap.before.gpu
        calls = [a.launch for a in self.history.activities if a.valid and a.gpu == gpu]
        processes = {self.calls[call]["process"] for call in calls if call >= 0}
        ends = [p[-1] for s, p in self.points_of.items() if p and self.process_of(s) in processes]
        last = max(map(self.time.__getitem__, ends), default=None)
        able = [one for one in ends if self.time[one] == last]
        if len(able) > 1 and last > gap.start:
            raise TwoWaysError
        return able[0] if able else None

    def latest(self, key: tuple) -> tuple:
        """Return what a point waited for; if something else ended then, too, it stays on its stream or thread."""
        last = max(self.time[one] for one in self.before[key])
        able = [one for one in self.before[key] if self.time[one] == last]
        if len(set(able)) > 1 and not self.is_own(able[0], key):
            raise TwoWaysError
        return able[0]

    def is_own(self, one: tuple, key: tuple) -> bool:
        if key in self.stack_of:
            return self.stack_of.get(one) == self.stack_of[key]
        lanes = {work["row"]: work["lane"] for work in self.work}
        return lanes.get(one[1]) == lanes[key[1]]

    def is_foreign(self, key: tuple) -> bool:
        if key in self.stack_of:
            return False
        return self.of_row(key[1])["process"] not in {call["process"] for call in self.calls}

    def of_row(self, row: int) -> dict:
        return next(one for one in self.work if one["row"] == row)

    def of_device(self, key: tuple, gap: Gap, instant: int, _: Told) -> Told:
        one, gpu = self.of_row(key[1]), self.history.activities[key[1]].gpu
        own = (gap.ended_by or gap.before).gpu
        if key[0] == "end":
            return "work elsewhere", one["op"], "" if gpu == own else f"GPU {one['device']}"
        if one["launch"] < 0:
            return "unknown", one["op"], ""
        call = self.calls[one["launch"]]
        if one["start"] < call["end"]:
            return self.doing(call["stack"], call["start"], instant, [call])
        return "launch latency", one["op"], ""

    def of_thread(self, stack: int, instant: int, *_) -> Told:
        return self.doing(stack, instant, instant)

    def doing(self, stack: int, at: int, instant: int, of: Sequence[dict] = ()) -> Told:
        """Return the cause that a thread is by its calls and ops at a time, and by what the profiler did at an instant."""
        calls = (c for c in self.calls if c["stack"] == stack)
        of = of or [c for c in calls if c["start"] <= at < c["end"]]
        ops = self.ops_at(stack, of[0]["start"] if of and self.is_wait(of[0]) else at)
        innermost = ops[-1] if ops else ""
        found = [("host code", innermost, "") if ops else ("host code outside ops", "", "")]
        found += [("compilation", op, "") for op in ops if self.history.compiles(op)][:1]
        if of:
            found = [(self.history.kind(of[0]["row"]), innermost, of[0]["name"])]
        elif system := self.system_at(stack, at):
            is_input = system == "getc"
            found = [("input", innermost, "") if is_input else ("OS calls", innermost, system)]
        found += [("data loading", op, "") for op in ops if self.history.loads(op)][:1]
        _, thread = self.thread_of(stack)
        for row in self.attributed.capture.overhead.to_pandas().to_dict("records"):
            if row["thread"] == thread and row["start"] <= instant < row["end"]:
                found.append(("profiler", innermost, ""))
        return min(found, key=rank)

    def of_wait(self, stack: int, instant: int, said: Told) -> Told:
        told = self.of_thread(stack, instant)
        return min(said, told, key=rank) if told[0] in TELLING else said

    def ops_at(self, stack: int, instant: int) -> list[str]:
        return [op for on, start, end, op in self.nodes if on == stack and start <= instant < end]

    def system_at(self, stack: int, instant: int) -> str:
        """Return the outermost call of the operating system that a thread is in."""
        _, thread = self.thread_of(stack)
        rows = self.attributed.capture.system_calls.to_pandas().to_dict("records")
        outer: list[dict] = []
        for row in sorted(rows, key=lambda r: (r["start"], -r["end"])):
            within = any(one["start"] <= row["start"] < one["end"] for one in outer)
            outer += [row] if row["thread"] == thread and not within else []
        return next((r["name"] for r in outer if r["start"] <= instant < r["end"]), "")


def not_running(*_) -> Told:
    return "not running", "", ""


def rank(told: Told) -> int:
    return ORDER.index(told[0])
