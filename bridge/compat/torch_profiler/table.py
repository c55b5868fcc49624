"""The table of PyTorch's profiler: its columns, in its order, as far as the host knows them.

The invariant: a column is there if any row has something for it; percentages are of the self times' sum.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import floor, log10
from typing import Any, NamedTuple

from bridge.compat.torch_profiler.events import Measured

WIDTH, MARGIN, GAP = 12, 4, "  "
DEVICES = re.compile("cuda|xpu|privateuse1")
FLOPS = ("FLOPs", "KFLOPs", "MFLOPs", "GFLOPs", "TFLOPs", "PFLOPs")
UNITS = {"s": 1_000_000, "ms": 1000, "us": 1}
TOP = "This report only display top-level ops statistics"


class Cut(NamedTuple):
    """Which rows are shown, and how wide names and shapes may be."""

    rows: int
    names: int | None
    shapes: int | None
    top_only: bool


class Column(NamedTuple):
    """A heading, how wide it is, and what a row shows there."""

    head: str
    width: int
    show: Callable[[Any], str]


def table(
    events: Sequence[Measured],
    sort_by: str | None,
    cut: Cut,
    header: str | None,
    unit: str | None,
    with_flops: bool,
) -> str:
    """Write the table; of no events an empty text."""
    if not events:
        return ""
    if sort_by is not None:
        key = DEVICES.sub("device", sort_by)
        events = sorted(events, key=lambda event: getattr(event, key), reverse=True)
    whole = sum(event.self_cpu_time_total for event in events)
    columns = _columns(events, cut, unit, whole, with_flops)
    rule = GAP.join("-" * column.width for column in columns) + GAP
    shown = _shown(events, cut)
    lines = [
        *_above(header, cut, len(rule) - len(GAP)),
        *(rule, _line(columns, [column.head for column in columns]), rule),
        *(_line(columns, [column.show(event) for column in columns]) for event in shown),
        *(rule, f"Self CPU time total: {in_unit(whole, unit)}"),
    ]
    return "\n".join(lines) + "\n"


def in_unit(us: float, unit: str | None = None) -> str:
    """Write a time in s, ms or us; without a unit in the largest that it has one of."""
    chosen = unit if unit in UNITS else next((u for u in UNITS if us >= UNITS[u]), "us")
    return f"{us / UNITS[chosen]:.3f}{chosen}"


def _above(header: str | None, cut: Cut, length: int) -> list[str]:
    lines = [] if header is None else ["=" * length, header]
    return [*lines, *(["=" * length, TOP] if cut.top_only else [])]


def _shown(events: Sequence[Any], cut: Cut) -> Sequence[Any]:
    top = [e for e in events if not cut.top_only or e.cpu_parent is None]
    return top if cut.rows < 0 else top[: cut.rows]


def _columns(
    events: Sequence[Measured], cut: Cut, unit: str | None, whole: float, with_flops: bool
) -> list[Column]:
    width = _at_most(cut.names, max(len(event.key) for event in events))
    columns = [
        Column("Name", width, lambda event: _short(event.key, cut.names)),
        Column("Self CPU %", WIDTH, lambda event: _share(event.self_cpu_time_total, whole)),
        Column("Self CPU", WIDTH, lambda event: in_unit(event.self_cpu_time_total, unit)),
        Column("CPU total %", WIDTH, lambda event: _share(event.cpu_time_total, whole)),
        Column("CPU total", WIDTH, lambda event: in_unit(event.cpu_time_total, unit)),
        Column("CPU time avg", WIDTH, lambda event: in_unit(event.cpu_time, unit)),
        Column("# of Calls", WIDTH, lambda event: str(event.count)),
    ]
    if any(event.input_shapes for event in events):
        columns.append(_shapes(events, cut.shapes))
    numbers = [event.flops for event in events if event.flops > 0]
    return [*columns, _flops(min(numbers))] if with_flops and numbers else columns


def _shapes(events: Sequence[Measured], limit: int | None) -> Column:
    width = _at_most(limit, max(len(str(event.input_shapes)) for event in events))
    return Column("Input Shapes", width, lambda event: str(event.input_shapes)[:width])


def _flops(least: float) -> Column:
    """Show FLOPs in the unit of the least."""
    step = max(0, min(floor(log10(least) / 3), len(FLOPS) - 1))
    scale = 1000**step

    def show(event: Measured) -> str:
        return f"{event.flops / scale:8.3f}" if event.flops > 0 else "--"

    return Column(f"Total {FLOPS[step]}", WIDTH, show)


def _at_most(limit: int | None, longest: int) -> int:
    width = longest + MARGIN
    return width if limit is None else min(width, limit)


def _short(name: str, limit: int | None) -> str:
    if limit is None or len(name) < limit - 3:
        return name
    return name[: limit - 3] + "..."


def _share(part: float, whole: float) -> str:
    return f"{part * 100 / whole:.2f}%" if whole else "NaN"


def _line(columns: Sequence[Column], cells: Sequence[str]) -> str:
    return "".join(
        f"{cell:>{column.width}}{GAP}" for column, cell in zip(columns, cells, strict=True)
    )
