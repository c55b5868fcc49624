"""The graph of a run, what each of its delays is, and the critical path through it."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridge.analyze.core.groups import highest
from bridge.analyze.core.kinds import (
    LAUNCHING,
    calls_matching,
    is_communication,
    is_data_loading,
)
from bridge.analyze.run.account import RunClocks, Span
from bridge.analyze.run.critical.annotations import annotation_costs, time_of_annotations
from bridge.analyze.run.critical.device import DevicePoints
from bridge.analyze.run.critical.graph import NEVER, Graph
from bridge.analyze.run.critical.host import HostPoints, leading_threads
from bridge.analyze.run.critical.releases import Releases
from bridge.analyze.run.critical.retiming import Change, Draft, Retiming
from bridge.analyze.run.critical.waits import Waits
from bridge.analyze.run.critical.work import MAX_LATENCY_NS, ClocksDifferError, Work, placed
from bridge.importers import frames
from bridge.importers.arrays import lookup
from bridge.importers.records import record
from bridge.join.arrays import BLOCK, NONE, Flags, Ints, Rows
from bridge.join.attributed import AttributedCapture, once

KINDS = (
    KERNEL,
    COLLECTIVE,
    MEMCPY,
    MEMSET,
    GRAPH,
    GAP,
    LATENCY,
    SYNC,
    API,
    SYSTEM,
    HOST,
    ELSEWHERE,
    UNKNOWN,
) = (
    "kernel",
    "collective",
    "memcpy",
    "memset",
    "graph",
    "device gap",
    "launch latency",
    "synchronization",
    "API call",
    "OS call",
    "host code",
    "not selected",
    "unknown",
)
KIND = {name: number for number, name in enumerate(KINDS)}


@record
class Elements:
    """The elements of the critical path in order of time: each begins where the one before ends.

    ``kind`` is a position in `KINDS`, ``name`` one in `Run.names`, NONE for no name; ``point`` is the first point of
    each, NONE where nothing is known.
    """

    kind: Ints
    name: Ints
    point: Ints
    start: Ints
    end: Ints

    def filled(self, first: int, last: int) -> Elements:
        """Return the elements of a run from ``first`` to ``last``: nothing is known before and after these."""
        begun, ended = (self.start[0], self.end[-1]) if len(self.start) else (last, last)
        filled = Elements(
            kind=np.concatenate(([KIND[UNKNOWN]], self.kind, [KIND[UNKNOWN]])),
            name=np.concatenate(([NONE], self.name, [NONE])),
            point=np.concatenate(([NONE], self.point, [NONE])),
            start=np.concatenate(([first], self.start, [ended])),
            end=np.concatenate(([begun], self.end, [last])),
        )
        rows = slice(0 if first < begun else 1, None if ended < last else -1)
        return Elements(**{f.name: getattr(filled, f.name)[rows] for f in fields(filled)})


@record
class Retimed:
    """The run that would have been: the graph with its times, the point with which it ends, and its length in ns."""

    graph: Graph
    last: int
    span: int


@record
class Run:
    """The graph of a run, and the part of the run that is selected, from ``first`` to ``last`` in ns.

    Points of devices come first in the graph, then those of the host, from ``hosts`` on, and those of ``releases``,
    for which nothing waits in the recorded run.
    """

    work: Work
    waits: Waits
    graph: Graph
    device: DevicePoints
    host: HostPoints
    releases: Releases
    first: int
    last: int

    @classmethod
    def of(cls, attributed: AttributedCapture) -> Run:
        """Return the run of a capture. Raises ValueError if clocks of several files differ."""
        return _run(attributed)

    @classmethod
    def of_any(cls, attributed: AttributedCapture) -> Run:
        """Return the run of a capture; if clocks of several files differ, a graph in which no file tells of another."""
        try:
            return _run(attributed)
        except ClocksDifferError:
            return _run(attributed, apart=True)

    @classmethod
    def forget(cls, attributed: AttributedCapture) -> None:
        """Give back the memory of the runs of a capture; they are made again on demand."""
        whole = attributed.unselected or attributed
        for key in [key for key in whole.results if isinstance(whole.results[key], cls)]:
            del whole.results[key]

    def __len__(self) -> int:
        return len(self.graph)

    @property
    def span(self) -> int:
        """The length of the run in ns."""
        return self.last - self.first

    @property
    def hosts(self) -> int:
        """The first point of the host."""
        return len(self.device.time)

    @cached_property
    def end_point(self) -> int:
        """The last point of the selected part of the run; of several one of a device."""
        leads = (self.graph.time <= self.last) & ~self.asides
        latest = self.graph.time.max(where=leads, initial=NEVER)
        return int(np.argmax((self.graph.time == latest) & leads))

    @cached_property
    def asides(self) -> Flags:
        """Which points end no run.

        They are those of threads that do not lead, of work without a call, of processes beside the run, of releases.
        """
        result = np.zeros(len(self.graph), bool)
        host = slice(self.hosts, self.hosts + len(self.host.time))
        edges = np.append(np.flatnonzero(~self.host.chained), len(self.host.time))
        leads = np.isin(self.host.stacks, leading_threads(self.work, self.waits))
        result[host] = np.repeat(~leads, np.diff(edges))
        called = np.bincount(self.work.lane, self.work.launch != NONE)
        if called.any():  # else no call was recorded
            result[: self.hosts] = lookup(called[self.work.lane] == 0, self.device.activity, False)
        if self.work.of_others.any():
            result[: self.hosts] |= lookup(self.work.of_others, self.device.activity, False)
            stack = self.work.attributed.attribution.stack
            launched = self.work.launch[self.work.of_others & (self.work.launch != NONE)]
            process = self.work.process_of_stacks
            beside = np.isin(process[self.host.stacks], process[stack[launched]])
            result[host] |= np.repeat(beside, np.diff(edges))
        result[host.stop :] = True
        return result if not result.all() else np.zeros(len(result), bool)

    @cached_property
    def usual_latency(self) -> int:
        """The usual time in ns from a launch to the work that waited for nothing else; 0 without such work."""
        starts = self.device.start[self.work.launch != NONE]
        return self._usual(starts[self.graph.by_cross[starts]])

    @cached_property
    def usual_gap(self) -> int:
        """The usual time in ns between two activities of a stream, of the second ones that were launched before.

        Where there are none, it is as long as the usual latency.
        """
        starts = self.device.start[self.work.launch != NONE]
        queued = starts[self.graph.chained[starts] & ~self.graph.by_cross[starts]]
        return self._usual(queued) if len(queued) else self.usual_latency

    def _usual(self, points: Ints) -> int:
        delay = self.graph.delay_of(points)
        delay = delay[delay <= MAX_LATENCY_NS]
        return int(np.median(delay)) if len(delay) else 0

    @cached_property
    def names(self) -> list[str]:
        """The names of elements: ops, then names of activities, then those of API calls."""
        attributed = self.work.attributed
        named = attributed.activity_name.texts
        calls = attributed.capture.launches.name.texts
        return [*attributed.ops, *map(str, named), *map(str, calls), ""]

    @cached_property
    def computing(self) -> Flags:
        """Which activities are kernels that do not communicate."""
        attributed = self.work.attributed
        kernels = attributed.capture.activities.kind.among(frames.KERNEL, frames.GRAPH)
        result: Flags = kernels & ~is_communication(attributed)
        return result

    @cached_property
    def results(self) -> dict[tuple[object, ...], Any]:
        """What functions marked with `once` returned for this run, by function and arguments."""
        return {}

    @cached_property
    def gpu_of_place(self) -> Ints:
        """The GPU of each activity, a position in `Devices`, by its place in `Work`."""
        return self.work.gpu

    @cached_property
    def with_locks(self) -> Graph:
        """The graph with edges from threads that held a lock to those that waited for it, for what did happen."""
        if not len(self.releases.locked):
            return self.graph
        cross = self.graph.cross.copy()
        cross[self.releases.locked] = self.releases.unlocked
        return Graph(self.graph.time, self.graph.chained, cross)

    @cached_property
    def data_waits(self) -> Ints:
        """The points at which waits of ops that load data end, which another thread ended."""
        waits = np.flatnonzero((self.host.system != NONE) & (self.host.node != NONE))
        waits = waits[self.graph.cross[self.hosts + waits] >= self.hosts]
        op = self.work.attributed.node_op[self.host.node[waits]]
        result: Ints = self.hosts + waits[is_data_loading(self.work.attributed)[op] & (op != NONE)]
        return result

    @cached_property
    def loads(self) -> Flags:
        """Whether each point of the host lies on a thread that ends `data_waits`, up to the last of them.

        Threads that launch kernels or graphs load nothing for others.
        """
        if not len(self.data_waits):
            return np.zeros(len(self.host.time), bool)
        ended_by = self.graph.cross[self.data_waits] - self.hosts
        stack = self.host.stack
        last = highest(
            stack[ended_by], ended_by.astype(np.int64), int(stack.max(initial=0)) + 1, empty=NONE
        )
        launching = calls_matching(self.work.attributed, LAUNCHING) & self.work.issues
        last[np.unique(self.work.attributed.attribution.stack[launching])] = NONE
        result: Flags = np.arange(len(stack)) <= last[stack]
        return result

    @cached_property
    def annotating(self) -> Ints | None:
        """The part in ns of the delay before each point that annotations took; None where nobody measured that."""
        cost, host = annotation_costs(self.work), self.host
        if not cost.any():
            return None
        result = np.zeros(len(self.graph), np.int64)
        code = np.flatnonzero((host.call == NONE) & (host.system == NONE) & (self.host_delay > 0))
        result[self.hosts + code] = time_of_annotations(
            self.work,
            cost,
            stack=host.stack[code],
            time=host.time[code],
            delay=self.host_delay[code],
        )
        return result

    def annotating_of(self, points: Ints) -> Ints:
        """Return `annotating` of some points, 0 where nobody measured it."""
        if self.annotating is None:
            return np.zeros(len(points), np.int64)
        return self.annotating[points]

    def own_delay(self, points: Ints) -> Ints:
        """Return the delay before some points without what annotations took of it."""
        result: Ints = self.graph.delay[points] - self.annotating_of(points)
        return result

    @property
    def host_delay(self) -> Ints:
        """The delay before each point of the host."""
        return self.graph.delay[self.hosts : self.hosts + len(self.host.time)]

    @property
    def lasting_on_host(self) -> Ints:
        """The points of the host before which time passes."""
        return self.hosts + np.flatnonzero(self.host_delay)

    # -- What the delay before each point is

    def kind_of(self, points: Ints) -> Ints:
        """Return the kind of the delay before each point."""
        is_device = points < self.hosts
        if not is_device.any():  # most ask for points of the host alone
            return self._host_kind(points - self.hosts)
        result = np.empty(len(points), np.int64)
        result[is_device] = self._device_kind(points[is_device])
        result[~is_device] = self._host_kind(points[~is_device] - self.hosts)
        return result

    def _device_kind(self, points: Ints) -> Ints:
        activity = self.device.activity[points]  # of a point where ranks met the last one, NONE
        is_launched = self.graph.by_cross[points] & (points == self.device.end[activity] - 1)
        waits = np.where(is_launched, KIND[LATENCY], KIND[GAP])
        return np.where(points == self.device.end[activity], self._work_kind[activity], waits)

    @cached_property
    def _work_kind(self) -> NDArray[np.int8]:
        """The kind of each activity, by its place."""
        attributed = self.work.attributed
        kinds = np.array([*(KIND[name] for name in frames.ACTIVITY_KINDS), KIND[KERNEL]])
        kind = kinds[attributed.capture.activities.kind.codes]
        kind[is_communication(attributed)] = KIND[COLLECTIVE]
        kind[~attributed.accounted] = KIND[ELSEWHERE]
        return placed(kind.astype(np.int8), self.work.row)

    def _host_kind(self, points: Ints) -> Ints:
        call = self.host.call[points]
        outside = np.where(self.host.system[points] != NONE, KIND[SYSTEM], KIND[HOST])
        kind = np.where(call == NONE, outside, self._call_kind[call])
        attributed = self.work.attributed
        if attributed.selection is not None:
            row = lookup(attributed.attribution.nesting.range, self.host.node[points])
            kind[~lookup(attributed.selection.ranges, row, True)] = KIND[ELSEWHERE]
        return kind

    @cached_property
    def _call_kind(self) -> Ints:
        """The kind of each API call; the last entry is for no call."""
        kind = np.where(self.waits.waits, KIND[SYNC], KIND[API])
        kind[~self.work.attributed.accounted_launches] = KIND[ELSEWHERE]
        return np.append(kind, KIND[HOST])

    def name_of(self, points: Ints) -> Ints:
        """Return the name of the delay before each point: its op, else its kernel or API call."""
        result = np.empty(len(points), np.int64)
        is_device = points < self.hosts
        result[is_device] = self._work_name[self.device.activity[points[is_device]]]
        here = points[~is_device] - self.hosts
        op = self._node_op[self.host.node[here]]
        result[~is_device] = np.where(op != NONE, op, self._call_name[self.host.call[here]])
        return result

    @cached_property
    def _node_op(self) -> Rows:
        """The op of each node; the last entry is for no node."""
        return _with_none(self.work.attributed.node_op)

    @cached_property
    def _work_name(self) -> Rows:
        """The name of each activity, by its place; the last entry is for no activity."""
        attributed = self.work.attributed
        op = self._node_op[attributed.attribution.node]  # also of what is not counted
        code = attributed.activity_name.codes
        name = np.where(code == NONE, NONE, len(attributed.ops) + code)
        return _with_none(placed(np.where(op != NONE, op, name), self.work.row))

    @cached_property
    def _call_name(self) -> Rows:
        """The name of each API call; the last entry is for no call."""
        attributed = self.work.attributed
        before = len(attributed.ops) + len(attributed.activity_name.texts)
        code = attributed.capture.launches.name.codes
        return _with_none(np.where(code == NONE, NONE, before + code))

    # -- The path

    @cached_property
    def path(self) -> Ints:
        """The points of the critical path with a delay, in order of time."""
        if not len(self):
            return np.empty(0, np.int64)
        points = self.graph.path(self.end_point)[::-1]
        time = self.graph.time[points]
        return points[(self.graph.delay_of(points) > 0) & (time > self.first) & (time <= self.last)]

    @property
    def elements(self) -> Elements:
        """The elements of the critical path; they cover the time from ``first`` to ``last``.

        They are not kept, as there may be as many as points.
        """
        points, time = self.path, self.graph.time
        kind, name = self.kind_of(points), self.name_of(points)
        first = self._begins(points, kind, name)
        kind, name, begin = (placed(column, first) for column in (kind, name, points))
        start = np.maximum(time[begin] - self.graph.delay_of(begin), self.first)
        end = np.concatenate((start[1:], time[points[-1:]]))
        elements = Elements(kind=kind, name=name, point=begin, start=start, end=end)
        return elements.filled(self.first, self.last)

    def _begins(self, points: Ints, kind: Ints, name: Ints) -> Ints:
        """Return where each element begins among the points of the path.

        Points of one thread in a row belong to one element if all that is known of them is equal; a point of a device
        is always an element of its own.
        """
        is_new = np.ones(len(points), bool)
        rows = np.flatnonzero(points >= self.hosts)
        here = points[rows] - self.hosts
        goes_on = rows[1:] == rows[:-1] + 1
        columns = (kind[rows], name[rows], self.host.call[here], self.host.node[here])
        for column in (self.host.threads(here), *columns):
            goes_on &= column[1:] == column[:-1]
        is_new[rows[1:][goes_on]] = False
        return np.flatnonzero(is_new)

    @cached_property
    def retiming(self) -> Retiming:
        """The graph for other delays than the recorded ones."""
        waiting = np.flatnonzero(~self.device.chained & (self.device.cross != NONE))
        issued = self.issued(waiting[self.device.activity[waiting] != NONE])
        others = np.concatenate((self.releases.points, issued[issued != NONE]))
        return Retiming.of(self.graph, self.last, others, self.asides)

    def issued(self, points: Ints) -> Ints:
        """Return the points of the launches that some work would begin after if it waited for no other work.

        Only the first work of a stream has one; NONE behind other work, and without a launch.
        """
        launch = lookup(self.host.launch, self.work.launch[self.device.activity[points]])
        behind = self.graph.chained[points] | (launch == NONE)
        return np.where(behind, NONE, self.hosts + launch)

    def points_of(self, kind: int, name: int) -> Ints:
        """Return the points before which the delay is of a kind and a name."""
        is_device = kind <= KIND[LATENCY]
        labels = self._device_labels if is_device else self._host_labels
        points = np.flatnonzero(labels == kind * len(self.names) + name % len(self.names))
        return points if is_device else points + self.hosts

    @cached_property
    def _device_labels(self) -> Rows:
        return self._labels(0, self.hosts)

    @cached_property
    def _host_labels(self) -> Rows:
        return self._labels(self.hosts, self.hosts + len(self.host.time))

    def _labels(self, first: int, last: int) -> Rows:
        """Return kind and name of the delay before each of the points from ``first`` to ``last`` as one number."""
        size = len(self.names)
        labels = np.empty(last - first, np.int32)
        for begin in range(first, last, BLOCK):  # in pieces that stay in the cache
            points = np.arange(begin, min(begin + BLOCK, last))
            label = self.kind_of(points) * size + self.name_of(points) % size  # "" is the last name
            labels[begin - first : begin - first + len(points)] = label
        return labels

    def span_of(self, change: Change) -> int:
        """Return the length of the run, or of its selected part, in ns with other delays and edges.

        A wait that something ended which no one recorded, such as a loader in another process, may last as long as it
        did, or end as long after the one before it as it did. The longer run counts.
        """
        if not len(self):
            return self.span
        end = max(self.retiming.end(self._draft(change, paced)) for paced in self._paces)
        return self.span - int(self.graph.time[self.end_point]) + end

    @property
    def _paces(self) -> tuple[bool, ...]:
        """Whether waits that no known thread ended come at their pace: as it was, and where there are some, also so."""
        return (False, True) if len(self.releases.waits) else (False,)

    def _draft(self, change: Change, paced: bool) -> Draft:
        draft = self.releases.draft(self.graph, paced=paced)
        draft.annotating = self.annotating
        self._let_go(draft)
        change(draft)
        draft.settle()
        return draft

    def _let_go(self, draft: Draft) -> None:
        """Let waits for work of another process on the same GPU last as long as they did.

        Which work of that process runs when other work is ready is chance.
        """
        points = self.shared
        if not len(points):
            return
        starts = self.device.start[self.device.activity[points]]
        before = np.arange(len(self.graph))
        before[points] = NONE
        before = np.maximum.accumulate(before)[starts - 1]  # the last point but for these waits
        ready, issued = self.graph.time[before], self.graph.cross[starts]
        known = issued != NONE
        ready[known] = np.maximum(ready[known], self.graph.time[issued[known]])
        draft.cut(points)
        draft.set(points, np.zeros(len(points), np.int64))
        draft.set(starts, np.maximum(self.graph.time[starts] - ready, 0))

    @cached_property
    def shared(self) -> Ints:
        """The points at which work waits for work of another process on its GPU, behind other work of its stream."""
        points = self.device.ruled
        process = np.append(self.work.column("process"), NONE)
        waiting, awaited = (
            self.device.activity[points],
            self.device.activity[self.graph.cross[points]],
        )
        result: Ints = points[(process[waiting] != process[awaited]) & self.graph.chained[points]]
        return result

    def retimed(self, change: Change) -> tuple[Retimed, Retimed]:
        """Return the run with other delays and edges: where the waits of `span_of` last as long, and at their pace."""
        if not len(self):
            return Retimed(self.graph, NONE, self.span), Retimed(self.graph, NONE, self.span)
        result = []
        for paced in self._paces:
            graph, last = self.retiming.retimed(self._draft(change, paced))
            moved = int(graph.time[last] - self.graph.time[self.end_point])
            result.append(Retimed(graph, last, self.span + moved))
        return result[0], result[-1]

    def span_without(self, points: Ints) -> int:
        """Return the length of the run in ns without the delay before these points."""
        points = points[self.graph.time[points] > self.first]
        return self.span_of(
            lambda draft: draft.shorten(points, self.graph.time[points] - self.first)
        )


def _with_none(column: Ints) -> Rows:
    """Return a column with NONE as its last entry."""
    return np.append(column, NONE).astype(np.int32)


@once
def _run(attributed: AttributedCapture, *, apart: bool = False) -> Run:
    work = Work.of(attributed, apart=apart)
    waits = Waits.of(work)
    device, host = DevicePoints.of(work, waits), HostPoints.of(work, waits)
    graph, releases = Releases.of(work, host, _linked(work, waits, device, host), len(device.time))
    of_device, of_host = (
        slice(first, first + len(points.time))
        for first, points in ((0, device), (len(device.time), host))
    )
    device = replace(
        device, **{c: getattr(graph, c)[of_device] for c in ("time", "chained", "cross")}
    )
    host = replace(host, **{c: getattr(graph, c)[of_host] for c in ("time", "chained")})
    part = next(iter(RunClocks.of(attributed).part.values()), Span(0, 0))
    return Run(
        work=work,
        waits=waits,
        graph=graph,
        device=device,
        host=host,
        releases=releases,
        first=part.start,
        last=part.end,
    )


def _linked(work: Work, waits: Waits, device: DevicePoints, host: HostPoints) -> Graph:
    """Return the graph with the links between devices and the host."""
    hosts = len(device.time)
    cross = np.concatenate((device.cross, np.full(len(host.time), NONE, np.int32)))
    launched = np.flatnonzero(work.launch != NONE)
    at = work.launched_at[work.launch[launched]] if len(launched) else launched
    launched = launched[at <= work.start[launched]]
    cross[device.start[launched]] = hosts + host.launch[work.launch[launched]]
    cross[hosts + host.released] = np.where(
        waits.by_start, device.start[waits.released], device.end[waits.released]
    )
    cross[hosts + host.begun] = hosts + host.handed
    cross[hosts + host.taken] = hosts + host.done
    return Graph(
        np.concatenate((device.time, host.time)),
        np.concatenate((device.chained, host.chained)),
        cross,
    )
