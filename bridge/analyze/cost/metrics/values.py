"""Return metrics of kernels as arrays, by short names or by the names of Nsight Compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from bridge.analyze.core.groups import Floats, texts
from bridge.analyze.core.table import Table
from bridge.importers.capture import Capture
from bridge.importers.ncu.metrics import DURATION, KernelMetrics, Metrics
from bridge.importers.records import record
from bridge.join.arrays import NONE, Ints
from bridge.knowledge.suggestions import unknown_name

# -- Metrics with short names, their sources and their aggregation over kernels


SUM, MEAN, MAX, MIN = "sum", "mean", "max", "min"  # the mean is weighted by time
PERCENT, BYTES, RATE = "%", "byte", "byte/s"
SECTOR_BYTES = 32
MEMORY_THROUGHPUT = (
    "Memory Throughput [Memory Workload Analysis]"  # in section SpeedOfLight it is in percent
)

Source = tuple[tuple[int, str], ...]


@record
class Headline:
    """A metric with a short name.

    ``unit`` is checked, as two metrics of the details page have the same name.
    """

    aggregation: str
    unit: str
    sources: tuple[Source, ...]


def _headline(aggregation: str, unit: str, *names: str | Source) -> Headline:
    sources = tuple(((1, name),) if isinstance(name, str) else name for name in names)
    return Headline(aggregation, unit, sources)


def _percent_of_peak(unit: str, *details: str, peak: str = "elapsed") -> Headline:
    return _headline(MEAN, PERCENT, f"{unit}.avg.pct_of_peak_sustained_{peak}", *details)


HEADLINES: Mapping[str, Headline] = {
    "sm_throughput": _percent_of_peak(
        "sm__throughput", "Compute (SM) Throughput", "Compute (SM) [%]", "SM [%]"
    ),
    "memory_throughput": _percent_of_peak(
        "gpu__compute_memory_throughput", "Memory Throughput", "Memory [%]"
    ),
    "dram_throughput": _percent_of_peak(
        "gpu__dram_throughput",
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
        "DRAM Throughput",
    ),
    "l2_throughput": _percent_of_peak("lts__throughput", "L2 Cache Throughput"),
    "l1_throughput": _percent_of_peak(
        "l1tex__throughput", "L1/TEX Cache Throughput", peak="active"
    ),
    "l2_hit_rate": _headline(MEAN, PERCENT, "lts__t_sector_hit_rate.pct", "L2 Hit Rate"),
    "l1_hit_rate": _headline(MEAN, PERCENT, "l1tex__t_sector_hit_rate.pct", "L1/TEX Hit Rate"),
    "occupancy": _percent_of_peak("sm__warps_active", "Achieved Occupancy", peak="active"),
    "theoretical_occupancy": _headline(
        MEAN, PERCENT, "sm__maximum_warps_per_active_cycle_pct", "Theoretical Occupancy"
    ),
    "issue_slots_busy": _percent_of_peak("sm__inst_issued", "Issue Slots Busy", peak="active"),
    "tensor_throughput": _headline(
        MEAN,
        PERCENT,
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
        "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    ),
    "threads_per_warp": _headline(
        MEAN,
        "",
        "smsp__thread_inst_executed_per_inst_executed.ratio",
        "Avg. Active Threads Per Warp",
    ),
    "waves": _headline(MEAN, "", "launch__waves_per_multiprocessor", "Waves Per SM"),
    "registers": _headline(
        MAX, "register/thread", "launch__registers_per_thread", "Registers Per Thread"
    ),
    "shared_static": _headline(
        MAX, "byte/block", "launch__shared_mem_per_block_static", "Static Shared Memory Per Block"
    ),
    "shared_dynamic": _headline(
        MAX,
        "byte/block",
        "launch__shared_mem_per_block_dynamic",
        "Dynamic Shared Memory Per Block",
    ),
    "dram_bytes": _headline(
        SUM,
        BYTES,
        "dram__bytes.sum",
        ((1, "dram__bytes_read.sum"), (1, "dram__bytes_write.sum")),
        ((SECTOR_BYTES, "dram__sectors_read.sum"), (SECTOR_BYTES, "dram__sectors_write.sum")),
    ),
    "dram_read_bytes": _headline(SUM, BYTES, "dram__bytes_read.sum"),
    "dram_write_bytes": _headline(SUM, BYTES, "dram__bytes_write.sum"),
    "dram_bytes_per_s": _headline(
        MEAN, RATE, "dram__bytes.sum.per_second", MEMORY_THROUGHPUT, "Memory Throughput"
    ),
    "l2_bytes": _headline(SUM, BYTES, "lts__t_bytes.sum", ((SECTOR_BYTES, "lts__t_sectors.sum"),)),
    "l1_bytes": _headline(SUM, BYTES, "l1tex__t_bytes.sum"),
    "instructions": _headline(
        SUM,
        "inst",
        "smsp__inst_executed.sum",
        "sm__inst_executed.sum",
        "Executed Instructions",
    ),
    "flop_fp32": _headline(
        SUM,
        "inst",
        (
            (1, "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum"),
            (1, "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum"),
            (2, "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"),
        ),
    ),
    "cycles": _headline(SUM, "cycle", "gpc__cycles_elapsed.max", "Elapsed Cycles"),
    "ncu_time": _headline(SUM, "ns", *DURATION),
}
MEAN_PARTS = (".pct", ".ratio", ".per_", ".avg", ".peak", "frequency")
MEAN_UNITS = ("%", "hz", "warp", "")


def default_aggregation(metric: str, unit: str) -> str:
    """Return how a metric without a short name is aggregated, by its name and unit."""
    if metric.startswith(("launch__", "device__")):
        return MAX
    name = metric.partition(" [")[0]
    if any(part in metric for part in MEAN_PARTS) or "/" in unit or unit in MEAN_UNITS:
        return MEAN
    return {".max": MAX, ".min": MIN}.get(name[-4:], SUM if "Avg. " not in name else MEAN)


# -- Values


MATCH = "match"  # column: the least certain match of the kernels of a row
MATCH_LEVELS = ("call", "path", "geometry", "kernel")  # the codes of `Metrics.sure`
TIME_RATIO = "time_ratio"  # column: ncu's time of the kernels of a row over that of the timeline
BOTTLENECK = "bottleneck"  # column: what limits the kernels of a row, by their throughputs
OF_ROWS = (MATCH, TIME_RATIO, BOTTLENECK)  # columns of rows, which no single kernel has
LIMITED = 60.0  # % of peak, which no unit reaches if latency limits a kernel
COMPUTE, MEMORY, LATENCY = "compute", "memory", "latency"


def bottlenecks(compute: Floats, memory: Floats) -> NDArray[np.object_]:
    """Return what limits kernels with these throughputs in % of peak; '' where one is unknown (below 0).

    It is the unit with the higher throughput, or latency where both are below `LIMITED`.
    """
    result = texts([MEMORY, COMPUTE, LATENCY, ""])
    code = np.where(np.maximum(compute, memory) < LIMITED, 2, compute > memory)
    return result[np.where((compute < 0) | (memory < 0), NONE, code)]


@record
class MetricValues:
    """A metric of each measured kernel: numbers, NaN for none, or texts, '' for none."""

    aggregation: str
    unit: str
    numbers: Floats
    texts: NDArray[np.object_] | None = None


def select_metrics(capture: Capture, names: Sequence[str]) -> list[MetricValues]:
    """Return the metrics with these names.

    Raises ValueError with a message for the user if there is no such metric.
    """
    if not len(capture.metrics):
        raise ValueError(
            "no metrics in the report: give a report of Nsight Compute (.ncu-rep, or the output of ncu --csv),"
            " one beside the report with --ncu, or a run that was imported with one"
        )
    return [_metric(capture.metrics, name) for name in names]


def _metric(metrics: Metrics, name: str) -> MetricValues:
    values = metrics.table
    headline = HEADLINES.get(name)
    if headline is None:
        return _metric_by_full_name(metrics, name)
    result = np.full(metrics.kernels, np.nan)
    for source in reversed(headline.sources):  # earlier sources replace later ones
        numbers = _sum(values, source, headline.unit, len(result))
        result = np.where(np.isnan(numbers), result, numbers)
    return MetricValues(headline.aggregation, headline.unit, result)


def _sum(values: KernelMetrics, source: Source, unit: str, kernels: int) -> Floats:
    """Return the sum of a source's metrics for each kernel, NaN where one is missing."""
    total = np.zeros(kernels)
    for factor, name in source:
        total += factor * _numbers(values, _rows(values, name, unit), kernels)
    return total


def numbers_of(values: KernelMetrics, name: str, kernels: int) -> Floats:
    """Return a metric of each kernel by its full name, NaN for none."""
    return _numbers(values, _rows(values, name), kernels)


def _rows(values: KernelMetrics, name: str, unit: str | None = None) -> Ints:
    """Return the rows of a metric with this unit."""
    result = values.metric.among(name)
    if unit is not None:
        result &= values.unit.among(unit)
    return np.flatnonzero(result)


def _numbers(values: KernelMetrics, rows: Ints, kernels: int) -> Floats:
    numbers = np.full(kernels, np.nan)
    numbers[values.kernel[rows]] = values.value[rows]
    return numbers


def _metric_by_full_name(metrics: Metrics, name: str) -> MetricValues:
    """Return a metric by its name in Nsight Compute."""
    values = metrics.table
    rows = _rows(values, name)
    if not len(rows):
        known = (*HEADLINES, *values.metric.texts)
        raise ValueError(unknown_name("metric", name, known, "--metrics list"))
    unit = values.unit[rows[0]]
    numbers = _numbers(values, rows, metrics.kernels)
    if np.isnan(numbers[values.kernel[rows]]).all():
        text_values = texts([""] * len(numbers))
        text_values[values.kernel[rows]] = values.text[rows]
        return MetricValues(MAX, unit, numbers, text_values)
    return MetricValues(default_aggregation(name, unit), unit, numbers)


def metric_list(capture: Capture) -> Table:
    """Return one row per metric, short names first: unit, aggregation and number of kernels."""
    select_metrics(capture, ())
    metrics = capture.metrics
    headline_metrics = [
        (name, headline.aggregation, _metric(metrics, name)) for name, headline in HEADLINES.items()
    ]
    rows = [
        (name, m.unit, aggregation, int((~np.isnan(m.numbers)).sum()))
        for name, aggregation, m in headline_metrics
    ]
    codes, values = metrics.table.metric.codes, metrics.table
    count = np.bincount(codes, minlength=1)
    first = np.unique(codes, return_index=True)[1]
    units = values.unit[first].tolist()
    is_text_metric = np.isnan(values.value[first]).tolist()
    for name, of, is_text, number in sorted(
        zip(values.metric.texts, units, is_text_metric, count.tolist(), strict=True)
    ):
        rows.append((name, of, "" if is_text else default_aggregation(name, of), number))
    metric, unit, aggregation, kernels = zip(*(row for row in rows if row[3]), strict=True)
    return Table(
        {
            "metric": texts(metric),
            "unit": texts(unit),
            "over_kernels": texts(aggregation),
            "kernels": kernels,
        }
    )
