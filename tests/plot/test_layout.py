"""`bridge plot`, looked at: all text lies in the figure, nothing covers a label, and the marks are where the data is."""

from __future__ import annotations

import json
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from command import assert_refused, bridge
from made_reports import MARK, PUSH_POP, Made, thread
from real_parts import NIGHT

from bridge.analyze.cost.flops import Costs
from bridge.analyze.draw.overview.axis import Axis, Names
from bridge.analyze.draw.overview.memory import memory
from bridge.analyze.draw.overview.roofline import roofline
from bridge.analyze.draw.plots import Durations, breakdown, over_time
from bridge.cli.plot import COUNTS, DRAW, HEIGHTS, KINDS, Drawing
from bridge.report import load

pytestmark = pytest.mark.slow

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

HOSTILE = (
    "W" * 90,
    "aten::" + "convolution_backward_" * 6,
    "$a_1$ <b> & \u4e2d" + "\u4e2d" * 40,
    "mm",
)
CORPUS = {
    "mnist-training": ("breakdown", "timeline", "histogram"),
    "transformer-annotated": KINDS[:2],
}
SIZES = ((6.5, None), (3.3, None), (3.3, 2.0)) if NIGHT else ((6.5, None), (3.3, 2.0))


def hostile(folder, steps, times=3):
    """Write a report with so many steps, in each of which every long name comes so many times."""
    made, host = Made(), {"thread": thread(100)}
    made.names_of(100)
    made.annotation(75, 1, None, text="memory", domain=9, **host)
    for step in range(steps):
        t = 1_000 + step * 20_000
        made.annotation(PUSH_POP, t, t + 19_000, text=f"step {step}", **host)
        for nth, name in enumerate(HOSTILE * times):
            flops = json.dumps({"flops": 10**6 * (nth + 1), "bytes": 10**3 * (nth + 1) ** 2})
            at = t + 100 + nth * 1_000
            made.annotation(PUSH_POP, at, at + 500, text=f"{nth} {name}", json=flops, **host)
            made.kernel(f"{name} kernel", at + 10, 100, at + 100, at + 400 + nth * 40)
        for nth, name in enumerate(HOSTILE):
            counted = {
                "text": f"counter:{nth}{name}",
                "domain": 9,
                "payload": 2**30 * (step + nth + 1),
            }
            made.annotation(MARK, t + nth, None, **counted, **host)
    return made.written(folder / f"hostile{steps}.sqlite")


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    return hostile(tmp_path_factory.mktemp("few"), 4)


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    return hostile(tmp_path_factory.mktemp("many"), 40)


read = cache(load)


def looked_at(path, kind, width=6.5, height=None, **how):
    """Give a drawing; what several tests look at is drawn once, for they change nothing."""
    return drawing(path, kind, width, height, **how)


@cache
def drawing(path, kind, width, height, **how):
    """Draw a report and give its joined records, figure, axes, and all texts with their extents."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from bridge.render.plot.page import figure

    joined = read(path)
    how = {"top": COUNTS.get(kind, 0), "op": "*", "costs": Costs()} | how
    with figure(width, height or HEIGHTS[kind]) as (drawn, axes):
        DRAW[kind](joined, axes, Drawing(kind, width, height or HEIGHTS[kind], **how))
        canvas = FigureCanvasAgg(drawn)
        canvas.draw()
        renderer = canvas.get_renderer()
        shown = [
            *axes.texts, *axes.get_xticklabels(), *axes.get_yticklabels(), axes.xaxis.label, axes.yaxis.label,
            *(text for legend in drawn.legends for text in legend.get_texts()),
        ]  # fmt: skip
        sides = (
            (axes.get_xticklabels(), axes.get_xlim(), 0),
            (axes.get_yticklabels(), axes.get_ylim(), 1),
        )
        outside = [  # these are not drawn
            label
            for labels, ends, at in sides
            for label in labels
            if not min(ends) <= label.get_position()[at] <= max(ends)
        ]
        texts = [t for t in shown if t.get_text() and t.get_visible() and t not in outside]
        extents = [(t.get_text(), t.get_window_extent(renderer)) for t in texts]
        legends = [legend.get_window_extent(renderer) for legend in drawn.legends]
        return SimpleNamespace(
            attributed=joined.attributed, figure=drawn, axes=axes, texts=extents, legends=legends,
            inner=axes.get_window_extent(renderer), whole=drawn.bbox,
            beside=[t.get_window_extent(renderer) for t in axes.texts],
        )  # fmt: skip


def assert_fits(seen):
    for text, box in seen.texts:
        assert box.x0 >= 0, text
        assert box.y0 >= 0, text
        assert box.x1 <= seen.whole.x1, text
        assert box.y1 <= seen.whole.y1, text
    for legend in seen.legends:
        assert 0 <= legend.x0 < legend.x1 <= seen.whole.x1
        assert legend.y1 <= seen.whole.y1
        assert not legend.overlaps(seen.inner)
        assert not any(legend.overlaps(label) for label in seen.beside)
    assert seen.inner.width >= 0.4 * seen.whole.width
    assert seen.inner.height >= 0.25 * seen.whole.height


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_all_text_lies_in_the_figure(few, kind, width, height):
    seen = looked_at(few, kind, width, height)
    assert len(seen.legends) == (kind != "histogram")
    assert_fits(seen)


@pytest.mark.parametrize("report", CORPUS)
@pytest.mark.parametrize(("width", "height"), SIZES if NIGHT else SIZES[-1:])
def test_real_reports_fit_as_well(corpus, folder, report, width, height):
    for kind in CORPUS[report]:
        assert_fits(looked_at(corpus / f"nsys/{report}.sqlite", kind, width, height))


def test_what_finds_no_place_in_a_legend_is_counted(tmp_path):
    path, names = hostile(tmp_path, 4, times=2), 2 * len(HOSTILE)
    seen = looked_at(path, "timeline", 2.2, 1.6, top=50)
    said = [text for text, _ in seen.texts]
    [more] = [text for text in said if text.startswith("+ ")]
    named = len(seen.figure.legends[0].get_texts()) - 1
    assert named
    assert more == f"+ {names - named} more"


def test_a_size_that_holds_nothing_is_refused_and_success_is_said(folder):
    few = hostile(folder, 4, times=1)
    size = ["--width", "1", "--height", "1", "--force"]
    for kind in KINDS:
        refused = bridge("plot", few, "--kind", kind, "-o", "x.svg", *size)
        if refused.exit_code or kind == "breakdown":
            assert_refused(refused, "x.svg", "1 × 1 inches", "too small", "--width")
    written = bridge("plot", few, "-o", "z.svg")
    assert (written.exit_code, written.stdout, written.stderr) == (0, "", "z.svg: written\n")


# -- what is drawn, against the arrays


def test_percentages_are_the_shares(few):
    seen = looked_at(few, "breakdown", top=5)
    shown = breakdown(seen.attributed, 5)
    totals = shown.parts.sum(axis=1)
    said = [text.get_text().split(" · ")[1] for text in seen.axes.texts]
    assert said == [f"{share:.1%}" for share in totals / totals.sum()]
    assert len(said) == 6
    assert sum(float(text.rstrip("%")) for text in said) == pytest.approx(100, abs=0.3)
    ends = [text.xy for text in seen.axes.texts]
    widths = np.zeros(len(totals))
    for bar in seen.axes.patches:
        if bar.get_height() < 0.8 and bar.get_width():
            widths[round(bar.get_y() + bar.get_height() / 2)] += bar.get_width()
    assert [x for x, _ in ends] == pytest.approx(widths.tolist())
    assert widths / widths.sum() == pytest.approx(totals / totals.sum())


@pytest.mark.parametrize(("fixture", "foot"), [("few", 0), ("many", 0.96)])
def test_steps_are_lines_where_few_and_marks_on_the_edge_where_many(request, fixture, foot):
    seen = looked_at(request.getfixturevalue(fixture), "timeline")
    steps = over_time(seen.attributed, 7).steps
    [marks] = [c for c in seen.axes.collections if c.get_gid() == "steps"]
    drawn = np.array(marks.get_segments())
    by = 1e3  # µs
    assert drawn[:, :, 0] == pytest.approx(np.stack([steps, steps], axis=1) / by)
    assert {*drawn[:, 0, 1]} == {foot}
    assert {*drawn[:, 1, 1]} == {1}
    assert seen.axes.get_xlabel().endswith("dashed: steps" if foot == 0 else "marks above: steps")


def test_a_line_of_memory_holds_its_last_sample_to_the_end(few):
    seen = looked_at(few, "memory")
    found = memory(seen.attributed, Axis.of(seen.attributed))
    assert len(seen.axes.lines) == len(found["series"]) == len(HOSTILE)
    for line, one in zip(seen.axes.lines, found["series"], strict=True):
        x, y = line.get_data()
        assert line.get_drawstyle() == "steps-post"
        assert y.tolist() == pytest.approx(
            [*np.array(one["value"]) / 2**30, one["value"][-1] / 2**30]
        )
        assert x.tolist() == pytest.approx([*np.array(one["time"]) / 1e3, found["length_ns"] / 1e3])
        assert x[-1] == seen.axes.get_xlim()[1]


def test_areas_of_a_roofline_are_times(few):
    seen = looked_at(few, "roofline")
    found = roofline(seen.attributed, Names())
    spent, drawn = np.array(found["gpu_ns"], float), len(found["gpu_ns"])
    points = seen.axes.collections[:drawn]
    sizes = [float(p.get_sizes()[0]) for p in points][::-1]
    assert sizes == pytest.approx(np.maximum(10, 260 * spent / spent.max()))
    assert len({round(size, 6) for size in sizes}) > 1
    at = np.array([p.get_offsets()[0] for p in points][::-1])
    flops, moved = (np.array(found[c], float) for c in ("flops", "bytes"))
    assert at[:, 0] == pytest.approx(flops / moved)
    assert at[:, 1] == pytest.approx(flops / spent / 1e3)


def colors_of(styles):
    """Give the colours of shapes as `COLORS` has them."""
    from matplotlib.colors import to_hex

    return [to_hex(style.get("facecolor", style.get("color"))).upper() for style in styles]


def test_other_ops_and_no_op_are_grey_and_never_of_an_ops_colour():
    from bridge.render.plot import charts
    from bridge.render.plot.page import COLORS, NOTHING, REST

    assert colors_of(charts._style(nth, 4) for nth in range(4)) == [*COLORS[:2], REST, NOTHING]


def test_named_ops_of_a_roofline_differ_in_colour_first_and_then_in_shape():
    from bridge.render.plot import charts
    from bridge.render.plot.page import COLORS

    styles = [charts._roofline_style(nth, 14) for nth in range(15)]
    assert colors_of(styles[:12]) == [*COLORS[:6], *COLORS[:6]]
    assert [style["marker"] for style in styles] == [*"oooooossssss", "^", "^", "o"]
    assert styles[14]["color"] == "#BBBBBB"  # is not named


def test_rows_of_durations_are_of_six_colours_in_turn():
    from bridge.render.plot.charts import draw_histogram
    from bridge.render.plot.page import COLORS, figure

    rows = [str(row) for row in range(8)]
    found = Durations(rows, np.ones((8, 2), int), np.ones(8, int), np.array([1.0, 10.0, 100.0]))
    with figure(6.5, 4) as (_, axes):
        draw_histogram(axes, found)
        found = colors_of({"color": patch.get_facecolor()} for patch in axes.patches)
    assert found == [*COLORS[:6], *COLORS[:2]]


def test_a_roof_is_what_memory_allows_up_to_what_the_device_computes():
    from bridge.render.plot.charts import _roofs
    from bridge.render.plot.page import figure

    roofs = [{"name": "GPU", "gb_per_s": 1000.0, "tflops": 100.0}]  # they meet at 100 FLOP per byte
    roofs += [{"name": "unknown memory", "gb_per_s": 0, "tflops": 50.0}]
    with figure(6.5, 4) as (_, axes):
        _roofs(axes, np.array([1.0, 1000.0]), roofs)
        (intensity, reached), (_, flat) = (line.get_data() for line in axes.lines)
    assert reached.tolist() == pytest.approx([min(x * 1.0, 100.0) for x in intensity.tolist()])
    assert (intensity[0], reached[0]) == pytest.approx((0.25, 0.25))
    assert (intensity[-1], reached[-1]) == pytest.approx((4000, 100))
    assert {*flat.tolist()} == {50.0}


def test_names_beside_bars_are_as_large_as_other_ticks_where_there_is_room(few):
    axes = looked_at(few, "breakdown", top=5).axes
    sizes = {label.get_fontsize() for label in (*axes.get_yticklabels(), *axes.get_xticklabels())}
    assert sizes == {7}


def test_a_short_axis_of_durations_has_its_times(few):
    seen = looked_at(few, "histogram")
    said = {text for text, _ in seen.texts}
    assert {"500 ns"} <= said
