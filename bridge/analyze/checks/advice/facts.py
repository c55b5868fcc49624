"""Data that several rules use, computed once."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from bridge.analyze.core import kinds, no_timeline
from bridge.analyze.core.calltree import STEP_NAME, subtree_sums
from bridge.analyze.core.devices import Devices
from bridge.analyze.core.groups import Floats, lowest, sums
from bridge.analyze.core.table import Table
from bridge.analyze.cost.memory.counters import samples
from bridge.analyze.cost.occupancy import Occupancy
from bridge.analyze.run.account import runs
from bridge.analyze.run.causes.host_timeline import call_ends
from bridge.analyze.run.critical.run import Run
from bridge.analyze.run.parts import Parts, Times
from bridge.analyze.tables.devices import by_device
from bridge.importers import frames
from bridge.importers.arrays import lookup, scatter
from bridge.importers.capture import Capture
from bridge.join.arrays import (
    NONE,
    Flags,
    Integers,
    Ints,
    busy_time,
    number_groups,
    order_by,
    run_edges,
)
from bridge.join.attributed import AttributedCapture
from bridge.join.forest import folded, nearest
from bridge.join.paths import paths

MAX_TIME = int(np.iinfo(np.int64).max)
Shared = TypeVar("Shared")
PYTORCH_OP = re.compile(
    r"aten::|torch|c10|nccl:|ProfilerStep|Optimizer\.|autograd::|(?:enumerate\()?DataLoader"
)


@dataclass(frozen=True)
class Evidence:
    """A capture as checks see it.

    Flags and times are per activity unless noted otherwise; times are in ns.
    """

    attributed: AttributedCapture

    @property
    def capture(self) -> Capture:
        """The frames as recorded."""
        return self.attributed.capture

    @property
    def counted(self) -> Flags:
        """Whether each activity is counted."""
        return self.attributed.counted

    @cached_property
    def run(self) -> Run:
        """The graph of the run. Raises ValueError if clocks of several files differ."""
        return Run.of(self.attributed)

    @cached_property
    def has_graph(self) -> bool:
        """Whether the run has a graph: a timeline on one clock."""
        if not no_timeline.has_timeline(self.capture):
            return False
        try:
            return len(self.run) > 0
        except ValueError:  # clocks of several files differ
            return False

    def shared(self, make: Callable[[Evidence], Shared]) -> Shared:
        """Return what a function makes of this evidence, made once."""
        if make not in self._shared:
            self._shared[make] = make(self)
        result: Shared = self._shared[make]
        return result

    @cached_property
    def _shared(self) -> dict[object, Any]:
        return {}

    @property
    def own_op(self) -> Ints:
        """The op of each node, NONE of steps: what happens in a step alone is in no op."""
        return self.run.work.own_op

    @cached_property
    def launching_ops(self) -> Flags:
        """Which ops launch kernels from their own code, with False as the last entry, for no op."""
        calls = self.run.work.issues & kinds.calls_matching(self.attributed, kinds.LAUNCHING)
        result = np.zeros(len(self.attributed.ops) + 1, bool)
        result[lookup(self.own_op, self.attributed.launch_node[calls])] = True
        result[NONE] = False
        return result

    def own_op_name(self, call: int) -> str:
        """Return the op that an API call is made in, '' for none."""
        op = int(lookup(self.own_op, self.attributed.launch_node[call]))
        return "" if op == NONE else self.attributed.ops[op]

    def is_early(self, stacks: Integers, times: Ints) -> Flags:
        """Return whether times of the host lie in the first iteration of the process of their stacks, or before it.

        It ends when the second one of the first loop begins; that of a process without iterations when the first of
        others does. Without two of them nothing is early.
        """
        process = self.run.work.process_of_stacks[stacks]
        result: Flags = times <= self._first_iteration_ends[process]
        return result

    @cached_property
    def _first_iteration_ends(self) -> Ints:
        """When the first iteration ends, by the code of each process; the last entry is for an unknown one."""
        steps, work = self.attributed.iterations, self.run.work
        start = Times.of(self.attributed).start
        process = work.process_codes(steps.report, steps.process)
        size = int(work.process_of_stacks.max(initial=NONE)) + 1
        loop = lowest(process, steps.loop, max(size, int(process.max(initial=0)) + 1))
        rows = np.flatnonzero(steps.loop == loop[process])
        rows = rows[order_by(process[rows], start[rows])]
        edges = run_edges(process[rows])
        second = edges[:-1][np.diff(edges) > 1] + 1
        known = process[rows[second]] < size
        rows = rows[second[known]]
        result = np.full(size + 1, start[rows].min(initial=MAX_TIME) if len(rows) else -MAX_TIME)
        result[process[rows]] = start[rows]
        return result

    def in_iterations(self, points: Integers) -> Flags:
        """Return whether the time before each point of the graph begins within iterations, or with work of any."""
        return self.times_in_iterations(self.run.graph.time[points] - self.run.graph.delay[points])

    def times_in_iterations(self, time: Ints) -> Flags:
        """Return whether each time lies within iterations; without any, from the first device work to the last."""
        parts = Parts.of_run(self.attributed)
        if parts is None:
            return np.ones(len(time), bool)
        start, end = np.array(parts.iterations, np.int64).reshape(-1, 2).T
        at = np.searchsorted(start, time, side="right")
        result: Flags = (at > 0) & (time < np.append(0, end)[at])
        return result

    @cached_property
    def paths(self) -> tuple[Ints, list[str]]:
        """The path of each node as a code, and the distinct paths; all steps have one name."""
        attributed, nesting = self.attributed, self.attributed.hierarchy
        is_step = np.zeros(len(self.capture.ranges) + 1, bool)
        is_step[attributed.steps.range] = True
        is_step[NONE] = False
        if not is_step.any():
            return attributed.node_path
        op = np.where(is_step[nesting.range], len(attributed.ops), attributed.node_op)
        return paths(nesting.parent, op, [*attributed.ops, STEP_NAME])

    def is_kind(self, *names: str) -> Flags:
        """Return whether each activity is counted and of one of these kinds."""
        flags: Flags = self.capture.activities.kind.among(*names) & self.counted
        return flags

    @cached_property
    def uses_pytorch(self) -> bool:
        """Whether ops or kernels are those of PyTorch."""
        kernels = self.capture.activities.full_name.texts
        ops = any(PYTORCH_OP.match(op) for op in self.attributed.ops)
        return ops or any("at::native" in name for name in kernels)

    @cached_property
    def kernels(self) -> Flags:
        """Whether each activity is a counted kernel."""
        return self.is_kind(frames.KERNEL)

    @cached_property
    def communication(self) -> Flags:
        """Whether each activity is a kernel of a communication library."""
        return kinds.is_communication(self.attributed) & self.counted

    @cached_property
    def computing(self) -> Flags:
        """Whether each activity is a kernel that does not communicate."""
        return self.kernels & ~self.communication

    @property
    def time(self) -> Ints:
        """Duration of each activity."""
        return self.attributed.duration

    @cached_property
    def devices(self) -> Devices:
        return Devices.of_report(self.attributed)

    @cached_property
    def gpus(self) -> Table:
        """One row per GPU, as in `bridge report --by device`."""
        return by_device(self.attributed)

    @cached_property
    def span_ns(self) -> int:
        """The longest span of a GPU, from its first counted work to its last."""
        return int(self.gpus["span_ns"].max()) if len(self.gpus) else 0

    def span_of(self, gpu: int) -> int:
        """Return the span of a GPU, by its number in `Devices`, from its first counted work to its last in ns."""
        of_gpu = self.gpus["span_ns"][self.gpus["device"] == self.devices.names[gpu]]
        return int(of_gpu.max()) if len(of_gpu) else 0

    @cached_property
    def wall_ns(self) -> int:
        """Length of the run, or of its selected part; of several runs the longest.

        Without a timeline it is the time of all kernels.
        """
        if not no_timeline.has_timeline(self.capture):
            return int(self.time[self.counted].sum())
        return max((run.part.length for run in runs(self.attributed)), default=0)

    @cached_property
    def occupancy(self) -> Occupancy:
        """Estimated occupancy of each activity."""
        return Occupancy.of(self.attributed)

    @cached_property
    def capability(self) -> Floats:
        """Compute capability of the GPU of each activity, such as 8.6; -1 if unknown."""
        devices = self.capture.devices
        major, minor = (devices[f"compute_{c}"] for c in ("major", "minor"))
        of_device = np.append(np.where(major > 0, major + minor / 10, NONE), NONE)
        tables = (devices, self.capture.activities)
        keys = [np.concatenate([t[c] for t in tables]) for c in ("report", "process", "device")]
        code, _ = number_groups(*keys)
        row = scatter(
            np.arange(len(devices)), code[: len(devices)], int(code.max(initial=NONE)) + 1
        )
        result: Floats = of_device[row[code[len(devices) :]]]
        return result

    @cached_property
    def call_time(self) -> Ints:
        """Duration of each API call, per call."""
        return call_ends(self.attributed) - self.capture.launches.start

    def calls_matching(self, pattern: re.Pattern[str]) -> Flags:
        """Return whether each API call is counted and its name matches, per call."""
        flags: Flags = (
            kinds.calls_matching(self.attributed, pattern) & self.attributed.counted_launches
        )
        return flags

    def sums_under(self, values: Ints | Flags) -> Ints:
        """Return the sum of values of activities under each node of the nesting."""
        node, nesting = self.attributed.node, self.attributed.attribution.nesting
        has_node = node != NONE
        return subtree_sums(
            nesting, sums(node[has_node], values[has_node].astype(np.int64), len(nesting))
        )

    def nodes_with_op(self, matches: Callable[[str], object], *, anywhere: bool = False) -> Flags:
        """Return whether each node is counted and has an op whose name matches.

        With ``anywhere`` nodes outside of the selected time match, too.
        """
        is_match = np.array([*(bool(matches(op)) for op in self.attributed.ops), False], bool)
        is_candidate = self.attributed.nodes_in_direction if anywhere else self.attributed.listed
        flags: Flags = is_match[self.attributed.node_op] & is_candidate
        return flags

    def is_inside(self, nodes: Flags) -> Flags:
        """Return whether each node is one of these nodes or inside one."""
        if not nodes.any():
            return nodes.copy()
        result: Flags = nearest(self.attributed.attribution.nesting.parent, nodes) != NONE
        return result

    def with_ancestors(self, nodes: Flags) -> Ints:
        """Return these nodes and all nodes around them."""
        parent = self.attributed.attribution.nesting.parent
        return np.flatnonzero(folded(parent, nodes.astype(np.int64), np.maximum))

    def outermost(self, nodes: Flags) -> Flags:
        """Return which of these nodes are inside no other of them."""
        parent = self.attributed.attribution.nesting.parent
        result: Flags = nodes & ~np.where(parent == NONE, False, self.is_inside(nodes)[parent])
        return result

    def work_in(self, nodes: Ints) -> Ints:
        """Return the activities that these nodes, or nodes inside them, own."""
        selected = np.zeros(len(self.attributed.attribution.nesting), bool)
        selected[nodes] = True
        return np.flatnonzero(self.owned_by(self.is_inside(selected)))

    def owned_by(self, nodes: Flags) -> Flags:
        """Return whether each activity is counted and owned by one of these nodes."""
        flags: Flags = lookup(nodes, self.attributed.node, False)
        return flags

    def max_work_over_gpus(self, rows: Ints, time: Ints | None = None) -> int:
        """Return the maximum over GPUs of the time of some activities, or of given parts of it.

        The time of a GPU is at most the union of these activities.
        """
        device, size = self.devices.gpu[rows], len(self.devices.names)
        start = self.capture.activities.start[rows]
        total = sums(device, self.time[rows] if time is None else time, size)
        busy = busy_time(device, start, self.attributed.end[rows], size)
        return int(np.minimum(total, busy).max(initial=0))

    def max_over_threads(self, threads: Ints, time: Ints) -> int:
        """Return the maximum over threads of the sum of times."""
        if not len(threads):
            return 0
        distinct, position = np.unique(threads, return_inverse=True)
        return int(sums(position, time, len(distinct)).max())

    @cached_property
    def memory_samples(self) -> Table:
        """The samples of allocated memory: columns name, process, report, value (bytes)."""
        return samples(self.attributed)
