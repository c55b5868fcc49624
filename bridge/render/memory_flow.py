"""``memory_flow.svg``: time by address, a rectangle per allocation, with axes, legend, hover titles and the peak."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from bridge.analyze.memory.flow import COLORED, EARLIER, OTHER, Flow, Panel
from bridge.render import units
from bridge.render.axes import HEAD, LEFT, RIGHT, TEXTS, TOP, WIDTH, clean, frame, opening

MAP, CURVE, GAP, BELOW = 420, 90, 18, 60  # heights: addresses, what is used, between them, the axis
LEAST = 0.6  # px: less is not seen
PALETTE = (
    "#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5",
    "#9c6b4e", "#bbbbbb", "#777777",
)  # fmt: skip
LIVES = (  # upper ends in ns, and what is said of them
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


def as_svg(flow: Flow, color: str = "op") -> str:
    """Return the drawing; ``color`` tells the op or the lifetime."""
    each = TOP + MAP + GAP + CURVE + BELOW
    height = HEAD + each * max(1, len(flow.panels))
    source = ", ".join(clean(name) for name in flow.source)
    style = f"{TEXTS}{STYLE}{_fills(color)}"
    pieces = [opening(height, style, f"Memory of {source}: {flow.said}")]
    for nth, panel in enumerate(flow.panels):
        pieces += _panel(panel, flow, HEAD - 10 + nth * each, color)
    return "".join([*pieces, "</svg>\n"])


def _fills(color: str) -> str:
    colors = PALETTE if color == "op" else LIFE_COLORS
    return "".join(f".c{nth}{{fill:{fill}}}" for nth, fill in enumerate(colors))


def _panel(panel: Panel, flow: Flow, top: int, color: str) -> Iterator[str]:
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
    """Where times and addresses of a panel are drawn."""

    def __init__(self, panel: Panel, top: int) -> None:
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


def _tiles(panel: Panel, place: _Place, color: str) -> Iterator[str]:
    names = "start end low high address bytes count op color lifetime".split()
    for start, end, low, high, address, size, count, op, code, life in zip(
        *(panel.tiles[name].tolist() for name in names), strict=True
    ):
        x, y = place.x(start), place.y(high)
        width = max(LEAST, (end - start) * place.per_ns)
        height = max(LEAST, (high - low) * place.per_byte)
        fill = code if color == "op" else _life(life)
        many = f"{count} allocations, the largest of " if count > 1 else ""
        yield (
            f'<rect class="c{fill}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"><title>'
            f"{many}{escape(clean(op))}: {units.size(size)} at {address:#x},"
            f" {units.time(start)} to {units.time(end)}</title></rect>"
        )


def _life(lifetime: int) -> int:
    return next(nth for nth, (most, _) in enumerate(LIVES) if lifetime < most)


def _curve(panel: Panel, place: _Place) -> Iterator[str]:
    bottom = place.curve + CURVE
    path = [f"M{place.x(panel.start):.1f} {bottom}"]
    for time, used in zip(panel.curve["time"].tolist(), panel.curve["used"].tolist(), strict=True):
        path.append(f"H{place.x(time):.1f}V{place.used(used):.1f}")
    path.append(f"H{place.x(panel.end):.1f}V{bottom}Z")
    yield f'<path class="u" d="{"".join(path)}"/>'
    yield f'<text class="e" x="{LEFT - 6}" y="{place.curve + 10}">{units.size(panel.peak_bytes)}</text>'
    yield f'<text class="e" x="{LEFT - 6}" y="{bottom}">used</text>'


def _peak(panel: Panel, place: _Place) -> Iterator[str]:
    x = place.x(panel.peak_ns)
    where = f" in {clean(panel.peak_op)}" if panel.peak_op else ""
    said = f"peak {units.size(panel.peak_bytes)} at {units.time(panel.peak_ns)}{where}"
    side = "e" if x > LEFT + place.width / 2 else ""
    beside = x - 5 if side else x + 5
    yield f'<line class="k" x1="{x:.1f}" x2="{x:.1f}" y1="{place.top}" y2="{place.curve + CURVE}"><title>{escape(said)}</title></line>'
    yield f'<text class="p {side}" x="{beside:.1f}" y="{place.curve - 5}">{escape(said)}</text>'


def _legend(flow: Flow, place: _Place, color: str) -> Iterator[str]:
    x, y = WIDTH - RIGHT + 16, place.top
    if color == "op":
        every = [*enumerate(flow.ops), (OTHER, "other ops"), (EARLIER, "from before the capture")]
        shown = [pair for pair in every if pair[0] < COLORED or _there(flow, pair[0])]
    else:
        shown = list(enumerate(name for _, name in LIVES))
        yield f'<text x="{x}" y="{y + 10}">lifetime</text>'
        y += 18
    for nth, (code, name) in enumerate(shown):
        at = y + nth * 20
        yield f'<rect class="c{code}" x="{x}" y="{at}" width="12" height="12"/>'
        yield f'<text x="{x + 18}" y="{at + 10}">{escape(_short(clean(name)))}<title>{escape(clean(name))}</title></text>'


def _there(flow: Flow, code: int) -> bool:
    return any((panel.tiles["color"] == code).any() for panel in flow.panels)


def _short(name: str, most: int = 28) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"
