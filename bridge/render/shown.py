"""The tables that people see, column by column: headings, units, and which of them give way first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bridge.render import headings, units
from bridge.render.headings import given, known


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
    "diff": (  # all as texts
        Shown("calls", "calls", given, extra=True, quiet=True),
        Shown("activities", "count", given, extra=True, quiet=True),
        Shown("before_ns", "before", given),
        Shown("after_ns", "after", given),
        Shown("diff_ns", "difference", given),
        Shown("change", "change", given),
        Shown("step_ratio", "per step", given, quiet=True),
        Shown("share", "of change", given, extra=True),
        Shown("p", "p", given, extra=True, quiet=True),
        Shown("state", "state", given),
    ),
    "rule": (
        Shown("rule", "rule"),
        Shown("kernel", "kernel"),
        Shown("kind", "kind"),
        Shown("saves_ns", "saves", units.time, bar=True),
        Shown("speedup", "estimate", known(units.of_hundred)),
        Shown("scope", "scope"),
        Shown("count", "count", units.count, extra=True),
        Shown("total_ns", "GPU total", units.time, extra=True),
        Shown("text", "what it says"),
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
        Shown("arrival_mean_ns", "apart", known(units.time), extra=True, quiet=True),
        Shown("last", "comes last", extra=True, quiet=True),
        Shown("bytes", "bytes", known(units.size), extra=True, quiet=True),
        Shown("gb_per_s", "speed", known(units.rate), extra=True, quiet=True),
        Shown("bus_gb_per_s", "on the bus", known(units.rate), extra=True, quiet=True),
    ),
    "skew": (
        Shown("op", "op"),
        Shown("ranks", "ranks", units.count, extra=True),
        Shown("total_ns", "GPU self", units.time, extra=True),
        Shown("median_ns", "median", units.time),
        Shown("slowest", "slowest"),
        Shown("slowest_ns", "took", units.time),
        Shown("skew", "more", headings.change),
        Shown("lost_ns", "lost", units.time, bar=True),
        Shown("communication_ns", "communication", units.time, extra=True, quiet=True),
    ),
    "onednn": (
        *(
            Shown(name, name)
            for name in "primitive impl prop problem layout attributes aux engine".split()
        ),
        Shown("calls", "calls", units.count),
        Shown("total_ns", "total", units.time, bar=True),
        Shown("share", "share", units.percent),
        Shown("mean_ns", "mean", units.time, extra=True),
        Shown("median_ns", "median", units.time, extra=True),
        Shown("min_ns", "min", units.time, extra=True),
        Shown("max_ns", "max", units.time, extra=True),
        Shown("flop", "FLOPs", known(units.flop), extra=True, quiet=True),
        Shown("gflop_per_s", "GFLOP/s", known(units.figure), quiet=True),
        Shown("creations", "creations", units.count, extra=True, quiet=True),
        Shown("creation_ns", "creating", units.time, quiet=True),
    ),
}
