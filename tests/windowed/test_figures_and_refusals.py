"""What windows amount to by hand, and what they refuse: by few tables of three calls with a kernel each, two cuts between."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from made_reports import PUSH_POP, START_END, Made, thread

from bridge.analyze.run.ranks.members import Ranks
from bridge.analyze.tables.request import TableRequest
from bridge.importers.errors import ReportError
from bridge.importers.nsys import windows
from bridge.join.options import AttributionOptions
from bridge.scale.loading import tasks_of
from bridge.scale.merging import Times, unpacked
from bridge.scale.requests import PartRequest
from bridge.scale.task import Work
from bridge.scale.windows import aggregation
from bridge.scale.windows.aggregation import aggregated
from bridge.scale.windows.tables import CPU, GPU, OpenCalls, TableAccumulator
from bridge.scale.windows.window import WindowsError, attribute_window
from windowed.programs import CALL_ID
from windowed.test_of_the_whole import CUTS, three

OPS, PROCESSES = (
    PartRequest(TableRequest("op"), ("calls", "gpu_self_ns")),
    PartRequest(TableRequest("kernel,process"), ("count",)),
)
OTHER = 100 + (1 << 24)  # a process of another machine, with the number of process 100
GPU_NS = 100 + 101 + 102  # of the three kernels


def sums(
    made: Made,
    folder: Path,
    *,
    table: PartRequest = OPS,
    at: Sequence[int] = CUTS,
    memory: int = 0,
) -> dict[object, tuple[int, ...]]:
    """Give the sums of a table of a report in windows, by the names of its rows."""
    path = folder / "made.sqlite"
    path.unlink(missing_ok=True)
    [task] = tasks_of([made.written(path)], Work((table,), AttributionOptions(), memory=memory))
    found = unpacked(aggregated(task, path, len(at) + 1, at).tables[table.name])
    names = found.labels[table.by.split(",")[0]].tolist()
    columns = (found.sums[name].tolist() for name in table.columns)
    return dict(zip(names, zip(*columns, strict=True), strict=True))


# -- domains without a name


def test_domains_without_a_name_that_every_window_tells_alike_are_no_obstacle(tmp_path):
    """Ranges of the one are a library's; those of the other are ops, without work of their own."""
    made = three()
    for own, nccl, start in zip("xyz", ("ncclA", "ncclB", "ncclC"), (120, 520, 920), strict=True):
        for text, domain in ((own, 9), (nccl, 10)):
            more = {"domain": domain, "thread": thread(100)}
            made.annotation(PUSH_POP, start, start + 5, text=text, **more)
    ops = dict.fromkeys("xyz", (1, 0))
    assert sums(made, tmp_path) == {"a": (3, GPU_NS), **ops}


# -- slices


def test_slices_that_begin_in_two_windows_are_refused_among_other_ops_too(tmp_path):
    made = three()
    for start in (120, 520):
        more = {"payload": CALL_ID + 1, "thread": thread(100)}
        made.annotation(PUSH_POP, start, start + 5, text="sliced", **more)
    with pytest.raises(WindowsError, match="a call is in slices that begin in two of its windows"):
        sums(made, tmp_path)


# -- phases


def test_as_many_phases_as_windows_can_have_are_not_too_many(tmp_path, monkeypatch):
    monkeypatch.setattr(windows, "MAX_PHASES", 1)
    made = three()
    made.annotation(START_END, 1, 500, text="epoch", thread=thread(100))
    assert sums(made, tmp_path) == {"a": (3, GPU_NS)}
    made.annotation(START_END, 2, 500, text="epoch", thread=thread(100))
    with pytest.raises(WindowsError, match="2 start/end ranges are too many"):
        sums(made, tmp_path)


# -- processes with one number


def test_processes_with_one_number_are_refused_where_it_is_shown_alone(tmp_path):
    assert sums(three(100, OTHER), tmp_path) == {"a": (3, GPU_NS)}
    with pytest.raises(WindowsError, match="two of its processes have one number"):
        sums(three(100, OTHER), tmp_path, table=PROCESSES)


def test_rows_of_a_window_that_their_names_do_not_tell_apart_are_refused(tmp_path):
    path = three(100, OTHER).written(tmp_path / "made.sqlite")
    nothing = np.empty(0, np.int64)
    with windows.open_windows(path, False, 1) as found:
        ranks = Ranks.of(found.skeleton())
        [window] = found
        joined = attribute_window(window, AttributionOptions(), ranks)
        with pytest.raises(WindowsError, match="two rows by kernel,process have one name"):
            TableAccumulator(PROCESSES).add(joined, window, nothing)
        ops = TableAccumulator(OPS)
        ops.add(joined, window, nothing)
    assert ops.merged is not None
    assert ops.merged.sums["calls"].tolist() == [3]


# -- memory


def test_a_limit_that_is_exceeded_is_said_with_the_window_after_which_it_was(tmp_path, monkeypatch):
    taken = iter([100, 5_000, 11_100_000])  # before, and after two windows
    monkeypatch.setattr(aggregation, "peak_memory", lambda: next(taken))
    said = r"made\.sqlite: --memory-limit 10MB is too little: 11MB are taken after window 2 of 3"
    with pytest.raises(ReportError, match=said):
        sums(three(), tmp_path, memory=10_000_000)


# -- calls that go on


def carried() -> OpenCalls:
    """Call 10 began with 5 ns on the GPU, and had 7 and 8 more in later windows."""
    made = OpenCalls("made.sqlite")
    made.began = [{"number": np.array([10]), GPU: np.array([5]), CPU: np.array([0])}]
    made.went_on = [
        {"number": np.array([10]), GPU: np.array([more]), CPU: np.array([0])} for more in (7, 8)
    ]
    made.slices = [(np.array([10]), np.array([10]))]
    return made


def times(*of: tuple[int, int, int]) -> Times:
    return Times(*(np.array(column, np.int64) for column in zip(*of, strict=True)))


def plain(of: Times) -> list[tuple[int, int, int]]:
    return list(zip(of.row.tolist(), of.value.tolist(), of.times.tolist(), strict=True))


def test_a_call_that_goes_on_takes_what_it_has_in_all_windows():
    found = carried().corrected(times((0, 3, 2), (1, 5, 2)), times((1, 10, 1)), GPU)
    assert plain(found) == [(0, 3, 2), (1, 5, 1), (1, 20, 1)]


@pytest.mark.parametrize("rows", [[0], [1], [0, 1]], ids=str)
def test_a_call_that_its_window_did_not_count_is_refused(rows):
    calls = times(*((row, 10, 1) for row in rows))
    with pytest.raises(WindowsError, match="calls in several of its windows do not add up"):
        carried().corrected(times((0, 3, 2)), calls, GPU)
