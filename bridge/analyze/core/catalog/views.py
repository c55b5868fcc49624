"""The tables that `--by` names: what each answers, its columns, and which function computes its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bridge.analyze.core.catalog.column import COLUMNS, TableColumns

if TYPE_CHECKING:
    from bridge.analyze.core.table import Table

# The kinds of rows of tables whose columns can be selected.
RANGES, CALLS, ACTIVITIES = ("ranges", "calls", "activities")

# -- Details of a capture that several tables need: see `View.details`

GEOMETRY = tuple(
    "grid_x grid_y grid_z block_x block_y block_z registers shared_static shared_dynamic".split()
)
OF_GROUPS = ("json", "nccl_calls")  # what PyTorch and NCCL say of the groups of collectives
OF_GRAPH = ("waits", "cuda_streams", "system_calls", "result", *OF_GROUPS)
OF_CAUSES = (*OF_GRAPH, "overhead")
SOURCE_DETAILS = ("call_chains", "chain")  # call stacks of API calls
OS_COLUMNS = {  # of idle time, and what nsys must record for them
    "os_call": "--trace=osrt",
    "os_ns": "--trace=osrt",
    "gil_ns": "--trace=python-gil",
    "gil_holder": "--trace=python-gil",
    "off_cpu_ns": "--cpuctxsw=process-tree",
}

# -- What rows are sorted by, and messages for tables without rows

BY_SELF_TIME = ("gpu_self_ns", "gpu_total_ns", "cpu_total_ns")
BY_TOTAL = ("total_ns",)
WHAT_RAN = "bridge report REPORT --by kind shows what ran on a GPU"
MARK_STEPS = "mark steps with ranges called step N, or name their ranges with --steps"
RECORD_STACKS = (
    "nsys profile --sample=process-tree --cudabacktrace=all:1 --python-backtrace=cuda (bridge run --backtrace),"
    " profile(with_stack=True) of PyTorch, nvtx_op(source=True), or bridge.torch.ops(stacks=True)"
)
NO_BATCHES = "no batches of requests in the report; mark them with bridge.batch(requests={id: tokens}) in the server"
NO_ENERGY = "no samples of the energy of GPUs; record them with bridge.power.start() in the program"
NO_COUNTERS = (
    "no samples of hardware counters; record them with nsys profile --gpu-metrics-devices=all"
)


@dataclass(frozen=True)
class View:
    """A table, as `--by` names it.

    Attributes:
        name: as `--by` takes it.
        question: what the table answers, for `--by list` and the documentation.
        columns: its columns; those that name a row come first.
        rows: the function that computes the rows; of a built-in table its place in
            `bridge.analyze`, as ``folder.module:function``, which is imported when the table is asked for.
        takes: fields or properties of a `TableRequest` that the function takes as keywords of the
            same names.
        host: the columns to display where a report has no work on a GPU, if they differ.
        labels: the columns that name a row, of a table whose columns can be selected; the name of
            the table if there are none.
        sorted_by: the columns that rows are sorted by, largest first; empty: rows are not sorted.
        details: columns of a capture that importers read only for the tables that need them.
        recorded_by: columns that a report has only if they were recorded, with the option of nsys.
        directed: whether the table can count one direction alone.
        on_gpu: whether its rows need work on a GPU.
        timeline: whether it needs to know when kernels ran; Nsight Compute does not tell.
        kind: `RANGES`, `CALLS` or `ACTIVITIES` if its columns can be selected.
        nothing: the message for a table without rows.
        page: the page of the documentation that says more.

    """

    name: str
    question: str
    columns: TableColumns
    rows: str | Callable[..., Table]
    takes: tuple[str, ...] = ()
    host: TableColumns | None = None
    labels: tuple[str, ...] = ()
    sorted_by: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    recorded_by: Mapping[str, str] = field(default_factory=dict)
    directed: bool = False
    on_gpu: bool = False
    timeline: bool = True
    kind: str = ""
    nothing: str = ""
    page: str = ""


VIEWS: dict[str, View] = {
    view.name: view
    for view in (
        View(
            "op",
            "Which ops cost most?",
            COLUMNS["op"],
            rows="tables.breakdown:by_op",
            takes=("costs",),
            host=COLUMNS["op without activities"],
            sorted_by=BY_SELF_TIME,
            directed=True,
            timeline=False,
            kind=RANGES,
            nothing=f"no ops; {WHAT_RAN}",
        ),
        View(
            "op-kernel",
            "Which kernels does an op run?",
            COLUMNS["op-kernel"],
            rows="tables.activity_columns:by_op_kernel",
            takes=("kernel_names", "inclusive"),
            labels=("op", "kernel"),
            sorted_by=BY_TOTAL,
            directed=True,
            on_gpu=True,
            timeline=False,
            kind=ACTIVITIES,
            nothing="no kernel belongs to an op; bridge report REPORT --by kernel lists all kernels",
        ),
        View(
            "kernel",
            "Which kernels cost most?",
            COLUMNS["kernel"],
            rows="tables.activity_columns:by_kernel",
            takes=("kernel_names",),
            sorted_by=BY_TOTAL,
            directed=True,
            on_gpu=True,
            timeline=False,
            kind=ACTIVITIES,
            nothing=f"no kernels; {WHAT_RAN}",
        ),
        View(
            "memcpy",
            "Which memcpys and memsets cost most?",
            COLUMNS["memcpy"],
            rows="tables.activity_columns:by_memcpy",
            takes=("memory_kinds",),
            labels=("operation", "source", "target"),
            sorted_by=BY_TOTAL,
            directed=True,
            on_gpu=True,
            timeline=False,
            kind=ACTIVITIES,
            nothing="no memcpys or memsets in the report",
        ),
        View(
            "range",
            "How long is each range, and its work on the GPU?",
            COLUMNS["range"],
            rows="tables.ranges:by_range",
            takes=("arguments",),
            host=COLUMNS["range without activities"],
            sorted_by=("gpu_busy_ns", "duration_ns"),
            directed=True,
        ),
        View(
            "module",
            "Which modules cost most, forward and backward?",
            COLUMNS["module"],
            rows="tables.modules:by_module",
            host=COLUMNS["module without activities"],
            sorted_by=("gpu_self_ns", "gpu_total_ns", "cpu_total_ns"),
            details=("category",),
            timeline=False,
        ),
        View(
            "forward-op",
            "What does an op cost with its backward pass?",
            COLUMNS["forward-op"],
            rows="tables.modules:by_forward_op",
            host=COLUMNS["forward-op without activities"],
            sorted_by=("gpu_self_ns", "cpu_self_ns"),
            timeline=False,
        ),
        View(
            "phase",
            "What ran during start/end ranges?",
            COLUMNS["phase"],
            rows="tables.host:by_phase",
            sorted_by=("gpu_ns", "wall_ns"),
            nothing="no start/end ranges in the report",
            page="attribution.md#phases",
        ),
        View(
            "frame",
            "How many frames per second?",
            COLUMNS["frame"],
            rows="run.frame_rate:by_frame",
            sorted_by=("frames",),
            details=("category",),
            nothing="no frames: no range has the category frame, as bridge.Domain(…).frame(…) gives it",
            page="annotate.md#explicit-ranges-and-marks",
        ),
        View(
            "step",
            "Which steps are slow?",
            COLUMNS["step"],
            rows="tables.steps:by_step_with_costs",
            takes=("costs", "needs_costs"),
            nothing=f"no steps: no range family counts up, no optimizer ends a step, and no work recurs; {MARK_STEPS}",
            page="steps.md",
        ),
        View(
            "loop",
            "What does the program repeat?",
            COLUMNS["loop"],
            rows="tables.steps:by_loop",
            nothing="no loops: nothing recurs three times in a row",
            page="steps.md",
        ),
        View(
            "recompute",
            "How much was computed again to save memory?",
            COLUMNS["recompute"],
            rows="tables.recomputation:by_recompute",
            sorted_by=("gpu_ns", "cpu_ns"),
            nothing="no recomputation found: it shows by sequence numbers of PyTorch's ops (emit_nvtx, torch.profiler),"
            " by modules (bridge.torch.annotate), or as MegEngine's ReGen",
            page="attribution.md#recomputation",
        ),
        View(
            "first-call",
            "Which ops are slow the first time?",
            COLUMNS["first-call"],
            rows="tables.first_calls:by_first_call",
            sorted_by=("more_ns",),
            nothing="no process called an op twice",
        ),
        View(
            "part",
            "What did the host do before, in and after the iterations?",
            COLUMNS["part"],
            rows="run.host_time:by_part",
            sorted_by=("time_ns",),
            details=("system_calls",),
            nothing="the reports have no common clock, so they have no parts in common",
            page="accuracy.md#parts-of-the-run",
        ),
        View(
            "wait",
            "What did the host wait for, and in which op?",
            COLUMNS["wait"],
            rows="tables.host:by_wait",
            sorted_by=("total_ns",),
            details=("waits",),
            nothing="no synchronizations in the report",
        ),
        View(
            "launch",
            "How long is each kernel from its API call to its end?",
            COLUMNS["launch"],
            rows="tables.host:by_launch",
            takes=("kernel_names",),
            sorted_by=("total_ns",),
            on_gpu=True,
            nothing="no kernels with an API call in the report",
            page="causes.md",
        ),
        View(
            "gap",
            "Which gaps are there between the work of a GPU, and why?",
            COLUMNS["gap"],
            rows="run.idle.tables:by_gap",
            takes=("idle_over_ns",),
            sorted_by=("gap_ns",),
            details=(*OF_CAUSES, "context_switches"),
            recorded_by=OS_COLUMNS,
            on_gpu=True,
            nothing="no GPU was idle for longer than --idle-over, which is 10 µs by default",
            page="causes.md",
        ),
        View(
            "idle",
            "Why is the GPU idle?",
            COLUMNS["idle"],
            rows="run.idle.tables:by_idle",
            takes=("idle_over_ns",),
            sorted_by=("total_ns",),
            details=(*OF_CAUSES, "context_switches"),
            recorded_by=OS_COLUMNS,
            on_gpu=True,
            nothing="no GPU was idle",
            page="causes.md",
        ),
        View(
            "osrt",
            "In which calls of the operating system was the host?",
            COLUMNS["osrt"],
            rows="run.idle.tables:by_osrt",
            sorted_by=("idle_ns", "total_ns"),
            details=OF_CAUSES,
            nothing="no calls of the operating system in the report; record them with nsys profile --trace=osrt",
            page="causes.md#what-the-operating-system-did",
        ),
        View(
            "sample",
            "What did the host's code do while the GPU was idle?",
            COLUMNS["sample"],
            rows="run.idle.samples:by_sample",
            sorted_by=("idle_samples", "samples"),
            details=("samples", *OF_CAUSES),
            nothing="no samples of the CPU in the report; record them with nsys profile --sample=process-tree",
            page="causes.md#what-the-operating-system-did",
        ),
        View(
            "source",
            "Which line of the program launched it?",
            COLUMNS["source"],
            rows="tables.source_lines:by_source",
            sorted_by=("gpu_ns", "api_ns"),
            details=(*SOURCE_DETAILS, "json"),
            nothing=f"no call stacks of API calls in the report; record them: {RECORD_STACKS}",
            page="source.md",
        ),
        View(
            "request",
            "What did a request cost, and how long did its tokens take?",
            COLUMNS["request"],
            rows="tables.batches:by_request",
            nothing=NO_BATCHES,
            page="serving.md",
        ),
        View(
            "token",
            "What does a token cost in prefill and decode?",
            COLUMNS["token"],
            rows="tables.batches:by_token",
            nothing=NO_BATCHES,
            page="serving.md",
        ),
        View(
            "critical",
            "What did the run wait for, and what would it gain without an op?",
            COLUMNS["critical"],
            rows="run.critical:by_critical",
            sorted_by=("time_ns",),
            details=OF_GRAPH,
            nothing="no ranges, API calls or activities in the selected part of the report",
            page="critical.md",
        ),
        View(
            "device",
            "How busy is each GPU?",
            COLUMNS["device"],
            rows="tables.devices:by_device",
            sorted_by=("busy_ns",),
            details=GEOMETRY,
            on_gpu=True,
            page="communication.md",
        ),
        View(
            "collective",
            "How long are collectives, and how much of them is hidden?",
            COLUMNS["collective"],
            rows="run.concurrency.collectives:by_collective",
            sorted_by=("total_ns",),
            details=OF_GROUPS,
            on_gpu=True,
            nothing="no kernels of a communication library in the report",
            page="communication.md",
        ),
        View(
            "skew",
            "Which rank is late?",
            COLUMNS["skew"],
            rows="run.ranks.table:by_skew",
            sorted_by=("lost_ns", "total_ns"),
            details=("json",),
            on_gpu=True,
            timeline=False,
            nothing="no op with work on a GPU in the report",
            page="ranks.md",
        ),
        View(
            "straggler",
            "What does the rank that others wait for spend more time on?",
            COLUMNS["straggler"],
            rows="run.ranks.stragglers:by_straggler",
            sorted_by=("more_ns", "time_ns"),
            details=(*OF_CAUSES, "context_switches"),
            recorded_by=OS_COLUMNS,
            on_gpu=True,
            nothing="no collective of several ranks on one clock in the selected part of the report",
            page="ranks.md",
        ),
        View(
            "rule",
            "What did Nsight Compute's rules find?",
            COLUMNS["rule"],
            rows="tables.metrics:by_rule",
            takes=("kernel_names",),
            sorted_by=("saves_ns", "total_ns"),
            details=("metrics",),
            timeline=False,
            nothing="no rules of Nsight Compute apply to a kernel",
            page="ncu.md",
        ),
        View(
            "counter",
            "What did the hardware counters of each GPU show?",
            COLUMNS["counter"],
            rows="cost.counters:by_counter",
            details=("gpu_metrics",),
            on_gpu=True,
            nothing=NO_COUNTERS,
            page="counters.md",
        ),
    )
}
