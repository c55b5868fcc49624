"""The example of a package with plug-ins, installed and used; and what is wrong with others."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command import bridge as ran
from command import done
from made_reports import report as made_report
from real_parts import ROOT
from release.built import build

import bridge
from bridge import plugins
from bridge.analyze.core.catalog import TABLES, VIEWS, Column, TableColumns, View
from bridge.analyze.core.table import Table
from bridge.analyze.tables import additions
from bridge.importers import Capture, Facts, Reader, ReportError
from bridge.importers.errors import NotAReport
from bridge.importers.frames import Launches, Marks, Names, Ranges
from bridge.knowledge import entry_points
from bridge.knowledge.entry_points import READERS, Addition

EXAMPLE = ROOT / "examples" / "plugin"
PAGE = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
LOG = "name,thread,start_ns,end_ns\nload,1,0,1000\nstep,1,1000,5000\nmatmul,1,1500,3000\nload,2,0,4000\n"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder into which the example is installed."""
    folder = tmp_path_factory.mktemp("plugin")
    with zipfile.ZipFile(build(folder, EXAMPLE, what="wheel")) as wheel:
        wheel.extractall(folder / "site")
    return folder / "site"


@pytest.fixture(autouse=True)
def as_new() -> Iterator[None]:
    """Forget the packages of the test before, and the tables that they added."""
    views, tables = dict(VIEWS), dict(TABLES)
    for cached in (plugins.every_check, plugins.readers, plugins._add_tables):
        cached.cache_clear()
    yield
    for now, before in ((VIEWS, views), (TABLES, tables)):
        now.clear()
        now.update(before)
    for cached in (plugins.every_check, plugins.readers, plugins._add_tables):
        cached.cache_clear()


@pytest.fixture
def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(site))
    yield
    sys.modules.pop("acme_bridge", None)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "run.acme"
    path.write_text(LOG, encoding="utf-8")
    return path


@pytest.mark.slow
def test_its_reader_reads_a_file_of_its_own_format(installed, log):
    rows = json.loads(done("report", log, "--format", "json"))["rows"]
    times = {row["op"]: (row["calls"], row["cpu_self_ns"], row["cpu_total_ns"]) for row in rows}
    # load: one call within nothing, one on each thread; matmul lies in step
    assert times == {"load": (2, 5000, 5000), "step": (1, 2500, 4000), "matmul": (1, 1500, 1500)}
    assert bridge.load(log).capture.facts[0].product == "Acme log"
    db = log.with_name("x.db")
    done("import", log, "--db", db)
    assert json.loads(done("report", "--db", db, "--format", "json"))["rows"] == rows
    trace = log.with_name("t.json")
    done("trace", log, "-o", trace)
    slices = [e for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "X"]
    assert sorted(e["name"] for e in slices) == ["load", "load", "matmul", "step", "step 0"]


@pytest.mark.slow
def test_its_table_is_one_of_the_tables(installed, tmp_path):
    path = made_report(tmp_path / "r.sqlite")
    rows = json.loads(done("report", path, "--by", "memcpy-size", "--format", "json"))["rows"]
    copies = json.loads(done("report", path, "--by", "memcpy", "--format", "json"))["rows"]
    of_copies = [row for row in copies if "memcpy" in row["operation"]]
    assert sum(row["total_ns"] for row in rows) == sum(row["total_ns"] for row in of_copies)
    assert sum(row["memcpys"] for row in rows) == sum(row["count"] for row in of_copies)
    assert bridge.load(path).by("memcpy-size").to_dict("records") == rows
    listed = json.loads(done("report", "--by", "list", "--format", "json"))["rows"]
    assert {"name": "memcpy-size", "kind": "table", "meaning": "How large are memcpys?"} in listed
    assert "power of two" in done("report", "--by", "memcpy-size", "--columns", "list")
    assert "size from  memcpys" in done("report", path, "--by", "memcpy-size", "--sort", "memcpys")
    refused = ran("report", path, "--by", "memcpy-size", "--workers", "1")
    assert (refused.exit_code, "needs all rows at once" in refused.stderr) == (2, True)
    [item] = plugins_completed("memcpy-")
    assert item == "memcpy-size"


def plugins_completed(start: str) -> list[str]:
    from bridge.cli import completion

    return [item.value for item in completion.tables(None, None, start)]  # type: ignore[arg-type]


@pytest.mark.slow
def test_its_checks_are_among_the_others(installed):
    checks = plugins.every_check()
    assert [checks.rules[-1].name, checks.reasons[-1].name] == ["tiny-memcpys", "few-kernels"]


def test_the_page_shows_what_the_example_holds():
    code = (EXAMPLE / "acme_bridge.py").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    assert [block for block in blocks if block not in code] == []
    [points] = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert tomllib.loads(points)["project"]["entry-points"] == project["entry-points"]


@pytest.mark.slow
def test_packages_are_asked_only_for_what_is_not_built_in(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(entry_points, "load_entry_points", lambda group: asked.append(group) or [])
    path = made_report(tmp_path / "r.sqlite")
    for by in ("op", "kernel", "op,shape", "step"):
        ran("report", path, "--by", by)
    assert asked == []
    assert ran("report", path, "--by", "unknown").exit_code == 2
    assert asked == [entry_points.TABLES]
    (tmp_path / "r.unknown").write_text("?")
    assert ran("report", tmp_path / "r.unknown").exit_code == 1
    assert asked == [entry_points.TABLES, entry_points.READERS]


COLUMNS = TableColumns((Column("kernel", "kernel"), Column("n", "number", "count")))


def view(**fields):
    described = {"name": "acme", "question": "?", "columns": COLUMNS, "rows": lambda _: Table()}
    return View(**{**described, **fields})


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("a text", "'a text' is not a View"),
        (view(name="op"), "there is a table op already"),
        (view(name="shape"), "there is a table shape already"),
        (view(rows="os:abort"), "acme: columns are a TableColumns, and rows is a function"),
        (view(columns=None), "acme: columns are a TableColumns, and rows is a function"),
        (view(kind="ranges"), "acme: kind, directed and host are for built-in tables"),
        (view(sorted_by=("m",)), "acme: no column m"),
        (view(takes=("nope",)), "acme: no field of TableRequest nope"),
        (view(columns=TableColumns((Column("n", "n", "furlongs"),))), "acme: no unit furlongs"),
        (view(columns=TableColumns(())), "acme: no columns"),
        *(
            (
                view(name=name),
                f"{name!r} is no name of a table: write small letters, digits and hyphens",
            )
            for name in ([], "", "a,b", "T Upper", "-a")
        ),
        (view(name="list"), "there is a table list already"),
    ],
)
def test_a_table_that_is_of_no_use_is_one_warning(value, said, caplog):
    before = list(VIEWS)
    additions.add([Addition("pkg", "entry point x", value)])
    assert caplog.messages == [f"warning: entry point x of pkg: {said}"]
    assert list(VIEWS) == before


def rows_of(kernel, n):
    return pd.DataFrame({"kernel": kernel, "n": n})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (lambda _: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda _: [], "TypeError: rows returned list, not a Table"),
        (lambda _: Table({"n": [1]}), "TypeError: rows returned columns ['n'], described are"),
        (lambda _: Table({"kernel": ["a"], "n": [1, 2]}), "ValueError: column n has 2 rows, not 1"),
        (lambda _: rows_of(["a"], ["b"]), "TypeError: column n is described as integer, and holds"),
        (lambda _: rows_of(["a"], [1.5]), "TypeError: column n is described as integer, and holds"),
        (
            lambda _: rows_of(["a", 1], [1, 2]),
            "TypeError: column kernel holds texts and other values",
        ),
        (lambda _: rows_of([b"a"], [1]), "TypeError: column kernel holds |S1 values, not numbers"),
        (
            lambda _: rows_of(["a"], [2**63]),
            "TypeError: column n holds numbers of more than 63 bits",
        ),
        (lambda _: sys.exit("bye"), "SystemExit: bye"),
    ],
)
def test_a_table_that_fails_is_one_line(rows, said, tmp_path, monkeypatch):
    found = [Addition("pkg", "entry point x", view(rows=rows))]
    monkeypatch.setattr(entry_points, "load_entry_points", lambda _group: found)
    failed = ran("report", made_report(tmp_path / "r.sqlite"), "--by", "acme")
    assert failed.exit_code != 0
    assert f"Error: table acme of pkg: {said}" in failed.stderr
    assert "Traceback" not in failed.stderr


def reading(monkeypatch, fits, read):
    value = Reader("acme", fits, read) if fits else "a text"
    found = [Addition("pkg", "entry point x", value)]
    monkeypatch.setattr(entry_points, "load_entry_points", {READERS: found}.__getitem__)


def refuse(path, details):
    raise ReportError(f"{path.name}: empty log")


ONE, TWO = np.array([1]), np.array([1, 2])


def given(**tables):
    return lambda path, details: Capture((path.name,), (Facts("Acme"),), **tables)


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (
            lambda path, details: 1 / 0,
            "run.acme: entry point x of pkg: ZeroDivisionError: division",
        ),
        (
            lambda path, details: None,
            "run.acme: entry point x of pkg: TypeError: read returned NoneType, not a Capture",
        ),
        (lambda path, details: sys.exit(3), "run.acme: entry point x of pkg: SystemExit: 3"),
        (refuse, "run.acme: empty log"),
        (
            lambda path, details: Capture((path.name,), ()),
            "a Capture has a source and facts for each",
        ),
        (given(ranges=Launches()), "ranges is Launches, not Ranges"),
        (given(launches=Launches(start=[1])), "launches: column start is no Ints of 1 rows"),
        (given(launches=Launches(start=ONE, end=TWO)), "launches: column end is no Ints of 1 rows"),
        (
            given(launches=Launches(start=ONE, name="a")),
            "launches: column name is no Names of 1 rows",
        ),
        (given(launches=Launches(start=ONE)), "Launches: a row without a name"),
        (
            given(marks=Marks(time=ONE, name=Names(ONE, ["a"]))),
            "marks: column name has codes without",
        ),
        (
            given(ranges=Ranges(start=ONE, name=Names.of(["a"]))),
            "ranges: a row whose text is not in",
        ),
        (lambda path, details: Launches(strat=ONE), "TypeError: Launches has no column strat"),
    ],
)
def test_a_reader_that_fails_is_one_line(read, said, log, monkeypatch):
    reading(monkeypatch, lambda _: True, read)
    with pytest.raises(ReportError, match=re.escape(said)):
        bridge.load(log)


@pytest.mark.parametrize("fits", [lambda _: 1 / 0, None])
def test_a_reader_that_cannot_say_what_it_reads_is_left_out(fits, log, monkeypatch, caplog):
    reading(monkeypatch, fits, refuse)
    with pytest.raises(NotAReport, match=r"run\.acme: .* SQLite"):
        bridge.load(log)
    [warning] = caplog.messages
    assert warning.startswith("warning: entry point x of pkg: ")


@pytest.mark.slow
def test_rows_are_copied_and_what_is_not_known_is_written_as_ours(tmp_path, monkeypatch):
    kept = np.array([3, 0, 2], np.uint8)
    given = pd.DataFrame({"kernel": ["a", None, "c"], "n": pd.array([3, None, 2], "Int64")})
    for rows, n in ((given, [3, 2, -1]), (Table({"kernel": ["a", "", "c"], "n": kept}), [3, 2, 0])):
        monkeypatch.setattr(
            entry_points,
            "load_entry_points",
            lambda _, rows=rows: [
                Addition("pkg", "x", view(rows=lambda _: rows, sorted_by=("n",)))
            ],
        )
        plugins._add_tables.cache_clear()
        VIEWS.pop("acme", None)
        table = bridge.load(made_report(tmp_path / f"{n[-1]}.sqlite")).by("acme")
        assert table.to_dict("list") == {"kernel": ["a", "c", ""], "n": n}
        table.loc[:, "n"] = 7
    assert kept.tolist() == [3, 0, 2]


def test_a_reader_may_give_frames_without_a_row(log, monkeypatch):
    reading(
        monkeypatch, lambda _: True, lambda path, details: Capture((path.name,), (Facts("Acme"),))
    )
    assert len(bridge.load(log).by("op")) == 0


@pytest.mark.slow
def test_workers_have_the_readers_of_packages(installed, site, log):
    two = [log, log.with_name("other.acme")]
    two[1].write_text(LOG, encoding="utf-8")
    answer = subprocess.run(
        [sys.executable, "-m", "bridge", "report", *two, "--workers", "2", "--format", "csv"],
        env={"PYTHONPATH": f"{site}:{ROOT}"}, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert "load,4," in answer.stdout
