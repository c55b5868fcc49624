"""What several rules look at, computed once."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from bridge.analyze import roles
from bridge.analyze.calltree import A_STEP, stacks, subtree_sums
from bridge.analyze.causes import idle_times
from bridge.analyze.causes.api_calls import ends
from bridge.analyze.causes.gaps import Causes, gaps
from bridge.analyze.causes.idle import Gaps
from bridge.analyze.concurrency import by_device
from bridge.analyze.devices import Devices
from bridge.analyze.groups import Floats, highest, lowest, sums
from bridge.analyze.metrics import no_timeline
from bridge.analyze.occupancy import Occupancy
from bridge.analyze.overview.memory import samples
from bridge.join.arrays import NONE, Flags, Ints, busy, number
from bridge.join.attributed import Attributed
from bridge.join.nesting import paths
from importers import frames
from importers.report import Report


@dataclass(frozen=True)
class Seen:
    """A report as rules look at it; flags and times are per activity unless said otherwise, times in ns."""

    joined: Attributed

    @property
    def report(self) -> Report:
        """The frames as recorded."""
        return self.joined.report

    @property
    def counted(self) -> Flags:
        """Which activities are counted."""
        return self.joined.counted

    @cached_property
    def places(self) -> tuple[Ints, list[str]]:
        """Where in the program each node is: its path as a code, all steps being one, and the distinct paths."""
        joined, nesting = self.joined, self.joined.attribution.nesting
        is_step = np.zeros(len(self.report.ranges) + 1, bool)
        is_step[joined.iterations.range] = True
        is_step[NONE] = False
        op = np.where(is_step[nesting.range], len(joined.ops), joined.node_op)
        return paths(nesting, op, [*joined.ops, A_STEP])

    def of_kind(self, *kinds: str) -> Flags:
        """Which activities are counted and of these kinds."""
        flags: Flags = frames.is_kind(self.report.activities, *kinds) & self.counted
        return flags

    @cached_property
    def kernels(self) -> Flags:
        """Which activities are kernels."""
        return self.of_kind(frames.KERNEL)

    @cached_property
    def communication(self) -> Flags:
        """Which activities are kernels of a communication library."""
        return roles.is_communication(self.joined) & self.counted

    @cached_property
    def computing(self) -> Flags:
        """Which activities are kernels that do not communicate."""
        return self.kernels & ~self.communication

    @property
    def time(self) -> Ints:
        """Time of each activity."""
        return self.joined.duration

    @cached_property
    def devices(self) -> Devices:
        """The GPUs."""
        return Devices.of_report(self.joined)

    @cached_property
    def gpus(self) -> pd.DataFrame:
        """A row per GPU, as `bridge report --by device` has it."""
        return by_device(self.joined)

    @cached_property
    def span_ns(self) -> int:
        """The longest time from the first work of a GPU to its last."""
        return int(self.gpus["span_ns"].max()) if len(self.gpus) else 0

    @cached_property
    def wall_ns(self) -> int:
        """How long the run took: of the file that took longest, from its first API call or work to its last.

        Without a timeline: how long its kernels took.
        """
        if not no_timeline.has_timeline(self.report):
            return int(self.time[self.counted].sum())
        first, last = self.run
        return int((last - first).max(initial=0))

    @cached_property
    def run(self) -> tuple[Ints, Ints]:
        """When the first API call or work of each file began that is counted, and the last ended."""
        calls, work = self.report.launches, self.report.activities
        listed = self.joined.counted_launches, self.counted
        of, start = (
            np.concatenate(
                [frames.ints(t, c)[rows] for t, rows in zip((calls, work), listed, strict=True)]
            )
            for c in ("report", "start")
        )
        end = np.concatenate((ends(self.joined)[listed[0]], self.joined.end[listed[1]]))
        many = len(self.report.source)
        return lowest(of, start, many), highest(of, end, many)

    @cached_property
    def idle(self) -> Causes:
        """Every gap of every GPU between work that is counted, in pieces by what the host did."""
        found = gaps(self.joined, 0)
        own = self.inner(found.gaps)[found.gap]
        columns = (found.gap, found.cause, found.op, found.length, found.first)
        return Causes(found.gaps, *(column[own] for column in columns))

    def inner(self, found: Gaps) -> Flags:
        """Which gaps began with the end of work that is counted: of a part of a run, those within it."""
        flags: Flags = self.counted[found.before]
        return flags

    @cached_property
    def idle_before(self) -> tuple[Ints, Ints]:
        """How long its GPU was idle right before each activity: for launching, and for starving."""
        inside = np.zeros(len(self.time), bool)
        found = self.idle.gaps
        inside[found.ended_by[self.inner(found)]] = True
        launching, starving = idle_times(self.joined)
        return np.where(inside, launching, 0), np.where(inside, starving, 0)

    @cached_property
    def occupancy(self) -> Occupancy:
        """How full launches leave multiprocessors."""
        return Occupancy.of(self.joined)

    @cached_property
    def capability(self) -> Floats:
        """Compute capability of each activity's GPU, 8.6 for example; -1 where it is not known."""
        devices = self.report.devices
        major, minor = (frames.ints(devices, f"compute_{c}") for c in ("major", "minor"))
        known = np.append(np.where(major > 0, major + minor / 10, NONE), NONE)
        tables = (devices, self.report.activities)
        keys = [
            np.concatenate([frames.ints(t, c) for t in tables])
            for c in ("report", "process", "device")
        ]
        code, _ = number(*keys)
        row = np.full(int(code.max(initial=NONE)) + 1, NONE)
        row[code[: len(devices)]] = np.arange(len(devices))
        found: Floats = known[row[code[len(devices) :]]]
        return found

    @cached_property
    def call_time(self) -> Ints:
        """How long each API call took, per call."""
        return ends(self.joined) - frames.ints(self.report.launches, "start")

    def calls_matching(self, pattern: re.Pattern[str]) -> Flags:
        """Which API calls are counted and have a name that matches, per call."""
        flags: Flags = roles.calls_matching(self.joined, pattern) & self.joined.counted_launches
        return flags

    def under(self, values: Ints | Flags) -> Ints:
        """Sum something of activities over all that is under each node of the nesting."""
        node, nesting = self.joined.node, self.joined.attribution.nesting
        has = node != NONE
        return subtree_sums(nesting, sums(node[has], values[has].astype(np.int64), len(nesting)))

    def ops_like(self, matches: Callable[[str], object], *, anywhere: bool = False) -> Flags:
        """Which nodes of the nesting are counted (or may be, ``anywhere``) and of an op whose name is so, per node."""
        told = np.array([*(bool(matches(op)) for op in self.joined.ops), False], bool)
        among = self.joined.around if anywhere else self.joined.listed
        flags: Flags = told[self.joined.node_op] & among
        return flags

    def inside(self, nodes: Flags) -> Flags:
        """Which nodes of the nesting are one of some, or inside one, per node."""
        nesting, found = self.joined.attribution.nesting, nodes.copy()
        above = nesting.parent.copy()
        left = np.flatnonzero(above != NONE)
        while len(left):
            found[left] |= nodes[above[left]]
            above[left] = nesting.parent[above[left]]
            left = left[(above[left] != NONE) & ~found[left]]
        return found

    def around(self, nodes: Flags) -> Ints:
        """Return the nodes of the nesting that any of some lies in."""
        return np.unique(stacks(self.joined.attribution.nesting, np.flatnonzero(nodes))[1])

    def outermost(self, nodes: Flags) -> Flags:
        """Which nodes of some lie inside no other of them, per node."""
        above = self.joined.attribution.nesting.parent
        outer: Flags = nodes & ~np.where(above == NONE, False, self.inside(nodes)[above])
        return outer

    def work_in(self, nodes: Ints) -> Ints:
        """Return the activities that some nodes of the nesting own, or any inside these."""
        inside = np.zeros(len(self.joined.attribution.nesting), bool)
        inside[nodes] = True
        return np.flatnonzero(self.of_nodes(self.inside(inside)))

    def of_nodes(self, nodes: Flags) -> Flags:
        """Which activities are counted and owned by one of some nodes."""
        flags: Flags = np.append(nodes, False)[self.joined.node]
        return flags

    def most(self, rows: Ints | Flags, time: Ints) -> int:
        """Return the time of some activities on the GPU that has most of it; ``time`` is of these rows."""
        return int(sums(self.devices.of[rows], time, len(self.devices.names)).max(initial=0))

    def most_work(self, rows: Ints, time: Ints | None = None) -> int:
        """Return the same of time in which some activities run, theirs or a part of it: no more than the GPU is busy with them."""
        of, many = self.devices.of[rows], len(self.devices.names)
        start = frames.ints(self.report.activities, "start")[rows]
        spent = sums(of, self.time[rows] if time is None else time, many)
        united = busy(of, start, self.joined.end[rows], many)
        return int(np.minimum(spent, united).max(initial=0))

    def within_run(self, nodes: Ints) -> Ints:
        """Return for how long each node of the nesting was open while what is counted ran."""
        nesting, (first, last) = self.joined.attribution.nesting, self.run
        of = frames.ints(self.report.ranges, "report")[nesting.range[nodes]]
        start = np.maximum(nesting.start[nodes], first[of])
        end = np.minimum(nesting.end[nodes], last[of])
        length: Ints = np.maximum(end - start, 0)
        return length

    def most_of_threads(self, threads: Ints, time: Ints) -> int:
        """Return the time on the thread that has most of it; threads and times are of the same rows."""
        if not len(threads):
            return 0
        used, of = np.unique(threads, return_inverse=True)
        return int(sums(of, time, len(used)).max())

    @cached_property
    def allocated(self) -> pd.DataFrame:
        """The samples of allocated memory: columns name, process, report, value (bytes)."""
        return samples(self.joined)
