"""Compute FLOPs, bytes and rates of groups of ranges, and the fraction of the GPUs' peaks.

A rate relates to the time of exactly those calls whose FLOPs or bytes are counted: the sum over the
work under them, on all streams. Values that are unknown for all calls are -1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from bridge.analyze.core.groups import Floats, texts
from bridge.analyze.cost.flops.calls import MAX_BYTES, NO_FORMULA, RECORDED, TOO_LITTLE, RangeCosts
from bridge.analyze.cost.metrics.flop_counters import FlopCounts
from bridge.analyze.cost.metrics.values import MATCH_LEVELS
from bridge.importers import frames
from bridge.importers.arrays import lookup, scatter
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, number_groups
from bridge.join.attributed import AttributedCapture
from bridge.join.forest import folded, nearest
from bridge.join.nesting import Nesting
from bridge.knowledge.formulas.conventions import NAMES, OURS
from bridge.knowledge.hardware import DTYPES, Catalogue, Peaks, catalogue
from bridge.knowledge.suggestions import unknown_name

# -- Options


@record
class Costs:
    """Options for counting FLOPs, and the peaks to compare with.

    ``convention`` is one of bridge.knowledge.formulas.conventions.NAMES. ``dtype`` (of `DTYPES`) is
    that of calls without a dtype; "tf32" also replaces float32. ``peak_tflops`` and ``peak_gbs``
    replace the known peaks of all GPUs, in every dtype; ``gpus`` has precedence over the built-in
    catalogue. Raises ValueError for an unknown convention or dtype.
    """

    convention: str = OURS
    dtype: str = ""
    peak_tflops: float | None = None
    peak_gbs: float | None = None
    gpus: Catalogue | None = None

    def __post_init__(self) -> None:
        if self.convention not in NAMES:
            raise ValueError(unknown_name("convention", self.convention, NAMES))
        if self.dtype and self.dtype not in DTYPES:
            raise ValueError(unknown_name("dtype", self.dtype, DTYPES))

    def peaks(self, name: str, facts: dict[str, int]) -> Peaks:
        """Return the peaks of a device, as requested or as known."""
        recorded = (self.gpus + catalogue() if self.gpus else catalogue()).peaks(name, facts)
        if self.peak_tflops is None and self.peak_gbs is None:
            return recorded
        tflops = recorded.tflops
        if self.peak_tflops is not None:
            tflops = dict.fromkeys(DTYPES, self.peak_tflops)
        return Peaks(tflops, self.peak_gbs or recorded.gb_per_s, "as asked for")


# -- Sums over the tree of ranges, in which the value of a call replaces those in it


class CostTree:
    """The nodes of a nesting, for sums in which a node's own value replaces those in it."""

    def __init__(self, nesting: Nesting) -> None:
        self.nesting = nesting

    def totals(self, is_known: Flags, value: Floats) -> Floats:
        """Return the value of each node where it is known, else the sum of its children."""
        return self.propagate(np.where(is_known, value, 0.0), is_known)

    def propagate(self, value: Floats, is_known: Flags) -> Floats:
        """Return the value of each node plus those of its children; known nodes take none."""
        parent = self.nesting.parent
        return folded(np.where(lookup(is_known, parent, True), NONE, parent), value)

    def has(self, is_known: Flags) -> Flags:
        """Return whether each node is known or contains a known one."""
        return folded(self.nesting.parent, is_known, np.logical_or)

    def covered(self, is_known: Flags) -> Flags:
        """Return whether each node is known or lies in a known one."""
        result: Flags = nearest(self.nesting.parent, is_known) != NONE
        return result

    def outermost(self, is_known: Flags) -> Flags:
        """Return whether each node is known and lies in no other known one."""
        is_inside = lookup(self.covered(is_known), self.nesting.parent, False)
        result: Flags = is_known & ~is_inside
        return result


def values_at_nodes(nesting: Nesting, first: Ints, values: Floats) -> Floats:
    """Return a value of ranges per node.

    If a range or call has several nodes, only the first has the value.
    """
    result = np.zeros(len(nesting))
    nodes_with_call = first[first != NONE]
    result[nodes_with_call] = values[nesting.range[nodes_with_call]]
    return result


# -- Costs measured by Nsight Compute


MEASURED = "measured"
CERTAIN_MATCHES = ("call", "path")


def measured_kernels(attributed: AttributedCapture) -> Ints:
    """Return the measured kernel of each activity if the match is certain, else NONE."""
    metrics, none = attributed.capture.metrics, np.full(len(attributed.capture.activities), NONE)
    if not len(metrics.of):
        return none
    if not len(metrics.sure):
        return metrics.of
    sure = metrics.sure <= max(MATCH_LEVELS.index(word) for word in CERTAIN_MATCHES)
    return np.where(sure, metrics.of, NONE)


def best_costs(attributed: AttributedCapture, costs: Costs) -> RangeCosts:
    """Return the costs of calls: as measured, else as recorded, else by formula.

    By a convention other than ours, only formulas count.
    """
    known = RangeCosts.of(attributed, costs.convention, costs.dtype)
    return with_measured(attributed, known) if costs.convention == OURS else known


def with_measured(attributed: AttributedCapture, costs: RangeCosts) -> RangeCosts:
    """Return costs with measured values for calls whose kernels were all measured."""
    if not len(attributed.capture.metrics):
        return costs
    counted = FlopCounts(attributed.capture.metrics)
    kernel = measured_kernels(attributed)
    flops = np.append(counted.flops, np.nan)[kernel]
    dtype = lookup(counted.dtype, kernel)
    kernel_bytes = np.append(counted.bytes_of("DRAM"), np.nan)[kernel]
    total, has_flops = _sums_of_calls(attributed, flops)
    byte_total, has_bytes = _sums_of_calls(attributed, kernel_bytes)
    measured_code = len(costs.formulas)
    return replace(
        costs,
        flops=np.where(has_flops, total, costs.flops),
        bytes=np.where(has_bytes, np.rint(byte_total), costs.bytes),
        formula=np.where(has_flops, measured_code, costs.formula),
        dtype=np.where(
            has_flops & (total > 0), _main_dtypes(attributed, dtype, flops), costs.dtype
        ),
        formulas=[*costs.formulas, MEASURED],
    )


def _sums_of_calls(attributed: AttributedCapture, values: Floats) -> tuple[Floats, Flags]:
    """Return per range the sum over the kernels of its call, and whether all have a value."""
    is_work = attributed.capture.activities.kind.among(frames.KERNEL, frames.GRAPH)
    has_value = ~np.isnan(values)
    kernels = _sum_under_calls(attributed, is_work.astype(np.float64))
    with_value = _sum_under_calls(attributed, (is_work & has_value).astype(np.float64))
    total = _sum_under_calls(attributed, np.where(is_work & has_value, values, 0.0))
    return total, (kernels > 0) & (kernels == with_value)


def _sum_under_calls(attributed: AttributedCapture, values: Floats) -> Floats:
    """Return the sum of values of activities under each range or any slice of its call."""
    node, nesting = attributed.attribution.node, attributed.hierarchy
    at_nodes = np.zeros(len(nesting))
    has_node = node != NONE
    np.add.at(at_nodes, node[has_node], values[has_node])
    totals = CostTree(nesting).propagate(at_nodes, np.zeros(len(nesting), bool))
    call = attributed.call[nesting.range]
    of_call = np.zeros(int(attributed.call.max(initial=NONE)) + 2)
    has_call = call != NONE
    np.add.at(of_call, call[has_call], totals[has_call])
    of_call[NONE] = 0.0
    result: Floats = of_call[attributed.call]
    return result


def _main_dtypes(attributed: AttributedCapture, dtype: Ints, flops: Floats) -> Ints:
    """Return per range the dtype with the most FLOPs under its call."""
    dtypes = np.unique(dtype[dtype != NONE])
    if not len(dtypes):
        return np.full(len(attributed.capture.ranges), NONE)
    sums = [
        _sum_under_calls(attributed, np.where(dtype == code, np.nan_to_num(flops), 0.0))
        for code in dtypes
    ]
    result: Ints = dtypes[np.argmax(sums, axis=0)]
    return result


# -- Peaks of the GPUs


FP32, TF32 = DTYPES.index("fp32"), DTYPES.index("tf32")
Key = tuple[int, int]  # file and process


@record
class Limits:
    """The peaks of the GPUs of each (file, process); a process with different GPUs has none."""

    by_process: dict[Key, Peaks]
    costs: Costs

    @classmethod
    def of(cls, attributed: AttributedCapture, costs: Costs) -> Limits:
        values: dict[Key, list[Peaks]] = {}
        for key, name, facts in _devices(attributed):  # one iteration per device of a process
            values.setdefault(key, []).append(costs.peaks(name, facts))
        if costs.peak_tflops is not None or costs.peak_gbs is not None:
            for key in _processes(attributed):
                values.setdefault(key, [costs.peaks("", {})])
        uniform = {key: peaks for key, peaks in values.items() if all(p == peaks[0] for p in peaks)}
        return cls({key: peaks[0] for key, peaks in uniform.items()}, costs)

    def dtypes(self, dtype: Ints) -> Ints:
        """Return the compute dtype (code of `DTYPES`, or NONE) for the dtypes of calls."""
        if not self.costs.dtype:
            return dtype
        requested = DTYPES.index(self.costs.dtype)
        is_replaced = (dtype == NONE) | ((dtype == FP32) & (requested == TF32))
        return np.where(is_replaced, requested, dtype)

    def tflops(self, attributed: AttributedCapture, dtype: Ints) -> Floats:
        """Return the peak for each range in its dtype, in TFLOP/s; NaN if unknown."""
        codes, peaks = self._of_ranges(attributed)
        table = np.array([[*(p.of(d) or np.nan for d in DTYPES), np.nan] for p in peaks])
        if self.costs.peak_tflops is not None:
            table[:-1, -1] = self.costs.peak_tflops  # for calls without a dtype
        result: Floats = table[codes, self.dtypes(dtype)]
        return result

    def gb_per_s(self, attributed: AttributedCapture) -> Floats:
        """Return the memory bandwidth for each range in GB/s; NaN if unknown."""
        codes, peaks = self._of_ranges(attributed)
        result: Floats = np.array([p.gb_per_s or np.nan for p in peaks])[codes]
        return result

    def _of_ranges(self, attributed: AttributedCapture) -> tuple[Ints, list[Peaks]]:
        """Return a code per range, and the peaks; the last are for unknown GPUs."""
        ranges = attributed.capture.ranges
        report, process = ranges.report, ranges.process
        peaks = [*self.by_process.values(), Peaks()]
        code = np.full(len(ranges), len(peaks) - 1)
        for n, (of, pid) in enumerate(self.by_process):  # one iteration per process
            code[(report == of) & (process == pid)] = n
        return code, peaks


def _devices(attributed: AttributedCapture) -> Iterator[tuple[Key, str, dict[str, int]]]:
    """Yield (file, process), name and facts of each recorded device."""
    devices = attributed.capture.devices
    facts = {name: devices[name].tolist() for name in frames.DEVICE_FACTS}
    keys = zip(devices.report.tolist(), devices.process.tolist(), strict=True)
    for row, (key, name) in enumerate(zip(keys, devices.name, strict=True)):
        yield key, name, {fact: values[row] for fact, values in facts.items()}


def _processes(attributed: AttributedCapture) -> list[Key]:
    ranges = attributed.capture.ranges
    _, rows = frames.distinct_keys(ranges.report, ranges.process)
    return list(zip(ranges.report[rows].tolist(), ranges.process[rows].tolist(), strict=True))


# -- Groups of ranges


FLOPS = ("flop", "flop_once", "counted_ns", "tflop_per_s", "uncounted")
BYTES = ("moved_bytes", "gb_per_s")
INTENSITY = ("intensity",)
PEAK = ("peak_share", "bandwidth_share")
FORMULA = ("formula",)
UNKNOWN = (NO_FORMULA, TOO_LITTLE)
FROM_CHILDREN = "of its ops"
MAX_FORMULAS = 3  # formulas that are listed for a group
TERA, GIGA, NS = 1e12, 1e9, 1e9
Columns = dict[str, np.ndarray]


@record
class Rates:
    """Sums per group.

    ``total`` is the sum, ``is_known`` whether it is known, ``spent`` the time of the counted calls
    in ns, and ``uncounted`` the number of other calls.
    """

    total: Floats
    is_known: Flags
    spent: Ints
    uncounted: Ints

    def per(self, amount: Ints | Floats, unit: float = 1.0) -> Floats:
        """Return the total per amount, -1 where unknown."""
        has_rate = self.is_known & (amount > 0)
        result: Floats = np.divide(
            self.total * unit, amount, out=np.full(len(amount), -1.0), where=has_rate
        )
        return result


@record
class GroupCosts:
    """Costs of groups of ranges.

    ``of_node`` and ``of_call`` are the group of each node and call. ``outer`` is whether a node
    counts for its group, ``node_ns`` the time under it.
    """

    attributed: AttributedCapture
    count: int
    of_node: Ints
    of_call: Ints
    outer: Flags
    node_ns: Ints
    costs: Costs

    @cached_property
    def known(self) -> RangeCosts:
        return best_costs(self.attributed, self.costs)

    @cached_property
    def tree(self) -> CostTree:
        return CostTree(self.attributed.hierarchy)

    @cached_property
    def first(self) -> Ints:
        """The first node in time of each call, at which it counts; NONE if it has none."""
        nesting, call = self.attributed.attribution.nesting, self.attributed.call
        nodes = np.flatnonzero(call[nesting.range] != NONE)
        nodes = nodes[np.argsort(nesting.start[nodes], kind="stable")[::-1]]
        return scatter(nodes, call[nesting.range[nodes]], len(self.of_call))

    def computed(self) -> Columns:
        """Return the columns `FLOPS`."""
        rates = self._rates(self.known.flops)
        outermost = self.tree.outermost(self.has(self.known.flops))
        once = np.where(outermost, self.values(self.known.flops), 0.0)
        listed_nodes = np.flatnonzero(self.of_node != NONE)
        once_total = _sums(self.of_node[listed_nodes], once[listed_nodes], self.count)
        return {
            "flop": np.where(rates.is_known, rates.total, NONE),
            "flop_once": np.where(rates.is_known, once_total, NONE),
            "counted_ns": rates.spent,
            "tflop_per_s": rates.per(rates.spent, NS / TERA),
            "uncounted": rates.uncounted,
        }

    def moved(self) -> Columns:
        """Return the columns `BYTES`."""
        rates = self._rates(self.known.bytes)
        is_known = rates.is_known & (rates.total < MAX_BYTES)
        return {
            "moved_bytes": np.where(is_known, rates.total, NONE).astype(np.int64),
            "gb_per_s": rates.per(rates.spent, NS / GIGA),
        }

    def intensity(self) -> Columns:
        """Return FLOPs per byte, over calls with both values."""
        has_both = (self.known.flops >= 0) & (self.known.bytes >= 0)
        flops_rates, moved = (
            self._rates(np.where(has_both, values, NONE))
            for values in (self.known.flops, self.known.bytes)
        )
        return {"intensity": flops_rates.per(moved.total)}

    def shares(self) -> Columns:
        """Return the columns `PEAK`: the minimum time by the peaks divided by the actual time."""
        limits = Limits.of(self.attributed, self.costs)
        tflops = limits.tflops(self.attributed, self.known.dtype)
        gb_per_s = limits.gb_per_s(self.attributed)
        compute = _min_time(self.known.flops, tflops * (TERA / NS))
        memory = _min_time(self.known.bytes, gb_per_s * (GIGA / NS))
        rated = zip(PEAK, map(self._rates, (compute, memory)), strict=True)
        return {column: rates.per(rates.spent) for column, rates in rated}

    def formulas(self) -> Columns:
        """Return how the calls of each group are counted, or why they are not."""
        has_flops = self.has(self.known.flops)
        total = self.tree.totals(has_flops, self.values(self.known.flops))
        calls = np.flatnonzero((self.of_call != NONE) & (self.first != NONE))
        node, group = self.first[calls], self.of_call[calls]
        names = [*self.known.formulas, FROM_CHILDREN]
        code = self.by_call(self.known.formula)[calls]
        code = np.where(~has_flops[node] & (total[node] > 0), len(names) - 1, code)
        _, rows = number_groups(group, code)
        texts_of_groups: list[list[str]] = [[] for _ in range(self.count)]
        for row in rows.tolist():  # one iteration per group and formula
            texts_of_groups[group[row]].append(names[code[row]])
        return {"formula": texts(map(_formula_text, texts_of_groups))}

    def _rates(self, of_range: Floats) -> Rates:
        """Return sums of a value of calls, and the time of the calls that have it."""
        has_value = self.has(of_range)
        return self._rates_of(of_range, has_value) if has_value.any() else self.no_rates

    @cached_property
    def no_rates(self) -> Rates:
        """The sums where no call has a value."""
        nodes = np.zeros(len(self.node_ns), bool)
        return self._rates_of(np.full(len(self.attributed.op), float(NONE)), nodes)

    def _rates_of(self, of_range: Floats, has_value: Flags) -> Rates:
        nodes = np.flatnonzero(self.outer)
        group = self.of_node[nodes]

        def group_sums(of_node: Floats) -> Floats:
            return _sums(group, of_node[nodes], self.count)

        total = group_sums(self.tree.totals(has_value, self.values(of_range)))
        time = self.tree.totals(has_value, self.node_ns.astype(np.float64))
        spent = group_sums(time).round().astype(np.int64)
        uncounted = group_sums(
            self.tree.propagate(self.uncounted_calls(has_value), has_value)
        ).astype(np.int64)
        rows = np.zeros(self.count, bool)
        rows[group[self.tree.has(has_value)[nodes]]] = True
        # A total of 0 is no result for an op with uncounted calls.
        return Rates(total, rows & ((total > 0) | (uncounted == 0)), spent, uncounted)

    def uncounted_calls(self, has_value: Flags) -> Floats:
        """Return 1 for each call with work of its own and no value, at its first node.

        In a capture without activities, a call counts if it contains no other.
        """
        nesting, call = self.attributed.attribution.nesting, self.attributed.call
        is_counted = self.attributed.listed & ~has_value
        if len(self.attributed.capture.activities):
            is_counted &= self.has_own_work
        else:
            is_counted[nesting.parent[nesting.parent != NONE]] = False
        rows = np.zeros(len(self.first) + 1, bool)
        rows[call[nesting.range[is_counted]]] = True
        nodes = self.first[rows[:-1]]
        result = np.zeros(len(nesting))
        result[nodes[nodes != NONE]] = 1
        return result

    @cached_property
    def has_own_work(self) -> Flags:
        """Whether each node has work of its own."""
        node = self.attributed.node
        result = np.zeros(len(self.attributed.attribution.nesting), bool)
        result[node[node != NONE]] = True
        return result

    def has(self, of_range: Floats) -> Flags:
        """Return whether the call of each node has a value."""
        call = self.attributed.call[self.attributed.attribution.nesting.range]
        has_value: Flags = lookup(self.by_call(of_range) >= 0, call, False)
        return has_value & self.attributed.listed

    def values(self, of_range: Floats) -> Floats:
        """Return the value of each node's call, at the first node of the call only."""
        return values_at_nodes(self.attributed.attribution.nesting, self.first, of_range)

    def by_call(self, of_range: np.ndarray) -> np.ndarray:
        """Return the value of each call, from the range at which it counts."""
        nesting = self.attributed.attribution.nesting
        rows = lookup(nesting.range, self.first)
        missing = np.array([NONE], of_range.dtype)
        result: np.ndarray = np.concatenate((of_range, missing))[rows]
        return result


def _min_time(amount: Floats, per_ns: Floats) -> Floats:
    """Return the minimum time in ns for an amount, -1 where it or the limit is unknown."""
    result = np.divide(amount, per_ns, out=np.full(len(amount), np.nan), where=per_ns > 0)
    return np.where((amount >= 0) & np.isfinite(result), result, NONE)


def _sums(group: Ints, values: Floats, groups: int) -> Floats:
    """Return the sum of each group as float: FLOPs exceed 64 bits, and are exact up to 2**53."""
    total = np.zeros(groups)
    np.add.at(total, group, values)
    return total


def _formula_text(formulas: Sequence[str]) -> str:
    """Return the formulas of a group as text, those that were used first."""
    order = sorted(
        set(formulas), key=lambda text: (text in UNKNOWN, text != MEASURED, text != RECORDED, text)
    )
    return (
        ", ".join(order[:MAX_FORMULAS]) + (", …" if len(order) > MAX_FORMULAS else "") or NO_FORMULA
    )
