"""How profile_analyze prints operators: as a table of cells with several lines, as wiki markup, or plain."""

from __future__ import annotations

from itertools import chain

import pandas as pd
from rich.box import ASCII
from rich.console import Console
from rich.table import Table

from bridge.compat.megengine.operators import NONE

BAR = 15  # characters of the longest bar
NAMES = ("operator info", "in_shapes", "out_shapes")  # columns whose lines may be broken
NAME, EDGE = 12, 3  # least width of those; what the box takes of each column
NS = 1_000_000_000
FLO, BYTES = (
    (1000, ("", "K", "M", "G", "T", "P")),
    (1024, ("byte", "KiB", "MiB", "GiB", "TiB", "PiB")),
)


def table(found: pd.DataFrame, side: str, width: int) -> str:
    """Return the operators as a table: a cell has its figures one under another.

    Names and shapes share what figures leave of the width; with less than `NAME` for one the table is wider than that.
    """
    headings, rows = _headings(side), _rows(found)
    widths = _widths(headings, rows, width)
    grid = Table(box=ASCII, show_lines=True)
    for heading in headings:
        grid.add_column(heading, width=widths[heading], overflow="fold")
    for row in rows:
        grid.add_row(*row)
    width = sum(widths.values()) + EDGE * len(headings) + 1
    console = Console(width=width, color_system=None, markup=False, emoji=False, highlight=False)
    with console.capture() as captured:
        console.print(grid)
    return captured.get()


def _widths(headings: list[str], rows: list[list[str]], width: int) -> dict[str, int]:
    """Return how wide each column is: figures whole, names as far as there is room, the short ones first."""
    cells = zip(*(map(str.splitlines, row) for row in rows), strict=True)
    lines = dict(zip(headings, cells, strict=False))
    whole = {
        heading: max(map(len, [heading, *chain(*lines.get(heading, ()))])) for heading in headings
    }
    left = width - 1 - sum(whole[h] for h in headings if h not in NAMES) - EDGE * len(headings)
    for nth, name in enumerate(sorted(NAMES, key=whole.__getitem__)):
        whole[name] = min(whole[name], max(NAME, left // (len(NAMES) - nth)))
        left -= whole[name]
    return whole


def wiki(found: pd.DataFrame, side: str) -> str:
    """Return the operators as Confluence's markup, with bars for time and speeds."""
    headings = [*_headings(side), "time bar", "MFLOPS-bar", "bandwidth bar"]
    bars = zip(*(_bars(found[c]) for c in ("time", "FLOPS", "bandwidth")), strict=True)
    lines = [f"||{'||'.join(headings)}||"]
    for row, ends in zip(_rows(found), bars, strict=True):
        lines.append(f"|{'|'.join(_one_line(cell) for cell in (*row, *ends))}|")
    return "\n".join(lines) + "\n"


def plain(found: pd.DataFrame) -> str:
    """Return the operators alone, a line each, without times: two of these can be compared with diff."""
    columns = (found[c].astype(str) for c in ("type", "name", "in_shapes", "out_shapes"))
    lines = ("\t".join(row).rstrip() for row in zip(*columns, strict=True))
    return "".join(f"{line}\n" for line in lines)


def seconds(ns: float) -> str:
    """Return a time in seconds as profile_analyze writes it."""
    return f"{ns / NS:.3g}" if ns < NS else f"{ns / NS:.3f}"


def amount(value: float, unit: tuple[int, tuple[str, ...]], suffix: str = "") -> str:
    """Return FLO or bytes with a prefix; '-' for what is not known."""
    if value != value or value == NONE:  # noqa: PLR0124 (nan alone is not itself)
        return "-"
    base, prefixes = unit
    place = 0
    while value >= base and place + 1 < len(prefixes):
        value, place = value / base, place + 1
    return f"{value:.2f}{prefixes[place]}{suffix}"


def _headings(side: str) -> list[str]:
    return [
        f"{side} self time", "cumulative", "operator info", "computation", "FLOPS", "memory",
        "bandwidth", "in_shapes", "out_shapes",
    ]  # fmt: skip


def _rows(found: pd.DataFrame) -> list[list[str]]:
    return [
        [
            f"#{place}\n{seconds(row['time'])}\n{100 * row['share']:.1f}%",
            seconds(row["cumulative"]),
            f"{row['type']}\n{row['name'] or row['count']}",
            amount(row["computation"], FLO, "FLO"),
            amount(row["FLOPS"], FLO, "FLOPS"),
            amount(row["memory"], BYTES),
            amount(row["bandwidth"], BYTES, "/s"),
            row["in_shapes"] or "-",
            row["out_shapes"] or "-",
        ]
        for place, row in enumerate(found.to_dict("records"))
    ]


def _bars(column: pd.Series) -> list[str]:
    most = column.max()
    return ["" if not v > 0 else "#" * max(1, round(BAR * v / most)) for v in column.tolist()]


def _one_line(cell: str) -> str:
    """Put a cell on one line that holds none of the markup's own signs."""
    return cell.replace("\n", " ").replace("|", "\\|") or " "
