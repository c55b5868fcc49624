"""A run of aggregates in the store: made, shown, refused where rows are needed; broken reports and odd requests."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from command import assert_misused, assert_refused, bridge, done, table_in
from made_reports import changed

import bridge as library
from bridge import store
from bridge.importers.errors import ReportError
from bridge.scale.loading import expand_paths
from fleet.reports import several

pytestmark = pytest.mark.usefixtures("read_once")


@pytest.fixture
def run(folder: Path) -> Path:
    """Work in a folder with three reports."""
    several(folder, 3)
    return folder


@pytest.fixture(scope="module")
def with_a_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with three reports and a store in which they are a run, to read from."""
    folder = tmp_path_factory.mktemp("with a run")
    several(folder, 3)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        imported("--db", "bridge.db")
    return folder


@pytest.fixture
def stored(with_a_run: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in that folder."""
    monkeypatch.chdir(with_a_run)
    return with_a_run


def imported(*words: str | Path) -> str:
    return done("import", "node*/*.sqlite", "--workers", 1, "-q", *words)


@pytest.mark.slow
def test_a_run_of_aggregates_is_asked_as_the_reports_are(stored):
    for by in (
        "op",
        "op-kernel",
        "kernel",
        "memcpy",
        "report,op",
        "op,report",
        "op,kernel",
        "stream",
    ):
        command = ("report", "--by", by, "--format", "json")
        assert done(*command) == done(*command, "node*/*.sqlite")
    command = ("report", "--by", "memcpy", "--memory-kinds", "--format", "csv")
    assert done(*command) == done(*command, "node*/*.sqlite")


@pytest.mark.slow
def test_it_prints_what_an_import_prints(run):
    rows = done("import", "node*/*.sqlite")
    apart = done("import", "node*/*.sqlite", "--workers", 1)
    kernels = rows[rows.index("\nop ") :]  # behind the ranks, which aggregates do not know
    assert table_in(apart) == table_in(kernels.partition("capture quality")[0])
    assert apart.splitlines()[:3] == rows.splitlines()[:3]  # busy shares of GPUs
    assert done("runs", "show", 2).endswith(apart)
    assert "(aggregates)" in done("runs", "list").splitlines()[1]


@pytest.mark.slow
def test_the_summaries_are_there_for_people(stored):
    with closing(sqlite3.connect("bridge.db")) as db:
        count = db.execute("SELECT sum(count) FROM op_kernel_summary WHERE run = 1").fetchone()[0]
        assert db.execute("SELECT count(*) FROM activities").fetchone() == (0,)
    assert count == library.load(*sorted(stored.rglob("*.sqlite"))).by("op-kernel")["count"].sum()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attack", "said"),
    [
        ("UPDATE aggregates SET report = 9 WHERE report = 0", "no table 'op' is kept"),
        ("UPDATE aggregates SET data = x'00' WHERE report = 0", "damaged aggregates"),
        ("UPDATE aggregates SET data = NULL WHERE report = 0", "damaged aggregates"),
    ],
    ids=["of another report", "cut", "none"],
)
def test_a_table_of_a_report_that_somebody_changed_is_no_other_figure(
    stored, attack, said, tmp_path
):
    db = tmp_path / "changed.db"
    shutil.copy(stored / "bridge.db", db)
    changed(db, attack)
    refused = bridge("report", "--db", db, "--by", "op")
    assert refused.exit_code
    assert not refused.stdout
    assert said in refused.stderr


@pytest.mark.slow
def test_what_needs_rows_says_so(stored):
    for words in (
        ("trace", "-o", "x.json"),
        ("why", "--kernel", "x"),
        ("doctor", "--run", "1"),
        ("diff", "1", "1"),
    ):
        result = bridge(*words)
        if result.exit_code == 1:
            assert "holds aggregates of 3 reports" in result.stderr
            assert "give the reports themselves" in result.stderr
    assert_refused(
        bridge("doctor", "--run", "1"), "holds aggregates of 3 reports", "the reports themselves"
    )
    assert_misused(bridge("report", "--by", "gap"), "--by gap needs all rows at once")
    assert_misused(bridge("report", "--by", "op,thread"), "no table 'op,thread' is kept", "--keep")
    assert_misused(bridge("report", "--columns", "causes"), "bound")
    assert_misused(bridge("report", "--columns", "host"), "no host_ns is kept")
    assert_misused(bridge("report", "--from", "1ms"), "--from needs the rows of run 1")
    assert_misused(bridge("report", "--names", "raw"), "run 1 of bridge.db", "in no other way")


@pytest.mark.slow
def test_a_table_is_kept_that_is_asked_for(run):
    imported("--keep", "thread,op")
    found = done("report", "--by", "op,thread", "--format", "csv")
    assert found == done("report", "node*/*.sqlite", "--by", "op,thread", "--format", "csv")
    assert_misused(bridge("import", "node*/*.sqlite", "--workers", 1, "--keep", "gap"), "--keep")


@pytest.mark.slow
def test_the_same_is_stored_once_and_beside_the_rows(run):
    imported()
    assert "already imported as run 1" in bridge("import", "node*/*.sqlite", "--workers", 1).stderr
    imported("--keep", "op,thread")
    done("import", "node*/*.sqlite", "-q")
    assert [bool(one.tables) for one in store.list_runs(Path("bridge.db"))] == [True, True, False]
    done("runs", "rm", 1)
    with closing(sqlite3.connect("bridge.db")) as db:
        assert db.execute("SELECT DISTINCT run FROM aggregates").fetchall() == [(2,)]


def broken(run: Path) -> Path:
    path = run / "node0" / "bad.sqlite"
    path.write_bytes((run / "node0" / "rank0.sqlite").read_bytes()[:5000])
    return path


@pytest.mark.slow
def test_a_broken_report_is_named_and_the_others_go_on(run):
    broken(run)
    result = bridge("report", "node*/*.sqlite", "--workers", 1, "--format", "json")
    assert result.exit_code == 0
    assert result.stdout == done("report", "node*/rank*.sqlite", "--format", "json")
    [line] = [line for line in result.stderr.splitlines() if line.startswith("broken: ")]
    assert "bad.sqlite: " in line
    assert "1 of 4 reports left out: they cannot be read" in result.stderr


@pytest.mark.slow
def test_strict_stops_and_stores_nothing(run):
    broken(run)
    result = bridge("import", "node*/*.sqlite", "--workers", 2, "--strict")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].startswith("Error: bad.sqlite: ")
    assert not (run / "bridge.db").exists()


@pytest.mark.slow
def test_all_broken_is_an_error(run):
    path = broken(run)
    result = bridge("import", path, "--workers", 1)
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == "Error: none of 1 reports could be read"
    assert not (run / "bridge.db").exists()


@pytest.mark.slow
def test_odd_requests_are_refused(run):
    one = "node0/rank0.sqlite"
    assert_misused(bridge("report", one, "--workers", "x"), "tcp://host:port")
    assert_misused(bridge("report", one, "--workers", 0), "from 1 on")
    assert_misused(bridge("report", one, "--strict"), "--strict goes with --workers")
    assert_misused(bridge("report", "--workers", 1), "name them")
    assert_misused(bridge("import", one, "--keep", "op,thread"), "--keep goes with --workers")
    assert_misused(bridge("import", one, "--workers", 1, "--ncu", one), "--ncu")
    assert_misused(
        bridge("report", one, "--workers", 1, "--by", "range"), "--by range needs all rows"
    )
    assert_misused(bridge("report", one, "--workers", 1, "--columns", "flops"), "no flop")
    assert_misused(bridge("report", one, "--workers", 1, "--step", "1"), "--step needs the rows")
    assert_misused(bridge("report", one, "--workers", 1, "--domain", "none"), "'none' in any")
    assert_refused(bridge("report", one, one, "--workers", 1), "given twice")
    Path("link.sqlite").symlink_to(one)
    assert_refused(bridge("report", one, "link.sqlite", "--workers", 1), "given twice")


def test_patterns_and_folders(run):
    names = [path.relative_to(run).as_posix() for path in expand_paths([run / "node*/*.sqlite"])]
    assert names == sorted(names)
    assert len(names) == 3
    assert expand_paths([run / "node0", run / "node1"]) == expand_paths([run / "*" / "*.sqlite"])
    assert expand_paths([run / "**/rank0.sqlite"]) == sorted(run.rglob("rank0.sqlite"))
    odd = run / "a[1].sqlite"
    shutil.copy(run / "node0/rank0.sqlite", odd)
    (run / "a1.nsys-rep").touch()
    (run / "a[1].nsys-rep").touch()
    assert expand_paths([odd]) == [odd]
    assert expand_paths([run]) == [run / "a1.nsys-rep", odd]
    assert expand_paths([run / "none*"]) == [run / "none*"]
    assert_refused(bridge("report", "none*"), "none*", "no such file")
    assert "broken: " in bridge("report", "none*", "--workers", 1).stderr


def test_a_pattern_and_a_folder_mean_files_in_order_of_their_names(tmp_path):
    """Whatever order a file system lists them in: made in none, so that few list them by name."""
    names = [f"{(7 * n) % 40:02}.sqlite" for n in range(40)]
    for name in names:
        (tmp_path / name).touch()
    in_order = [tmp_path / name for name in sorted(names)]
    assert expand_paths([tmp_path / "*.sqlite"]) == expand_paths([tmp_path]) == in_order


@pytest.mark.slow
def test_a_program_asks_for_aggregates(run):
    from bridge import scale

    found = scale.load("node*/*.sqlite", by="op,thread", workers=1)
    one = library.load(*sorted(run.rglob("*.sqlite")))
    assert found.by("op,thread").equals(one.by("op,thread"))
    assert found.totals == one.totals
    with pytest.raises(ReportError, match=r"bad\.sqlite"):
        scale.load(broken(run), "node1", workers=1)
    told = []
    scale.load("node0", workers=1, broken=told.append)
    assert [one.path.name for one in told] == ["bad.sqlite"]


@pytest.mark.slow
@pytest.mark.racy("several processes write one store")
def test_imports_at_once_lose_nothing(run):
    command = [sys.executable, "-m", "bridge", "import", "--workers", "1", "-q"]
    files = sorted(run.rglob("*.sqlite"))
    running = [subprocess.Popen([*command, file], stderr=subprocess.PIPE) for file in files]
    for process in running:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said.decode()
    db = Path("bridge.db")
    assert sorted(one.source for one in store.list_runs(db)) == sorted((f.name,) for f in files)
    for one in store.list_runs(db):
        found = store.load_aggregates(db, one.id)
        assert found is not None
        assert found.totals["activities"] == one.activities


@pytest.mark.slow
@pytest.mark.racy("processes are killed while others wait for them")
def test_an_import_killed_while_it_stores_leaves_a_store_that_opens(run):
    imported("--name", "first")
    program = (
        "import os, signal\nfrom bridge.store import aggregates\nreal = aggregates.summaries\n"
        "aggregates.summaries = lambda *a: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from bridge.cli import main\nmain(['import', 'node0', '--workers', '1'])"
    )
    killed = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert [one.name for one in store.list_runs(Path("bridge.db"))] == ["first"]
    imported("--keep", "op,thread")
    assert len(store.list_runs(Path("bridge.db"))) == 2
    with closing(sqlite3.connect("bridge.db")) as db:
        assert db.execute("SELECT DISTINCT run FROM reports").fetchall() == [(1,), (2,)]


@pytest.mark.slow
def test_paths_tell_ranks_as_they_are_given(run):
    command = ("report", "--by", "rank", "--rank-from", r"^node(\d)", "--format", "csv")
    found = done(*command, "node*/*.sqlite", "--workers", 1)
    assert found == done(*command, "node*/*.sqlite")


@pytest.mark.slow
def test_a_run_that_lacks_a_report_is_another(run):
    bad = broken(run)
    imported()
    bad.unlink()
    imported()
    assert [one.id for one in store.list_runs(Path("bridge.db"))] == [1, 2]


@pytest.mark.slow
def test_reports_called_alike_keep_their_places(run):
    for n, folder in enumerate(("a", "b", "c")):
        Path(folder).mkdir()
        shutil.copy(sorted(run.glob("node*/*.sqlite"))[n], Path(folder) / "r.sqlite")
    Path("b/r.sqlite").write_bytes(b"")
    result = bridge("report", "?/r.sqlite", "--by", "report", "--format", "csv", "--workers", 1)
    assert [row.split(",")[0] for row in result.stdout.splitlines()[1:]] != []
    assert {row.split(",")[0] for row in result.stdout.splitlines()[1:]} == {
        "r.sqlite (1)",
        "r.sqlite (3)",
    }
    assert f"broken: {run / 'b'}: r.sqlite: empty" in result.stderr


@pytest.mark.slow
def test_two_of_one_rank_are_said(run):
    """Of all reports are two in node0, one in node1."""
    command = ("report", "node*/*.sqlite", "--by", "rank", "--rank-from", r"node(\d)")
    whole = [x for x in bridge(*command).stderr.splitlines() if "is both" in x]
    apart = [x for x in bridge(*command, "--workers", 1).stderr.splitlines() if "is both" in x]
    assert whole == apart
    assert len(whole) == 1
    done("import", "node*/*.sqlite", "-q", "--rank-from", r"node(\d)", "--workers", 1)
    assert "is both" in bridge("report", "--by", "rank").stderr
    assert "is both" not in bridge("report", "--by", "op").stderr


@pytest.mark.slow
def test_a_recording_of_one_report_stops_the_others(run):
    """As in one process: what is given with --sidecar has to fit."""
    Path("bridge-1.jsonl").write_text("{}\n")
    command = ("import", "node*/*.sqlite", "--sidecar", "bridge-1.jsonl")
    assert bridge(*command).exit_code == 1
    assert bridge(*command, "--workers", 1).exit_code == 1
    assert not Path("bridge.db").exists()
