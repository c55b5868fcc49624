"""One window of a report with its attribution; how many windows a report needs; which tables windows can make."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np

from bridge.analyze.core.catalog import TABLES, VIEWS
from bridge.analyze.core.catalog.column import WINDOWS
from bridge.analyze.core.catalog.lookup import columns_are_chosen, dimensions_of, rows_of
from bridge.analyze.core.catalog.views import RANGES
from bridge.analyze.run.ranks.members import Ranks
from bridge.analyze.tables.request import TableRequest
from bridge.importers.column_files import size_of
from bridge.importers.errors import ReportError
from bridge.importers.formats import SQLITE
from bridge.importers.nsys import windows
from bridge.importers.nsys.windows import Window
from bridge.importers.records import record
from bridge.join.adoption import NeedsWholeReportError
from bridge.join.arrays import NONE, Flags
from bridge.join.attributed import AttributedCapture
from bridge.join.grammar import parse
from bridge.join.nesting import Nesting, TangledError
from bridge.join.options import AttributionOptions
from bridge.scale.requests import PartRequest, needed, part_request, stored_columns

LOG = logging.getLogger("bridge.scale")

# -- Results that windows cannot compute exactly


class WindowsError(ReportError):
    """The report does not fit into the memory limit, and windows cannot compute the result exactly."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(
            f"{name}: larger than --memory-limit, and {what}; without --memory-limit it works"
        )


# -- The memory that a report takes, and the number of windows that fit into less


MB = 10**6
# Measured (docs/memory-limit.md), in bytes: the process with its libraries, a row of a table in its window, and an API
# call in the survey of the whole report.
BASE = 170 * MB
MANY = 260 * MB  # besides, for several tables
PER_CALL = 26
PER_ROW = {False: 200, True: 340}  # of a table of activities or calls; of ranges
PER_ROW_OF_MANY = 500  # of several tables, as a store keeps them
# Of each distinct name, in the window where it occurs, and of that as long as windows are read: names of the rows of
# one table or of several, then texts of ranges and names of kernels that only have to be read.
PER_NAME = {"op": (1_500, 1_200), "kernel": (450, 850), "text": (300, 0), "symbol": (650, 0)}
PER_NAME_OF_MANY = {
    "op": (3_500, 4_300),
    "kernel": (2_900, 2_900),
    "text": (0, 0),
    "symbol": (0, 0),
}
CALL_KEYS = frozenset(["seq", "op_id", "input_op_ids"])  # what rows by shape leave out of a text
PER_CELL = {
    "csv": 30,
    "json": 40,
    "md": 75,
    "table": 105,
}  # of the table that is written, by format
SMALL_TABLE = 100_000  # cells: no more than the estimates are wrong by
LEAST = 40 * MB  # for a window
MOST_WINDOWS = 1_000
SPARE = 1.1  # times the limit: the memory of a window is an estimate
STATUS = Path("/proc/self/status")  # proc(5)
BYTES_PER_BYTE = 8  # of a file that is not an export: memory to read it


def is_export(path: Path) -> bool:
    """Tell whether a report is an SQLite database; windows can be read only from those."""
    if path.is_dir():
        return False
    with path.open("rb") as file:
        return file.read(len(SQLITE)) == SQLITE


def memory_needed(path: Path, tables: Collection[PartRequest], *, raw: bool = False) -> int:
    """Return the estimated bytes to make some tables of a report at once, without those of the process itself.

    ``raw`` says that ranges are called by their whole texts.
    """
    if not is_export(path):
        return BYTES_PER_BYTE * size_of(path)
    many = windows.row_counts(path)
    rows = many.launches + many.activities + many.annotations
    return rows * _per_row(tables) + _of_names(path, tables, raw=raw)[0]


def _of_names(path: Path, tables: Collection[PartRequest], *, raw: bool) -> tuple[int, int]:
    """Return the estimated bytes that distinct names take, and of that those of all windows."""
    per_name = PER_NAME_OF_MANY if len(tables) > 1 else PER_NAME
    numbers = distinct_names(path, tables, raw=raw).items()
    at_once, kept = (sum(per_name[of][part] * n for of, n in numbers) for part in (0, 1))
    return at_once, kept


def distinct_names(
    path: Path, tables: Collection[PartRequest], *, raw: bool = False
) -> dict[str, int]:
    """Return the estimated numbers of distinct names of each kind in `PER_NAME`.

    ``op`` and ``kernel`` are names of rows of some tables. The names of other ranges and kernels
    are ``text`` and ``symbol``; for tables of ranges, texts are part of what a row takes.
    """
    rows = windows.row_counts(path)
    sample = windows.sample_names(path)
    parts = {part for request in tables for part in re.split("[,-]", request.by)}
    is_of_ranges = any(rows_of(request.by) == RANGES for request in tables)
    ops = _row_names(sample.ranges, parts, raw=raw) if is_of_ranges or "op" in parts else []
    return {
        "op": _distinct(ops, rows.annotations),
        "kernel": _distinct(sample.kernels if "kernel" in parts else [], rows.activities),
        "text": _distinct([] if is_of_ranges else sample.ranges, rows.annotations),
        "symbol": _distinct(sample.kernels, rows.activities),
    }


def _row_names(texts: Sequence[str], parts: Collection[str], *, raw: bool) -> Sequence[Hashable]:
    """Return what tables by these parts call the ranges with these texts."""
    if raw:
        return texts
    labels = [parse(text) for text in texts]
    if {"shape", "dtype"}.isdisjoint(parts):
        return [label.op for label in labels]
    return [
        (label.op, *(str(a) for a in label.arguments if a[0] not in CALL_KEYS)) for label in labels
    ]


def _distinct(sample: Sequence[Hashable], rows: int) -> int:
    """Return the estimated number of distinct values in ``rows`` rows: Chao's lower bound, bias-corrected."""
    often = Counter(Counter(sample).values())
    once, twice = often[1], often[2]
    return min(rows, sum(often.values()) + once * (once - 1) // (2 * (twice + 1)))


def count(path: Path, tables: Collection[PartRequest], limit: int, *, raw: bool = False) -> int:
    """Return the number of windows for a report.

    Raises ReportError with the smallest possible limit if no number is enough.
    """
    rows = memory_needed(path, tables, raw=raw)
    base = BASE + MANY * (len(tables) > 1)
    LOG.debug("%s: %d bytes for the process, %d for its rows", path.name, base, rows)
    if base + rows <= limit:
        return 1
    if not is_export(path):
        raise WindowsError(
            path.name, "only SQLite exports of Nsight Systems can be read in windows"
        )
    kept = _of_names(path, tables, raw=raw)[1]
    fixed = base + PER_CALL * windows.row_counts(path).launches + kept
    room = limit - fixed
    if room < max(LEAST, rows // MOST_WINDOWS):
        least = -(-(fixed + max(LEAST, rows // MOST_WINDOWS)) // MB)
        raise ReportError(
            f"{path.name}: --memory-limit {size_text(limit)} is too little: {least}MB is the least"
        )
    return -(-rows // room)


def size_text(size: int) -> str:
    """Return a number of bytes as ``--memory-limit`` takes it."""
    return f"{size // MB}MB" if size >= MB else f"{size}B"


def peak_memory() -> int:
    """Return the peak memory of this process in bytes, 0 where the system does not tell it."""
    return _memory("VmHWM")


def _memory(entry: str) -> int:
    try:
        text = STATUS.read_text(encoding="ascii")
    except OSError:
        return 0
    match = re.search(rf"^{entry}:\s+(\d+) kB$", text, re.MULTILINE)
    return int(match[1]) << 10 if match else 0


def check_memory(name: str, limit: int, peaks: Sequence[int], windows: int) -> None:
    """Raise ReportError if the memory exceeds the limit, or will with the next window.

    ``peaks`` are the peaks of the process in bytes: before the first of ``windows`` windows, and
    after each so far. What is kept of all windows grows with each; a peak of the process that was
    reached before says nothing.
    """
    before, *after = peaks
    most, number = after[-1], len(after)
    growth = 0
    if (
        1 < number < windows
    ):  # of the newest window or of the mean one: the memory may also level off
        growth = min(most - after[-2], (most - after[0]) // (number - 1))
    if limit and most > before and most + growth > SPARE * limit:
        raise ReportError(
            f"{name}: --memory-limit {size_text(limit)} is too little: {most // MB}MB are taken after window"
            f" {number} of {windows}, by what is kept of all of them: distinct times, names, ranges that stay open"
        )


def check_output(source: Sequence[str], limit: int, cells: int, form: str) -> None:
    """Raise ReportError if a table of so many cells, written in a format, would exceed the limit."""
    needed = _memory("VmRSS") + cells * PER_CELL.get(form, max(PER_CELL.values()))
    if limit and cells > SMALL_TABLE and needed > SPARE * limit:
        raise ReportError(
            f"{', '.join(source)}: --memory-limit {size_text(limit)} is too little to write {cells} cells as {form}:"
            f" {needed // MB}MB are needed; csv takes the least, or choose rows (--top, --filter)"
        )


def _per_row(tables: Collection[PartRequest]) -> int:
    if len(tables) > 1:
        return PER_ROW_OF_MANY
    return PER_ROW[any(rows_of(request.by) == RANGES for request in tables)]


# -- A window with its attribution: a range counts as a call in the window in which it begins


@record
class WindowCapture(AttributedCapture):
    """The attributed capture of one window.

    ``begun`` are the ranges that begin in it; other ranges were open before. ``ranks`` are those of
    the whole report.
    """

    begun: Flags | None = None
    ranks: Ranks | None = None

    @cached_property
    def listed_ranges(self) -> Flags:
        """The ranges that are ops and begin in this window."""
        listed: Flags = (self.op != NONE) & self.counted_ranges
        return listed if self.begun is None else listed & self.begun


UNNAMED_THREADS = "only all of it tells which threads without a name are PyTorch's autograd (--no-adopt adopts none)"


def attribute_window(
    window: Window, attribution_options: AttributionOptions, ranks: Ranks
) -> WindowCapture:
    """Attribute the activities of a window; its ranges are cut to the window."""
    name = window.capture.source[0]
    try:
        attributed = WindowCapture.of(window.capture, replace(attribution_options, is_window=True))
    except TangledError as error:
        raise ReportError(f"{name}: {error}") from error
    except NeedsWholeReportError as error:
        raise WindowsError(name, UNNAMED_THREADS) from error
    attribution = attributed.attribution
    within = replace(attribution, nesting=_within(attribution.nesting, *window.edges))
    return replace(attributed, attribution=within, begun=window.begun, ranks=ranks)


def _within(nesting: Nesting, first: int, last: int) -> Nesting:
    """Cut the nodes to the window; which nodes are open at an instant inside does not change."""
    start, end = (np.clip(c, first, last) for c in (nesting.start, nesting.end))
    return replace(nesting, start=start, end=end)


# -- Tables that windows can make: no row may need the whole report


NEED_WHOLE_REPORT = frozenset(["module", "step"])  # dimensions that need all of a report


def why_not(table: PartRequest) -> str:
    """Return the reason why a table cannot be made of windows, "" if it can."""
    names = () if table.by in VIEWS else dimensions_of(table.by)
    for name in names:
        if name in NEED_WHOLE_REPORT:
            return f"rows by {name} need the whole report at once"
    merged = {*TABLES[rows_of(table.by)].with_merge(WINDOWS), *stored_columns(table.by)}
    lacking = [c for c in table.columns if c not in merged]
    return f"{lacking[0]} needs the whole report at once" if lacking else ""


def windowed_request(request: TableRequest) -> PartRequest:
    """Return what each window is asked for.

    Raises ValueError with a message for the user for a table or a column that needs all of the
    report.
    """
    if not columns_are_chosen(request.by):
        raise ValueError(refusal(f"--by {request.by} needs the whole report at once"))
    if request.metrics:
        raise ValueError(refusal("--metrics needs the whole report at once"))
    for column in request.computed:
        try:
            needed(request.by, [column])
        except ValueError as error:
            raise ValueError(refusal(f"{column} needs the whole report at once")) from error
    table = part_request(request)
    if why := why_not(table):
        raise ValueError(refusal(why))
    return table


def refusal(why: str) -> str:
    """Return the message for a table that cannot be made of windows."""
    return f"larger than --memory-limit, and {why}; without --memory-limit it works"


def windowed_tables(tables: Iterable[PartRequest]) -> tuple[PartRequest, ...]:
    """Return those of some tables that can be made of windows."""
    return tuple(table for table in tables if not why_not(table))
