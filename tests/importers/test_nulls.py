"""Every column that NVIDIA declares nullable, tried with NULL on real profiles: a report is never called damaged for it."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import real_parts

import bridge
from bridge import importers
from bridge.importers import ReportError
from bridge.importers.nsys import schema
from bridge.importers.nsys.tables import EVERY, ON_REQUEST

NAMED = ("pytorch-ddp",)  # the only file with names of enumerated payloads, one of which is NULL
DETAILS = frozenset([EVERY, *ON_REQUEST])
KERNELS, COPIES, FILLS = (table.name for table in (schema.KERNELS, schema.COPIES, schema.FILLS))
CALLS, NVTX = schema.LAUNCHES.name, schema.ANNOTATIONS.name
KEYS = {"globalPid", "correlationId"}  # what an activity has in common with its call
GRAPH_NODES = {"graphNodeId", "originalGraphNodeId"}
PLACE = {"start", "end", "globalTid", "eventType", "domainId", "textId", "text"}
# The columns that a table of figures is made of: NULL in any other must not change a figure.
NEEDS = {
    "kernel": {KERNELS: {"start", "end", "shortName", "demangledName", "mangledName"}},
    "memcpy": {COPIES: {"start", "end", "copyKind", "bytes"}, FILLS: {"start", "end", "bytes"}},
    "op": {
        **{table: {"start", "end", *KEYS, *GRAPH_NODES} for table in (KERNELS, COPIES, FILLS)},
        schema.GRAPHS.name: {"start", "end", *KEYS},
        CALLS: {"start", "end", "globalTid", "correlationId", "nameId"},
        NVTX: PLACE,
        schema.THREADS.name: {"globalTid", "nameId"},  # autograd's threads are known by their names
        **{table.name: {"start", "globalTid", *GRAPH_NODES} for table in schema.GRAPH_NODES},
    },
}


def profiles() -> list[object]:
    """List the profiles of the corpus that are tried: a few kinds, and at night all."""
    return [*real_parts.corpus_reports(), *real_parts.corpus_reports(names=NAMED)]


def nullable(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the tables and columns that are read, and that the export declares nullable."""
    with closing(sqlite3.connect(path)) as connection:
        for table in {table.name: table for table in schema.READ.values()}.values():
            sources = {name for column in table.columns.values() for name in column.sources}
            for _, name, _, not_null, _, key in connection.execute(
                f"PRAGMA table_info({table.name})"
            ):
                if name in sources and not (not_null or key):
                    yield table.name, name


def copied(path: Path, to: Path, columns: list[tuple[str, str]]) -> Path:
    """Copy a profile, with NULL in these columns of every other row."""
    shutil.copy(path, to)
    to.chmod(0o644)
    with closing(sqlite3.connect(to)) as connection:
        for table, name in columns:
            connection.execute(f'UPDATE {table} SET "{name}" = NULL WHERE rowid % 2')
        connection.commit()
    return to


def figures(path: Path, by: str) -> str:
    return bridge.load(path).by(by).to_csv()


@pytest.mark.parametrize("path", profiles())
def test_no_null_makes_a_profile_damaged(path: Path, tmp_path: Path) -> None:
    columns = [*nullable(path)]
    tables = {table for table, _ in columns}
    if real_parts.named(path) not in real_parts.EMPTY:
        assert {CALLS, schema.PROCESSES.name} & tables
    for number, table in enumerate(sorted(tables)):
        nulls = [column for column in columns if column[0] == table]
        report = copied(path, tmp_path / f"{number}.sqlite", nulls)
        try:
            importers.load(report, details=DETAILS)
        except ReportError:
            real_parts.skip_what_holds_no_profile(path)


@pytest.mark.parametrize("by", NEEDS)
@pytest.mark.parametrize("path", profiles())
def test_nulls_change_no_figure_of_what_does_not_need_them(
    path: Path, by: str, tmp_path: Path
) -> None:
    if real_parts.named(path) in real_parts.EMPTY:
        pytest.skip("nothing recorded in this file, by design")
    unneeded = [
        (table, name) for table, name in nullable(path) if name not in NEEDS[by].get(table, ())
    ]
    assert unneeded
    assert figures(copied(path, tmp_path / path.name, unneeded), by) == figures(path, by)


@pytest.mark.parametrize("path", real_parts.corpus_reports(names=NAMED))
def test_the_name_of_an_enumerated_zero_is_read(path: Path) -> None:
    """NCCL calls 0 ``Sum``, and the export leaves it out."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        names = connection.execute(
            "SELECT name FROM NVTX_PAYLOAD_ENUM_ENTRIES WHERE value IS NULL"
        ).fetchall()
    assert {*names} == {("Sum",)}
    assert len(bridge.load(path).by("collective"))
