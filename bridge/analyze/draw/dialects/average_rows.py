"""Averages per key as PyTorch's profiler shows them: rows, their list, and the text table.

Names and times (µs) are PyTorch's. The data frame behind them holds nanoseconds; every number is
computed from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from math import floor, log10
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from bridge.analyze.core.table import Table
from bridge.importers.records import record

if TYPE_CHECKING:
    import pandas as pd


US = 1000  # ns
TOTAL = "Total"
TIMES = (
    "cpu_time",
    "device_time",
    "cpu_time_total",
    "device_time_total",
    "self_cpu_time_total",
    "self_device_time_total",
)


class DeviceType(IntEnum):
    """The device that a row's time was spent on, by PyTorch's numbers."""

    CPU = 0
    CUDA = 1

    def __str__(self) -> str:
        return f"DeviceType.{self.name}"


@record
class Average:
    """All calls of one key; ``cpu_parent`` only tells whether any call is outermost."""

    key: str
    count: int
    cpu_time_total: float
    self_cpu_time_total: float
    device_time_total: float
    self_device_time_total: float
    device_type: DeviceType = DeviceType.CPU
    use_device: str | None = None
    is_user_annotation: bool = False
    input_shapes: Any = ""
    stack: Sequence[str] = ()
    overload_name: str = ""
    flops: float = 0
    is_top: bool = True
    # Attributes that are not recorded:
    cpu_children: Sequence[Any] = ()
    cpu_memory_usage: int = 0
    self_cpu_memory_usage: int = 0
    device_memory_usage: int = 0
    self_device_memory_usage: int = 0
    node_id: int = -1
    scope: int = 0
    is_async: bool = False
    is_remote: bool = False
    is_legacy: bool = False

    @property
    def cpu_time(self) -> float:
        """The mean time of a call on the host, in µs."""
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def device_time(self) -> float:
        """The mean time of a call on devices, in µs."""
        return self.device_time_total / self.count if self.count else 0.0

    @property
    def cpu_parent(self) -> str | None:
        """None if a call of the key is outermost, which is all that PyTorch's tables test."""
        return None if self.is_top else ""

    def __getattr__(self, name: str) -> Any:
        """Return the ``…_str`` attributes, and those that older versions named after CUDA."""
        if name.endswith("_str") and name.removesuffix("_str") in TIMES:
            return in_unit(getattr(self, name.removesuffix("_str")))
        if "cuda" in name:
            return getattr(self, name.replace("cuda", "device"))
        raise AttributeError(f"{type(self).__name__!r} has no {name!r}")

    def __repr__(self) -> str:
        return (
            f"<Average key={self.key} count={self.count} self_cpu_time={self.self_cpu_time_total_str}"
            f" cpu_time={self.cpu_time_str} device_time={self.device_time_str}>"
        )


@dataclass(frozen=True, eq=False)
class Averages(Sequence[Average]):
    """The rows, in the order in which their first calls began.

    Attributes:
        sums: the rows in ns, with the columns key, device_type ("cpu", "cuda"),
            is_user_annotation, count, self_cpu_ns, cpu_total_ns, self_device_ns, device_total_ns,
            input_shapes, stack and overload_name (texts; the entries of a stack are lines, innermost
            first), flops, is_top.
        use_device: the kind of device, None if nothing ran on one.
        shapes: the values that the texts of input_shapes stand for.

    """

    sums: Table
    use_device: str | None = None
    shapes: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.sums)

    @overload
    def __getitem__(self, index: int) -> Average: ...
    @overload
    def __getitem__(self, index: slice) -> list[Average]: ...
    def __getitem__(self, index: int | slice) -> Average | list[Average]:
        """Return a row by its index, or a list of rows for a slice."""
        if isinstance(index, slice):
            return [self._row(row) for row in self.sums[index].records()]
        return self._row(self.sums.row(range(len(self))[index]))

    def __iter__(self) -> Iterator[Average]:
        return iter(self[:])

    def _row(self, row: dict[Any, Any]) -> Average:
        return Average(
            key=row["key"],
            count=int(row["count"]),
            cpu_time_total=int(row["cpu_total_ns"]) / US,
            self_cpu_time_total=int(row["self_cpu_ns"]) / US,
            device_time_total=int(row["device_total_ns"]) / US,
            self_device_time_total=int(row["self_device_ns"]) / US,
            device_type=DeviceType[row["device_type"].upper()],
            use_device=self.use_device,
            is_user_annotation=bool(row["is_user_annotation"]),
            input_shapes=self.shapes.get(row["input_shapes"], ""),
            stack=tuple(row["stack"].splitlines()),
            overload_name=row["overload_name"],
            flops=row["flops"],
            is_top=bool(row["is_top"]),
        )

    @property
    def frame(self) -> pd.DataFrame:
        """The rows in ns as a data frame, with the columns of ``sums``."""
        return self.sums.to_pandas()

    @property
    def self_cpu_time_total(self) -> float:
        """The sum of the self times, in µs."""
        return int(self.sums["self_cpu_ns"].sum()) / US

    def total_average(self) -> Average:
        """Return one row that sums up all rows: host time counted once, and every activity once.

        Raises ValueError if there are no rows.
        """
        if not len(self):
            raise ValueError("no rows: there is no total average")
        on_device = self.sums["device_type"] != "cpu"
        host = int(self.sums["self_cpu_ns"].sum()) / US
        device = int(self.sums["self_device_ns"][on_device].sum()) / US
        count = int(self.sums["count"].sum())
        flops = self.sums["flops"].sum()
        return Average(
            TOTAL,
            count,
            cpu_time_total=host,
            self_cpu_time_total=host,
            device_time_total=device,
            self_device_time_total=device,
            use_device=self.use_device,
            flops=flops,
        )

    def table(  # noqa: PLR0913, PLR0917 - PyTorch's parameters
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int | None = 75,
        max_name_column_width: int | None = 55,
        max_shapes_column_width: int | None = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
        time_unit: str | None = None,
    ) -> str:
        """Return the table as text, sorted by ``sort_by``; a ``row_limit`` of -1 shows all rows.

        Raises AttributeError for an unknown key.
        """
        cut = Cut(
            rows=row_limit,
            names=max_name_column_width,
            shapes=max_shapes_column_width,
            top_only=top_level_events_only,
            sources=max_src_column_width,
        )
        return table(self[:], sort_by, cut=cut, header=header, unit=time_unit, with_flops=True)

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        return f"<Averages: {len(self)} keys>"


# -- The text table: PyTorch's columns in PyTorch's order, and its footer
#
# A column is shown if any row has a value for it. Percentages are of the sum of the self times.


WIDTH, MARGIN, GAP = 12, 4, "  "
DEVICES = re.compile("cuda|xpu|privateuse1")
FLOPS = ("FLOPs", "KFLOPs", "MFLOPs", "GFLOPs", "TFLOPs", "PFLOPs")
UNITS = {"s": 1_000_000, "ms": 1000, "us": 1}
TOP = "This report only display top-level ops statistics"
DOTS = "..."


class Cut(NamedTuple):
    """Which rows a table shows, and the maximum widths of names, shapes and source locations."""

    rows: int
    names: int | None
    shapes: int | None
    top_only: bool
    sources: int | None = None


class Column(NamedTuple):
    """A column: its heading, its width, the function that writes a cell, its alignment."""

    head: str
    width: int
    show: Callable[[Any], str]
    side: str = ">"


class Sums(NamedTuple):
    """The denominators of percentages: the self times of the host and of devices, in µs."""

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
    """Return the table as text, '' without rows. Raises AttributeError for an unknown key."""
    if not rows:
        return ""
    if sort_by is not None:
        key = DEVICES.sub("device", sort_by)
        rows = sorted(rows, key=lambda row: getattr(row, key), reverse=True)
    sums = Sums(
        sum(row.self_cpu_time_total for row in rows),
        sum(row.self_device_time_total for row in rows if _is_work(row)),
    )
    columns = _columns(rows, cut, unit=unit, sums=sums, with_flops=with_flops)
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
    """Return a time in s, ms or us; without a unit, in the largest unit that it reaches."""
    largest = unit if unit in UNITS else next((u for u in UNITS if us >= UNITS[u]), "us")
    return f"{us / UNITS[largest]:.3f}{largest}"


def _is_work(row: Any) -> bool:
    """Return whether a row holds a device's own work, which the footer sums up."""
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


def _place(stack: Sequence[str], index: int, width: int) -> str:
    """Return an entry of a stack; an entry that is too long is cut at its beginning."""
    entry = stack[index] if index < len(stack) else ""
    return entry if len(entry) <= width else DOTS + entry[-width:][len(DOTS) :]


def _flops(smallest: float) -> Column:
    """Return the column of FLOPs, in a unit that suits the smallest value."""
    step = max(0, min(floor(log10(smallest) / 3), len(FLOPS) - 1))
    scale = 1000**step

    def show(row: Any) -> str:
        return f"{row.flops / scale:8.3f}" if row.flops > 0 else "--"

    return Column(f"Total {FLOPS[step]}", WIDTH, show)


def _lines(columns: Sequence[Column], row: Any) -> list[str]:
    """Return the lines of a row; with stacks, one more line per further entry, and an empty one."""
    lines = [_line(columns, [column.show(row) for column in columns])]
    place = next((n for n, column in enumerate(columns) if column.head == "Source Location"), None)
    if place is None:
        return lines
    rest = [_place(row.stack, index, columns[place].width) for index in range(1, len(row.stack))]
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
