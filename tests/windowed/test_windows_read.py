"""Which window a row is read in, without what comes of it."""

from __future__ import annotations

from bridge.importers.nsys.windows import open_windows
from windowed.test_of_the_whole import CUTS, three


def test_work_without_a_process_is_read_with_the_call_of_the_only_process(tmp_path):
    """What was called for at 110 runs at 450: behind the first cut, and yet of the first window."""
    made = three()
    made.tables["kernels"][0] |= {"start": 450, "end": 470, "process": None}
    with open_windows(made.written(tmp_path / "made.sqlite"), False, 0, CUTS) as windows:
        found = [one.capture.activities.start.tolist() for one in windows]
    assert found == [[450], [700], [1_100]]
