"""The tables of memory that people see, column by column."""

from __future__ import annotations

from bridge.render import units
from bridge.render.headings import given, known
from bridge.render.shown import Shown


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
