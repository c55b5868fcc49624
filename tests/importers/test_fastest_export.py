"""Which form of export a report of nsys is read through; the nsys is a program of the tests."""

import columnar
import made_reports
import pyarrow as pa
import pytest
from nsys_stand_in import ENVIRONMENT, calls, offer
from test_columnar import assert_equal

from bridge import importers
from bridge.importers.errors import ReportError
from bridge.importers.nsys import export, schema

pytestmark = pytest.mark.slow  # it starts programs


def test_sqlite_may_be_demanded(made_nsys, nsys_rep, exported_settings, monkeypatch):
    monkeypatch.setenv("BRIDGE_NSYS_EXPORT", "sqlite")
    assert export.fastest_form() == "sqlite"
    assert_equal(importers.load(nsys_rep), importers.load(exported_settings))
    assert calls(made_nsys) == ["sqlite"]


@pytest.mark.parametrize(
    ("version", "form"), [("2022.4", "arrow"), ("2023.4", "arrowdir"), ("unknown", "sqlite")]
)
def test_the_fastest_form_is_taken_that_the_help_lists(made_nsys, version, form):
    offer(made_nsys, version)
    assert export.fastest_form() == form


def test_without_nsys_there_is_no_faster_form(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert export.fastest_form() == "sqlite"


def test_a_folder_of_arrow_is_made_whole_and_says_the_same(made_nsys, exported_settings, nsys_rep):
    """nsys 2023.4 writes the settings of the capture, with the rank, into SQLite alone."""
    offer(made_nsys, "2023.4")
    tables = columnar.tables_of(exported_settings)
    settings = tables.pop(schema.CAPTURE.name)
    columnar.as_arrowdir(tables, made_nsys / "arrowdir")
    made_reports.write_export(made_nsys / "sqlite-one", {"capture": [ENVIRONMENT]})
    capture = importers.load(nsys_rep)
    assert calls(made_nsys) == ["arrowdir", f"sqlite {schema.CAPTURE.name}"]
    assert capture.facts[0].metadata["environment"] == {"rank": 3}
    assert_equal(capture, importers.load(exported_settings))
    (made_nsys / "calls").unlink()
    columnar.as_arrowdir({schema.CAPTURE.name: settings}, made_nsys / "more")
    (made_nsys / "more" / f"{schema.CAPTURE.name}.arrow").rename(
        made_nsys / "arrowdir" / f"{schema.CAPTURE.name}.arrow"
    )
    assert_equal(importers.load(nsys_rep), capture)
    assert calls(made_nsys) == ["arrowdir"]


def test_a_file_of_arrow_gets_the_settings_at_its_end(made_nsys, exported_settings, nsys_rep):
    offer(made_nsys, "2023.4")
    (made_nsys / "help").write_text((made_nsys / "help").read_text().replace("arrowdir,", ""))
    tables = columnar.tables_of(exported_settings)
    del tables[schema.CAPTURE.name]
    columnar.as_arrows(tables, made_nsys / "arrow")
    made_reports.write_export(made_nsys / "sqlite-one", {"capture": [ENVIRONMENT]})
    assert_equal(importers.load(nsys_rep), importers.load(exported_settings))
    assert calls(made_nsys) == ["arrow", f"sqlite {schema.CAPTURE.name}"]


def test_an_nsys_that_exports_no_single_table_is_asked_for_sqlite(
    made_nsys, exported_settings, nsys_rep
):
    offer(made_nsys, "2022.4")
    tables = columnar.tables_of(exported_settings)
    del tables[schema.CAPTURE.name]
    columnar.as_arrows(tables, made_nsys / "arrow")
    assert importers.load(nsys_rep).facts[0].metadata["environment"] == {"rank": 3}
    assert calls(made_nsys) == ["arrow", "sqlite"]


def test_exports_of_2022_have_no_settings_to_add(made_nsys, nsys_rep):
    offer(made_nsys, "2022.4")
    made = made_reports.small(made_nsys / "made")
    tables = columnar.tables_of(made, pa.binary())
    newer, older = (versions.name for versions in schema.VERSIONS)
    tables[older] = tables.pop(newer).replace_schema_metadata({"table_name": older})
    columnar.as_arrows(tables, made_nsys / "arrow")
    capture, expected = importers.load(nsys_rep), importers.load(made)
    assert_equal(capture, expected)
    assert calls(made_nsys) == ["arrow"]


@pytest.mark.parametrize("broken", ["absent", "damaged"])
def test_where_columns_do_not_work_sqlite_does(made_nsys, exported_settings, nsys_rep, broken):
    offer(made_nsys, "2022.4")
    if broken == "damaged":
        (made_nsys / "arrow").write_bytes(b"\xff\xff\xff\xff and more")
    assert_equal(importers.load(nsys_rep), importers.load(exported_settings))
    assert calls(made_nsys) == ["arrow", "sqlite"]


def test_the_message_of_a_failure_is_that_of_sqlite(made_nsys, nsys_rep):
    offer(made_nsys, "2023.4")
    with pytest.raises(ReportError, match="Exportation error: no"):
        importers.load(nsys_rep)


def test_an_empty_profile_is_not_exported_twice(made_nsys, nsys_rep):
    offer(made_nsys, "2022.4")
    empty = columnar.tables_of(
        made_reports.small(
            made_nsys / "made", without="annotations kernels launches copies fills versions"
        )
    )
    columnar.as_arrows(
        {
            "StringIds": empty["StringIds"],
            "more": empty["StringIds"].replace_schema_metadata({"table_name": "more"}),
        },
        made_nsys / "arrow",
    )
    with pytest.raises(ReportError, match="no ranges, no CUDA calls and no kernels"):
        importers.load(nsys_rep)
    assert calls(made_nsys) == ["arrow"]
