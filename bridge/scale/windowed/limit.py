"""How much memory a report takes, and in how many windows it fits into less."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from bridge.analyze.breakdown import RANGES
from bridge.analyze.tables import rows_of
from bridge.scale.asked import Asked
from bridge.scale.windowed.errors import WindowsError
from importers.errors import ReportError
from importers.formats import SQLITE
from importers.nsys import windows

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


def needed(path: Path, tables: Collection[Asked]) -> int:
    """Return about how many bytes it takes to make some tables of a report at once, but for those of the process itself."""
    if not is_export(path):
        return BYTES_PER_BYTE * path.stat().st_size
    many = windows.rows(path)
    return (many.launches + many.activities + many.annotations) * _per_row(tables)


def count(path: Path, tables: Collection[Asked], limit: int) -> int:
    """Return how many windows a report takes; WindowsError where no number is enough, with the least memory that is."""
    rows, base = needed(path, tables), BASE + MANY * (len(tables) > 1)
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
