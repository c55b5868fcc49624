"""Work of CUDA graphs that are captured in one window and launched in others."""

from __future__ import annotations

import pytest
from made_reports import PUSH_POP, Made, process, thread

from bridge.importers.nsys.windows import open_windows
from bridge.scale.merging import unpacked
from windowed.equal import TABLES, assert_equal, both

pytestmark = pytest.mark.slow


SOME = tuple(one for one in TABLES if one.by in {"op", "path", "op-kernel", "direction"})
LAUNCHES = (300, 5_300, 9_300)  # of the graph; a window each
CUTS = (1_000, 2_000, 5_000, 9_000)


def launched(made: Made, at: int, node: int) -> None:
    """Launch the graph: its node runs soon after."""
    name = made.string("gemm")
    where = {"device": 0, "context": 1, "stream": 7, "process": process(100)}
    made.correlation += 1
    call = {"thread": thread(100), "correlation": made.correlation, "name": name}
    made.tables["launches"].append({"start": at, "end": at + 5, **call})
    ran = {"start": at + 10, "end": at + 60, "correlation": made.correlation, "name": name}
    made.tables["kernels"].append({**where, **ran, "full_name": name, "graph_node": node})


def captured(*, node: int = 1) -> Made:
    """Capture a node in an op within another, on a thread of its own, and launch the graph thrice."""
    made, own = Made(), thread(100, 2)
    made.annotation(PUSH_POP, 100, 240, text="model", thread=own)
    made.annotation(PUSH_POP, 120, 140, text="other", thread=own)
    made.annotation(PUSH_POP, 150, 200, text="mm", thread=own)
    for at in LAUNCHES:
        made.annotation(PUSH_POP, at - 10, at + 100, text="replay", thread=thread(100))
        launched(made, at, node)
    made.tables["graph_nodes"].append({"time": 160, "thread": own, "node": 1})
    made.tables["graph_nodes"].append({"time": 1_500, "thread": own, "node": 2, "original": 1})
    return made


@pytest.mark.parametrize("node", [1, 2], ids=["made by a call", "a copy"])
def test_every_launch_is_of_the_op_that_was_open_at_the_capture(tmp_path, node):
    path = captured(node=node).written(tmp_path / "made.sqlite")
    whole, apart = both(path, 0, at=CUTS, tables=SOME)
    assert_equal(whole, apart)
    table = unpacked(apart.tables["op"])
    own = dict(zip(table.labels["op"].tolist(), table.sums["gpu_self_ns"].tolist(), strict=True))
    assert own == {"model": 0, "mm": 3 * 50, "other": 0, "replay": 0}


def test_each_window_has_the_ranges_of_the_capture_and_no_other_of_its_thread(tmp_path):
    path = captured().written(tmp_path / "made.sqlite")
    with open_windows(path, False, 0, CUTS) as found:
        names = [window.capture.ranges.name.tolist() for window in found]
        begun = [int(window.begun.sum()) for window in found]
    assert names == [
        ["model", "other", "mm", "replay"],
        ["model", "mm"],
        ["model", "mm"],
        ["model", "mm", "replay"],
        ["model", "mm", "replay"],
    ]
    assert begun == [4, 0, 0, 1, 1]


def test_what_crosses_a_range_of_the_capture_says_its_direction_in_every_window(tmp_path):
    made = captured()
    # Its first piece is within what runs backward: so is all that it is around, whenever that was launched.
    made.annotation(PUSH_POP, 90, 130, text="my backward", thread=thread(100, 2))
    path = made.written(tmp_path / "made.sqlite")
    assert_equal(*both(path, 0, at=CUTS, tables=SOME))


def test_work_of_a_capture_belongs_to_who_launched_it_where_that_is_asked_for(tmp_path):
    path = captured().written(tmp_path / "made.sqlite")
    whole, apart = both(path, 0, at=CUTS, tables=SOME, graphs="launch")
    assert_equal(whole, apart)
    table = unpacked(apart.tables["op"])
    own = dict(zip(table.labels["op"].tolist(), table.sums["gpu_self_ns"].tolist(), strict=True))
    assert own["replay"] == 3 * 50
