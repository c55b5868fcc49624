"""``memory_timeline.svg``: what was used over time by category, and the same as PyTorch's ``export_memory_timeline`` writes it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape

from bridge.analyze.memory.stacked import Stack, Stacked
from bridge.render import units
from bridge.render.axes import HEAD, LEFT, RIGHT, TEXTS, TOP, WIDTH, clean, frame, opening, rounded

AREA, BELOW = 420, 60  # heights: of the areas, of the axis
HEADROOM = 16  # a part of the height stays free for what is said of the peak
STRIPS = 200  # places over which a pointer tells what is held there
COLORS = {
    "parameter": "#3b6fb6", "optimizer state": "#e0a526", "input": "#222222", "temporary": "#a463c9",
    "activation": "#d9534f", "gradient": "#3f9b5a", "autograd detail": "#6ec5c8", "unknown": "#a8a8a8",
}  # fmt: skip
FROM_BELOW = (
    "parameter", "optimizer state", "gradient", "input", "activation", "autograd detail", "temporary", "unknown",
)  # fmt: skip
STYLE = ".k{stroke:#111;stroke-dasharray:4 3}.p{fill:#111;font-weight:bold}.v{fill:none;stroke:#555;stroke-dasharray:2 2}.h rect{fill:#000;opacity:0}.h rect:hover{opacity:.08}"
IN_TORCH = (  # the columns of PyTorch's file after the first, which is 0
    "parameter", "optimizer state", "input", "temporary", "activation", "gradient", "autograd detail", "unknown",
)  # fmt: skip
NS = 1_000


def as_svg(found: Stacked) -> str:
    """Return the drawing."""
    each = TOP + AREA + BELOW
    height = HEAD + each * max(1, len(found.panels))
    more = f"; {found.left} more processes, devices and kinds left out" if found.left else ""
    title = f"Memory by category of {', '.join(map(clean, found.source))}{more}"
    pieces = [opening(height, TEXTS + STYLE, title)]
    for nth, panel in enumerate(found.panels):
        pieces += _panel(panel, found.categories, HEAD - 10 + nth * each + TOP)
    return "".join([*pieces, "</svg>\n"])


def as_torch(found: Stacked) -> str:
    """Return the timeline of the first panel as PyTorch writes it: times in µs, and the bytes of nine columns at each."""
    [panel] = found.panels[:1]
    order = [found.categories.index(name) for name in IN_TORCH]
    times: list[int] = []
    sizes: list[list[int]] = []
    for time, level in zip(panel.time.tolist(), panel.level[:, order].tolist(), strict=True):
        micros = (time + found.epoch_ns) // NS
        if times and times[-1] == micros:
            sizes[-1] = [0, *level]
        else:
            times.append(micros)
            sizes.append([0, *level])
    return json.dumps([times, sizes])


def _panel(panel: Stack, categories: tuple[str, ...], top: int) -> Iterator[str]:
    place = _Place(panel, top)
    yield f'<text x="{LEFT}" y="{top - 8}">{escape(panel.title)}: used, by category</text>'
    yield from frame(place.span, place.most, (top, AREA, top + AREA))
    order = [name for name in FROM_BELOW if panel.level[:, categories.index(name)].any()]
    below = panel.level[:, 0] * 0
    for name in order:
        above = below + panel.level[:, categories.index(name)]
        yield _area(place, panel, below.tolist(), above.tolist(), name)
        below = above
    if (panel.reserved >= 0).any():
        yield _reserved(place, panel)
    yield from _strips(place, panel, categories, order)
    yield from _peak(place, panel)
    yield from _legend(panel, categories, order, top)


class _Place:
    """Where times and bytes of a panel are drawn."""

    def __init__(self, panel: Stack, top: int) -> None:
        self.span = (panel.start, max(panel.end, panel.start + 1))
        highest = max(panel.peak_bytes, int(panel.reserved.max(initial=0)))
        self.most = max(1, highest + highest // HEADROOM)
        self.bottom = top + AREA
        self.top = top
        self.per_ns = (WIDTH - LEFT - RIGHT) / (self.span[1] - self.span[0])

    def x(self, time: int) -> float:
        return LEFT + (time - self.span[0]) * self.per_ns

    def y(self, byte: int) -> float:
        return self.bottom - byte * AREA / self.most


def _steps(place: _Place, times: list[int], values: list[int], end: int) -> list[tuple[str, str]]:
    """Return the corners of a curve of steps, x and y as texts."""
    xs = [rounded(place.x(time)) for time in [*times, end]]
    ys = [rounded(place.y(value)) for value in values]
    return [*zip(xs[:-1], ys, strict=True), (xs[-1], ys[-1])]


def _area(place: _Place, panel: Stack, below: list[int], above: list[int], name: str) -> str:
    """Return the area between two curves."""
    times = panel.time.tolist()
    upper = _steps(place, times, above, place.span[1])
    lower = _steps(place, times, below, place.span[1])
    go = "".join(f"H{x}V{y}" for x, y in upper[1:])
    back = "".join(f"V{y}H{x}" for x, y in reversed(lower[:-1]))
    most = max(a - b for a, b in zip(above, below, strict=True))
    said = f"{name}: at most {units.size(most)}"
    x, y = upper[0]
    return (
        f'<path fill="{COLORS[name]}" d="M{x} {y}{go}{back}Z"><title>{escape(said)}</title></path>'
    )


def _reserved(place: _Place, panel: Stack) -> str:
    known = [
        pair
        for pair in zip(panel.time.tolist(), panel.reserved.tolist(), strict=True)
        if pair[1] >= 0
    ]
    corners = _steps(place, [t for t, _ in known], [v for _, v in known], place.span[1])
    x, y = corners[0]
    path = "".join(f"H{x}V{y}" for x, y in corners[1:])
    return f'<path class="v" d="M{x} {y}{path}"><title>reserved</title></path>'


def _strips(
    place: _Place, panel: Stack, categories: tuple[str, ...], order: list[str]
) -> Iterator[str]:
    """Yield a strip per place in time that tells what is held there: at its highest."""
    length, total = place.span[1] - place.span[0], panel.level.sum(axis=1)
    edges = [place.span[0] + length * n // STRIPS for n in range(STRIPS + 1)]
    at = panel.time.searchsorted(edges, side="right").tolist()
    width = rounded((WIDTH - LEFT - RIGHT) / STRIPS)
    yield '<g class="h">'
    for nth in range(STRIPS):
        first = max(at[nth] - 1, 0)
        row = first + int(total[first : max(at[nth + 1], first + 1)].argmax())
        level = panel.level[row]
        held = ", ".join(
            f"{name} {units.size(int(level[categories.index(name)]))}"
            for name in order
            if level[categories.index(name)]
        )
        said = f"{units.time(int(panel.time[row]))}: {units.size(int(total[row]))}; {held}"
        x = rounded(place.x(edges[nth]))
        yield f'<rect x="{x}" y="{place.top}" width="{width}" height="{AREA}"><title>{said}</title></rect>'
    yield "</g>"


def _peak(place: _Place, panel: Stack) -> Iterator[str]:
    x = place.x(panel.peak)
    where = f" in {clean(panel.peak_op)}" if panel.peak_op else ""
    said = escape(f"peak {units.size(panel.peak_bytes)} at {units.time(panel.peak)}{where}")
    left = x > LEFT + (WIDTH - LEFT - RIGHT) / 2
    yield f'<line class="k" x1="{x:.1f}" x2="{x:.1f}" y1="{place.top}" y2="{place.bottom}"/>'
    yield f'<text class="p{" e" if left else ""}" x="{x - 5 if left else x + 5:.1f}" y="{place.top + 14}">{said}</text>'


def _legend(panel: Stack, categories: tuple[str, ...], order: list[str], top: int) -> Iterator[str]:
    """Yield the categories as they lie on each other, with what they held at the peak."""
    x = WIDTH - RIGHT + 16
    level = panel.level[int(panel.level.sum(axis=1).argmax())]
    yield f'<text x="{x}" y="{top + 10}">at the peak</text>'
    for nth, name in enumerate(reversed(order)):
        y = top + 20 + nth * 20
        size = units.size(int(level[categories.index(name)]))
        yield f'<rect fill="{COLORS[name]}" x="{x}" y="{y}" width="12" height="12"/>'
        yield f'<text x="{x + 18}" y="{y + 10}">{name}: {size}</text>'
    if (panel.reserved >= 0).any():
        y = top + 32 + len(order) * 20
        yield f'<line class="v" x1="{x}" x2="{x + 12}" y1="{y - 4}" y2="{y - 4}"/><text x="{x + 18}" y="{y}">reserved</text>'
