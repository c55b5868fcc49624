"""Which form of export a report of nsys is read through; the nsys is a program of the tests."""

import json
import sys

import columnar
import made_reports
import pyarrow as pa
import pytest
from test_columnar import assert_equal

from bridge import importers
from bridge.importers.errors import ReportError
from bridge.importers.nsys import export, schema

pytestmark = pytest.mark.slow  # it starts programs

HELP = {
    "2022.4": """
\t-t, --type=

           Possible values are: sqlite, hdf, text, arrow, json, info.
           Export format type.
""",
    "2023.4": """
\t-t, --type=

           Possible values are: sqlite, hdf, text, json, info, arrow,
           arrowdir, and parquetdir.

           Export format type.

             arrowdir (_arwdir/*.arrow) -- Apache Arrow IPC/streamiing

\t--tables=<pattern>[,<pattern>...]
""",
    "unknown": "usage: nsys [options]",
}
QUIET = """
\t-q, --quiet=

           Possible values are 'true' or 'false'.
"""
NSYS = """#!{python}
import json, shutil, sys
from pathlib import Path

words = sys.argv[1:]
here = Path(__file__).parent
with (here / "calls").open("a") as calls:
    calls.write(json.dumps(words) + "\\n")
if "--help" in words:
    print((here / "help").read_text())
if "--type" not in words:
    sys.exit()
form, target = (words[words.index(name) + 1] for name in ("--type", "--output"))
made = here / (form + "-one" if "--tables" in words else form)
if not made.exists():
    sys.exit("Exportation error: no")
shutil.copytree(made, target) if made.is_dir() else shutil.copy(made, target)
"""
ENVIRONMENT = {"name": schema.PROGRAM_ENVIRONMENT, "value": 'RANK="3"'}


@pytest.fixture
def nsys(tmp_path, monkeypatch):
    """Put an nsys on the PATH; give a function that says what it offers and lists how it was called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "nsys"
    program.write_text(NSYS.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture
def nsys_rep(tmp_path):
    path = tmp_path / "report.nsys-rep"
    path.write_bytes(b"what only nsys knows")
    return path


@pytest.fixture
def exported_settings(nsys):
    """What the nsys exports as SQLite: with the settings of the capture, as from 2023 on."""
    return with_settings(nsys / "sqlite")


def with_settings(path):
    made = made_reports.Made()
    made.names_of(100)
    made.step(0, 100)
    made.tables["capture"].append(ENVIRONMENT)
    return made.written(path)


def calls(nsys):
    """List the forms that were exported, with the tables that were selected."""
    lines = [json.loads(line) for line in (nsys / "calls").read_text().splitlines()]
    return [
        " ".join([words[words.index("--type") + 1], *words[words.index("--tables") + 1 :][:1]])
        if "--tables" in words else words[words.index("--type") + 1]
        for words in lines if "--type" in words
    ]  # fmt: skip


def offer(nsys, version):
    (nsys / "help").write_text(QUIET + HELP[version] + QUIET)


def test_sqlite_may_be_demanded(nsys, nsys_rep, exported_settings, monkeypatch):
    monkeypatch.setenv("BRIDGE_NSYS_EXPORT", "sqlite")
    assert export.fastest_form() == "sqlite"
    assert_equal(importers.load(nsys_rep), importers.load(exported_settings))
    assert calls(nsys) == ["sqlite"]


@pytest.mark.parametrize(
    ("version", "form"), [("2022.4", "arrow"), ("2023.4", "arrowdir"), ("unknown", "sqlite")]
)
def test_the_fastest_form_is_taken_that_the_help_lists(nsys, version, form):
    offer(nsys, version)
    assert export.fastest_form() == form


def test_without_nsys_there_is_no_faster_form(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert export.fastest_form() == "sqlite"


def test_a_folder_of_arrow_is_made_whole_and_says_the_same(nsys, exported_settings, nsys_rep):
    """nsys 2023.4 writes the settings of the capture, with the rank, into SQLite alone."""
    offer(nsys, "2023.4")
    tables = columnar.tables_of(exported_settings)
    settings = tables.pop(schema.CAPTURE.name)
    columnar.as_arrowdir(tables, nsys / "arrowdir")
    made_reports.write_export(nsys / "sqlite-one", {"capture": [ENVIRONMENT]})
    capture = importers.load(nsys_rep)
    assert calls(nsys) == ["arrowdir", f"sqlite {schema.CAPTURE.name}"]
    assert capture.facts[0].metadata["environment"] == {"rank": 3}
    assert_equal(capture, importers.load(exported_settings))
    (nsys / "calls").unlink()
    columnar.as_arrowdir({schema.CAPTURE.name: settings}, nsys / "more")
    (nsys / "more" / f"{schema.CAPTURE.name}.arrow").rename(
        nsys / "arrowdir" / f"{schema.CAPTURE.name}.arrow"
    )
    assert_equal(importers.load(nsys_rep), capture)
    assert calls(nsys) == ["arrowdir"]


def test_a_file_of_arrow_gets_the_settings_at_its_end(nsys, exported_settings, nsys_rep):
    offer(nsys, "2023.4")
    (nsys / "help").write_text((nsys / "help").read_text().replace("arrowdir,", ""))
    tables = columnar.tables_of(exported_settings)
    del tables[schema.CAPTURE.name]
    columnar.as_arrows(tables, nsys / "arrow")
    made_reports.write_export(nsys / "sqlite-one", {"capture": [ENVIRONMENT]})
    assert_equal(importers.load(nsys_rep), importers.load(exported_settings))
    assert calls(nsys) == ["arrow", f"sqlite {schema.CAPTURE.name}"]


def test_an_nsys_that_exports_no_single_table_is_asked_for_sqlite(
    nsys, exported_settings, nsys_rep
):
    offer(nsys, "2022.4")
    tables = columnar.tables_of(exported_settings)
    del tables[schema.CAPTURE.name]
    columnar.as_arrows(tables, nsys / "arrow")
    assert importers.load(nsys_rep).facts[0].metadata["environment"] == {"rank": 3}
    assert calls(nsys) == ["arrow", "sqlite"]


def test_exports_of_2022_have_no_settings_to_add(nsys, nsys_rep):
    offer(nsys, "2022.4")
    made = made_reports.small(nsys / "made")
    tables = columnar.tables_of(made, pa.binary())
    newer, older = (versions.name for versions in schema.VERSIONS)
    tables[older] = tables.pop(newer).replace_schema_metadata({"table_name": older})
    columnar.as_arrows(tables, nsys / "arrow")
    capture, expected = importers.load(nsys_rep), importers.load(made)
    assert_equal(capture, expected)
    assert calls(nsys) == ["arrow"]


@pytest.mark.parametrize("broken", ["absent", "damaged"])
def test_where_columns_do_not_work_sqlite_does(nsys, exported_settings, nsys_rep, broken):
    offer(nsys, "2022.4")
    if broken == "damaged":
        (nsys / "arrow").write_bytes(b"\xff\xff\xff\xff and more")
    assert_equal(importers.load(nsys_rep), importers.load(exported_settings))
    assert calls(nsys) == ["arrow", "sqlite"]


def test_the_message_of_a_failure_is_that_of_sqlite(nsys, nsys_rep):
    offer(nsys, "2023.4")
    with pytest.raises(ReportError, match="Exportation error: no"):
        importers.load(nsys_rep)


def test_an_empty_profile_is_not_exported_twice(nsys, nsys_rep):
    offer(nsys, "2022.4")
    empty = columnar.tables_of(
        made_reports.small(
            nsys / "made", without="annotations kernels launches copies fills versions"
        )
    )
    columnar.as_arrows(
        {
            "StringIds": empty["StringIds"],
            "more": empty["StringIds"].replace_schema_metadata({"table_name": "more"}),
        },
        nsys / "arrow",
    )
    with pytest.raises(ReportError, match="no ranges, no CUDA calls and no kernels"):
        importers.load(nsys_rep)
    assert calls(nsys) == ["arrow"]
