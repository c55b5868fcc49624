"""Distributions of durations, and memory over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator

from bridge.analyze.plotted import Durations
from bridge.render.plot import page
from bridge.render.plot.page import COLORS, scale, time

NAMES = 0.34  # of the figure's width
SHORT = 30  # from the shortest to the longest, of an axis
RIDGE = 0.86  # how much of its row the highest bin of a name takes
SIZES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))
LINES = ("-", "--", ":")


def histogram(axes: Axes, found: Durations) -> None:
    """Draw a row per name: how many of it took how long, each row by its own highest bin."""
    for row in range(len(found.names)):
        own = found.counts[row]
        top = row - RIDGE * own / max(1, own.max(initial=0))
        color = COLORS[row % (len(COLORS) - 1)]
        axes.stairs(top, found.edges_ns, baseline=row, fill=True, facecolor=color)
        axes.axhline(row, color="#bbbbbb", linewidth=0.5)
    of_row = zip(found.names, found.counts.sum(axis=1), found.total_ns, strict=True)
    size = min(6.5, page.row_height(axes, len(found.names)) * 0.42)
    said = [
        f"{page.fit(axes, name, NAMES, size, 34)}\n{n:,} ×, {time(int(ns))} in all"
        for name, n, ns in of_row
    ]
    axes.set_yticks(np.arange(len(said)) - 0.4, said, fontsize=size)
    axes.tick_params(axis="y", length=0)
    axes.set_xscale("log")
    axes.set_xlim(found.edges_ns[0], found.edges_ns[-1])
    if found.edges_ns[-1] < SHORT * found.edges_ns[0]:  # powers of ten alone would be one or none
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(lambda ns, _: time(ns))
    axes.xaxis.set_minor_formatter("")
    axes.spines["left"].set_visible(False)
    axes.set_ylim(max(1, len(found.names)) - 0.85, -0.95)
    page.say_x(axes, "duration; how many took so long, each row by its own highest bin")


def memory(axes: Axes, found: Mapping[str, Any]) -> None:
    """Draw a line per counter, each sample holding until the next."""
    most = max((max(one["value"]) for one in found["series"]), default=0)
    of_time, unit = scale(found["length_ns"])
    of_size, size = next((one for one in SIZES if most >= one[0]), SIZES[-1])
    for nth, one in enumerate(found["series"]):
        turn, at = divmod(nth, len(COLORS) - 1)
        axes.step(
            np.append(one["time"], found["length_ns"]) / of_time,
            np.append(one["value"], one["value"][-1:]) / of_size,
            where="post", color=COLORS[at], linestyle=LINES[turn % len(LINES)], linewidth=1.2,
            label=str(one["name"]),
        )  # fmt: skip
    axes.set_xlim(0, max(found["length_ns"] / of_time, 1e-9))
    axes.set_ylim(0, max(1e-9, most / of_size * 1.06))
    page.say_x(axes, f"time ({unit})")
    axes.set_ylabel(f"memory ({size})")
    axes.grid(axis="y", color="#e5e5e5", linewidth=0.5)
    page.legend(axes)
