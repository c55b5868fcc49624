"""Payloads of NVTX with NCCL's schemas, beside a reader of one payload at a time with `struct`."""

from __future__ import annotations

import struct
from pathlib import Path

import columnar
import pytest
from concurrency.nccl_made import DOMAIN, FIRST, OF_FUNCTION, SCHEMAS, Nccl, blob
from hypothesis import given
from hypothesis import strategies as st

from bridge import importers
from bridge.importers.nsys.payloads import Blobs
from bridge.importers.texts import Texts

OPERATORS = ("sum", "product", "max", "min", "avg")
COLUMNS = ("communicator", "bytes", "ranks", "rank", "peer", "root", "reduction")
NAMES = {
    "NCCL communicator ID": "communicator", "Message size [bytes]": "bytes", "No. of ranks": "ranks", "Rank": "rank",
    "Peer rank": "peer", "Root": "root", "Reduction operation": "reduction",
}  # fmt: skip
FUNCTIONS = tuple(OF_FUNCTION)
CALLS = "nccl_calls"


def brute(function: str, data: bytes) -> dict[str, int | str]:
    """Read one blob, field after field."""
    result: dict[str, int | str] = dict.fromkeys(COLUMNS, -1) | {"reduction": ""}
    _, number, size, place = struct.unpack_from("<QQQQ", data)
    body = data[place : place + size] if place + size <= len(data) else data[32:]
    for name, _, form, offset in SCHEMAS[OF_FUNCTION[function]][2]:
        (value,) = struct.unpack_from(f"<{form}", body, offset)
        if name in NAMES:
            value = value - 2**64 if value >= 2**63 else value
            result[NAMES[name]] = OPERATORS[value] if name == "Reduction operation" else value
    assert number == FIRST + SCHEMAS[OF_FUNCTION[function]][0]
    return result


@st.composite
def calls(draw) -> tuple[str, bytes]:
    function = draw(st.sampled_from(FUNCTIONS))
    numbers = {"Q": st.integers(0, 2**64 - 1), "i": st.integers(-(2**31), 2**31 - 1)}
    values = [
        draw(st.integers(0, 4) if name == "Reduction operation" else numbers[form])
        for name, _, form, _ in SCHEMAS[OF_FUNCTION[function]][2]
    ]
    return function, blob(function, *values, whole=draw(st.booleans()))


def read(made: Nccl, path: Path, **options) -> tuple[list[dict], tuple[str, ...]]:
    path.unlink(missing_ok=True)
    capture = importers.load(made.report(path), **options)
    frame = capture.nccl_calls.to_pandas().astype({"reduction": str, "name": str})
    warnings = tuple(line for line in capture.warnings if "kernels" not in line)  # there are none
    return frame[["name", *COLUMNS]].to_dict("records"), warnings


@pytest.mark.slow
@given(st.lists(calls(), min_size=1, max_size=12), st.booleans())
def test_every_field_is_what_one_reads_at_its_offset(tmp_path_factory, drawn, is_hex):
    made = Nccl()
    for function, data in drawn:
        made.function(function, data.hex() if is_hex else data)
    rows, warnings = read(made, tmp_path_factory.mktemp("read") / "r.sqlite")
    assert rows == [{"name": function, **brute(function, data)} for function, data in drawn]
    assert warnings == ()


@given(st.lists(st.binary(max_size=80), max_size=8))
def test_bytes_of_any_kind_are_headers_or_not(column):
    blobs = Blobs.of(Texts.of(column))
    filled = [row for row, data in enumerate(column) if data]
    assert sorted(blobs.row.tolist()) == filled
    for row, start, size in zip(blobs.row, blobs.start, blobs.size, strict=True):
        if size >= 0:
            assert len(column[row]) >= 32
            assert start + size <= len(blobs.data)


def test_what_cannot_be_read_is_counted(tmp_path):
    made = Nccl()
    whole = blob("ncclAllReduce", 7, 4_096, 2)
    unknown = whole[:8] + struct.pack("<Q", FIRST + 99) + whole[16:]
    for data in (whole, whole[:40], whole[:12], unknown, b"\0" * 32, "zz", "ABC"):
        made.function("ncclAllReduce", data)
    rows, warnings = read(made, tmp_path / "r.sqlite")
    assert [row["bytes"] for row in rows] == [4_096, -1, -1, -1, -1, -1, -1]
    assert warnings == (
        "r.sqlite: 6 payloads of NVTX are damaged or without a schema, and not read",
    )


def test_a_schema_with_more_or_other_fields_is_read_by_names(tmp_path):
    made = Nccl()
    made.tables["payload_schemas"].append({"domain": DOMAIN, "schema": 5, "bytes": 32})
    fields = [
        ("Data type", 5, None, 0),
        ("Message size [bytes]", 22, 8, 0),
        ("Root", 5, 16, 1 << 4),
        ("Peer rank", 20, 24, 0),
    ]
    for name, kind, offset, flags in fields:  # an array and a real number are not read
        entry = {
            "domain": DOMAIN,
            "schema": 5,
            "name": name,
            "type": kind,
            "offset": offset,
            "flags": flags,
        }
        made.tables["payload_entries"].append(entry)
    body = struct.pack("<i4xQ16x", 3, 77)
    made.function("ncclAlltoAll", struct.pack("<QQQQ", DOMAIN, 5, 32, 32) + body)
    [row], warnings = read(made, tmp_path / "r.sqlite")
    assert (row["bytes"], row["root"], row["peer"], warnings) == (77, -1, -1, ())


def test_operators_without_names_in_the_export_are_those_of_nccl(tmp_path):
    made = Nccl(enums=False)
    for value in (0, 1, 4, 9):
        made.function("ncclAllReduce", blob("ncclAllReduce", 7, 1, value))
    rows, _ = read(made, tmp_path / "r.sqlite")
    assert [row["reduction"] for row in rows] == ["sum", "prod", "avg", "operator 9"]


def test_json_serves_where_there_is_no_blob(tmp_path):
    made = Nccl()
    nested = '{"payload": {"Message size [bytes]": 64, "Reduction operation": "Sum", "NCCL communicator ID": "0xff"}}'
    listed = '[{"Message size [bytes]": "128", "Peer rank": 3}]'
    for text in (
        nested,
        listed,
        '{"ranks": 8}',
        '{"Message size [bytes]": ',
        '{"message size": [1.5]}',
    ):
        made.function("ncclSend", None, json=text)
    rows, warnings = read(made, tmp_path / "r.sqlite")
    assert [row["bytes"] for row in rows] == [64, 128, -1, -1, -1]
    assert (rows[0]["communicator"], rows[0]["reduction"], rows[1]["peer"]) == (255, "sum", 3)
    assert warnings == ()


def test_it_is_read_on_request_alone(tmp_path):
    made = Nccl()
    made.function("ncclAllReduce", blob("ncclAllReduce", 7, 4_096, 0))
    for details, expected in ((False, 0), ({"json"}, 0), ({CALLS}, 1), (True, 1)):
        rows, _ = read(made, tmp_path / "r.sqlite", details=details)
        assert len(rows) == expected, details


def test_ranges_of_others_are_no_calls_of_nccl(tmp_path):
    made = Nccl()
    made.function("nccl:all_reduce", blob("ncclAllReduce", 7, 4_096, 0))
    made.function("mine", blob("ncclAllReduce", 7, 4_096, 0))
    assert read(made, tmp_path / "r.sqlite") == ([], ())


@pytest.mark.slow
def test_a_columnar_export_says_the_same(tmp_path):
    made = Nccl()
    for function in FUNCTIONS:
        made.function(function, blob(function, *[4] * len(SCHEMAS[OF_FUNCTION[function]][2])))
    rows, _ = read(made, tmp_path / "r.sqlite")
    tables = columnar.tables_of(tmp_path / "r.sqlite")
    capture = importers.load(columnar.as_arrowdir(tables, tmp_path / "r_arwdir"))
    frame = capture.nccl_calls.to_pandas().astype({"reduction": str, "name": str})
    assert frame[["name", *COLUMNS]].to_dict("records") == rows
    assert len(rows) == len(FUNCTIONS)
