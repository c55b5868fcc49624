"""The tables of ranges: single ones, modules, start/end ranges, steps, what was computed again, first calls."""

from __future__ import annotations

from typing import Any

from bridge.analyze.core.catalog.breakdown import OP
from bridge.analyze.core.catalog.column import (
    ALL_GPU,
    CHANGE,
    COUNT,
    FLOP,
    ID,
    INSTANT,
    NAME,
    NS,
    NUMBER,
    PATH,
    SHARE,
    TFLOP_PER_S,
    Column,
    table,
)
from bridge.analyze.core.catalog.column import (
    STEP as STEP_NUMBER,
)
from bridge.analyze.core.catalog.view import View

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
_RANGE = table(
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
        "gpu_busy_ns",
        "GPU busy",
        NS,
        "length of the union of what was launched in it",
        bar=True,
    ),
    Column("activities", "activities", COUNT, "activities launched in it", optional=True),
)
_MODULE = table(
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
_FORWARD_OP = table(
    OP,
    *PASSES,
    Column("cpu_forward_ns", "CPU forward", NS, "time on the host of forward work", **HIDDEN),
    Column("cpu_backward_ns", "CPU backward", NS, "time on the host of backward work", **HIDDEN),
    Column(
        "cpu_self_ns", "CPU self", NS, "time on the host of both, of nothing under it", **HIDDEN
    ),
    AMBIGUOUS,
    SHARE_OF_GPU,
    terminal="op calls kernels gpu_forward_ns gpu_backward_ns gpu_self_ns share ambiguous_ns",
)
# Of reports without activities: times of the host.
_HOST_RANGE = table(
    *(_RANGE.by_name[name] for name in ("name", "path", "start_ns")),
    _RANGE.by_name["duration_ns"].but(bar=True),
)
_HOST_MODULE = table(
    *(_MODULE.by_name[name] for name in ("module", "calls")),
    _MODULE.by_name["cpu_self_ns"].but(terminal=True, bar=True),
    _MODULE.by_name["cpu_total_ns"].but(optional=False),
)
_HOST_FORWARD_OP = table(
    *(_FORWARD_OP.by_name[name] for name in ("op", "calls")),
    *(
        _FORWARD_OP.by_name[name].but(terminal=True)
        for name in ("cpu_forward_ns", "cpu_backward_ns")
    ),
    _FORWARD_OP.by_name["cpu_self_ns"].but(terminal=True, bar=True),
)
RANGE = View(
    "range",
    "How long is each range, and its work on the GPU?",
    _RANGE,
    rows="tables.ranges:by_range",
    takes=("arguments",),
    host=_HOST_RANGE,
    sorted_by=("gpu_busy_ns", "duration_ns"),
    directed=True,
)
MODULE = View(
    "module",
    "Which modules cost most, forward and backward?",
    _MODULE,
    rows="tables.modules:by_module",
    host=_HOST_MODULE,
    sorted_by=("gpu_self_ns", "gpu_total_ns", "cpu_total_ns"),
    details=("category",),
    timeline=False,
)
FORWARD_OP = View(
    "forward-op",
    "What does an op cost with its backward pass?",
    _FORWARD_OP,
    rows="tables.modules:by_forward_op",
    host=_HOST_FORWARD_OP,
    sorted_by=("gpu_self_ns", "cpu_self_ns"),
    timeline=False,
)
PHASE = View(
    "phase",
    "What ran during start/end ranges?",
    table(
        Column("phase", "phase", NAME, "name of start/end ranges"),
        Column("ranges", "ranges", COUNT, "start/end ranges of that name"),
        Column("open", "open", COUNT, "those that never ended"),
        Column("activities", "activities", COUNT, "activities launched while one was open"),
        Column("kernels", "kernels", COUNT, "kernels among them", **HIDDEN),
        Column("gpu_ns", "GPU", NS, "GPU time of these activities", bar=True),
        Column(
            "gpu_busy_ns", "GPU busy", NS, "length of the union of their intervals", optional=True
        ),
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
    ),
    rows="tables.host:by_phase",
    sorted_by=("gpu_ns", "wall_ns"),
    nothing="no start/end ranges in the report",
    page="attribution.md#phases",
)
FRAME = View(
    "frame",
    "How many frames per second?",
    table(
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
    ),
    rows="run.frame_rate:by_frame",
    sorted_by=("frames",),
    details=("category",),
    nothing="no frames: no range has the category frame, as bridge.Domain(…).frame(…) gives it",
    page="annotate.md#explicit-ranges-and-marks",
)
_ON_REQUEST: dict[str, Any] = {
    "default": False,
    "terminal": False,
    "details": ("json", "metrics"),  # shapes of calls, and what was measured
}
STEP_COSTS = (
    Column("flop", "FLOP", FLOP, "FLOPs of the step", missing=True, **_ON_REQUEST),
    Column(
        "mfu",
        "MFU",
        SHARE,
        "model FLOPs utilization: tflop_per_s by peak_tflops",
        missing=True,
        **_ON_REQUEST,
    ),
    Column(
        "tflop_per_s",
        "reached",
        TFLOP_PER_S,
        "FLOPs by the wall time",
        missing=True,
        **_ON_REQUEST,
    ),
    Column(
        "peak_tflops",
        "peak",
        TFLOP_PER_S,
        "peak of the GPUs",
        missing=True,
        **_ON_REQUEST,
    ),
    Column(
        "uncounted",
        "uncounted",
        COUNT,
        "calls whose FLOPs are not known",
        **_ON_REQUEST,
    ),
    Column(
        "peak_dtype",
        "in",
        NAME,
        "type of numbers that the peak is for",
        **_ON_REQUEST,
        optional=True,
    ),
)
MARK_STEPS = "mark steps with ranges called step N, or name their ranges with --steps"
STEP = View(
    "step",
    "Which steps are slow?",
    table(
        Column("step", "step", STEP_NUMBER, "number of the step"),
        PID,
        Column("process", "process", NAME, "name of the process", **HIDDEN),
        REPORT,
        Column("found_by", "found by", NAME, "how the steps were found", **HIDDEN),
        Column(
            "name", "name", NAME, "range of the step, or the work that it begins with", **HIDDEN
        ),
        Column(
            "loop", "loop", NAME, "what the names of the loop's steps have in common", distinct=True
        ),
        Column("start_ns", "start", INSTANT, "start of the step", **HIDDEN),
        Column("host_start_ns", "host start", INSTANT, "start of the step on the host", **HIDDEN),
        Column(
            "first_work_ns",
            "first work",
            INSTANT,
            "start of its first work on the GPU that bounds the run, -1 if there is none",
            **HIDDEN,
        ),
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
    ),
    rows="tables.steps:by_step_with_costs",
    takes=("costs", "needs_costs"),
    nothing=f"no steps: no range family counts up, no optimizer ends a step, and no work recurs; {MARK_STEPS}",
    page="steps.md",
)
LOOP = View(
    "loop",
    "What does the program repeat?",
    table(
        Column("loop", "loop", ID, "number of the loop"),
        Column("parent", "in", ID, "number of the loop around it, -1 if there is none"),
        Column(
            "name",
            "name",
            NAME,
            "what the names of its ranges have in common, or the work that it begins with",
        ),
        Column(
            "kind", "kind", NAME, "iterations, epochs, parts of an iteration or of a pass, other"
        ),
        Column("found_by", "found by", NAME, "how the loop was found", optional=True),
        Column("pids", "pids", NAME, "processes that run it"),
        Column("count", "count", COUNT, "instances, warm-up included"),
        Column("warm_up", "warm-up", COUNT, "instances that are warm-up", optional=True),
        Column(
            "cut",
            "cut",
            NAME,
            "instances that the capture holds in part: before, after, or both",
            optional=True,
        ),
        Column("median_ns", "median", NS, "time from an instance to the next one, without warm-up"),
        Column("host_median_ns", "on the host", NS, "the same on the host", **HIDDEN),
        Column("start_ns", "start", INSTANT, "start of the first instance"),
        Column("end_ns", "end", INSTANT, "end of the last instance on the host"),
        terminal="loop parent name kind found_by count warm_up cut median_ns",
    ),
    rows="tables.steps:by_loop",
    nothing="no loops: nothing recurs three times in a row",
    page="steps.md",
)
RECOMPUTE = View(
    "recompute",
    "How much was computed again to save memory?",
    table(
        OP,
        Column(
            "kind",
            "kind",
            NAME,
            "recomputation, or eviction of a tensor that is computed again later",
        ),
        Column("calls", "calls", COUNT, "outermost calls that compute again, or evict"),
        Column("cpu_ns", "CPU total", NS, "time of these calls on the host"),
        Column("kernels", "kernels", COUNT, "kernels that they launched"),
        Column("gpu_ns", "GPU total", NS, "time of the activities that they launched", bar=True),
        Column("share", "of GPU", SHARE, "GPU total over the time of all activities"),
    ),
    rows="tables.recomputation:by_recompute",
    sorted_by=("gpu_ns", "cpu_ns"),
    nothing="no recomputation found: it shows by sequence numbers of PyTorch's ops (emit_nvtx, torch.profiler),"
    " by modules (bridge.torch.annotate), or as MegEngine's ReGen",
    page="attribution.md#recomputation",
)
FIRST_CALL = View(
    "first-call",
    "Which ops are slow the first time?",
    table(
        OP,
        CALLS,
        Column(
            "first_ns",
            "CPU first",
            NS,
            "duration on the host of the first call in a process, the longest of several",
        ),
        Column(
            "median_ns",
            "CPU median of others",
            NS,
            "median of the calls that are the first in no process",
        ),
        Column(
            "more_ns", "CPU more", NS, "first_ns less median_ns, 0 if it is not longer", bar=True
        ),
    ),
    rows="tables.first_calls:by_first_call",
    sorted_by=("more_ns",),
    nothing="no process called an op twice",
)

VIEWS = (RANGE, MODULE, FORWARD_OP, PHASE, FRAME, STEP, LOOP, RECOMPUTE, FIRST_CALL)
