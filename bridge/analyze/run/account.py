"""The account of a run: how long it lasted, and what each GPU did in every nanosecond of it.

docs/accuracy.md says which events a run lasts from and to, and what each state is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from functools import reduce
from operator import or_
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bridge.analyze.core import no_timeline
from bridge.analyze.core.devices import Devices
from bridge.analyze.core.groups import highest, lowest, sums
from bridge.analyze.core.kinds import is_communication
from bridge.analyze.run.concurrency.clocks import APART, UNKNOWN, Clocks
from bridge.analyze.run.concurrency.overlap import COMPUTE as KERNELS
from bridge.analyze.run.concurrency.overlap import running
from bridge.importers import frames
from bridge.importers.capture import Capture, Facts
from bridge.importers.frames import Ranges
from bridge.importers.records import record
from bridge.join.arrays import (
    NONE,
    Flags,
    Integers,
    Ints,
    blocks,
    distinct,
    number_groups,
    repeated,
    taken,
    unions,
)
from bridge.join.attributed import AttributedCapture, once

# What a GPU can do at an instant: the first that applies counts, and idle where none does.
COMPUTE, COMMUNICATION, COPY, OTHER, GRAPH = STATES = (
    *("compute", "communication", "copy", "other", "graph"),
)
ELSEWHERE = "elsewhere"  # work that does not count: of another process, or not selected
IDLE = "idle"
EVIDENCE = CALLS, RANGES, SYSTEM_CALLS = ("calls", "ranges", "system calls")


NUMBERED = re.compile(r"(\D*)(\d*)")


class Span(NamedTuple):
    """A time from a start to an end, in ns."""

    start: int
    end: int

    def __or__(self, other: Span) -> Span:
        return Span(min(self.start, other.start), max(self.end, other.end))

    def __and__(self, other: Span) -> Span:
        start = min(max(self.start, other.start), other.end)
        return Span(start, max(start, min(self.end, other.end)))

    @property
    def length(self) -> int:
        return self.end - self.start


@record
class GpuAccount:
    """What a GPU did in a run, or in the selected part of one.

    ``states`` are ns per state of `STATES`, `ELSEWHERE` where only a part of the work counts, and `IDLE`; they add
    up to the length of the account. ``span_ns`` is the time from the first counted work to the last. ``exposed_ns``
    is the time of counted communication in which nothing computed, not even work that does not count. ``processes``
    are the states of each process, by process id, if several used the GPU; work of the others is `ELSEWHERE`.
    """

    device: str
    states: Mapping[str, int]
    span_ns: int = 0
    exposed_ns: int = 0
    processes: Mapping[int, Mapping[str, int]] = field(default_factory=dict)

    @property
    def length_ns(self) -> int:
        """The length of the account in ns."""
        return sum(self.states.values())

    @property
    def busy_ns(self) -> int:
        """The time in which the GPU did counted work, in ns."""
        return sum(self.states[state] for state in STATES)

    @property
    def idle_ns(self) -> int:
        """The time in which the GPU did nothing, in ns."""
        return self.states[IDLE]

    @property
    def share(self) -> float:
        """The part of the account in which the GPU did counted work, from 0 to 1."""
        return self.busy_ns / self.length_ns if self.length_ns else 0.0


@record
class Run:
    """A run from its first event to its last, and the account of its GPUs; ns on the clock of the first report.

    The account is of ``part``, the span of what is selected if ``is_part``, or all of the run. ``evidence`` is the
    kind of events, of `EVIDENCE`, that tells most of when the run began: with `CALLS` that is the first CUDA call.
    """

    whole: Span
    part: Span
    gpus: tuple[GpuAccount, ...]
    evidence: str = CALLS
    is_part: bool = False

    @property
    def length_ns(self) -> int:
        """The length of the run in ns."""
        return self.whole.length

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return what `dataclasses.asdict` wrote, read back from JSON."""
        gpus = (
            {**gpu, "processes": {int(pid): of for pid, of in gpu["processes"].items()}}
            for gpu in values["gpus"]
        )
        return cls(
            whole=Span(*values["whole"]),
            part=Span(*values["part"]),
            gpus=tuple(GpuAccount(**gpu) for gpu in gpus),
            evidence=values["evidence"],
            is_part=values.get("is_part", False),
        )


@once
def runs(attributed: AttributedCapture) -> tuple[Run, ...]:
    """Return the runs of a capture: reports on one clock are one run, all others one each.

    Reports without a timeline have none.
    """
    if not no_timeline.has_timeline(attributed.capture):
        return ()
    clocks, result = RunClocks.of(attributed), []
    by_gpu = _gpu_accounts(attributed, clocks)
    devices = Devices.of_report(attributed)
    for clock, whole in clocks.whole.items():
        gpus = [a for gpu, a in by_gpu.items() if clocks.clock[devices.report[gpu]] == clock]
        is_part = attributed.selection is not None
        account = whole, clocks.part[clock], in_order(gpus), clocks.evidence[clock]
        result.append(Run(*account, is_part))
    return tuple(result)


def in_order(gpus: Iterable[GpuAccount]) -> tuple[GpuAccount, ...]:
    """Return GPUs in the order of the numbers in their names."""

    def key(gpu: GpuAccount) -> list[tuple[int, str]]:
        return [(int(part or -1), text) for text, part in NUMBERED.findall(gpu.device)]

    return tuple(sorted(gpus, key=key))


# -- When runs, and the selected parts of them, begin and end


@record
class RunClocks:
    """The clock of each report, a number, and what is added to its times in ns; and the runs by clock."""

    clock: Ints
    offset: Ints
    whole: Mapping[int, Span]
    part: Mapping[int, Span]
    evidence: Mapping[int, str]

    @classmethod
    def of(cls, attributed: AttributedCapture) -> RunClocks:
        """Return the clocks of the reports that have any event."""
        return _run_clocks(attributed)

    def part_of(self, report: int) -> Span:
        """Return the selected part of the run of a report, in its own times; (0, 0) of one without any event."""
        return self.in_report(self.part.get(int(self.clock[report]), Span(0, 0)), report)

    def in_report(self, span: Span, report: int) -> Span:
        """Return a time on the clock of a run in the times of one of its reports."""
        offset = int(self.offset[report])
        return Span(span.start - offset, span.end - offset)


@once
def _run_clocks(attributed: AttributedCapture) -> RunClocks:
    if attributed.unselected is not None:
        clocks = RunClocks.of(attributed.unselected)
        return replace(clocks, part=_selected_parts(attributed, clocks))
    clock, offset = _clocks(attributed)
    whole: dict[int, Span] = {}
    evidence: dict[int, str] = {}
    for report, (number, shift) in enumerate(zip(clock.tolist(), offset.tolist(), strict=True)):
        run = run_of_report(attributed.capture, report)
        if run is not None:
            moved = Span(run[0].start + shift, run[0].end + shift)
            whole[number] = whole.get(number, moved) | moved
            evidence[number] = max(evidence.get(number, CALLS), run[1], key=EVIDENCE.index)
    return RunClocks(clock=clock, offset=offset, whole=whole, part=whole, evidence=evidence)


def _selected_parts(attributed: AttributedCapture, clocks: RunClocks) -> dict[int, Span]:
    """Return the selected part of each run, by clock; of no length where nothing of it is selected."""
    selected: dict[int, Span] = {}
    columns = (clocks.clock, clocks.offset, *_selected_times(attributed))
    for number, shift, start, end in zip(*(c.tolist() for c in columns), strict=True):
        if start <= end:
            moved = Span(start + shift, end + shift)
            selected[number] = selected.get(number, moved) | moved
    return {
        number: selected.get(number, Span(whole.start, whole.start)) & whole
        for number, whole in clocks.whole.items()
    }


def _clocks(attributed: AttributedCapture) -> tuple[Ints, Ints]:
    """Return the clock of each report, a number from 0, and what is added to its times in ns."""
    reports = len(attributed.capture.facts)
    if reports == 1:
        return np.zeros(1, np.int64), np.zeros(1, np.int64)
    known = Clocks.of(attributed)
    is_alone = np.isin(known.known_by, (APART, UNKNOWN))
    _, clock = np.unique(np.where(is_alone, np.cumsum(is_alone), 0), return_inverse=True)
    return clock.astype(np.int64), known.offset


def run_of_report(capture: Capture, report: int) -> tuple[Span, str] | None:
    """Return when the run of a report begins and ends, and the `EVIDENCE`; None for a report without any event."""
    by_process = spans_of_processes(capture, report)
    has_ranges = bool((capture.ranges.report == report).any())
    return run_of_processes(by_process, capture.facts[report], has_ranges=has_ranges)


def run_of_processes(
    by_process: Mapping[int, Span], facts: Facts, *, has_ranges: bool
) -> tuple[Span, str] | None:
    """Return the run of some processes: with their calls of the operating system, clipped to the collection."""
    if not by_process:
        return None
    of_system = [Span(*facts.system_spans[p]) for p in by_process if p in facts.system_spans]
    hull = reduce(or_, [*by_process.values(), *of_system])
    hull &= collection(facts, hull)
    return hull, SYSTEM_CALLS if of_system else RANGES if has_ranges else CALLS


def collection(facts: Facts, events: Span) -> Span:
    """Return the time that was collected, if the export tells it on the clock of its events; else all of their time."""
    seen = reduce(
        Span.__or__, (Span(*span) for span in facts.system_spans.values()), Span(*facts.span)
    )
    is_told = facts.session_ns > 0 and seen.end > 0 and seen.start < facts.session_ns
    return Span(0, facts.session_ns) if is_told else events


def spans_of_processes(capture: Capture, report: int = 0) -> dict[int, Span]:
    """Return the first start and the last end of the ranges, API calls and activities of each process.

    A range that never ended counts by its start.
    """
    result: dict[int, Span] = {}
    for table in (capture.ranges, capture.launches, capture.activities):
        is_own = table.report == report
        rows = slice(None) if is_own.all() else np.flatnonzero(is_own)
        process, start = table.process[rows], table.start[rows]
        end = np.maximum(start, table.end[rows])
        if isinstance(table, Ranges):
            np.copyto(end, start, where=table.open[rows])
        group, used = number_groups(process)
        first, last = lowest(group, start, len(used)), highest(group, end, len(used))
        for key, begin, stop in zip(
            *(c.tolist() for c in (process[used], first, last)), strict=True
        ):
            result[key] = result.get(key, Span(begin, stop)) | Span(begin, stop)
    return result


def _selected_times(attributed: AttributedCapture) -> tuple[Ints, Ints]:
    """Return the begin and the end of what is selected in each report; the end is before the begin where nothing is.

    That is the window, or the hull of the chosen ranges and of the work launched in them.
    """
    selection = attributed.selection
    assert selection is not None
    if selection.is_window:
        return selection.start, selection.end
    activities, rows = attributed.capture.activities, np.flatnonzero(selection.activities)
    report, start = activities.report[rows], activities.start[rows]
    size = len(selection.start)
    first = lowest(report, start, size, empty=np.iinfo(np.int64).max)
    last = highest(report, attributed.end[rows], size, empty=np.iinfo(np.int64).min)
    return np.minimum(selection.start, first), np.maximum(selection.end, last)


# -- What each GPU did


def _gpu_accounts(attributed: AttributedCapture, clocks: RunClocks) -> dict[int, GpuAccount]:
    """Return the account of each GPU with counted work, by its number in `Devices`."""
    devices, work = Devices.of_report(attributed), attributed.capture.activities
    parts = [clocks.part_of(report) for report in devices.report]
    counted, start, size = attributed.counted, work.start, len(devices.names)
    state = np.where(counted, states_of_work(attributed), np.int8(len(STATES)))
    covered = covered_times(devices.gpu, state, start=start, end=attributed.end, parts=parts)
    exposed = exposed_communication(attributed, devices.gpu, np.arange(size), parts)
    rows = np.flatnonzero(counted)
    gpu = frames.pick(devices.gpu, rows)
    first = lowest(gpu, frames.pick(start, rows), size)
    last = highest(gpu, frames.pick(attributed.end, rows), size)
    return {
        number: GpuAccount(
            device=devices.names[number],
            states=named_states(
                covered[:, number], parts[number].length, is_partial=not counted.all()
            ),
            span_ns=int(last[number] - first[number]),
            exposed_ns=int(exposed[number]),
            processes=_of_processes(attributed, devices.gpu == number, state, parts[number]),
        )
        for number in distinct(gpu).tolist()
    }


def _of_processes(
    attributed: AttributedCapture, is_on: Flags, state: Integers, part: Span
) -> dict[int, dict[str, int]]:
    """Return the states of each process of several with work on a GPU, ``is_on`` says which that is."""
    work = attributed.capture.activities
    _, processes = number_groups(work.process)
    users = np.unique(work.process[is_on]).tolist() if len(processes) > 1 else ()
    result = {}
    for user in users if len(users) > 1 else ():
        own = np.where(work.process == user, state, np.int8(len(STATES)))
        own[~is_on] = NONE
        times = covered_times(
            repeated(0, len(own)), own, start=work.start, end=attributed.end, parts=[part]
        )
        pid = int(frames.pid(np.array([user]))[0])
        result[pid] = named_states(times[:, 0], part.length, is_partial=True)
    return result


def states_of_work(attributed: AttributedCapture) -> NDArray[np.int8]:
    """Return the state, a position in `STATES`, that each activity puts its GPU into."""
    activities = attributed.capture.activities
    state = np.zeros(len(activities), np.int8)
    for kind, name in ((frames.MEMCPY, COPY), (frames.MEMSET, OTHER), (frames.GRAPH, GRAPH)):
        state[activities.kind.among(kind)] = STATES.index(name)
    state[is_communication(attributed)] = STATES.index(COMMUNICATION)
    return state


def covered_times(gpu: Ints, state: Integers, start: Ints, end: Ints, parts: list[Span]) -> Ints:
    """Return how long each GPU was in each state, and no earlier one, within a part of the time of each GPU.

    ``state`` are positions in `STATES`, or the one behind them. The result is in ns, a row per state and a column per
    GPU.
    """
    total = np.zeros((len(STATES) + 2, len(parts)), np.int64)  # of all states before each one
    cover: tuple[Ints, ...] = ()  # the union of the states so far
    for number in range(len(STATES) + 1):
        rows = np.flatnonzero(state == number)
        total[number + 1] = total[number]
        if len(rows):
            own = taken(gpu, rows), frames.pick(start, rows), frames.pick(end, rows)
            cover = unions(*map(np.append, cover, own) if cover else own)
            total[number + 1] = _time_within(cover, parts)
    result: Ints = np.diff(total, axis=0)
    return result


def _time_within(intervals: tuple[Ints, ...], parts: list[Span]) -> Ints:
    """Return the length of the intervals of each owner, sorted and apart, within the part of the time of the owner."""
    total = np.zeros(len(parts), np.int64)
    for rows in blocks(len(intervals[0])):
        some = [column[rows] for column in intervals]
        owner, begin, stop = within_parts((some[0], some[1], some[2]), parts)
        np.add.at(total, owner, stop - begin)
    return total


def exposed_communication(
    attributed: AttributedCapture, group: Ints, gpu: Ints, parts: list[Span]
) -> Ints:
    """Return the time of counted communication in which nothing computed on the GPU, per group, in ns.

    ``group`` is the group of each activity; ``gpu`` and ``parts`` are those of each group, which is of one GPU.
    """
    rows = np.flatnonzero(is_communication(attributed) & attributed.counted)
    if not len(rows):
        return np.zeros(len(parts), np.int64)
    start = attributed.capture.activities.start[rows]
    owner, start, end = within_parts(unions(group[rows], start, attributed.end[rows]), parts)
    hidden = running(attributed, KERNELS).within(gpu[owner], start, end)
    return sums(owner, end - start - hidden, len(parts))


def within_parts(intervals: tuple[Ints, Ints, Ints], parts: list[Span]) -> tuple[Ints, Ints, Ints]:
    """Return intervals, as owner, start and end, cut to the part of the time of their owner."""
    owner, start, end = intervals
    first, last = np.array(parts, np.int64).reshape(-1, 2).T
    if len(parts) > 1:  # else one pair of limits is for all
        first, last = first[owner], last[owner]
    start = np.clip(start, first, last)
    return owner, start, np.clip(end, start, last)


def named_states(times: Ints, length: int, *, is_partial: bool) -> dict[str, int]:
    """Return times by the names of states, with the idle rest of a length."""
    names = (*STATES, ELSEWHERE) if is_partial else STATES
    result = dict(zip(names, times.tolist(), strict=False))
    return result | {IDLE: length - int(times.sum())}


__all__ = [
    "COMMUNICATION",
    "COMPUTE",
    "COPY",
    "ELSEWHERE",
    "GRAPH",
    "IDLE",
    "OTHER",
    "STATES",
    "GpuAccount",
    "Run",
    "RunClocks",
    "Span",
    "runs",
]
