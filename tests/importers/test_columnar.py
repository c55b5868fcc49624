"""Columnar exports of Nsight Systems: what they say equals what the SQLite export of the same capture says."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace

import columnar
import made_reports
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import real_parts

from bridge import importers
from bridge.importers import frames
from bridge.importers.errors import ReportError
from bridge.importers.nsys.export import Offer, fastest_form

FORMS = list(columnar.FORMS)


def assert_equal(capture, expected):
    """Hold two captures of one program against each other, but for the names of their files."""
    for name in frames.FRAMES:
        pd.testing.assert_frame_equal(
            getattr(capture, name).to_pandas(), getattr(expected, name).to_pandas()
        )
    assert capture.texts.data.tobytes() == expected.texts.data.tobytes()
    assert capture.texts.offsets.tolist() == expected.texts.offsets.tolist()
    assert facts(capture) == facts(expected)


def facts(capture):
    (fact,), (name,) = capture.facts, capture.source
    warnings = tuple(warning.replace(name, "NAME") for warning in fact.warnings)
    return replace(fact, warnings=warnings, path="")


def converted(export, folder, form, text=None):
    return columnar.FORMS[form](columnar.tables_of(export, text), folder / f"report{form}")


# -- Real captures


PROGRAM = """
import threading
from bridge import nvtx_op
@nvtx_op
def step(i):
    with nvtx_op("ünï"), nvtx_op(f"aten::mm, seq = {i}"):
        pass
def run():
    for i in range(100):
        step(i)
other = threading.Thread(target=run, name="worker")
other.start(), run(), other.join()
"""


@pytest.fixture(scope="module")
def recorded(nsys, tmp_path_factory):
    """A capture of this machine, which has no GPU."""
    folder = tmp_path_factory.mktemp("recorded")
    options = ["--trace=nvtx,osrt", "--sample=none", "--cpuctxsw=none", "--output", "report"]
    (folder / "program.py").write_text(PROGRAM)
    program = [sys.executable, "program.py"]
    subprocess.run(
        [nsys, "profile", *options, *program],
        cwd=folder,
        check=True,
        capture_output=True,
        timeout=120,
    )
    return folder / "report.nsys-rep"


def exported(nsys, recorded, form, name):
    target = recorded.with_name(name)
    command = [nsys, "export", "--quiet=true", "--type", form, "--output", target, recorded]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return target


def test_what_nsys_exports_in_several_forms_is_the_same_capture(nsys, recorded):
    """Those that this nsys offers: 2022.4 writes a file of Arrow, newer ones also folders."""
    forms = Offer.of(nsys).forms & {"arrow", "arrowdir", "parquetdir"}
    assert forms
    sqlite = importers.load(exported(nsys, recorded, "sqlite", "report.sqlite"))
    assert len(sqlite.ranges) == 600
    for form in sorted(forms):
        assert_equal(importers.load(exported(nsys, recorded, form, f"report.{form}")), sqlite)


def test_a_report_of_nsys_is_the_same_capture_however_it_is_exported(nsys, recorded):
    direct = importers.load(recorded)
    assert direct.source == ("report.nsys-rep",)
    assert_equal(direct, importers.load(exported(nsys, recorded, "sqlite", "again.sqlite")))
    assert fastest_form() in Offer.of(nsys).forms - {"sqlite"}


@pytest.fixture(scope="session", params=real_parts.corpus_reports("nsys/*.sqlite"))
def profile(request):
    return request.param


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_a_real_profile_says_the_same_in_every_form(profile, form, tmp_path):
    try:
        expected = importers.load(profile)
    except ReportError as error:
        with pytest.raises(type(error)):
            importers.load(converted(profile, tmp_path, form))
        return
    assert_equal(importers.load(converted(profile, tmp_path, form)), expected)


# -- Made captures: every way in which a column may be stored


@pytest.fixture(scope="module")
def expected(two_steps):
    return importers.load(two_steps)


@pytest.fixture(scope="module")
def tables(two_steps):
    return columnar.tables_of(two_steps)


@pytest.mark.parametrize("form", FORMS)
def test_a_made_report_says_the_same_in_every_form(two_steps, expected, form, tmp_path):
    assert_equal(importers.load(converted(two_steps, tmp_path, form)), expected)


def cast(tables, change):
    """Return the tables with every column as `change` makes it."""
    return {
        name: pa.table({column: change(table[column]) for column in table.column_names}, metadata=table.schema.metadata)
        for name, table in tables.items()
    }  # fmt: skip


def of_kind(is_kind, change):
    return lambda column: change(column) if is_kind(column.type) else column


CHANGES = {
    "binary": of_kind(pa.types.is_string, lambda c: c.cast(pa.binary())),
    "large texts": of_kind(pa.types.is_string, lambda c: c.cast(pa.large_string())),
    "large binary": of_kind(pa.types.is_string, lambda c: c.cast(pa.large_binary())),
    "dictionaries": of_kind(pa.types.is_string, lambda c: c.dictionary_encode()),
    "int64": of_kind(pa.types.is_integer, lambda c: c.cast(pa.int64(), safe=False)),
    "uint64": of_kind(pa.types.is_integer, lambda c: c.cast(pa.int64()).cast(pa.uint64(), safe=False)),
    "no type where all are NULL": lambda c: pa.chunked_array([pa.nulls(len(c))]) if len(c) and c.null_count == len(c) else c,
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_the_type_of_a_column_does_not_matter(tables, expected, change, tmp_path):
    folder = columnar.as_arrowdir(cast(tables, CHANGES[change]), tmp_path / "run_arwdir")
    assert_equal(importers.load(folder), expected)


@pytest.mark.parametrize(
    "options", [{"rows": 1}, {"rows": 3}, {"compression": "lz4"}, {"compression": "zstd"}]
)
def test_batches_and_compression_do_not_matter(tables, expected, options, tmp_path):
    folder = columnar.as_arrowdir(tables, tmp_path / "run_arwdir", **options)
    assert_equal(importers.load(folder), expected)


@pytest.mark.parametrize(
    "options", [{"compression": "zstd"}, {"use_dictionary": False}, {"store_schema": False}]
)
def test_how_parquet_stores_a_column_does_not_matter(tables, expected, options, tmp_path):
    assert_equal(
        importers.load(columnar.as_parquetdir(tables, tmp_path / "x", **options)), expected
    )


def test_files_with_an_index_are_read_like_streams(tables, expected, tmp_path):
    for name, table in tables.items():
        with pa.ipc.new_file(str(tmp_path / f"{name}.arrow"), table.schema) as writer:
            writer.write_table(table)
    assert_equal(importers.load(tmp_path), expected)


@pytest.mark.parametrize(("change", "options", "what"), [
    (None, {"compression": "zstd"}, "compressed"), ("dictionaries", {}, "dictionary"),
])  # fmt: skip
def test_what_only_pyarrow_reads_says_so_without_it(
    tables, change, options, what, monkeypatch, tmp_path
):
    changed = cast(tables, CHANGES[change]) if change else tables
    folder = columnar.as_arrowdir(changed, tmp_path / "run_arwdir", **options)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        ReportError, match=rf"run_arwdir/\w+.arrow: {what} columns, which pyarrow reads"
    ):
        importers.load(folder)


def test_plain_columns_are_read_without_pyarrow(tables, expected, monkeypatch, tmp_path):
    folder = columnar.as_arrowdir(tables, tmp_path / "run_arwdir")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert_equal(importers.load(folder), expected)


def test_narrow_integers_and_flags_are_integers(tables, two_steps, tmp_path):
    """Every width that holds the values, and flags."""
    narrow = {
        "copyKind": pa.int8(),
        "memKind": pa.uint8(),
        "deviceId": pa.int16(),
        "contextId": pa.uint16(),
        "gridX": pa.bool_(),
    }
    chosen = {
        name: table.set_column(place, column, table[column].cast(narrow[column], safe=False))
        for name, table in tables.items()
        for place, column in enumerate(table.column_names)
        if column in narrow
    }
    folder = columnar.as_arrowdir({**tables, **chosen}, tmp_path / "x")
    found, expected = importers.load(folder), importers.load(two_steps)
    for column in ("device", "copy_kind", "correlation"):
        assert found.activities[column].tolist() == expected.activities[column].tolist()


def test_numbers_beyond_int64_wrap_around_as_in_sqlite(two_steps, tmp_path):
    """A hardware id of 128: the highest bit of a globalTid."""
    high = 0x80 << 56
    changed = made_reports.changed(
        made_reports.report(tmp_path / "high.sqlite"),
        f"UPDATE NVTX_EVENTS SET globalTid = globalTid + {high - (1 << 64)}",
    )
    tables = columnar.tables_of(changed)
    assert tables["NVTX_EVENTS"]["globalTid"][0].as_py() > high
    assert_equal(
        importers.load(columnar.as_arrowdir(tables, tmp_path / "x")), importers.load(changed)
    )


# -- Missing tables, empty tables, NULL


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "without", ["annotations", "kernels", "launches", "session gpus devices", "versions"]
)
def test_a_missing_table_is_missing_in_every_form(form, without, tmp_path):
    made = made_reports.report(tmp_path / "made.sqlite", without=without)
    assert_equal(importers.load(converted(made, tmp_path, form)), importers.load(made))


@pytest.mark.parametrize("form", FORMS)
def test_empty_tables_and_null_are_the_same_in_every_form(form, tmp_path):
    """As with ``--lazy=false``, which writes every table."""
    made = made_reports.changed(
        made_reports.report(tmp_path / "made.sqlite"),
        "DELETE FROM CUPTI_ACTIVITY_KIND_MEMCPY",
        "DELETE FROM CUDA_GPU_MEMORY_USAGE_EVENTS",
        "UPDATE NVTX_EVENTS SET domainId = NULL, text = NULL WHERE rowid % 3 = 0",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET streamId = NULL, shortName = NULL WHERE rowid % 2",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = NULL",
        'UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET "end" = NULL WHERE rowid = 1',
    )
    assert_equal(importers.load(converted(made, tmp_path, form)), importers.load(made))


NUMBERS = [
    0.1,
    2.5,
    -0.0,
    1e300,
    5e-324,
    1 / 3,
    float("inf"),
    float("-inf"),
    3.0,
    123456789012345.6,
]


@pytest.mark.parametrize("form", FORMS)
def test_payloads_are_the_same_in_every_form(form, tmp_path):
    """Numbers as nsys stores them, double or float, JSON as text or id, integers of every kind."""
    made = tmp_path / "made.sqlite"
    columns = "start end eventType globalTid text doubleValue floatValue jsonText jsonTextId int32Value uint64Value"
    names = columns.split()
    rows = [{"doubleValue": number} for number in NUMBERS]
    rows += [{"floatValue": float(np.float32(number))} for number in NUMBERS if abs(number) < 1e30]
    rows += [
        {"jsonText": '{"a": 1}'},
        {"jsonTextId": 2},
        {"int32Value": -3},
        {"uint64Value": 9},
        {},
    ]
    made_reports.small(made)
    with closing(sqlite3.connect(made)) as db, db:
        db.execute("DROP TABLE NVTX_EVENTS")
        types = dict.fromkeys(names, "INTEGER") | dict.fromkeys(("text", "jsonText"), "TEXT")
        types |= dict.fromkeys(("doubleValue", "floatValue"), "REAL")
        listed = ", ".join(f'"{name}" {type_}' for name, type_ in types.items())
        db.execute(f"CREATE TABLE NVTX_EVENTS ({listed})")
        db.execute("INSERT OR REPLACE INTO StringIds VALUES (2, '[1, 2]')")
        for number, row in enumerate(rows):
            times = {"start": number * 10, "end": number * 10 + 5, "eventType": 59}
            place = times | {"globalTid": 1 << 24, "text": f"r{number}"}
            filled = [(place | row).get(name) for name in names]
            db.execute(f"INSERT INTO NVTX_EVENTS VALUES ({', '.join('?' * len(names))})", filled)
    expected = importers.load(made)
    assert {"9e999", "-9e999", "0.1"} < set(expected.ranges["json"])
    assert_equal(importers.load(converted(made, tmp_path, form)), expected)


def test_single_details_are_read_alone(tables, two_steps, tmp_path):
    folder = columnar.as_arrowdir(tables, tmp_path / "x")
    for details in (False, {"mangled"}, {"waits", "grid_x"}):
        assert_equal(
            importers.load(folder, details=details), importers.load(two_steps, details=details)
        )


def test_a_folder_is_left_as_it_is(tables, tmp_path):
    from command import listing

    folder = columnar.as_arrowdir(tables, tmp_path / "run_arwdir")
    before = listing(tmp_path)
    folder.chmod(0o555)
    importers.load(folder)
    folder.chmod(0o755)
    assert listing(tmp_path) == before
