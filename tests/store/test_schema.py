"""A store of any earlier version gets what it lacks, and nothing twice; who is done with a store has closed it."""

from __future__ import annotations

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path

import made_reports
import pytest
from pandas.testing import assert_frame_equal

import bridge
from bridge import store
from bridge.cli.demo_report import make
from bridge.knowledge.kernels import readable_names
from bridge.report import join
from bridge.store.tables import VERSION, open_store
from importers.frames import DEVICE_FACTS

# What each version brought: tables and views by their names, columns behind the name of their table.
NEW_IN = {
    2: "waits graph_nodes ranges.json marks.json activities.source_kind activities.target_kind"
    " activities.migration_cause activities.green_context",
    3: "reports.epoch_ns reports.metadata",
    4: " ".join(f"devices.{fact}" for fact in DEVICE_FACTS),
    5: "runs.name",
    6: "memory",
    7: "metrics metric_rules measured runs.ncu",
    8: "overhead diagnostics runs.quality reports.beside",
    11: "runs.summary",
    10: "",
    12: "",
    14: "system_calls",
    15: "context_switches nccl_calls gpu_metrics",
    13: "kernels kernel_metrics kernel_rules names.readable reports.session_ns runs.checksum extents.checksums",
    9: "aggregates runs.tables reports.aggregates runs.totals runs.worth",
}
RENAMED_IN_10 = (  # what version 10 called otherwise, called as before
    "ALTER TABLE memcpy_summary RENAME TO copy_summary",
    "ALTER TABLE op_summary RENAME COLUMN memcpys TO copies",
    "ALTER TABLE op_summary RENAME COLUMN memsets TO fills",
)
VIEWS = ("kernels", "kernel_metrics", "kernel_rules")  # made anew by the last version


def schema(db: Path) -> dict[str, set[str]]:
    """List the columns of every table and view, in any order, and the version."""
    with closing(sqlite3.connect(db)) as connection:
        names = [
            n for (n,) in connection.execute("SELECT name FROM sqlite_master WHERE sql IS NOT NULL")
        ]
        found = {
            n: {row[1] for row in connection.execute(f"PRAGMA table_info('{n}')")} for n in names
        }
        return {**found, "version": {str(*connection.execute("PRAGMA user_version").fetchone())}}


def dropped(name: str) -> str:
    """Say in SQL that there is no such table, view or column."""
    table, _, column = name.partition(".")
    if column:
        return f"ALTER TABLE {table} DROP COLUMN {column}"
    return f"DROP {'VIEW' if name in VIEWS else 'TABLE'} {name}"


@pytest.fixture
def new(tmp_path: Path) -> Path:
    """Give a store without a run."""
    db = tmp_path / "bridge.db"
    db.touch()
    with open_store(db):
        return db


@pytest.mark.parametrize("version", range(1, VERSION))
def test_a_store_of_an_older_version_gets_all_that_it_lacks(version: int, new: Path) -> None:
    today = schema(new)
    newer = [name for of in range(VERSION, version, -1) for name in NEW_IN[of].split()]
    older = [*map(dropped, newer), *(RENAMED_IN_10 if version < 10 else ())]
    made_reports.changed(new, "BEGIN", *older, f"PRAGMA user_version = {version}")
    assert not {name for name in newer if "." not in name} & schema(new).keys()
    with open_store(new):
        pass
    assert schema(new) == today


def test_what_an_older_store_has_already_is_not_made_again(new: Path) -> None:
    today = schema(new)
    made_reports.changed(new, "PRAGMA user_version = 1")
    with open_store(new):
        pass
    assert schema(new) == today


def test_a_store_is_closed_once_it_has_been_read(new: Path) -> None:
    with open_store(new) as database:
        assert database.execute("SELECT count(*) FROM runs").fetchone() == (0,)
    with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
        database.execute("SELECT count(*) FROM runs")


def test_a_store_of_version_9_opens(tmp_path: Path):
    """A store that `bridge demo` wrote with schema 9: the first that users may have."""
    db = tmp_path / "bridge.db"
    db.write_bytes(gzip.decompress(Path(__file__).with_name("version-9.db.gz").read_bytes()))
    report = tmp_path / "demo.sqlite"
    make(report)
    kept, read = join(store.load(db)), bridge.load(report)
    assert kept.totals == read.totals
    for view in ("op", "kernel", "op-kernel", "range"):  # its kernels were no library's
        names = {"kernel_names": "short"} if "kernel" in view else {}
        assert_frame_equal(kept.by(view, **names), read.by(view, **names))


def test_a_kernel_of_an_older_store_gets_its_readable_name(new: Path) -> None:
    full = "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>(int)"
    made_reports.changed(
        new,
        *map(dropped, NEW_IN[13].split()),
        f"INSERT INTO names (id, run, text, full_name) VALUES (1, 1, 'kernel', NULL), (2, 1, 'vectorized_elementwise_kernel', '{full}')",
        "INSERT INTO activities (id, run, name, kind) VALUES (1, 1, 2, 1)",
        "PRAGMA user_version = 12",
    )
    with open_store(new) as database:
        [(kernel, short, whole)] = database.execute(
            "SELECT kernel, short_name, full_name FROM kernels"
        )
    assert (short, whole) == ("vectorized_elementwise_kernel", full)
    assert kernel == readable_names([(short, full)])[0] != short
