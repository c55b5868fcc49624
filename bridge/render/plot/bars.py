"""Ops by their time on the GPU, as bars."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from bridge.analyze.plotted import Bars
from bridge.render.plot import page
from bridge.render.plot.page import COLORS, REST, scale, time

NAMES = 0.3  # of the figure's width


def draw(axes: Axes, bars: Bars, parts: Sequence[str]) -> None:
    """Draw a bar per op, the largest on top; ``parts`` name the columns. What has no op is grey."""
    totals = bars.parts.sum(axis=1)
    whole, (by, unit) = int(totals.sum()), scale(int(totals.max(initial=0)))
    place, left = np.arange(len(bars.names)), np.zeros(len(bars.names))
    no_op = place >= len(place) - bars.reasons
    for nth, part in enumerate(parts):
        values = bars.parts[:, nth] / by
        label = part if values[~no_op].any() else "_nolegend_"
        colors = [REST if grey else COLORS[nth] for grey in no_op]
        drawn = axes.barh(place, values, left=left, height=0.72, color=colors, linewidth=0)
        if label == part:
            axes.barh(0, 0, color=COLORS[nth], label=part)
        drawn.set_label("_nolegend_")
        left += values
    if bars.reasons:
        axes.barh(0, 0, color=REST, label="no op (reason)")
    size = min(7, page.row_height(axes, len(place)) * 0.85)
    for at, total in zip(place.tolist(), totals.tolist(), strict=True):
        said = f"{time(total)} · {total / max(1, whole):.1%}"
        # Not clipped, so the layout leaves room for it beside the longest bar.
        axes.annotate(
            said, (total / by, at), (3, 0), textcoords="offset points", va="center",
            fontsize=size * 0.93, annotation_clip=False,
        )  # fmt: skip
    names = [page.fit(axes, name, NAMES, size) for name in bars.names]
    axes.set_yticks(place, names, fontsize=size)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlim(0, max(float(left.max(initial=0)), 1e-9))
    page.say_x(axes, f"GPU time of the op itself ({unit})")
    page.legend(axes)
