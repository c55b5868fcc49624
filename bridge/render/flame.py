"""Stacks as text: folded stacks for flamegraph.pl and its like, speedscope's format, and a picture."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from bridge.analyze.core.calltree import WEIGHTS, CallTree, boxes, folded_stacks, sampled_stacks
from bridge.knowledge.package import VERSION
from bridge.render import units

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
PROFILES = {  # per weight: the name of the profile, and speedscope's unit
    "gpu": ("GPU time", "nanoseconds"),
    "cpu": ("CPU time", "nanoseconds"),
    "calls": ("calls", "none"),
}
CHUNK = 50_000  # stacks written at a time


def folded(tree: CallTree, weight: str = "gpu") -> Iterator[str]:
    """Yield sorted lines ``step 3;encoder;aten::mm;gemm 1234``: a stack and its own weight."""
    lines, values = folded_stacks(tree, weight)
    for first in range(0, len(lines), CHUNK):
        part = slice(first, first + CHUNK)
        pairs = zip(lines[part].tolist(), values[part].tolist(), strict=True)
        yield "".join(f"{line} {value}\n" for line, value in pairs)


def speedscope(tree: CallTree, source: Sequence[str], weight: str = "gpu") -> Iterator[str]:
    """Yield a file of speedscope's with a profile per weight; ``weight`` is the one shown first.

    Stacks are written as samples, each before the stacks under it. A weight whose total is 0 is
    left out.
    """
    stacks = sampled_stacks(tree)
    kinds = [kind for kind in WEIGHTS if stacks.totals[kind]] or [weight]
    head = {
        "name": ", ".join(source),
        "exporter": f"nsight-bridge@{VERSION}",
        "activeProfileIndex": kinds.index(weight) if weight in kinds else 0,
        "shared": {"frames": [{"name": name} for name in stacks.names]},
    }
    yield f'{{"$schema":"{SCHEMA}",{_json(head)[1:-1]},"profiles":['
    for index, kind in enumerate(kinds):
        yield "," if index else ""
        yield from _profile(kind, stacks.stacks, stacks.weights[kind], stacks.totals[kind])
    yield "]}\n"


def _profile(
    kind: str, stacks: NDArray[np.object_], values: NDArray[np.int64], total: int
) -> Iterator[str]:
    rows = np.flatnonzero(values)
    name, unit = PROFILES[kind]
    head = {"type": "sampled", "name": name, "unit": unit}
    yield f'{_json(head)[:-1]},"startValue":0,"endValue":{total},"samples":['
    for first in range(0, len(rows), CHUNK):
        part = stacks[rows[first : first + CHUNK]].tolist()
        yield ("," if first else "") + ",".join(f"[{stack}]" for stack in part)
    yield f'],"weights":[{",".join(map(str, values[rows].tolist()))}]}}'


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# -- A picture


WIDTH, ROW, HEAD, MARGIN = 1200, 18, 28, 8  # pixels
CHARACTER = 6.7  # pixels of an average one, at 11 pixels
MIN_CHARACTERS = 3  # of a name that is cut
MIN_PIXELS = 0.4  # narrower frames are left out
FILLS = ("#d9d9d9", "#f6c85f", "#f2a65a", "#ee8866", "#cfcfcf")  # by level
WHOLE_FILL = "#eeeeee"
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
STYLE = "text{font:11px sans-serif;pointer-events:none}rect{stroke:#fff}g:hover rect{stroke:#000}"


def svg(tree: CallTree, source: Sequence[str], weight: str = "gpu") -> Iterator[str]:
    """Yield a flame graph as SVG without scripts; what a frame is, its tooltip says.

    The outermost frames are at the bottom.
    """
    inner = WIDTH - 2 * MARGIN
    drawn = boxes(tree, weight, MIN_PIXELS / inner)
    height = HEAD + ROW * (int(drawn.depth.max()) + 1) + MARGIN
    title = _xml(f"{PROFILES[weight][0]} of {', '.join(source)}")
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}"'
        f' viewBox="0 0 {WIDTH} {height}"><title>{title}</title><style>{STYLE}</style>'
        f'<rect width="100%" height="100%" fill="#fff"/><text x="{MARGIN}" y="18">{title}</text>\n'
    )
    amount = units.count if weight == "calls" else units.time
    columns = (drawn.level, drawn.depth, drawn.start, drawn.share, drawn.weight)
    lists = (drawn.names, *(column.tolist() for column in columns))
    for name, level, depth, start, share, total in zip(*lists, strict=True):
        x, y = MARGIN + inner * start, height - MARGIN - ROW * (depth + 1)
        fill = WHOLE_FILL if level < 0 else FILLS[level]
        yield (
            f"<g><title>{_xml(f'{name}: {amount(total)}, {units.percent(share)}')}</title>"
            f'<rect x="{x:.2f}" y="{y}" width="{inner * share:.2f}" height="{ROW - 1}" fill="{fill}"/>'
            f'<text x="{x + 3:.2f}" y="{y + 13}">{_xml(_cut(name, inner * share))}</text></g>\n'
        )
    yield "</svg>\n"


def _cut(name: str, pixels: float) -> str:
    """Return as much of a name as a box of this width has room for."""
    room = int((pixels - 6) / CHARACTER)
    if len(name) <= room:
        return name
    return f"{name[: room - 1]}…" if room >= MIN_CHARACTERS else ""


def _xml(text: str) -> str:
    return escape(NOT_XML.sub("\ufffd", text))
