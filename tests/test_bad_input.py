"""Bad input gets one clear line and exit status 1, leaves nothing behind, and is never changed."""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import made_reports
import pytest
from command import COMMANDS, assert_refused, bridge, done, inside, listing, on
from real_parts import NIGHT

from bridge import importers
from bridge.importers.nsys import export, schema
from bridge.importers.sqlite_columns import BATCH_ROWS, Database

PAGE = 4096
KERNELS, STRINGS, NVTX = schema.KERNELS.name, schema.STRINGS.name, schema.ANNOTATIONS.name


pytestmark = pytest.mark.usefixtures("folder")


def assert_unreadable(path: Path, *words: str) -> None:
    """Assert that every command refuses a file by one line that names it, and touches nothing."""
    before = listing(path.parent)
    for command in COMMANDS:
        assert_refused(on(command, path), path.name, *words)
    with pytest.raises(importers.ReportError) as caught:
        importers.load(path)
    assert path.name in str(caught.value)
    assert "\n" not in str(caught.value)
    assert listing(path.parent) == before


# -- what is no report


def a_text(path: Path) -> None:
    path.write_text("step  1 ms\n" * 100)


def a_short_text(path: Path) -> None:
    path.write_text("SQLite format 3")


def some_json(path: Path) -> None:
    path.write_text(json.dumps({"traceEvents": [{"ph": "X", "name": "mm"}] * 20}))


def only_a_header(path: Path) -> None:
    path.write_bytes(made_reports.small(path).read_bytes()[:100])


def another_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE runs (id INTEGER PRIMARY KEY, loss REAL)")


def an_empty_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("VACUUM")


NOT_REPORTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty file": (Path.touch, "empty; did the profiler finish"),
    "text": (a_text, "not an SQLite database; give an export"),
    "short text": (a_short_text, "not an SQLite database"),
    "JSON": (some_json, "no trace of a profiler"),
    "header alone": (only_a_header, "truncated or still being written"),
    "another database": (another_database, "not an Nsight Systems export"),
    "empty database": (an_empty_database, "not an Nsight Systems export"),
    "failed export": (made_reports.strings_only, "the export failed or is incomplete"),
    "folder": (Path.mkdir, "a folder; name the report inside it"),
    "pipe": (os.mkfifo, "a pipe or a device"),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", NOT_REPORTS)
def test_what_is_no_report_is_refused(what: str, folder: Path) -> None:
    make, words = NOT_REPORTS[what]
    path = folder / "report.sqlite"
    make(path)
    assert_unreadable(path, words)


def test_a_missing_file_is_refused_and_not_made(folder: Path) -> None:
    assert_unreadable(folder / "report.sqlite", "no such file")
    assert_unreadable(folder / "report.nsys-rep", "no such file")


@pytest.mark.slow
def test_nothing_is_made_of_a_bad_report_beside_a_good_one(folder: Path) -> None:
    made_reports.small(folder / "good.sqlite")
    a_text(folder / "bad.sqlite")
    before = listing(folder)
    for command in COMMANDS:
        assert_refused(on(command, folder / "good.sqlite", folder / "bad.sqlite"), "bad.sqlite")
    assert listing(folder) == before


@pytest.mark.slow
def test_a_failed_export_of_the_corpus_is_refused(corpus: Path, folder: Path) -> None:
    path = folder / "failed.sqlite"
    shutil.copy(corpus / "nsys" / "failed-export.sqlite", path)
    assert_unreadable(path, "no ranges, no CUDA calls and no kernels")


# -- truncated


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_reports.report(tmp_path_factory.mktemp("sound") / "report.sqlite", steps=50)


def cuts(size: int) -> Iterator[int]:
    """Every 4 KiB, and a few in the middle of a page."""
    yield from range(PAGE, size, PAGE)
    yield from (50, 101, PAGE - 1, PAGE + 1, size - 1)


@pytest.mark.slow
def test_a_report_cut_anywhere_is_refused(sound: Path, folder: Path) -> None:
    whole = sound.read_bytes()
    assert 100 * 1024 < len(whole) < 200 * 1024
    path = folder / "cut.sqlite"
    for size in cuts(len(whole)):
        path.write_bytes(whole[:size])
        before = listing(folder)
        for command in COMMANDS:
            assert_refused(on(command, path), "cut.sqlite")
        assert listing(folder) == before


@pytest.mark.slow
def test_a_cut_report_that_does_not_know_its_size_is_refused(sound: Path, folder: Path) -> None:
    whole = bytearray(sound.read_bytes())
    whole[92:96] = b"\0\0\0\7"  # the count of pages is valid for another change of the file
    path = folder / "cut.sqlite"
    path.write_bytes(whole)
    figures = done("report", sound, "--by", "kernel")
    assert done("report", path, "--by", "kernel") == figures.replace(str(sound), str(path))
    for size in cuts(len(whole)):
        path.write_bytes(whole[:size])
        assert_refused(on("report", path), "cut.sqlite")


def test_a_report_with_something_behind_its_end_is_refused(sound: Path, folder: Path) -> None:
    path = folder / "long.sqlite"
    path.write_bytes(sound.read_bytes() + bytes(PAGE))
    assert_unreadable(path, "truncated or still being written")


# -- damaged


def assert_refused_or_read(path: Path) -> None:
    """Damage that SQLite cannot see is read as it stands; what it sees is one line."""
    result = bridge("report", path, "--by", "op-kernel", "--format", "json")
    if result.exit_code:
        assert_refused(result, path.name)
    else:
        assert json.loads(result.stdout)["format"] == "bridge.report/2"


DAMAGE: dict[str, tuple[int, bytes]] = {
    "unknown kind of page": (0, b"\xff"),
    "a leaf becomes an index": (0, b"\x02"),
    "a free block beyond the page": (1, b"\xff\xff"),
    "65535 cells": (3, b"\xff\xff"),
    "no cells": (3, b"\0\0"),
    "cells begin in the header": (5, b"\0\1"),
    "a cell pointer beyond the page": (8, b"\xff\xff"),
    "a cell pointer into the header": (8, b"\0\0"),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_page_header_is_one_line_or_harmless(
    what: str, sound: Path, folder: Path
) -> None:
    offset, wrong = DAMAGE[what]
    whole = sound.read_bytes()
    path = folder / "damaged.sqlite"
    pages, nth = len(whole) // PAGE, list(DAMAGE).index(what)
    for page in sorted({0, *range(0 if NIGHT else nth % 5, pages, 1 if NIGHT else 5)}):
        at = page * PAGE + (100 if page == 0 else 0) + offset
        path.write_bytes(whole[:at] + wrong + whole[at + len(wrong) :])
        assert_refused_or_read(path)


@pytest.mark.slow
def test_pages_in_the_wrong_place_are_one_line_or_harmless(sound: Path, folder: Path) -> None:
    """A page that two tables claim gives rows of the wrong table: too many, or of the wrong type."""
    whole = sound.read_bytes()
    pages = [whole[at : at + PAGE] for at in range(0, len(whole), PAGE)]
    path, chance = folder / "damaged.sqlite", random.Random(7)
    for _ in range(60 if NIGHT else 20):
        moved = list(pages)
        moved[chance.randrange(1, len(pages))] = chance.choice(pages[1:])
        path.write_bytes(b"".join(moved))
        assert_refused_or_read(path)


@pytest.mark.slow
def test_random_bytes_are_one_line_or_harmless(sound: Path, folder: Path) -> None:
    whole, chance = sound.read_bytes(), random.Random(8)
    path = folder / "damaged.sqlite"
    for _ in range(60 if NIGHT else 25):
        damaged = bytearray(whole)
        for at in chance.choices(range(100, len(whole)), k=chance.choice((1, 20))):
            damaged[at] = chance.randrange(256)
        path.write_bytes(damaged)
        assert_refused_or_read(path)


@pytest.mark.slow
def test_more_rows_than_row_numbers_are_refused(folder: Path) -> None:
    """Every child of a table's root is the same page, so its rows come again and again."""
    path = made_reports.small(folder / "twice.sqlite", steps=100)
    with closing(sqlite3.connect(path)) as connection:
        sql = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        root = (connection.execute(sql, [KERNELS]).fetchone()[0] - 1) * PAGE
    whole = bytearray(path.read_bytes())
    cells = int.from_bytes(whole[root + 3 : root + 5], "big")
    assert whole[root] == 5  # an inner page: cells of 4 bytes page number, then a row number
    assert cells > 1
    pointers = (root + 12 + 2 * cell for cell in range(cells))
    places = [root + int.from_bytes(whole[at : at + 2], "big") for at in pointers]
    for place in (*places, root + 8):
        whole[place : place + 4] = whole[places[0] : places[0] + 4]
    path.write_bytes(whole)
    assert_unreadable(path, "more rows than row numbers")


WRONG_VALUES = {
    "a text where an integer belongs": f"UPDATE {KERNELS} SET start = 'soon'",
    "a text in one row": f"UPDATE {KERNELS} SET start = 'soon' WHERE rowid = 3",
    "a fraction in one row": f"UPDATE {KERNELS} SET start = 1.5 WHERE rowid = 3",
    "bytes in one row": f"UPDATE {KERNELS} SET end = x'00ff' WHERE rowid = 3",
    "nothing where a start belongs": f"UPDATE {KERNELS} SET start = NULL WHERE rowid = 3",
    "no start at all": f"UPDATE {KERNELS} SET start = NULL",
    "bytes where a name belongs": f"UPDATE {STRINGS} SET value = x'00ff'",
}


@pytest.mark.slow
@pytest.mark.parametrize("what", WRONG_VALUES)
def test_a_value_of_the_wrong_type_is_refused(what: str, folder: Path) -> None:
    path = made_reports.changed(made_reports.small(folder / "report.sqlite"), WRONG_VALUES[what])
    assert_unreadable(path, "damaged")


@pytest.mark.slow
def test_a_row_has_any_number(folder: Path) -> None:
    path = made_reports.small(folder / "report.sqlite")
    before = importers.load(path).activities.to_pandas()
    made_reports.changed(path, f"UPDATE {KERNELS} SET rowid = {2**63 - 1} WHERE rowid = 3")
    made_reports.changed(path, f"UPDATE {KERNELS} SET rowid = {-(2**63)} WHERE rowid = 4")
    read = importers.load(path).activities.to_pandas()
    columns = ["start", "end", "correlation"]
    assert len(read) == len(before)
    assert {*read[columns].itertuples(index=False)} == {*before[columns].itertuples(index=False)}


@pytest.mark.slow
def test_a_wrong_value_far_behind_right_ones_is_refused(folder: Path) -> None:
    """The type of a column is taken from its first rows."""
    path = made_reports.small(folder / "report.sqlite")
    made_reports.changed(
        path,
        f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {BATCH_ROWS})"
        f" INSERT INTO {KERNELS} SELECT k.* FROM n, (SELECT * FROM {KERNELS} LIMIT 1) k",
        f"UPDATE {KERNELS} SET start = 'soon' WHERE rowid = (SELECT max(rowid) FROM {KERNELS})",
    )
    assert_unreadable(path, "damaged")


@pytest.mark.slow
def test_durations_that_add_up_to_centuries_are_refused(folder: Path) -> None:
    """Their sum would leave 64 bits."""
    path = made_reports.small(folder / "report.sqlite", steps=6_000)
    made_reports.changed(path, f"UPDATE {KERNELS} SET end = {2**48 - 10**12}")
    assert_unreadable(path, "damaged", "centuries")


@pytest.mark.slow
def test_a_table_that_cannot_be_queried_is_one_short_line(folder: Path) -> None:
    path = made_reports.small(folder / "report.sqlite")
    view = f"CREATE VIEW {STRINGS} AS SELECT id, upper(value) AS value FROM kept"
    made_reports.changed(path, f"ALTER TABLE {STRINGS} RENAME TO kept", view)
    assert_unreadable(path, f"{STRINGS} is a view that does more")
    assert len(on("report", path).stderr) < 200


@pytest.mark.slow
def test_a_table_without_rows_and_row_numbers_is_an_empty_one(folder: Path) -> None:
    path = made_reports.small(folder / "report.sqlite")
    columns = "(id INTEGER PRIMARY KEY, value TEXT) WITHOUT ROWID"
    made_reports.changed(path, f"DROP TABLE {STRINGS}", f"CREATE TABLE {STRINGS} {columns}")
    kernels = importers.load(path).activities.to_pandas().query("kind == 'kernel'")
    assert set(kernels["name"]) == {"<unnamed>"}


@pytest.mark.slow
def test_a_table_without_a_needed_column_is_refused(folder: Path) -> None:
    path = made_reports.small(folder / "report.sqlite")
    made_reports.changed(path, f"ALTER TABLE {KERNELS} RENAME COLUMN start TO begun")
    assert_unreadable(path, KERNELS, "no column start")


# -- being written


@contextmanager
def written_to(path: Path, journal: str) -> Iterator[None]:
    """Keep a writer at work on a database: it has begun, and not yet merged."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA journal_mode={journal}")
        connection.execute("PRAGMA cache_size=1")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(f"UPDATE {KERNELS} SET end = end + 1")
        if journal == "WAL":
            connection.execute("COMMIT")
        yield


@pytest.mark.slow
@pytest.mark.parametrize(("journal", "suffix"), [("WAL", "-wal"), ("DELETE", "-journal")])
def test_a_database_being_written_is_refused(journal: str, suffix: str, folder: Path) -> None:
    path = made_reports.small(folder / "report.sqlite", steps=60)
    with written_to(path, journal):
        assert path.with_name(path.name + suffix).stat().st_size
        assert_unreadable(path, f"report.sqlite{suffix}", "wait until its writer has finished")


@pytest.mark.slow
def test_a_merged_database_of_a_wal_writer_is_read(folder: Path) -> None:
    path = made_reports.small(folder / "report.sqlite")
    with written_to(path, "WAL"):
        pass
    assert path.read_bytes()[18:20] == b"\2\2"  # it says that it is written through a WAL
    before = listing(folder)
    assert len(importers.load(path).activities) == 2 * made_reports.ACTIVITIES_PER_STEP
    assert listing(folder) == before


@pytest.mark.slow
@pytest.mark.parametrize("change", ["time", "size"])
def test_a_report_that_changes_while_it_is_read_is_refused(
    change: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made_reports.small(folder / "report.sqlite")
    read = Database.read

    def meanwhile(self: Database, *given: object, **named: object) -> object:
        found = read(self, *given, **named)  # type: ignore[arg-type]
        when = path.stat()
        if change == "size":
            with path.open("ab") as file:
                file.write(bytes(PAGE))
            os.utime(path, ns=(when.st_atime_ns, when.st_mtime_ns))
        else:
            os.utime(path, ns=(when.st_atime_ns, when.st_mtime_ns + 1))
        return found

    whole = path.read_bytes()
    monkeypatch.setattr(Database, "read", meanwhile)
    for command in COMMANDS:
        path.write_bytes(whole)
        assert_refused(on(command, path), "report.sqlite", "changed while it was read", "wait")
    assert inside(folder) == ["report.sqlite"]


# -- reports that nsys has to export first


FAKE_NSYS = """#!/bin/sh
if [ "$1" = --version ]; then echo "NVIDIA Nsight Systems version 2099.1.2"; exit 0; fi
while [ $# -gt 0 ]; do if [ "$1" = --output ]; then out="$2"; fi; shift; done
{made}
echo "Processing..."; echo "Exportation error: {error}" >&2; echo
exit {status}
"""


@pytest.fixture
def leftovers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the folder in which temporary files are made."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    return temporary


@pytest.fixture
def fake_nsys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leftovers: Path
) -> Callable[..., Path]:
    """Put an nsys on the PATH that exports to a copy of a file, and ends with a status."""

    def install(made: Path | None, status: int = 0, error: str = "none") -> Path:
        program = tmp_path / "bin" / "nsys"
        program.parent.mkdir(exist_ok=True)
        copy = f"cp '{made}' \"$out\"" if made else ""
        program.write_text(FAKE_NSYS.format(made=copy, status=status, error=error))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
        return program

    return install


@pytest.fixture
def rep(folder: Path) -> Path:
    path = folder / "my report.nsys-rep"
    path.write_bytes(b"only nsys knows what is in here")
    return path


def test_without_nsys_it_says_what_to_do(
    rep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert_unreadable(rep, "nsys, which is not on the PATH", "nsys export --type sqlite")
    rep.rename(rep.with_suffix(".qdrep"))
    assert_unreadable(rep.with_suffix(".qdrep"), "nsys, which is not on the PATH")


@pytest.mark.slow
def test_an_export_is_read_under_the_name_of_its_report(
    rep: Path, tmp_path: Path, fake_nsys: Callable[..., Path], leftovers: Path
) -> None:
    fake_nsys(made_reports.small(tmp_path / "made.sqlite", without="annotations"))
    before = listing(rep.parent)
    report = importers.load(rep)
    assert report.source == ("my report.nsys-rep",)
    assert {w.partition(":")[0] for w in report.warnings} == {"my report.nsys-rep"}
    assert len(report.activities) == 2 * made_reports.ACTIVITIES_PER_STEP
    assert listing(rep.parent) == before
    assert not inside(leftovers)


@pytest.mark.slow
def test_a_failed_export_is_known_by_its_exit_status(
    rep: Path, tmp_path: Path, fake_nsys: Callable[..., Path], leftovers: Path
) -> None:
    """What it leaves behind may look like a report."""
    made = made_reports.small(tmp_path / "made.sqlite")
    program = fake_nsys(made, status=1, error="the report is of a newer version")
    assert_unreadable(rep, "the report is of a newer version", str(program), "2099.1.2", "older")
    assert not inside(leftovers)


@pytest.mark.slow
def test_a_hollow_export_is_refused_by_the_name_of_its_report(
    rep: Path, tmp_path: Path, fake_nsys: Callable[..., Path], leftovers: Path
) -> None:
    hollow = made_reports.strings_only(tmp_path / "hollow.sqlite")
    fake_nsys(hollow, status=1, error="truncated")
    assert_unreadable(rep, "nsys export failed", "truncated")
    fake_nsys(hollow, status=0)
    assert_unreadable(rep, "the export failed or is incomplete")
    fake_nsys(None, status=0)
    assert_unreadable(rep, "nsys export failed")
    assert not inside(leftovers)


@pytest.mark.slow
def test_an_nsys_that_does_not_start_is_one_line(rep: Path, fake_nsys: Callable[..., Path]) -> None:
    fake_nsys(None).write_text("#!/no/such/interpreter\n")
    assert_unreadable(rep, "nsys export did not run")


@pytest.mark.slow
def test_an_nsys_that_hangs_is_one_line(
    rep: Path, fake_nsys: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_nsys(None).write_text('#!/bin/sh\n[ "$2" = --help ] && exit\nexec sleep 60\n')
    monkeypatch.setattr(export, "TIME_LIMIT_S", 0.05)
    assert_unreadable(rep, "nsys export did not end within")


@pytest.mark.slow
def test_an_nsys_that_cannot_say_its_version_is_one_line(
    rep: Path, fake_nsys: Callable[..., Path]
) -> None:
    program = fake_nsys(None, status=1, error="no")
    program.write_text(program.read_text().replace('echo "NVIDIA', "printf '\\377'; exit 3 #"))
    assert_unreadable(rep, "nsys export failed")


@pytest.mark.slow
def test_an_nsys_that_is_gone_after_its_failure_is_one_line(
    rep: Path, fake_nsys: Callable[..., Path]
) -> None:
    for command in COMMANDS:
        gone = '#!/bin/sh\n[ "$2" = --help ] || rm "$0"; exit 1\n'
        fake_nsys(None).write_text(gone)
        assert_refused(on(command, rep), rep.name, "nsys export failed", "unknown version")


def test_the_real_nsys_refuses_a_broken_report(nsys: str, rep: Path, leftovers: Path) -> None:
    assert_unreadable(rep, "nsys export failed", nsys)
    assert not inside(leftovers)


@pytest.mark.slow
def test_the_real_nsys_exports_a_report_and_refuses_half_of_it(
    nsys: str, folder: Path, leftovers: Path
) -> None:
    code = "from bridge import nvtx_op\nwith nvtx_op('caught'): pass"
    options = ("--trace=nvtx", "--sample=none", "--cpuctxsw=none", "-o", str(folder / "real"))
    python = (sys.executable, "-c", code)
    subprocess.run(
        [nsys, "profile", *options, *python], check=True, capture_output=True, timeout=60
    )
    real = folder / "real.nsys-rep"
    before = listing(folder)
    report = importers.load(real)
    assert list(report.ranges["name"]) == ["caught"]
    assert report.source == ("real.nsys-rep",)
    assert listing(folder) == before
    half = folder / "half.nsys-rep"
    half.write_bytes(real.read_bytes()[: real.stat().st_size // 2])
    assert_unreadable(half, "nsys export failed")
    assert not inside(leftovers)


# -- names


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_reports.small(tmp_path_factory.mktemp("plain") / "made")


@pytest.fixture(scope="module")
def shown(plain: Path) -> str:
    """Give what `bridge report` prints of it, at the width that `folder` leaves to commands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("COLUMNS", raising=False)
        return done("report", plain)


NAMES = [
    "what?.sqlite",
    "#1.sqlite",
    "100%.sqlite",
    "a%20b.sqlite",
    "two words.sqlite",
    "größe 漢字 🚀.sqlite",
    "-o.sqlite",
    "--help",
    'it\'s "quoted" [x];&.sqlite',
    "file:report.sqlite?mode=rwc",
    "no suffix",
]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_report_may_have_any_name(name: str, plain: Path, folder: Path) -> None:
    shutil.copy(plain, folder / name)
    for command in ("import", "trace"):
        result = on(command, name)
        assert result.exit_code == 0, result.output
    assert json.loads(done("report", "--format", "json", "--", name))["source"] == [name]
    assert inside(folder) == sorted([name, "bridge.db", "out.json.gz"])


@pytest.mark.parametrize("name", NAMES)
def test_a_bad_report_may_have_any_name(name: str, folder: Path) -> None:
    assert_unreadable(folder / name, "no such file")
    for command in COMMANDS:
        assert_refused(on(command, name), name)
    a_text(folder / name)
    for command in COMMANDS:
        assert_refused(on(command, name), name)
    assert inside(folder) == [name]


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in NAMES if not n.startswith("-")])
def test_a_store_may_have_any_name(name: str, plain: Path, shown: str, folder: Path) -> None:
    done("import", plain, "--db", name)
    store = shlex.join(["--db", name])
    expected = shown
    for command in ("advise", "report"):  # of the hints
        assert f"bridge {command} {plain}" in expected
        expected = expected.replace(f"bridge {command} {plain}", f"bridge {command} {store}")
    assert done("report", "--db", name).split() == expected.split()
    done("runs", "rm", "1", "--db", name)
    assert inside(folder) == [name]


@pytest.mark.slow
def test_a_name_that_is_no_text_is_shown_as_far_as_it_is(folder: Path) -> None:
    name = os.fsdecode(b"caf\xe9.sqlite")
    try:
        made_reports.small(folder / "made").rename(folder / name)
    except OSError:
        pytest.skip("this file system takes only names that are text")
    for command in COMMANDS:
        assert on(command, name).exit_code == 0
    assert json.loads(done("report", name, "--format", "json"))["source"] == ["caf\ufffd.sqlite"]
    assert json.loads(done("report", "--format", "json"))["source"] == ["caf\ufffd.sqlite"]


# -- what is no bad input


def read_by_all(path: Path, *warnings: str) -> None:
    """Run every command on a report; each works, and says all warnings on standard error."""
    for command in COMMANDS:
        result = on(command, path)
        assert result.exit_code == 0, result.output
        for warning in warnings:
            assert f"warning: {path.name}: {warning}" in result.stderr
        assert "warning" not in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("without", "warning"),
    [
        ("annotations", "no NVTX ranges"),
        ("kernels copies fills graphs", "no kernels, memcpys or memsets"),
        ("launches", "no CUDA API calls"),
        ("kernels copies fills graphs launches", "no kernels, memcpys or memsets"),
        ("annotations launches", "no NVTX ranges"),
    ],
)
def test_what_is_missing_of_a_report_is_a_warning(
    without: str, warning: str, tmp_path: Path
) -> None:
    path = made_reports.small(tmp_path / "report.sqlite", without=without)
    read_by_all(path, warning)
    for by in ("op", "op-kernel", "kernel", "memcpy", "range"):
        # Of one view all forms, of the others on changes the one that has headings of its own for what is missing.
        for form in ("table", "json", "csv", "md") if by == "op" or NIGHT else ("table",):
            assert done("report", path, "--by", by, "--format", form)


@pytest.mark.slow
def test_a_whole_report_has_no_other_warning(tmp_path: Path) -> None:
    path = made_reports.report(tmp_path / "report.sqlite")
    graphs, invalid, *others = on("report", path).stderr.splitlines()
    assert "recorded as a whole" in graphs
    assert "1 activities end before they start" in invalid
    assert not others


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Make a folder one that nobody, not even root, can write to; skip where that cannot be."""
    if os.geteuid():
        folder.chmod(0o555)
        try:
            yield
        finally:
            folder.chmod(0o755)
        return
    bound = subprocess.run(["mount", "--bind", folder, folder], check=False, capture_output=True)
    if bound.returncode:
        pytest.skip("root can write to every folder, and may not mount one read-only here")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", folder], check=True, capture_output=True)
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.slow
def test_a_read_only_report_in_a_read_only_folder_is_read(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    path = made_reports.report(there / "report.sqlite")
    path.chmod(0o444)
    before = listing(there)
    with read_only(there):
        with pytest.raises(OSError):
            (there / "x").touch()
        read_by_all(path)
    assert listing(there) == before


@pytest.mark.slow
@pytest.mark.parametrize("name", ["report.sqlite", "report"])
def test_the_input_is_never_changed(name: str, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    path = made_reports.report(there / name)
    before = listing(there)
    read_by_all(path)
    for by in ("op", "op-kernel", "kernel", "memcpy", "range"):
        done("report", path, "--by", by)
    done("report", "--by", "kernel")
    assert on("import", path).exit_code == 0
    done("runs", "rm", "1")
    assert listing(there) == before


def test_an_input_is_not_taken_for_an_output(folder: Path) -> None:
    path = made_reports.small(folder / "report.json")
    before = listing(folder)
    (folder / "link.json").symlink_to(path)
    for output in (path, folder / "link.json"):
        for command in ("report", "trace"):
            result = bridge(command, path, "-o", output, "--force")
            assert result.exit_code == 2
            assert "the report itself" in result.stderr.splitlines()[-1]
    assert_refused(bridge("import", path, "--db", path), "report.json", "choose another --db")
    (folder / "link.json").unlink()
    assert listing(folder) == before
