"""Which columns of a table people see, under which heading, and in which unit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from bridge.render import units

MISSING = -1


@dataclass(frozen=True)
class Shown:
    """A column as shown; ``extra`` ones only where there is room, of a path the end before all.

    Beside a column with ``bar`` a bar may be drawn, as long as its value is large.
    """

    column: str
    heading: str
    text: Callable[[Any], str] = str
    extra: bool = False
    is_path: bool = False
    bar: bool = False

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
AMBIGUOUS = Shown("ambiguous_ns", "ambiguous", units.time)
SHOWN = {
    "op": (
        Shown("op", "op"),
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
    ),
    "op without activities": (
        Shown("op", "op"),
        Shown("calls", "calls", units.count),
        Shown("cpu_self_ns", "CPU self", units.time, bar=True),
        Shown("cpu_total_ns", "CPU total", units.time),
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
}
OF_RANGE = frozenset(
    "name path start_ns duration_ns thread gpu_start_ns gpu_span_ns gpu_busy_ns activities".split()
)


def shown(by: str, table: pd.DataFrame) -> tuple[Shown, ...]:
    """Return what is shown of a table: of ranges also what calls say, and what is ambiguous if anything is."""
    said = [c for c in table.columns if c not in OF_RANGE] if by == "range" else []
    known = [s for s in SHOWN[by] if s is not AMBIGUOUS or table[s.column].any()]
    return (*known, *(Shown(c, c, _given, extra=True) for c in said))


def _given(value: object) -> str:
    return "" if value == MISSING else str(value)
