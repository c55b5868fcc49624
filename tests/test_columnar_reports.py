"""Folders of tables as reports of every command: given by name, in a folder, by a pattern, in the store."""

import json
import re
from pathlib import Path

import columnar
import pytest
from command import assert_refused, bridge, done, listing

from bridge.cli import completion
from bridge.importers.column_files import FOLDERS
from bridge.importers.identity import identity
from bridge.importers.recording.read import has_candidates
from bridge.scale.loading import expand_paths


@pytest.fixture
def here(two_steps, tmp_path, monkeypatch):
    """Give a working directory that has one capture as two folders and a file."""
    tables = columnar.tables_of(two_steps)
    columnar.as_arrowdir(tables, tmp_path / "run_arwdir")
    columnar.as_parquetdir(tables, tmp_path / "other_pqtdir")
    columnar.as_arrows(tables, tmp_path / "third.arrows")
    monkeypatch.chdir(tmp_path)
    return tmp_path


NAMES = ["run_arwdir", "other_pqtdir", "third.arrows"]


def document(*words):
    """Give what a command prints as JSON, without the names of files."""
    return {k: v for k, v in json.loads(done(*words, "--format", "json")).items() if k != "source"}


@pytest.mark.parametrize("name", [*NAMES, "run_arwdir/", "./run_arwdir"])
def test_a_report_prints_what_that_of_sqlite_prints(here, two_steps, name):
    before = listing(here)
    for view in ("op", "kernel", "op,shape", "wait"):
        assert document("report", name, "--by", view) == document("report", two_steps, "--by", view)
    assert listing(here) == before


def test_the_folder_that_one_is_in_has_a_name(here, monkeypatch):
    monkeypatch.chdir(here / "run_arwdir")
    printed = json.loads(done("report", ".", "--by", "op", "--format", "json"))
    assert printed["source"] == ["run_arwdir"]


def test_a_folder_is_imported_once(here):
    """It is known by the contents and the names of its tables, not by its own name."""
    done("import", "run_arwdir")
    again = bridge("import", "run_arwdir/")
    assert "already imported as run 1" in again.stderr
    (here / "run_arwdir").rename(here / "moved")
    assert "where they are called run_arwdir" in bridge("import", "moved").stderr
    (here / "moved" / "PROCESSES.arrow").unlink()
    assert "already" not in bridge("import", "moved").stderr


def test_what_a_folder_is_known_by_is_in_its_tables(here):
    folder = here / "run_arwdir"
    known, whole = identity([folder]), identity([folder], whole=True)
    assert re.fullmatch(r"all:\d+:[0-9a-f]{32}", known)
    assert known == whole
    (folder / "notes.txt").write_text("not of the export")
    assert identity([folder]) == known
    (folder / "StringIds.arrow").rename(folder / "strings.arrow")
    assert identity([folder]) != known


def test_a_large_table_is_known_by_its_sampled_pages(here):
    with (here / "run_arwdir" / "NVTX_EVENTS.arrow").open("ab") as file:
        file.truncate(4 << 20)
    assert identity([here / "run_arwdir"]).startswith("pages:")
    assert identity([here / "run_arwdir"], whole=True).startswith("all:")


def test_folders_and_patterns_find_folders_of_tables(here, two_steps):
    names = [path.name for path in expand_paths([here])]
    assert names == ["other_pqtdir", "run_arwdir", "third.arrows"]
    (here / "run.sqlite").write_bytes(two_steps.read_bytes())  # the same capture: counted once
    assert [path.name for path in expand_paths([here])] == [
        "other_pqtdir",
        "run.sqlite",
        "third.arrows",
    ]
    assert [path.name for path in expand_paths(["*"])] == [
        "other_pqtdir",
        "run.sqlite",
        "run_arwdir",
        "third.arrows",
    ]
    assert [path.name for path in expand_paths(["**/*dir*"])] == ["other_pqtdir", "run_arwdir"]
    assert [path.name for path in expand_paths(["**/*"])] == [
        path.name for path in expand_paths(["*"])
    ]
    assert expand_paths(["run_arwdir"]) == [Path("run_arwdir")]


def test_workers_read_folders(here, two_steps):
    whole = document("report", two_steps, "--by", "op")
    totals = document("report", *NAMES, "--by", "op", "--workers", "1")["totals"]
    assert totals["gpu_ns"] == len(NAMES) * whole["totals"]["gpu_ns"]


def test_what_only_sqlite_can_do_says_so(here):
    words = (
        "run_arwdir: larger than --memory-limit, and only SQLite exports of Nsight Systems can be read in windows",
    )
    assert_refused(bridge("report", "run_arwdir", "--memory-limit", "1KB"), *words)
    done("report", "run_arwdir", "--memory-limit", "1GB")
    for name in NAMES:
        refused = bridge("scrub", name, "out.sqlite")
        assert_refused(
            refused, f"{name}: an export as Arrow or Parquet", "nsys export --type sqlite"
        )
    assert not (here / "out.sqlite").exists()


def test_recordings_beside_a_folder_are_its_own(here):
    assert not has_candidates(here / "run_arwdir")
    recordings = here / "run.recordings"
    recordings.mkdir()
    (recordings / "bridge-1.jsonl").write_text("")
    assert has_candidates(here / "run_arwdir")
    assert not has_candidates(here / "other_pqtdir")


def test_the_shell_completes_folders_of_tables(here):
    found = completion.reports(None, None, "")
    assert [item.value for item in found] == ["other_pqtdir", "run_arwdir", "third.arrows"]
    assert completion.report_names(here) == ["other_pqtdir", "run_arwdir", "third.arrows"]
    assert completion.FOLDERS == FOLDERS


def test_a_misspelt_folder_is_suggested(here):
    refused = bridge("report", "run_arwdirr")
    assert "run_arwdir" in refused.stderr.replace("run_arwdirr", "")
