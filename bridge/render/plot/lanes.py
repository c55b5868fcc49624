"""Streams over time, coloured by op."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from bridge.analyze.plotted import Lanes
from bridge.render.plot import page
from bridge.render.plot.page import INK, NOTHING, REST, color, scale

LOW = 18  # points: a lane with no room for two lines
HEIGHT = 0.8  # of a lane whose stream works all the time
NAMES = 0.28  # of the figure's width
MOST_LINES = 15  # steps; more are marks on the upper edge, for their lines would hide the work
DASHED = (0.0, (4.0, 3.0))
MOST_MARKS = 400  # more would be a bar


def draw(axes: Axes, lanes: Lanes) -> None:
    """Draw a lane per stream: how much of it is filled is how much of the time it works."""
    length = lanes.width_ns * lanes.shares.shape[2]
    by, unit = scale(length)
    edges = np.arange(lanes.shares.shape[2] + 1) * lanes.width_ns / by
    for lane in range(len(lanes.lanes)):
        floor = np.full(len(edges), lane + HEIGHT / 2)
        for nth in range(len(lanes.groups)):
            share = lanes.shares[lane, nth]
            roof = floor - HEIGHT * np.append(share, share[-1:])
            if share.any():
                style = _style(nth, len(lanes.groups))
                axes.fill_between(edges, floor, roof, step="post", linewidth=0, **style)
            floor = roof
    used = lanes.shares.sum(axis=(0, 2)).tolist()
    for nth, name in enumerate(lanes.groups):
        if used[nth]:
            axes.bar(0, 0, label=name, **_style(nth, len(lanes.groups)))
    marked = _steps(axes, lanes.steps / by)
    _label(axes, lanes.lanes)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(max(1, len(lanes.lanes)) - 0.45, -0.55)
    axes.set_xlim(0, max(length / by, 1e-9))
    more = f"; {lanes.left} idler streams not shown" if lanes.left else ""
    page.say_x(axes, f"time ({unit}){marked}{more}")
    page.legend(axes)


def _label(axes: Axes, names: list[str]) -> None:
    """Name the lanes: a line for the device, one for the stream, or one line for both where lanes are low."""
    high = page.row_height(axes, len(names))
    low = high < LOW
    size = min(7, high * (0.85 if low else 0.42))
    parted = (name.rsplit(", stream ", 1) for name in names)
    said = [
        f"{page.fit(axes, device, NAMES / (2 if low else 1), size, 28)}{', ' if low else chr(10)}stream {stream}"
        for device, stream in parted
    ]
    axes.set_yticks(range(len(names)), said, fontsize=size)


def _steps(axes: Axes, began: np.ndarray) -> str:
    """Draw where steps began; return what to say of it."""
    if not len(began):
        return ""
    if len(began) > MOST_MARKS:
        return f"; {len(began):,} steps not shown"
    few = len(began) <= MOST_LINES
    axes.vlines(
        began, 0 if few else 0.96, 1, transform=axes.get_xaxis_transform(), gid="steps",
        colors=INK, linewidth=0.5, linestyles=DASHED if few else "solid",
    )  # fmt: skip
    return "; dashed: steps" if few else "; marks above: steps"


def _style(nth: int, groups: int) -> dict[str, Any]:
    """Return the colours of a group: the last two are other ops and no op."""
    last = {groups - 2: REST, groups - 1: NOTHING}
    return {"facecolor": last[nth]} if nth in last else color(nth)
