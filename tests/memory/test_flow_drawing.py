"""Where things lie in `memory_flow.svg`: two panels by hand, their places in pixels worked out on paper."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd
import pytest

from bridge.analyze.cost.memory.flow import BEFORE_COLOR, OTHER_COLOR, Flow, FlowPanel
from bridge.render.memory_plots import flow_svg

SVG = "{http://www.w3.org/2000/svg}"
WIDTH = 1400 - 90 - 230  # of the map: the drawing's, without both margins
PANEL = 40 + 420 + 18 + 90 + 60  # title, map, gap, curve, axis


def panel(color: int = 0) -> FlowPanel:
    """Return a panel of 100 ns and 200 bytes, with one allocation in the second quarter of both."""
    tile = {"start": 25, "end": 50, "low": 50, "high": 100, "address": 4096, "bytes": 50}
    tile |= {"count": 1, "op": "mm", "color": color, "lifetime": 25}
    curve = pd.DataFrame({"time": [25, 50], "used": [50, 0]})
    return FlowPanel("GPU 0", 0, 100, 200, pd.DataFrame([tile]), curve, 25, 50, "mm", 0)


@pytest.fixture(scope="module")
def drawing() -> ET.Element:
    return ET.fromstring(flow_svg(Flow(("a.pickle",), (panel(), panel()), ("mm",), 0)))


def places(tree: ET.Element, kind: str, class_: str, *names: str) -> list[tuple[float, ...]]:
    found = [one for one in tree.iter(SVG + kind) if one.get("class") == class_]
    return [tuple(float(one.get(name, "nan")) for name in names) for one in found]


def test_panels_lie_below_each_other_and_all_in_the_drawing(drawing) -> None:
    assert drawing.get("height") == str(50 + 2 * PANEL)
    tops = [80, 80 + PANEL]
    assert places(drawing, "rect", "b", "x", "y", "width", "height") == [
        (90, top, WIDTH, 420) for top in tops
    ]
    lowest = max(float(text.get("y", 0)) for text in drawing.iter(f"{SVG}text"))
    assert lowest < 50 + 2 * PANEL


def test_an_allocation_is_where_its_times_and_addresses_are(drawing) -> None:
    tiles = [one for one in drawing.iter(f"{SVG}rect") if one.find(f"{SVG}title") is not None]
    assert [one.get("x") for one in tiles] == ["360.0"] * 2  # 90 + 1080 / 4
    assert [one.get("width") for one in tiles] == ["270.0"] * 2
    assert [one.get("y") for one in tiles] == ["290.0", str(290.0 + PANEL)]  # half way down
    assert [one.get("height") for one in tiles] == ["105.0"] * 2


def test_the_curve_lies_under_the_map(drawing) -> None:
    paths = [one.get("d", "") for one in drawing.iter(f"{SVG}path") if one.get("class") == "u"]
    bottoms = [80 + 420 + 18 + 90, 80 + 420 + 18 + 90 + PANEL]
    for path, bottom in zip(paths, bottoms, strict=True):
        assert path.startswith(f"M90.0 {bottom}H360.0V{bottom - 90:.1f}H630.0V{bottom:.1f}")
    assert places(drawing, "line", "k", "x1", "y1", "y2") == [
        (360, 80, bottoms[0]), (360, 80 + PANEL, bottoms[1])
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("color", "shown"),
    [
        (0, ["mm"]),
        (OTHER_COLOR, ["mm", "other ops"]),
        (BEFORE_COLOR, ["mm", "from before the capture"]),
    ],
)
def test_the_legend_names_the_ops_and_what_else_is_drawn(color, shown) -> None:
    text = flow_svg(Flow(("a.pickle",), (panel(color),), ("mm",), 0))
    assert re.findall(r'<text x="1204" y="\d+">([^<]+)<title>', text) == shown


def test_nothing_is_drawn_of_no_panel() -> None:
    tree = ET.fromstring(flow_svg(Flow(("a.pickle",), (), (), 0)))
    assert tree.get("height") == str(50 + PANEL)
    assert not np.array(places(tree, "rect", "b", "x")).size
