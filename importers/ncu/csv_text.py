"""Kernels of what ``ncu --csv`` printed: of the raw page (a column per metric) or of the details page (a row).

Lines of the program and of ncu itself (``==PROF==``) may stand before and after the table.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from importers.errors import NotAReport, NothingRecorded
from importers.frames import MISSING
from importers.ncu.metrics import DEFAULT_DOMAIN, NO_EXTENT, Kernel, Open, Rule, Value
from importers.ncu.rep import decimal_comma, number, scaled

# -- The cells in which ``ncu --csv`` writes what NVTX ranges were open: ``1  "domain:name:…"  "domain:name:…"``


AFTER = 6  # fields behind the name
NUMBERED = re.compile(r"\s*(\d+)(?::|\s+)?(?=\"|\S)")
BETWEEN = re.compile(r'("\s+")')
INTEGER = re.compile(r"-?\d+")
LARGEST, LONGEST = 2**63, 20  # characters of it
FIRST_THREAD = 1
LABEL_DIGITS = 18  # so many fit into 64 bits


def stack(cells: Iterable[str]) -> tuple[int, tuple[Open, ...]]:
    """Return the thread of a kernel, 1 where none is said, and its push/pop ranges, outermost first."""
    thread, found = FIRST_THREAD, []
    for cell in cells:
        number, frames = _parted(cell)
        thread = int(number[:LABEL_DIGITS] or thread)
        found += [_open(frame) for frame in frames]
    return thread, tuple(found)


def phases(cells: Iterable[str]) -> tuple[Open, ...]:
    """Return the start/end ranges that were open, each with its id."""
    return tuple(_phase(cell) for cell in cells for cell in _phases(cell))


def _phases(cell: str) -> Iterator[str]:
    number, frames = _parted(cell)
    prefix = f"{number}:" if number else ""
    return (frame if INTEGER.match(frame) else prefix + frame for frame in frames)


def _phase(frame: str) -> Open:
    number, colon, rest = frame.partition(":")
    if colon and number.isdecimal():
        return _open(rest)._replace(id=number)
    return _open(frame)


def _parted(cell: str) -> tuple[str, list[str]]:
    """Return the number before the first quote, '' for none, and what is in quotes."""
    before, quote, rest = cell.partition('"')
    if not quote:  # a single range may stand without quotes
        found = NUMBERED.match(cell)
        return (found[1], [cell[found.end() :]]) if found else ("", [cell])
    number = INTEGER.search(before)
    inside = rest.rstrip().removesuffix('"')
    return number[0] if number else "", _frames(BETWEEN.split(inside))


def _frames(parts: list[str]) -> list[str]:
    """Return the ranges of what is split at quotes, which names may hold too: a range ends with its fields."""
    if parts[-1].count(":") < AFTER:
        return parts[::2]  # ranges that say no more than their names
    found, open_ = [], ""
    for place, part in enumerate(parts):
        if not place % 2:
            open_ += part
        elif _is_whole(open_):
            found.append(open_)
            open_ = ""
        else:
            open_ += part
    return [*found, open_]


def _is_whole(frame: str) -> bool:
    return frame.count(":") > AFTER


def _open(frame: str) -> Open:
    """Read a range; of one with a message, which is its name again, the name may hold colons too."""
    domain, *fields = frame.split(":")
    if len(fields) <= AFTER:
        return Open(domain or DEFAULT_DOMAIN, ":".join(fields[:1]))
    longer = len(fields) - AFTER - 1
    twice = longer // 2 + 1
    if longer and not longer % 2 and fields[:twice] == fields[-twice:]:
        name, after = fields[:twice], fields[twice:]
    else:
        name, after = fields[:-AFTER], fields[-AFTER:]
    payload = int(after[1]) if INTEGER.fullmatch(after[1]) and len(after[1]) <= LONGEST else MISSING
    payload = payload if -LARGEST <= payload < LARGEST else MISSING
    return Open(domain or DEFAULT_DOMAIN, ":".join(name), payload)


# -- Kernels of what ``ncu --csv`` printed: of the raw page (a column per metric) or of the details page (a row)


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
    thread, pushed = stack(_cells(row, PUSHED))
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
        started=phases(_cells(row, STARTED)),
    )


def _cells(row: Row, column: str) -> Iterator[str]:
    return (cell for name, cell in row.items() if column in name and cell)


def _integer(cell: str) -> int:
    return int(cell) if cell.isdecimal() and len(cell) <= DIGITS else MISSING


def _extent(cell: str) -> tuple[int, ...]:
    """Read ``(256, 1, 1)``."""
    found = tuple(_integer(digits) for digits in INTEGERS.findall(cell))
    return found if len(found) == len(NO_EXTENT) else NO_EXTENT
