"""Columnar exports that are damaged, foreign or not whole: one line, and never a crash."""

import random
import struct
import sys
from contextlib import suppress

import columnar
import pyarrow as pa
import pytest
from pyarrow import parquet
from real_parts import NIGHT

from bridge import importers
from bridge.importers.arrow_messages import CONTINUATION, DamagedStream, schema, streams_of
from bridge.importers.errors import ReportError


@pytest.fixture(scope="module")
def tables(two_steps):
    return columnar.tables_of(two_steps)


@pytest.fixture
def folder(tables, tmp_path):
    return columnar.as_arrowdir(tables, tmp_path / "run_arwdir")


def refusal(path):
    """Give the message of a refusal, which is one line."""
    with pytest.raises(ReportError) as caught:
        importers.load(path)
    message = str(caught.value)
    assert message.isprintable()
    return message


# -- The messages of Arrow


def test_streams_are_found_with_their_rows(tables, folder, tmp_path):
    whole = columnar.as_arrows(tables, tmp_path / "all.arrows", rows=2)
    assert [stream.rows for stream in streams_of(whole)] == [
        len(table) for table in tables.values()
    ]
    for name, table in tables.items():
        (stream,) = streams_of(folder / f"{name}.arrow")
        assert (stream.position, stream.rows) == (0, len(table))


def test_a_file_with_an_index_has_one_stream_behind_its_head(tmp_path):
    table = pa.table({"a": [1, 2, 3]})
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), table.schema) as writer:
        writer.write_table(table)
    (stream,) = streams_of(tmp_path / "a.arrow")
    assert (stream.position, stream.rows) == (8, 3)


PLAIN = "null bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 binary string large_binary large_string"
TYPES = {name.rstrip("_"): getattr(pa, name)() for name in PLAIN.split()}
TYPES |= {"half_float": pa.float16(), "float": pa.float32(), "double": pa.float64()}
OTHERS = {"timestamp": pa.timestamp("ns"), "list": pa.list_(pa.int8())}
OTHERS |= {"dictionary": pa.dictionary(pa.int8(), pa.string())}


def test_the_schema_of_a_stream_is_what_pyarrow_wrote(tmp_path):
    kinds = enumerate((TYPES | OTHERS).items())
    fields = [pa.field(f"ü {name}", kind, n % 2 == 0) for n, (name, kind) in kinds]
    path, metadata = tmp_path / "a.arrow", {"other": "x", "table_name": "T"}
    with pa.OSFile(str(path), "wb") as file:
        columnar.write_stream(file, pa.schema(fields, metadata).empty_table())
    with path.open("rb") as file:
        found = schema(file, streams_of(path)[0].schema)
    assert found.table == "T"
    for number, (field, name) in enumerate(zip(found.fields, TYPES | OTHERS, strict=True)):
        assert field == (f"ü {name}", number % 2 == 0, name, name in TYPES)


def test_every_cut_is_seen(folder, tmp_path):
    """Wherever a stream is cut off, its end is missing."""
    data = (folder / "NVTX_EVENTS.arrow").read_bytes()
    cut = tmp_path / "cut.arrow"
    for size in [*range(1, 64), *range(64, len(data), 97), *range(len(data) - 20, len(data))]:
        cut.write_bytes(data[:size])
        with pytest.raises(DamagedStream, match="truncated"):
            streams_of(cut)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (CONTINUATION + bytes(4), "without its schema"),
        (b"something else altogether", "other than Arrow's messages"),
        (CONTINUATION + struct.pack("<i", 8) + b"\xff" * 8, "outside of it"),
        (CONTINUATION + struct.pack("<i", -1) + bytes(8), "truncated"),
    ],
)
def test_what_is_no_stream_is_said(data, words, tmp_path):
    (tmp_path / "a.arrow").write_bytes(data)
    with pytest.raises(DamagedStream, match=words):
        streams_of(tmp_path / "a.arrow")


def test_changed_bytes_give_a_capture_or_one_line(folder, tables):
    """Headers, offsets of texts, lengths, types: none of them may end the process."""
    chance = random.Random(7)
    for name in ("NVTX_EVENTS", "StringIds", "CUPTI_ACTIVITY_KIND_KERNEL"):
        file = folder / f"{name}.arrow"
        data = file.read_bytes()
        for _ in range(150 if NIGHT else 40):
            changed = bytearray(data)
            for _ in range(chance.choice((1, 1, 4))):
                changed[chance.randrange(len(data))] = chance.randrange(256)
            file.write_bytes(changed)
            with suppress(ReportError):
                importers.load(folder, details=False)
        file.write_bytes(data)


# -- Files and folders


def test_a_truncated_table_is_named(folder):
    file = folder / "NVTX_EVENTS.arrow"
    file.write_bytes(file.read_bytes()[:-9])
    assert refusal(folder) == (
        "run_arwdir/NVTX_EVENTS.arrow: damaged (it ends within a table: truncated or still being written);"
        " export or copy it again"
    )


def test_an_empty_table_file_is_damaged(folder):
    (folder / "NVTX_EVENTS.arrow").write_bytes(b"")
    assert refusal(folder).startswith("run_arwdir/NVTX_EVENTS.arrow: damaged (it is empty)")


def test_a_damaged_parquet_file_is_named(tables, tmp_path):
    folder = columnar.as_parquetdir(tables, tmp_path / "run_pqtdir")
    file = folder / "NVTX_EVENTS.parquet"
    data = file.read_bytes()
    file.write_bytes(data[:-9])
    assert refusal(folder).startswith("run_pqtdir/NVTX_EVENTS.parquet: damaged (")
    file.write_bytes(data[:4] + bytes(len(data) // 2) + data[4 + len(data) // 2 :])
    assert refusal(folder).startswith("run_pqtdir/NVTX_EVENTS.parquet: damaged (")


def test_without_pyarrow_parquet_says_what_to_install(tables, tmp_path, monkeypatch):
    folder = columnar.as_parquetdir(tables, tmp_path / "run_pqtdir")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    message = refusal(folder)
    assert "run_pqtdir/" in message
    assert "needs pyarrow; pip install 'nsight-bridge[parquet]'" in message


def test_foreign_folders_and_single_tables_are_refused(folder, tables, tmp_path):
    assert "name the folder that it is in" in refusal(folder / "NVTX_EVENTS.arrow")
    parquets = columnar.as_parquetdir(tables, tmp_path / "run_pqtdir")
    assert "name the folder that it is in" in refusal(parquets / "NVTX_EVENTS.parquet")
    (folder / "StringIds.arrow").unlink()
    assert refusal(folder) == "run_arwdir: a folder of tables, but not an Nsight Systems export"
    (folder / "StringIds.parquet").write_bytes((parquets / "StringIds.parquet").read_bytes())
    assert "Arrow and as Parquet in one folder" in refusal(folder)
    (tmp_path / "plain").mkdir()
    assert refusal(tmp_path / "plain").endswith("plain: a folder; name the report inside it")


def test_more_rows_than_a_file_can_hold_are_damage(folder, tables):
    """Columns without values take no bytes: a small file could ask for all memory."""
    nothing = pa.table({name: pa.nulls(10**7) for name in tables["NVTX_EVENTS"].column_names})
    with pa.OSFile(str(folder / "NVTX_EVENTS.arrow"), "wb") as file:
        columnar.write_stream(file, nothing)
    assert refusal(folder).startswith("run_arwdir/NVTX_EVENTS.arrow: damaged (10000000 rows in ")


def test_more_rows_than_a_parquet_file_may_hold_are_damage(tables, tmp_path, monkeypatch):
    constant = pa.table({"start": pa.array([1]).take(pa.array([0] * 10**5))})
    folder = columnar.as_parquetdir(tables, tmp_path / "run_pqtdir")
    parquet.write_table(constant, folder / "NVTX_EVENTS.parquet", row_group_size=10**5)
    monkeypatch.setattr("bridge.importers.column_files.MAX_ROWS_PER_BYTE", 8)
    assert refusal(folder).startswith("run_pqtdir/NVTX_EVENTS.parquet: damaged (100000 rows in ")


def test_a_text_that_its_dictionary_lacks_is_damage(folder, tables):
    table = tables["StringIds"]
    beyond = pa.DictionaryArray.from_arrays(pa.array([9] * len(table)), pa.array(["a"]), safe=False)
    table = table.set_column(table.column_names.index("value"), "value", beyond)
    with pa.OSFile(str(folder / "StringIds.arrow"), "wb") as file:
        columnar.write_stream(file, table)
    assert refusal(folder).startswith("run_arwdir/StringIds.arrow: damaged (")


def test_a_file_of_foreign_tables_is_refused(tmp_path):
    tables = {
        name: pa.table({"a": [1]}, metadata={"table_name": name}) for name in ("one", "other")
    }
    file = columnar.as_arrows(tables, tmp_path / "foreign.arrows")
    assert refusal(file) == "foreign.arrows: a file of tables, but not an Nsight Systems export"


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        ("start", pa.array(["a"]), "a string where an integer belongs"),
        ("start", pa.array([1.5]), "a double where an integer belongs"),
        ("start", pa.array([None], pa.int64()), "nothing where an integer belongs"),
        ("globalTid", pa.array([[1]]), "a list where an integer belongs"),
    ],
)
def test_values_that_no_export_has_are_damage(column, values, words, folder, tables):
    table = tables["NVTX_EVENTS"].slice(0, 1)
    table = table.set_column(table.column_names.index(column), column, values)
    with pa.OSFile(str(folder / "NVTX_EVENTS.arrow"), "wb") as file:
        columnar.write_stream(file, table)
    assert (
        refusal(folder)
        == f"run_arwdir/NVTX_EVENTS.arrow: damaged ({words}); export or copy it again"
    )


def test_a_required_column_that_is_absent_is_an_unknown_schema(folder, tables):
    with pa.OSFile(str(folder / "NVTX_EVENTS.arrow"), "wb") as file:
        columnar.write_stream(file, tables["NVTX_EVENTS"].drop_columns("start"))
    assert refusal(folder) == "run_arwdir: table NVTX_EVENTS has no column start: an unknown schema"


def test_a_folder_that_changes_meanwhile_is_refused(folder, monkeypatch):
    from bridge.importers.arrow_columns import ColumnarExport

    read = ColumnarExport.read

    def meanwhile(export, queries):
        (folder / "PROCESSES.arrow").touch()
        return read(export, queries)

    monkeypatch.setattr(ColumnarExport, "read", meanwhile)
    assert refusal(folder) == "run_arwdir: changed while it was read; wait until nsys has finished"


def test_hidden_files_and_others_are_ignored(folder, tables):
    before = importers.load(folder)
    (folder / "._NVTX_EVENTS.arrow").write_bytes(b"of another system")
    (folder / "notes.txt").write_text("mine")
    (folder / "more.arrow").mkdir()
    assert len(importers.load(folder).ranges) == len(before.ranges)


def test_a_link_to_a_folder_is_the_folder(folder, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(folder)
    assert importers.load(link).source == ("link",)
    with pytest.raises(ReportError, match="given twice"):
        importers.load(link, folder)
