"""Read kernels from the output of ``ncu --csv``.

The raw page has a column per metric, the details page a row. Lines of the program and of ncu
(``==PROF==``) may precede and follow the table.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path

from bridge.importers.arrays import MISSING
from bridge.importers.errors import NotAReport, NothingRecorded
from bridge.importers.ncu.metrics import DEFAULT_DOMAIN, NO_EXTENT, Kernel, OpenRange, Rule, Value
from bridge.importers.ncu.rep import decimal_comma, number, scaled
from bridge.importers.records import record

# -- Cells of open NVTX ranges: ``1  "domain:name:…"  "domain:name:…"``


FIELDS_AFTER_NAME = 6  # fields of a range after its name
NUMBERED = re.compile(r"\s*(\d+)(?::|\s+)?(?=\"|\S)")
SEPARATOR = re.compile(r'("\s+")')
INTEGER = re.compile(r"-?\d+")
INT64_LIMIT, MAX_INTEGER_LENGTH = 2**63, 20  # and the characters of an integer
FIRST_THREAD = 1
LABEL_DIGITS = 18  # fit into 64 bits


def push_pop_ranges(cells: Iterable[str]) -> tuple[int, tuple[OpenRange, ...]]:
    """Return the thread of a kernel, 1 by default, and its push/pop ranges, outermost first."""
    thread, result = FIRST_THREAD, []
    for cell in cells:
        number, frames = _number_and_frames(cell)
        thread = int(number[:LABEL_DIGITS] or thread)
        result += [_parse_range(frame) for frame in frames]
    return thread, tuple(result)


def start_end_ranges(cells: Iterable[str]) -> tuple[OpenRange, ...]:
    """Return the open start/end ranges, each with its id."""
    return tuple(_start_end_range(cell) for cell in cells for cell in _start_end_frames(cell))


def _start_end_frames(cell: str) -> Iterator[str]:
    number, frames = _number_and_frames(cell)
    prefix = f"{number}:" if number else ""
    return (frame if INTEGER.match(frame) else prefix + frame for frame in frames)


def _start_end_range(frame: str) -> OpenRange:
    number, colon, rest = frame.partition(":")
    if colon and number.isdecimal():
        return _parse_range(rest)._replace(id=number)
    return _parse_range(frame)


def _number_and_frames(cell: str) -> tuple[str, list[str]]:
    """Return the number before the first quote, '' for none, and the texts in quotes."""
    before, quote, rest = cell.partition('"')
    if not quote:  # a single range may have no quotes
        match = NUMBERED.match(cell)
        return (match[1], [cell[match.end() :]]) if match else ("", [cell])
    number = INTEGER.search(before)
    inside = rest.rstrip().removesuffix('"')
    return number[0] if number else "", _join_frames(SEPARATOR.split(inside))


def _join_frames(parts: list[str]) -> list[str]:
    """Return the ranges of a cell that was split at quotes.

    Names may contain quotes as well: a range is complete when it has all its fields.
    """
    if parts[-1].count(":") < FIELDS_AFTER_NAME:
        return parts[::2]  # ranges with names only
    result, open_ = [], ""
    for place, part in enumerate(parts):
        if not place % 2:
            open_ += part
        elif _is_whole(open_):
            result.append(open_)
            open_ = ""
        else:
            open_ += part
    return [*result, open_]


def _is_whole(frame: str) -> bool:
    return frame.count(":") > FIELDS_AFTER_NAME


def _parse_range(frame: str) -> OpenRange:
    """Return a range from its text ``domain:name:…``.

    A name may contain colons if the range has a message, which repeats the name.
    """
    domain, *fields = frame.split(":")
    if len(fields) <= FIELDS_AFTER_NAME:
        return OpenRange(domain or DEFAULT_DOMAIN, ":".join(fields[:1]))
    extra = len(fields) - FIELDS_AFTER_NAME - 1
    middle = extra // 2 + 1
    if extra and not extra % 2 and fields[:middle] == fields[-middle:]:
        name, fields_after = fields[:middle], fields[middle:]
    else:
        name, fields_after = fields[:-FIELDS_AFTER_NAME], fields[-FIELDS_AFTER_NAME:]
    payload = (
        int(fields_after[1])
        if INTEGER.fullmatch(fields_after[1]) and len(fields_after[1]) <= MAX_INTEGER_LENGTH
        else MISSING
    )
    payload = payload if -INT64_LIMIT <= payload < INT64_LIMIT else MISSING
    return OpenRange(domain or DEFAULT_DOMAIN, ":".join(name), payload)


# -- Pages


ID, KERNEL, METRIC, SUMMARY = "ID", "Kernel Name", "Metric Name", "Invocations"
KERNEL_COLUMNS = frozenset(
    [
        *(ID, KERNEL, "Process ID", "Process Name", "Host Name", "Kernel Time"),
        *("Context", "Stream", "Block Size", "Grid Size", "Device", "CC"),
    ]
)
VALUE, SPEEDUP = NUMBERS = "Metric Value", "Estimated Speedup"
PUSHED, STARTED = "Push/Pop_Range", "Start/Stop_Range"
HEAD = re.compile(r'^"?ID"?,.*"?Kernel Name"?', re.MULTILINE)
HEAD_BYTES = 1 << 16  # searched for a table; in a file called .csv it may begin later
NCU_LINE = re.compile(r"==[A-Z]+==")  # prefix of ncu's own lines
UNAVAILABLE = frozenset(["", "n/a", "(!) n/a", "no data", "nan", "inf", "-nan", "-inf"])
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
INTEGERS = re.compile(r"\d+")
MAX_DIGITS = 18  # fit into 64 bits

Row = Mapping[str, str]


def is_table(path: Path) -> bool:
    """Return whether a file contains a table of ncu, or is called .csv."""
    with path.open("rb") as file:
        start = file.read(HEAD_BYTES)
    return path.suffix.lower() == ".csv" or HEAD.search(_decode(start)) is not None


@record
class Page:
    """A printed table: its columns and rows; ``comma`` is whether numbers have decimal commas."""

    name: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    comma: bool

    @property
    def details(self) -> bool:
        return METRIC in self.columns

    def of(self, row: Sequence[str]) -> Row:
        """Return the cells of a row by column; missing cells at its end are empty."""
        return dict(zip(self.columns, [*row, *[""] * (len(self.columns) - len(row))], strict=False))

    def value(self, cell: str, unit: str) -> Value | None:
        """Return a metric in its base unit, None if it was not available."""
        if cell.strip().lower() in UNAVAILABLE:
            return None
        result = number(cell, comma=self.comma)
        if result is None:
            return Value(float("nan"), unit, cell)
        scaled_value, base_unit = scaled(result, unit)
        value = float(scaled_value)
        if not isfinite(value):
            return Value(float("nan"), unit, cell)
        is_integer = scaled_value == scaled_value.to_integral_value()
        return Value(
            value,
            base_unit,
            str(int(scaled_value)) if is_integer and int(value) != int(scaled_value) else "",
        )


def kernels(path: Path, printed: bytes | None = None) -> tuple[list[Kernel], str, str]:
    """Return the kernels in the order of profiling, the name of the page, and a warning or ''.

    ``printed`` is what ncu printed of the file; without it the file itself is that. Raises a
    `ReportError` if there is no valid table.
    """
    page = _page(path, path.read_bytes() if printed is None else printed)
    result = _kernels_of_details(page) if page.details else _kernels_of_raw(page)
    if not result:
        raise NothingRecorded(f"{path.name}: a table of Nsight Compute without a kernel")
    if page.details:
        return result, "details page", ""
    return result, "raw page", _cut_warning(page)


def _cut_warning(page: Page) -> str:
    """Return the warning about rows of a raw page that are shorter than its header, or ''."""
    is_complete = [len(row) >= len(page.columns) for row in page.rows if _is_row(row)]
    if all(is_complete):
        return ""
    count = is_complete.count(False)
    return f"cut off after row {is_complete.index(False)}; {count} incomplete rows left out"


def _is_row(cells: Sequence[str]) -> bool:
    """Return whether a line of a raw page is of a kernel; the program may print others between."""
    return len(cells) > 1 and cells[0].isdecimal()


def _decode(data: bytes) -> str:
    return data.decode("utf-16" if data.startswith(UTF_16) else "utf-8-sig", errors="replace")


def _page(path: Path, printed: bytes) -> Page:
    text = _decode(printed)
    head = HEAD.search(text)
    if head is None:
        raise NotAReport(
            f"{path.name}: no table of Nsight Compute in it"
            " (a line of columns from ID to Kernel Name); give the output of ncu --csv --page raw"
        )
    lines = (
        line for line in text[head.start() :].splitlines(keepends=True) if not NCU_LINE.match(line)
    )
    try:
        columns, *rows = list(csv.reader(lines))
    except csv.Error as error:
        raise NotAReport(f"{path.name}: invalid CSV: {error}; print it again") from error
    if SUMMARY in columns:
        raise NotAReport(f"{path.name}: a summary over kernels; print it without --print-summary")
    return Page(path.name, columns, rows, decimal_comma(_metric_cells(columns, rows)))


def _metric_cells(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Return the cells of metrics."""
    if METRIC in columns:
        places = [place for place, name in enumerate(columns) if name in NUMBERS]
    else:
        places = [place for place, name in enumerate(columns) if not _is_kernel_column(name)]
    return (row[place] for row in rows for place in places if place < len(row))


def _kernels_of_raw(page: Page) -> list[Kernel]:
    """Read a row per kernel; the first row holds the units and has no ID."""
    metrics = [column for column in page.columns if not _is_kernel_column(column)]
    units: Row = {}
    result = []
    for cells in page.rows:
        row = page.of(cells)
        if not row[ID]:
            units = units or row
        elif _is_row(cells) and len(cells) >= len(page.columns):
            kernel = _kernel(row)
            values = ((name, page.value(row[name], units.get(name, ""))) for name in metrics)
            kernel.metrics = {name: value for name, value in values if value is not None}
            result.append(kernel)
    return result


def _is_kernel_column(column: str) -> bool:
    return column in KERNEL_COLUMNS or PUSHED in column or STARTED in column


def _kernels_of_details(page: Page) -> list[Kernel]:
    """Read a row per metric and rule; rows of one kernel have the same ID and process."""
    result: dict[tuple[str, str], Kernel] = {}
    sections: dict[str, str] = {}
    for row in (page.of(cells) for cells in page.rows if len(cells) > 1):
        if not row[ID].isdecimal():
            continue
        key = row[ID], row.get("Process ID", "")
        if key not in result:
            result[key] = _kernel(row)
        kernel = result[key]
        if row[METRIC]:
            value = page.value(row.get(VALUE, ""), row.get("Metric Unit", ""))
            if value is not None:
                kernel.metrics[_metric_name(row, sections)] = value
        if row.get("Rule Name"):
            kernel.rules.append(_rule(page, row))
    return list(result.values())


def _metric_name(row: Row, sections: dict[str, str]) -> str:
    """Return the name of a metric; with the section if an earlier one has the same name."""
    name, section = row[METRIC], row.get("Section Name", "")
    return name if sections.setdefault(name, section) == section else f"{name} [{section}]"


def _rule(page: Page, row: Row) -> Rule:
    gain = number(row.get(SPEEDUP, ""), comma=page.comma)
    return Rule(
        section=row.get("Section Name", ""),
        rule=row["Rule Name"],
        kind=row.get("Rule Type", ""),
        text=row.get("Rule Description", ""),
        scope=row.get("Estimated Speedup Type", ""),
        speedup=float(MISSING if gain is None else gain),
    )


def _kernel(row: Row) -> Kernel:
    """Return a kernel without its metrics from a row."""
    thread, pushed = push_pop_ranges(_cells(row, PUSHED))
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
        started=start_end_ranges(_cells(row, STARTED)),
    )


def _cells(row: Row, column: str) -> Iterator[str]:
    return (cell for name, cell in row.items() if column in name and cell)


def _integer(cell: str) -> int:
    return int(cell) if cell.isdecimal() and len(cell) <= MAX_DIGITS else MISSING


def _extent(cell: str) -> tuple[int, ...]:
    """Return the numbers of ``(256, 1, 1)``."""
    result = tuple(_integer(digits) for digits in INTEGERS.findall(cell))
    return result if len(result) == len(NO_EXTENT) else NO_EXTENT
