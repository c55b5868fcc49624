"""Tables for people: in the terminal, and in Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from bridge.render import table_columns, units
from bridge.render.column_specs import SHOWN, Shown
from bridge.render.headings import given, known

# -- Tables in a notebook: HTML that brings its own few styles, right in light and dark


STYLE = """
.nsight-bridge td, .nsight-bridge th { padding: 1px 8px; text-align: right; white-space: nowrap }
.nsight-bridge .name { text-align: left; max-width: 40em; overflow: hidden; text-overflow: ellipsis }
.nsight-bridge td.bar { background: linear-gradient(#56b4e966, #56b4e966) no-repeat left / var(--share) 100% }
"""


def as_html(by: str, table: pd.DataFrame, account: str, *, left_out: int = 0) -> str:
    """Return a table with bars behind its main times, and the accounting line under it."""
    shown = table_columns.shown(by, table)
    head = "".join(f"<th{_class(s)}>{escape(s.heading)}</th>" for s in shown)
    cells = [_notebook_cells(s, table[s.column].tolist()) for s in shown]
    rows = "".join(f"<tr>{''.join(row)}</tr>" for row in zip(*cells, strict=True))
    more = f"<p>… and {left_out} more rows</p>" if left_out else ""
    return (
        f'<div class="nsight-bridge"><style>{STYLE}</style>'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        f"{more}<p>{escape(account)}</p></div>"
    )


def _notebook_cells(s: Shown, values: list[float]) -> list[str]:
    most = max((*values, 1)) if s.bar else 1
    return [
        f"<td{_class(s)}{_share(value / most) if s.bar else ''}>{escape(s.text(value))}</td>"
        for value in values
    ]


def _class(s: Shown) -> str:
    return ' class="name"' if s.is_name else ' class="bar"' if s.bar else ""


def _share(share: float) -> str:
    return f' style="--share: {100 * share:.1f}%"'


# -- Tables for people: in the terminal, and in Markdown


GAP = 2  # blanks between two columns: one of padding, one of the box
NAME_ROOM = 24  # a name needs this much before less important columns get any
NAME_MOST = 90
LEAST = 8  # a name is not cut shorter as long as there are other figures than the main one
CUT = 3  # nor than this ever: rows of many names are longer than a narrow terminal
BAR, BAR_WIDTH, BAR_STYLE = "bar", 10, "cyan"
LEFT_OUT = "{} more column{}: in a wider terminal, or with --format csv\n"
MARKS = re.compile(r"[\\`*|<\[\]~&]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])")  # of Markdown
AT = "@&#8203;"  # a blank of no width after it, or GitHub takes what follows for somebody's name
EIGHTHS = ("", *"▏▎▍▌▋▊▉")


@dataclass(frozen=True)
class Look:
    """How a table is shown: in at most ``width`` cells, with bars and colours or without, times in a unit."""

    width: int
    bars: bool = False
    color: bool = False
    unit: str | None = None


def for_terminal(by: str, table: pd.DataFrame, look: Look, *, told: bool = True) -> str:
    """Return the table as it fits the terminal: figures whole, names shortened; unless ``told``, no word on what is left out."""
    cells = _cells(by, table, look)
    shown = _fitting(cells, look.width)
    expected = cells if by not in SHOWN else [s for s in cells if not s.extra]
    left = sum(s not in shown for s in expected)
    fits = _widths(shown, cells, look.width)
    grid = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, GAP - 1, 0, 0), show_edge=False)
    for s in shown:
        fit = fits[s]
        side = "left" if s.is_name or s.column == BAR else "right"
        if s.is_path:
            cells[s] = [_end(cell, fit) for cell in cells[s]]
        style = BAR_STYLE if s.column == BAR else ""
        grid.add_column(
            s.heading, justify=side, width=fit, no_wrap=True, overflow="ellipsis", style=style  # type: ignore[arg-type]
        )  # fmt: skip
    for row in zip(*(cells[s] for s in shown), strict=True):
        grid.add_row(*row)
    width = max(look.width, sum(fits.values()) + GAP * len(fits))
    more = LEFT_OUT.format(left, "s" if left > 1 else "") if left and told else ""
    return _printed(grid, replace(look, width=width)) + more


def _printed(grid: Table, look: Look) -> str:
    console = Console(
        width=look.width,
        force_terminal=look.color,
        color_system="standard" if look.color else None,
        no_color=not look.color,  # or $NO_COLOR and $FORCE_COLOR would be read once more
        markup=False,
        emoji=False,
        highlight=False,
    )
    with console.capture() as captured:
        console.print(grid)
    lines = (line.rstrip() for line in captured.get().splitlines())
    return "".join(f"{line}\n" for line in lines)


def _cells(by: str, table: pd.DataFrame, look: Look) -> dict[Shown, list[str]]:
    cells = {}
    for s in table_columns.shown(by, table):
        values = table[s.column].tolist()
        text = _in_unit(s, look.unit)
        cells[s] = [clean(text(value)) for value in values]
        if s.bar and look.bars:
            most = max((*values, 1))
            cells[Shown(BAR, "", _bar, extra=True)] = [_bar(value / most) for value in values]
    return cells


def _bar(share: float) -> str:
    """Return a bar to the eighth of a cell; what is more than nothing has at least one of these."""
    eighths = max(round(share * BAR_WIDTH * 8), int(share > 0))
    bar: str = "█" * (eighths // 8) + EIGHTHS[eighths % 8]
    return bar


def _in_unit(shown: Shown, unit: str | None) -> Callable[[Any], str]:
    """Return how a column is written, its times in a unit if one is asked for; what is not known stays empty."""
    if unit is None:
        return shown.text
    if isinstance(shown.text, partial) and shown.text.args == (units.time,):
        return known(partial(units.time_in, unit))
    return partial(units.time_in, unit) if shown.text is units.time else shown.text


def as_markdown(by: str, table: pd.DataFrame, unit: str | None = None) -> str:
    """Return the table as Markdown (GitHub's), all columns that have a heading."""
    shown = table_columns.shown(by, table)
    rule = ["---" if s.is_name else "---:" for s in shown]
    texts = [_in_unit(s, unit) for s in shown]
    cells = [
        [escaped(text(v)) for v in table[s.column].tolist()]
        for s, text in zip(shown, texts, strict=True)
    ]
    rows = [[escaped(s.heading) for s in shown], rule, *map(list, zip(*cells, strict=True))]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _widths(shown: list[Shown], cells: dict[Shown, list[str]], width: int) -> dict[Shown, int]:
    """Return the width of each column: names share what figures leave, and what shorter ones do not need."""
    widths = {s: _width(s, cells) for s in shown}
    names = sorted((s for s in shown if s.is_name), key=lambda s: widths[s])
    left = width - sum(widths[s] + GAP for s in shown if not s.is_name)
    for nth, name in enumerate(names):
        share = left // (len(names) - nth) - GAP
        widths[name] = min(widths[name], max(share, CUT))
        left -= widths[name] + GAP
    return widths


def _fitting(cells: dict[Shown, list[str]], width: int) -> list[Shown]:
    """Return the columns that fit, the extra ones only while names keep enough room."""
    shown = _whole(cells, width)
    # A bar before figures that few ask for; else in the order of columns.
    for extra in sorted((s for s in cells if s.extra), key=lambda s: s.column != BAR):
        taken = sum(_needed(s, cells) + GAP for s in (*shown, extra))
        if taken > width and extra.column == BAR:
            continue
        if taken > width:
            break
        shown.append(extra)
    return [s for s in cells if s in shown]


def _whole(cells: dict[Shown, list[str]], width: int) -> list[Shown]:
    """Return the columns that are not extra; the last figures give way where names would be too short."""
    shown = [s for s in cells if not s.extra]
    figures = [s for s in shown if not s.is_name and s.text is not given]
    main = next((s for s in figures if s.bar), figures[0] if figures else None)
    left = width + GAP - sum(_least(s, cells) + GAP for s in shown)
    for figure in reversed([s for s in figures if s is not main]):
        if left < 0:
            shown.remove(figure)
            left += _least(figure, cells) + GAP
    return shown


def _least(shown: Shown, cells: dict[Shown, list[str]]) -> int:
    return min(LEAST, _width(shown, cells)) if shown.is_name else _width(shown, cells)


def _needed(shown: Shown, cells: dict[Shown, list[str]]) -> int:
    return min(NAME_ROOM, _width(shown, cells)) if shown.is_name else _width(shown, cells)


def _width(shown: Shown, cells: dict[Shown, list[str]]) -> int:
    if shown.column == BAR:
        return BAR_WIDTH
    return min(NAME_MOST, max(len(shown.heading), *map(cell_len, cells[shown]), 1))


def _end(path: str, room: int) -> str:
    """Return what fits of a path: the end tells more than the beginning, which many share."""
    if cell_len(path) <= room:
        return path
    left = path[1 - room :]
    while cell_len(left) >= room:  # some characters are two cells wide
        left = left[1:]
    return f"…{left}"


def clean(text: str) -> str:
    """Return a text that stays on its line: control characters give way to blanks."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def escaped(text: str) -> str:
    """Return a text that Markdown (GitHub's) shows as it is: no tag, no link, no emphasis, nobody notified."""
    return MARKS.sub(r"\\\g<0>", clean(text)).replace("@", AT)
