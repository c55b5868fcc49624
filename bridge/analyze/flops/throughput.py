"""What groups of ranges compute and move, in how much time on the GPU, and how near that is to what the GPUs can do.

The invariant: a rate is of the time of the very calls whose FLOPs or bytes are counted: the sum over the work
under them, on whatever streams it ran. What is not known of any call is -1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bridge.analyze.flops.calls import MOST_BYTES, NO_FORMULA, RECORDED, TOO_LITTLE, Known
from bridge.analyze.flops.costs import Costs
from bridge.analyze.groups import Floats, texts
from bridge.analyze.metrics.flop_counters import Counted
from bridge.analyze.metrics.values import SURE
from bridge.join.arrays import NONE, Flags, Ints, number
from bridge.join.attributed import Attributed
from bridge.join.nesting import Nesting
from bridge.knowledge.formulas.conventions import OURS
from bridge.knowledge.hardware import DTYPES, Peaks
from importers import frames

# -- Sums over the tree of ranges in which what a call says of itself counts before what is in it


class Tree:
    """A nesting whose levels are found once."""

    def __init__(self, nesting: Nesting) -> None:
        self.nesting = nesting

    @cached_property
    def levels(self) -> list[Ints]:
        """The nodes of each level but the top one, deepest first."""
        level = self.nesting.levels()
        deepest = int(level.max(initial=0))
        return [np.flatnonzero(level == depth) for depth in range(deepest, 0, -1)]

    def totals(self, known: Flags, value: Floats) -> Floats:
        """Return each node's own value where it is known, else the sum of its children's."""
        return self.handed_up(np.where(known, value, 0.0), known)

    def handed_up(self, value: Floats, known: Flags) -> Floats:
        """Return each node's own value and what its children hand up, which known ones do not take."""
        total = value.copy()
        for nodes in self.levels:
            parent = self.nesting.parent[nodes]
            up = np.flatnonzero(~known[parent])
            np.add.at(total, parent[up], total[nodes[up]])
        return total

    def has(self, known: Flags) -> Flags:
        """Tell which nodes have a known one in them, or are one."""
        found = known.copy()
        for nodes in self.levels:
            found[self.nesting.parent[nodes[found[nodes]]]] = True
        return found

    def covered(self, known: Flags) -> Flags:
        """Tell which nodes are known, or lie in one that is."""
        found = known.copy()
        for nodes in self.levels[::-1]:
            found[nodes] |= found[self.nesting.parent[nodes]]
        return found

    def outermost(self, known: Flags) -> Flags:
        """Tell which known nodes lie in no other known one."""
        around = np.append(self.covered(known), False)[self.nesting.parent]
        outer: Flags = known & ~around
        return outer


def of_nodes(nesting: Nesting, first: Ints, of_range: Floats) -> Floats:
    """Return a value of ranges per node: of several nodes of a range, or slices of a call, at the first alone."""
    value = np.zeros(len(nesting))
    there = first[first != NONE]
    value[there] = of_range[nesting.range[there]]
    return value


# -- What the kernels of calls were measured to compute and to move, before what is recorded or computed of the calls


MEASURED = "measured"
SURE_ENOUGH = ("call", "path")


def kernels_of(joined: Attributed) -> Ints:
    """Return the measured kernel that each activity surely is, or NONE."""
    metrics, none = joined.report.metrics, np.full(len(joined.report.activities), NONE)
    if not len(metrics.of):
        return none
    if not len(metrics.sure):
        return metrics.of
    sure = metrics.sure <= max(SURE.index(word) for word in SURE_ENOUGH)
    return np.where(sure, metrics.of, NONE)


def best(joined: Attributed, costs: Costs) -> Known:
    """Return what calls cost: as measured, else as recorded, else by formula; as others count without the first two."""
    known = Known.of(joined, costs.convention, costs.dtype)
    return with_measured(joined, known) if costs.convention == OURS else known


def with_measured(joined: Attributed, known: Known) -> Known:
    """Return what calls cost, as measured where all their kernels were."""
    if not len(joined.report.metrics):
        return known
    counted, kernel = Counted(joined.report.metrics), kernels_of(joined)
    flops, dtype = (np.append(column, none)[kernel] for column, none in (
        (counted.flops, np.nan), (counted.dtype, NONE)
    ))  # fmt: skip
    moved = np.append(counted.bytes_of("DRAM"), np.nan)[kernel]
    total, told = _of_calls(joined, flops)
    size, sized = _of_calls(joined, moved)
    text = len(known.formulas)
    return replace(
        known,
        flops=np.where(told, total, known.flops),
        bytes=np.where(sized, np.rint(size), known.bytes),
        formula=np.where(told, text, known.formula),
        dtype=np.where(told & (total > 0), _most(joined, dtype, flops), known.dtype),
        formulas=[*known.formulas, MEASURED],
    )


def _of_calls(joined: Attributed, of_kernel: Floats) -> tuple[Floats, Flags]:
    """Return per range the sum over all kernels of its call, and whether each of them has a figure."""
    works = frames.is_kind(joined.report.activities, frames.KERNEL, frames.GRAPH)
    there = ~np.isnan(of_kernel)
    kernels = _summed(joined, works.astype(np.float64))
    known = _summed(joined, (works & there).astype(np.float64))
    total = _summed(joined, np.where(works & there, of_kernel, 0.0))
    return total, (kernels > 0) & (kernels == known)


def _summed(joined: Attributed, values: Floats) -> Floats:
    """Sum something of activities over all that is under each range, or any slice of its call."""
    node, nesting = joined.attribution.node, joined.attribution.nesting
    own = np.zeros(len(nesting))
    has = node != NONE
    np.add.at(own, node[has], values[has])
    under = Tree(nesting).handed_up(own, np.zeros(len(nesting), bool))
    call = joined.call[nesting.range]
    of_call = np.zeros(int(joined.call.max(initial=NONE)) + 2)
    listed = call != NONE
    np.add.at(of_call, call[listed], under[listed])
    of_call[NONE] = 0.0
    found: Floats = of_call[joined.call]
    return found


def _most(joined: Attributed, dtype: Ints, flops: Floats) -> Ints:
    """Return per range the dtype in which most is computed under its call."""
    used = np.unique(dtype[dtype != NONE])
    if not len(used):
        return np.full(len(joined.report.ranges), NONE)
    sums = [_summed(joined, np.where(dtype == one, np.nan_to_num(flops), 0.0)) for one in used]
    found: Ints = used[np.argmax(sums, axis=0)]
    return found


# -- What the GPUs of each process can do at most, by dtype, for what its ranges compute


FP32, TF32 = DTYPES.index("fp32"), DTYPES.index("tf32")
Key = tuple[int, int]  # report and process


@dataclass(frozen=True)
class Limits:
    """What the GPUs can do that each (report, process) used: those of one process that differ say nothing."""

    by_process: dict[Key, Peaks]
    costs: Costs

    @classmethod
    def of(cls, joined: Attributed, costs: Costs) -> Limits:
        """Look up every device that the report lists."""
        found: dict[Key, list[Peaks]] = {}
        for key, name, facts in _devices(joined):  # a turn per device of a process
            found.setdefault(key, []).append(costs.peaks(name, facts))
        if costs.peak_tflops is not None or costs.peak_gbs is not None:
            for key in _processes(joined):
                found.setdefault(key, [costs.peaks("", {})])
        alike = {key: peaks for key, peaks in found.items() if all(p == peaks[0] for p in peaks)}
        return cls({key: peaks[0] for key, peaks in alike.items()}, costs)

    def dtypes(self, dtype: Ints) -> Ints:
        """Return the dtype that is computed in, of those that calls say (codes of `DTYPES`, or NONE)."""
        if not self.costs.dtype:
            return dtype
        asked = DTYPES.index(self.costs.dtype)
        instead = (dtype == NONE) | ((dtype == FP32) & (asked == TF32))
        return np.where(instead, asked, dtype)

    def tflops(self, joined: Attributed, dtype: Ints) -> Floats:
        """Return the peak for each range in its dtype, in TFLOP/s; NaN where not known."""
        codes, peaks = self._of_ranges(joined)
        table = np.array([[*(p.of(d) or np.nan for d in DTYPES), np.nan] for p in peaks])
        if self.costs.peak_tflops is not None:
            table[:-1, -1] = self.costs.peak_tflops  # whatever the dtype
        found: Floats = table[codes, self.dtypes(dtype)]
        return found

    def gb_per_s(self, joined: Attributed) -> Floats:
        """Return the memory bandwidth for each range in GB/s; NaN where not known."""
        codes, peaks = self._of_ranges(joined)
        found: Floats = np.array([p.gb_per_s or np.nan for p in peaks])[codes]
        return found

    def _of_ranges(self, joined: Attributed) -> tuple[Ints, list[Peaks]]:
        """Return a code per range and the peaks; the last are of those without."""
        ranges = joined.report.ranges
        report, process = (frames.ints(ranges, c) for c in ("report", "process"))
        peaks = [*self.by_process.values(), Peaks()]
        code = np.full(len(ranges), len(peaks) - 1)
        for n, (of, pid) in enumerate(self.by_process):  # a turn per process
            code[(report == of) & (process == pid)] = n
        return code, peaks


def _devices(joined: Attributed) -> Iterator[tuple[Key, str, dict[str, int]]]:
    """Give (report, process), name and facts of each device that the report lists."""
    devices = joined.report.devices
    facts = {name: frames.ints(devices, name).tolist() for name in frames.DEVICE_FACTS}
    keys = zip(*(frames.ints(devices, c).tolist() for c in ("report", "process")), strict=True)
    for row, (key, name) in enumerate(zip(keys, devices["name"].astype(str).tolist(), strict=True)):
        yield key, name, {fact: values[row] for fact, values in facts.items()}


def _processes(joined: Attributed) -> list[Key]:
    ranges = joined.report.ranges[["report", "process"]].drop_duplicates()
    columns = (frames.ints(ranges, c).tolist() for c in ("report", "process"))
    return list(zip(*columns, strict=True))


# -- What groups of ranges compute and move, in how much time on the GPU, and how near that is to what the GPUs can do


FLOPS = ("flop", "flop_once", "counted_ns", "tflop_per_s", "uncounted")
BYTES = ("moved_bytes", "gb_per_s")
INTENSITY = ("intensity",)
PEAK = ("peak_share", "bandwidth_share")
FORMULA = ("formula",)
UNKNOWN = (NO_FORMULA, TOO_LITTLE)
OF_ITS_OPS = "of its ops"
SEVERAL = 3  # formulas that are named; of more as many, and dots
TERA, GIGA, NS = 1e12, 1e9, 1e9
Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class Rated:
    """Per group: a sum, whether it is known, the time of the work of the calls that are in it, how many others there are."""

    total: Floats
    there: Flags
    spent: Ints
    uncounted: Ints

    def per(self, amount: Ints | Floats, unit: float = 1.0) -> Floats:
        """Return how much there is of it per amount, -1 where that is not known."""
        known = self.there & (amount > 0)
        found: Floats = np.divide(
            self.total * unit, amount, out=np.full(len(amount), -1.0), where=known
        )
        return found


@dataclass(frozen=True)
class Reached:
    """Groups of ranges: the group of each node and of each call, which nodes count for it, and the time under each."""

    joined: Attributed
    count: int
    of_node: Ints
    of_call: Ints
    outer: Flags
    node_ns: Ints
    costs: Costs

    @cached_property
    def known(self) -> Known:
        """What each range says of its cost."""
        return best(self.joined, self.costs)

    @cached_property
    def tree(self) -> Tree:
        """The tree of ranges."""
        return Tree(self.joined.attribution.nesting)

    @cached_property
    def first(self) -> Ints:
        """The node at which each call counts, of several the first in time; NONE for one without."""
        nesting, call = self.joined.attribution.nesting, self.joined.call
        nodes = np.flatnonzero(call[nesting.range] != NONE)
        nodes = nodes[np.argsort(nesting.start[nodes], kind="stable")[::-1]]
        found = np.full(len(self.of_call), NONE)
        found[call[nesting.range[nodes]]] = nodes
        return found

    def computed(self) -> Columns:
        """Return the columns `FLOPS`."""
        found = self._rated(self.known.flops)
        outermost = self.tree.outermost(self.has(self.known.flops))
        once = np.where(outermost, self.values(self.known.flops), 0.0)
        listed = np.flatnonzero(self.of_node != NONE)
        alone = _sums(self.of_node[listed], once[listed], self.count)
        return {
            "flop": np.where(found.there, found.total, NONE),
            "flop_once": np.where(found.there, alone, NONE),
            "counted_ns": found.spent,
            "tflop_per_s": found.per(found.spent, NS / TERA),
            "uncounted": found.uncounted,
        }

    def moved(self) -> Columns:
        """Return the columns `BYTES`."""
        found = self._rated(self.known.bytes)
        told = found.there & (found.total < MOST_BYTES)
        return {
            "moved_bytes": np.where(told, found.total, NONE).astype(np.int64),
            "gb_per_s": found.per(found.spent, NS / GIGA),
        }

    def intensity(self) -> Columns:
        """Return FLOPs per byte, of the calls that say both."""
        both = (self.known.flops >= 0) & (self.known.bytes >= 0)
        flops, moved = (
            self._rated(np.where(both, one, NONE)) for one in (self.known.flops, self.known.bytes)
        )
        return {"intensity": flops.per(moved.total)}

    def shares(self) -> Columns:
        """Return the columns `PEAK`: the least time that the GPUs could take, as a share of the time taken."""
        limits = Limits.of(self.joined, self.costs)
        tflops = limits.tflops(self.joined, self.known.dtype)
        gb_per_s = limits.gb_per_s(self.joined)
        compute = _least(self.known.flops, tflops * (TERA / NS))
        memory = _least(self.known.bytes, gb_per_s * (GIGA / NS))
        rated = zip(PEAK, map(self._rated, (compute, memory)), strict=True)
        return {column: found.per(found.spent) for column, found in rated}

    def formulas(self) -> Columns:
        """Return how each group's calls are counted, or why they are not."""
        own = self.has(self.known.flops)
        total = self.tree.totals(own, self.values(self.known.flops))
        calls = np.flatnonzero((self.of_call != NONE) & (self.first != NONE))
        node, group = self.first[calls], self.of_call[calls]
        names = [*self.known.formulas, OF_ITS_OPS]
        code = self.by_call(self.known.formula)[calls]
        code = np.where(~own[node] & (total[node] > 0), len(names) - 1, code)
        _, rows = number(group, code)
        said: list[list[str]] = [[] for _ in range(self.count)]
        for row in rows.tolist():  # a turn per group and formula
            said[group[row]].append(names[code[row]])
        return {"formula": texts(map(_named, said))}

    def _rated(self, of_range: Floats) -> Rated:
        """Add up what calls say of themselves, and the time of the work of those that do."""
        own = self.has(of_range)
        return self._rated_of(of_range, own) if own.any() else self.nothing

    @cached_property
    def nothing(self) -> Rated:
        """What there is where no call says anything, whatever is asked."""
        nodes = np.zeros(len(self.node_ns), bool)
        return self._rated_of(np.full(len(self.joined.op), float(NONE)), nodes)

    def _rated_of(self, of_range: Floats, own: Flags) -> Rated:
        listed = np.flatnonzero(self.outer)
        group = self.of_node[listed]

        def summed(of_node: Floats) -> Floats:
            return _sums(group, of_node[listed], self.count)

        total = summed(self.tree.totals(own, self.values(of_range)))
        time = self.tree.totals(own, self.node_ns.astype(np.float64))
        spent = summed(time).round().astype(np.int64)
        left = summed(self.tree.handed_up(self.left(own), own)).astype(np.int64)
        there = np.zeros(self.count, bool)
        there[group[self.tree.has(own)[listed]]] = True
        # That what is known in it computes nothing says nothing of an op of which something is not known.
        return Rated(total, there & ((total > 0) | (left == 0)), spent, left)

    def left(self, own: Flags) -> Floats:
        """Return 1 for each call that is not known and has work of its own; without any work in the report, no call in it."""
        nesting, call = self.joined.attribution.nesting, self.joined.call
        bare = self.joined.listed & ~own
        if len(self.joined.report.activities):
            bare &= self.works
        else:
            bare[nesting.parent[nesting.parent != NONE]] = False
        there = np.zeros(len(self.first) + 1, bool)
        there[call[nesting.range[bare]]] = True
        nodes = self.first[there[:-1]]
        found = np.zeros(len(nesting))
        found[nodes[nodes != NONE]] = 1
        return found

    @cached_property
    def works(self) -> Flags:
        """The nodes with work of their own."""
        node = self.joined.node
        found = np.zeros(len(self.joined.attribution.nesting), bool)
        found[node[node != NONE]] = True
        return found

    def has(self, of_range: Floats) -> Flags:
        """Tell of each node whether its call says a value."""
        call = self.joined.call[self.joined.attribution.nesting.range]
        known: Flags = np.append(self.by_call(of_range) >= 0, False)[call]
        return known & self.joined.listed

    def values(self, of_range: Floats) -> Floats:
        """Return per node what its call says, at the first of the call's nodes alone."""
        return of_nodes(self.joined.attribution.nesting, self.first, of_range)

    def by_call(self, of_range: np.ndarray) -> np.ndarray:
        """Return what the range says at which each call counts."""
        nesting = self.joined.attribution.nesting
        rows = np.append(nesting.range, NONE)[self.first]
        missing = np.array([NONE], of_range.dtype)
        found: np.ndarray = np.concatenate((of_range, missing))[rows]
        return found


def _least(amount: Floats, per_ns: Floats) -> Floats:
    """Return the least time in ns for an amount, -1 where it or the limit is not known."""
    found = np.divide(amount, per_ns, out=np.full(len(amount), np.nan), where=per_ns > 0)
    return np.where((amount >= 0) & np.isfinite(found), found, NONE)


def _sums(group: Ints, values: Floats, groups: int) -> Floats:
    """Return each group's sum: FLOPs of a long run are beyond 64 bits, and exact up to 2**53."""
    total = np.zeros(groups)
    np.add.at(total, group, values)
    return total


def _named(said: Sequence[str]) -> str:
    """Return the formulas of a group, those that count first; of many some."""
    order = sorted(
        set(said), key=lambda text: (text in UNKNOWN, text != MEASURED, text != RECORDED, text)
    )
    return ", ".join(order[:SEVERAL]) + (", …" if len(order) > SEVERAL else "") or NO_FORMULA
