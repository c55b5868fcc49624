"""The tables (``--by``) and dimensions: their order, columns, and details of captures."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from bridge.analyze.columns import TABLES, TableColumns
from bridge.knowledge.suggestions import unknown_name


@dataclass(frozen=True)
class View:
    """A table.

    Attributes:
        sorted_by: the columns that rows are sorted by, largest first; empty: rows are not sorted.
        directed: whether the table can count one direction alone.
        details: columns of a capture that importers read only for the tables that need them.
        nothing: the message for a table without rows.

    """

    sorted_by: tuple[str, ...]
    directed: bool = False
    details: tuple[str, ...] = ()
    nothing: str = ""


GEOMETRY = tuple(
    "grid_x grid_y grid_z block_x block_y block_z registers shared_static shared_dynamic".split()
)
# Columns of a capture that importers read only for advice, and only for the quality of a capture.
ADVICE_DETAILS = frozenset(
    [
        "json",
        "system_calls",
        "context_switches",
        "category",
        "source_kind",
        "target_kind",
        *GEOMETRY,
    ]
)
OS_DETAILS = ("system_calls", "context_switches")  # what the operating system did for threads
OS_COLUMNS = {  # of idle time, and what nsys must record for them
    "os_call": "--trace=osrt",
    "os_ns": "--trace=osrt",
    "gil_ns": "--trace=python-gil",
    "gil_holder": "--trace=python-gil",
    "off_cpu_ns": "--cpuctxsw=process-tree",
}
QUALITY_DETAILS = frozenset(["overhead"])
SAMPLE_DETAILS = ("samples",)  # samples of the CPU with their call stacks
SOURCE_DETAILS = ("call_chains", "chain")  # call stacks of API calls
WHAT_RAN = "bridge report REPORT --by kind shows what ran on a GPU"
RECORD_STACKS = (
    "nsys profile --sample=process-tree --cudabacktrace=all:1 --python-backtrace=cuda (bridge run --backtrace),"
    " profile(with_stack=True) of PyTorch, nvtx_op(source=True), or bridge.torch.ops(stacks=True)"
)
MARK_STEPS = "mark steps with ranges called step N, or name their ranges with --steps"
NO_GAP = "no GPU was idle for longer than --idle-over, which is 10 µs by default"
NO_ENERGY = "no samples of the energy of GPUs; record them with bridge.power.start() in the program"
NO_COUNTERS = (
    "no samples of hardware counters; record them with nsys profile --gpu-metrics-devices=all"
)
VIEWS = {
    "op": View(
        ("gpu_self_ns", "gpu_total_ns", "cpu_total_ns"),
        directed=True,
        nothing=f"no ops; {WHAT_RAN}",
    ),
    "op-kernel": View(
        ("total_ns",),
        directed=True,
        nothing="no kernel belongs to an op; bridge report REPORT --by kernel lists all kernels",
    ),
    "kernel": View(
        ("total_ns",),
        directed=True,
        nothing=f"no kernels; {WHAT_RAN}",
    ),
    "memcpy": View(
        ("total_ns",),
        directed=True,
        nothing="no memcpys or memsets in the report",
    ),
    "range": View(("gpu_busy_ns", "duration_ns"), directed=True),
    "module": View(("gpu_self_ns", "gpu_total_ns", "cpu_total_ns"), details=("category",)),
    "forward-op": View(("gpu_self_ns",)),
    "phase": View(("gpu_ns", "wall_ns"), nothing="no start/end ranges in the report"),
    "frame": View(
        ("frames",),
        details=("category",),
        nothing="no frames: no range has the category frame, as bridge.Domain(…).frame(…) gives it",
    ),
    "wait": View(("total_ns",), details=("waits",), nothing="no synchronisations in the report"),
    "launch": View(("total_ns",), nothing="no kernels with an API call in the report"),
    "gap": View(("gap_ns",), details=OS_DETAILS, nothing=NO_GAP),
    "idle": View(
        ("total_ns",),
        details=OS_DETAILS,
        nothing="no GPU was idle between its first work and its last",
    ),
    "osrt": View(
        ("idle_ns", "total_ns"),
        details=("system_calls",),
        nothing="no calls of the operating system in the report; record them with nsys profile --trace=osrt",
    ),
    "sample": View(
        ("idle_samples", "samples"),
        details=SAMPLE_DETAILS,
        nothing="no samples of the CPU in the report; record them with nsys profile --sample=process-tree",
    ),
    "critical": View(
        ("time_ns",),
        details=("waits", "system_calls"),
        nothing="no ranges, API calls or activities in the selected part of the report",
    ),
    "recompute": View(
        ("gpu_ns", "cpu_ns"),
        nothing="no recomputation found: it shows by sequence numbers of PyTorch's ops (emit_nvtx, torch.profiler),"
        " by modules (bridge.torch.annotate), or as MegEngine's ReGen",
    ),
    "source": View(
        ("gpu_ns", "api_ns"),
        details=(*SOURCE_DETAILS, "json"),
        nothing=f"no call stacks of API calls in the report; record them: {RECORD_STACKS}",
    ),
    "step": View(
        (),
        nothing=f"no steps: no range family counts up, no optimizer ends a step, and no work recurs; {MARK_STEPS}",
    ),
    "device": View(("busy_ns",), details=GEOMETRY),
    "counter": View((), details=("gpu_metrics",), nothing=NO_COUNTERS),
    "rule": View(
        ("saves_ns", "total_ns"),
        details=("metrics",),
        nothing="no rules of Nsight Compute apply to a kernel",
    ),
    "collective": View(
        ("total_ns",),
        details=("json", "nccl_calls"),
        nothing="no kernels of a communication library in the report",
    ),
    "skew": View(
        ("lost_ns", "total_ns"), details=("json",), nothing="no op with work on a GPU in the report"
    ),
}
# The dimensions of rows, alone or combined (op,shape), with the details that importers read for them.
DIMENSIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys("op path direction step phase thread process report api".split(), ()),
    **dict.fromkeys("kernel memcpy kind library fused device stream".split(), ()),
    "module": ("category",),
    "custom-op": ("category",),
    **dict.fromkeys(("rank", "host"), ("json",)),  # set by recordings
    **dict.fromkeys("shape dtype strides overload stack".split(), ("json",)),
    "geometry": GEOMETRY,
    "source": (*SOURCE_DETAILS, "json"),
}
# The kinds of rows of tables with selectable columns.
RANGES, CALLS, ACTIVITIES = ("ranges", "calls", "activities")
CALL_DIMENSIONS = frozenset(["api"])  # dimensions of API calls
ACTIVITY_DIMENSIONS = frozenset(
    "kernel memcpy kind library fused device stream geometry source".split()
)
# The columns that name a row, if their names differ from the dimension's.
LABELS: dict[str, tuple[str, ...]] = {
    "memcpy": ("operation",),
    "custom-op": ("part",),
    "thread": ("pid", "tid", "thread", "report"),
    "process": ("pid", "process", "report"),
    "stream": ("device", "pid", "context", "stream"),
    "geometry": ("grid", "block", "registers", "shared_bytes"),
    "source": ("function", "source"),
}
BROKEN_DOWN = {  # tables by dimensions, by the kind of their rows
    RANGES: View(VIEWS["op"].sorted_by, directed=True),
    CALLS: View(("total_ns",)),
    ACTIVITIES: View(("total_ns",), directed=True),
}
# The views with selectable columns, and the kinds of their rows.
ROWS = {"op": RANGES, "op-kernel": ACTIVITIES, "kernel": ACTIVITIES, "memcpy": ACTIVITIES}


def dimensions_of(by: str) -> tuple[str, ...]:
    """Return the dimensions of a table that is not in `VIEWS`.

    Raises ValueError with a message for the user if one of them does not exist or cannot be
    combined.
    """
    names = tuple(name.strip() for name in by.split(","))
    for name in names:
        if name not in DIMENSIONS:
            if name in VIEWS:
                raise ValueError(
                    f"{name!r} cannot be combined with others; {TABLE_LIST} shows which can"
                )
            raise ValueError(unknown_name("table", name, [*VIEWS, *DIMENSIONS], TABLE_LIST))
    if len(set(names)) < len(names):
        raise ValueError(f"{by!r} names a dimension twice")
    return names


def rows_of(by: str) -> str:
    """Return the kind of a table's rows: `RANGES`, `CALLS` or `ACTIVITIES`."""
    return ROWS[by] if by in ROWS else rows_of_dimensions(dimensions_of(by))


def rows_of_dimensions(dimensions: Collection[str]) -> str:
    """Return the kind of the rows of a table by these dimensions."""
    if not ACTIVITY_DIMENSIONS.isdisjoint(dimensions):
        return ACTIVITIES
    return RANGES if CALL_DIMENSIONS.isdisjoint(dimensions) else CALLS


def columns_are_chosen(by: str) -> bool:
    """Return whether the columns of a table can be selected; other tables have fixed columns."""
    return by in ROWS or by not in VIEWS


def view_of(by: str) -> View:
    """Return the properties of a table, by name or by dimensions."""
    return VIEWS[by] if by in VIEWS else BROKEN_DOWN[rows_of(by)]


def columns_of(by: str) -> TableColumns:
    """Return the description of a table's columns."""
    return TABLES[by if by in VIEWS else rows_of(by)]


def labels_of(by: str) -> tuple[str, ...]:
    """Return all columns that may name the rows of a table with selectable columns."""
    if by in VIEWS:
        return {"op-kernel": ("op", "kernel"), "memcpy": ("operation", "source", "target")}.get(
            by, (by,)
        )
    labels = (label for name in dimensions_of(by) for label in LABELS.get(name, (name,)))
    return tuple(dict.fromkeys(labels))


TABLE_LIST = "--by list"
ON_GPU = frozenset(  # views whose rows need activities
    "op-kernel kernel memcpy forward-op launch gap idle device counter collective skew".split()
)
TIME_UNITS = ("ns", "us", "ms", "s")
DIRECTED = tuple(name for name, view in VIEWS.items() if view.directed)


def layout(by: str, *, activities: int) -> str:
    """Return the key in `TABLES` of the columns to display; without activities, of the host."""
    name = by if by in VIEWS else rows_of(by)
    on_host = f"{name} without activities"
    return on_host if not activities and on_host in TABLES else name


def nothing(by: str, *, activities: int, ranges: int) -> str:
    """Return the message for a table without rows of a report with so many activities and ranges, "" for none."""
    message = VIEWS[by].nothing if by in VIEWS else ""
    if by == "op" and not ranges:
        return f"no NVTX ranges, so no ops; {WHAT_RAN if activities else host_tables(ranges)}"
    if not activities and needs_activities(by):
        return f"no kernels, memcpys or memsets; {host_tables(ranges)}"
    return message


def needs_activities(by: str) -> bool:
    """Return whether the rows of a table, by name or by dimensions, need work on a GPU."""
    return by in ON_GPU or not ACTIVITY_DIMENSIONS.isdisjoint(by.split(","))


def host_tables(ranges: int) -> str:
    """Return a hint at the tables that show the host, for a report with so many ranges and no activities."""
    if not ranges:
        return "bridge report REPORT --by api shows the time of CUDA calls"
    return "bridge report REPORT --by op (or module, step) shows CPU times"
