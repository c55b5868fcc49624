"""The common tables of a run are answered without its rows, and are what the rows give, to the byte."""

from __future__ import annotations

import json
from pathlib import Path

import made_reports
import pytest
import real_parts
from command import bridge, done

from bridge import store
from bridge.analyze.tables.request import TableRequest
from bridge.cli.demo_report import make
from bridge.importers.nsys.write import Strings, write_export
from bridge.store.tables import SUMMARIES, open_store

FORMATS = ("json", "csv", "md", "table")


def from_rows(monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> tuple[str, str]:
    """Return what a command prints where no stored table answers."""
    with monkeypatch.context() as patch:
        patch.setattr(store, "load_stored_report", lambda *_: None)
        result = bridge(*words)
    assert result.exit_code == 0, result.stderr
    return result.stdout, result.stderr


def assert_alike(monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> None:
    result = bridge(*words)
    assert (result.stdout, result.stderr) == from_rows(monkeypatch, *words)


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    make(tmp_path / "demo.sqlite")
    done("import", tmp_path / "demo.sqlite", "--db", tmp_path / "bridge.db", "--quiet")
    return tmp_path / "bridge.db"


@pytest.mark.slow
@pytest.mark.parametrize("path", real_parts.corpus_reports("nsys/*.sqlite"))
def test_tables_of_real_reports(path, tmp_path, monkeypatch):
    if path.stem in ("failed-export", "no-kernels-osrt"):
        pytest.skip("nothing recorded in this file, by design")
    db = tmp_path / "bridge.db"
    done("import", path, "--db", db, "--quiet")
    answered = store.load_stored_report(db, None)
    assert answered is not None
    for by in SUMMARIES:
        assert answered.answers(TableRequest(by)) == (len(answered.tables[by]) > 0)
        for form in FORMATS:
            assert_alike(monkeypatch, "report", "--db", db, "--by", by, "--format", form)


@pytest.mark.parametrize(
    "words",
    [
        (), ("--top", "2"), ("--sort", "cpu_total"), ("--sort", "+calls", "--running"), ("--filter", "gpu>10us"),
        ("--filter", "op=*layer*", "--by", "op-kernel"), ("--unit", "ms"), ("--by", "kernel", "--sort", "median"),
    ],
)  # fmt: skip
def test_rows_are_selected_and_sorted_as_ever(words, stored, monkeypatch):
    assert_alike(monkeypatch, "report", "--db", stored, *words)
    assert_alike(monkeypatch, "report", "--db", stored, "--format", "json", *words)


@pytest.mark.parametrize(
    "words",
    [
        ("--columns", "all"), ("--columns", "calls"), ("--sort", "gpu_p99"), ("--by", "stream"), ("--by", "op,shape"),
        ("--direction", "forward"), ("--kernel-names", "demangled", "--by", "kernel"), ("--inclusive", "--by", "op-kernel"),
        ("--memory-kinds", "--by", "memcpy"), ("--names", "raw"), ("--adopt",), ("--from", "0"), ("--domain", "all"),
    ],
)  # fmt: skip
def test_anything_else_is_answered_from_rows(words, stored, monkeypatch):
    """The table of operators would be another one, or would lack a column."""
    read = []
    load = store.load
    monkeypatch.setattr(
        store, "load", lambda *args, **more: read.append(args) or load(*args, **more)
    )
    assert_alike(monkeypatch, "report", "--db", stored, *words)
    assert len(read) == 2
    done("report", "--db", stored)
    assert len(read) == 2


def test_defects_and_warnings_of_the_report_are_printed(tmp_path, monkeypatch):
    """Of a kernel that ends before it starts: counted with 0 ns, and the user reads so."""
    path, db, strings = tmp_path / "r.sqlite", tmp_path / "bridge.db", Strings()
    kernel = {
        "start": 9, "end": 5, "device": 0, "context": 1, "stream": 7, "correlation": 1, "process": 1 << 24,
        "name": strings("k"), "full_name": strings("k"),
    }  # fmt: skip
    write_export(path, {"kernels": [kernel], "strings": strings.rows()})
    done("import", path, "--db", db, "--quiet")
    assert "end before they start" in bridge("report", "--db", db, "--by", "kernel").stderr
    assert_alike(monkeypatch, "report", "--db", db, "--by", "kernel")
    assert_alike(monkeypatch, "report", "--db", db)  # without ranges, the table of kernels


def test_a_run_without_a_checksum_is_read_from_its_rows(stored, monkeypatch):
    """An older version wrote it, without what is printed beside a table."""
    made_reports.changed(stored, *made_reports.UNSEALED)
    answered = store.load_stored_report(stored, None)
    assert answered is not None
    assert not answered.answers(TableRequest("op"))
    assert_alike(monkeypatch, "report", "--db", stored)


@pytest.mark.slow
@pytest.mark.parametrize("words", [("--filter", "calls>2"), ("--sort", "gpu", "--running")])
def test_a_table_without_rows_is_answered_from_rows(words, corpus, tmp_path, monkeypatch):
    """Its columns have no types in the store."""
    db = tmp_path / "bridge.db"
    done("import", corpus / "nsys" / "simplex-streams.sqlite", "--db", db, "--quiet")
    assert_alike(monkeypatch, "report", "--db", db, "--by", "op", *words)


def test_a_changed_table_is_refused(stored):
    made_reports.changed(stored, "UPDATE op_summary SET calls = calls + 1 WHERE rowid = 1")
    refused = bridge("report", "--db", stored)
    assert refused.exit_code == 1
    assert "run 1 is damaged" in refused.stderr
    assert "runs rm 1" in refused.stderr


def test_what_stands_beside_a_table_is_in_the_summary(stored):
    with open_store(stored) as database:
        [(summary,)] = database.execute("SELECT summary FROM runs").fetchall()
    assert json.loads(summary)["notes"] == {"warnings": [], "cycles": None}
