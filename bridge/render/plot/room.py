"""How text and legends keep to a figure of any size: measured, shortened, wrapped, above the axes."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.legend import Legend
from matplotlib.patches import Patch

from bridge.render.plot.page import short

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
