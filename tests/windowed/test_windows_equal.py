"""What comes of windows is what comes of the whole report, wherever the cuts are."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_reports import report, small
from real_parts import NIGHT, sampled

from bridge import importers
from bridge.importers.errors import NothingRecorded, ReportError
from windowed.equal import TABLES, assert_equal, both
from windowed.programs import LONG, Program

SOME = tuple(
    one for one in TABLES if one.by in {"path", "op-kernel", "api", "stream", "phase,report"}
)
FEW = tuple(one for one in SOME if not one.request.inclusive)


@pytest.mark.slow
def test_the_whole_corpus(corpus):
    paths = [path for path in sampled((corpus / "nsys").glob("*.sqlite")) if recorded(path)]
    assert paths
    for n, path in enumerate(paths):
        assert_equal(*both(path, (2, 3, 7)[n % 3], tables=FEW))


def recorded(path):
    """Tell whether there is anything in a profile."""
    with suppress(NothingRecorded):
        importers.load(path, details=False)
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "windows", "every"), [(report, 1, 4), (report, 3, 1), (small, 7, 3)]
)
def test_made_reports_by_every_table(tmp_path, make, windows, every):
    """Only at night every table in each way."""
    tables = TABLES if NIGHT else TABLES[::every]
    assert_equal(*both(make(tmp_path / "made.sqlite", steps=4), windows, tables=tables))


@pytest.mark.slow
@settings(suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 10**6),
    cuts=st.lists(st.integers(-10, LONG + 400), min_size=1, max_size=5 if NIGHT else 2),
)
def test_any_program_cut_anywhere(tmp_path_factory, seed, cuts):
    path = Program(seed).written(tmp_path_factory.mktemp("programs") / "made.sqlite")
    tables = SOME if NIGHT else SOME[seed % 2 :: 2]
    assert_equal(*both(path, 0, at=cuts, tables=tables))


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"raw": True},
        {"graphs": "launch"},
        {"domains": ("mine",)},
        {"domains": ("all",)},
        {"exclude_domains": ("Mine",)},
        {"domains": ("unheard of",)},
    ],
    ids=str,
)
def test_however_it_is_joined(tmp_path, options):
    for seed in range(3 if NIGHT else 1):
        path = Program(seed).written(tmp_path / f"{seed}.sqlite")
        assert_equal(*both(path, 3, tables=FEW, **options))


@pytest.mark.slow
@pytest.mark.parametrize("lacking", ["launches", "annotations", "annotations launches", "kernels"])
def test_reports_that_lack_a_table(tmp_path, lacking):
    path = report(tmp_path / "made.sqlite", steps=3, without=lacking)
    assert_equal(*both(path, 3, tables=SOME))


def test_a_report_with_nothing_in_it(tmp_path):
    everything = "annotations launches kernels copies fills graphs"
    path: Path = report(tmp_path / "made.sqlite", without=everything)
    with pytest.raises(ReportError, match="no ranges, no CUDA calls and no kernels"):
        both(path, 2)
    assert issubclass(NothingRecorded, ReportError)
