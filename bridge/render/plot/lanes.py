"""Streams over time, coloured by op."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from bridge.analyze.plotted import Lanes
from bridge.render.plot.page import INK, NOTHING, REST, color, scale, short

HEIGHT = 0.8  # of a lane whose stream works all the time
MOST_STEPS = 60  # more lines would be a hatch


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
            axes.bar(0, 0, label=short(name, 30), **_style(nth, len(lanes.groups)))
    _steps(axes, lanes.steps / by)
    axes.set_yticks(range(len(lanes.lanes)), _labels(lanes.lanes))
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(max(1, len(lanes.lanes)) - 0.45, -0.55)
    axes.set_xlim(0, max(length / by, 1e-9))
    more = f"; {lanes.left} idler streams not shown" if lanes.left else ""
    axes.set_xlabel(f"time ({unit}){more}")
    if any(used):
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=4, borderaxespad=0.2)


def _labels(names: list[str]) -> list[str]:
    """Return a line for the device, one for the stream."""
    parted = (name.rsplit(", stream ", 1) for name in names)
    return [f"{short(device, 28)}\nstream {stream}" for device, stream in parted]


def _steps(axes: Axes, began: np.ndarray) -> None:
    if len(began) <= MOST_STEPS:
        for at in began.tolist():
            axes.axvline(at, color=INK, linewidth=0.5, linestyle=(0, (4, 3)))


def _style(nth: int, groups: int) -> dict[str, Any]:
    """Return the colours of a group: the last two are other ops and no op."""
    last = {groups - 2: REST, groups - 1: NOTHING}
    return {"facecolor": last[nth]} if nth in last else color(nth)
