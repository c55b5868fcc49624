"""Ops by their time on the GPU, as bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator

from bridge.analyze.plots import Bars, Durations, Lanes
from bridge.render.plot import page
from bridge.render.plot.page import COLORS, INK, NOTHING, REST, color, scale, time

# -- Distributions of durations, and memory over time


CURVE_NAMES = 0.34  # of the figure's width
SHORT = 30  # from the shortest to the longest, of an axis
RIDGE = 0.86  # how much of its row the highest bin of a name takes
SIZES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))
LINES = ("-", "--", ":")


def draw_histogram(axes: Axes, found: Durations) -> None:
    """Draw a row per name: how many of it took how long, each row by its own highest bin."""
    for row in range(len(found.names)):
        own = found.counts[row]
        top = row - RIDGE * own / max(1, own.max(initial=0))
        color = COLORS[row % (len(COLORS) - 1)]
        axes.stairs(top, found.edges_ns, baseline=row, fill=True, facecolor=color)
        axes.axhline(row, color="#bbbbbb", linewidth=0.5)
    of_row = zip(found.names, found.activities, found.total_ns, strict=True)
    size = min(6.5, page.row_height(axes, len(found.names)) * 0.42)
    said = [
        f"{page.fit(axes, name, CURVE_NAMES, size, 34)}\n{n:,} ×, {time(int(ns))} in all"
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


def draw_memory(axes: Axes, found: Mapping[str, Any]) -> None:
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


# -- Streams over time, coloured by op


LOW = 18  # points: a lane with no room for two lines
HEIGHT = 0.8  # of a lane whose stream works all the time
LANE_NAMES = 0.28  # of the figure's width
MOST_LINES = 15  # steps; more are marks on the upper edge, for their lines would hide the work
DASHED = (0.0, (4.0, 3.0))
MOST_MARKS = 400  # more would be a bar


def draw_lanes(axes: Axes, lanes: Lanes) -> None:
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
    used = lanes.group_shares
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
        f"{page.fit(axes, device, LANE_NAMES / (2 if low else 1), size, 28)}{', ' if low else chr(10)}stream {stream}"
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


# -- What ops reach against what they compute and move


TERA, GIGA = 1e12, 1e9
MARKERS = "os^Dv"
LEVELS = {"DRAM": "o", "L2": "D", "L1": "^"}  # of memory: the shape of what was measured there
DASHES = ("-", "--", "-.", ":")
LARGEST = 260.0  # points squared, of the op with most time


def draw_roofline(
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
    styles = [_roofline_style(ops.index(op), top) for op in found["op"]]
    for n in range(len(spent) - 1, -1, -1):  # the largest last, but small ones stay to be seen
        style = {**styles[n], "alpha": 0.8, "linewidths": 0.5, "edgecolors": INK}
        style |= {"marker": LEVELS[levels[n]]} if levels else {}
        axes.scatter(intensity[n], reached[n], s=size[n], zorder=3 + n / len(spent), **style)
    for n, op in enumerate(ops[:top]):
        style = _roofline_style(n, top) | ({"marker": "s"} if levels else {})
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


def _roofline_style(nth: int, top: int) -> dict[str, Any]:
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


# -- Ops by their time on the GPU, as bars


BAR_NAMES = 0.3  # of the figure's width


def draw_bars(axes: Axes, bars: Bars, parts: Sequence[str]) -> None:
    """Draw a bar per op, the largest on top; ``parts`` name the columns. What has no op is grey."""
    totals = bars.total_ns
    whole, (by, unit) = bars.whole_ns, scale(int(totals.max(initial=0)))
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
    names = [page.fit(axes, name, BAR_NAMES, size) for name in bars.names]
    axes.set_yticks(place, names, fontsize=size)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlim(0, max(float(left.max(initial=0)), 1e-9))
    page.say_x(axes, f"GPU time of the op itself ({unit})")
    page.legend(axes)
