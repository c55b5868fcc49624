"""Calls in slices, strings too many to keep, and what is refused for not being exact."""

from __future__ import annotations

import pytest
from made_reports import PUSH_POP, Made, thread
from real_parts import NIGHT

from bridge.importers.nsys import windows
from bridge.scale.windows.window import WindowsError
from windowed.equal import TABLES, assert_equal, both
from windowed.programs import CALL_ID, Program

SOME = tuple(one for one in TABLES if one.by in {"op", "op-kernel", "rank"})


def sliced(*slices: tuple[int, int]) -> Made:
    """Make a call in slices, each with a kernel, among others of its op."""
    made = Made()
    for start, end in slices:
        made.annotation(PUSH_POP, start, end, text="a", thread=thread(100), payload=CALL_ID + 1)
        made.kernel("gemm", start + 1, 100, start + 2, end + 30)
    made.annotation(PUSH_POP, 500, 520, text="a", thread=thread(100), payload=CALL_ID + 2)
    made.kernel("gemm", 501, 100, 505, 700)
    return made


def test_a_call_in_slices_of_which_the_last_goes_on(tmp_path):
    path = sliced((100, 200), (300, 480)).written(tmp_path / "made.sqlite")
    assert_equal(*both(path, 0, at=[400], tables=SOME))


@pytest.mark.slow
def test_a_call_whose_slices_begin_in_two_windows_is_refused(tmp_path):
    path = sliced((100, 200), (300, 480)).written(tmp_path / "made.sqlite")
    with pytest.raises(WindowsError, match="a call is in slices that begin in two of its windows"):
        both(path, 0, at=[250], tables=SOME)


def test_one_correlation_id_called_in_two_windows_is_refused(tmp_path):
    made = sliced((100, 200), (300, 480))
    made.tables["launches"][1]["correlation"] = made.tables["launches"][0]["correlation"]
    path = made.written(tmp_path / "made.sqlite")
    with pytest.raises(WindowsError, match="API calls of two of its windows have one correlation"):
        both(path, 0, at=[250], tables=SOME)


@pytest.mark.slow
def test_ids_that_lie_far_apart(tmp_path):
    made = sliced((100, 200), (300, 480))
    for table in ("launches", "kernels"):
        for row in made.tables[table]:
            row["correlation"] *= 1 << 30
    path = made.written(tmp_path / "made.sqlite")
    assert_equal(*both(path, 0, at=[400], tables=SOME))


def test_ranks_told_by_communicators_are_refused(tmp_path):
    made = sliced((100, 200), (300, 480))
    made.annotation(PUSH_POP, 10, 20, text="ncclCommInitRank", thread=thread(100))
    path = made.written(tmp_path / "made.sqlite")
    with pytest.raises(WindowsError, match="its ranks depend on where communicators are created"):
        both(path, 0, at=[400], tables=SOME)


@pytest.mark.slow
def test_strings_are_read_again_where_they_are_many(tmp_path, monkeypatch):
    monkeypatch.setattr(windows, "MAX_CACHED_STRINGS", 1)
    monkeypatch.setattr(windows, "MAX_ROWS", 2)
    monkeypatch.setattr(windows, "MIN_ROWS", 1)
    for seed in range(3 if NIGHT else 1):  # in chunks of two rows
        path = Program(seed).written(tmp_path / f"{seed}.sqlite")
        assert_equal(*both(path, 3, tables=SOME))
