"""What an export says more of single rows: kinds of memory, causes of migrations, green contexts, JSON."""

import json

import pytest
from join.plain_writer import CALLS, COPIES, FILLS, GRAPHS, KERNELS, PID, TID, changed, write
from made_reports import MARK, PUSH_POP

from bridge.importers import frames, load
from bridge.importers.nsys import write as own
from bridge.report import join

DECOMPRESSIONS = "CUPTI_ACTIVITY_KIND_MEM_DECOMPRESS"
DETAILS = ["source_kind", "target_kind", "migration_cause", "green_context"]


def row(start=30, end=40, **more):
    return {"start": start, "end": end, "globalPid": PID, "correlationId": 5, **more}


def activities(tmp_path, tables, **how):
    return load(write(tmp_path / "r.sqlite", tables), **how).activities


def details(found):
    return found.to_pandas()[DETAILS].values.tolist()


# -- activities


@pytest.mark.slow
def test_kinds_of_memory_have_the_names_of_their_numbers(tmp_path):
    kinds = enumerate(frames.MEMORY_KINDS)
    rows = [row(srcKind=n, dstKind=len(frames.MEMORY_KINDS) - 1 - n) for n, _ in kinds]
    found = activities(tmp_path, {COPIES: rows, FILLS: [row(memKind=2), row(memKind=None)]})
    assert found["source_kind"].tolist() == [*range(8), -1, -1]
    assert found["target_kind"].tolist() == [*range(7, -1, -1), 2, -1]
    assert frames.MEMORY_KINDS[2] == "device"
    assert frames.MEMORY_KINDS[-1] == "unknown"


@pytest.mark.slow
@pytest.mark.parametrize(("number", "context"), [(0, -1), (None, -1), (4, 4)])
def test_a_green_context_of_0_is_none(tmp_path, number, context):
    tables = (KERNELS, COPIES, FILLS, GRAPHS)
    found = activities(tmp_path, {table: [row(greenContextId=number)] for table in tables})
    assert found["green_context"].tolist() == [context] * 4


def test_migrations_of_unified_memory_have_a_cause_and_no_call(tmp_path):
    rows = [
        row(correlationId=none, copyKind=11, srcKind=7, dstKind=7, migrationCause=cause)
        for none, cause in ((0, 2), (None, 3), (0, None))
    ]
    calls = [{"start": 1, "end": 2, "globalTid": TID, "correlationId": none} for none in (0, None)]
    report = load(write(tmp_path / "r.sqlite", {COPIES: rows, CALLS: calls}))
    found = report.activities
    assert found["migration_cause"].tolist() == [2, 3, -1]
    assert found["correlation"].tolist() == [0, -1, 0]
    assert found["name"].tolist() == ["[CUDA memcpy Unified Host-to-Device]"] * 3
    assert join(report).op_kernels["reason"].tolist() == ["no_launch"] * 3


@pytest.mark.slow
def test_columns_that_are_not_there_or_not_asked_for_are_missing(tmp_path):
    full = row(srcKind=1, dstKind=2, migrationCause=1, greenContextId=3)
    for tables, how in (({COPIES: [row()]}, {}), ({COPIES: [full]}, {"details": False})):
        assert details(activities(tmp_path, tables, **how)) == [[-1] * 4]
    assert details(activities(tmp_path, {COPIES: [full]})) == [[1, 2, 1, 3]]
    some = activities(tmp_path, {COPIES: [full]}, details={"target_kind", "green_context"})
    assert details(some) == [[-1, 2, -1, 3]]


@pytest.mark.slow
def test_a_decompression_is_a_copy_of_what_it_reads(tmp_path):
    more = {"ChannelID": 1, "sourceBytes": 900, "NumberOfOperations": 3, "eventClass": 0}
    tables = {DECOMPRESSIONS: [row(**more)], COPIES: [row(bytes=5)], FILLS: [row(bytes=6)]}
    found = activities(tmp_path, tables)
    assert found["kind"].tolist() == ["memcpy", "memcpy", "memset"]
    assert found["name"].tolist()[1] == "[CUDA mem decompress]"
    assert found["bytes"].tolist() == [5, 900, 6]
    assert found["copy_kind"].tolist() == [0, -1, -1]


# -- JSON


@pytest.fixture
def written(tmp_path):
    """Write annotations, given under our own names, and load them."""

    def load_them(*rows, **how):
        strings = [{"id": n, "value": text} for n, text in enumerate(("{}", '{"of": "string"}'))]
        common = {"type": PUSH_POP, "start": 1, "end": 2, "thread": TID}
        tables = {"annotations": [{**common, **r} for r in rows], "strings": strings}
        own.write_export(path := tmp_path / "r.sqlite", tables)
        return load(path, **how)

    return load_them


JSON = [
    ({}, ""),
    ({"json": '{"m": 1, "ü": "💥"}'}, '{"m": 1, "ü": "💥"}'),
    ({"json": "not json"}, "not json"),
    ({"json": ""}, ""),
    ({"json_id": 1}, '{"of": "string"}'),
    ({"json_id": 0}, "{}"),
    ({"json_id": 7}, ""),  # no such string
    ({"json": "[1]", "json_id": 1, "number": 2.5}, "[1]"),
    ({"json_id": 1, "number": 2.5}, '{"of": "string"}'),
    ({"number": 0.1}, "0.1"),
    ({"number": 3.0}, "3.0"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("row", "said"), JSON)
def test_json_is_a_text_a_registered_one_or_a_number(written, row, said):
    assert written({**row, "text": "a"}).ranges["json"].tolist() == [said]


@pytest.mark.slow
def test_json_of_many_rows_at_once(written):
    rows = [r for r, _ in JSON]
    marks = [{**r, "type": MARK} for r in rows[::-1]]
    report = written(*rows, *marks, {"type": 75, "domain": 1, "json": "of a domain"})
    said = [text for _, text in JSON]
    assert report.ranges["json"].tolist() == said
    assert report.marks["json"].tolist() == said[::-1]
    assert len(report.ranges.json.texts) == len(set(report.ranges.json.texts))
    assert report.ranges["kind"].tolist() == ["push_pop"] * len(rows)


@pytest.mark.slow
@pytest.mark.parametrize("number", [0.1, -2.5, 1 / 3, 1e300, 5e-324, 2**53 + 1.0, 1e22, -0.0, 7e15])
def test_a_number_is_what_json_reads_back(written, number):
    [text] = written({"number": number}).ranges["json"]
    assert json.loads(text) == number


@pytest.mark.parametrize("sign", ["", "-"])
def test_infinity_is_a_number_too_large(written, sign):
    [text] = written({"number": float(f"{sign}inf")}).ranges["json"]
    assert text == f"{sign}9e999"
    assert json.loads(text) == float(f"{sign}inf")


@pytest.mark.slow
def test_numbers_of_single_precision(written, tmp_path):
    written({"number": 1.5}, {"number": None}, {"number": None})
    path = changed(
        tmp_path / "r.sqlite",
        "ALTER TABLE NVTX_EVENTS ADD COLUMN floatValue REAL",
        "UPDATE NVTX_EVENTS SET floatValue = 0.25 WHERE rowid < 3",
    )
    assert load(path).ranges["json"].tolist() == ["1.5", "0.25", ""]


def test_without_details_there_is_no_json(written):
    report = written({"json": "[1]", "text": "a"}, {"number": 2.0, "type": MARK}, details=False)
    assert report.ranges["json"].tolist() == report.marks["json"].tolist() == [""]


@pytest.mark.slow
def test_where_nothing_is_said_no_second_reading_is_made(written, monkeypatch):
    from bridge.importers.sqlite_columns import Database

    made, read = [], Database.read
    monkeypatch.setattr(Database, "read", lambda *a: made.append(1) or read(*a))
    assert written({"text": "a"}, {"text": "b"}).ranges["json"].tolist() == ["", ""]
    assert len(made) == 1
