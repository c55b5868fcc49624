"""Which columns of a table people see, under which heading, and in which unit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bridge.render import units


@dataclass(frozen=True)
class Shown:
    """A column as shown; ``extra`` ones only where there is room."""

    column: str
    heading: str
    text: Callable[[Any], str] = str
    extra: bool = False

    @property
    def is_name(self) -> bool:
        """Whether it holds names, which may be shortened."""
        return self.text is str


SHOWN = {
    "op": (
        Shown("op", "op"),
        Shown("calls", "calls", units.count),
        Shown("kernels", "kernels", units.count),
        Shown("gpu_self_ns", "GPU self", units.time),
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
        Shown("cpu_self_ns", "CPU self", units.time),
        Shown("cpu_total_ns", "CPU total", units.time),
    ),
    "op-kernel": (
        Shown("op", "op"),
        Shown("kernel", "kernel"),
        Shown("count", "count", units.count),
        Shown("total_ns", "GPU total", units.time),
        Shown("mean_ns", "mean", units.time),
        Shown("min_ns", "min", units.time, extra=True),
        Shown("max_ns", "max", units.time, extra=True),
    ),
    "kernel": (
        Shown("kernel", "kernel"),
        Shown("count", "count", units.count),
        Shown("total_ns", "GPU total", units.time),
        Shown("share", "of kernels", units.percent),
        Shown("mean_ns", "mean", units.time),
        Shown("median_ns", "median", units.time, extra=True),
        Shown("min_ns", "min", units.time, extra=True),
        Shown("max_ns", "max", units.time, extra=True),
    ),
    "copy": (
        Shown("operation", "operation"),
        Shown("count", "count", units.count),
        Shown("total_ns", "GPU total", units.time),
        Shown("mean_ns", "mean", units.time),
        Shown("bytes", "bytes", units.size),
        Shown("gb_per_s", "speed", units.rate, extra=True),
        Shown("min_ns", "min", units.time, extra=True),
        Shown("max_ns", "max", units.time, extra=True),
    ),
    "range": (
        Shown("name", "range"),
        Shown("path", "path", extra=True),
        Shown("start_ns", "start", units.time),
        Shown("duration_ns", "CPU", units.time),
        Shown("gpu_span_ns", "GPU span", units.time),
        Shown("gpu_busy_ns", "GPU busy", units.time),
        Shown("activities", "activities", units.count, extra=True),
    ),
}
