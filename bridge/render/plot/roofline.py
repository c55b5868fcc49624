"""What ops reach against what they compute and move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from bridge.render.plot import page
from bridge.render.plot.page import COLORS, INK

TERA, GIGA = 1e12, 1e9
MARKERS = "os^Dv"
LEVELS = {"DRAM": "o", "L2": "D", "L1": "^"}  # of memory: the shape of what was measured there
DASHES = ("-", "--", "-.", ":")
LARGEST = 260.0  # points squared, of the op with most time


def draw(
    axes: Axes,
    found: Mapping[str, Any],
    names: Sequence[str],
    top: int,
) -> None:
    """Draw a point per op, as large as its time, the ``top`` with most time named, and what the devices can do.

    Of what was measured, one per kernel and level of memory: the colour tells the kernel, the shape the level.
    """
    flops, moved, spent = (np.array(found[c], np.float64) for c in ("flops", "bytes", "gpu_ns"))
    intensity, reached = flops / moved, flops / spent * 1e9 / TERA
    axes.set_xscale("log")
    axes.set_yscale("log")
    size = np.maximum(10, LARGEST * spent / spent.max())
    ops, levels = list(dict.fromkeys(found["op"])), found.get("level")
    styles = [_style(ops.index(op), top) for op in found["op"]]
    for n in range(len(spent) - 1, -1, -1):  # the largest last, but small ones stay to be seen
        style = {**styles[n], "alpha": 0.8, "linewidths": 0.5, "edgecolors": INK}
        style |= {"marker": LEVELS[levels[n]]} if levels else {}
        axes.scatter(intensity[n], reached[n], s=size[n], zorder=3 + n / len(spent), **style)
    for n, op in enumerate(ops[:top]):
        style = _style(n, top) | ({"marker": "s"} if levels else {})
        axes.scatter([], [], s=18, label=names[op], **style)
    for level in dict.fromkeys(levels or ()):
        axes.scatter([], [], s=18, label=level, color=INK, marker=LEVELS[level])
    _roofs(axes, intensity, found["roofs"])
    axes.margins(0.1)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_minor_formatter("")
    axes.grid(color="#e5e5e5", linewidth=0.5)
    axes.set_axisbelow(True)
    page.say_x(axes, "intensity (FLOP per byte); area: GPU time")
    axes.set_ylabel("reached (TFLOP/s)")
    page.legend(axes)


def _style(nth: int, top: int) -> dict[str, Any]:
    """Return colour and shape of an op; those that are not named are all alike."""
    turn, at = divmod(nth, len(COLORS) - 1)
    if nth >= top:
        return {"color": "#BBBBBB", "marker": "o"}
    return {"color": COLORS[at], "marker": MARKERS[turn % len(MARKERS)]}


def _digits(value: float) -> str:
    """Write a limit with four digits that tell."""
    return f"{float(f'{value:.4g}'):g}"


def _roofs(axes: Axes, intensity: np.ndarray, roofs: Sequence[Mapping[str, Any]]) -> None:
    """Draw the devices' limits, as far as they are known: a line each, told apart by dashes."""
    low, high = intensity.min() / 4, intensity.max() * 4
    ridges = [one["tflops"] * TERA / (one["gb_per_s"] * GIGA) for one in roofs if one["gb_per_s"]]
    high = max(high, *(4 * ridge for ridge in ridges)) if ridges else high
    reach = np.geomspace(low, high, 200)
    for one, dashes in zip(roofs, cycle(DASHES), strict=False):
        speed, compute = one["gb_per_s"], one["tflops"]
        memory = reach * speed * GIGA / TERA if speed else np.full(200, np.inf)
        roof = np.minimum(memory, compute or np.inf)
        said = [f"{_digits(compute)} TFLOP/s"] if compute else []
        said += [f"{_digits(speed)} GB/s"] if speed else []
        label = f"{one['name']}: {', '.join(said)}".removeprefix(": ")
        if said:
            axes.plot(reach, roof, color=INK, linewidth=1, linestyle=dashes, label=label)
