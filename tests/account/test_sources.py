"""Windows of time, workers and runs of the store give the run that the rows give."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from command import bridge, done
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_reports import PUSH_POP, Made, report, thread
from windowed.equal import both

from account.programs import LAST, collection, programs
from account.true import said, truth, without_idle_ones
from bridge import store
from bridge.analyze.run.account import Run, runs
from bridge.analyze.tables.request import TableRequest
from bridge.importers.errors import ReportError
from bridge.report import load
from bridge.scale.windows import aggregation
from bridge.scale.windows import window as part
from bridge.scale.workers import WorkerOptions
from bridge.source import ReportInput, load_report, open_source

pytestmark = pytest.mark.slow
freely = settings(suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


@given(programs(), st.lists(st.integers(-10, LAST + 40), min_size=1, max_size=4))
@freely
def test_windows_cut_anywhere(folder, program, cuts):
    """The witness is the plain loop; what one window adds up is what a worker makes of all rows."""
    path = folder / "made.sqlite"
    path.unlink(missing_ok=True)
    try:
        whole, apart = both(program.written(path), 0, at=cuts, tables=())
    except ReportError:  # nothing in it, or windows cannot tell
        return
    [found] = apart.use.runs
    assert found == whole.use.runs[0]
    true = truth(program.events, collection(program))
    assert without_idle_ones(said(found)) == without_idle_ones(true)


@settings(max_examples=5, suppress_health_check=list(HealthCheck))
@given(programs(), programs(pids=(7, 8)))
def test_workers(folder, one, other):
    paths = []
    for number, made in enumerate((one, other)):
        path = folder / f"{number}.sqlite"
        path.unlink(missing_ok=True)
        paths.append(made.written(path))
    try:
        apart = [load(path).use.runs for path in paths]
    except ReportError:
        return
    source = ReportInput(tuple(paths), folder / "bridge.db", workers=WorkerOptions(2, quiet=True))
    together = open_source(source, TableRequest.of("op")).use
    assert [bare(run) for run in together.runs] == [bare(run) for of in apart for run in of]


def bare(run: Run) -> Run:
    """Return a run with the names of its GPUs alone, without those of files."""
    gpus = tuple(replace(gpu, device=gpu.device.partition(" in ")[0]) for gpu in run.gpus)
    return replace(run, gpus=gpus)


@settings(max_examples=10, suppress_health_check=list(HealthCheck))
@given(programs())
def test_a_run_of_the_store(folder, program):
    path, db = folder / "stored.sqlite", folder / "bridge.db"
    for gone in (path, db):
        gone.unlink(missing_ok=True)
    program.written(path)
    try:
        expected = load(path)
    except ReportError:
        return
    done("import", path, "--db", db, "--quiet")
    assert runs(load_report(ReportInput((), db)).attributed) == expected.use.runs
    stored = store.load_stored_report(db, None)
    assert stored.use.runs == expected.use.runs
    assert stored.use.causes == expected.use.causes


def test_a_run_whose_work_lies_behind_the_collection(tmp_path):
    """It has no iterations and no work to pay for, only the host."""
    made = Made()
    made.tables["session"].clear()
    made.tables["session"].append({"duration": 30})
    made.annotation(PUSH_POP, 0, 20, text="a", thread=thread(1))
    made.kernel("gemm", 20, 25, 43, 50)
    path, db = made.written(tmp_path / "made.sqlite"), tmp_path / "bridge.db"
    assert load(path).summary.costs.in_each == ()
    done("import", path, "--db", db, "--quiet")
    assert store.load_stored_report(db, None).summary.costs == load(path).summary.costs


def test_the_commands_of_each_source(tmp_path, monkeypatch):
    """How busy the GPUs were is the same sentence, whoever has read the rows; windows and workers know no causes."""
    path, db = report(tmp_path / "made.sqlite", steps=4), tmp_path / "bridge.db"
    first = busy(done("report", path, "--by", "op"))
    assert "of the run, " in first
    assert busy(done("report", path, "--by", "op", "--workers", "2")) == first
    done("import", path, "--db", db, "--quiet")
    assert busy(done("report", "--db", db, "--by", "op")) == first
    for name, value in {"BASE": 0, "MANY": 0, "LEAST": 1, "PER_CALL": 0}.items():
        monkeypatch.setattr(part, name, value)
    for name in ("PER_NAME", "PER_NAME_OF_MANY"):
        monkeypatch.setattr(part, name, dict.fromkeys(part.PER_NAME, (0, 0)))
    monkeypatch.setattr(part, "memory_needed", lambda _path, _tables, **_: 2_500)  # three windows
    monkeypatch.setattr(aggregation, "peak_memory", lambda: 0)  # the tests' own process is larger
    windows = bridge("report", path, "--by", "op", "--memory-limit", "1KB")
    assert windows.exit_code == 0, windows.stderr
    assert busy(windows.stdout) == first


def busy(text: str) -> str:
    """Return how busy GPUs are said to be; not the cause of idle time, which windows do not know."""
    return " ".join(text.partition("→")[0].split()).partition(". Largest cause")[0].rstrip(".")
