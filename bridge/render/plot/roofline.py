"""What ops reach against what they compute and move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from bridge.render.plot import room
from bridge.render.plot.page import COLORS, INK

TERA, GIGA = 1e12, 1e9
MARKERS = "os^Dv"
LARGEST = 260.0  # points squared, of the op with most time


def draw(
    axes: Axes,
    found: Mapping[str, Any],
    names: Sequence[str],
    top: int,
    peaks: tuple[float | None, float | None] = (None, None),
) -> None:
    """Draw a point per op, as large as its time, the ``top`` with most time named.

    ``peaks`` are the device's TFLOP/s and GB/s, None where the roof is not known.
    """
    flops, moved, spent = (np.array(found[c], np.float64) for c in ("flops", "bytes", "gpu_ns"))
    intensity, reached = flops / moved, flops / spent * 1e9 / TERA
    axes.set_xscale("log")
    axes.set_yscale("log")
    size = np.maximum(10, LARGEST * spent / spent.max())
    for n in range(len(spent) - 1, -1, -1):  # the largest last, but small ones stay to be seen
        style = {**_style(n, top), "alpha": 0.8, "linewidths": 0.5, "edgecolors": INK}
        axes.scatter(intensity[n], reached[n], s=size[n], zorder=3 + n / len(spent), **style)
    for n in range(min(top, len(spent))):
        axes.scatter([], [], s=18, label=names[found["op"][n]], **_style(n, top))
    _roofs(axes, intensity, peaks)
    axes.margins(0.1)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_minor_formatter("")
    axes.grid(color="#e5e5e5", linewidth=0.5)
    axes.set_axisbelow(True)
    room.say_x(axes, "intensity (FLOP per byte); area: GPU time")
    axes.set_ylabel("reached (TFLOP/s)")
    room.legend(axes)


def _style(nth: int, top: int) -> dict[str, Any]:
    """Return colour and shape of an op; those that are not named are all alike."""
    turn, at = divmod(nth, len(COLORS) - 1)
    if nth >= top:
        return {"color": "#BBBBBB", "marker": "o"}
    return {"color": COLORS[at], "marker": MARKERS[turn % len(MARKERS)]}


def _roofs(axes: Axes, intensity: np.ndarray, peaks: tuple[float | None, float | None]) -> None:
    """Draw the device's limits, as far as they are known."""
    compute, bandwidth = peaks
    low, high = intensity.min() / 4, intensity.max() * 4
    if compute and bandwidth:
        high = max(high, compute * TERA / (bandwidth * GIGA) * 4)
    reach = np.geomspace(low, high, 200)
    memory = reach * bandwidth * GIGA / TERA if bandwidth else np.full(200, np.inf)
    roof = np.minimum(memory, compute or np.inf)
    if np.isfinite(roof).all():
        said = [f"{compute:g} TFLOP/s"] if compute else []
        said += [f"{bandwidth:g} GB/s"] if bandwidth else []
        axes.plot(reach, roof, color=INK, linewidth=1, label=", ".join(said))
