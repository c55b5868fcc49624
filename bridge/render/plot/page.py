"""The style of figures, their texts and legends, and how they are saved."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from textwrap import fill
from typing import Any, BinaryIO

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.legend import Legend
from matplotlib.patches import Patch

from bridge.knowledge.amounts import LARGE_UNITS
from bridge.render.table import clean

# -- Texts and legends that fit a figure of any size


POINTS = 72  # an inch
MAX_WIDTH = 0.97  # of a legend, as a share of the figure: formats set letters slightly differently
# Maximum height of a legend as a share of the figure, and letters of its names; the first that fits is used.
ATTEMPTS = (
    *((0.24, letters) for letters in (34, 26, 20)),
    *((0.34, letters) for letters in (26, 20, 15)),
    *((0.45, letters) for letters in (20, 15, 11)),
)
MAX_COLUMNS = 6
LETTERS = 10.5  # of an axis label per inch of the figure


def fit(axes: Axes, name: str, share: float, size: float, max_letters: int = 40) -> str:
    """Return a name of at most ``max_letters`` letters that fits a share of the figure's width.

    ``size`` is the size of the font in points.
    """
    figure = _figure(axes)
    max_inches, font = share * figure.get_figwidth(), FontProperties(size=size)
    renderer = _renderer(figure)
    for letters in range(min(max_letters, len(name)), 3, -1):
        text = short(name, letters)
        if (
            renderer.get_text_width_height_descent(text, font, ismath=False)[0] / figure.dpi
            <= max_inches
        ):
            return text
    return short(name, 3)


def row_height(axes: Axes, rows: int) -> float:
    """Return the approximate height of each of ``rows`` rows in points."""
    return _figure(axes).get_figheight() * POINTS * 0.62 / max(1, rows)


def label_x(axes: Axes, text: str) -> None:
    """Label the x axis, in as many lines as the figure's width requires."""
    axes.set_xlabel(fill(text, max(12, int(_figure(axes).get_figwidth() * LETTERS))))


def legend(axes: Axes) -> None:
    """Draw the legend above the axes, which keep their width and lose height to it.

    Names are shortened before the legend gets higher; entries without room are counted instead.
    """
    handles, labels = axes.get_legend_handles_labels()
    if not handles:
        return
    figure = _figure(axes)
    count = len(handles)
    drawn_legend = _fitting_legend(figure, handles, labels)
    while drawn_legend is None:  # the figure is too small, or there are too many names
        count -= 1
        drawn_legend = _fitting_legend(
            figure, handles[:count], labels[:count], len(handles) - count
        )
    height = drawn_legend.get_window_extent(_renderer(figure)).height / figure.bbox.height
    engine: Any = figure.get_layout_engine()
    engine.set(rect=(0, 0, 1, 1 - height - 0.04 / figure.get_figheight()))


def _fitting_legend(
    figure: Figure, handles: Sequence[Any], labels: Sequence[str], hidden: int = 0
) -> Legend | None:
    """Add the first legend of `ATTEMPTS` that fits; return None if none with names does."""
    more = [f"+ {hidden} more"] if hidden else []
    handles = [*handles, *(Patch(visible=False) for _ in more)]
    for max_height, letters in ATTEMPTS:
        lines = [*(short(label, letters) for label in labels), *more]
        for columns in range(min(MAX_COLUMNS, len(lines)), 0, -1):
            candidate = _add_legend(figure, handles, lines, columns)
            extent = candidate.get_window_extent(_renderer(figure))
            is_low_enough = extent.height <= figure.bbox.height * max_height
            if is_low_enough and extent.width <= figure.bbox.width * MAX_WIDTH:
                return candidate
            candidate.remove()
            if not is_low_enough:
                break  # fewer columns are higher still
    return None if labels else _add_legend(figure, handles, more, 1)


def _add_legend(
    figure: Figure, handles: Sequence[Any], labels: Sequence[str], columns: int
) -> Legend:
    result = figure.legend(
        handles, labels, loc="upper left", bbox_to_anchor=(0, 1), ncols=columns,
        borderaxespad=0.2, columnspacing=1.2, handletextpad=0.5, labelspacing=0.3,
    )  # fmt: skip
    result.set_in_layout(False)
    return result


def _figure(axes: Axes) -> Figure:
    figure: Any = axes.figure
    assert isinstance(figure, Figure)
    return figure


def _renderer(figure: Figure) -> Any:
    """Return the renderer that measures texts, the same for every format."""
    canvas: Any = figure.canvas
    if not isinstance(canvas, FigureCanvasAgg):
        canvas = FigureCanvasAgg(figure)
    return canvas.get_renderer()


# -- Style and files


# Okabe and Ito's colours, which suit all kinds of colour vision; yellow is too light for lines.
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
REST, NOTHING, INK = "#999999", "#DDDDDD", "#222222"
HATCHES = ("", "////", "....")  # after the last colour, colours are repeated with hatches
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
    "text.parse_math": False,  # dollars in names are no formulas
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
}
UNDATED: dict[str, dict[str, Any]] = {
    ".svg": {"Date": None, "Creator": None},
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
TOO_SMALL = "{:g} × {:g} inches are too small for this picture; give a larger --width or --height"


@contextmanager
def figure(width: float, height: float) -> Iterator[tuple[Figure, Axes]]:
    """Yield a figure of a size in inches with one pair of axes."""
    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()  # the same input gives the same bytes, whatever the user's style
        mpl.rcParams.update(STYLE)
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        # A figure whose layout fails is not drawn.
        warnings.filterwarnings("error", "constrained_layout not applied")
        drawn = Figure(figsize=(width, height), layout="constrained")
        yield drawn, drawn.add_subplot()


def save(drawn: Figure, file: BinaryIO, suffix: str) -> None:
    """Write a figure to a file, in the format of a suffix of `FORMATS`, within `figure`.

    Raises ValueError if the figure is too small for its content.
    """
    try:
        drawn.savefig(file, format=suffix[1:], dpi=DPI, metadata=UNDATED[suffix])
    except UserWarning as error:
        raise ValueError(TOO_SMALL.format(*drawn.get_size_inches())) from error


def svg(drawn: Figure) -> str:
    """Return a figure as SVG, within `figure`. Raises ValueError as `save` does."""
    file = BytesIO()
    save(drawn, file, ".svg")
    return file.getvalue().decode()


def color(index: int) -> dict[str, Any]:
    """Return colour and hatch of a group."""
    turn, color_index = divmod(index, len(COLORS))
    return {"facecolor": COLORS[color_index], "hatch": HATCHES[turn % len(HATCHES)]}


def scale(ns: float) -> tuple[float, str]:
    """Return the divisor and the unit for times of this size."""
    return next((unit for unit in LARGE_UNITS if ns >= unit[0]), (1, "ns"))


def time(ns: float) -> str:
    """Return a time as text with three significant digits."""
    by, unit = scale(ns)
    return f"{ns / by:.3g} {unit}"


def short(name: str, max_length: int = 40) -> str:
    """Return a name of at most ``max_length`` letters, with its middle left out, on one line."""
    name = clean(name)
    if len(name) <= max_length:
        return name
    head = (max_length - 1) * 2 // 3
    return f"{name[:head]}…{name[len(name) - (max_length - 1 - head) :]}"
