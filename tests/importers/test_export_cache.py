"""Exports that are kept: each report is exported once, and nothing that is not as it was written is read."""

import errno
import fcntl
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import columnar
import made_reports
import pytest
from command import assert_refused, bridge, done
from nsys_stand_in import calls, offer, with_settings
from test_columnar import assert_equal

from bridge import importers
from bridge.importers.listener import Silent
from bridge.importers.nsys import export_cache, schema

pytestmark = pytest.mark.slow  # it starts programs

OLD = "2022.4"  # offers no folders of Arrow


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Keep exports in a folder of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("BRIDGE_CACHE")
    return tmp_path / "cache" / "nsight-bridge" / "exports"


@pytest.fixture
def sqlite_alone(made_nsys, exported_settings):
    """Let the nsys export SQLite alone; give that export."""
    offer(made_nsys, "unknown")
    return exported_settings


@pytest.fixture
def arrow_folder(made_nsys, exported_settings):
    """Let the nsys export a folder of Arrow; give the same as SQLite."""
    offer(made_nsys, "2023.4")
    columnar.as_arrowdir(columnar.tables_of(exported_settings), made_nsys / "arrowdir")
    return exported_settings


def export_of(cache):
    """Give the one export that is kept."""
    [entry] = cache.iterdir()
    return entry / "export"


def nothing_under_way(cache):
    return not [path for path in cache.iterdir() if path.name.startswith(".")]


# -- kept


@pytest.mark.parametrize("form", ["sqlite_alone", "arrow_folder"])
def test_a_report_is_exported_once(form, request, cache, made_nsys, nsys_rep):
    expected = importers.load(request.getfixturevalue(form))
    for _ in range(3):
        assert_equal(importers.load(nsys_rep), expected)
    assert len(calls(made_nsys)) == 1
    assert nothing_under_way(cache)


def test_a_report_is_known_by_its_contents(cache, made_nsys, nsys_rep, sqlite_alone):
    importers.load(nsys_rep)
    other = nsys_rep.with_name("again.nsys-rep")
    shutil.copy(nsys_rep, other)
    assert importers.load(other).source == ("again.nsys-rep",)
    assert calls(made_nsys) == ["sqlite"]
    other.write_bytes(b"recorded anew")
    importers.load(other)
    assert calls(made_nsys) == ["sqlite"] * 2


def test_what_another_nsys_wrote_is_not_read(cache, made_nsys, nsys_rep, sqlite_alone):
    importers.load(nsys_rep)
    os.utime(made_nsys / "nsys", (1, 1))  # as if it was replaced
    importers.load(nsys_rep)
    assert calls(made_nsys) == ["sqlite"] * 2
    assert len([*cache.iterdir()]) == 1


def test_a_kept_export_needs_no_nsys(
    cache, made_nsys, nsys_rep, sqlite_alone, monkeypatch, tmp_path
):
    importers.load(nsys_rep)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert importers.load(nsys_rep).source == ("report.nsys-rep",)


def test_whoever_needs_sqlite_gets_it_and_keeps_it(cache, made_nsys, nsys_rep, arrow_folder):
    importers.load(nsys_rep)
    for _ in range(2):
        made = export_cache.read_export(
            nsys_rep, lambda it: (it.name, it.read_bytes()), ("sqlite",)
        )
        assert made == ("report.nsys-rep", arrow_folder.read_bytes())
    assert calls(made_nsys) == ["arrowdir", "sqlite"]


# -- never believed


def cut(made):
    os.truncate(made, made.stat().st_size // 2)


def alter(made):
    """Change a byte and set the time of the contents back."""
    before, data = made.stat(), bytearray(made.read_bytes())
    data[-1] ^= 1
    made.write_bytes(data)
    os.utime(made, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace(made):
    other = made_reports.small(made.parent / "other")
    shutil.move(other, made)


def link(made):
    target = made.parent.parent.parent / "elsewhere"
    shutil.move(made, target)
    made.symlink_to(target)


def forget(made):
    (made.parent / "entry.json").unlink()


def scribble(made):
    (made.parent / "entry.json").write_text("{")


def rename(made):
    """Say that the export is that of another report."""
    said = json.loads((made.parent / "entry.json").read_text())
    said["name"] = "0" * 64 + ".sqlite"
    (made.parent / "entry.json").write_text(json.dumps(said))


@pytest.mark.parametrize("damage", [cut, alter, replace, link, forget, scribble, rename])
def test_an_entry_that_is_not_as_it_was_written_is_replaced(
    damage, cache, made_nsys, nsys_rep, sqlite_alone
):
    expected = importers.load(nsys_rep)
    damage(export_of(cache))
    for _ in range(2):
        assert_equal(importers.load(nsys_rep), expected)
    assert calls(made_nsys) == ["sqlite"] * 2
    assert export_of(cache).read_bytes() == sqlite_alone.read_bytes()


def test_a_table_that_is_added_to_a_folder_is_not_read(cache, made_nsys, nsys_rep, arrow_folder):
    importers.load(nsys_rep)
    shutil.copy(made_nsys / "arrowdir" / "StringIds.arrow", export_of(cache) / "MORE.arrow")
    importers.load(nsys_rep)
    assert calls(made_nsys) == ["arrowdir"] * 2
    assert not (export_of(cache) / "MORE.arrow").exists()


def test_what_cannot_be_read_is_not_kept(cache, made_nsys, nsys_rep, exported_settings):
    offer(made_nsys, OLD)
    (made_nsys / "arrow").write_bytes(b"\xff\xff\xff\xff and more")
    for _ in range(2):
        importers.load(nsys_rep)
    assert calls(made_nsys) == ["arrow", "sqlite"]
    assert export_of(cache).parent.suffix == ".sqlite"


def test_a_folder_that_others_can_write_to_is_not_used(cache, made_nsys, nsys_rep, sqlite_alone):
    importers.load(nsys_rep)
    cache.chmod(0o777)
    importers.load(nsys_rep)
    assert calls(made_nsys) == ["sqlite"] * 2


@pytest.mark.parametrize("base", ["a-file", "relative"])
def test_without_a_cache_it_works_as_before(
    base, cache, made_nsys, nsys_rep, sqlite_alone, monkeypatch
):
    nsys_rep.with_name("a-file").touch()
    monkeypatch.chdir(nsys_rep.parent)
    monkeypatch.setenv(
        "XDG_CACHE_HOME", str(nsys_rep.with_name(base)) if base == "a-file" else base
    )
    monkeypatch.setenv("HOME", str(nsys_rep.parent))
    importers.load(nsys_rep)
    assert calls(made_nsys) == ["sqlite"]
    assert not Path("relative").exists()


# -- room


def report_of(text, folder):
    path = folder / f"{text}.nsys-rep"
    path.write_text(text)
    return path


def test_the_one_that_was_not_read_for_longest_goes_first(
    cache, made_nsys, tmp_path, sqlite_alone, monkeypatch
):
    monkeypatch.setenv("BRIDGE_CACHE_LIMIT", str(2.5 * sqlite_alone.stat().st_size / 2**30))
    one, two, three = (report_of(text, tmp_path) for text in ("one", "two", "three"))
    for path in (one, two, one, three):
        importers.load(path)
        time.sleep(0.02)  # the time of the last reading is that of a file
    assert [entry.report for entry in export_cache.entries()] == ["three.nsys-rep", "one.nsys-rep"]


def test_what_is_being_read_stays(cache, made_nsys, tmp_path, nsys_rep, sqlite_alone, monkeypatch):
    importers.load(nsys_rep)
    monkeypatch.setenv("BRIDGE_CACHE_LIMIT", str(1.5 * sqlite_alone.stat().st_size / 2**30))

    def read(made):
        importers.load(report_of("other", tmp_path))
        export_cache.clear()
        assert made.read_bytes() == sqlite_alone.read_bytes()

    export_cache.read_export(nsys_rep, read)
    export_cache.clear()
    assert not [*cache.iterdir()]


def test_an_export_above_the_limit_is_read_and_not_kept(
    cache, made_nsys, nsys_rep, sqlite_alone, monkeypatch
):
    monkeypatch.setenv("BRIDGE_CACHE_LIMIT", "1e-6")
    importers.load(nsys_rep)
    assert not [*cache.iterdir()]


def test_what_killed_commands_left_is_removed(cache, made_nsys, nsys_rep, sqlite_alone):
    cache.mkdir(parents=True, mode=0o700)
    (cache / ".draft-left").mkdir()
    (cache / "not-ours").mkdir()
    with export_cache._draft(cache) as in_the_making:
        importers.load(nsys_rep)
        export_cache.clear()
        left = {path.name for path in cache.iterdir()}
        assert left == {in_the_making.name, "not-ours"}


@pytest.mark.parametrize("error", [errno.ENOLCK, errno.ENOTSUP])
def test_a_file_system_without_locks_keeps_exports(
    error, cache, made_nsys, nsys_rep, sqlite_alone, monkeypatch
):
    def no_locks(*_):
        raise OSError(error, "no locks")

    monkeypatch.setattr(export_cache.fcntl, "flock", no_locks)
    for _ in range(2):
        importers.load(nsys_rep)
    assert calls(made_nsys) == ["sqlite"]


def test_a_report_that_is_replaced_meanwhile_is_not_kept(cache, made_nsys, nsys_rep, sqlite_alone):
    def read(_):
        nsys_rep.write_bytes(b"recorded anew")

    export_cache.read_export(nsys_rep, read)
    assert not [*cache.iterdir()]


def test_what_is_exported_is_kept_though_its_reader_stops(cache, made_nsys, nsys_rep, sqlite_alone):
    def read(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_cache.read_export(nsys_rep, read)
    importers.load(nsys_rep)
    assert calls(made_nsys) == ["sqlite"]


def test_a_folder_that_is_being_removed_is_exported_anew(cache, made_nsys, nsys_rep, sqlite_alone):
    importers.load(nsys_rep)
    [entry] = cache.iterdir()
    with export_cache._locked(entry, fcntl.LOCK_EX):
        importers.load(nsys_rep)
    assert calls(made_nsys) == ["sqlite"] * 2


# -- while nsys works

SLOW = """#!{python}
import os, sys, time
from pathlib import Path
if "--help" in sys.argv: sys.exit()
Path(sys.argv[sys.argv.index("--output") + 1]).write_text("half")
print("Exporting 9 events: [===  50%", end="", flush=True)
Path({mark!r}).write_text(str(os.getpid()))
time.sleep(60)
"""


@pytest.fixture
def slow(cache, made_nsys, tmp_path):
    """Let nsys take a minute; give the file that then says its process."""
    mark = tmp_path / "begun"
    (made_nsys / "nsys").write_text(SLOW.format(python=sys.executable, mark=str(mark)))
    return mark


def assert_nothing_left(cache, mark):
    assert not [*cache.iterdir()]
    process = int(mark.read_text())
    for _ in range(50):
        if not Path(f"/proc/{process}").exists():
            return
        time.sleep(0.1)
    pytest.fail("nsys still runs")


def test_ctrl_c_leaves_nothing(slow, cache, nsys_rep):
    command = [sys.executable, "-m", "bridge", "report", str(nsys_rep)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while not slow.exists():
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode != 0
    assert "Traceback" not in said
    assert_nothing_left(cache, slow)


def test_a_time_limit_says_how_far_nsys_was(slow, cache, nsys_rep, folder):
    result = bridge("report", nsys_rep, "--timeout", "2s")
    assert "while exporting report.nsys-rep with nsys: 50 %" in result.stderr
    assert_nothing_left(cache, slow)


# -- beside the report


class Heard(Silent):
    def __init__(self):
        self.lines = []

    def say(self, line):
        self.lines.append(line)


SAID = {
    "EXPORT_PARAM_INPUT_FILE": "report.nsys-rep",
    "EXPORT_PARAM_TABLES_TO_EXPORT": "",
    "EXPORT_PARAM_TIMES_TO_EXPORT": "",
    "EXPORT_PARAM_TIME_NORMALIZE": "false",
    "EXPORT_PARAM_TIME_SHIFT": "0",
    "EXPORT_TIME": "0.03 sec",
}


def left_beside(nsys_rep, **said):
    """Write an export beside a report as nsys does; ``said`` are settings of it, without EXPORT_."""
    nsys_rep.with_suffix(".sqlite").unlink(missing_ok=True)
    path = with_settings(nsys_rep.with_suffix(".sqlite"))
    rows = {**SAID, **{f"EXPORT_{name}": value for name, value in said.items()}}
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany(
            f'INSERT INTO "{schema.VERSIONS[0].name}" VALUES (?, ?)',
            [row for row in rows.items() if row[1] is not None],
        )
    return path


def test_an_export_that_nsys_left_is_read_and_said(cache, made_nsys, nsys_rep, sqlite_alone):
    left_beside(nsys_rep)
    listener = Heard()
    assert_equal(importers.load(nsys_rep, listener=listener), importers.load(sqlite_alone))
    assert not (made_nsys / "calls").exists()
    assert listener.lines == [
        "report.nsys-rep: read from report.sqlite, an export that nsys left beside it"
    ]


@pytest.mark.parametrize(
    "said",
    [
        {"PARAM_TABLES_TO_EXPORT": "NVTX.*"},
        {"PARAM_TIMES_TO_EXPORT": "1s/2s"},
        {"PARAM_TIME_NORMALIZE": "true"},
        {"PARAM_TIME_SHIFT": "17"},
        {"PARAM_INPUT_FILE": "other.nsys-rep"},
        {"PARAM_INPUT_FILE": None},
        {"TIME": None},
    ],
    ids=str,
)
def test_one_of_a_part_or_of_another_report_is_not(said, cache, made_nsys, nsys_rep, sqlite_alone):
    left_beside(nsys_rep, **said)
    importers.load(nsys_rep)
    assert calls(made_nsys) == ["sqlite"]


def test_one_that_is_older_cut_or_no_export_is_not(cache, made_nsys, nsys_rep, sqlite_alone):
    beside = left_beside(nsys_rep)
    os.utime(beside, (1, 1))
    importers.load(nsys_rep)
    assert calls(made_nsys) == ["sqlite"]
    for spoil in (cut, lambda path: path.write_text("notes"), lambda path: path.write_bytes(b"")):
        (made_nsys / "calls").write_text("")
        shutil.rmtree(cache)
        left_beside(nsys_rep)
        spoil(beside)
        importers.load(nsys_rep)
        assert calls(made_nsys) == ["sqlite"]


def test_one_that_was_there_before_the_report_is_not(cache, made_nsys, nsys_rep, sqlite_alone):
    left_beside(nsys_rep)
    other = nsys_rep.with_name("other")
    other.write_bytes(b"another one of the same name")
    os.utime(other, (1, 1))
    other.rename(nsys_rep)
    importers.load(nsys_rep)
    assert calls(made_nsys) == ["sqlite"]


def test_one_is_not_read_where_a_new_one_is_asked_for(cache, made_nsys, nsys_rep, sqlite_alone):
    left_beside(nsys_rep)
    with export_cache.switched_off():
        importers.load(nsys_rep)
    assert calls(made_nsys) == ["sqlite"]


# -- the command line


def test_what_is_kept_is_listed_and_removed(cache, made_nsys, nsys_rep, sqlite_alone, folder):
    assert "0 exports" in done("cache")
    done("report", nsys_rep)
    listed = done("cache")
    assert f"{cache}: 1 exports" in listed
    assert "sqlite    report.nsys-rep" in listed
    assert "removed" in done("cache", "--clear")
    assert not [*cache.iterdir()]


def test_a_cache_that_is_not_used_says_why(cache, folder, monkeypatch):
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    assert_refused(bridge("cache"), "not used, as other users can write to it")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "here")
    assert_refused(bridge("cache"), "names a folder")


def test_a_command_can_do_without(cache, made_nsys, nsys_rep, sqlite_alone, folder):
    for _ in range(2):
        done("report", nsys_rep, "--no-cache")
    assert calls(made_nsys) == ["sqlite"] * 2
    assert not cache.exists()
    assert "BRIDGE_CACHE" not in os.environ
