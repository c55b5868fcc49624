"""Tables, curves and drawings of memory: a few allocations each, their figures by hand."""

from __future__ import annotations

import numpy as np
from join.programs import Program, op_of
from witness.attribution import Range
from witness.memory import Event

from bridge.analyze.cost.memory import by_category, by_op
from bridge.analyze.cost.memory import flow as flows
from bridge.analyze.cost.memory.categories import CATEGORIES, Categories
from bridge.analyze.cost.memory.usage import MemoryUsage
from bridge.analyze.draw.timeline.host import memory_curves
from bridge.analyze.draw.tracks import Tracks
from bridge.render.memory_plots import PALETTE
from bridge.report import Report
from memory.histories import History

PROCESS = 7 << 24
MAIN = PROCESS | 1
DEVICE = 2  # kind of memory


def history(ranges, *events) -> History:
    """Make a report of ranges (name, from, to) and events (time, address, bytes; negative ones released)."""
    opened = [Range(0, PROCESS, MAIN, start, end, op_of(name)) for name, start, end in ranges]
    made = [
        Event(0, PROCESS, 0, DEVICE, address, abs(size), size < 0, time, thread=MAIN)
        for time, address, size in events
    ]
    return History(Program(opened, [], [], [name for name, *_ in ranges]), made)


def test_rows_of_ops_hold_their_figures_and_are_numbered_in_order():
    held = history(
        [("outer", 0, 100), ("inner", 10, 20)], (5, 1, 300), (12, 2, 1_000), (50, 2, -1_000)
    ).held
    table = by_op(held).to_pandas()
    shown = "op allocated_bytes released_bytes left_bytes total_allocated_bytes peak_bytes"
    assert table[shown.split()].to_dict("index") == {
        0: dict(zip(shown.split(), ("inner", 1_000, 0, 0, 1_000, 1_000), strict=True)),
        1: dict(zip(shown.split(), ("outer", 300, 1_000, 300, 1_300, 1_300), strict=True)),
    }
    assert list(table)[:2] == ["op", "memory"]


def test_the_nine_ops_that_hold_most_have_colours_of_their_own():
    """Twelve ops, each of which holds twice as much as the one before; one more allocation is of earlier."""
    ops = [(f"op {n}", 10 * n, 10 * n + 5) for n in range(12)]
    made = [(10 * n + 1, 1 << 20 | n << 12, 1 << n) for n in range(12)]
    drawn = flows.flow(history(ops, *made, (500, 99, -7)).held)
    assert drawn.ops == tuple(f"op {n}" for n in range(11, 2, -1))
    [panel] = drawn.panels
    color = dict(zip(panel.tiles["op"], panel.tiles["color"], strict=True))
    others, earlier = 9, 10
    assert color == {
        **{f"op {n}": 11 - n for n in range(3, 12)},
        **{f"op {n}": others for n in range(3)},
        "(before the capture)": earlier,
    }
    assert len(PALETTE) == earlier + 1


def test_the_curve_of_used_memory_begins_with_the_capture():
    """With 40 bytes from before, which an event at 30 tells of; the capture began at 0."""
    made = history([("a", 0, 50)], (20, 1, 100), (30, 2, -40))
    assert made.capture.facts[0].span[0] == 0
    [used] = memory_curves(made.held.attributed, Tracks(made.capture))
    assert used.start.tolist() == [0, 20, 30]
    assert used.args["value"].tolist() == [40, 140, 100]


def test_the_curve_of_used_memory_begins_with_an_event_from_before_the_capture():
    made = history([("a", 0, 50)], (-5, 1, 100), (30, 1, -100))
    [used] = memory_curves(made.held.attributed, Tracks(made.capture))
    assert used.start.tolist() == [-5, -5, 30]
    assert used.args["value"].tolist() == [0, 100, 0]


def test_of_a_part_of_the_time_the_peak_of_a_category_is_of_that_part():
    made = history([("a", 0, 20), ("b", 20, 40)], (1, 1, 100), (2, 2, 30), (30, 3, 1_000))
    early = Report(made.held.attributed).within(range_name="a").attributed
    for joined, peak in ((made.held.attributed, 1_130), (early, 130)):
        [row] = by_category(MemoryUsage.of(joined)).records()
        assert (row["category"], row["peak_bytes"], row["end_bytes"]) == ("unknown", peak, 1_130)


def test_only_what_is_made_before_the_first_step_may_be_a_parameter():
    steps = [("ProfilerStep#1", 10, 20), ("ProfilerStep#2", 20, 30), ("aten::linear", 12, 14)]
    held = history(steps, (5, 1, 100), (15, 2, 100), (25, 3, 100)).held
    found = [CATEGORIES[code] for code in Categories(held).of_event]
    assert found == ["parameter", "unknown", "unknown"]
    assert held.attributed.iterations.start.tolist() == [10, 20]
    assert np.all(held.is_made)
