"""Tables that relate forward and backward work: per module, and per forward op."""

from __future__ import annotations

import numpy as np

from bridge.analyze.core.calltree import self_times, subtree_sums
from bridge.analyze.core.groups import counts, ratio, sums, texts
from bridge.analyze.core.table import Table
from bridge.importers import frames
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, number_groups
from bridge.join.attributed import AttributedCapture
from bridge.join.forest import is_repeated
from bridge.join.nesting import inherited

NO_MODULE = "(no module)"


@record
class Work:
    """The activities that have an op; a value per activity.

    Attributes:
        owner: the node that owns it.
        node: the node that it belongs to; for backward work, that of the forward range.
        time: its time in ns.
        is_kernel: whether it is a kernel.
        backward: whether it is backward work.
        ambiguous: whether its forward range was chosen among those of several threads.

    """

    owner: Ints
    node: Ints
    time: Ints
    is_kernel: Flags
    backward: Flags
    ambiguous: Flags

    @classmethod
    def of(cls, attributed: AttributedCapture) -> Work:
        """Find the node that each activity belongs to."""
        rows = np.flatnonzero(attributed.node != NONE)
        node, directions = attributed.node[rows], attributed.directions
        is_kernel = attributed.capture.activities.kind.among(frames.KERNEL)[rows]
        return cls(
            owner=node,
            node=attributed.forward_or_own_node[node],
            time=attributed.duration[rows],
            is_kernel=is_kernel,
            backward=directions.backward[node],
            ambiguous=directions.ambiguous[node],
        )

    def columns(self, group: Ints, groups: int, whole_ns: int) -> dict[str, Ints | np.ndarray]:
        """Return the columns of each group; ``share`` is relative to ``whole_ns``."""
        self_time = sums(group, self.time, groups)
        backward_time = sums(group[self.backward], self.time[self.backward], groups)
        ambiguous_time = sums(group[self.ambiguous], self.time[self.ambiguous], groups)
        return {
            "kernels": counts(group[self.is_kernel], groups),
            "gpu_forward_ns": self_time - backward_time,
            "gpu_backward_ns": backward_time,
            "gpu_self_ns": self_time,
            "ambiguous_ns": ambiguous_time,
            "share": ratio(self_time, whole_ns),
        }


def by_module(attributed: AttributedCapture) -> Table:
    """Return one row per path of modules.

    Columns: forward and backward GPU time of the module itself, GPU total with the modules inside
    it, and time on the host. Work in no module is in the row `NO_MODULE`.
    """
    work, modules = Work.of(attributed), attributed.modules
    no_module = len(modules.paths)
    place = attributed.module_of_work[work.owner]
    path = np.where(place == NONE, no_module, np.append(modules.path, no_module)[place])
    columns = work.columns(path, no_module + 1, attributed.whole_ns)
    total = _totals(attributed, place, work.time)
    table = {
        "module": texts([*modules.paths, NO_MODULE]),
        "calls": _calls(attributed, no_module + 1),
        **columns,
        "gpu_total_ns": np.append(total, columns["gpu_self_ns"][no_module]),
        **_cpu(attributed),
    }
    rows = Table(table)[list(MODULE)]
    has_work = (rows["calls"] > 0) | (rows["gpu_total_ns"] > 0) | (rows["cpu_self_ns"] > 0)
    return rows[has_work]


def by_forward_op(attributed: AttributedCapture) -> Table:
    """Return one row per op: its forward work, and the backward work that belongs to it.

    Both are counted for the innermost op around them that any backward work belongs to, so that
    they can be compared: ``aten::convolution``, not the ops that it calls. Without such an op, they
    are counted for their own op. So are times on the host; a report without activities has the ops
    that took any.
    """
    work = Work.of(attributed)
    groups = len(attributed.ops)
    nesting, op = attributed.attribution.nesting, attributed.node_op
    has_backward = np.zeros(groups, bool)
    has_backward[
        attributed.op[attributed.directions.forward[attributed.directions.forward != NONE]]
    ] = True
    comparable_op = inherited(nesting, np.where(has_backward[op], op, NONE))
    op_code = np.where(comparable_op == NONE, op, comparable_op)
    columns = work.columns(op_code[work.node], groups, attributed.whole_ns)
    call = attributed.call
    rows = np.flatnonzero(call != NONE)
    _, first = number_groups(call[rows])
    calls = counts(attributed.op[rows[first]], groups)
    cpu = _cpu_of_directions(attributed, op_code, groups)
    table = Table({"op": texts(attributed.ops), "calls": calls, **columns, **cpu})
    spent = "gpu_self_ns" if len(attributed.capture.activities) else "cpu_self_ns"
    return table[table[spent] > 0][list(FORWARD)]


def _cpu_of_directions(
    attributed: AttributedCapture, op_code: Ints, groups: int
) -> dict[str, Ints]:
    """Return the forward and backward time on the host of each op; ``op_code`` is that of a node."""
    nodes = np.flatnonzero(attributed.listed & (attributed.node_op != NONE))
    time = self_times(attributed.attribution.nesting)[nodes]
    op = op_code[attributed.forward_or_own_node[nodes]]
    is_backward = attributed.directions.backward[nodes]
    total = sums(op, time, groups)
    backward = sums(op[is_backward], time[is_backward], groups)
    return {
        "cpu_forward_ns": total - backward,
        "cpu_backward_ns": backward,
        "cpu_self_ns": total,
    }


FIGURES = ("kernels", "gpu_forward_ns", "gpu_backward_ns", "gpu_self_ns")
MODULE = (
    *("module", "calls", *FIGURES, "gpu_total_ns", "cpu_self_ns", "cpu_total_ns"),
    *("ambiguous_ns", "share"),
)
CPU_FIGURES = ("cpu_forward_ns", "cpu_backward_ns", "cpu_self_ns")
FORWARD = ("op", "calls", *FIGURES, *CPU_FIGURES, "ambiguous_ns", "share")


def _totals(attributed: AttributedCapture, place: Ints, time: Ints) -> Ints:
    """Return the GPU time of each path of modules and all inside it; recursion is counted once."""
    modules = attributed.modules
    self_time = sums(place[place != NONE], time[place != NONE], len(modules.nesting))
    is_counted = ~is_repeated(modules.nesting.parent, modules.path)
    total = subtree_sums(modules.nesting, self_time)
    return sums(modules.path[is_counted], total[is_counted], len(modules.paths))


def _cpu(attributed: AttributedCapture) -> dict[str, Ints]:
    """Return the time on the host of each path of modules, and of all ranges in no module."""
    modules, nesting, listed = attributed.modules, attributed.attribution.nesting, attributed.listed
    no_module = len(modules.paths)
    self_time = sums(
        np.append(modules.path, no_module)[modules.nearest][listed],
        self_times(nesting)[listed],
        no_module + 1,
    )
    inner = modules.nesting
    is_counted = ~is_repeated(inner.parent, modules.path) & attributed.counted_ranges[inner.range]
    total = sums(modules.path[is_counted], (inner.end - inner.start)[is_counted], no_module)
    return {"cpu_self_ns": self_time, "cpu_total_ns": np.append(total, self_time[no_module])}


def _calls(attributed: AttributedCapture, groups: int) -> Ints:
    """Return the number of calls of each path of modules."""
    modules = attributed.modules
    call = attributed.call[modules.nesting.range]
    listed = np.flatnonzero(call != NONE)
    _, first = number_groups(modules.path[listed], call[listed])
    return counts(modules.path[listed[first]], groups)
