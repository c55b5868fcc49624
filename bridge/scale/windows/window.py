"""A window of a report with its attribution: all work and host time of it count, a range as a call where it begins."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from bridge.analyze.ranks.members import Ranks
from bridge.analyze.tables.table import ROWS, Options, made_of, rows_of, wanted
from bridge.analyze.tables.views import ACTIVITIES, CALLS, RANGES, VIEWS, dimensions_of
from bridge.join.arrays import NONE, Flags
from bridge.join.attributed import Attributed
from bridge.join.choices import Choices
from bridge.join.nesting import Nesting, TangledError
from bridge.scale.requests import CORES, KEPT, Asked, asked, needed
from importers.errors import ReportError
from importers.formats import SQLITE
from importers.nsys import windows
from importers.nsys.windows import Window

# -- What is not told exactly of windows, and is refused


class WindowsError(ReportError):
    """The report does not fit into the memory at once, and windows of it do not tell this; said in a line."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"{name}: larger than --memory, and {what}; without --memory it works")


# -- How much memory a report takes, and in how many windows it fits into less


UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
BINARY = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
AMOUNT = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)
MB = 10**6
# As measured (docs/memory-limit.md): the process with its libraries, what a row of a long table takes of the memory
# of its window, and an API call of that of the look over all of them.
BASE = 170 * MB
MANY = 260 * MB  # besides, for several tables
PER_CALL = 26
PER_ROW = {False: 200, True: 340}  # of a table of activities or calls; of ranges
PER_ROW_OF_MANY = 500  # of several tables, as a store keeps them
LEAST = 40 * MB  # for a window
MOST_WINDOWS = 1_000
SPARE = 1.1  # times the limit that a process may come to take: rows are counted beforehand, memory is not
STATUS = Path("/proc/self/status")  # proc(5)
BYTES_PER_BYTE = 8  # of a file that is no export: what it may take when it is read


def amount(text: str) -> int:
    """Read an amount of memory, ``2GB``, ``512MiB``, ``1.5G``, in bytes; ValueError for what is none."""
    found = AMOUNT.fullmatch(text.strip())
    if found and (found[2] or not found[3]):
        of = BINARY if found[3] else UNITS
        if bytes_ := int(float(found[1]) * of[found[2].upper()]):
            return bytes_
    raise ValueError(f"{text!r} is no amount of memory: write 2GB, 512MiB or 1.5G")


def is_export(path: Path) -> bool:
    """Tell whether a file is an SQLite database, which windows are read from."""
    with path.open("rb") as file:
        return file.read(len(SQLITE)) == SQLITE


def memory_needed(path: Path, tables: Collection[Asked]) -> int:
    """Return about how many bytes it takes to make some tables of a report at once, but for those of the process itself."""
    if not is_export(path):
        return BYTES_PER_BYTE * path.stat().st_size
    many = windows.rows(path)
    return (many.launches + many.activities + many.annotations) * _per_row(tables)


def count(path: Path, tables: Collection[Asked], limit: int) -> int:
    """Return how many windows a report takes; WindowsError where no number is enough, with the least memory that is."""
    rows, base = memory_needed(path, tables), BASE + MANY * (len(tables) > 1)
    if base + rows <= limit:
        return 1
    if not is_export(path):
        raise WindowsError(path.name, "windows are read of exports of Nsight Systems alone")
    fixed = base + PER_CALL * windows.rows(path).launches
    room = limit - fixed
    if room < max(LEAST, rows // MOST_WINDOWS):
        least = -(-(fixed + max(LEAST, rows // MOST_WINDOWS)) // MB)
        raise ReportError(
            f"{path.name}: --memory {limit // MB}MB is too little: {least}MB is the least"
        )
    return -(-rows // room)


def taken() -> int:
    """Return the most memory that this process ever had, in bytes; 0 where the system does not say."""
    try:
        found = re.search(r"^VmHWM:\s+(\d+) kB$", STATUS.read_text(encoding="ascii"), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) << 10 if found else 0


def hold(name: str, limit: int, most: int, window: str) -> None:
    """Refuse to go on if ``most``, the memory taken so far, is over the limit."""
    if limit and most > SPARE * limit:
        raise ReportError(
            f"{name}: --memory {limit // MB}MB is too little: {most // MB}MB are taken after window {window}, by what"
            " is kept of all of them: distinct times, names, ranges that stay open"
        )


def _per_row(tables: Collection[Asked]) -> int:
    if len(tables) > 1:
        return PER_ROW_OF_MANY
    return PER_ROW[any(rows_of(one.by) == RANGES for one in tables)]


# -- A window of a report with its attribution: all work and host time of it count, a range as a call where it begins


@dataclass(frozen=True)
class Part(Attributed):
    """``begun`` are the ranges that begin in it; others are open in it, or were where a graph was captured.

    ``ranks`` are those of the whole report.
    """

    begun: Flags | None = None
    ranks: Ranks | None = None

    @cached_property
    def listed_ranges(self) -> Flags:
        """Which ranges are ops, and counted: here."""
        listed: Flags = (self.op != NONE) & self.counted_ranges
        return listed if self.begun is None else listed & self.begun


def part(window: Window, choices: Choices, ranks: Ranks) -> Part:
    """Attribute what is in a window; its ranges then have the time alone that they have in it."""
    try:
        joined = Part.of(window.report, choices)
    except TangledError as error:
        raise ReportError(f"{window.report.source[0]}: {error}") from error
    found = joined.attribution
    within = replace(found, nesting=_within(found.nesting, *window.edges))
    return replace(joined, attribution=within, begun=window.begun, ranks=ranks)


def _within(nesting: Nesting, first: int, last: int) -> Nesting:
    """Cut what is outside off every node; what is open at any instant inside stays as it is."""
    start, end = (np.clip(c, first, last) for c in (nesting.start, nesting.end))
    return replace(nesting, start=start, end=end)


# -- Which tables are made of windows: those of which no row takes a look at all that ran


WHOLE = frozenset(["module", "step"])  # dimensions that are found out over all of a report
COLUMNS = {
    RANGES: {*KEPT[RANGES], *CORES},
    CALLS: {*KEPT[CALLS]},
    ACTIVITIES: {*KEPT[ACTIVITIES], *CORES},
}


def why_not(one: Asked) -> str:
    """Return what of a table takes a look at the whole report, '' for nothing."""
    names = () if one.by in VIEWS else dimensions_of(one.by)
    for name in names:
        if name in WHOLE:
            return f"rows by {name} take a look at all of it"
    lacking = [c for c in one.columns if c not in COLUMNS[rows_of(one.by)]]
    return f"{lacking[0]} takes a look at all of it" if lacking else ""


def checked_request(by: str, options: Options) -> Asked:
    """Return what is asked for; ValueError, in words for the user, for what there is not and what is not made of windows."""
    if by in VIEWS and by not in ROWS:
        raise ValueError(refusal(f"--by {by} takes a look at all of it"))
    if options.metrics:
        raise ValueError(refusal("--metrics takes a look at all of it"))
    for column in made_of(by, wanted(by, options)):
        try:
            needed(rows_of(by), [column])
        except ValueError as error:
            raise ValueError(refusal(f"{column} takes a look at all of it")) from error
    found = asked(by, options)
    if why := why_not(found):
        raise ValueError(refusal(why))
    return found


def refusal(why: str) -> str:
    """Return the words in which something is refused."""
    return f"larger than --memory, and {why}; without --memory it works"


def windowed_table(tables: Iterable[Asked]) -> tuple[Asked, ...]:
    """Return those of some tables that are made of windows."""
    return tuple(one for one in tables if not why_not(one))
