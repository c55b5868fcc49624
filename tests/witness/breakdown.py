"""The rows of tables by any dimensions, in loops over records, as docs/report.md defines them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from statistics import mean

from witness.attribution import quantile, union
from witness.nsys_export import SIZES
from witness.training import WAYS, Step, TrainingProfile

RANGES = "op path module direction shape dtype step phase thread process report".split()
CALLS = ["api"]
ACTIVITIES = "kernel memcpy device stream geometry".split()  # what kernels are: tests/kernels
PID = 0xFFFFFF
Label = tuple[object, ...]


@dataclass(frozen=True)
class Place:
    """Where an activity ran, and how a kernel was launched: grid, block, registers, static and dynamic shared memory."""

    device: int = 0
    context: int = 1
    stream: int = 7
    geometry: tuple[int, ...] = (-1,) * 9


@dataclass(frozen=True)
class Event:
    """What a dimension tells apart: a range, an activity or a call, with the ranges around it."""

    stack: tuple[int, ...]
    report: int
    process: int
    thread: int
    time: int
    range: int = -1  # the innermost; that of no length is on no stack, not even its own
    call: int = -1
    activity: int = -1


@dataclass(frozen=True)
class Details:
    """What the records of a profile leave out: a name per call, a place per activity, JSON per range, and names."""

    apis: Sequence[str]
    places: Sequence[Place]
    jsons: Sequence[str]
    sources: Sequence[str] = ("one", "other")
    threads: dict[tuple[int, int], str] = field(default_factory=dict)
    processes: dict[tuple[int, int], str] = field(default_factory=dict)
    gpus: dict[tuple[int, int, int], tuple[int, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Counted:
    """What is counted: the rows of some time, of one direction or of both; of a window, where it begins and ends, that cuts work."""

    ranges: frozenset[int]
    calls: frozenset[int]
    activities: frozenset[int]
    way: str = "both"
    window: tuple[float, float] = (-inf, inf)


@dataclass(frozen=True)
class Breakdown:
    """A profile, what its records leave out, and its steps."""

    truth: TrainingProfile
    details: Details
    steps: Sequence[Step]
    counted: Counted

    # -- what is counted

    def is_counted(self, row: int) -> bool:
        """Whether an activity is."""
        return row in self.counted.activities and self.counted.way in ("both", self.truth.way(row))

    def is_of_way(self, row: int) -> bool:
        """Whether a range is of the direction."""
        return self.counted.way in ("both", WAYS[self.truth.backward[row]])

    @cached_property
    def listed(self) -> frozenset[int]:
        """Ranges that are ops, and counted."""
        ops = self.truth.profile.op_rows()
        return frozenset(row for row in ops if row in self.counted.ranges and self.is_of_way(row))

    def _calls(self) -> list[int]:
        return [row for row in sorted(self.counted.calls) if self._of_way(self.of_call(row).stack)]

    def _of_way(self, stack: Sequence[int]) -> bool:
        return self.counted.way == "both" or self.counted.way == self.way(stack)

    # -- events

    def of_range(self, row: int, stack: tuple[int, ...] | None = None) -> Event:
        """Return a range as an event; where it crosses others, with the ranges around a part of it."""
        one = self.truth.profile.ranges[row]
        around = self.truth.around(row) if stack is None else stack
        return Event(around, one.report, one.process, one.thread, one.start, row)

    def of_call(self, row: int) -> Event:
        profile = self.truth.profile
        one = profile.calls[row]
        stack = profile.stack(profile.ranges, one.report, one.thread, one.start)
        place = (one.report, one.process, one.thread, one.start)
        return Event(stack, *place, stack[-1] if stack else -1, row)

    def of_activity(self, row: int) -> Event:
        """Return an activity as an event on the host: where and when it was launched."""
        return self._activities[row]

    @cached_property
    def _activities(self) -> list[Event]:
        return [self._of_activity(row) for row in range(len(self.truth.profile.activities))]

    def _of_activity(self, row: int) -> Event:
        one, found = self.truth.profile.activities[row], self.truth.profile.found[row]
        thread, time = -1, one.start
        if found.launch != -1:
            call = self.truth.profile.calls[found.launch]
            thread, time = call.thread, call.start
        place = (one.report, one.process, thread, time)
        return Event(found.stack, *place, found.range, found.launch, row)

    def parts(self, stack: Sequence[int]) -> list[Event]:
        """Return the ranges of a stack as events, outermost first."""
        return [self.of_range(row, tuple(stack[: n + 1])) for n, row in enumerate(stack)]

    def whole_parts(self, stack: tuple[int, ...]) -> list[Event]:
        """Return the ranges around the work of a stack, on whatever threads, as events."""
        callers = self.truth.profile.caller(stack[0]) if stack else ()
        threads = self.truth.profile.ranges
        own = tuple(at for at in callers if threads[at].thread == threads[callers[-1]].thread)
        return (self.whole_parts(own) if own else []) + self.parts(stack)

    # -- dimensions

    def label(self, dimensions: Sequence[str], event: Event) -> Label | None:
        """Return what names the row that an event is in; None for none. What several dimensions say counts once."""
        said: dict[str, object] = {}
        for name in dimensions:
            told = getattr(self, f"_{name}")(event)
            if told is None:
                return None
            said = {**told, **said}
        return tuple(sorted(said.items()))

    def _op(self, e: Event):
        return None if e.range == -1 else {"op": self.truth.profile.ranges[e.range].op}

    def _path(self, e: Event):
        profile = self.truth.profile
        ops = profile.ops_on(profile.whole(e.stack) or [row for row in (e.range,) if row != -1])
        return {"path": "/".join(ops)}

    def _direction(self, e: Event):
        return {"direction": self.way(e.stack or tuple(row for row in (e.range,) if row != -1))}

    def way(self, stack: Sequence[int]) -> str:
        return WAYS[any(self.truth.said(row).backward for row in stack)] if stack else ""

    def _module(self, e: Event):
        paths = self.truth.module_paths(self.truth.module_stack(e.stack))
        return {"module": ["(no module)", *paths][-1]}

    def _shape(self, e: Event):
        return {"shape": self._sizes(e.range) if e.range != -1 else ""}

    def _sizes(self, row: int) -> str:
        in_text = SIZES.search(self.truth.texts[row])
        if in_text:
            return in_text[1]
        said = self._json(row).get("shapes")
        return "" if said is None else json.dumps([[] if one is None else one for one in said])

    def _dtype(self, e: Event):
        said = self._json(e.range).get("dtypes") if e.range != -1 else None
        return {"dtype": ", ".join(one for one in said or [] if one)}

    def _json(self, row: int) -> dict[str, list]:
        return json.loads(self.details.jsons[row] or "{}")

    def _step(self, e: Event):
        when = e.time if e.activity == -1 else self.truth.profile.issued(e.activity)
        numbers = [
            s.number
            for s in self.steps
            if when is not None
            and (s.report, s.process) == (e.report, e.process)
            and s.start <= when < s.end
        ]
        return {"step": [-1, *numbers][-1]}

    @cached_property
    def phases(self) -> list[int]:
        return [row for row, one in enumerate(self.truth.profile.ranges) if one.phase]

    def _phase(self, e: Event):
        ranges = self.truth.profile.ranges
        there = [
            (ranges[row].start, -ranges[row].end, row)
            for row in self.phases
            if (ranges[row].report, ranges[row].process) == (e.report, e.process)
            and ranges[row].start <= e.time < ranges[row].end
        ]
        return {"phase": self.truth.names[max(there)[-1]] if there else "(no phase)"}

    def _thread(self, e: Event):
        name = self.details.threads.get((e.report, e.thread), "")
        tid = e.thread if e.thread == -1 else e.thread & PID
        return {"pid": pid(e.process), "tid": tid, "thread": name} | self._file(e.report)

    def _process(self, e: Event):
        program = self.details.processes.get((e.report, e.process), "")
        named = {"pid": pid(e.process), "process": program.split("/")[-1]}
        return named | self._file(e.report)

    def _file(self, report: int) -> dict[str, str]:
        sources = self.details.sources
        return {"report": sources[report]} if len(sources) > 1 else {}

    def _report(self, e: Event):
        return {"report": self.details.sources[e.report]}

    def _api(self, e: Event):
        return {"api": "" if e.call == -1 else self.details.apis[e.call]}

    def _of_kind(self, e: Event, label: str, *kinds: str):
        one = self.truth.profile.activities[e.activity]
        return {label: one.name} if one.kind in kinds else None

    def _kernel(self, e: Event):
        return self._of_kind(e, "kernel", "kernel")

    def _memcpy(self, e: Event):
        return self._of_kind(e, "operation", "memcpy", "memset")

    def _device(self, e: Event):
        return {"device": self._gpus[e.activity]}

    @cached_property
    def _gpus(self) -> list[str]:
        """Name the GPU of each activity: with its process where two of a file would be called the same."""
        activities, keys = self.truth.profile.activities, defaultdict(set)
        of = [self._gpu(row) for row in range(len(activities))]
        for one, (key, name) in zip(activities, of, strict=True):
            keys[one.report, name].add(key)
        several = len(self.details.sources) > 1
        named = []
        for one, (_, name) in zip(activities, of, strict=True):
            process = f" of process {pid(one.process)}" if len(keys[one.report, name]) > 1 else ""
            file = f" in {self.details.sources[one.report]}" if several else ""
            named.append(f"{name}{process}{file}")
        return named

    def _gpu(self, activity: int) -> tuple[object, str]:
        """Return what tells a GPU apart, and what it is called: those of one number are one."""
        one, device = self.truth.profile.activities[activity], self.details.places[activity].device
        key = one.report, one.process, device
        if key in self.details.gpus:
            number, name = self.details.gpus[key]
            return (one.report, number), f"GPU {number} {name}"
        return key, f"GPU {device}"

    def _stream(self, e: Event):
        place = self.details.places[e.activity]
        told = {"pid": pid(e.process), "context": place.context, "stream": place.stream}
        return self._device(e) | told

    def _geometry(self, e: Event):
        grid, block, (registers, static, dynamic) = (
            self.details.places[e.activity].geometry[a:b] for a, b in ((0, 3), (3, 6), (6, 9))
        )
        known = [size for size in (static, dynamic) if size >= 0]
        return {
            "grid": "x".join(map(str, grid)) if grid[0] >= 0 else "",
            "block": "x".join(map(str, block)) if block[0] >= 0 else "",
            "registers": registers,
            "shared_bytes": sum(known) if known else -1,
        }

    # -- rows

    def rows(self, dimensions: Sequence[str]) -> dict[Label, dict[str, float]]:
        if any(name in ACTIVITIES for name in dimensions):
            return self._of_activities(dimensions)
        if any(name in CALLS for name in dimensions):
            return self._of_calls(dimensions)
        return _OfRanges(self, dimensions).rows()

    def grouped(self, dimensions: Sequence[str], events: Iterable[tuple[int, Event]]):
        """Return the rows (numbers) of each label."""
        groups = defaultdict(list)
        for row, event in events:
            label = self.label(dimensions, event)
            if label is not None:
                groups[label].append(row)
        return groups

    def span(self, row: int) -> tuple[int, int]:
        """Return where an activity begins and ends, cut at the edges of the window."""
        start = self.truth.profile.activities[row].start
        first, last = self.counted.window
        end = start + self.truth.profile.time(row)
        return int(max(start, first)), int(min(end, last))

    def time_of(self, row: int) -> int:
        start, end = self.span(row)
        return end - start

    def time(self, rows: Iterable[int]) -> int:
        return sum(map(self.time_of, rows))

    @cached_property
    def whole(self) -> int:
        """Time of all activities of the time that is counted, of both directions."""
        return self.time(self.counted.activities)

    def intervals(self, rows: Iterable[int]) -> dict[str, int]:
        """Return union and span; files share no clock, so theirs add up."""
        clocks = defaultdict(list)
        for row in rows:
            one = self.truth.profile.activities[row]
            clocks[one.report].append(self.span(row))
        spans = (max(e for _, e in of) - min(s for s, _ in of) for of in clocks.values())
        return {"busy_ns": sum(map(union, clocks.values())), "span_ns": sum(spans)}

    def _of_activities(self, dimensions: Sequence[str]) -> dict[Label, dict[str, float]]:
        ours = filter(self.is_counted, range(len(self.truth.profile.activities)))
        groups = self.grouped(dimensions, ((row, self.of_activity(row)) for row in ours))
        return {label: self._work(rows) for label, rows in groups.items()}

    def _work(self, rows: Sequence[int]) -> dict[str, float]:
        activities, total = self.truth.profile.activities, self.time(rows)
        moved = sum(max(0, activities[row].bytes) for row in rows)
        return {
            "count": len(rows),
            "total_ns": total,
            **self.intervals(rows),
            **spread("", [self.time_of(row) for row in rows]),
            "bytes": moved,
            "gb_per_s": share(moved, total),
            "share": share(total, self.whole),
        }

    def _of_calls(self, dimensions: Sequence[str]) -> dict[Label, dict[str, float]]:
        ours = self._calls()
        groups = self.grouped(dimensions, ((row, self.of_call(row)) for row in ours))
        return {label: self._called(rows) for label, rows in groups.items()}

    def _called(self, rows: Sequence[int]) -> dict[str, float]:
        found = self.truth.profile.found
        issued = frozenset(rows)
        launched = [row for row, one in enumerate(found) if one.launch in issued]
        times = [self._length(row) for row in rows]
        return {
            "count": len(rows),
            "total_ns": sum(times),
            **spread("", times),
            "activities": len(launched),
            "gpu_ns": sum(map(self.truth.profile.time, launched)),  # of whole activities
            "share": share(sum(times), self._in_calls),
        }

    @cached_property
    def _in_calls(self) -> int:
        return sum(map(self._length, self.counted.calls))

    def _length(self, call: int) -> int:
        one = self.truth.profile.calls[call]
        return max(0, one.end - one.start)


@dataclass(frozen=True)
class _OfRanges:
    """Rows of ranges and the work under them."""

    of: Breakdown
    dimensions: Sequence[str]

    def _label(self, event: Event) -> Label | None:
        return self.of.label(self.dimensions, event)

    def rows(self) -> dict[Label, dict[str, float]]:
        own, under = self._work()
        calls = self._calls()
        labels = {*own, *(self._label(self.of.of_range(row)) for row in self.of.listed)} - {None}
        cpu, everything = self._cpu()
        return {
            label: self._gpu(own[label], under[label])
            | spread("gpu_", [gpu for gpu, _ in calls[label]])
            | spread("cpu_", [ns for _, ns in calls[label]])
            | {"calls": len(calls[label])}
            | {"cpu_self_ns": cpu[label][0], "cpu_total_ns": cpu[label][1]}
            | {"cpu_share": share(cpu[label][0], everything)}
            for label in labels
        }

    def _work(self):
        """Return the activities that are of each row, and those that are of it or under it."""
        own, under = defaultdict(list), defaultdict(list)
        profile = self.of.truth.profile
        for row in filter(self.of.is_counted, range(len(profile.activities))):
            parts = self.of.whole_parts(profile.found[row].stack)
            own[self._label((parts or [self.of.of_activity(row)])[-1])].append(row)
            around = [part for part in parts if self.of.is_of_way(part.range)]
            for label in set(map(self._label, around if parts else [self.of.of_activity(row)])):
                under[label].append(row)
        return own, under

    def _gpu(self, own: Sequence[int], under: Sequence[int]) -> dict[str, float]:
        of, whole = self.of, self.of.whole
        kinds = [of.truth.profile.activities[row].kind for row in own]
        times = of.intervals(under)
        return {
            "activities": len(own),
            "kernels": kinds.count("kernel"),
            "memcpys": kinds.count("memcpy"),
            "memsets": kinds.count("memset"),
            "graphs": kinds.count("graph"),
            "gpu_self_ns": of.time(own),
            "adopted_ns": 0,
            "gpu_total_ns": of.time(under),
            "gpu_busy_ns": times["busy_ns"],
            "gpu_span_ns": times["span_ns"],
            "share": share(of.time(own), whole),
            "total_share": share(of.time(under), whole),
        }

    def _calls(self) -> dict[Label | None, list[tuple[int, int]]]:
        """Return GPU total and time on the host of each call, in the row of the slice that began first."""
        profile, gpu, slices = self.of.truth.profile, defaultdict(int), defaultdict(list)
        for row in self.of.listed:
            slices[profile.call_of(row)].append((profile.ranges[row].start, row))
        for row in filter(self.of.is_counted, range(len(profile.activities))):
            stack = profile.on_stack(row)
            for call in {profile.call_of(at) for at in stack if at in self.of.listed}:
                gpu[call] += self.of.time_of(row)
        found = defaultdict(list)
        for call, of_call in slices.items():
            host = (max(0, profile.ranges[row].end - start) for start, row in of_call)
            label = self._label(self.of.of_range(min(of_call)[1]))
            found[label].append((gpu[call], sum(host)))
        return found

    def _cpu(self) -> tuple[dict[Label | None, list[int]], int]:
        """Return self and total of each row, and the self time of all ranges that began in the time counted."""
        time, everything = defaultdict(lambda: [0, 0]), 0
        for first, last, stack in self.of.truth.profile.pieces():
            ns = last - first
            parts = [part for part in self.of.parts(stack) if part.range in self.of.listed]
            for label in set(map(self._label, parts)):
                time[label][1] += ns
            if stack[-1] in self.of.listed:
                time[self._label(parts[-1])][0] += ns
            everything += ns if stack[-1] in self.of.counted.ranges else 0
        return time, everything


def pid(process: int) -> int:
    return -1 if process == -1 else process >> 24 & PID


def share(part: float, whole: float) -> float:
    return part / whole if whole else 0


def spread(prefix: str, times: Sequence[int]) -> dict[str, float]:
    """Return the statistics of some times; 0 each where there is none."""
    of: dict[str, Callable[[Sequence[int]], float]] = {"mean": mean, "min": min, "max": max}
    of |= {f"p{n}": lambda values, n=n: quantile(values, n / 100) for n in (50, 95, 99)}
    return {f"{prefix}{name}_ns": f(times) if times else 0 for name, f in of.items()}
