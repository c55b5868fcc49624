"""The tables there are (``--by``), and what is known of each without loading anything."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class View:
    """A table: sorted by these columns, largest first; without any in its own order.

    ``columns`` are those that it has unless others are asked for; where it says none, it has always the same.
    ``directed`` ones can count one direction alone; ``details`` are columns of a report that are read
    only when asked for; ``nothing`` is what to say where there is no row.
    """

    sorted_by: tuple[str, ...]
    columns: tuple[str, ...] = ()
    directed: bool = False
    details: tuple[str, ...] = ()
    nothing: str = ""


TIMES = ("count", "total_ns", "mean_ns", "min_ns", "max_ns")
OF_RANGES = tuple(
    "calls kernels memcpys memsets graphs gpu_self_ns gpu_total_ns gpu_busy_ns cpu_self_ns cpu_total_ns"
    " gpu_mean_ns gpu_p50_ns gpu_p95_ns gpu_max_ns share".split()
)
# Columns of ranges, and of steps, that need what calls say of themselves; all of them go by the set "flops".
COSTS = tuple(
    "flop tflop_per_s peak_share moved_bytes gb_per_s bandwidth_share intensity counted_ns uncounted"
    " flop_once formula".split()
)
OF_STEPS = tuple("flop mfu tflop_per_s peak_tflops uncounted peak_dtype".split())
FLOPS = "flops"
GEOMETRY = tuple(
    "grid_x grid_y grid_z block_x block_y block_z registers shared_static shared_dynamic".split()
)
# What has to be read for advice, and most do without.
OF_ADVICE = frozenset(["json", "category", "source_kind", "target_kind", *GEOMETRY])
OF_QUALITY = frozenset(["overhead", "diagnostics"])  # the same, for what a capture is worth
VIEWS = {
    "op": View(("gpu_self_ns", "gpu_total_ns", "cpu_total_ns"), OF_RANGES, directed=True),
    "op-kernel": View(("total_ns",), TIMES, directed=True),
    "kernel": View(("total_ns",), (*TIMES[:3], "median_ns", *TIMES[3:], "share"), directed=True),
    "memcpy": View(
        ("total_ns",),
        (*TIMES, "bytes", "gb_per_s"),
        directed=True,
        nothing="no memcpys or memsets in the report",
    ),
    "range": View(("gpu_busy_ns", "duration_ns"), directed=True),
    "module": View(("gpu_self_ns", "gpu_total_ns"), details=("category",)),
    "forward-op": View(("gpu_self_ns",)),
    "phase": View(("gpu_ns", "wall_ns"), nothing="no start/end ranges in the report"),
    "wait": View(("total_ns",), details=("waits",), nothing="no synchronisations in the report"),
    "launch": View(("total_ns",), nothing="no kernels with an API call in the report"),
    "gap": View(("gap_ns",), nothing="no GPU was idle for so long"),
    "idle": View(("total_ns",), nothing="no GPU was idle for so long"),
    "step": View(
        (),
        nothing="no steps: no ranges called step N, iteration N, batch N, ProfilerStep#N, and no work that repeats",
    ),
    "device": View(("busy_ns",), details=GEOMETRY, nothing="no work on a GPU in the report"),
    "rule": View(
        ("saves_ns", "total_ns"),
        details=("metrics",),
        nothing="no rules of Nsight Compute say anything of a kernel",
    ),
    "collective": View(
        ("total_ns",),
        details=("json",),
        nothing="no kernels of a communication library in the report",
    ),
    "skew": View(
        ("lost_ns", "total_ns"), details=("json",), nothing="no op with work on a GPU in the report"
    ),
}
# What rows can be told apart by, alone or together (op,shape), and what has to be read for it.
DIMENSIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys("op path direction step phase thread process report api".split(), ()),
    **dict.fromkeys("kernel memcpy kind library fused device stream".split(), ()),
    "module": ("category",),
    **dict.fromkeys(("rank", "host"), ("json",)),  # of recordings
    "shape": ("json",),
    "dtype": ("json",),
    "geometry": GEOMETRY,
}
# What the rows of a table with columns by choice are made of: ranges, API calls, or activities.
RANGES, CALLS, ACTIVITIES = ("ranges", "calls", "activities")
OF_CALLS = frozenset(["api"])  # dimensions of API calls
OF_ACTIVITIES = frozenset("kernel memcpy kind library fused device stream geometry".split())
# The columns that name a row, where they are not called as the dimension is.
LABELS: dict[str, tuple[str, ...]] = {
    "memcpy": ("operation",),
    "thread": ("pid", "tid", "thread", "report"),
    "process": ("pid", "process", "report"),
    "stream": ("device", "pid", "context", "stream"),
    "geometry": ("grid", "block", "registers", "shared_bytes"),
}
BROKEN_DOWN = {  # by what the rows are made of
    "ranges": View(VIEWS["op"].sorted_by, OF_RANGES, directed=True),
    "calls": View(
        ("total_ns",), (*TIMES[:4], "p50_ns", "p95_ns", "max_ns", "activities", "gpu_ns", "share")
    ),
    "activities": View(
        ("total_ns",),
        (*TIMES[:2], "busy_ns", *TIMES[2:4], "p50_ns", "p95_ns", "max_ns", "share"),
        directed=True,
    ),
    "diff": View(
        ("diff_ns",),
        tuple(
            "calls activities before_ns after_ns diff_ns change step_ratio share p state".split()
        ),
    ),
}


def dimensions_of(by: str) -> tuple[str, ...]:
    """Return the dimensions of a table that is none of `VIEWS`; ValueError, in words for the user, for a wrong one."""
    names = tuple(name.strip() for name in by.split(","))
    for name in names:
        if name not in DIMENSIONS:
            alone = f"{name!r} stands alone" if name in VIEWS else f"no view {name!r}"
            listed = ", ".join(dict.fromkeys([*VIEWS, *DIMENSIONS]))
            raise ValueError(
                f"{alone}: --by is one of {listed}; or several of {', '.join(DIMENSIONS)}"
            )
    if len(set(names)) < len(names):
        raise ValueError(f"{by!r} names something twice")
    return names


def rows_of(dimensions: Collection[str]) -> str:
    """Return what the rows of a table with these dimensions are made of: `ACTIVITIES`, `CALLS` or `RANGES`."""
    if not OF_ACTIVITIES.isdisjoint(dimensions):
        return ACTIVITIES
    return RANGES if OF_CALLS.isdisjoint(dimensions) else CALLS


def labels_of(by: str) -> tuple[str, ...]:
    """Return the columns that name the rows of a table of which columns may be asked for, those too that it has at times."""
    if by in VIEWS:
        return {"op-kernel": ("op", "kernel"), "memcpy": ("operation", "source", "target")}.get(
            by, (by,)
        )
    labels = (label for name in dimensions_of(by) for label in LABELS.get(name, (name,)))
    return tuple(dict.fromkeys(labels))


def costs_of(by: str, words: Iterable[str]) -> bool:
    """Tell whether any of the words that someone asks for is a column of `COSTS`, or a set with some."""
    asked = {word.removesuffix("_ns") for word in words}
    if by == "step":
        return not asked.isdisjoint((FLOPS, *OF_STEPS))
    if by != "op" and (by in VIEWS or rows_of(by.split(",")) != RANGES):
        return False
    return not asked.isdisjoint((FLOPS, "all", *(name.removesuffix("_ns") for name in COSTS)))


def details_of(by: str, words: Iterable[str] = ()) -> frozenset[str]:
    """Return the columns that a table needs and most do without; ``words`` are columns and sets asked for."""
    if costs_of(by, words):
        return details_of(by) | {"json", "metrics"}
    if by in VIEWS:
        return frozenset(VIEWS[by].details)
    return frozenset(name for one in dimensions_of(by) for name in DIMENSIONS[one])


TIME_UNITS = ("ns", "us", "ms", "s")
DIRECTED = tuple(name for name, view in VIEWS.items() if view.directed)


def heading(view: str, *, activities: int) -> str:
    """Return which headings a table gets for people: without device work, those of ranges are of the CPU."""
    kind = view
    if view not in VIEWS:
        kind = rows_of(dimensions_of(view))
    return f"{kind} without activities" if kind in ("op", "ranges") and not activities else kind
