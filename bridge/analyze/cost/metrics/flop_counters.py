"""Return FLOPs and bytes of kernels as counted by the GPU, and its peaks at the actual clocks.

Names of metrics differ by version and GPU; the first that a kernel has counts. FLOPs are unknown if
a kernel is known to have used a unit, such as Tensor Cores, whose operations were not counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from bridge.analyze.core.groups import Floats
from bridge.analyze.cost.metrics.values import numbers_of
from bridge.importers.ncu.metrics import Metrics
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints
from bridge.knowledge.hardware import DTYPES

# FLOPs per instruction of a thread; half precision instructions work on two numbers.
INSTRUCTIONS: Mapping[str, Mapping[str, int]] = {
    "fp32": {"fadd": 1, "fmul": 1, "ffma": 2},
    "fp64": {"dadd": 1, "dmul": 1, "dfma": 2},
    "fp16": {"hadd": 2, "hmul": 2, "hfma": 4},
}
EXECUTED_INSTRUCTIONS = "{}__sass_thread_inst_executed_op_{}_pred_on.sum"
UNITS = ("smsp", "sm")
CYCLES = ("smsp__cycles_elapsed.avg", "sm__cycles_elapsed.avg")
TENSOR = re.compile(
    r"sm__ops_path_tensor(?P<op>_op_[a-z]+)?_src_(?P<src>[a-z0-9_]+?)(?:_dst_(?P<dst>[a-z0-9]+))?"
    r"(?P<sparse>_sparsity_o(?:n|ff))?\.sum"
)
TOTALS_FIRST = (
    (False, False),
    (False, True),
    (True, False),
    (True, True),
)  # split by instruction, split by sparsity
PIPE_ACTIVITY = {  # metrics that show activity of a unit
    "tensor": re.compile(r"(?:sm|smsp)__(?:inst_executed_pipe|pipe)_tensor(?!.*\.peak_sustained)"),
    "fp64": re.compile(r"(?:sm|smsp)__(?:inst_executed_pipe|pipe)_fp64(?!.*\.peak_sustained)"),
    "fp16": re.compile(
        r"(?:sm|smsp)__inst_executed_pipe_(?:fp16|fma_type_fp16)(?!.*\.peak_sustained)"
    ),
}
SOURCES = {"fp64": "fp64_tensor", "int": "int8", "fp8": "fp8", "fp6": "fp8", "fp4": "fp8"}
NS = 1e9

BYTES, PEAKS = (".sum", ".sum.per_second"), (".sum.peak_sustained",)  # suffixes of names

Traffic = tuple[int, str]  # bytes per count, and the prefix of a metric
Quantity = Sequence[Sequence[Traffic]]
# By memory level: the unit whose clock its peak relates to, and quantities with ways to count them.
LEVELS: Mapping[str, tuple[str, Sequence[Quantity]]] = {
    "DRAM": (
        "dram",
        [
            [
                [(1, "dram__bytes")],
                [(1, "dram__bytes_read"), (1, "dram__bytes_write")],
                [(32, "dram__sectors_read"), (32, "dram__sectors_write")],
            ]
        ],
    ),
    "L2": (
        "lts",
        [
            [[(1, "lts__t_bytes")], [(32, "lts__t_sectors")]],
            [[(1, "derived__lts__lts2xbar_bytes")]],
        ],
    ),
    "L1": (
        "l1tex",
        [
            [[(1, "l1tex__t_bytes")], [(32, "l1tex__t_sectors")]],
            [
                [(1, "derived__l1tex__lsu_writeback_bytes_mem_lgds")],
                [(128, "l1tex__lsu_writeback_active_mem_lgds")],
            ],
            [
                [(1, "derived__l1tex__lsu_writeback_bytes_mem_lg")],
                [(128, "l1tex__lsu_writeback_active_mem_lg")],
            ],
        ],
    ),
}


@record
class FlopCounts:
    """Counted FLOPs and bytes of each measured kernel, NaN if unknown; the dtype of most FLOPs."""

    metrics: Metrics

    def __len__(self) -> int:
        return self.metrics.kernels

    def numbers(self, name: str) -> Floats:
        """Return a metric of each kernel, NaN for none."""
        return numbers_of(self.metrics.table, name, len(self))

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(self.metrics.table.metric.texts)

    @cached_property
    def seconds(self) -> Floats:
        """The measured duration of each kernel."""
        ns = self.numbers("gpu__time_duration.sum")
        return np.where(ns > 0, ns, np.nan) / NS

    @cached_property
    def cycles(self) -> Floats:
        """The cycles of each kernel."""
        return self.first(CYCLES)

    def first(self, names: Sequence[str]) -> Floats:
        """Return the first of these metrics that each kernel has."""
        result = np.full(len(self), np.nan)
        for name in names:
            result = np.where(np.isnan(result), self.numbers(name), result)
        return result

    @cached_property
    def by_dtype(self) -> Mapping[str, Floats]:
        """FLOPs of each kernel by dtype, NaN where not counted."""
        result = {
            dtype: self._executed(instructions) for dtype, instructions in INSTRUCTIONS.items()
        }
        for dtype, flops in self._tensor():
            known_flops = result.get(dtype, np.full(len(self), np.nan))
            result[dtype] = np.where(
                np.isnan(known_flops), flops, known_flops + np.nan_to_num(flops)
            )
        return result

    @cached_property
    def flops(self) -> Floats:
        """All FLOPs of each kernel; 0 only if FP32 was counted."""
        total = np.nansum(np.stack(list(self.by_dtype.values())), axis=0)
        is_unknown = (total == 0) & np.isnan(self.by_dtype["fp32"])
        return np.where(is_unknown | self._uncounted, np.nan, total)

    @cached_property
    def dtype(self) -> Ints:
        """The dtype of most FLOPs of each kernel, as a code of `DTYPES`; NONE for none."""
        names = list(self.by_dtype)
        flops = np.nan_to_num(np.stack(list(self.by_dtype.values())))
        codes = np.array([DTYPES.index(name) for name in names])[flops.argmax(axis=0)]
        return np.where(flops.max(axis=0) > 0, codes, NONE)

    def bytes_of(self, level: str) -> Floats:
        """Return the bytes moved by each kernel at a level of `LEVELS`, by one quantity."""
        result = np.full(len(self), np.nan)
        for end in BYTES:
            for ways in self.quantity(level):
                result = np.where(np.isnan(result), self._moved(ways, end), result)
        return result

    def quantity(self, level: str) -> Quantity:
        """Return the first quantity at a level with a collected peak, else the first one."""
        counted = [q for q in LEVELS[level][1] if any(self._has(ways, BYTES) for ways in q)]
        with_peak = [q for q in counted if any(self._has(ways[:1], PEAKS) for ways in q)]
        return next(iter([*with_peak, *counted]), ())

    def _has(self, ways: Sequence[Traffic], ends: Sequence[str]) -> bool:
        return all(any(name + end in self.names for end in ends) for _, name in ways)

    def _moved(self, ways: Sequence[Traffic], end: str) -> Floats:
        """Return the sum of the bytes of a quantity, counted or counted per second."""
        total = np.zeros(len(self))
        for factor, name in ways:
            total += factor * self.numbers(name + end)
        return total if end == BYTES[0] else np.rint(total * self.seconds)

    def _executed(self, each: Mapping[str, int]) -> Floats:
        """Return the FLOPs of instructions, counted or counted per cycle."""
        total = np.zeros(len(self))
        for op, flops in each.items():
            names = [EXECUTED_INSTRUCTIONS.format(unit, op) for unit in UNITS]
            per_cycle = self.first([f"{name}.per_cycle_elapsed" for name in names])
            counted = self.first(names)
            total += flops * np.where(np.isnan(counted), np.rint(per_cycle * self.cycles), counted)
        return total

    def _tensor(self) -> Iterator[tuple[str, Floats]]:
        """Yield the operations of Tensor Cores by dtype.

        Metrics that are split by instruction, sparsity or result count once.
        """
        kinds: dict[str, dict[str, dict[tuple[bool, bool], list[str]]]] = {}
        for name in sorted(self.names):  # one iteration per metric
            if match := TENSOR.fullmatch(name):
                by_destination = kinds.setdefault(match["src"], {})
                splits = match["op"] is not None, match["sparse"] is not None
                by_destination.setdefault(match["dst"] or "", {}).setdefault(splits, []).append(
                    name
                )
        for source, by_result in kinds.items():
            total = self._whole(by_result.pop("", {}))
            parts = _sum_known([self._whole(ways) for ways in by_result.values()], len(self))
            yield tensor_dtype(source), np.where(np.isnan(total), parts, total)

    def _whole(self, ways: Mapping[tuple[bool, bool], Sequence[str]]) -> Floats:
        """Return the operations of one kind, by the metrics with the fewest splits."""
        total = np.full(len(self), np.nan)
        for splits in TOTALS_FIRST:
            partial = _sum_known([self.numbers(name) for name in ways.get(splits, ())], len(self))
            total = np.where(np.isnan(total), partial, total)
        return total

    @cached_property
    def _uncounted(self) -> Flags:
        """Whether each kernel is known to have computed something that was not counted."""
        tensor = [flops for _, flops in self._tensor()]
        counted = {
            "tensor": ~np.isnan(tensor).all(axis=0) if tensor else np.zeros(len(self), bool),
            **{dtype: ~np.isnan(self._executed(INSTRUCTIONS[dtype])) for dtype in ("fp64", "fp16")},
        }
        result = np.zeros(len(self), bool)
        for unit, pattern in PIPE_ACTIVITY.items():
            is_active = np.zeros(len(self), bool)
            for name in filter(pattern.match, sorted(self.names)):
                is_active |= self.numbers(name) > 0
            result |= is_active & ~counted[unit]
        return result


def _sum_known(parts: Sequence[Floats], size: int) -> Floats:
    """Return the sums of known values, NaN where all are unknown."""
    stacked = np.array(parts, np.float64).reshape(len(parts), size)
    return np.where(np.isnan(stacked).all(axis=0), np.nan, np.nansum(stacked, axis=0))


def tensor_dtype(source: str) -> str:
    """Return the dtype (of `DTYPES`) of Tensor Core inputs such as ``bf16`` or ``fp4_fp6_fp8``."""
    if source in DTYPES and source != "fp64":
        return source
    return next((dtype for prefix, dtype in SOURCES.items() if source.startswith(prefix)), "fp16")


# -- Peaks: collected peaks per cycle times the actual clock


CLOCKS = ("sm__cycles_elapsed.avg.per_second", "smsp__cycles_elapsed.avg.per_second")
PEAK = ".peak_sustained"
DENSE = re.compile(r"_sparsity_off\.sum")
TERA, GIGA = 1e12, 1e9


def peak_tflops(counted: FlopCounts) -> dict[str, float]:
    """Return the peak in TFLOP/s by dtype, of the kernel with the fastest clock.

    For Tensor Cores it is the dense peak, where that is separate.
    """
    clock = counted.first(CLOCKS)
    result: dict[str, float] = {}
    for dtype, per_cycle in _peaks_per_cycle(counted):
        maximum = _maximum(per_cycle * clock) / TERA
        if maximum > 0:
            result[dtype] = max(maximum, result.get(dtype, 0.0))
    return result


def peak_gb_per_s(counted: FlopCounts) -> dict[str, float]:
    """Return the peak in GB/s by level of memory, of the quantity of its bytes."""
    result = {}
    for level, (clock_of, _) in LEVELS.items():
        clock = counted.numbers(f"{clock_of}__cycles_elapsed.avg.per_second")
        maximum = _maximum(_bytes_per_cycle(counted, counted.quantity(level)) * clock) / GIGA
        if maximum > 0:
            result[level] = maximum
    return result


def _bytes_per_cycle(counted: FlopCounts, quantity: Quantity) -> Floats:
    """Return the maximum of bytes per cycle, which reads and writes share."""
    result = np.full(len(counted), np.nan)
    for ways in quantity:
        factor, name = ways[0]
        result = np.where(np.isnan(result), factor * counted.numbers(f"{name}.sum{PEAK}"), result)
    return result


def _peaks_per_cycle(counted: FlopCounts) -> Iterator[tuple[str, Floats]]:
    for dtype, instructions in INSTRUCTIONS.items():
        fused, flops = list(instructions.items())[-1]
        names = [EXECUTED_INSTRUCTIONS.format(unit, fused) + PEAK for unit in reversed(UNITS)]
        yield dtype, flops * counted.first(names)
    peak_names = {
        name: name.removesuffix(PEAK) for name in sorted(counted.names) if name.endswith(PEAK)
    }
    matches = {
        name: match for name, bare in peak_names.items() if (match := TENSOR.fullmatch(bare))
    }
    dense = {name for name in matches if DENSE.search(name)}
    for name in sorted(dense or matches):
        yield tensor_dtype(matches[name]["src"]), counted.numbers(name)


def _maximum(values: Floats) -> float:
    rows = values[~np.isnan(values)]
    return float(rows.max(initial=0.0))
