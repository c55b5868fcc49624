"""A store of any earlier version gets what it lacks, and nothing twice; who is done with a store has closed it."""

from __future__ import annotations

import gzip
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import made_reports
import pytest
from pandas.testing import assert_frame_equal
from real_parts import ROOT

import bridge
from bridge import store
from bridge.importers.frames import DEVICE_FACTS
from bridge.knowledge.kernels import readable_names
from bridge.report import join
from bridge.store.tables import VERSION, open_store

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
    16: "reports.system_spans launches.result",
    17: "cuda_streams",
    18: "runs.label",
    13: "kernels kernel_metrics kernel_rules names.readable reports.session_ns runs.checksum extents.checksums",
    9: "aggregates runs.tables reports.aggregates runs.totals runs.worth",
}
RENAMED_IN_10 = (  # what version 10 called otherwise, called as before
    "ALTER TABLE memcpy_summary RENAME TO copy_summary",
    "ALTER TABLE op_summary RENAME COLUMN memcpys TO copies",
    "ALTER TABLE op_summary RENAME COLUMN memsets TO fills",
)
HERE = Path(__file__).parent
KEPT = sorted(
    int(path.name.split(".")[0].removeprefix("version-")) for path in HERE.glob("version-*.db.gz")
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


def kept(version: int, folder: Path) -> Path:
    """Give a store of the report `lagging` that was written with an earlier schema."""
    db = folder / "bridge.db"
    db.write_bytes(gzip.decompress((HERE / f"version-{version}.db.gz").read_bytes()))
    return db


@pytest.mark.parametrize("version", KEPT)
def test_a_store_of_an_earlier_version_opens(version: int, lagging: Path, tmp_path: Path):
    stored, read = join(store.load(kept(version, tmp_path))), bridge.load(lagging)
    assert stored.totals == read.totals
    for view in ("op", "kernel", "op-kernel", "range"):  # its kernels were no library's
        names = {"kernel_names": "short"} if "kernel" in view else {}
        assert_frame_equal(stored.by(view, **names), read.by(view, **names))


def test_a_store_of_this_version_is_kept_for_those_to_come():
    """After a change of the schema: import the report `lagging`, and pack bridge.db (VACUUM, gzip -9) as version-N.db.gz."""
    assert VERSION in KEPT
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(gzip.decompress((HERE / f"version-{VERSION}.db.gz").read_bytes()))
        made = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        assert connection.execute("PRAGMA user_version").fetchone() == (VERSION,)
    today = (ROOT / "docs" / "formats" / "bridge.db.sql").read_text(encoding="utf-8")
    assert [sql for (sql,) in made if f"{sql};" not in today] == []


def test_an_upgrade_is_told_in_one_line_and_once(tmp_path: Path, caplog) -> None:
    db = kept(KEPT[0], tmp_path)
    for lines in (1, 0):
        caplog.clear()
        with open_store(db):
            pass
        assert len(caplog.messages) == lines
        for line in caplog.messages:
            assert line.startswith(f"{db}: upgraded from schema {KEPT[0]} to {VERSION}; ")
            assert "\n" not in line


def test_a_new_store_is_not_called_an_upgrade(tmp_path: Path, caplog) -> None:
    (tmp_path / "bridge.db").touch()
    with open_store(tmp_path / "bridge.db"):
        pass
    assert caplog.messages == []


@pytest.mark.slow
def test_a_command_tells_of_the_upgrade_on_stderr(tmp_path: Path) -> None:
    db = kept(KEPT[0], tmp_path)
    command = [sys.executable, "-m", "bridge", "report", "--db", str(db), "--format", "csv"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stderr.splitlines() == [
        f"{db}: upgraded from schema {KEPT[0]} to {VERSION}; an older nsight-bridge no longer reads it"
    ]
    assert ran.stdout.startswith("op,")


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
