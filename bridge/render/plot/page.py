"""A figure's style, and how it becomes a file."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from textwrap import fill
from typing import Any, BinaryIO

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.legend import Legend
from matplotlib.patches import Patch

from bridge.render.table import clean

# -- How text and legends keep to a figure of any size: measured, shortened, wrapped, above the axes


POINTS = 72  # an inch
WIDE = 0.97  # of the figure, that a legend takes at most: formats set letters a little differently
# How much of the figure's height a legend may take, with names of how many letters: the first that fits.
TRIED = (
    *((0.24, letters) for letters in (34, 26, 20)),
    *((0.34, letters) for letters in (26, 20, 15)),
    *((0.45, letters) for letters in (20, 15, 11)),
)
MOST_COLUMNS = 6
LETTERS = 10.5  # of an axis' label, for an inch of the figure


def fit(axes: Axes, name: str, share: float, size: float, most: int = 40) -> str:
    """Return a name of at most ``most`` letters, shortened to a share of the figure's width at a size in points."""
    figure = _figure(axes)
    room, font = share * figure.get_figwidth(), FontProperties(size=size)
    renderer = _renderer(figure)
    for letters in range(min(most, len(name)), 3, -1):
        text = short(name, letters)
        if renderer.get_text_width_height_descent(text, font, ismath=False)[0] / figure.dpi <= room:
            return text
    return short(name, 3)


def row_height(axes: Axes, rows: int) -> float:
    """Return about how many points each of so many rows is high."""
    return _figure(axes).get_figheight() * POINTS * 0.62 / max(1, rows)


def say_x(axes: Axes, said: str) -> None:
    """Label the axis below, in as many lines as the figure's width asks for."""
    axes.set_xlabel(fill(said, max(12, int(_figure(axes).get_figwidth() * LETTERS))))


def legend(axes: Axes) -> None:
    """Say above the axes what has a label; the axes keep their width, and give the height it takes.

    Names are shortened before the legend grows high; what still finds no place is counted instead.
    """
    handles, labels = axes.get_legend_handles_labels()
    if not handles:
        return
    figure = _figure(axes)
    shown = len(handles)
    made = _tried(figure, handles, labels)
    while made is None:  # so small a figure, or so many names
        shown -= 1
        made = _tried(figure, handles[:shown], labels[:shown], len(handles) - shown)
    high = made.get_window_extent(_renderer(figure)).height / figure.bbox.height
    engine: Any = figure.get_layout_engine()
    engine.set(rect=(0, 0, 1, 1 - high - 0.04 / figure.get_figheight()))


def _tried(
    figure: Figure, handles: Sequence[Any], labels: Sequence[str], left: int = 0
) -> Legend | None:
    """Add the first legend of `TRIED` that fits, or return None; with no names left, the count alone."""
    more = [f"+ {left} more"] if left else []
    handles = [*handles, *(Patch(visible=False) for _ in more)]
    for high, letters in TRIED:
        said = [*(short(label, letters) for label in labels), *more]
        for columns in range(min(MOST_COLUMNS, len(said)), 0, -1):
            made = _made(figure, handles, said, columns)
            taken = made.get_window_extent(_renderer(figure))
            low = taken.height <= figure.bbox.height * high
            if low and taken.width <= figure.bbox.width * WIDE:
                return made
            made.remove()
            if not low:
                break  # fewer columns are higher still
    return None if labels else _made(figure, handles, more, 1)


def _made(figure: Figure, handles: Sequence[Any], labels: Sequence[str], columns: int) -> Legend:
    made = figure.legend(
        handles, labels, loc="upper left", bbox_to_anchor=(0, 1), ncols=columns,
        borderaxespad=0.2, columnspacing=1.2, handletextpad=0.5, labelspacing=0.3,
    )  # fmt: skip
    made.set_in_layout(False)
    return made


def _figure(axes: Axes) -> Figure:
    figure: Any = axes.figure
    assert isinstance(figure, Figure)
    return figure


def _renderer(figure: Figure) -> Any:
    """Return what measures: the same for every format."""
    canvas: Any = figure.canvas
    if not isinstance(canvas, FigureCanvasAgg):
        canvas = FigureCanvasAgg(figure)
    return canvas.get_renderer()


# -- A figure's style, and how it becomes a file


# Okabe and Ito's colours, which people with any colour vision can tell apart; yellow is too light for lines.
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
REST, NOTHING, INK = "#999999", "#DDDDDD", "#222222"
HATCHES = ("", "////", "....")  # past the last colour they come again, hatched
FORMATS = (".svg", ".png", ".pdf")
DPI = 200
STYLE: Any = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.linewidth": 0.6,
    "axes.edgecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.4,
    "hatch.color": "white",
    "legend.frameon": False,
    "legend.fontsize": 7,
    "legend.handlelength": 1.2,
    "pdf.fonttype": 42,  # letters stay letters
    "svg.hashsalt": "nsight-bridge",
    "text.parse_math": False,  # a dollar in a name is one
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
}
UNDATED: dict[str, dict[str, Any]] = {
    ".svg": {"Date": None, "Creator": None},
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
TOO_SMALL = "{:g} × {:g} inches are too small for this picture; give a larger --width or --height"
UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1, "ns"))


@contextmanager
def figure(width: float, height: float) -> Iterator[tuple[Figure, Axes]]:
    """Yield a figure of so many inches with one pair of axes."""
    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()  # not the reader's own style: the same input gives the same bytes
        mpl.rcParams.update(STYLE)
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        # What cannot be laid out would be drawn as rubbish.
        warnings.filterwarnings("error", "constrained_layout not applied")
        drawn = Figure(figsize=(width, height), layout="constrained")
        yield drawn, drawn.add_subplot()


def save(drawn: Figure, file: BinaryIO, suffix: str) -> None:
    """Write a figure into a file, in the format of a suffix of `FORMATS`; call it where `figure` is still open.

    A `ValueError` says that the figure is too small for what it shows.
    """
    try:
        drawn.savefig(file, format=suffix[1:], dpi=DPI, metadata=UNDATED[suffix])
    except UserWarning as error:
        raise ValueError(TOO_SMALL.format(*drawn.get_size_inches())) from error


def color(nth: int) -> dict[str, Any]:
    """Return colour and hatch of the nth group."""
    turn, at = divmod(nth, len(COLORS))
    return {"facecolor": COLORS[at], "hatch": HATCHES[turn % len(HATCHES)]}


def scale(ns: float) -> tuple[float, str]:
    """Return by what to divide times so large, and the unit they then have."""
    return next((unit for unit in UNITS if ns >= unit[0]), UNITS[-1])


def time(ns: float) -> str:
    """Return a time as text, three digits of it."""
    by, unit = scale(ns)
    return f"{ns / by:.3g} {unit}"


def short(name: str, most: int = 40) -> str:
    """Return a name that fits beside a bar: its middle is left out where it is longer, and what no SVG may hold."""
    name = clean(name)
    if len(name) <= most:
        return name
    head = (most - 1) * 2 // 3
    return f"{name[:head]}…{name[len(name) - (most - 1 - head) :]}"
