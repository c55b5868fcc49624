"""What drawings of memory have in common: head, frame, axes of time and bytes, and texts that XML allows."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from math import floor, log10

from bridge.render import units

WIDTH, LEFT, RIGHT, TOP, HEAD = 1400, 90, 230, 40, 50
TICKS = 8
TEXTS = (
    "text{font:12px sans-serif;fill:#333}.t{font-size:14px;font-weight:bold}.m{text-anchor:middle}"
    ".e{text-anchor:end}.g{stroke:#e4e4e4}.b{fill:#fafafa;stroke:#ccc}"
)


def opening(height: int, style: str, title: str) -> str:
    """Return the beginning of a drawing, its title in it."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}"'
        f' viewBox="0 0 {WIDTH} {height}" style="max-width:100%;height:auto"><style>{style}</style>'
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>'
        f'<text class="t" x="{LEFT}" y="24">{escape(title)}</text>'
    )


def frame(span: tuple[int, int], most: int, place: tuple[int, int, int]) -> Iterator[str]:
    """Yield the frame and its axes: time from first to last ns, bytes up to the most.

    ``place``: top and height of what bytes are drawn in, and where the axis of time lies.
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
    step = nice(most / TICKS, 2)
    for byte in range(0, most + 1, step):
        y = top + height - byte * height / most
        yield f'<line class="g" x1="{LEFT}" x2="{LEFT + width}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="e" x="{LEFT - 6}" y="{y + 4:.1f}">{units.size(byte)}</text>'


def nice(step: float, base: int) -> int:
    """Return a round step that is no less: 1, 2 or 5 times a power of ten, or a power of two."""
    if base == 2:  # noqa: PLR2004
        return 1 << max(0, int(step - 1).bit_length() if step > 1 else 0)
    scale = 10 ** max(0, floor(log10(max(1.0, step))))
    return int(next(n * scale for n in (1, 2, 5, 10) if n * scale >= step))


def rounded(value: float) -> str:
    """Return a place to a tenth of a pixel, as short as it can be."""
    return f"{value:.1f}".removesuffix(".0")


def clean(text: str) -> str:
    """Leave out what XML does not allow."""
    return "".join(
        c if c >= " " and not "\ud800" <= c <= "\udfff" and c not in "\ufffe\uffff" else "\ufffd"
        for c in text
    )
