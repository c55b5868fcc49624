"""What no window can know alone: found out over the whole report, or refused."""

from __future__ import annotations

import pytest
from made_reports import PUSH_POP, START_END, Made, changed, process, thread

from bridge.importers.errors import NotAReport
from bridge.importers.nsys import windows
from bridge.scale.requests import PartRequest
from bridge.scale.windows.window import WindowsError
from windowed.equal import TABLES, assert_equal, both
from windowed.programs import CALL_ID

CUTS = (400, 800)
SOME = tuple(one for one in TABLES if one.by in {"op", "op-kernel", "rank", "stream"})


def tables(*names: str) -> tuple[PartRequest, ...]:
    """Return some tables by name."""
    return tuple(one for one in TABLES if one.by in names)


def three(*pids: int) -> Made:
    """Make a call with a kernel in each of three windows, a process each if there are as many."""
    made, pids = Made(), pids or (100,)
    for n, start in enumerate((100, 500, 900)):
        pid = pids[n % len(pids)]
        made.annotation(PUSH_POP, start, start + 50, text="a", thread=thread(pid))
        made.kernel("gemm", start + 10, pid, start + 200, start + 300 + n)
    return made


@pytest.mark.slow
def test_work_without_a_process_is_of_the_only_one(tmp_path):
    made = three()
    for row in made.tables["kernels"][
        :2
    ]:  # the first runs behind a cut: only its call tells where it belongs
        row["process"] = None
    made.tables["kernels"][0] |= {"start": 450, "end": 470}
    assert_equal(*both(made.written(tmp_path / "made.sqlite"), 0, at=CUTS, tables=SOME))


@pytest.mark.slow
def test_a_range_without_an_end_ends_with_the_last_event_of_any_window(tmp_path):
    made = three()
    made.tables["session"].clear()
    made.annotation(PUSH_POP, 110, None, text="open", thread=thread(100, 2))
    made.annotation(PUSH_POP, 950, 5_000, text="last", thread=thread(100, 3))
    assert_equal(*both(made.written(tmp_path / "made.sqlite"), 0, at=CUTS, tables=SOME))


@pytest.mark.slow
def test_row_numbers_that_lie_far_apart_are_refused(tmp_path):
    path = three().written(tmp_path / "made.sqlite")
    changed(path, "UPDATE NVTX_EVENTS SET rowid = rowid * 100000000")
    with pytest.raises(NotAReport, match="row numbers of NVTX_EVENTS are far apart"):
        both(path, 0, at=CUTS, tables=SOME)


@pytest.mark.slow
def test_row_numbers_that_begin_below_0(tmp_path):
    path = three().written(tmp_path / "made.sqlite")
    changed(
        path,
        *(
            f"UPDATE {t} SET rowid = rowid - 5"
            for t in ("NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_KERNEL")
        ),
    )
    assert_equal(*both(path, 0, at=CUTS, tables=SOME))


@pytest.mark.slow
def test_a_file_that_changes_meanwhile_is_refused(tmp_path, monkeypatch):
    path = three().written(tmp_path / "made.sqlite")
    window = windows.Windows.window

    def written(self, number):
        with path.open("ab") as file:
            file.write(b"more")
        return window(self, number)

    monkeypatch.setattr(windows.Windows, "window", written)
    with pytest.raises(NotAReport, match="changed while it was read"):
        both(path, 0, at=CUTS, tables=SOME)


@pytest.mark.slow
def test_too_many_phases_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(windows, "MAX_PHASES", 1)
    made = three()
    made.annotation(START_END, 1, 500, text="epoch", thread=thread(100))
    assert_equal(*both(made.written(tmp_path / "one.sqlite"), 0, at=CUTS, tables=SOME))
    made.annotation(START_END, 2, 500, text="epoch", thread=thread(100))
    with pytest.raises(WindowsError, match="2 start/end ranges are too many"):
        both(made.written(tmp_path / "two.sqlite"), 0, at=CUTS, tables=SOME)


@pytest.mark.slow
@pytest.mark.parametrize("texts", [("ncclA", "ncclB", "ncclC"), ("x", "y", "z")])
def test_a_domain_without_a_name_that_every_window_tells_alike(tmp_path, texts):
    made = three()
    for text, start in zip(texts, (105, 505, 905), strict=True):
        made.annotation(PUSH_POP, start, start + 30, text=text, domain=9, thread=thread(100))
    assert_equal(*both(made.written(tmp_path / "made.sqlite"), 0, at=CUTS, tables=SOME))


def test_a_domain_without_a_name_that_windows_tell_otherwise_is_refused(tmp_path):
    made = three()
    for text, start in zip(("ncclA", "mine", "ncclC"), (105, 505, 905), strict=True):
        made.annotation(PUSH_POP, start, start + 30, text=text, domain=9, thread=thread(100))
    with pytest.raises(WindowsError, match="ranges of a domain without a name are ops in some"):
        both(made.written(tmp_path / "made.sqlite"), 0, at=CUTS, tables=SOME)


@pytest.mark.slow
def test_processes_with_one_number_are_refused_where_it_is_shown(tmp_path):
    other = 100 + (1 << 24)  # of another machine
    path = three(100, other).written(tmp_path / "made.sqlite")
    assert process(other) != process(100)
    assert_equal(*both(path, 0, at=CUTS, tables=tables("op", "rank", "path", "api")))
    with pytest.raises(WindowsError, match="two of its processes have one number"):
        both(path, 0, at=CUTS, tables=tables("process"))


@pytest.mark.slow
def test_gpus_that_are_told_apart_by_their_processes_alone_are_refused_where_they_are_shown(
    tmp_path,
):
    made = three(100, 101, 102)  # nothing says which GPU the device 0 of each is
    path = made.written(tmp_path / "made.sqlite")
    assert_equal(*both(path, 0, at=CUTS, tables=tables("op", "rank", "kind")))
    for by in ("device,kernel", "stream"):
        with pytest.raises(WindowsError, match="what its GPUs are called needs the whole report"):
            both(path, 0, at=CUTS, tables=tables(by))
    for pid in (100, 101, 102):
        made.tables["devices"].append({"gpu": pid, "device": 0, "pid": pid})
    path = made.written(tmp_path / "told.sqlite")
    assert_equal(*both(path, 0, at=CUTS, tables=tables("op", "device,kernel", "stream")))


@pytest.mark.slow
def test_calls_in_slices_with_one_number_in_two_domains_are_two(tmp_path):
    made = three()
    for domain, start in ((0, 120), (3, 520)):  # each in a window of its own
        for at in (start, start + 10):
            more = {"payload": CALL_ID + 1, "domain": domain, "thread": thread(100)}
            made.annotation(PUSH_POP, at, at + 5, text="sliced", **more)
    made.annotation(75, 1, None, text="Mine", domain=3, thread=thread(100))
    assert_equal(*both(made.written(tmp_path / "made.sqlite"), 0, at=CUTS, tables=SOME))
