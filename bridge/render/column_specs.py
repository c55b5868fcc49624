"""The tables that people see, column by column: headings, units, and which of them give way first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from bridge.render import headings, units
from bridge.render.headings import given, known

# -- The tables that people see, column by column: headings, units, and which of them give way first


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
    "memcpy": (
        Shown("operation", "operation"),
        Shown("count", "count", units.count),
        Shown("total_ns", "GPU total", units.time, bar=True),
        Shown("mean_ns", "mean", units.time),
        Shown("bytes", "bytes", units.size),
        Shown("gb_per_s", "speed", units.rate, extra=True),
        *EXTREMES,
    ),
    "memcpy by memory": (
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
        Shown("memcpy_ns", "memcpys", units.time, extra=True, quiet=True),
        Shown("communication_ns", "communication", units.time, extra=True, quiet=True),
        Shown("runtime_ns", "API calls", units.time, extra=True, quiet=True),
        Shown("dataloader_ns", "data", units.time, extra=True, quiet=True),
        Shown("cpu_ns", "CPU", units.time, extra=True, quiet=True),
        Shown("other_ns", "other", units.time, extra=True, quiet=True),
        Shown("memset_ns", "memsets", units.time, extra=True, quiet=True),
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
        Shown("memops_ns", "memops", units.time, extra=True, quiet=True),
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


# -- The table of ranks that people see, column by column


def moved(time: int) -> str:
    """Write what is added to a clock, with its sign."""
    return f"{'-' if time < 0 else '+'}{units.time(abs(time))}" if time else ""


RANKS = {
    "ranks": (
        Shown("rank", "rank", given),
        Shown("host", "host", quiet=True),
        Shown("gpu", "GPU"),
        Shown("report", "report", apart=True),
        Shown("pid", "pid", given, extra=True),
        Shown("known_by", "known by", extra=True),
        Shown("clock", "clock by", apart=True, extra=True),
        Shown("clock_offset_ns", "clock", moved, quiet=True),
        Shown("clock_spread_ns", "±", known(units.time), quiet=True),
        Shown("span_ns", "span", units.time),
        Shown("busy_share", "GPU busy", units.percent, bar=True),
        Shown("attributed_share", "in ops", units.percent),
        Shown("exposed_ns", "exposed", units.time, quiet=True),
        Shown("kernels", "kernels", units.count, extra=True),
    ),
}


# -- How metrics of kernels are shown: a heading with the unit, unless each value says it


GIGA = 1e9


def _hertz(value: float) -> str:
    return f"{value / GIGA:.2f} GHz"


def _rate(value: float) -> str:
    return units.rate(value / GIGA)


def _number(value: float | str) -> str:
    """Write a count whole, another number with two decimals, a text as it is."""
    if isinstance(value, str):
        return value
    return units.count(value) if value == int(value) else f"{value:.2f}"


SAYING: dict[str, Callable[[Any], str]] = {  # units that stand beside each value
    "%": units.of_hundred,
    "byte": units.size,
    "byte/block": units.size,
    "byte/s": _rate,
    "ns": units.time,
    "hz": _hertz,
}
UNSAID = frozenset(["", "register/thread", "inst", "cycle", "warp"])  # told by the metrics' names


def measured(column: str, unit: str) -> Shown:
    """Return how a metric is shown; one by a short name with blanks in it."""
    heading = column.replace("_", " ") if "__" not in column else column
    said = "" if unit in SAYING or unit in UNSAID else f", {unit}"
    return Shown(column, f"{heading}{said}", known(SAYING.get(unit, _number)))


def unknown(shown: Shown) -> Shown:
    """Return a column of times in which -1 says that it is not known."""
    if not shown.column.endswith("_ns") or isinstance(shown.text, partial):
        return shown
    return replace(shown, text=known(shown.text))


# -- The tables of memory that people see, column by column


def change(count: int) -> str:
    """Write bytes that were added or taken away."""
    return f"-{units.size(-count)}" if count < 0 else units.size(count)


PLACE = (
    Shown("report", "report", given, apart=True),
    Shown("pid", "pid", given, apart=True, extra=True),
    Shown("device", "GPU", given, apart=True),
    Shown("memory", "memory", apart=True),
)
COUNTS = (
    Shown("allocations", "allocations", units.count),
    Shown("releases", "releases", units.count, extra=True),
    Shown("allocated_bytes", "allocated", units.size, bar=True),
    Shown("released_bytes", "released", units.size, extra=True),
)
SAMPLED = (
    Shown("pid", "pid", given, apart=True, extra=True),
    Shown("device", "device", apart=True),
)
MEMORY = {
    "memory sampled op": (
        Shown("op", "op"),
        *SAMPLED,
        Shown("samples", "samples", units.count),
        Shown("peak_bytes", "most used", units.size, bar=True),
        Shown("peak_reserved_bytes", "most reserved", known(units.size), quiet=True),
    ),
    "memory sampled trace": (
        Shown("trace", "#", given),
        Shown("time_ns", "time", units.time, extra=True),
        *SAMPLED,
        Shown("op", "op"),
        Shown("step", "step", known(given), quiet=True),
        Shown("used_bytes", "used", units.size),
        Shown("reserved_bytes", "reserved", known(units.size), quiet=True),
    ),
    "memory sampled summary": (
        *SAMPLED,
        Shown("samples", "samples", units.count),
        Shown("peak_bytes", "most used", units.size, bar=True),
        Shown("peak_op", "in", quiet=True),
        Shown("peak_step", "step", known(given), quiet=True),
        Shown("peak_reserved_bytes", "most reserved", known(units.size), quiet=True),
        Shown("fragmentation", "unused", known(units.percent), quiet=True),
    ),
    "memory op": (
        Shown("op", "op"),
        Shown("memory", "memory", apart=True),
        *COUNTS,
        Shown("net_bytes", "net", change),
        Shown("total_allocated_bytes", "allocated, total", units.size, extra=True),
        Shown("total_net_bytes", "net, total", change, extra=True),
        Shown("peak_bytes", "rise in a call", units.size),
        Shown("left_bytes", "left", units.size, quiet=True),
        Shown("largest_bytes", "largest", units.size, extra=True),
    ),
    "memory summary": (
        *PLACE,
        Shown("peak_bytes", "peak", units.size),
        Shown("peak_ns", "at", known(units.time)),
        Shown("peak_op", "in", quiet=True),
        Shown("peak_step", "step", given, quiet=True),
        Shown("peak_reserved_bytes", "peak reserved", known(units.size), quiet=True),
        Shown("reserved_ns", "reserved at", known(units.time), quiet=True, extra=True),
        Shown("reserved_op", "reserved in", quiet=True, extra=True),
        Shown("reserved_step", "reserved, step", given, quiet=True, extra=True),
        Shown("fragmentation", "unused of it", known(units.percent), quiet=True),
        Shown("before_bytes", "from before", units.size, quiet=True),
        Shown("end_bytes", "at the end", units.size),
        *COUNTS,
    ),
    "memory allocation": (
        Shown("op", "op"),
        *PLACE,
        Shown("bytes", "bytes", units.size, bar=True),
        Shown("start_ns", "from", known(units.time)),
        Shown("end_ns", "to", known(units.time), extra=True),
        Shown("lifetime_ns", "lifetime", known(units.time)),
        Shown("step", "step", given, quiet=True),
        Shown("state", "state"),
        Shown("released_by", "released by", extra=True, quiet=True),
        Shown("address", "address", hex, extra=True),
        Shown("name", "name", extra=True, quiet=True),
    ),
    "memory alive": (
        Shown("op", "op"),
        *PLACE,
        Shown("count", "allocations", known(units.count)),
        Shown("bytes", "bytes", units.size, bar=True),
        Shown("share", "of peak", units.percent),
    ),
    "memory category": (
        Shown("category", "category"),
        *PLACE,
        Shown("at_peak_bytes", "at the peak", units.size, bar=True),
        Shown("share", "of peak", units.percent),
        Shown("peak_bytes", "own peak", units.size),
        Shown("end_bytes", "at the end", units.size, extra=True),
        Shown("allocations", "allocations", units.count, extra=True),
        Shown("allocated_bytes", "allocated", units.size, extra=True),
    ),
    "memory scope": (
        Shown("path", "path", is_path=True),
        *PLACE,
        Shown("count", "allocations", known(units.count)),
        Shown("bytes", "bytes", units.size, bar=True),
        Shown("total_count", "allocations, total", known(units.count), extra=True),
        Shown("total_bytes", "bytes, total", units.size),
        Shown("share", "of peak, total", units.percent),
    ),
    "memory step": (
        Shown("step", "step", given),
        *PLACE,
        *COUNTS,
        Shown("net_bytes", "net", change),
        Shown("peak_bytes", "peak", units.size),
        Shown("end_bytes", "at its end", units.size),
        Shown("kept_bytes", "kept", units.size),
        Shown("later_bytes", "kept later", known(units.size)),
    ),
    "memory trace": (
        Shown("trace", "#", given),
        Shown("time_ns", "time", units.time),
        Shown("event", "event"),
        Shown("op", "op"),
        *PLACE,
        Shown("bytes", "bytes", units.size),
        Shown("used_bytes", "used", units.size),
        Shown("reserved_bytes", "reserved", known(units.size), quiet=True),
        Shown("step", "step", given, extra=True, quiet=True),
        Shown("address", "address", hex, extra=True),
    ),
}
