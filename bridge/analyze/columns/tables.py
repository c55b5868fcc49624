"""The columns of tables with fixed columns: ranges, modules, steps, gaps, devices."""

from __future__ import annotations

from typing import Any

from bridge.analyze.columns.breakdown import KERNEL, OP
from bridge.analyze.columns.column import (
    ALL_GPU,
    BYTES,
    CHANGE,
    CLOCK_OFFSET,
    COUNT,
    FIGURE,
    FLOP,
    GB_PER_S,
    ID,
    INSTANT,
    NAME,
    NS,
    NUMBER,
    PATH,
    PERCENT,
    SHARE,
    TFLOP_PER_S,
    Column,
    table,
)
from bridge.analyze.columns.column import (
    STEP as STEP_NUMBER,
)

HIDDEN: dict[str, Any] = {"terminal": False}  # displayed on request
QUIET: dict[str, Any] = {"optional": True, "quiet": True}
REPORT = Column("report", "report", NAME, "file, where there are several", distinct=True)
PID = Column("pid", "pid", ID, "id of the process", optional=True)
CALLS = Column(
    "calls", "calls", COUNT, "calls: ranges, or all slices with one call id", optional=True
)
KERNELS = Column("kernels", "kernels", COUNT, "kernels", optional=True)
SHARE_OF_GPU = Column(
    "share",
    "of GPU",
    SHARE,
    "gpu_self_ns by the GPU time of all activities",
    ("gpu_self_ns", ALL_GPU),
    optional=True,
)
PASSES = (
    CALLS,
    KERNELS,
    Column("gpu_forward_ns", "forward", NS, "GPU time of forward work"),
    Column("gpu_backward_ns", "backward", NS, "GPU time of backward work"),
    Column("gpu_self_ns", "GPU self", NS, "GPU time of both, of nothing under it", bar=True),
)
AMBIGUOUS = Column(
    "ambiguous_ns",
    "ambiguous",
    NS,
    "backward work by a choice between several forward threads",
    quiet=True,
)
RANGE = table(
    Column("name", "range", NAME, "op, or whole text with --names raw"),
    Column("path", "path", PATH, "ops around it", optional=True),
    Column("start_ns", "start", INSTANT, "start on the host"),
    Column("duration_ns", "CPU", NS, "duration on the host"),
    Column("thread", "thread", ID, "thread that opened it", **HIDDEN),
    Column(
        "gpu_start_ns",
        "GPU start",
        INSTANT,
        "first start of what was launched in it, −1 for nothing",
        missing=True,
        **HIDDEN,
    ),
    Column("gpu_span_ns", "GPU span", NS, "first start to last end of what was launched in it"),
    Column(
        "gpu_busy_ns", "GPU busy", NS, "length of the union of what was launched in it", bar=True
    ),
    Column("activities", "activities", COUNT, "activities launched in it", optional=True),
)
MODULE = table(
    Column(
        "module",
        "module",
        PATH,
        "path of modules; backward work by its forward range, where that is in a marked module",
    ),
    *PASSES,
    Column("gpu_total_ns", "GPU total", NS, "GPU time of the module and those inside it"),
    Column("cpu_self_ns", "CPU self", NS, "time on the host in the module only", **HIDDEN),
    Column(
        "cpu_total_ns",
        "CPU total",
        NS,
        "time on the host in the module and those inside it",
        optional=True,
    ),
    AMBIGUOUS,
    SHARE_OF_GPU,
    terminal="module calls kernels gpu_forward_ns gpu_backward_ns gpu_self_ns share gpu_total_ns"
    " cpu_total_ns ambiguous_ns",
)
# Tables of reports without activities: times of the host.
HOST_RANGE = table(
    *(RANGE.by_name[name] for name in ("name", "path", "start_ns")),
    RANGE.by_name["duration_ns"].but(bar=True),
)
HOST_MODULE = table(
    *(MODULE.by_name[name] for name in ("module", "calls")),
    MODULE.by_name["cpu_self_ns"].but(terminal=True, bar=True),
    MODULE.by_name["cpu_total_ns"].but(optional=False),
)
FORWARD_OP = table(
    OP,
    *PASSES,
    AMBIGUOUS,
    SHARE_OF_GPU,
    terminal="op calls kernels gpu_forward_ns gpu_backward_ns gpu_self_ns share ambiguous_ns",
)
PHASE = table(
    Column("phase", "phase", NAME, "name of start/end ranges"),
    Column("ranges", "ranges", COUNT, "start/end ranges of that name"),
    Column("open", "open", COUNT, "those that never ended"),
    Column("activities", "activities", COUNT, "activities launched while one was open"),
    Column("kernels", "kernels", COUNT, "kernels among them", **HIDDEN),
    Column("gpu_ns", "GPU", NS, "GPU time of these activities", bar=True),
    Column("gpu_busy_ns", "GPU busy", NS, "length of the union of their intervals", optional=True),
    Column("wall_ns", "wall", NS, "time in which one was open"),
    Column(
        "share",
        "of GPU",
        SHARE,
        "gpu_ns by the GPU time of all activities",
        ("gpu_ns", ALL_GPU),
        optional=True,
    ),
    terminal="phase ranges open activities gpu_ns share gpu_busy_ns wall_ns",
)
FRAME = table(
    Column("frame", "frame", NAME, "name of ranges of the category frame"),
    Column("domain", "domain", NAME, "NVTX domain", optional=True),
    PID,
    Column("frames", "frames", COUNT, "frames that began"),
    Column("open", "open", COUNT, "those that never ended", quiet=True),
    Column(
        "frames_per_s",
        "frames/s",
        NUMBER,
        "frames less one by the time from the first begin to the last, −1 without such a time",
        missing=True,
    ),
    Column("mean_ns", "mean", NS, "mean duration on the host", bar=True),
    Column("p50_ns", "p50", NS, "median of the durations", optional=True),
    Column("p95_ns", "p95", NS, "95th percentile of the durations"),
    Column("max_ns", "max", NS, "longest duration"),
)
STEP_COSTS = (
    Column("flop", "FLOP", FLOP, "FLOPs of the step", missing=True, default=False, terminal=False),
    Column(
        "mfu",
        "MFU",
        SHARE,
        "model FLOPs utilization: tflop_per_s by peak_tflops",
        missing=True,
        default=False,
        terminal=False,
    ),
    Column(
        "tflop_per_s",
        "reached",
        TFLOP_PER_S,
        "FLOPs by the wall time",
        missing=True,
        default=False,
        terminal=False,
    ),
    Column(
        "peak_tflops",
        "peak",
        TFLOP_PER_S,
        "peak of the GPUs",
        missing=True,
        default=False,
        terminal=False,
    ),
    Column(
        "uncounted",
        "uncounted",
        COUNT,
        "calls whose FLOPs are not known",
        default=False,
        terminal=False,
    ),
    Column(
        "peak_dtype",
        "in",
        NAME,
        "type of numbers that the peak is for",
        default=False,
        terminal=False,
        optional=True,
    ),
)
STEP = table(
    Column("step", "step", STEP_NUMBER, "number of the step"),
    PID,
    Column("process", "process", NAME, "name of the process", **HIDDEN),
    REPORT,
    Column("found_by", "found by", NAME, "how the steps were found", **HIDDEN),
    Column("name", "name", NAME, "range of the step, or the work that it begins with", **HIDDEN),
    Column(
        "loop", "loop", NAME, "what the names of the loop's steps have in common", distinct=True
    ),
    Column("start_ns", "start", INSTANT, "start of the step", **HIDDEN),
    Column("wall_ns", "wall", NS, "duration of the step"),
    Column("kernel_ns", "kernels", NS, "time with a kernel running"),
    Column("memcpy_ns", "memcpys", NS, "rest of the time with a memcpy running", **QUIET),
    Column("memset_ns", "memsets", NS, "rest of the time with a memset running", **QUIET),
    Column(
        "communication_ns",
        "communication",
        NS,
        "rest of the time with communication running",
        **QUIET,
    ),
    Column("runtime_ns", "API calls", NS, "rest of the time in CUDA API calls", **QUIET),
    Column("dataloader_ns", "data", NS, "rest of the time in data loading", **QUIET),
    Column("cpu_ns", "CPU", NS, "rest of the time in ops on the host", **QUIET),
    Column("other_ns", "other", NS, "rest of the time", **QUIET),
    Column("between_ns", "since last", NS, "time since the last step"),
    Column(
        "between_dataloader_ns",
        "data, since last",
        NS,
        "data loading since the last step",
        **HIDDEN,
    ),
    Column("activities", "activities", COUNT, "activities of the step", **HIDDEN),
    Column("gpu_ns", "GPU", NS, "GPU time of its activities", **HIDDEN),
    Column("gpu_busy_ns", "GPU busy", NS, "length of the union of their intervals", **HIDDEN),
    Column("change", "change", CHANGE, "wall time against the median of steady steps"),
    Column("state", "state", NAME, "warm-up, steady, or outlier"),
    *STEP_COSTS,
    terminal="step pid report loop wall_ns kernel_ns memcpy_ns communication_ns runtime_ns dataloader_ns cpu_ns"
    " other_ns memset_ns between_ns change state",
    sets={"flops": ("wall_ns", *(column.name for column in STEP_COSTS))},
)
RULE = table(
    Column("rule", "rule", NAME, "name of the rule"),
    KERNEL,
    Column("kind", "kind", NAME, "optimization or information"),
    Column("saves_ns", "saves", NS, "time that it estimates to save", bar=True),
    Column("speedup", "estimate", PERCENT, "estimated speed-up", missing=True),
    Column("scope", "scope", NAME, "what the estimate is for: the kernel or a part"),
    Column("count", "count", COUNT, "kernels", optional=True),
    Column("total_ns", "GPU total", NS, "time of these kernels", optional=True),
    Column("text", "message", NAME, "message of the rule"),
)
DEVICE = table(
    Column("device", "device", NAME, "GPU"),
    Column("processes", "processes", COUNT, "processes with work on it", **HIDDEN),
    Column("streams", "streams", COUNT, "streams with work on it", **HIDDEN),
    Column("activities", "activities", COUNT, "activities", **HIDDEN),
    Column("kernels", "kernels", COUNT, "kernels", **HIDDEN),
    Column("gpu_ns", "GPU", NS, "sum of the times of its activities", **HIDDEN),
    Column("busy_ns", "busy", NS, "time with any activity running", bar=True),
    Column("span_ns", "span", NS, "first start to last end", **HIDDEN),
    Column("idle_ns", "idle", NS, "span_ns less busy_ns", optional=True),
    Column("busy_share", "of span", SHARE, "busy_ns by span_ns", ("busy_ns", "span_ns")),
    Column(
        "concurrency",
        "at once",
        NUMBER,
        "activities running at the same time, on average while busy",
    ),
    Column(
        "max_concurrent",
        "most",
        COUNT,
        "activities running at the same time, at most",
        optional=True,
    ),
    Column("compute_ns", "compute", NS, "time with a compute kernel running", optional=True),
    Column(
        "communication_ns", "communication", NS, "time with a communication kernel running", **QUIET
    ),
    Column("memops_ns", "memops", NS, "time with a memcpy or memset running", **QUIET),
    Column("overlap_ns", "overlap", NS, "communication that computation hid", **HIDDEN),
    Column("exposed_ns", "exposed", NS, "communication that no computation hid", **QUIET),
    Column(
        "sm_efficiency",
        "SMs used",
        SHARE,
        "part of the SMs that kernels had blocks for",
        missing=True,
        **QUIET,
    ),
    Column(
        "occupancy",
        "occupancy",
        SHARE,
        "theoretical occupancy of the kernels",
        missing=True,
        **QUIET,
    ),
    terminal="device busy_ns busy_share idle_ns concurrency max_concurrent compute_ns communication_ns exposed_ns"
    " memops_ns sm_efficiency occupancy",
)
COLLECTIVE = table(
    Column("collective", "collective", NAME, "kind of the collective"),
    Column("op", "op", NAME, "op that called it", optional=True),
    Column("dtype", "type", NAME, "type of the elements", **QUIET),
    Column("algorithm", "algorithm", NAME, "algorithm of the library", **HIDDEN),
    Column(
        "message_bytes",
        "message",
        BYTES,
        "size of one message in NCCL's payload",
        missing=True,
        **QUIET,
    ),
    Column(
        "comm_ranks",
        "of ranks",
        COUNT,
        "ranks of the communicator in NCCL's payload",
        missing=True,
        **QUIET,
    ),
    Column("ranks", "ranks", COUNT, "ranks with it", optional=True),
    Column("count", "count", COUNT, "kernels"),
    Column("total_ns", "GPU total", NS, "sum of their times", bar=True),
    Column("mean_ns", "mean", NS, "mean of their times", optional=True),
    Column("min_ns", "min", NS, "shortest", **HIDDEN),
    Column("max_ns", "max", NS, "longest", **HIDDEN),
    Column("exposed_ns", "exposed", NS, "time that no computation hid"),
    Column(
        "bytes", "bytes", BYTES, "size of the data, as nccl-tests count it", missing=True, **QUIET
    ),
    Column("gb_per_s", "speed", GB_PER_S, "bytes by the GPU total", missing=True, **QUIET),
    Column(
        "bus_gb_per_s",
        "on the bus",
        GB_PER_S,
        "bus bandwidth, as nccl-tests define it",
        missing=True,
        **QUIET,
    ),
    Column(
        "link_gb_per_s",
        "link",
        GB_PER_S,
        "bandwidth of the GPUs' link in one direction, from their data sheet",
        missing=True,
        **QUIET,
    ),
    Column(
        "link_share",
        "of link",
        SHARE,
        "bus_gb_per_s by link_gb_per_s",
        missing=True,
        **QUIET,
    ),
    Column(
        "transfer_ns", "transfer", NS, "time after the last rank arrived", missing=True, **QUIET
    ),
    Column("wait_ns", "waiting", NS, "time before the last rank arrived", missing=True, **QUIET),
    Column("straggler", "straggler", NAME, "rank that the others waited for most", **QUIET),
    Column(
        "arrival_mean_ns",
        "apart",
        NS,
        "mean time between first and last arrival",
        missing=True,
        **QUIET,
    ),
    Column(
        "arrival_max_ns",
        "most apart",
        NS,
        "longest time between first and last arrival",
        missing=True,
        **HIDDEN,
    ),
    Column("last", "comes last", NAME, "rank that arrives last most often", **QUIET),
    terminal="collective op dtype message_bytes comm_ranks ranks count total_ns mean_ns exposed_ns wait_ns"
    " transfer_ns straggler arrival_mean_ns last bytes gb_per_s bus_gb_per_s link_gb_per_s link_share",
)
SKEW = table(
    OP,
    Column("ranks", "ranks", COUNT, "ranks with the op", optional=True),
    Column("total_ns", "GPU self", NS, "GPU time of all ranks", optional=True),
    Column("mean_ns", "mean", NS, "mean per rank", **HIDDEN),
    Column("median_ns", "median", NS, "median per rank"),
    Column("slowest", "slowest", NAME, "slowest rank"),
    Column("slowest_ns", "took", NS, "time of the slowest rank"),
    Column("fastest", "fastest", NAME, "fastest rank", **HIDDEN),
    Column("fastest_ns", "fastest took", NS, "time of the fastest rank", **HIDDEN),
    Column("skew", "more", CHANGE, "slowest_ns against the median"),
    Column("lost_ns", "lost", NS, "slowest_ns less the median", bar=True),
    Column("communication_ns", "communication", NS, "communication among it", **QUIET),
)
# The rows of a comparison are written as texts: see `bridge.render.diff`.
DIFF = table(
    Column("calls", "calls", ID, "calls before and after", **QUIET),
    Column("activities", "count", ID, "activities before and after", **QUIET),
    Column("before_ns", "before", ID, "time before; the line above says if it is per step"),
    Column("after_ns", "after", ID, "time after"),
    Column("diff_ns", "difference", ID, "after_ns less before_ns", optional=True),
    Column("change", "change", ID, "diff_ns by before_ns"),
    Column("interval", "interval", ID, "95 % interval of the change per step", quiet=True),
    Column("share", "of change", ID, "part of the change of the whole", optional=True),
    Column("p", "p", ID, "p-value of a Mann-Whitney U test over steps", **QUIET),
    Column("state", "state", ID, "new, vanished, slower, faster, same, unclear"),
)
RANKS = table(
    Column("rank", "rank", ID, "number of the rank, −1 unknown"),
    Column("host", "host", NAME, "machine", quiet=True),
    PID,
    Column("gpu", "GPU", NAME, "GPU"),
    REPORT,
    Column("known_by", "known by", NAME, "source of the number of the rank", optional=True),
    Column(
        "clock", "clock by", NAME, "source of the offset of its clock", optional=True, distinct=True
    ),
    Column("clock_offset_ns", "clock", CLOCK_OFFSET, "time added to its times", quiet=True),
    Column("clock_spread_ns", "±", NS, "uncertainty of the offset", missing=True, quiet=True),
    Column("start_ns", "start", NS, "first event, from that of all ranks", **HIDDEN),
    Column("span_ns", "span", NS, "first to last event"),
    KERNELS,
    Column("gpu_ns", "GPU", NS, "GPU time of its activities", **HIDDEN),
    Column("busy_ns", "busy", NS, "time with any activity running, over its GPUs", **HIDDEN),
    Column(
        "gpu_span_ns", "GPU span", NS, "first start to last end of the work of its GPUs", **HIDDEN
    ),
    Column(
        "busy_share",
        "GPU busy",
        SHARE,
        "busy_ns by gpu_span_ns",
        ("busy_ns", "gpu_span_ns"),
        bar=True,
    ),
    Column("attributed_share", "in ops", SHARE, "part of its GPU time that has an op"),
    Column("exposed_ns", "exposed", NS, "communication that no computation hid", quiet=True),
    terminal="rank host gpu report pid known_by clock clock_offset_ns clock_spread_ns span_ns busy_share"
    " attributed_share exposed_ns kernels",
)
ONEDNN = table(
    *(
        Column(name, name, NAME, meaning)
        for name, meaning in {
            "primitive": "kind of the primitive",
            "impl": "implementation",
            "prop": "propagation kind",
            "problem": "problem descriptor",
            "layout": "memory formats",
            "attributes": "attributes",
            "aux": "auxiliary information",
            "engine": "engine",
        }.items()
    ),
    Column("calls", "calls", COUNT, "executions"),
    Column("total_ns", "total", NS, "time of the executions", bar=True),
    Column("share", "share", SHARE, "part of the time of all primitives"),
    Column("mean_ns", "mean", NS, "mean", optional=True),
    Column("median_ns", "median", NS, "median", optional=True),
    Column("min_ns", "min", NS, "shortest", optional=True),
    Column("max_ns", "max", NS, "longest", optional=True),
    Column("flop", "FLOPs", FLOP, "floating-point operations", missing=True, **QUIET),
    Column("gflop_per_s", "GFLOP/s", FIGURE, "10**9 FLOPs per second", missing=True, quiet=True),
    Column("creations", "creations", COUNT, "times that the primitive was created", **QUIET),
    Column("creation_ns", "creating", NS, "time of creating it", quiet=True),
)
