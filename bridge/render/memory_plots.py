"""Memory over time as SVG: addresses of allocations (memory_flow), use by category."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from math import floor, log10

from bridge.analyze.cost.memory.flow import (
    BEFORE_COLOR,
    COLORED_OPS,
    OTHER_COLOR,
    AreaPanel,
    Flow,
    FlowPanel,
    StackedAreas,
)
from bridge.render import units

# -- Parts of both drawings: head, frame, axes of time and bytes, texts


WIDTH, LEFT, RIGHT, TOP, HEAD = 1400, 90, 230, 40, 50
TICKS = 8
TEXTS = (
    "text{font:12px sans-serif;fill:#333}.t{font-size:14px;font-weight:bold}.m{text-anchor:middle}"
    ".e{text-anchor:end}.g{stroke:#e4e4e4}.b{fill:#fafafa;stroke:#ccc}"
)


def opening(height: int, style: str, title: str) -> str:
    """Return the start tag, the styles and the title of a drawing."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}"'
        f' viewBox="0 0 {WIDTH} {height}" style="max-width:100%;height:auto"><style>{style}</style>'
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>'
        f'<text class="t" x="{LEFT}" y="24">{escape(title)}</text>'
    )


def frame(span: tuple[int, int], max_bytes: int, place: tuple[int, int, int]) -> Iterator[str]:
    """Yield the frame and its axes: time over ``span`` in ns, and bytes from 0 to ``max_bytes``.

    ``place`` is the top and the height of the axis of bytes, and the y position of the axis of
    time.
    """
    top, height, bottom = place
    width = WIDTH - LEFT - RIGHT
    yield f'<rect class="b" x="{LEFT}" y="{top}" width="{width}" height="{height}"/>'
    step = nice((span[1] - span[0]) / TICKS, 10)
    for time in range(-(-span[0] // step) * step, span[1] + 1, step):
        x = LEFT + (time - span[0]) * width / (span[1] - span[0])
        yield f'<line class="g" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}"/>'
        yield f'<text class="m" x="{x:.1f}" y="{bottom + 16}">{units.time(time)}</text>'
    yield f'<text class="m" x="{LEFT + width / 2}" y="{bottom + 34}">time since the first event</text>'
    step = nice(max_bytes / TICKS, 2)
    for byte in range(0, max_bytes + 1, step):
        y = top + height - byte * height / max_bytes
        yield f'<line class="g" x1="{LEFT}" x2="{LEFT + width}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="e" x="{LEFT - 6}" y="{y + 4:.1f}">{units.size(byte)}</text>'


def nice(step: float, base: int) -> int:
    """Return the next larger round step: 1, 2 or 5 times a power of ten, or a power of two."""
    if base == 2:  # noqa: PLR2004 (the base of the axis)
        return 1 << max(0, int(step - 1).bit_length() if step > 1 else 0)
    scale = 10 ** max(0, floor(log10(max(1.0, step))))
    return int(next(n * scale for n in (1, 2, 5, 10) if n * scale >= step))


def rounded(value: float) -> str:
    """Return a position to a tenth of a pixel, as short as possible."""
    return f"{value:.1f}".removesuffix(".0")


def clean(text: str) -> str:
    """Return a text in which characters that XML does not allow are replaced."""
    return "".join(
        c if c >= " " and not "\ud800" <= c <= "\udfff" and c not in "\ufffe\uffff" else "\ufffd"
        for c in text
    )


# -- ``memory_flow.svg``: time by address, a rectangle per allocation


MAP, CURVE, GAP, BELOW = 420, 90, 18, 60  # heights: addresses, what is used, between them, the axis
MIN_SIZE = 0.6  # px: smaller rectangles are not visible
PALETTE = (
    "#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5",
    "#9c6b4e", "#bbbbbb", "#777777",
)  # fmt: skip
LIVES = (  # upper limits of lifetimes in ns, and their texts
    (10_000, "under 10 µs"),
    (100_000, "under 100 µs"),
    (1_000_000, "under 1 ms"),
    (10_000_000, "under 10 ms"),
    (100_000_000, "under 100 ms"),
    (1_000_000_000, "under 1 s"),
    (1 << 62, "longer"),
)
LIFE_COLORS = ("#fde725", "#90d743", "#35b779", "#21918c", "#31688e", "#443983", "#440154")
STYLE = ".k{stroke:#d00;stroke-dasharray:4 3}.p{fill:#d00}.u{fill:#cfd8ea;stroke:#4269d0}.r rect:hover{stroke:#000}"


def flow_svg(flow: Flow, color: str = "op") -> str:
    """Return the drawing of addresses over time; ``color`` is "op" or "lifetime"."""
    panel_height = TOP + MAP + GAP + CURVE + BELOW
    height = HEAD + panel_height * max(1, len(flow.panels))
    source = ", ".join(clean(name) for name in flow.source)
    style = f"{TEXTS}{STYLE}{_fills(color)}"
    pieces = [opening(height, style, f"Memory of {source}: {flow.description}")]
    for index, panel in enumerate(flow.panels):
        pieces += _panel(panel, flow, HEAD - 10 + index * panel_height, color)
    return "".join([*pieces, "</svg>\n"])


def _fills(color: str) -> str:
    colors = PALETTE if color == "op" else LIFE_COLORS
    return "".join(f".c{index}{{fill:{fill}}}" for index, fill in enumerate(colors))


def _panel(panel: FlowPanel, flow: Flow, top: int, color: str) -> Iterator[str]:
    place = _Place(panel, top + TOP)
    yield f'<text x="{LEFT}" y="{top + TOP - 8}">{escape(panel.title)}: address, without what was never used</text>'
    bottom = place.curve + CURVE
    yield from frame((panel.start, panel.end), panel.height, (place.top, MAP, bottom))
    yield '<g class="r">'
    yield from _tiles(panel, place, color)
    yield "</g>"
    yield from _curve(panel, place)
    yield from _peak(panel, place)
    yield from _legend(flow, place, color)


class _Place:
    """The position of times and addresses of a panel."""

    def __init__(self, panel: FlowPanel, top: int) -> None:
        self.top, self.width = top, WIDTH - LEFT - RIGHT
        self.curve = top + MAP + GAP
        self.start, self.per_ns = panel.start, self.width / (panel.end - panel.start)
        self.per_byte, self.per_used = MAP / panel.height, CURVE / max(1, panel.peak_bytes)

    def x(self, time: float) -> float:
        return LEFT + (time - self.start) * self.per_ns

    def y(self, byte: float) -> float:
        return self.top + MAP - byte * self.per_byte

    def used(self, count: float) -> float:
        return self.curve + CURVE - count * self.per_used


def _tiles(panel: FlowPanel, place: _Place, color: str) -> Iterator[str]:
    names = "start end low high address bytes count op color lifetime".split()
    for start, end, low, high, address, size, count, op, code, life in zip(
        *(panel.tiles[name].tolist() for name in names), strict=True
    ):
        x, y = place.x(start), place.y(high)
        width = max(MIN_SIZE, (end - start) * place.per_ns)
        height = max(MIN_SIZE, (high - low) * place.per_byte)
        fill = code if color == "op" else _life(life)
        prefix = f"{count} allocations, the largest of " if count > 1 else ""
        yield (
            f'<rect class="c{fill}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"><title>'
            f"{prefix}{escape(clean(op))}: {units.size(size)} at {address:#x},"
            f" {units.time(start)} to {units.time(end)}</title></rect>"
        )


def _life(lifetime: int) -> int:
    return next(index for index, (limit, _) in enumerate(LIVES) if lifetime < limit)


def _curve(panel: FlowPanel, place: _Place) -> Iterator[str]:
    bottom = place.curve + CURVE
    path = [f"M{place.x(panel.start):.1f} {bottom}"]
    for time, used in zip(panel.curve["time"].tolist(), panel.curve["used"].tolist(), strict=True):
        path.append(f"H{place.x(time):.1f}V{place.used(used):.1f}")
    path.append(f"H{place.x(panel.end):.1f}V{bottom}Z")
    yield f'<path class="u" d="{"".join(path)}"/>'
    yield f'<text class="e" x="{LEFT - 6}" y="{place.curve + 10}">{units.size(panel.peak_bytes)}</text>'
    yield f'<text class="e" x="{LEFT - 6}" y="{bottom}">used</text>'


def _peak(panel: FlowPanel, place: _Place) -> Iterator[str]:
    x = place.x(panel.peak_ns)
    place_text = f" in {clean(panel.peak_op)}" if panel.peak_op else ""
    text = f"peak {units.size(panel.peak_bytes)} at {units.time(panel.peak_ns)}{place_text}"
    side = "e" if x > LEFT + place.width / 2 else ""
    text_x = x - 5 if side else x + 5
    yield f'<line class="k" x1="{x:.1f}" x2="{x:.1f}" y1="{place.top}" y2="{place.curve + CURVE}"><title>{escape(text)}</title></line>'
    yield f'<text class="p {side}" x="{text_x:.1f}" y="{place.curve - 5}">{escape(text)}</text>'


def _legend(flow: Flow, place: _Place, color: str) -> Iterator[str]:
    x, y = WIDTH - RIGHT + 16, place.top
    if color == "op":
        entries = [
            *enumerate(flow.ops),
            (OTHER_COLOR, "other ops"),
            (BEFORE_COLOR, "from before the capture"),
        ]
        listed = [pair for pair in entries if pair[0] < COLORED_OPS or _is_used(flow, pair[0])]
    else:
        listed = list(enumerate(name for _, name in LIVES))
        yield f'<text x="{x}" y="{y + 10}">lifetime</text>'
        y += 18
    for index, (code, name) in enumerate(listed):
        entry_y = y + index * 20
        yield f'<rect class="c{code}" x="{x}" y="{entry_y}" width="12" height="12"/>'
        yield f'<text x="{x + 18}" y="{entry_y + 10}">{escape(_short(clean(name)))}<title>{escape(clean(name))}</title></text>'


def _is_used(flow: Flow, code: int) -> bool:
    return any((panel.tiles["color"] == code).any() for panel in flow.panels)


def _short(name: str, max_length: int = 28) -> str:
    return name if len(name) <= max_length else f"{name[: max_length - 1]}…"


# -- ``memory_timeline.svg``: used memory by category, also in the format of PyTorch's ``export_memory_timeline``


AREA, STACKED_BELOW = 420, 60  # heights: of the areas, of the axis
HEADROOM = 16  # 1/16 of the height stays free for the text of the peak
STRIPS = 200  # strips in time that have a hover title
COLORS = {
    "parameter": "#3b6fb6", "optimizer state": "#e0a526", "input": "#222222", "temporary": "#a463c9",
    "activation": "#d9534f", "gradient": "#3f9b5a", "autograd detail": "#6ec5c8", "unknown": "#a8a8a8",
}  # fmt: skip
STACKING_ORDER = (  # from below

    "parameter", "optimizer state", "gradient", "input", "activation", "autograd detail", "temporary", "unknown",
)  # fmt: skip
STACKED_STYLE = ".k{stroke:#111;stroke-dasharray:4 3}.p{fill:#111;font-weight:bold}.v{fill:none;stroke:#555;stroke-dasharray:2 2}.h rect{fill:#000;opacity:0}.h rect:hover{opacity:.08}"
IN_TORCH = (  # the columns of PyTorch's file after the first, which is 0
    "parameter", "optimizer state", "input", "temporary", "activation", "gradient", "autograd detail", "unknown",
)  # fmt: skip
NS = 1_000


def stacked_svg(areas: StackedAreas) -> str:
    """Return the drawing of used memory by category over time."""
    panel_height = TOP + AREA + STACKED_BELOW
    height = HEAD + panel_height * max(1, len(areas.panels))
    more = f"; {areas.left} more processes, devices and kinds left out" if areas.left else ""
    title = f"Memory by category of {', '.join(map(clean, areas.source))}{more}"
    pieces = [opening(height, TEXTS + STACKED_STYLE, title)]
    for index, panel in enumerate(areas.panels):
        pieces += _stacked_panel(panel, areas.categories, HEAD - 10 + index * panel_height + TOP)
    return "".join([*pieces, "</svg>\n"])


def as_torch(areas: StackedAreas) -> str:
    """Return the timeline of the first panel in PyTorch's format.

    The format is JSON: the times in µs, and for each time nine columns of bytes.
    """
    [panel] = areas.panels[:1]
    order = [areas.categories.index(name) for name in IN_TORCH]
    times: list[int] = []
    sizes: list[list[int]] = []
    for time, level in zip(panel.time.tolist(), panel.level[:, order].tolist(), strict=True):
        micros = (time + areas.epoch_ns) // NS
        if times and times[-1] == micros:
            sizes[-1] = [0, *level]
        else:
            times.append(micros)
            sizes.append([0, *level])
    return json.dumps([times, sizes])


def _stacked_panel(panel: AreaPanel, categories: tuple[str, ...], top: int) -> Iterator[str]:
    place = _StackedPlace(panel, top)
    yield f'<text x="{LEFT}" y="{top - 8}">{escape(panel.title)}: used, by category</text>'
    yield from frame(place.span, place.max_bytes, (top, AREA, top + AREA))
    order = [name for name in STACKING_ORDER if panel.level[:, categories.index(name)].any()]
    below = panel.level[:, 0] * 0
    for name in order:
        above = below + panel.level[:, categories.index(name)]
        yield _area(place, panel, below=below.tolist(), above=above.tolist(), name=name)
        below = above
    if (panel.reserved >= 0).any():
        yield _reserved(place, panel)
    yield from _strips(place, panel, categories, order)
    yield from _stacked_peak(place, panel)
    yield from _stacked_legend(panel, categories, order, top)


class _StackedPlace:
    """The position of times and bytes of a panel."""

    def __init__(self, panel: AreaPanel, top: int) -> None:
        self.span = (panel.start, max(panel.end, panel.start + 1))
        highest = max(panel.peak_bytes, int(panel.reserved.max(initial=0)))
        self.max_bytes = max(1, highest + highest // HEADROOM)
        self.bottom = top + AREA
        self.top = top
        self.per_ns = (WIDTH - LEFT - RIGHT) / (self.span[1] - self.span[0])

    def x(self, time: int) -> float:
        return LEFT + (time - self.span[0]) * self.per_ns

    def y(self, byte: int) -> float:
        return self.bottom - byte * AREA / self.max_bytes


def _steps(
    place: _StackedPlace, times: list[int], values: list[int], end: int
) -> list[tuple[str, str]]:
    """Return the corners of a step curve, x and y as texts."""
    xs = [rounded(place.x(time)) for time in [*times, end]]
    ys = [rounded(place.y(value)) for value in values]
    return [*zip(xs[:-1], ys, strict=True), (xs[-1], ys[-1])]


def _area(
    place: _StackedPlace, panel: AreaPanel, below: list[int], above: list[int], name: str
) -> str:
    """Return the area between two step curves."""
    times = panel.time.tolist()
    upper = _steps(place, times, above, place.span[1])
    lower = _steps(place, times, below, place.span[1])
    forth = "".join(f"H{x}V{y}" for x, y in upper[1:])
    back = "".join(f"V{y}H{x}" for x, y in reversed(lower[:-1]))
    largest = max(a - b for a, b in zip(above, below, strict=True))
    text = f"{name}: at most {units.size(largest)}"
    x, y = upper[0]
    return f'<path fill="{COLORS[name]}" d="M{x} {y}{forth}{back}Z"><title>{escape(text)}</title></path>'


def _reserved(place: _StackedPlace, panel: AreaPanel) -> str:
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
    place: _StackedPlace, panel: AreaPanel, categories: tuple[str, ...], order: list[str]
) -> Iterator[str]:
    """Yield strips in time whose titles state the largest use of memory within the strip."""
    length, total = place.span[1] - place.span[0], panel.total_bytes
    edges = [place.span[0] + length * n // STRIPS for n in range(STRIPS + 1)]
    row_after = panel.time.searchsorted(edges, side="right").tolist()
    width = rounded((WIDTH - LEFT - RIGHT) / STRIPS)
    yield '<g class="h">'
    for index in range(STRIPS):
        first = max(row_after[index] - 1, 0)
        row = first + int(total[first : max(row_after[index + 1], first + 1)].argmax())
        level = panel.level[row]
        parts = ", ".join(
            f"{name} {units.size(int(level[categories.index(name)]))}"
            for name in order
            if level[categories.index(name)]
        )
        text = f"{units.time(int(panel.time[row]))}: {units.size(int(total[row]))}; {parts}"
        x = rounded(place.x(edges[index]))
        yield f'<rect x="{x}" y="{place.top}" width="{width}" height="{AREA}"><title>{text}</title></rect>'
    yield "</g>"


def _stacked_peak(place: _StackedPlace, panel: AreaPanel) -> Iterator[str]:
    x = place.x(panel.peak)
    place_text = f" in {clean(panel.peak_op)}" if panel.peak_op else ""
    text = escape(f"peak {units.size(panel.peak_bytes)} at {units.time(panel.peak)}{place_text}")
    is_left = x > LEFT + (WIDTH - LEFT - RIGHT) / 2
    yield f'<line class="k" x1="{x:.1f}" x2="{x:.1f}" y1="{place.top}" y2="{place.bottom}"/>'
    yield f'<text class="p{" e" if is_left else ""}" x="{x - 5 if is_left else x + 5:.1f}" y="{place.top + 14}">{text}</text>'


def _stacked_legend(
    panel: AreaPanel, categories: tuple[str, ...], order: list[str], top: int
) -> Iterator[str]:
    """Yield the categories in the order in which they are stacked, with their sizes at the peak."""
    x = WIDTH - RIGHT + 16
    level = panel.level[int(panel.total_bytes.argmax())]
    yield f'<text x="{x}" y="{top + 10}">at the peak</text>'
    for index, name in enumerate(reversed(order)):
        y = top + 20 + index * 20
        size = units.size(int(level[categories.index(name)]))
        yield f'<rect fill="{COLORS[name]}" x="{x}" y="{y}" width="12" height="12"/>'
        yield f'<text x="{x + 18}" y="{y + 10}">{name}: {size}</text>'
    if (panel.reserved >= 0).any():
        y = top + 32 + len(order) * 20
        yield f'<line class="v" x1="{x}" x2="{x + 12}" y1="{y - 4}" y2="{y - 4}"/><text x="{x + 18}" y="{y}">reserved</text>'
