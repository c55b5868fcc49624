"""The table of PyTorch's profiler: its columns, in its order, and its footer.

The invariant: a column is there if any row has something for it; percentages are of the self times' sum. No
number is computed but these and means.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from math import floor, log10
from typing import Any, NamedTuple

WIDTH, MARGIN, GAP = 12, 4, "  "


DEVICES = re.compile("cuda|xpu|privateuse1")


FLOPS = ("FLOPs", "KFLOPs", "MFLOPs", "GFLOPs", "TFLOPs", "PFLOPs")


UNITS = {"s": 1_000_000, "ms": 1000, "us": 1}


TOP = "This report only display top-level ops statistics"


DOTS = "..."


class Cut(NamedTuple):
    """Which rows are shown, and how wide names, shapes and places in the source may be."""

    rows: int
    names: int | None
    shapes: int | None
    top_only: bool
    sources: int | None = None


class Column(NamedTuple):
    """A heading, how wide it is, what a row shows there, and to which side."""

    head: str
    width: int
    show: Callable[[Any], str]
    side: str = ">"


class Sums(NamedTuple):
    """What shares are of: the self times of the host, and of devices, in µs."""

    cpu: float
    device: float


def table(
    rows: Sequence[Any],
    sort_by: str | None,
    cut: Cut,
    header: str | None,
    unit: str | None,
    with_flops: bool,
) -> str:
    """Write the table; of no rows an empty text. Raises AttributeError for a key that there is not."""
    if not rows:
        return ""
    if sort_by is not None:
        key = DEVICES.sub("device", sort_by)
        rows = sorted(rows, key=lambda row: getattr(row, key), reverse=True)
    sums = Sums(
        sum(row.self_cpu_time_total for row in rows),
        sum(row.self_device_time_total for row in rows if _is_work(row)),
    )
    columns = _columns(rows, cut, unit, sums, with_flops)
    rule = GAP.join("-" * column.width for column in columns) + GAP
    lines = [
        *_above(header, cut, len(rule) - len(GAP)),
        *(rule, _line(columns, [column.head for column in columns]), rule),
        *(line for row in _shown(rows, cut) for line in _lines(columns, row)),
        *(rule, f"Self CPU time total: {in_unit(sums.cpu, unit)}"),
    ]
    if _on_device(rows):
        name = str(rows[0].use_device).upper()
        lines.append(f"Self {name} time total: {in_unit(sums.device, unit)}")
    return "\n".join(lines) + "\n"


def in_unit(us: float, unit: str | None = None) -> str:
    """Write a time in s, ms or us; without a unit in the largest that it has one of."""
    chosen = unit if unit in UNITS else next((u for u in UNITS if us >= UNITS[u]), "us")
    return f"{us / UNITS[chosen]:.3f}{chosen}"


def _is_work(row: Any) -> bool:
    """Whether a row is of a device's own work, which the footer adds up."""
    return bool(getattr(row, "device_type", 0))


def _on_device(rows: Iterable[Any]) -> bool:
    return any(row.self_device_time_total > 0 for row in rows)


def _above(header: str | None, cut: Cut, length: int) -> list[str]:
    lines = [] if header is None else ["=" * length, header]
    return [*lines, *(["=" * length, TOP] if cut.top_only else [])]


def _shown(rows: Sequence[Any], cut: Cut) -> Sequence[Any]:
    top = [row for row in rows if not cut.top_only or row.cpu_parent is None]
    return top if cut.rows < 0 else top[: cut.rows]


def _columns(
    rows: Sequence[Any], cut: Cut, unit: str | None, sums: Sums, with_flops: bool
) -> list[Column]:
    columns = [
        *_names(rows, cut.names),
        Column("Self CPU %", WIDTH, lambda row: _share(row.self_cpu_time_total, sums.cpu)),
        Column("Self CPU", WIDTH, lambda row: in_unit(row.self_cpu_time_total, unit)),
        Column("CPU total %", WIDTH, lambda row: _share(row.cpu_time_total, sums.cpu)),
        Column("CPU total", WIDTH, lambda row: in_unit(row.cpu_time_total, unit)),
        Column("CPU time avg", WIDTH, lambda row: in_unit(row.cpu_time, unit)),
        *(_of_device(str(rows[0].use_device).upper(), unit, sums) if _on_device(rows) else ()),
        Column("# of Calls", WIDTH, lambda row: str(row.count)),
    ]
    if any(row.input_shapes for row in rows):
        columns.append(_shapes(rows, cut.shapes))
    if any(row.stack for row in rows):
        columns.append(_sources(rows, cut.sources))
    numbers = [row.flops for row in rows if row.flops > 0]
    return [*columns, _flops(min(numbers))] if with_flops and numbers else columns


def _names(rows: Sequence[Any], limit: int | None) -> list[Column]:
    width = _at_most(limit, max(len(row.key) for row in rows))
    columns = [Column("Name", width, lambda row: _short(row.key, limit))]
    if any(row.overload_name for row in rows):
        columns.append(Column("Overload Name", width, lambda row: _short(row.overload_name, limit)))
    return columns


def _of_device(name: str, unit: str | None, sums: Sums) -> list[Column]:
    return [
        Column(f"Self {name}", WIDTH, lambda row: in_unit(row.self_device_time_total, unit)),
        Column(
            f"Self {name} %", WIDTH, lambda row: _share(row.self_device_time_total, sums.device)
        ),
        Column(f"{name} total", WIDTH, lambda row: in_unit(row.device_time_total, unit)),
        Column(f"{name} time avg", WIDTH, lambda row: in_unit(row.device_time, unit)),
    ]


def _shapes(rows: Sequence[Any], limit: int | None) -> Column:
    width = _at_most(limit, max(len(str(row.input_shapes)) for row in rows))
    return Column("Input Shapes", width, lambda row: str(row.input_shapes)[:width])


def _sources(rows: Sequence[Any], limit: int | None) -> Column:
    width = _at_most(limit, max(len(entry) for row in rows for entry in row.stack))
    return Column("Source Location", width, lambda row: _place(row.stack, 0, width), "<")


def _place(stack: Sequence[str], at: int, width: int) -> str:
    """Return a place in the source; of one that is too long its end."""
    entry = stack[at] if at < len(stack) else ""
    return entry if len(entry) <= width else DOTS + entry[-width:][len(DOTS) :]


def _flops(least: float) -> Column:
    """Show FLOPs in the unit of the least."""
    step = max(0, min(floor(log10(least) / 3), len(FLOPS) - 1))
    scale = 1000**step

    def show(row: Any) -> str:
        return f"{row.flops / scale:8.3f}" if row.flops > 0 else "--"

    return Column(f"Total {FLOPS[step]}", WIDTH, show)


def _lines(columns: Sequence[Column], row: Any) -> list[str]:
    """Return a row's line; where there are stacks one more for each further entry, and an empty one."""
    lines = [_line(columns, [column.show(row) for column in columns])]
    place = next((n for n, column in enumerate(columns) if column.head == "Source Location"), None)
    if place is None:
        return lines
    rest = [_place(row.stack, at, columns[place].width) for at in range(1, len(row.stack))]
    for entry in (*rest, ""):
        cells = [""] * len(columns)
        cells[place] = entry
        lines.append(_line(columns, cells))
    return lines


def _at_most(limit: int | None, longest: int) -> int:
    width = longest + MARGIN
    return width if limit is None else min(width, limit)


def _short(name: str, limit: int | None) -> str:
    if limit is None or len(name) < limit - len(DOTS):
        return name
    return name[: limit - len(DOTS)] + DOTS


def _share(part: float, whole: float) -> str:
    return f"{part * 100 / whole:.2f}%" if whole else "NaN"


def _line(columns: Sequence[Column], cells: Sequence[str]) -> str:
    return "".join(
        f"{cell:{column.side}{column.width}}{GAP}"
        for column, cell in zip(columns, cells, strict=True)
    )
