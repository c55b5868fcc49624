"""The cells in which ``ncu --csv`` writes what NVTX ranges were open: ``1  "domain:name:…"  "domain:name:…"``.

The number is the thread's, as the system numbers it. After the name stand six fields (payload, colour, message, each
with its type), ``none`` where nothing is said. Names may hold colons, and quotes as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from importers.frames import MISSING
from importers.ncu.kernels import DEFAULT_DOMAIN, Open

AFTER = 6  # fields behind the name
NUMBERED = re.compile(r"\s*(\d+)(?::|\s+)?(?=\"|\S)")
BETWEEN = re.compile(r'("\s+")')
INTEGER = re.compile(r"-?\d+")
LARGEST, LONGEST = 2**63, 20  # characters of it
FIRST_THREAD = 1
DIGITS = 18  # so many fit into 64 bits


def stack(cells: Iterable[str]) -> tuple[int, tuple[Open, ...]]:
    """Return the thread of a kernel, 1 where none is said, and its push/pop ranges, outermost first."""
    thread, found = FIRST_THREAD, []
    for cell in cells:
        number, frames = _parted(cell)
        thread = int(number[:DIGITS] or thread)
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
