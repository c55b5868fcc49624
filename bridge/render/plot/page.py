"""A figure's style, and how it becomes a file."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bridge.render.table import clean

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


def save(drawn: Figure, path: Path, suffix: str) -> None:
    """Write a figure in the format of a suffix of `FORMATS`; call it where `figure` is still open.

    A `ValueError` says that the figure is too small for what it shows.
    """
    try:
        drawn.savefig(path, format=suffix[1:], dpi=DPI, metadata=UNDATED[suffix])
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
