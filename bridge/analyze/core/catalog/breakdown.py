"""The tables with selectable columns: rows of ranges, API calls, or activities."""

from __future__ import annotations

from functools import partial
from typing import Any

from bridge.analyze.core.catalog.column import (
    ALL_CALLS,
    ALL_CPU,
    ALL_GPU,
    ALL_KERNELS,
    BYTES,
    COUNT,
    FLOP,
    FROM_TIMES,
    GB_PER_S,
    NAME,
    NS,
    NUMBER,
    RATIO,
    REPORTS,
    SHARE,
    TFLOP_PER_S,
    WHOLES,
    WINDOWS,
    Column,
    table,
)
from bridge.analyze.core.catalog.counters import COUNTER_SETS, COUNTERS, ENERGY
from bridge.analyze.core.catalog.view import ACTIVITIES, RANGES, View

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
STATISTICS = ("mean", "min", *QUANTILES, "max")


def statistic_names(prefix: str) -> tuple[str, ...]:
    """Return the names of statistics: ``<prefix>mean_ns``, min, p50, p95, p99, max."""
    return tuple(f"{prefix}{name}_ns" for name in STATISTICS)


def _statistics(
    prefix: str, subject: str, mean: str, heading: str, default: str = "", terminal: str = ""
) -> list[Column]:
    """Describe the statistics of the times of ``subject``."""
    meanings = {
        "mean": "mean",
        "min": "shortest",
        "max": "longest",
        **{name: f"{100 * at:.0f}th percentile" for name, at in QUANTILES.items()},
    }
    return [
        Column(
            f"{prefix}{name}_ns",
            mean if name == "mean" else f"{heading}{name}",
            NS,
            f"{meanings[name]} of {subject}",
            merge=FROM_TIMES,
            default=name in default.split(),
            terminal=name in terminal.split(),
            optional=bool(prefix) or name != "mean",
        )
        for name in STATISTICS
    ]


def _on_request(name: str, heading: str, unit: str, meaning: str, **more: Any) -> Column:
    """Describe a column that a table has only on request."""
    return Column(name, heading, unit, meaning, default=False, terminal=False, **more)


# -- Tensor Cores, of kernels

TENSOR_CORES = (
    _on_request(
        "tensor_core_ns",
        "Tensor Cores",
        NS,
        "time of kernels that used Tensor Cores",
        merge=WINDOWS,
    ),
    _on_request(
        "tensor_core_share",
        "on Tensor Cores",
        SHARE,
        "part of the time of kernels that used Tensor Cores",
        ratio=("tensor_core_ns", "in_kernels_ns"),
        merge=RATIO,
    ),
    _on_request(
        "eligible_ns",
        "eligible",
        NS,
        "time of kernels whose kind could use Tensor Cores",
        merge=WINDOWS,
    ),
    _on_request(
        "tensor_core_unknown_ns",
        "not known",
        NS,
        "time of kernels of which it is not known whether they used Tensor Cores",
        merge=WINDOWS,
    ),
    _on_request("in_kernels_ns", "in kernels", NS, "time of kernels", merge=WINDOWS),
)
TENSOR_CORE_NAMES = tuple(column.name for column in TENSOR_CORES)

# -- FLOPs and bytes of calls, as defined in docs/flops.md

_cost = partial(_on_request, details=("json", "metrics"))  # shapes of calls, and what was measured
COSTS = (
    _cost("flop", "FLOP", FLOP, "floating-point operations of the calls", missing=True),
    _cost(
        "tflop_per_s",
        "reached",
        TFLOP_PER_S,
        "FLOPs by the GPU time of the calls that are counted",
        ratio=("flop", "counted_ns"),
        missing=True,
    ),
    _cost("peak_share", "of peak", SHARE, "part of the GPU's peak FLOP rate", missing=True),
    _cost(
        "moved_bytes", "bytes moved", BYTES, "bytes read and written at least once", missing=True
    ),
    _cost(
        "gb_per_s",
        "speed",
        GB_PER_S,
        "bytes moved by the GPU time of the calls",
        ratio=("moved_bytes", "counted_ns"),
        missing=True,
    ),
    _cost(
        "bandwidth_share", "of bandwidth", SHARE, "part of the GPU's peak bandwidth", missing=True
    ),
    _cost(
        "intensity",
        "intensity",
        NUMBER,
        "FLOPs per byte moved",
        ratio=("flop", "moved_bytes"),
        missing=True,
    ),
    _cost("counted_ns", "GPU counted", NS, "GPU time of the calls whose FLOPs are known"),
    _cost("uncounted", "uncounted", COUNT, "calls with GPU work whose FLOPs are not known"),
    _cost("flop_once", "FLOP once", FLOP, "FLOPs of one call", missing=True),
    _cost(
        "formula",
        "formula",
        NAME,
        "which formula counted the FLOPs, or why none did",
        optional=True,
    ),
)
COST_NAMES = tuple(column.name for column in COSTS)
# The columns of costs that are computed together.
FLOP_NAMES = ("flop", "flop_once", "counted_ns", "tflop_per_s", "uncounted")
BYTE_NAMES = ("moved_bytes", "gb_per_s")
INTENSITY_NAMES = ("intensity",)
PEAK_NAMES = ("peak_share", "bandwidth_share")
FORMULA_NAMES = ("formula",)

# -- Rows of ranges

ACTIVITY_COUNTS = ("kernels", "memcpys", "memsets", "graphs")
EXPOSED = ("communication_ns", "exposed_ns")
CAUSES = ("host_ns", "api_ns", "sync_ns", "queue_ns", "launch_gap_ns", "starved_ns", "bound")


def _summed(name: str, heading: str, unit: str, meaning: str, **more: Any) -> Column:
    """Describe a column whose values add up, and which the store keeps."""
    return Column(name, heading, unit, meaning, merge=WINDOWS, stored=True, **more)


_RANGE_COLUMNS = (
    _summed("calls", "calls", COUNT, "calls: ranges, or all slices with one call id"),
    _summed(
        "activities",
        "activities",
        COUNT,
        "activities of the innermost op",
        default=False,
        terminal=False,
    ),
    _summed("kernels", "kernels", COUNT, "kernels of the innermost op"),
    _summed("memcpys", "memcpys", COUNT, "memcpys of the innermost op", terminal=False),
    _summed("memsets", "memsets", COUNT, "memsets of the innermost op", terminal=False),
    _summed(
        "graphs",
        "graphs",
        COUNT,
        "CUDA graphs of the innermost op that were recorded as a whole",
        terminal=False,
    ),
    _summed("gpu_self_ns", "GPU self", NS, "GPU time of the innermost op only", bar=True),
    _summed("gpu_total_ns", "GPU total", NS, "GPU time of the op and everything under it"),
    _summed(
        "gpu_busy_ns",
        "GPU busy",
        NS,
        "length of the union of the intervals of the total",
        optional=True,
    ),
    _summed(
        "gpu_span_ns",
        "GPU span",
        NS,
        "first start to last end of everything under it",
        default=False,
        terminal=False,
    ),
    _summed("cpu_self_ns", "CPU self", NS, "time on the host in the range only", optional=True),
    _summed(
        "cpu_total_ns",
        "CPU total",
        NS,
        "time on the host in the range and those inside it",
        optional=True,
    ),
    *_statistics("gpu_", "the GPU total of a call", "per call", "", "mean p50 p95 max", "mean p95"),
    *_statistics("cpu_", "the duration of a call on the host", "CPU per call", "CPU "),
    _on_request("host_ns", "host", NS, "own time outside of CUDA API calls", merge=REPORTS),
    _on_request("api_ns", "API", NS, "own time in CUDA API calls that do not wait", merge=REPORTS),
    _on_request("sync_ns", "sync", NS, "own time in waits for the device", merge=REPORTS),
    _on_request(
        "queue_ns",
        "queue",
        NS,
        "time that its activities waited after their API call",
        merge=REPORTS,
    ),
    _on_request(
        "launch_gap_ns",
        "launch gap",
        NS,
        "idle time of the GPU right before its activities while the host launched them",
        merge=REPORTS,
    ),
    _on_request(
        "starved_ns",
        "starved",
        NS,
        "idle time of the GPU right before its activities for another reason",
        merge=REPORTS,
    ),
    _on_request("bound", "bound", NAME, "what the op is bound by"),
    _on_request(
        "communication_ns",
        "communication",
        NS,
        "time of communication kernels it owns",
        merge=REPORTS,
    ),
    _on_request(
        "exposed_ns", "exposed", NS, "communication that no computation hid", merge=REPORTS
    ),
    _on_request(
        "adopted_ns",
        "adopted",
        NS,
        "part of the GPU self time that was launched by another thread, which the op waited for",
        merge=WINDOWS,
    ),
    *COSTS,
    *TENSOR_CORES,
    *COUNTERS,
    *ENERGY,
    Column(
        "share",
        "of GPU",
        SHARE,
        "gpu_self_ns by the GPU time of all activities",
        ratio=("gpu_self_ns", ALL_GPU),
        merge=RATIO,
    ),
    _on_request(
        "total_share",
        "total of GPU",
        SHARE,
        "gpu_total_ns by the GPU time of all activities",
        ratio=("gpu_total_ns", ALL_GPU),
        merge=RATIO,
    ),
    _on_request(
        "cpu_share",
        "of CPU",
        SHARE,
        "cpu_self_ns by that of all ranges, of both directions",
        ratio=("cpu_self_ns", ALL_CPU),
        merge=RATIO,
    ),
)
RANGE_COLUMNS = table(
    *_RANGE_COLUMNS,
    terminal="calls kernels gpu_self_ns share gpu_total_ns gpu_busy_ns gpu_mean_ns gpu_p95_ns"
    " cpu_self_ns cpu_total_ns",
    sets={
        "gpu": tuple(c.name for c in _RANGE_COLUMNS if c.name.startswith("gpu_")),
        "cpu": tuple(c.name for c in _RANGE_COLUMNS if c.name.startswith("cpu_")),
        "causes": ("calls", "gpu_self_ns", "launch_gap_ns", "starved_ns", *CAUSES[:4], "bound"),
        "communication": ("calls", "gpu_self_ns", *EXPOSED),
        "tensor-cores": ("calls", "gpu_self_ns", *TENSOR_CORE_NAMES),
        "flops": ("calls", "gpu_total_ns", *COST_NAMES),
        **{name: ("gpu_self_ns", *columns) for name, columns in COUNTER_SETS.items()},
    },
)
# Columns of reports without activities: times of the host.
HOST_COLUMNS = table(
    Column("calls", "calls", COUNT),
    Column("cpu_self_ns", "CPU self", NS, bar=True),
    Column("cpu_total_ns", "CPU total", NS),
)

HOST_OP_COLUMNS = table(Column("op", "op", NAME, "name of the op"), *HOST_COLUMNS.columns)

# -- Rows of CUDA API calls

CALL_COLUMNS = table(
    _summed("count", "count", COUNT, "API calls"),
    _summed("total_ns", "CPU total", NS, "time of the calls on the host", bar=True),
    *_statistics(
        "", "the time of a call", "mean", "", "mean min p50 p95 max", "mean min p50 p95 max"
    ),
    _summed(
        "activities", "activities", COUNT, "activities that the calls launched", terminal=False
    ),
    _summed("gpu_ns", "GPU launched", NS, "time of these activities", optional=True),
    Column(
        "share",
        "of API",
        SHARE,
        "total_ns by the time of all API calls",
        ratio=("total_ns", ALL_CALLS),
        merge=RATIO,
    ),
    terminal="count total_ns share mean_ns p50_ns p95_ns min_ns max_ns gpu_ns",
)

# -- Rows of activities


def _activity_columns(
    *first: Column,
    default: str,
    terminal: str,
    optional: str = "busy_ns p50_ns median_ns p95_ns p99_ns min_ns max_ns gb_per_s",
    share: str = "of GPU",
    whole: str = ALL_GPU,
) -> tuple[Column, ...]:
    """Describe a table of activities: the columns that name a row, and the figures.

    ``default`` and ``terminal`` are the figures that it has and that a terminal shows, unless
    others are requested; ``optional`` are those that a terminal without room leaves out.
    """
    columns = (
        _summed("count", "count", COUNT, "activities"),
        _summed("total_ns", "GPU total", NS, "sum of their times", bar=True),
        _summed("busy_ns", "GPU busy", NS, "length of the union of their intervals", optional=True),
        _summed("span_ns", "span", NS, "first start to last end"),
        *_statistics("", "the time of an activity", "mean", ""),
        _summed("bytes", "bytes", BYTES, "bytes moved by memcpys and memsets"),
        Column(
            "gb_per_s",
            "speed",
            GB_PER_S,
            "bytes by their time",
            ratio=("bytes", "total_ns"),
            merge=RATIO,
            missing=True,
            optional=True,
        ),
        Column(
            "share",
            share,
            SHARE,
            f"total_ns by the {WHOLES[whole]}",
            ratio=("total_ns", whole),
            merge=RATIO,
        ),
        *TENSOR_CORES,
        *COUNTERS,
        *ENERGY,
    )
    has, shows = default.split(), terminal.split()
    if "median_ns" in has:
        columns = _with_median(columns)
    return (
        *first,
        *(
            column.but(
                default=column.name in has,
                terminal=column.name in shows,
                optional=column.name in optional.split(),
            )
            for column in columns
        ),
    )


def _with_median(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the columns with the median as `median_ns` after the mean, as in NVIDIA's tables."""
    by_name = {column.name: column for column in columns}
    median = by_name.pop("p50_ns").but(
        name="median_ns", heading="median", meaning="median of the time of an activity"
    )
    result = list(by_name.values())
    result.insert(result.index(by_name["mean_ns"]) + 1, median)
    return tuple(result)


ACTIVITY_SETS = {
    "tensor-cores": ("count", "total_ns", *TENSOR_CORE_NAMES),
    **{name: ("total_ns", *columns) for name, columns in COUNTER_SETS.items()},
}
ACTIVITY_COLUMNS = table(
    *_activity_columns(
        default="count total_ns busy_ns mean_ns min_ns p50_ns p95_ns max_ns share",
        terminal="count total_ns share busy_ns mean_ns p50_ns p95_ns min_ns max_ns",
    ),
    terminal="count total_ns share busy_ns mean_ns p50_ns p95_ns min_ns max_ns",
    sets=ACTIVITY_SETS,
)
OP = Column("op", "op", NAME, "name of the op")
KERNEL = Column("kernel", "kernel", NAME, "name of the kernel, as --kernel-names says")
OP_KERNEL_COLUMNS = table(
    *_activity_columns(
        OP,
        KERNEL,
        default="count total_ns mean_ns min_ns max_ns",
        terminal="count total_ns mean_ns min_ns max_ns",
    ),
    sets=ACTIVITY_SETS,
)
KERNEL_COLUMNS = table(
    *_activity_columns(
        KERNEL,
        default="count total_ns mean_ns median_ns min_ns max_ns share",
        terminal="count total_ns mean_ns median_ns min_ns max_ns share",
        share="of kernels",
        whole=ALL_KERNELS,
    ),
    terminal="kernel count total_ns share mean_ns median_ns min_ns max_ns",
    sets=ACTIVITY_SETS,
)
MEMCPY_COLUMNS = table(
    *_activity_columns(
        Column(
            "operation", "operation", NAME, "memcpy by its direction, or memset, as nsys names it"
        ),
        Column("source", "from", NAME, "memory that is read, with --memory-kinds"),
        Column("target", "to", NAME, "memory that is written, with --memory-kinds"),
        default="count total_ns mean_ns min_ns max_ns bytes gb_per_s",
        terminal="count total_ns bytes gb_per_s mean_ns min_ns max_ns",
        optional="mean_ns min_ns max_ns",
    ),
    terminal="operation source target count total_ns bytes gb_per_s mean_ns min_ns max_ns",
    sets=ACTIVITY_SETS,
)
OP_COLUMNS = table(
    OP, *_RANGE_COLUMNS, terminal="op " + " ".join(RANGE_COLUMNS.terminal), sets=RANGE_COLUMNS.sets
)

# -- The tables

WHAT_RAN = "bridge report REPORT --by kind shows what ran on a GPU"
BY_SELF_TIME = ("gpu_self_ns", "gpu_total_ns", "cpu_total_ns")
BY_TOTAL = ("total_ns",)
OF_ACTIVITIES: dict[str, Any] = {
    "sorted_by": BY_TOTAL,
    "directed": True,
    "on_gpu": True,
    "timeline": False,
    "kind": ACTIVITIES,
}
VIEWS = (
    View(
        "op",
        "Which ops cost most?",
        OP_COLUMNS,
        rows="tables.breakdown:by_op",
        takes=("costs",),
        host=HOST_OP_COLUMNS,
        sorted_by=BY_SELF_TIME,
        directed=True,
        timeline=False,
        kind=RANGES,
        nothing=f"no ops; {WHAT_RAN}",
    ),
    View(
        "op-kernel",
        "Which kernels does an op run?",
        OP_KERNEL_COLUMNS,
        rows="tables.activity_columns:by_op_kernel",
        takes=("kernel_names", "inclusive"),
        labels=("op", "kernel"),
        **OF_ACTIVITIES,
        nothing="no kernel belongs to an op; bridge report REPORT --by kernel lists all kernels",
    ),
    View(
        "kernel",
        "Which kernels cost most?",
        KERNEL_COLUMNS,
        rows="tables.activity_columns:by_kernel",
        takes=("kernel_names",),
        **OF_ACTIVITIES,
        nothing=f"no kernels; {WHAT_RAN}",
    ),
    View(
        "memcpy",
        "Which memcpys and memsets cost most?",
        MEMCPY_COLUMNS,
        rows="tables.activity_columns:by_memcpy",
        takes=("memory_kinds",),
        labels=("operation", "source", "target"),
        **OF_ACTIVITIES,
        nothing="no memcpys or memsets in the report",
    ),
)
