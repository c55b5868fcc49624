"""The metrics that have a short name, what Nsight Compute calls them, and how they add up over kernels.

Ncu renamed some over the years, and its details page calls all by names of their own; the first of the
``sources`` that a kernel has counts. A source is a sum of metrics, each times a factor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SUM, MEAN, MOST, LEAST = "sum", "mean", "max", "min"  # mean: by the kernels' time
PERCENT, BYTES, RATE = "%", "byte", "byte/s"
SECTOR_BYTES = 32
IN_ANALYSIS = "Memory Throughput [Memory Workload Analysis]"  # in SpeedOfLight it is in per cent

Source = tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Headline:
    """A metric by a short name; ``unit`` is checked, for two metrics of the details page share a name."""

    how: str
    unit: str
    sources: tuple[Source, ...]


def _of(how: str, unit: str, *names: str | Source) -> Headline:
    sources = tuple(((1, name),) if isinstance(name, str) else name for name in names)
    return Headline(how, unit, sources)


def _of_peak(unit: str, *details: str, peak: str = "elapsed") -> Headline:
    return _of(MEAN, PERCENT, f"{unit}.avg.pct_of_peak_sustained_{peak}", *details)


HEADLINES: Mapping[str, Headline] = {
    "sm_throughput": _of_peak(
        "sm__throughput", "Compute (SM) Throughput", "Compute (SM) [%]", "SM [%]"
    ),
    "memory_throughput": _of_peak(
        "gpu__compute_memory_throughput", "Memory Throughput", "Memory [%]"
    ),
    "dram_throughput": _of_peak(
        "gpu__dram_throughput",
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
        "DRAM Throughput",
    ),
    "l2_throughput": _of_peak("lts__throughput", "L2 Cache Throughput"),
    "l1_throughput": _of_peak("l1tex__throughput", "L1/TEX Cache Throughput", peak="active"),
    "l2_hit_rate": _of(MEAN, PERCENT, "lts__t_sector_hit_rate.pct", "L2 Hit Rate"),
    "l1_hit_rate": _of(MEAN, PERCENT, "l1tex__t_sector_hit_rate.pct", "L1/TEX Hit Rate"),
    "occupancy": _of_peak("sm__warps_active", "Achieved Occupancy", peak="active"),
    "theoretical_occupancy": _of(
        MEAN, PERCENT, "sm__maximum_warps_per_active_cycle_pct", "Theoretical Occupancy"
    ),
    "issue_slots_busy": _of_peak("sm__inst_issued", "Issue Slots Busy", peak="active"),
    "tensor_throughput": _of(
        MEAN,
        PERCENT,
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
        "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    ),
    "threads_per_warp": _of(
        MEAN,
        "",
        "smsp__thread_inst_executed_per_inst_executed.ratio",
        "Avg. Active Threads Per Warp",
    ),
    "waves": _of(MEAN, "", "launch__waves_per_multiprocessor", "Waves Per SM"),
    "registers": _of(
        MOST, "register/thread", "launch__registers_per_thread", "Registers Per Thread"
    ),
    "shared_static": _of(
        MOST, "byte/block", "launch__shared_mem_per_block_static", "Static Shared Memory Per Block"
    ),
    "shared_dynamic": _of(
        MOST,
        "byte/block",
        "launch__shared_mem_per_block_dynamic",
        "Dynamic Shared Memory Per Block",
    ),
    "dram_bytes": _of(
        SUM,
        BYTES,
        "dram__bytes.sum",
        ((1, "dram__bytes_read.sum"), (1, "dram__bytes_write.sum")),
        ((SECTOR_BYTES, "dram__sectors_read.sum"), (SECTOR_BYTES, "dram__sectors_write.sum")),
    ),
    "dram_read_bytes": _of(SUM, BYTES, "dram__bytes_read.sum"),
    "dram_write_bytes": _of(SUM, BYTES, "dram__bytes_write.sum"),
    "dram_bytes_per_s": _of(
        MEAN, RATE, "dram__bytes.sum.per_second", IN_ANALYSIS, "Memory Throughput"
    ),
    "l2_bytes": _of(SUM, BYTES, "lts__t_bytes.sum", ((SECTOR_BYTES, "lts__t_sectors.sum"),)),
    "l1_bytes": _of(SUM, BYTES, "l1tex__t_bytes.sum"),
    "instructions": _of(
        SUM,
        "inst",
        "smsp__inst_executed.sum",
        "sm__inst_executed.sum",
        "Executed Instructions",
    ),
    "flop_fp32": _of(
        SUM,
        "inst",
        (
            (1, "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum"),
            (1, "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum"),
            (2, "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"),
        ),
    ),
    "cycles": _of(SUM, "cycle", "gpc__cycles_elapsed.max", "Elapsed Cycles"),
}
SHARES = (".pct", ".ratio", ".per_", ".avg", ".peak", "frequency")
OF_MEAN_UNITS = ("%", "hz", "warp", "")


def usual(metric: str, unit: str) -> str:
    """Return how a metric adds up over kernels that has no short name, told by its own and its unit."""
    if metric.startswith(("launch__", "device__")):
        return MOST
    name = metric.partition(" [")[0]
    if any(part in metric for part in SHARES) or "/" in unit or unit in OF_MEAN_UNITS:
        return MEAN
    return {".max": MOST, ".min": LEAST}.get(name[-4:], SUM if "Avg. " not in name else MEAN)
