"""The tables of the host and of idle time: waits, launches, gaps, calls of the system, the critical path."""

from __future__ import annotations

from bridge.analyze.core.catalog.breakdown import KERNEL, OP
from bridge.analyze.core.catalog.column import (
    ALL_GPU,
    COUNT,
    ID,
    INSTANT,
    NAME,
    NS,
    SHARE,
    Column,
    table,
)
from bridge.analyze.core.catalog.column import (
    STEP as STEP_NUMBER,
)
from bridge.analyze.core.catalog.ranges import HIDDEN, QUIET, REPORT
from bridge.analyze.core.catalog.view import View

OF_GRAPH = ("waits", "cuda_streams", "system_calls", "result")
OF_CAUSES = (*OF_GRAPH, "overhead")
OS_COLUMNS = {  # of idle time, and what nsys must record for them
    "os_call": "--trace=osrt",
    "os_ns": "--trace=osrt",
    "gil_ns": "--trace=python-gil",
    "gil_holder": "--trace=python-gil",
    "off_cpu_ns": "--cpuctxsw=process-tree",
}
SOURCE_DETAILS = ("call_chains", "chain")  # call stacks of API calls
RECORD_STACKS = (
    "nsys profile --sample=process-tree --cudabacktrace=all:1 --python-backtrace=cuda (bridge run --backtrace),"
    " profile(with_stack=True) of PyTorch, nvtx_op(source=True), or bridge.torch.ops(stacks=True)"
)

WAIT_TIMES = (
    Column("mean_ns", "mean", NS, "mean of a wait"),
    Column("min_ns", "min", NS, "shortest wait", optional=True),
    Column("max_ns", "max", NS, "longest wait", optional=True),
)

WAIT = View(
    "wait",
    "What did the host wait for, and in which op?",
    table(
        OP,
        Column("wait", "wait", NAME, "kind of the synchronization"),
        Column("count", "count", COUNT, "waits"),
        Column("total_ns", "CPU total", NS, "time of the waits on the host", bar=True),
        *WAIT_TIMES,
    ),
    rows="tables.host:by_wait",
    sorted_by=("total_ns",),
    details=("waits",),
    nothing="no synchronizations in the report",
)


def _launch_times(part: str, heading: str, meaning: str, *terminal: str) -> list[Column]:
    """Describe the sum, mean, median, minimum and maximum of one part of a launch."""
    names = {"": "sum", "mean_": "mean", "median_": "median", "min_": "minimum", "max_": "maximum"}
    return [
        Column(
            f"{part}_{name}ns",
            f"{heading}, {name.rstrip('_')}" if name else heading,
            NS,
            f"{text} of the {meaning}",
            missing=part == "queue" and name in ("min_", "max_"),
            terminal=name in terminal,
        )
        for name, text in names.items()
    ]


LAUNCH = View(
    "launch",
    "How long is each kernel from its API call to its end?",
    table(
        KERNEL,
        Column("api", "API call", NAME, "API call that launched it", optional=True),
        Column("pid", "pid", ID, "id of the process", optional=True, distinct=True),
        REPORT.but(optional=True),
        Column("tid", "thread", ID, "id of the thread", optional=True, distinct=True),
        Column("device", "GPU", ID, "number of the GPU", optional=True, distinct=True),
        Column("count", "count", COUNT, "kernels"),
        *(
            column.but(bar=column.name == "total_ns", optional=True)
            for column in _launch_times(
                "total", "launch to end", "time from the call to the kernel's end", "", "mean_"
            )
        ),
        *_launch_times("api", "call", "time of the API call", "mean_"),
        Column("queue_count", "queued", COUNT, "kernels that waited in the queue", optional=True),
        *(
            column.but(optional=column.name == "queue_max_ns")
            for column in _launch_times("queue", "queue", "time in the queue", "mean_", "max_")
        ),
        *_launch_times("kernel", "kernel", "time of the kernel", "mean_"),
        terminal="kernel report tid device pid api count total_ns api_mean_ns queue_mean_ns queue_max_ns queue_count"
        " kernel_mean_ns total_mean_ns",
    ),
    rows="tables.host:by_launch",
    takes=("kernel_names",),
    sorted_by=("total_ns",),
    on_gpu=True,
    nothing="no kernels with an API call in the report",
    page="causes.md",
)
OS_CALL = Column(
    "os_call", "OS call", NAME, "call of the operating system with most of that time", **QUIET
)
OS_TIMES = (  # columns of tables of idle time, where such records are in the report
    OS_CALL,
    Column(
        "os_ns",
        "in OS calls",
        NS,
        "time that the thread to launch the next work spent in calls of the operating system",
        **QUIET,
    ),
    Column(
        "gil_holder",
        "GIL holder",
        NAME,
        "thread that held Python's lock most while that thread waited for it",
        **QUIET,
    ),
    Column("gil_ns", "waits for GIL", NS, "time in which that thread waited for it", **QUIET),
    Column("off_cpu_ns", "off the CPU", NS, "time in which that thread ran on no CPU", **QUIET),
)
OSRT = View(
    "osrt",
    "In which calls of the operating system was the host?",
    table(
        Column("call", "OS call", NAME, "call of the operating system's runtime"),
        Column("threads", "threads", COUNT, "threads that made it", optional=True),
        Column("count", "count", COUNT, "calls"),
        Column(
            "idle_ns",
            "GPU idle",
            NS,
            "idle time of GPUs in which the thread to launch the next work was in it",
            bar=True,
        ),
        Column("total_ns", "CPU total", NS, "time of the calls, of all threads"),
        Column("mean_ns", "mean", NS, "mean of a call"),
        Column("median_ns", "median", NS, "median of a call", optional=True),
        Column("min_ns", "min", NS, "shortest call", optional=True),
        Column("max_ns", "max", NS, "longest call", optional=True),
    ),
    rows="run.idle.tables:by_osrt",
    sorted_by=("idle_ns", "total_ns"),
    details=OF_CAUSES,
    nothing="no calls of the operating system in the report; record them with nsys profile --trace=osrt",
    page="causes.md#what-the-operating-system-did",
)
SAMPLE = View(
    "sample",
    "What did the host's code do while the GPU was idle?",
    table(
        Column(
            "function",
            "function",
            NAME,
            "innermost function of the program, of a stack without one the innermost of all",
        ),
        Column("source", "source", NAME, "its file and line, of native code its module"),
        Column("of", "of", NAME, "program or library", optional=True),
        Column("threads", "threads", COUNT, "threads that were sampled in it", optional=True),
        Column("samples", "samples", COUNT, "samples of the CPU"),
        Column("share", "of all", SHARE, "part of all samples"),
        Column(
            "idle_samples",
            "idle samples",
            COUNT,
            "samples in idle time of a GPU, of the thread to launch the next work",
            bar=True,
        ),
        Column("idle_share", "of idle", SHARE, "part of all samples in idle time"),
    ),
    rows="run.idle.samples:by_sample",
    sorted_by=("idle_samples", "samples"),
    details=("samples", *OF_CAUSES),
    nothing="no samples of the CPU in the report; record them with nsys profile --sample=process-tree",
    page="causes.md#what-the-operating-system-did",
)
GAP = View(
    "gap",
    "Which gaps are there between the work of a GPU, and why?",
    table(
        Column("device", "device", NAME, "GPU", optional=True),
        Column("start_ns", "start", INSTANT, "start of the gap", optional=True),
        Column("gap_ns", "GPU idle", NS, "length of the gap", bar=True),
        Column("cause", "cause", NAME, "what took most of it"),
        Column("cause_ns", "by cause", NS, "how much that took"),
        Column("op", "op", NAME, "op that was open then", quiet=True),
        Column(
            "call", "call", NAME, "API call, call of the system, or GPU that took it", quiet=True
        ),
        Column("ended_by", "ended by", NAME, "op or API call of the work that ended the gap"),
        Column("kernel", "kernel", NAME, "activity that ended the gap", **HIDDEN),
        Column("step", "step", STEP_NUMBER, "step, −1 outside of all", **QUIET),
        *OS_TIMES,
        terminal=(
            "cause call op gap_ns cause_ns os_call gil_ns gil_holder ended_by start_ns step off_cpu_ns os_ns"
            " device"
        ),
    ),
    rows="run.idle.tables:by_gap",
    takes=("idle_over_ns",),
    sorted_by=("gap_ns",),
    details=(*OF_CAUSES, "context_switches"),
    recorded_by=OS_COLUMNS,
    on_gpu=True,
    nothing="no GPU was idle for longer than --idle-over, which is 10 µs by default",
    page="causes.md",
)
SOURCE = View(
    "source",
    "Which line of the program launched it?",
    table(
        Column("function", "function", NAME, "function of the program, '' if it is not resolved"),
        Column(
            "source",
            "source",
            NAME,
            "file:line, of native code the module, or why there is no line",
        ),
        Column(
            "kind",
            "found by",
            NAME,
            "frame of python, native frame, or place of an op",
            quiet=True,
            optional=True,
        ),
        Column("ops", "ops", COUNT, "distinct ops that own the work", optional=True),
        Column("activities", "activities", COUNT, "activities that the calls issued", **HIDDEN),
        Column("kernels", "kernels", COUNT, "kernels among them"),
        Column("gpu_ns", "GPU", NS, "time of these activities", bar=True),
        Column(
            "share",
            "of GPU",
            SHARE,
            "gpu_ns by the GPU time of all activities",
            ("gpu_ns", ALL_GPU),
        ),
        Column("api_calls", "API calls", COUNT, "API calls of the line", optional=True),
        Column("api_ns", "API", NS, "time of these calls on the host", optional=True),
        terminal="function source kind ops kernels gpu_ns share api_calls api_ns",
    ),
    rows="tables.source_lines:by_source",
    sorted_by=("gpu_ns", "api_ns"),
    details=(*SOURCE_DETAILS, "json"),
    nothing=f"no call stacks of API calls in the report; record them: {RECORD_STACKS}",
    page="source.md",
)
IDLE = View(
    "idle",
    "Why is the GPU idle?",
    table(
        Column("cause", "cause", NAME, "why GPUs were idle"),
        Column("op", "op", NAME, "op that was open then", quiet=True),
        Column(
            "call", "call", NAME, "API call, call of the system, or GPU that took it", quiet=True
        ),
        Column("gaps", "gaps", COUNT, "gaps with that cause", optional=True),
        Column("total_ns", "GPU idle", NS, "idle time by that cause", bar=True),
        Column("mean_ns", "mean", NS, "mean per gap", optional=True),
        Column("max_ns", "max", NS, "longest", optional=True),
        Column("share", "of idle", SHARE, "part of all idle time"),
        *OS_TIMES,
        terminal="cause call op gaps total_ns share os_call os_ns gil_ns gil_holder off_cpu_ns mean_ns max_ns",
    ),
    rows="run.idle.tables:by_idle",
    takes=("idle_over_ns",),
    sorted_by=("total_ns",),
    details=(*OF_CAUSES, "context_switches"),
    recorded_by=OS_COLUMNS,
    on_gpu=True,
    nothing="no GPU was idle",
    page="causes.md",
)
CRITICAL = View(
    "critical",
    "What did the run wait for, and what would it gain without an op?",
    table(
        Column("op", "op", NAME, "op of the element, else its kernel or API call", quiet=True),
        Column("kind", "kind", NAME, "what the element is"),
        Column("count", "count", COUNT, "elements on the critical path", optional=True),
        Column(
            "time_ns", "on path", NS, "time of these elements; all rows add up to the run", bar=True
        ),
        Column("share", "of run", SHARE, "time_ns by the length of the run"),
        Column(
            "without_ns",
            "run without",
            NS,
            "length of the run if none of the op's elements of this kind took time",
            missing=True,
        ),
        Column(
            "saves_ns",
            "saves",
            NS,
            "length of the run less without_ns",
            missing=True,
            optional=True,
        ),
        terminal="op kind time_ns share without_ns saves_ns count",
    ),
    rows="run.critical:by_critical",
    sorted_by=("time_ns",),
    details=OF_GRAPH,
    nothing="no ranges, API calls or activities in the selected part of the report",
    page="critical.md",
)

PART = View(
    "part",
    "What did the host do before, in and after the iterations?",
    table(
        Column("part", "part", NAME, "start-up, iterations, between the loops, end"),
        Column(
            "range", "range", NAME, "innermost range of the thread that calls CUDA most", quiet=True
        ),
        Column("call", "call", NAME, "outermost call of that thread", quiet=True),
        Column(
            "kind",
            "kind",
            NAME,
            "whether that is a CUDA call or an OS call",
            quiet=True,
            optional=True,
        ),
        Column("time_ns", "time", NS, "time; all rows add up to the run", bar=True),
        Column("share", "of part", SHARE, "part of the time of the part"),
        Column("run_share", "of run", SHARE, "part of the time of the run", optional=True),
    ),
    rows="run.host_time:by_part",
    sorted_by=("time_ns",),
    details=("system_calls",),
    nothing="the reports have no common clock, so they have no parts in common",
    page="accuracy.md#parts-of-the-run",
)

VIEWS = (PART, WAIT, LAUNCH, GAP, IDLE, OSRT, SAMPLE, SOURCE, CRITICAL)
