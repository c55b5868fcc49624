"""Where time goes and why a GPU is idle, one definition of docs/causes.md after the other.

Attribution (which call, which range) is taken as given: another witness holds it to the truth.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import mean, median

from witness.attribution import outer_first, union

LAUNCHING = ("host code", "launch calls", "other CUDA calls", "memcpy calls", "launch latency")
STARVED = (
    "data loading",
    "compilation",
    "synchronization",
    "blocking memcpy",
    "host code outside ops",
    "unknown",
)
BREAKS_TIES = (*LAUNCHING, *STARVED)
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
            return "compilation"
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

    def blame(self, gap: Gap) -> dict[tuple[str, str], tuple[int, int]]:
        """Return (ns, first instant) by cause and op."""
        call, before = (
            self.calls[a.launch] if a and a.launch >= 0 else None
            for a in (gap.ended_by, gap.before)
        )
        edges = {gap.start, gap.end}
        for one in (call, before):
            edges |= set(self.edges(one.where, gap.start, gap.end)) if one else set()
        if call and gap.start < call.back < gap.end:
            edges.add(call.back)
        found: dict[tuple[str, str], tuple[int, int]] = {}
        edges = sorted(edges)
        for start, end in pairwise(edges):
            key = self.told(gap, call, before, start)
            ns, first = found.get(key, (0, start))
            found[key] = ns + end - start, first
        return found

    def told(self, gap: Gap, call: Call | None, before: Call | None, instant: int):
        if gap.ended_by is None and before is not None:
            now = self.open_at(before.where, instant)
            return self.word(now) if now.ranges or now.calls else ("host code outside ops", "")
        if call is None:
            return "unknown", ""
        if instant >= call.back:
            return "launch latency", self.op_of(gap.ended_by)
        for one in (call, before):
            now = self.open_at(one.where, instant) if one else Open()
            if now.ranges or now.calls:
                return self.word(now)
        return "host code outside ops", ""

    def word(self, now: Open) -> tuple[str, str]:
        ops = [self.ranges[row].op for row in now.ranges]
        innermost = ops[-1] if ops else ""
        kinds = {self.kinds[row] for row in now.calls}
        for cause, tells in (("data loading", self.loads), ("compilation", self.compiles)):
            outermost = [op for op in ops if tells(op)][:1]
            if outermost:
                return cause, outermost[0]
            if cause in kinds:
                return cause, innermost
        for cause in ("synchronization", "blocking memcpy", "memcpy calls", "other CUDA calls"):
            if cause in kinds:
                return cause, innermost
        return ("host code", innermost) if ops else ("launch calls", "")

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
                for (cause, _), (ns, _) in self.blame(gap).items():
                    column = "starved_ns" if cause in STARVED else "launch_gap_ns"
                    table[self.op_of(gap.ended_by)][column] += ns

    def by_gap(self, over: int) -> list[tuple]:
        rows = []
        for gap in self.gaps_of_run:
            if gap.length > over:
                cause, ns, op = self.main(gap)
                kernel = gap.ended_by.name if gap.ended_by else ""
                ended = self.op_of(gap.ended_by) if gap.ended_by else ""
                rows.append((gap.start, gap.length, cause, ns, op, ended or kernel, kernel))
        return sorted(rows)

    def main(self, gap: Gap) -> tuple[str, int, str]:
        parts = self.blame(gap)
        total = defaultdict(int)
        for (cause, _), (ns, _) in parts.items():
            total[cause] += ns
        cause = min(total, key=lambda one: (-total[one], BREAKS_TIES.index(one)))
        ops = [(-ns, first, op) for (one, op), (ns, first) in parts.items() if one == cause]
        return cause, total[cause], min(ops)[2]

    def by_idle(self, over: int) -> dict[tuple[str, str], dict[str, float]]:
        parts = defaultdict(list)
        listed = [gap for gap in self.gaps_of_run if gap.length > over]
        for gap in listed:
            for key, (ns, _) in self.blame(gap).items():
                parts[key].append(ns)
        whole = sum(gap.length for gap in listed)
        return {
            key: {
                "gaps": len(ns),
                "total_ns": sum(ns),
                "mean_ns": mean(ns),
                "max_ns": max(ns),
                "share": sum(ns) / whole,
            }
            for key, ns in parts.items()
        }

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
