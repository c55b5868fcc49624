"""The graph of a run, what each of its delays is, and the critical path through it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bridge.analyze.core.devices import Devices
from bridge.analyze.core.kinds import is_communication
from bridge.analyze.run.account import RunClocks, Span
from bridge.analyze.run.critical.device import DevicePoints
from bridge.analyze.run.critical.graph import Graph
from bridge.analyze.run.critical.host import HostPoints, leading_threads
from bridge.analyze.run.critical.releases import Releases
from bridge.analyze.run.critical.retiming import Change, Retiming
from bridge.analyze.run.critical.waits import Waits
from bridge.analyze.run.critical.work import Work
from bridge.importers import frames
from bridge.join.arrays import NONE, Flags, Ints
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


@dataclass(frozen=True)
class Elements:
    """The elements of the critical path in order of time: each begins where the one before ends.

    ``kind`` is a position in `KINDS`, ``name`` one in `Run.names`, NONE for no name. ``activity``
    is a row of activities, ``call`` one of API calls, ``node`` a node of the nesting; NONE where an
    element is none.
    """

    kind: Ints
    name: Ints
    start: Ints
    end: Ints
    activity: Ints
    call: Ints
    node: Ints


@dataclass(frozen=True)
class Retimed:
    """The run that would have been: the graph with its times, the point with which it ends, and its length in ns."""

    graph: Graph
    last: int
    span: int


@dataclass(frozen=True)
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
        except ValueError:
            return _run(attributed, apart=True)

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
        return int(np.argmax(np.where(leads, self.graph.time, np.iinfo(np.int64).min)))

    @cached_property
    def asides(self) -> Flags:
        """Which points end no run: those of threads that do not lead, of work without a call, and of releases."""
        result = np.zeros(len(self.graph), bool)
        host = slice(self.hosts, self.hosts + len(self.host.time))
        result[host] = ~np.isin(self.host.stack, leading_threads(self.work, self.waits))
        called = np.bincount(self.work.lane, self.work.launch != NONE)
        if called.any():  # else no call was recorded
            result[: self.hosts] = np.append(called[self.work.lane] == 0, False)[
                self.device.activity
            ]
        result[host.stop :] = True
        return result if not result.all() else np.zeros(len(result), bool)

    @cached_property
    def names(self) -> list[str]:
        """The names of elements: ops, then names of activities, then those of API calls."""
        attributed = self.work.attributed
        named = attributed.activity_name.cat.categories
        calls = attributed.capture.launches["name"].cat.categories
        return [*attributed.ops, *map(str, named), *map(str, calls), ""]

    @cached_property
    def computing(self) -> Flags:
        """Which activities are kernels that do not communicate."""
        attributed = self.work.attributed
        kernels = frames.is_kind(attributed.capture.activities, frames.KERNEL, frames.GRAPH)
        result: Flags = kernels & ~is_communication(attributed)
        return result

    @cached_property
    def gpu_of_place(self) -> Ints:
        """The GPU of each activity, a position in `Devices`, by its place in `Work`."""
        return Devices.of_report(self.work.attributed).gpu[self.work.row]

    @cached_property
    def with_locks(self) -> Graph:
        """The graph with edges from threads that held a lock to those that waited for it, for what did happen."""
        if not len(self.releases.locked):
            return self.graph
        cross = self.graph.cross.copy()
        cross[self.releases.locked] = self.releases.unlocked
        return Graph(self.graph.time, self.graph.chained, cross)

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
        result = np.empty(len(points), np.int64)
        is_device = points < self.hosts
        result[is_device] = self._device_kind(points[is_device])
        result[~is_device] = self._host_kind(points[~is_device] - self.hosts)
        return result

    def _device_kind(self, points: Ints) -> Ints:
        activity = self.device.activity[points]
        of_activity = np.append(self._activity_kind, KIND[GAP])[activity]
        is_end = points == np.append(self.device.end, NONE)[activity]
        waits = np.where(self.graph.by_cross[points], KIND[LATENCY], KIND[GAP])
        is_start = points == np.append(self.device.start, NONE)[activity]
        waits = np.where(is_start, waits, KIND[GAP])
        of_activity = np.where(self._is_selected[activity], of_activity, KIND[ELSEWHERE])
        return np.where(is_end, of_activity, waits)

    @cached_property
    def _is_selected(self) -> Flags:
        """Whether each activity is selected, by its place; the last entry is for no activity."""
        return np.append(self.work.attributed.accounted[self.work.row], True)

    @cached_property
    def _activity_kind(self) -> Ints:
        """The kind of each activity, by its place."""
        attributed = self.work.attributed
        code = frames.codes(attributed.capture.activities["kind"])[self.work.row]
        kinds = np.array([*(KIND[name] for name in frames.ACTIVITY_KINDS), KIND[KERNEL]])[code]
        kinds[is_communication(attributed)[self.work.row]] = KIND[COLLECTIVE]
        return kinds

    def _host_kind(self, points: Ints) -> Ints:
        call = self.host.call[points]
        of_call = np.where(np.append(self.waits.waits, False)[call], KIND[SYNC], KIND[API])
        outside = np.where(self.host.system[points] != NONE, KIND[SYSTEM], KIND[HOST])
        kind = np.where(call == NONE, outside, of_call)
        attributed, node = self.work.attributed, self.host.node[points]
        is_selected = np.append(attributed.accounted_launches, True)[call]
        if attributed.selection is not None:
            is_selected &= np.append(attributed.selection.ranges, True)[
                np.append(attributed.attribution.nesting.range, NONE)[node]
            ]
        return np.where(is_selected, kind, KIND[ELSEWHERE])

    def name_of(self, points: Ints) -> Ints:
        """Return the name of the delay before each point: its op, else its kernel or API call."""
        attributed = self.work.attributed
        result = np.empty(len(points), np.int64)
        is_device = points < self.hosts
        row = np.append(self.work.row, NONE)[self.device.activity[points[is_device]]]
        named = attributed.activity_name
        ops, activities = len(attributed.ops), len(named.cat.categories)
        node = np.append(attributed.attribution.node, NONE)[row]  # also of what is not counted
        op = np.append(attributed.node_op, NONE)[node]
        name = np.append(frames.codes(named), NONE)[row]
        result[is_device] = np.where(op != NONE, op, np.where(name == NONE, NONE, ops + name))
        here = points[~is_device] - self.hosts
        op = np.append(attributed.node_op, NONE)[self.host.node[here]]
        call = np.append(frames.codes(attributed.capture.launches["name"]), NONE)[
            self.host.call[here]
        ]
        call = np.where(call == NONE, NONE, ops + activities + call)
        result[~is_device] = np.where(op != NONE, op, call)
        return result

    # -- The path

    @cached_property
    def path(self) -> Ints:
        """The points of the critical path with a delay, in order of time."""
        if not len(self):
            return np.empty(0, np.int64)
        points = self.graph.path(self.end_point)[::-1]
        counts = (self.graph.delay[points] > 0) & (self.graph.time[points] > self.first)
        return points[counts & (self.graph.time[points] <= self.last)]

    @cached_property
    def elements(self) -> Elements:
        """The elements of the critical path; they cover the time from ``first`` to ``last``."""
        points, time = self.path, self.graph.time
        start = np.maximum(time[points] - self.graph.delay[points], self.first)
        kind, name = self.kind_of(points), self.name_of(points)
        is_device = points < self.hosts
        activity = np.append(self.work.row, NONE)[
            np.append(self.device.activity, NONE)[np.where(is_device, points, NONE)]
        ]
        call, node = (
            np.append(column, NONE)[np.where(is_device, NONE, points - self.hosts)]
            for column in (self.host.call, self.host.node)
        )
        columns = (kind, name, activity, call, node)
        edges = _edges(*columns, thread=_threads(self, points))
        first = edges[:-1]
        # Nothing is recorded before the first point of the path, and after its last.
        begun, ended = (*start[:1], self.last)[0], (*time[points[-1:]], self.last)[0]
        before = np.array([self.first] if begun > self.first else [], np.int64)
        after = np.array([ended] if ended < self.last else [], np.int64)
        kind, name, activity, call, node = (
            np.concatenate((np.full(len(before), value), column[first], np.full(len(after), value)))
            for column, value in zip(columns, (KIND[UNKNOWN], *[NONE] * 4), strict=True)
        )
        starts = np.concatenate((before, start[first], after))
        ends = np.append(starts[1:], self.last)[: len(starts)]
        return Elements(
            kind=kind, name=name, start=starts, end=ends, activity=activity, call=call, node=node
        )

    @cached_property
    def retiming(self) -> Retiming:
        """The graph for other delays than the recorded ones."""
        others = np.concatenate((self.releases.points, self.issued[self.issued != NONE]))
        return Retiming.of(self.graph, self.last, others, self.asides)

    @cached_property
    def issued(self) -> Ints:
        """The points of the launches that work in ``device.ruled`` would begin after if it waited for no other work.

        Only the first work of a stream has one, and NONE without a launch.
        """
        ruled = self.device.ruled
        launch = np.append(self.host.launch, NONE)[self.work.launch[self.device.activity[ruled]]]
        return np.where(self.graph.chained[ruled] | (launch == NONE), NONE, self.hosts + launch)

    def points_of(self, kind: int, name: int) -> Ints:
        """Return the points before which the delay is of a kind and a name."""
        is_device = kind <= KIND[LATENCY]
        labels = self._device_labels if is_device else self._host_labels
        points = np.flatnonzero(labels == kind * len(self.names) + name % len(self.names))
        return points if is_device else points + self.hosts

    @cached_property
    def _device_labels(self) -> NDArray[np.int32]:
        return self._labels(np.arange(self.hosts))

    @cached_property
    def _host_labels(self) -> NDArray[np.int32]:
        return self._labels(self.hosts + np.arange(len(self.host.time)))

    def _labels(self, points: Ints) -> NDArray[np.int32]:
        """Return kind and name of the delay before each point as one number."""
        size = len(self.names)
        labels = self.kind_of(points) * size + self.name_of(points) % size  # "" is the last name
        return labels.astype(np.int32)

    def span_of(self, change: Change) -> int:
        """Return the length of the run, or of its selected part, in ns with other delays and edges.

        A wait that something ended which no one recorded, such as a loader in another process, may last as long as it
        did, or end as long after the one before it as it did. The longer run counts.
        """
        if not len(self):
            return self.span
        releases = self.releases
        kept = releases.draft(self.graph, paced=False)
        change(kept)
        ends = [self.retiming.end(kept)]
        if len(releases.waits):
            paced = releases.draft(self.graph, paced=True)
            change(paced)
            ends.append(self.retiming.end(paced))
        return self.span - int(self.graph.time[self.end_point]) + max(ends)

    def retimed(self, change: Change) -> tuple[Retimed, Retimed]:
        """Return the run with other delays and edges: where the waits of `span_of` last as long, and at their pace."""
        if not len(self):
            return Retimed(self.graph, NONE, self.span), Retimed(self.graph, NONE, self.span)
        releases, result = self.releases, []
        for paced in (False, True) if len(releases.waits) else (False,):
            draft = releases.draft(self.graph, paced=paced)
            change(draft)
            graph, last = self.retiming.retimed(draft)
            moved = int(graph.time[last] - self.graph.time[self.end_point])
            result.append(Retimed(graph, last, self.span + moved))
        return result[0], result[-1]

    def span_without(self, points: Ints) -> int:
        """Return the length of the run in ns without the delay before these points."""
        points = points[self.graph.time[points] > self.first]
        return self.span_of(
            lambda draft: draft.shorten(points, self.graph.time[points] - self.first)
        )


def _threads(run: Run, points: Ints) -> Ints:
    """Return a code for the thread of each point, NONE on a device."""
    is_device = points < run.hosts
    code = np.append(np.cumsum(~run.host.chained), NONE)
    return code[np.where(is_device, NONE, points - run.hosts)]


def _edges(*columns: Ints, thread: Ints) -> Ints:
    """Return where each element begins among points, then their number.

    Points of one thread in a row belong to one element if all columns are equal; a point of a
    device is always an element of its own.
    """
    if not len(thread):
        return np.zeros(1, np.int64)
    is_new = np.ones(len(thread), bool)
    is_new[1:] = (thread[1:] != thread[:-1]) | (thread[1:] == NONE)
    for column in columns:
        is_new[1:] |= column[1:] != column[:-1]
    result: Ints = np.append(np.flatnonzero(is_new), len(thread))
    return result


@once
def _run(attributed: AttributedCapture, *, apart: bool = False) -> Run:
    work = Work.of(attributed, apart=apart)
    waits = Waits.of(work)
    device, host = DevicePoints.of(work, waits), HostPoints.of(work, waits)
    graph, releases = Releases.of(work, host, _linked(work, waits, device, host), len(device.time))
    part = next(iter(RunClocks.of(attributed).part.values()), Span(0, 0))
    return Run(work, waits, graph, device, host, releases, first=part.start, last=part.end)


def _linked(work: Work, waits: Waits, device: DevicePoints, host: HostPoints) -> Graph:
    """Return the graph with the links between devices and the host."""
    hosts = len(device.time)
    cross = np.concatenate((device.cross, np.full(len(host.time), NONE)))
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
