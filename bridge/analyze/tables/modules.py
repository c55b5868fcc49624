"""Tables that bring forward and backward work together: per module, and per forward op."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from bridge.analyze.calltree import own_time, repeated, subtree_sums
from bridge.analyze.groups import counts, ratio, sums, texts
from bridge.join.arrays import NONE, Flags, Ints, number
from bridge.join.attributed import Attributed
from bridge.join.autograd import inherited
from importers import frames

NO_MODULE = "(no module)"


@dataclass(frozen=True)
class Work:
    """Per activity with an op: the node it belongs to (backward work: the forward range's), its time in ns.

    ``ambiguous`` work was led to its forward range by a choice between several threads.
    """

    node: Ints
    time: Ints
    is_kernel: Flags
    backward: Flags
    ambiguous: Flags

    @classmethod
    def of(cls, joined: Attributed) -> Work:
        """Lead every activity to the node that it belongs to."""
        rows = np.flatnonzero(joined.node != NONE)
        node, found = joined.node[rows], joined.directions
        is_kernel = frames.is_kind(joined.report.activities, frames.KERNEL)[rows]
        return cls(
            joined.belongs[node],
            joined.duration[rows],
            is_kernel,
            found.backward[node],
            found.ambiguous[node],
        )

    def columns(self, group: Ints, groups: int, whole: int) -> dict[str, Ints | np.ndarray]:
        """Return the figures of each group; ``share`` is of ``whole``."""
        own = sums(group, self.time, groups)
        back = sums(group[self.backward], self.time[self.backward], groups)
        guessed = sums(group[self.ambiguous], self.time[self.ambiguous], groups)
        return {
            "kernels": counts(group[self.is_kernel], groups),
            "gpu_forward_ns": own - back,
            "gpu_backward_ns": back,
            "gpu_self_ns": own,
            "ambiguous_ns": guessed,
            "share": ratio(own, whole),
        }


def by_module(joined: Attributed) -> pd.DataFrame:
    """Return one row per path of modules: forward and backward time of itself, total with those in it, and on the host.

    Work in no module is in the row `NO_MODULE`.
    """
    work, modules = Work.of(joined), joined.modules
    none = len(modules.paths)
    place = modules.of[work.node]
    path = np.where(place == NONE, none, np.append(modules.path, none)[place])
    columns = work.columns(path, none + 1, joined.whole_ns)
    total = _totals(joined, place, work.time)
    table = {
        "module": texts([*modules.paths, NO_MODULE]),
        "calls": _calls(joined, none + 1),
        **columns,
        "gpu_total_ns": np.append(total, columns["gpu_self_ns"][none]),
        **_cpu(joined),
    }
    found = pd.DataFrame(table)[list(MODULE)]
    there = (found["calls"] > 0) | (found["gpu_total_ns"] > 0) | (found["cpu_self_ns"] > 0)
    return found[there].reset_index(drop=True)


def by_forward_op(joined: Attributed) -> pd.DataFrame:
    """Return one row per op: its forward work, and the backward work that belongs to it.

    Both count for the innermost op around them that the backward pass ever goes back to, so that they
    can be compared: ``aten::convolution``, not what it calls. Where there is none, for their own.
    """
    work, groups = Work.of(joined), len(joined.ops)
    nesting, op = joined.attribution.nesting, joined.node_op
    goes_back = np.zeros(groups, bool)
    goes_back[joined.op[joined.directions.forward[joined.directions.forward != NONE]]] = True
    around = inherited(nesting, np.where(goes_back[op], op, NONE))
    own = np.where(around == NONE, op, around)
    columns = work.columns(own[work.node], groups, joined.whole_ns)
    call = joined.call
    rows = np.flatnonzero(call != NONE)
    _, once = number(call[rows])
    calls = counts(joined.op[rows[once]], groups)
    table = pd.DataFrame({"op": texts(joined.ops), "calls": calls, **columns})[list(FORWARD)]
    return table[table["gpu_self_ns"] > 0].reset_index(drop=True)


FIGURES = ("kernels", "gpu_forward_ns", "gpu_backward_ns", "gpu_self_ns")
MODULE = (
    *("module", "calls", *FIGURES, "gpu_total_ns", "cpu_self_ns", "cpu_total_ns"),
    *("ambiguous_ns", "share"),
)
FORWARD = ("op", "calls", *FIGURES, "ambiguous_ns", "share")


def _totals(joined: Attributed, place: Ints, time: Ints) -> Ints:
    """Return the time of each path of modules and of what is in it, once however often it recurs."""
    modules = joined.modules
    own = sums(place[place != NONE], time[place != NONE], len(modules.nesting))
    once = ~repeated(modules.nesting, modules.path)
    inner = subtree_sums(modules.nesting, own)
    return sums(modules.path[once], inner[once], len(modules.paths))


def _cpu(joined: Attributed) -> dict[str, Ints]:
    """Return the time on the host of each path and of what is in it, and of all ranges that are in no module."""
    modules, nesting, listed = joined.modules, joined.attribution.nesting, joined.listed
    none = len(modules.paths)
    own = sums(
        np.append(modules.path, none)[modules.of][listed], own_time(nesting)[listed], none + 1
    )
    inner = modules.nesting
    once = ~repeated(inner, modules.path) & joined.counted_ranges[inner.range]
    total = sums(modules.path[once], (inner.end - inner.start)[once], none)
    return {"cpu_self_ns": own, "cpu_total_ns": np.append(total, own[none])}


def _calls(joined: Attributed, groups: int) -> Ints:
    """Return how many calls each path of modules has."""
    modules = joined.modules
    call = joined.call[modules.nesting.range]
    listed = np.flatnonzero(call != NONE)
    _, once = number(modules.path[listed], call[listed])
    return counts(modules.path[listed[once]], groups)
