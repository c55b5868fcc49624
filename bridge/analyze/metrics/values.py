"""A metric of every activity, as arrays: by a short name or by Nsight Compute's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bridge.analyze.groups import Floats, texts
from bridge.join.arrays import Ints
from importers import frames
from importers.ncu.metrics import Metrics
from importers.report import Report

# -- The metrics that have a short name, what Nsight Compute calls them, and how they add up over kernels


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


# -- A metric of every activity, as arrays: by a short name or by Nsight Compute's own


MATCH = "match"  # how sure it is that the metrics are of the kernels of a row
SURE = ("call", "path", "geometry", "kernel")  # the codes of `Metrics.sure`


@dataclass(frozen=True)
class Measured:
    """A metric of each measured kernel: numbers, NaN for none; or texts, '' for none."""

    how: str
    unit: str
    numbers: Floats
    texts: NDArray[np.object_] | None = None


def wanted(report: Report, names: Sequence[str]) -> list[Measured]:
    """Return the metrics of these names; ValueError, in words for the user, for what there is not."""
    if not len(report.metrics):
        raise ValueError(
            "no metrics in the report: give a report of Nsight Compute (.ncu-rep, or what ncu --csv prints),"
            " one beside the report with --ncu, or a run that was imported with one"
        )
    return [_measured(report.metrics, name) for name in names]


def _measured(metrics: Metrics, name: str) -> Measured:
    values = metrics.table
    headline = HEADLINES.get(name)
    if headline is None:
        return _own(metrics, name)
    found = np.full(metrics.kernels, np.nan)
    for source in reversed(headline.sources):  # those named first have the last word
        numbers = _sum(values, source, headline.unit, len(found))
        found = np.where(np.isnan(numbers), found, numbers)
    return Measured(headline.how, headline.unit, found)


def _sum(values: pd.DataFrame, source: Source, unit: str, kernels: int) -> Floats:
    """Return the sum of a source's metrics for each kernel, NaN where one is missing."""
    total = np.zeros(kernels)
    for factor, name in source:
        total += factor * _numbers(values, _rows(values, name, unit), kernels)
    return total


def numbers_of(values: pd.DataFrame, name: str, kernels: int) -> Floats:
    """Return a metric of each of so many kernels by its own name, NaN for none."""
    return _numbers(values, _rows(values, name), kernels)


def _rows(values: pd.DataFrame, name: str, unit: str | None = None) -> Ints:
    """Return the rows of a metric, in this unit."""
    found = _is(values["metric"], name)
    if unit is not None:
        found &= _is(values["unit"], unit)
    return np.flatnonzero(found)


def _is(column: pd.Series, name: str) -> NDArray[np.bool_]:
    categories = list(column.cat.categories)
    if name not in categories:
        return np.zeros(len(column), bool)
    same: NDArray[np.bool_] = frames.codes(column) == categories.index(name)
    return same


def _numbers(values: pd.DataFrame, rows: Ints, kernels: int) -> Floats:
    numbers = np.full(kernels, np.nan)
    numbers[frames.ints(values, "kernel")[rows]] = values["value"].to_numpy()[rows]
    return numbers


def _own(metrics: Metrics, name: str) -> Measured:
    """Return a metric by Nsight Compute's own name."""
    values = metrics.table
    rows = _rows(values, name)
    if not len(rows):
        raise ValueError(f"no metric {name!r}: --metrics list shows those there are")
    unit = str(values["unit"].iloc[rows[0]])
    numbers = _numbers(values, rows, metrics.kernels)
    if np.isnan(numbers[frames.ints(values, "kernel")[rows]]).all():
        said = texts([""] * len(numbers))
        said[frames.ints(values, "kernel")[rows]] = values["text"].astype(object).to_numpy()[rows]
        return Measured(MOST, unit, numbers, said)
    return Measured(usual(name, unit), unit, numbers)


def listed(report: Report) -> pd.DataFrame:
    """Return a row per metric that there is, those with short names first: unit, how it adds up, kernels that have it."""
    wanted(report, ())
    metrics = report.metrics
    short = [(name, one.how, _measured(metrics, name)) for name, one in HEADLINES.items()]
    rows = [(name, m.unit, how, int((~np.isnan(m.numbers)).sum())) for name, how, m in short]
    codes, values = frames.codes(metrics.table["metric"]), metrics.table
    count = np.bincount(codes, minlength=1)
    first = np.unique(codes, return_index=True)[1]
    units = values["unit"].astype(object).to_numpy()[first].tolist()
    of_text = np.isnan(values["value"].to_numpy()[first]).tolist()
    names = values["metric"].cat.categories.tolist()
    for name, unit, is_text, kernels in sorted(
        zip(names, units, of_text, count.tolist(), strict=True)
    ):
        rows.append((name, unit, "" if is_text else usual(name, unit), kernels))
    metric, unit, how, kernels = zip(*(row for row in rows if row[3]), strict=True)
    return pd.DataFrame(
        {
            "metric": texts(metric),
            "unit": texts(unit),
            "over_kernels": texts(how),
            "kernels": kernels,
        }
    )
