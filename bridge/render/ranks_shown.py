"""The table of ranks that people see, column by column."""

from __future__ import annotations

from bridge.render import units
from bridge.render.headings import given, known
from bridge.render.shown import Shown


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
