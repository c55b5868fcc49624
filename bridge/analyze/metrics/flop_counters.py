"""FLOPs and bytes of kernels as counted by the GPU, and what it could do at the clocks it had: from metrics, not formulas.

Metrics are called differently by version and GPU; the first that a kernel has counts. FLOPs are known only if nothing
else is known to have computed: of a kernel that used Tensor Cores whose operations nobody counted they are not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bridge.analyze.groups import Floats
from bridge.analyze.metrics.values import numbers_of
from bridge.join.arrays import NONE, Flags, Ints
from bridge.knowledge.hardware import DTYPES
from importers.ncu.metrics import Metrics

# FLOPs of an instruction of a thread; one of half precision works on two numbers.
INSTRUCTIONS: Mapping[str, Mapping[str, int]] = {
    "fp32": {"fadd": 1, "fmul": 1, "ffma": 2},
    "fp64": {"dadd": 1, "dmul": 1, "dfma": 2},
    "fp16": {"hadd": 2, "hmul": 2, "hfma": 4},
}
EXECUTED = "{}__sass_thread_inst_executed_op_{}_pred_on.sum"
UNITS = ("smsp", "sm")
CYCLES = ("smsp__cycles_elapsed.avg", "sm__cycles_elapsed.avg")
TENSOR = re.compile(
    r"sm__ops_path_tensor(?P<op>_op_[a-z]+)?_src_(?P<src>[a-z0-9_]+?)(?:_dst_(?P<dst>[a-z0-9]+))?"
    r"(?P<sparse>_sparsity_o(?:n|ff))?\.sum"
)
WHOLE_FIRST = ((False, False), (False, True), (True, False), (True, True))  # by op, by sparsity
AT_WORK = {  # what tells that something computed, where its operations were not counted
    "tensor": re.compile(r"(?:sm|smsp)__(?:inst_executed_pipe|pipe)_tensor(?!.*\.peak_sustained)"),
    "fp64": re.compile(r"(?:sm|smsp)__(?:inst_executed_pipe|pipe)_fp64(?!.*\.peak_sustained)"),
    "fp16": re.compile(
        r"(?:sm|smsp)__inst_executed_pipe_(?:fp16|fma_type_fp16)(?!.*\.peak_sustained)"
    ),
}
SOURCES = {"fp64": "fp64_tensor", "int": "int8", "fp8": "fp8", "fp6": "fp8", "fp4": "fp8"}
NS = 1e9

BYTES, PEAKS = (".sum", ".sum.per_second"), (".sum.peak_sustained",)  # ends of names

Traffic = tuple[int, str]  # bytes for each, and the beginning of a metric's name
Quantity = Sequence[Sequence[Traffic]]
# By memory level: what is the same quantity, each way to count it a sum; and whose clock its peak is of.
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


@dataclass(frozen=True)
class Counted:
    """What was counted of each measured kernel: FLOPs and bytes, NaN where not; the dtype of most FLOPs."""

    metrics: Metrics

    def __len__(self) -> int:
        return self.metrics.kernels

    def numbers(self, name: str) -> Floats:
        """Return a metric of each kernel, NaN for none."""
        return numbers_of(self.metrics.table, name, len(self))

    @cached_property
    def names(self) -> frozenset[str]:
        """The metrics there are."""
        return frozenset(map(str, self.metrics.table["metric"].cat.categories))

    @cached_property
    def seconds(self) -> Floats:
        """How long each kernel took, as measured."""
        ns = self.numbers("gpu__time_duration.sum")
        return np.where(ns > 0, ns, np.nan) / NS

    @cached_property
    def cycles(self) -> Floats:
        """How many cycles each kernel took."""
        return self.first(CYCLES)

    def first(self, names: Sequence[str]) -> Floats:
        """Return the first of some metrics that each kernel has."""
        found = np.full(len(self), np.nan)
        for name in names:
            found = np.where(np.isnan(found), self.numbers(name), found)
        return found

    @cached_property
    def by_dtype(self) -> Mapping[str, Floats]:
        """FLOPs of each kernel in each dtype, NaN where not counted."""
        found = {dtype: self._executed(each) for dtype, each in INSTRUCTIONS.items()}
        for dtype, flops in self._tensor():
            had = found.get(dtype, np.full(len(self), np.nan))
            found[dtype] = np.where(np.isnan(had), flops, had + np.nan_to_num(flops))
        return found

    @cached_property
    def flops(self) -> Floats:
        """All FLOPs of each kernel; that it computes nothing is known only where FP32 was counted."""
        total = np.nansum(np.stack(list(self.by_dtype.values())), axis=0)
        nothing = (total == 0) & np.isnan(self.by_dtype["fp32"])
        return np.where(nothing | self._uncounted, np.nan, total)

    @cached_property
    def dtype(self) -> Ints:
        """The dtype, as a code of `DTYPES`, in which most of each kernel's FLOPs are; NONE for none."""
        names = list(self.by_dtype)
        every = np.nan_to_num(np.stack(list(self.by_dtype.values())))
        codes = np.array([DTYPES.index(name) for name in names])[every.argmax(axis=0)]
        return np.where(every.max(axis=0) > 0, codes, NONE)

    def bytes_of(self, level: str) -> Floats:
        """Return what each kernel moved at a level of memory (of `LEVELS`), all counted as the same quantity."""
        found = np.full(len(self), np.nan)
        for end in BYTES:
            for ways in self.quantity(level):
                found = np.where(np.isnan(found), self._moved(ways, end), found)
        return found

    def quantity(self, level: str) -> Quantity:
        """Return what is counted at a level: the first quantity whose peak was collected too, else the first there is."""
        counted = [q for q in LEVELS[level][1] if any(self._has(ways, BYTES) for ways in q)]
        peaked = [q for q in counted if any(self._has(ways[:1], PEAKS) for ways in q)]
        return next(iter([*peaked, *counted]), ())

    def _has(self, ways: Sequence[Traffic], ends: Sequence[str]) -> bool:
        return all(any(name + end in self.names for end in ends) for _, name in ways)

    def _moved(self, ways: Sequence[Traffic], end: str) -> Floats:
        """Return the sum over ways to move, counted, or counted per second."""
        total = np.zeros(len(self))
        for factor, name in ways:
            total += factor * self.numbers(name + end)
        return total if end == BYTES[0] else np.rint(total * self.seconds)

    def _executed(self, each: Mapping[str, int]) -> Floats:
        """Return the FLOPs of instructions, which were counted, or counted per cycle."""
        total = np.zeros(len(self))
        for op, flops in each.items():
            names = [EXECUTED.format(unit, op) for unit in UNITS]
            per_cycle = self.first([f"{name}.per_cycle_elapsed" for name in names])
            counted = self.first(names)
            total += flops * np.where(np.isnan(counted), np.rint(per_cycle * self.cycles), counted)
        return total

    def _tensor(self) -> Iterator[tuple[str, Floats]]:
        """Give the operations of Tensor Cores by dtype; what is told apart by instruction, sparsity or result counts once."""
        kinds: dict[str, dict[str, dict[tuple[bool, bool], list[str]]]] = {}
        for name in sorted(self.names):  # a turn per metric
            if found := TENSOR.fullmatch(name):
                of_source = kinds.setdefault(found["src"], {})
                told = found["op"] is not None, found["sparse"] is not None
                of_source.setdefault(found["dst"] or "", {}).setdefault(told, []).append(name)
        for source, by_result in kinds.items():
            total = self._whole(by_result.pop("", {}))
            parts = _added([self._whole(ways) for ways in by_result.values()], len(self))
            yield dtype_of(source), np.where(np.isnan(total), parts, total)

    def _whole(self, ways: Mapping[tuple[bool, bool], Sequence[str]]) -> Floats:
        """Return the operations of one kind, as the way that tells least apart counted them."""
        total = np.full(len(self), np.nan)
        for told in WHOLE_FIRST:
            some = _added([self.numbers(name) for name in ways.get(told, ())], len(self))
            total = np.where(np.isnan(total), some, total)
        return total

    @cached_property
    def _uncounted(self) -> Flags:
        """Which kernels are known to have computed something that was not counted."""
        tensor = [flops for _, flops in self._tensor()]
        counted = {
            "tensor": ~np.isnan(tensor).all(axis=0) if tensor else np.zeros(len(self), bool),
            **{dtype: ~np.isnan(self._executed(INSTRUCTIONS[dtype])) for dtype in ("fp64", "fp16")},
        }
        found = np.zeros(len(self), bool)
        for what, pattern in AT_WORK.items():
            works = np.zeros(len(self), bool)
            for name in filter(pattern.match, sorted(self.names)):
                works |= self.numbers(name) > 0
            found |= works & ~counted[what]
        return found


def _added(parts: Sequence[Floats], size: int) -> Floats:
    """Return the sums of those that are known, NaN where none is."""
    every = np.array(parts, np.float64).reshape(len(parts), size)
    return np.where(np.isnan(every).all(axis=0), np.nan, np.nansum(every, axis=0))


def dtype_of(source: str) -> str:
    """Return the dtype (of `DTYPES`) that Tensor Cores compute in by what they take: ``bf16``, ``fp4_fp6_fp8``, ``int8``."""
    if source in DTYPES and source != "fp64":
        return source
    return next((ours for theirs, ours in SOURCES.items() if source.startswith(theirs)), "fp16")


# -- What a GPU could do while Nsight Compute looked: peaks per cycle, as collected, times the clock that there was


CLOCKS = ("sm__cycles_elapsed.avg.per_second", "smsp__cycles_elapsed.avg.per_second")
PEAK = ".peak_sustained"
DENSE = re.compile(r"_sparsity_off\.sum")
TERA, GIGA = 1e12, 1e9


def tflops(counted: Counted) -> dict[str, float]:
    """Return the most TFLOP/s by dtype (dense, where Tensor Cores tell it apart), of the kernel with the fastest clock."""
    clock = counted.first(CLOCKS)
    found: dict[str, float] = {}
    for dtype, per_cycle in _per_cycle(counted):
        most = _most(per_cycle * clock) / TERA
        if most > 0:
            found[dtype] = max(most, found.get(dtype, 0.0))
    return found


def gb_per_s(counted: Counted) -> dict[str, float]:
    """Return the most GB/s by level of memory, of what its bytes are counted as."""
    found = {}
    for level, (clock_of, _) in LEVELS.items():
        clock = counted.numbers(f"{clock_of}__cycles_elapsed.avg.per_second")
        most = _most(_peak(counted, counted.quantity(level)) * clock) / GIGA
        if most > 0:
            found[level] = most
    return found


def _peak(counted: Counted, quantity: Quantity) -> Floats:
    """Return the bytes per cycle at most: what is read and what is written share one peak."""
    found = np.full(len(counted), np.nan)
    for ways in quantity:
        factor, name = ways[0]
        found = np.where(np.isnan(found), factor * counted.numbers(f"{name}.sum{PEAK}"), found)
    return found


def _per_cycle(counted: Counted) -> Iterator[tuple[str, Floats]]:
    for dtype, each in INSTRUCTIONS.items():
        fused, flops = list(each.items())[-1]
        names = [EXECUTED.format(unit, fused) + PEAK for unit in reversed(UNITS)]
        yield dtype, flops * counted.first(names)
    of_tensor = {
        name: name.removesuffix(PEAK) for name in sorted(counted.names) if name.endswith(PEAK)
    }
    told = {name: found for name, bare in of_tensor.items() if (found := TENSOR.fullmatch(bare))}
    dense = {name for name in told if DENSE.search(name)}
    for name in sorted(dense or told):
        yield dtype_of(told[name]["src"]), counted.numbers(name)


def _most(values: Floats) -> float:
    there = values[~np.isnan(values)]
    return float(there.max(initial=0.0))
