"""Files that are small and hold much, or nest deep, or run without an end: refused by a limit, or harmless."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import made_reports
import pytest

from bridge import load
from bridge.importers import sqlite_columns
from bridge.importers.errors import NotAReport
from bridge.importers.kineto.events import RATIO, unpacked
from bridge.importers.nsys import schema
from fuzz import opening
from fuzz.judge import READ, REFUSED, judged

pytestmark = pytest.mark.slow

ZEROS = 1 << 20
DEEP = 1_000_000
NVTX, STRINGS = schema.ANNOTATIONS.name, schema.STRINGS.name
WITHOUT_END = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS start, i AS eventType, i AS id FROM n"


def assert_refused(path: Path, *words: str, growth: int = 1 << 30) -> None:
    verdict = judged(path, opening.report, growth=growth)
    assert verdict.what == REFUSED, verdict
    for word in words:
        assert word in verdict.said


def assert_read(path: Path, opened: Callable[[Path], None] = opening.report) -> None:
    verdict = judged(path, opened)
    assert verdict.what == READ, verdict


def loaded(path: Path) -> None:
    """Load and join, where tables would show nothing more."""
    opening.adds_up(load(path))


def packed_zeros(path: Path, mib: int, head: bytes) -> Path:
    """Write a gzip file of so many MiB of blanks after a head: each MiB takes a KiB, the same one."""
    blanks, packer = b" " * ZEROS, zlib.compressobj(9, zlib.DEFLATED, 31)
    begin, one, end = (
        packer.compress(data) + packer.flush(how)
        for data, how in (
            (head, zlib.Z_FULL_FLUSH),  # what follows refers to nothing before it
            (blanks, zlib.Z_FULL_FLUSH),
            (b"", zlib.Z_FINISH),
        )
    )
    crc = zlib.crc32(head)
    for _ in range(mib):
        crc = zlib.crc32(blanks, crc)
    sums = struct.pack("<II", crc, len(head) + mib * ZEROS)  # in place of those of one MiB
    path.write_bytes(begin + one * mib + end[:-8] + sums)
    return path


HEADS = {
    "trace": ("t.pt.trace.json.gz", b'{"schemaVersion": 1, "traceEvents": ['),
    "snapshot": ("s.json.gz", b'{"segments": ['),
    "pickle": ("s.pickle.gz", b"\x80\x04]"),
}


@pytest.mark.parametrize("what", HEADS)
def test_a_packed_file_that_holds_much_is_refused_before_it_is_unpacked(
    what: str, tmp_path: Path
) -> None:
    name, head = HEADS[what]
    path = packed_zeros(tmp_path / name, 100, head)
    assert path.stat().st_size < ZEROS
    with gzip.open(path) as file:
        assert file.read(len(head) + 1) == head + b" "
    assert_refused(path, f"over {RATIO} times its size", growth=250 << 20)


def test_what_is_unpacked_is_within_the_limit_to_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    for size in (999, 1000, 1001):
        path.write_bytes(gzip.compress(b"x" * size))
        if size > 1000:
            with pytest.raises(NotAReport, match="over 0 GiB"):
                unpacked(path, 1000)
        else:
            assert unpacked(path, 1000) == b"x" * size
        path.with_suffix(".raw").write_bytes(b"x" * size)
        if size > 1000:
            with pytest.raises(NotAReport, match="over 0 GiB"):
                unpacked(path.with_suffix(".raw"), 1000)
        else:
            assert unpacked(path.with_suffix(".raw"), 1000) == b"x" * size


BEGINNINGS = {
    "trace": ("t.json", b'{"schemaVersion": 1, "traceEvents": '),
    "snapshot": ("s.json", b'{"device_traces": '),
    "recording": (
        "r.jsonl",
        b'{"format":"bridge.recording/1","pid":1,"epoch_ns":1,"monotonic_ns":1}\n{"labels": ',
    ),
}


@pytest.mark.parametrize("opening_bracket", [b"[", b'{"a":'])
@pytest.mark.parametrize("what", BEGINNINGS)
def test_json_nested_a_million_deep_is_refused(
    what: str, opening_bracket: bytes, tmp_path: Path
) -> None:
    name, head = BEGINNINGS[what]
    path = tmp_path / name
    path.write_bytes(head + opening_bracket * DEEP + b"\n")
    assert_refused(path, path.name, "damaged")


def test_a_pickle_nested_a_million_deep_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.pickle"
    path.write_bytes(b"\x80\x04" + b"](" * DEEP + b"e" * DEEP + b".")
    assert_refused(path, path.name)


def changed(path: Path, *statements: str) -> Path:
    return made_reports.changed(made_reports.small(path), *statements)


def kept(table: str) -> str:
    return f'ALTER TABLE {table} RENAME TO "kept"'


INSTEAD = {
    "a view that renames": (kept(NVTX), f'CREATE VIEW {NVTX} AS SELECT * FROM "kept"'),
    "a virtual table": (
        kept(NVTX),
        f"CREATE VIRTUAL TABLE {NVTX} USING fts5(start, eventType, text)",
    ),
    "a virtual table that nobody knows": (
        kept(NVTX),
        f"CREATE TABLE {NVTX} (start)",
        "PRAGMA writable_schema = ON",
        f"UPDATE sqlite_master SET rootpage = 0, sql = 'CREATE VIRTUAL TABLE {NVTX} USING evil(a)' WHERE name = '{NVTX}'",
    ),
    "a generated column": (
        kept(NVTX),
        f"CREATE TABLE {NVTX} (start INTEGER, eventType INTEGER, text TEXT AS (CAST(zeroblob(50000000) AS TEXT)))",
        f'INSERT INTO {NVTX} (start, eventType) SELECT start, eventType FROM "kept"',
    ),
    "a trigger": (f"CREATE TRIGGER t AFTER INSERT ON {NVTX} BEGIN DELETE FROM {STRINGS}; END",),
    "a view of another name": (f"CREATE VIEW {NVTX}_V2 AS {WITHOUT_END}",),
}


@pytest.mark.parametrize("what", INSTEAD)
def test_what_is_no_plain_table_is_passed_over(what: str, tmp_path: Path) -> None:
    assert_read(changed(tmp_path / "report.sqlite", *INSTEAD[what]), loaded)


@pytest.mark.parametrize("table", [STRINGS, NVTX])
def test_a_view_without_an_end_is_refused(table: str, tmp_path: Path) -> None:
    path = changed(tmp_path / "report.sqlite", kept(table), f"CREATE VIEW {table} AS {WITHOUT_END}")
    assert_refused(path, f"{table} is a view")


def test_a_text_over_the_limit_is_refused(tmp_path: Path) -> None:
    for more, check in (
        (0, assert_read),
        (1, lambda path: assert_refused(path, "the limit is", str(sqlite_columns.MAX_TEXT_BYTES))),
    ):
        size = sqlite_columns.MAX_TEXT_BYTES + more
        path = tmp_path / f"{more}" / "report.sqlite"
        path.parent.mkdir()
        check(
            changed(
                path, f"UPDATE {STRINGS} SET value = CAST(zeroblob({size}) AS TEXT) WHERE id = 1"
            )
        )
        path.unlink()
