"""Kernels of what ``ncu --csv`` printed: of the raw page (a column per metric) or of the details page (a row).

Lines of the program and of ncu itself (``==PROF==``) may stand before and after the table.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from importers.errors import NotAReport, NothingRecorded
from importers.frames import MISSING
from importers.ncu import nvtx
from importers.ncu.kernels import NO_EXTENT, Kernel, Rule, Value
from importers.ncu.units import decimal_comma, number, scaled

ID, KERNEL, METRIC, SUMMARY = "ID", "Kernel Name", "Metric Name", "Invocations"
OF_KERNEL = frozenset(
    [
        *(ID, KERNEL, "Process ID", "Process Name", "Host Name", "Kernel Time"),
        *("Context", "Stream", "Block Size", "Grid Size", "Device", "CC"),
    ]
)
VALUE, SPEEDUP = NUMBERS = "Metric Value", "Estimated Speedup"
PUSHED, STARTED = "Push/Pop_Range", "Start/Stop_Range"
HEAD = re.compile(r'^"?ID"?,.*"?Kernel Name"?', re.MULTILINE)
SNIFFED = (
    1 << 16
)  # bytes: what a program prints before the table may be longer, in a file called .csv
OWN = re.compile(r"==[A-Z]+==")  # how lines of ncu begin
UNAVAILABLE = frozenset(["", "n/a", "(!) n/a", "no data", "nan", "inf", "-nan", "-inf"])
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
INTEGERS = re.compile(r"\d+")
DIGITS = 18  # more are damage: they do not fit into 64 bits

Row = Mapping[str, str]


def is_table(path: Path) -> bool:
    """Tell whether a file holds such a table, or by its name should."""
    with path.open("rb") as file:
        start = file.read(SNIFFED)
    return path.suffix.lower() == ".csv" or HEAD.search(_decoded(start)) is not None


@dataclass(frozen=True)
class Page:
    """A table as printed: its columns, and its rows by these."""

    name: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    comma: bool

    @property
    def details(self) -> bool:
        """Whether it is of the details page."""
        return METRIC in self.columns

    def of(self, row: Sequence[str]) -> Row:
        """Return the cells of a row by column; those that it lacks at its end are empty."""
        return dict(zip(self.columns, [*row, *[""] * (len(self.columns) - len(row))], strict=False))

    def value(self, cell: str, unit: str) -> Value | None:
        """Return a metric in its base unit, None for one that was not available."""
        if cell.strip().lower() in UNAVAILABLE:
            return None
        found = number(cell, comma=self.comma)
        if found is None:
            return Value(float("nan"), unit, cell)
        based, word = scaled(found, unit)
        value = float(based)
        if not isfinite(value):
            return Value(float("nan"), unit, cell)
        whole = based == based.to_integral_value()
        return Value(value, word, str(int(based)) if whole and int(value) != int(based) else "")


def kernels(path: Path) -> tuple[list[Kernel], str, str]:
    """Return the kernels in the order profiled, the name of the page and a warning or ''; raises a `ReportError`."""
    page = _page(path)
    found = _of_details(page) if page.details else _of_raw(page)
    if not found:
        raise NothingRecorded(f"{path.name}: a table of Nsight Compute without a kernel")
    if page.details:
        return found, "details page", ""
    return found, "raw page", _cut(page)


def _cut(page: Page) -> str:
    """Say what is left out of a raw page: rows shorter than its header."""
    whole = [len(row) >= len(page.columns) for row in page.rows if _is_row(row)]
    if all(whole):
        return ""
    left = whole.count(False)
    return f"cut off after row {whole.index(False)}; {left} that are not whole left out"


def _is_row(cells: Sequence[str]) -> bool:
    """Tell whether a line of a raw page is of a kernel, whole or not: a program may print between them."""
    return len(cells) > 1 and cells[0].isdecimal()


def _decoded(data: bytes) -> str:
    return data.decode("utf-16" if data.startswith(UTF_16) else "utf-8-sig", errors="replace")


def _page(path: Path) -> Page:
    text = _decoded(path.read_bytes())
    head = HEAD.search(text)
    if head is None:
        raise NotAReport(
            f"{path.name}: no table of Nsight Compute in it (a line of columns from ID to Kernel Name);"
            " give what ncu --csv --page raw prints"
        )
    lines = (line for line in text[head.start() :].splitlines(keepends=True) if not OWN.match(line))
    try:
        columns, *rows = list(csv.reader(lines))
    except csv.Error as error:
        raise NotAReport(f"{path.name}: no sound CSV: {error}; print it again") from error
    if SUMMARY in columns:
        raise NotAReport(f"{path.name}: a summary over kernels; print it without --print-summary")
    return Page(path.name, columns, rows, decimal_comma(_measured(columns, rows)))


def _measured(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Return the cells that hold metrics."""
    if METRIC in columns:
        places = [place for place, name in enumerate(columns) if name in NUMBERS]
    else:
        places = [place for place, name in enumerate(columns) if not _is_of_kernel(name)]
    return (row[place] for row in rows for place in places if place < len(row))


def _of_raw(page: Page) -> list[Kernel]:
    """Read a row per kernel, under one of units whose ID is empty."""
    metrics = [c for c in page.columns if not _is_of_kernel(c)]
    units: Row = {}
    found = []
    for cells in page.rows:
        row = page.of(cells)
        if not row[ID]:
            units = units or row
        elif _is_row(cells) and len(cells) >= len(page.columns):
            kernel = _kernel(row)
            values = ((name, page.value(row[name], units.get(name, ""))) for name in metrics)
            kernel.metrics = {name: value for name, value in values if value is not None}
            found.append(kernel)
    return found


def _is_of_kernel(column: str) -> bool:
    return column in OF_KERNEL or PUSHED in column or STARTED in column


def _of_details(page: Page) -> list[Kernel]:
    """Read a row per metric, and per rule, of a kernel; those of one kernel share ID and process."""
    found: dict[tuple[str, str], Kernel] = {}
    sections: dict[str, str] = {}
    for row in (page.of(cells) for cells in page.rows if len(cells) > 1):
        if not row[ID].isdecimal():
            continue
        key = row[ID], row.get("Process ID", "")
        if key not in found:
            found[key] = _kernel(row)
        kernel = found[key]
        if row[METRIC]:
            value = page.value(row.get(VALUE, ""), row.get("Metric Unit", ""))
            if value is not None:
                kernel.metrics[_named(row, sections)] = value
        if row.get("Rule Name"):
            kernel.rules.append(_rule(page, row))
    return list(found.values())


def _named(row: Row, sections: dict[str, str]) -> str:
    """Return the name of a metric; in a second section with the same name, with the section's."""
    name, section = row[METRIC], row.get("Section Name", "")
    return name if sections.setdefault(name, section) == section else f"{name} [{section}]"


def _rule(page: Page, row: Row) -> Rule:
    gain = number(row.get(SPEEDUP, ""), comma=page.comma)
    return Rule(
        row.get("Section Name", ""),
        row["Rule Name"],
        row.get("Rule Type", ""),
        row.get("Rule Description", ""),
        row.get("Estimated Speedup Type", ""),
        float(MISSING if gain is None else gain),
    )


def _kernel(row: Row) -> Kernel:
    """Return what a row says of its kernel besides metrics."""
    thread, pushed = nvtx.stack(_cells(row, PUSHED))
    return Kernel(
        name="",
        full_name=row.get(KERNEL, ""),
        process=_integer(row.get("Process ID", "")),
        program=row.get("Process Name", ""),
        thread=thread,
        device=_integer(row.get("Device", "")),
        context=_integer(row.get("Context", "")),
        stream=_integer(row.get("Stream", "")),
        grid=_extent(row.get("Grid Size", "")),
        block=_extent(row.get("Block Size", "")),
        pushed=pushed,
        started=nvtx.phases(_cells(row, STARTED)),
    )


def _cells(row: Row, column: str) -> Iterator[str]:
    return (cell for name, cell in row.items() if column in name and cell)


def _integer(cell: str) -> int:
    return int(cell) if cell.isdecimal() and len(cell) <= DIGITS else MISSING


def _extent(cell: str) -> tuple[int, ...]:
    """Read ``(256, 1, 1)``."""
    found = tuple(_integer(digits) for digits in INTEGERS.findall(cell))
    return found if len(found) == len(NO_EXTENT) else NO_EXTENT
