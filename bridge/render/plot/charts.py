"""Charts of ops, drawn by matplotlib: durations, memory, streams over time, rooflines, bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator

from bridge.analyze.draw.plots import Bars, Durations, Lanes
from bridge.render.plot import page
from bridge.render.plot.page import COLORS, INK, NOTHING, REST, color, scale, time

# -- Distributions of durations, and memory over time


CURVE_NAMES = 0.34  # of the figure's width
SHORT = 30  # ratio of the ends of an axis below which it gets more ticks
RIDGE = 0.86  # height of the highest bin, as a share of its row
SIZES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))
LINES = ("-", "--", ":")


def draw_histogram(axes: Axes, durations: Durations) -> None:
    """Draw the distribution of durations of each name in a row, scaled to its own highest bin."""
    for row in range(len(durations.names)):
        counts = durations.counts[row]
        top = row - RIDGE * counts / max(1, counts.max(initial=0))
        color = COLORS[row % (len(COLORS) - 1)]
        axes.stairs(top, durations.edges_ns, baseline=row, fill=True, facecolor=color)
        axes.axhline(row, color="#bbbbbb", linewidth=0.5)
    rows = zip(durations.names, durations.activities, durations.total_ns, strict=True)
    size = min(6.5, page.row_height(axes, len(durations.names)) * 0.42)
    lines = [
        f"{page.fit(axes, name, share=CURVE_NAMES, size=size, max_letters=34)}\n{n:,} ×, {time(int(ns))} in all"
        for name, n, ns in rows
    ]
    axes.set_yticks(np.arange(len(lines)) - 0.4, lines, fontsize=size)
    axes.tick_params(axis="y", length=0)
    axes.set_xscale("log")
    axes.set_xlim(durations.edges_ns[0], durations.edges_ns[-1])
    if (
        durations.edges_ns[-1] < SHORT * durations.edges_ns[0]
    ):  # powers of ten alone would be one or none
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(lambda ns, _: time(ns))
    axes.xaxis.set_minor_formatter("")
    axes.spines["left"].set_visible(False)
    axes.set_ylim(max(1, len(durations.names)) - 0.85, -0.95)
    page.label_x(axes, "duration; how many took so long, each row by its own highest bin")


def draw_memory(axes: Axes, result: Mapping[str, Any]) -> None:
    """Draw a line per counter; a sample holds until the next."""
    largest = max((max(series["value"]) for series in result["series"]), default=0)
    time_scale, unit = scale(result["length_ns"])
    size_scale, size = next((entry for entry in SIZES if largest >= entry[0]), SIZES[-1])
    for index, series in enumerate(result["series"]):
        turn, at = divmod(index, len(COLORS) - 1)
        axes.step(
            np.append(series["time"], result["length_ns"]) / time_scale,
            np.append(series["value"], series["value"][-1:]) / size_scale,
            where="post", color=COLORS[at], linestyle=LINES[turn % len(LINES)], linewidth=1.2,
            label=str(series["name"]),
        )  # fmt: skip
    axes.set_xlim(0, max(result["length_ns"] / time_scale, 1e-9))
    axes.set_ylim(0, max(1e-9, largest / size_scale * 1.06))
    page.label_x(axes, f"time ({unit})")
    axes.set_ylabel(f"memory ({size})")
    axes.grid(axis="y", color="#e5e5e5", linewidth=0.5)
    page.legend(axes)


# -- Streams over time, coloured by op


LOW = 18  # points: lower lanes have no room for two lines
HEIGHT = 0.8  # filled part of a lane whose stream works all the time
LANE_NAMES = 0.28  # of the figure's width
MAX_LINES = 15  # more steps are marks on the upper edge, as lines would hide the work
DASHED = (0.0, (4.0, 3.0))
MAX_MARKS = 400  # more marks could not be distinguished


def draw_lanes(axes: Axes, lanes: Lanes) -> None:
    """Draw a lane per stream; the filled height is the share of the time in which it works."""
    length = lanes.width_ns * lanes.shares.shape[2]
    by, unit = scale(length)
    edges = np.arange(lanes.shares.shape[2] + 1) * lanes.width_ns / by
    for lane in range(len(lanes.lanes)):
        floor = np.full(len(edges), lane + HEIGHT / 2)
        for group in range(len(lanes.groups)):
            share = lanes.shares[lane, group]
            roof = floor - HEIGHT * np.append(share, share[-1:])
            if share.any():
                style = _style(group, len(lanes.groups))
                axes.fill_between(edges, floor, roof, step="post", linewidth=0, **style)
            floor = roof
    used = lanes.group_shares
    for group, name in enumerate(lanes.groups):
        if used[group]:
            axes.bar(0, 0, label=name, **_style(group, len(lanes.groups)))
    marked = _steps(axes, lanes.steps / by)
    _label(axes, lanes.lanes)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(max(1, len(lanes.lanes)) - 0.45, -0.55)
    axes.set_xlim(0, max(length / by, 1e-9))
    more = f"; {lanes.left} idler streams not shown" if lanes.left else ""
    page.label_x(axes, f"time ({unit}){marked}{more}")
    page.legend(axes)


def _label(axes: Axes, names: list[str]) -> None:
    """Label the lanes with device and stream, on two lines, or on one if lanes are low."""
    height = page.row_height(axes, len(names))
    is_low = height < LOW
    size = min(7, height * (0.85 if is_low else 0.42))
    name_parts = (name.rsplit(", stream ", 1) for name in names)
    lines = [
        f"{page.fit(axes, device, share=LANE_NAMES / (2 if is_low else 1), size=size, max_letters=28)}"
        f"{', ' if is_low else chr(10)}stream {stream}"
        for device, stream in name_parts
    ]
    axes.set_yticks(range(len(names)), lines, fontsize=size)


def _steps(axes: Axes, starts: np.ndarray) -> str:
    """Draw the starts of steps; return the text for the axis label."""
    if not len(starts):
        return ""
    if len(starts) > MAX_MARKS:
        return f"; {len(starts):,} steps not shown"
    are_lines = len(starts) <= MAX_LINES
    axes.vlines(
        starts, 0 if are_lines else 0.96, 1, transform=axes.get_xaxis_transform(), gid="steps",
        colors=INK, linewidth=0.5, linestyles=DASHED if are_lines else "solid",
    )  # fmt: skip
    return "; dashed: steps" if are_lines else "; marks above: steps"


def _style(index: int, groups: int) -> dict[str, Any]:
    """Return the colour of a group; the last two groups are other ops and no op."""
    last = {groups - 2: REST, groups - 1: NOTHING}
    return {"facecolor": last[index]} if index in last else color(index)


# -- Rooflines


TERA, GIGA = 1e12, 1e9
MARKERS = "os^Dv"
LEVELS = {"DRAM": "o", "L2": "D", "L1": "^"}  # levels of memory and the shapes of their points
DASHES = ("-", "--", "-.", ":")
LARGEST = 260.0  # area in square points of the op with most time


def draw_roofline(
    axes: Axes,
    result: Mapping[str, Any],
    names: Sequence[str],
    top: int,
) -> None:
    """Draw a point per op with its GPU time as area, and the limits of the devices.

    The ``top`` ops with the most time are named. For measured data, a point is a kernel at a level
    of memory: its colour is the kernel, its shape the level.
    """
    flops, moved, spent = (np.array(result[c], np.float64) for c in ("flops", "bytes", "gpu_ns"))
    intensity, reached = flops / moved, flops / spent * 1e9 / TERA
    axes.set_xscale("log")
    axes.set_yscale("log")
    size = np.maximum(10, LARGEST * spent / spent.max())
    ops = list(dict.fromkeys(result["op"]))
    levels = result.get("level")
    styles = [_roofline_style(ops.index(op), top) for op in result["op"]]
    for n in range(len(spent) - 1, -1, -1):  # the largest last, but small ones stay to be seen
        style = {**styles[n], "alpha": 0.8, "linewidths": 0.5, "edgecolors": INK}
        style |= {"marker": LEVELS[levels[n]]} if levels else {}
        axes.scatter(intensity[n], reached[n], s=size[n], zorder=3 + n / len(spent), **style)
    for n, op in enumerate(ops[:top]):
        style = _roofline_style(n, top) | ({"marker": "s"} if levels else {})
        axes.scatter([], [], s=18, label=names[op], **style)
    for level in dict.fromkeys(levels or ()):
        axes.scatter([], [], s=18, label=level, color=INK, marker=LEVELS[level])
    _roofs(axes, intensity, result["roofs"])
    axes.margins(0.1)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_minor_formatter("")
    axes.grid(color="#e5e5e5", linewidth=0.5)
    axes.set_axisbelow(True)
    page.label_x(axes, "intensity (FLOP per byte); area: GPU time")
    axes.set_ylabel("reached (TFLOP/s)")
    page.legend(axes)


def _roofline_style(index: int, top: int) -> dict[str, Any]:
    """Return colour and shape of an op; all unnamed ops have the same."""
    turn, color_index = divmod(index, len(COLORS) - 1)
    if index >= top:
        return {"color": "#BBBBBB", "marker": "o"}
    return {"color": COLORS[color_index], "marker": MARKERS[turn % len(MARKERS)]}


def _digits(value: float) -> str:
    """Return a limit with four significant digits."""
    return f"{float(f'{value:.4g}'):g}"


def _roofs(axes: Axes, intensity: np.ndarray, roofs: Sequence[Mapping[str, Any]]) -> None:
    """Draw the known limits of the devices, each device with its own dashes."""
    low, high = intensity.min() / 4, intensity.max() * 4
    ridges = [
        roof_spec["tflops"] * TERA / (roof_spec["gb_per_s"] * GIGA)
        for roof_spec in roofs
        if roof_spec["gb_per_s"]
    ]
    high = max(high, *(4 * ridge for ridge in ridges)) if ridges else high
    reach = np.geomspace(low, high, 200)
    for roof_spec, dashes in zip(roofs, cycle(DASHES), strict=False):
        speed, compute = roof_spec["gb_per_s"], roof_spec["tflops"]
        memory = reach * speed * GIGA / TERA if speed else np.full(200, np.inf)
        roof = np.minimum(memory, compute or np.inf)
        lines = [f"{_digits(compute)} TFLOP/s"] if compute else []
        lines += [f"{_digits(speed)} GB/s"] if speed else []
        label = f"{roof_spec['name']}: {', '.join(lines)}".removeprefix(": ")
        if lines:
            axes.plot(reach, roof, color=INK, linewidth=1, linestyle=dashes, label=label)


# -- Bars: ops by GPU time


BAR_NAMES = 0.3  # of the figure's width


def draw_bars(axes: Axes, bars: Bars, parts: Sequence[str]) -> None:
    """Draw a bar per op, the largest on top; bars without an op are grey.

    ``parts`` are the names of the parts of a bar.
    """
    totals = bars.total_ns
    whole, (by, unit) = bars.whole_ns, scale(int(totals.max(initial=0)))
    place, left = np.arange(len(bars.names)), np.zeros(len(bars.names))
    no_op = place >= len(place) - bars.reasons
    for index, part in enumerate(parts):
        values = bars.parts[:, index] / by
        label = part if values[~no_op].any() else "_nolegend_"
        colors = [REST if grey else COLORS[index] for grey in no_op]
        drawn = axes.barh(place, values, left=left, height=0.72, color=colors, linewidth=0)
        if label == part:
            axes.barh(0, 0, color=COLORS[index], label=part)
        drawn.set_label("_nolegend_")
        left += values
    if bars.reasons:
        axes.barh(0, 0, color=REST, label="no op (reason)")
    size = min(7, page.row_height(axes, len(place)) * 0.85)
    for row, total in zip(place.tolist(), totals.tolist(), strict=True):
        text = f"{time(total)} · {total / max(1, whole):.1%}"
        # Not clipped, so that the layout leaves room for the text beside the longest bar.
        axes.annotate(
            text, (total / by, row), (3, 0), textcoords="offset points", va="center",
            fontsize=size * 0.93, annotation_clip=False,
        )  # fmt: skip
    names = [page.fit(axes, name, BAR_NAMES, size) for name in bars.names]
    axes.set_yticks(place, names, fontsize=size)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlim(0, max(float(left.max(initial=0)), 1e-9))
    page.label_x(axes, f"GPU time of the op itself ({unit})")
    page.legend(axes)
