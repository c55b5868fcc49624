"""Tables for people: in the terminal and in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from rich.cells import cell_len, set_cell_size

from bridge.analyze.core.catalog import Column
from bridge.analyze.core.catalog.column import COUNT, ID, PATH, STEP
from bridge.analyze.core.table import Table
from bridge.importers.records import record
from bridge.knowledge.abbreviations import abbreviated
from bridge.knowledge.kernels.readable import checksum_of
from bridge.render import units
from bridge.render.names import fitted
from bridge.render.table_columns import displayed, writer
from bridge.render.wrapping import wrap

# -- Tables in the terminal and in Markdown


GAP = 2  # blanks between two columns
NAME_ROOM = 24  # width of a name before optional columns get room
MAX_NAME = 90
MIN_NAME = 12  # a name is not cut shorter while figures other than the main one are shown
CUT = 3  # a name is never cut shorter; rows of many names may be wider than the terminal
BAR, BAR_WIDTH = "bar", 10
HEAD_STYLE, BAR_STYLE, PLAIN_STYLE = "\x1b[1m", "\x1b[36m", "\x1b[0m"  # bold, cyan
WIDER = "wider window"
CHECKSUM_NOTE = "{}: checksum of arguments that do not fit ({})"
# Markdown's special characters.
MARKS = re.compile(r"[\\`*|<\[\]~&]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])")
AT = "@&#8203;"  # with a zero-width space, so that GitHub does not notify a user of that name
EIGHTHS = ("", *"▏▎▍▌▋▊▉")
ONE_CELL_EACH = re.compile(
    "[ -~µ×→…−█▏▎▍▌▋▊▉]*"
)  # nearly all texts: the others are measured one by one


@record
class Look:
    """How a table is displayed.

    Attributes:
        width: the maximum width in cells.
        bars: whether bars are drawn.
        color: whether the text is coloured.
        unit: the unit of times; None: a unit that suits each value.
        remedies: how to see the columns that are left out.
        whole_names: the option that shows whole names of kernels.

    """

    width: int
    bars: bool = False
    color: bool = False
    unit: str | None = None
    remedies: tuple[str, ...] = (WIDER,)
    whole_names: str = "--kernel-names demangled"


def for_terminal(by: str, table: Table, look: Look, *, every: bool = False) -> str:
    """Return a table as text that fits the terminal: figures are kept whole, names are shortened.

    ``by`` and ``every`` are those of `displayed`. Lines below the table state how many columns are
    left out, and what a checksum in a name of a kernel is.
    """
    cells = _cells(displayed(by, table, every=every), table, look)
    whole = {column: _width(column, texts) for column, texts in cells.items()}
    columns = _fitting_columns(whole, look.width)
    hidden = sum(column not in columns and column.name != BAR for column in cells)
    widths = _widths({column: whole[column] for column in columns}, look.width)
    for column in columns:
        if column.is_name:
            cells[column] = fitted(cells[column], widths[column], keep_end=column.unit == PATH)
    head = _line([_aligned(column, column.heading, widths[column]) for column in columns])
    rule = "─" * (sum(widths[column] + GAP for column in columns) - GAP)
    rows = zip(
        *(_styled(column, cells[column], widths[column], look) for column in columns), strict=True
    )
    lines = [_paint(head, HEAD_STYLE, look), rule, *map(_line, rows)]
    names = [name for column in columns if column.is_name for name in cells[column]]
    notes = [_columns_note(hidden, look), _checksum_note(names, look)]
    lines += [line for note in notes for line in wrap(note, look.width)]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _columns_note(hidden: int, look: Look) -> str:
    """Return how many columns are left out and how to see them, '' if all are there."""
    if not hidden:
        return ""
    *others, last = look.remedies
    how = f"{', '.join(others)} or {last}" if others else last
    return f"{hidden} more column{'s' if hidden > 1 else ''}: {how}"


def _checksum_note(names: Iterable[str], look: Look) -> str:
    """Return what the checksum in a displayed name is, '' if there is none."""
    checksum = next((text for name in names if (text := checksum_of(name))), "")
    return CHECKSUM_NOTE.format(checksum, look.whole_names) if checksum else ""


def _line(cells: Iterable[str]) -> str:
    return (" " * GAP).join(cells)


def _styled(column: Column, texts: list[str], width: int, look: Look) -> list[str]:
    if _width(column, texts) > width or not ONE_CELL_EACH.fullmatch("".join(texts)):
        aligned = [_aligned(column, text, width) for text in texts]
    elif column.is_name:
        aligned = [text.ljust(width) for text in texts]
    else:
        aligned = [text.rjust(width) for text in texts]
    return [_paint(text, BAR_STYLE, look) for text in aligned] if column.name == BAR else aligned


def _aligned(column: Column, text: str, width: int) -> str:
    """Return a text in ``width`` cells: names on the left, figures on the right."""
    length = cell_len(text)
    if length > width:
        text, length = set_cell_size(text, width - 1) + "…", width
    blanks = " " * (width - length)
    return text + blanks if column.is_name or column.name == BAR else blanks + text


def _paint(text: str, style: str, look: Look) -> str:
    return f"{style}{text}{PLAIN_STYLE}" if look.color else text


def _cells(columns: tuple[Column, ...], table: Table, look: Look) -> dict[Column, list[str]]:
    cells = {}
    for column in columns:
        values = table[column.name].tolist()
        write = writer(column, look.unit)
        cells[column] = [clean(write(value)) for value in values]
        if column.is_name:
            cells[column] = abbreviated(cells[column])
        if column.bar and look.bars:
            largest = max((*values, 1))
            cells[Column(BAR, "", COUNT, optional=True)] = [
                _bar(value / largest) for value in values
            ]
    return cells


def _bar(share: float) -> str:
    """Return a bar, to an eighth of a cell; every share above 0 has at least one eighth."""
    eighths = max(round(share * BAR_WIDTH * 8), int(share > 0))
    bar: str = "█" * (eighths // 8) + EIGHTHS[eighths % 8]
    return bar


def as_markdown(by: str, table: Table, unit: str | None = None, *, every: bool = False) -> str:
    """Return the table as GitHub's Markdown, with all displayed columns."""
    columns = displayed(by, table, every=every)
    rule = ["---" if column.is_name else "---:" for column in columns]
    writers = [writer(column, unit) for column in columns]
    cells = [
        [escaped(write(v)) for v in table[column.name].tolist()]
        for column, write in zip(columns, writers, strict=True)
    ]
    rows = [
        [escaped(column.heading) for column in columns],
        rule,
        *map(list, zip(*cells, strict=True)),
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


Widths = dict[Column, int]  # of whole texts, in cells


def _widths(whole: Widths, width: int) -> Widths:
    """Return the width of each column; names share the room that other columns leave."""
    widths = whole.copy()
    names = sorted((column for column in widths if column.is_name), key=widths.__getitem__)
    left = width - sum(widths[column] + GAP for column in widths if not column.is_name)
    for index, name in enumerate(names):
        share = left // (len(names) - index) - GAP
        widths[name] = min(widths[name], max(share, CUT))
        left -= widths[name] + GAP
    return widths


def _fitting_columns(whole: Widths, width: int) -> list[Column]:
    """Return the columns that fit; optional ones only while names keep enough room."""
    columns = _required_columns(whole, width)
    # The bar first, then optional figures in the order of columns.
    for extra in sorted(
        (column for column in whole if column.optional), key=lambda column: column.name != BAR
    ):
        required = sum(_at_most(NAME_ROOM, column, whole) + GAP for column in (*columns, extra))
        if required > width and extra.name == BAR:
            continue
        if required > width:
            break
        columns.append(extra)
    return [column for column in whole if column in columns]


def _required_columns(whole: Widths, width: int) -> list[Column]:
    """Return the required columns, without the last figures if names would be too short."""
    columns = [column for column in whole if not column.optional]
    figures = [column for column in columns if not column.is_name and column.unit not in (ID, STEP)]
    main_figure = next(
        (column for column in figures if column.bar), figures[0] if figures else None
    )
    left = width + GAP - sum(_at_most(MIN_NAME, column, whole) + GAP for column in columns)
    for figure in reversed([column for column in figures if column is not main_figure]):
        if left < 0:
            columns.remove(figure)
            left += whole[figure] + GAP
    return columns


def _at_most(most: int, column: Column, whole: Widths) -> int:
    """Return the width of a column; a name takes no more than ``most``."""
    return min(most, whole[column]) if column.is_name else whole[column]


def _width(column: Column, texts: list[str]) -> int:
    if column.name == BAR:
        return BAR_WIDTH
    cells = len if ONE_CELL_EACH.fullmatch("".join(texts)) else cell_len
    return min(MAX_NAME, max(len(column.heading), *map(cells, texts), 1))


def clean(text: str) -> str:
    """Return a text without line breaks: control characters are replaced by blanks."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def escaped(text: str) -> str:
    """Return a text that GitHub's Markdown shows literally: no tag, link, emphasis or mention."""
    return MARKS.sub(r"\\\g<0>", clean(text)).replace("@", AT)


# -- The accounting line under every table


def accounting_line(totals: Mapping[str, Any], ops: int) -> str:
    """Return ``10 000 activities, 1.234 s: 99.2 % in 41 ops; 0.8 % not attributed: no range 61 (0.7 %)``.

    Percentages are of the time of all activities on the GPU.
    """
    if not totals["activities"]:
        return "no work on a GPU"
    time = totals["gpu_ns"]
    noun = "activity" if totals["activities"] == 1 else "activities"
    head = f"{units.count(totals['activities'])} {noun}, {units.time(time)}"
    inside = f"{_percent(totals['attributed_ns'], time)} in {units.count(ops)} ops"
    if "adopted" in totals:
        inside += f" ({_percent(totals['adopted']['gpu_ns'], time)} adopted from other threads)"
    rest = totals["unattributed"]
    if not rest:
        return f"{head}: {inside}; all attributed"
    reasons = ", ".join(
        f"{reason.replace('_', ' ')} {units.count(part['activities'])} ({_percent(part['gpu_ns'], time)})"
        for reason, part in rest.items()
    )
    return f"{head}: {inside}; {_percent(time - totals['attributed_ns'], time)} not attributed: {reasons}"


WITH_GRAPHS_BELOW = (
    "op",
    "op-kernel",
    "kernel",
)  # tables whose rows show no graphs, or only those in ops


def graphs_line(by: str, graphs: Mapping[str, Any], whole_ns: int) -> str:
    """Return where the CUDA graphs that were recorded as a whole went, "" if a table has none to explain.

    ``whole_ns`` is the time of all activities on the GPU.
    """
    if by not in WITH_GRAPHS_BELOW or not graphs["activities"]:
        return ""
    time, rest = graphs["gpu_ns"], graphs["unattributed"]
    places = {"in ops": graphs["attributed_ns"]}
    places |= {reason.replace("_", " "): part["gpu_ns"] for reason, part in rest.items()}
    shares = ", ".join(f"{place} {_percent(ns, time)}" for place, ns in places.items() if ns)
    view = "op,kind" if by != "op" and graphs["attributed_ns"] else "kind"
    return (
        f"{units.count(graphs['activities'])} CUDA graphs recorded as a whole take {units.time(time)}"
        f" ({_percent(time, whole_ns)} of GPU time): {shares} → bridge report REPORT --by {view}"
    )


def _percent(part: int, whole: int) -> str:
    return units.percent(part / whole if whole else 0.0)
