"""Which columns of a table people see, under which heading, and in which unit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from bridge.render import headings, units
from bridge.render.headings import given, known
from bridge.views import BROKEN_DOWN, VIEWS


@dataclass(frozen=True)
class Shown:
    """A column as shown; ``extra`` ones only where there is room, of a path the end before all.

    A bar may stand beside one with ``bar``, as long as its value is large. Left out are ``quiet`` ones where no row
    says anything in them, and those that tell rows ``apart`` where all say the same.
    """

    column: str
    heading: str
    text: Callable[[Any], str] = str
    extra: bool = False
    is_path: bool = False
    bar: bool = False
    quiet: bool = False
    apart: bool = False

    @property
    def is_name(self) -> bool:
        """Whether it holds names, which may be shortened."""
        return self.text is str


EXTREMES = (
    Shown("min_ns", "min", units.time, extra=True),
    Shown("max_ns", "max", units.time, extra=True),
)
PASSES = (  # of a training step
    Shown("calls", "calls", units.count, extra=True),
    Shown("kernels", "kernels", units.count, extra=True),
    Shown("gpu_forward_ns", "forward", units.time),
    Shown("gpu_backward_ns", "backward", units.time),
    Shown("gpu_self_ns", "GPU self", units.time, bar=True),
    Shown("share", "of GPU", units.percent, extra=True),
)
AMBIGUOUS = Shown("ambiguous_ns", "ambiguous", units.time, quiet=True)
RANGES = (
    Shown("calls", "calls", units.count),
    Shown("kernels", "kernels", units.count),
    Shown("gpu_self_ns", "GPU self", units.time, bar=True),
    Shown("share", "of GPU", units.percent),
    Shown("gpu_total_ns", "GPU total", units.time),
    Shown("gpu_busy_ns", "GPU busy", units.time, extra=True),
    Shown("gpu_mean_ns", "per call", units.time, extra=True),
    Shown("gpu_p95_ns", "p95", units.time, extra=True),
    Shown("cpu_self_ns", "CPU self", units.time, extra=True),
    Shown("cpu_total_ns", "CPU total", units.time, extra=True),
)
HOST_ALONE = (
    Shown("calls", "calls", units.count),
    Shown("cpu_self_ns", "CPU self", units.time, bar=True),
    Shown("cpu_total_ns", "CPU total", units.time),
)
SHOWN = {
    "op": (Shown("op", "op"), *RANGES),
    "op without activities": (Shown("op", "op"), *HOST_ALONE),
    "ranges": RANGES,
    "ranges without activities": HOST_ALONE,
    "calls": (
        Shown("count", "count", units.count),
        Shown("total_ns", "CPU total", units.time, bar=True),
        Shown("share", "of API", units.percent),
        Shown("mean_ns", "mean", units.time),
        Shown("p50_ns", "p50", units.time, extra=True),
        Shown("p95_ns", "p95", units.time, extra=True),
        *EXTREMES,
        Shown("gpu_ns", "GPU launched", units.time, extra=True),
    ),
    "activities": (
        Shown("count", "count", units.count),
        Shown("total_ns", "GPU total", units.time, bar=True),
        Shown("share", "of GPU", units.percent),
        Shown("busy_ns", "GPU busy", units.time, extra=True),
        Shown("mean_ns", "mean", units.time),
        Shown("p50_ns", "p50", units.time, extra=True),
        Shown("p95_ns", "p95", units.time, extra=True),
        *EXTREMES,
    ),
    "op-kernel": (
        Shown("op", "op"),
        Shown("kernel", "kernel"),
        Shown("count", "count", units.count),
        Shown("total_ns", "GPU total", units.time, bar=True),
        Shown("mean_ns", "mean", units.time),
        *EXTREMES,
    ),
    "kernel": (
        Shown("kernel", "kernel"),
        Shown("count", "count", units.count),
        Shown("total_ns", "GPU total", units.time, bar=True),
        Shown("share", "of kernels", units.percent),
        Shown("mean_ns", "mean", units.time),
        Shown("median_ns", "median", units.time, extra=True),
        *EXTREMES,
    ),
    "copy": (
        Shown("operation", "operation"),
        Shown("count", "count", units.count),
        Shown("total_ns", "GPU total", units.time, bar=True),
        Shown("mean_ns", "mean", units.time),
        Shown("bytes", "bytes", units.size),
        Shown("gb_per_s", "speed", units.rate, extra=True),
        *EXTREMES,
    ),
    "copy by memory": (
        Shown("operation", "operation"),
        Shown("source", "from"),
        Shown("target", "to"),
        Shown("count", "count", units.count),
        Shown("total_ns", "GPU total", units.time, bar=True),
        Shown("bytes", "bytes", units.size),
        Shown("gb_per_s", "speed", units.rate),
        Shown("mean_ns", "mean", units.time, extra=True),
    ),
    "range": (
        Shown("name", "range"),
        Shown("path", "path", extra=True, is_path=True),
        Shown("start_ns", "start", units.time),
        Shown("duration_ns", "CPU", units.time),
        Shown("gpu_span_ns", "GPU span", units.time),
        Shown("gpu_busy_ns", "GPU busy", units.time, bar=True),
        Shown("activities", "activities", units.count, extra=True),
    ),
    "module": (
        Shown("module", "module", is_path=True),
        *PASSES,
        Shown("gpu_total_ns", "GPU total", units.time),
        Shown("cpu_total_ns", "CPU total", units.time, extra=True),
        AMBIGUOUS,
    ),
    "forward-op": (Shown("op", "op"), *PASSES, AMBIGUOUS),
    "phase": (
        Shown("phase", "phase"),
        Shown("ranges", "ranges", units.count),
        Shown("open", "open", units.count),
        Shown("activities", "activities", units.count),
        Shown("gpu_ns", "GPU", units.time, bar=True),
        Shown("share", "of GPU", units.percent, extra=True),
        Shown("gpu_busy_ns", "GPU busy", units.time, extra=True),
        Shown("wall_ns", "wall", units.time),
    ),
    "wait": (
        Shown("op", "op"),
        Shown("wait", "wait"),
        Shown("count", "count", units.count),
        Shown("total_ns", "CPU total", units.time, bar=True),
        Shown("mean_ns", "mean", units.time),
        *EXTREMES,
    ),
    "launch": (
        Shown("kernel", "kernel"),
        Shown("report", "report", extra=True, apart=True),
        Shown("tid", "thread", given, extra=True, apart=True),
        Shown("device", "GPU", given, extra=True, apart=True),
        Shown("pid", "pid", given, extra=True, apart=True),
        Shown("api", "API call", extra=True),
        Shown("count", "count", units.count),
        Shown("total_ns", "launch to end", units.time, bar=True, extra=True),
        Shown("api_mean_ns", "call, mean", units.time),
        Shown("queue_mean_ns", "queue, mean", units.time),
        Shown("queue_max_ns", "queue, max", known(units.time), extra=True),
        Shown("queue_count", "queued", units.count, extra=True),
        Shown("kernel_mean_ns", "kernel, mean", units.time),
        Shown("total_mean_ns", "all, mean", units.time, extra=True),
    ),
    "gap": (
        Shown("cause", "cause"),
        Shown("op", "op", quiet=True),
        Shown("gap_ns", "GPU idle", units.time, bar=True),
        Shown("cause_ns", "by cause", units.time),
        Shown("ended_by", "ended by"),
        Shown("start_ns", "start", units.time, extra=True),
        Shown("step", "step", given, extra=True, quiet=True),
        Shown("device", "device", extra=True),
    ),
    "idle": (
        Shown("cause", "cause"),
        Shown("op", "op", quiet=True),
        Shown("gaps", "gaps", units.count),
        Shown("total_ns", "GPU idle", units.time, bar=True),
        Shown("share", "of idle", units.percent),
        Shown("mean_ns", "mean", units.time, extra=True),
        Shown("max_ns", "max", units.time, extra=True),
    ),
    "step": (
        Shown("step", "step", given),
        Shown("pid", "pid", given, extra=True),
        Shown("report", "report", apart=True),
        Shown("wall_ns", "wall", units.time),
        Shown("kernel_ns", "kernels", units.time),
        Shown("memcpy_ns", "copies", units.time, extra=True, quiet=True),
        Shown("communication_ns", "communication", units.time, extra=True, quiet=True),
        Shown("runtime_ns", "API calls", units.time, extra=True, quiet=True),
        Shown("dataloader_ns", "data", units.time, extra=True, quiet=True),
        Shown("cpu_ns", "CPU", units.time, extra=True, quiet=True),
        Shown("other_ns", "other", units.time, extra=True, quiet=True),
        Shown("memset_ns", "fills", units.time, extra=True, quiet=True),
        Shown("between_ns", "since last", units.time),
        Shown("change", "change", headings.change),
        Shown("state", "state"),
    ),
    "device": (
        Shown("device", "device"),
        Shown("busy_ns", "busy", units.time, bar=True),
        Shown("busy_share", "of span", units.percent),
        Shown("idle_ns", "idle", units.time, extra=True),
        Shown("concurrency", "at once", headings.number),
        Shown("max_concurrent", "most", units.count, extra=True),
        Shown("compute_ns", "compute", units.time, extra=True),
        Shown("communication_ns", "communication", units.time, extra=True, quiet=True),
        Shown("exposed_ns", "exposed", units.time, extra=True, quiet=True),
        Shown("copies_ns", "copies", units.time, extra=True, quiet=True),
        Shown("sm_efficiency", "SMs used", known(units.percent), extra=True, quiet=True),
        Shown("occupancy", "occupancy", known(units.percent), extra=True, quiet=True),
    ),
    "collective": (
        Shown("collective", "collective"),
        Shown("op", "op", extra=True),
        Shown("dtype", "type", extra=True, quiet=True),
        Shown("ranks", "ranks", units.count, extra=True),
        Shown("count", "count", units.count),
        Shown("total_ns", "GPU total", units.time, bar=True),
        Shown("mean_ns", "mean", units.time, extra=True),
        Shown("exposed_ns", "exposed", units.time),
        Shown("wait_ns", "waiting", known(units.time), extra=True, quiet=True),
        Shown("transfer_ns", "transfer", known(units.time), extra=True, quiet=True),
        Shown("straggler", "straggler", extra=True, quiet=True),
        Shown("bytes", "bytes", known(units.size), extra=True, quiet=True),
        Shown("gb_per_s", "speed", known(units.rate), extra=True, quiet=True),
        Shown("bus_gb_per_s", "on the bus", known(units.rate), extra=True, quiet=True),
    ),
}
PATHS = ("path", "module")
OF_RANGE = (
    "name path start_ns duration_ns thread gpu_start_ns gpu_span_ns gpu_busy_ns activities".split()
)


def shown(by: str, table: pd.DataFrame) -> tuple[Shown, ...]:
    """Return what is shown of a table: of one that has no headings of its own all columns, told by their names.

    Of ranges also what calls say; of a table broken down, first what tells its rows apart.
    """
    if by not in SHOWN:
        return _all(table)
    names, more = _unusual(by, list(table.columns))
    said = [c for c in table.columns if c not in OF_RANGE] if by == "range" else []
    return (
        *(_told(c, table) for c in names if c not in {s.column for s in SHOWN[by]}),
        *(s for s in SHOWN[by] if _says(s, table)),
        *(_told(c, table) for c in more),
        *(Shown(c, c, given, extra=True) for c in said),
    )


def _says(shown: Shown, table: pd.DataFrame) -> bool:
    """Tell whether a column says anything, or tells rows apart, if that is what it is there for."""
    if shown.apart:
        return shown.column in table and len(table[shown.column].unique()) != 1
    nothing = ("", headings.MISSING) if shown.text in (str, given) else (0, headings.MISSING)
    return not (shown.quiet and len(table) and table[shown.column].isin(nothing).all())


def _unusual(by: str, columns: list[str]) -> tuple[list[str], list[str]]:
    """Return the columns that stand before the usual figures of a table, and those among and after that were asked for."""
    rows = by.partition(" ")[0]
    view = BROKEN_DOWN.get(rows) or VIEWS.get(rows)
    usual = [c for c in columns if view and c in view.columns]
    if not usual:
        return [], [c for c in columns if c.startswith("running_")]
    first = columns.index(usual[0])
    return columns[:first], [c for c in columns[first:] if c not in usual]


def _all(table: pd.DataFrame) -> tuple[Shown, ...]:
    """Return all columns: the names, the first figure, and as many of the others as there is room for."""
    every = [_told(c, table) for c in table.columns]
    first = next((s.column for s in every if not s.is_name and not s.extra), None)
    return tuple(s if s.is_name or s.column == first else replace(s, extra=True) for s in every)


def _told(column: str, table: pd.DataFrame) -> Shown:
    """Return a column as its name tells that it is to be shown."""
    text, extra = headings.text(column, table[column]), column in headings.OF_LITTLE_USE
    return Shown(column, headings.heading(column), text, is_path=column in PATHS, extra=extra)
