"""The one door to a table: which of rows, windows, workers and stored tables answers, and that all say the same."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import made_reports
import pandas as pd
import pytest

from bridge import store
from bridge.analyze.tables.request import TableRequest
from bridge.importers.listener import Silent
from bridge.report import Report, load
from bridge.scale.combined import CombinedReport
from bridge.scale.workers import WorkerOptions
from bridge.source import ReportInput, TimeRange, load_report, open_source
from bridge.store import StoredReport

OP = TableRequest("op")
ONE_WORKER = WorkerOptions(1)
IN_WINDOWS = WorkerOptions(memory=2**30)


class Heard(Silent):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def warn(self, lines) -> None:
        self.lines += lines


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_reports.small(tmp_path_factory.mktemp("door") / "small.sqlite")


@pytest.fixture(scope="module")
def db(path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with one run, of the whole report."""
    db = tmp_path_factory.mktemp("store") / "bridge.db"
    store.save(load(path), db, store.identity([path]), "", "")
    return db


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every report larger than a limit of memory."""
    monkeypatch.setattr(WorkerOptions, "larger", lambda self, *_, **__: bool(self.memory))


def rows_of(answer, request: TableRequest = OP) -> pd.DataFrame:
    return answer.table(answer.fitting(request)).to_pandas()


def test_rows_answer_where_nothing_else_is_asked_for(path, db):
    source = ReportInput((path,), db)
    assert type(open_source(source, OP)) is Report
    assert type(open_source(replace(source, workers=WorkerOptions(memory=2**40)), OP)) is Report
    assert type(open_source(replace(source, time_range=TimeRange(first=0)), OP)) is Report


def test_every_way_gives_the_same_table(path, db, windows):
    whole = rows_of(open_source(ReportInput((path,), db), OP))
    assert len(whole)
    for source, kind in (
        (ReportInput((path,), db, workers=ONE_WORKER), CombinedReport),
        (ReportInput((path,), db, workers=IN_WINDOWS), CombinedReport),
        (ReportInput((), db), StoredReport),
        (ReportInput((), db, time_range=TimeRange(first=0)), Report),
    ):
        answer = open_source(source, OP)
        assert type(answer) is kind
        pd.testing.assert_frame_equal(rows_of(answer), whole, check_dtype=False)


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (OP, StoredReport),
        (TableRequest("op", columns=("all",)), Report),
        (TableRequest("stream"), Report),
        (TableRequest("op-kernel", inclusive=True), Report),
    ],
)
def test_a_run_is_read_where_no_stored_table_is_the_one(db, request_, kind):
    assert type(open_source(ReportInput((), db), request_)) is kind


def test_a_run_joined_in_another_way_is_read(db):
    source = ReportInput((), db).attributed_by(raw=True)
    assert type(open_source(source, OP)) is Report


@pytest.mark.parametrize("workers", [ONE_WORKER, IN_WINDOWS])
@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"time_range": TimeRange(first=0, steps=(1, 2))}, "--from"),
        ({"ncu": (Path("k.ncu-rep"),)}, "--ncu"),
        ({"only": "gpu"}, "--only"),
    ],
)
def test_options_that_need_rows_are_refused_without_them(path, db, windows, workers, given, option):
    source = ReportInput((path,), db, workers=workers, **given)
    with pytest.raises(ValueError, match=rf"{option} needs the rows of reports"):
        open_source(source, OP)


def test_every_field_of_an_input_is_honoured_by_all_or_needs_rows():
    """Workers, windows and the store know nothing of a field that is in neither list: they would ignore it."""
    honoured = {"reports", "db", "run", "attribution", "sidecar", "workers"}
    needing = {"only": "gpu", "ncu": (Path("k"),), "time_range": TimeRange(first=0)}
    needing |= {"graph_annotations": (Path("a"),)}
    assert {field.name for field in fields(ReportInput)} == honoured | needing.keys()
    for name, value in needing.items():
        assert replace(ReportInput((), Path()), **{name: value}).needing_rows(OP)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (ReportInput((), Path("none.db"), workers=ONE_WORKER), "--workers goes with reports"),
        (ReportInput((Path("a"),), Path("none.db"), 1), "either report files or --run"),
        (ReportInput((), Path("none.db"), 1, sidecar=(Path("a"),)), "--sidecar goes with report"),
        (
            ReportInput((), Path("none.db"), graph_annotations=(Path("a"),)),
            "--graph-annotations goes",
        ),
        (ReportInput((), Path("none.db"), workers=IN_WINDOWS), "--memory-limit goes with report"),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_is_read(source, message):
    with pytest.raises(ValueError, match=message):
        load_report(source) if not source.workers.given else open_source(source, OP)


def test_the_default_table_is_that_of_kernels_where_there_are_no_ranges(tmp_path):
    path = made_reports.small(tmp_path / "small.sqlite", without="annotations")
    chosen, default = OP, replace(OP, is_default=True)
    answer = open_source(ReportInput((path,), tmp_path / "bridge.db"), default)
    assert answer.fitting(chosen).by == "op"
    assert answer.fitting(default).by == "kernel"


def test_the_listener_hears_the_warnings(tmp_path):
    path = made_reports.small(tmp_path / "small.sqlite", without="annotations")
    heard = Heard()
    open_source(ReportInput((path,), tmp_path / "bridge.db"), OP, heard)
    assert [line for line in heard.lines if "no NVTX ranges" in line]
