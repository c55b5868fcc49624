"""A report that is in the store is shown from there, unread, and says the same."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import islice
from pathlib import Path

import made_reports
import pytest
from command import bridge
from real_parts import NIGHT

from bridge import importers, store
from bridge.importers.nsys import schema

KERNELS = schema.READ["kernels"].name


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return what makes any further reading of a report fail."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("read again")

    return lambda: monkeypatch.setattr(importers, "load", refuse)


def imported(folder: Path, *more: str | Path) -> tuple[str, str]:
    result = bridge("import", "--db", folder / "bridge.db", *more)
    assert result.exit_code == 0, result.stderr
    # Hints name a run that is not the newest.
    return " ".join(re.sub(r" --run \d+", "", result.stdout).split()), result.stderr


@pytest.mark.slow
def test_it_says_the_same(tmp_path: Path, unread: Callable[[], None]) -> None:
    reports = [made_reports.small(tmp_path / f"{name}.sqlite") for name in "ab"]
    made_reports.changed(reports[1], f"UPDATE {KERNELS} SET end = end + 1000")
    first, _ = imported(tmp_path, *reports)
    unread()
    again, said = imported(tmp_path, *reports)
    assert again == first
    assert "already imported as run 1 of" in said
    assert [run.id for run in store.list_runs(tmp_path / "bridge.db")] == [1]


@pytest.mark.slow
def test_every_profile_says_the_same(
    corpus: Path, tmp_path: Path, unread: Callable[[], None]
) -> None:
    paths = sorted((corpus / "nsys").glob("*.sqlite"), key=lambda path: path.stat().st_size)
    readable = (path for path in paths if bridge("report", path, "--by", "op").exit_code == 0)
    paths = [*islice(readable, 8 if NIGHT else 3)]
    first = [imported(tmp_path, path)[0] for path in paths]
    unread()
    assert [imported(tmp_path, path)[0] for path in paths] == first


@pytest.mark.slow
def test_aggregates_say_the_same(tmp_path: Path) -> None:
    reports = [made_reports.small(tmp_path / f"{name}.sqlite") for name in "ab"]
    made_reports.changed(reports[1], f"UPDATE {KERNELS} SET end = end + 1000")
    first, _ = imported(tmp_path, "--workers", "1", *reports)
    again, said = imported(tmp_path, "--workers", "1", *reports)
    assert again == first
    assert "already imported as run 1 of" in said


@pytest.mark.slow
@pytest.mark.parametrize("change", ["its bytes", "--rank-from", "its rules"])
def test_what_differs_is_another_run(change: str, tmp_path: Path) -> None:
    report = made_reports.small(tmp_path / "rank3.sqlite")
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\nmatch = ".*"\nop = "all"\n')
    imported(tmp_path, report)
    if change == "its bytes":
        made_reports.changed(report, f"UPDATE {KERNELS} SET end = end + 1000")
    more = {"--rank-from": ("--rank-from", r"rank(\d)"), "its rules": ("--op-rules", rules)}
    _, said = imported(tmp_path, report, *more.get(change, ()))
    assert "already" not in said
    assert len(store.list_runs(tmp_path / "bridge.db")) == 2


@pytest.mark.slow
def test_with_a_recording_beside_it_is_read(tmp_path: Path, unread: Callable[[], None]) -> None:
    report = made_reports.small(tmp_path / "a.sqlite")
    imported(tmp_path, report)
    (tmp_path / "bridge-1.jsonl").write_text("{}\n")
    unread()
    with pytest.raises(AssertionError, match="read again"):
        imported(tmp_path, report)


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["totals = NULL, worth = NULL", "summary = NULL"])
def test_a_run_of_an_older_version_is_read(
    missing: str, tmp_path: Path, unread: Callable[[], None]
) -> None:
    report = made_reports.small(tmp_path / "a.sqlite")
    first, _ = imported(tmp_path, report)
    with closing(sqlite3.connect(tmp_path / "bridge.db")) as database, database:
        database.execute(f"UPDATE runs SET {missing}, checksum = NULL")
    again, said = imported(tmp_path, report)
    assert again == first
    assert "already imported" in said
    unread()
    with pytest.raises(AssertionError, match="read again"):
        imported(tmp_path, report)


def test_another_name_is_the_same_run(tmp_path: Path, unread: Callable[[], None]) -> None:
    report = made_reports.small(tmp_path / "a.sqlite")
    imported(tmp_path, report)
    unread()
    _, said = imported(tmp_path, shutil.copy(report, tmp_path / "b.sqlite"))
    assert "already imported as run 1 of" in said


@pytest.mark.slow
def test_other_names_and_another_order_are_said(tmp_path: Path) -> None:
    reports = [made_reports.small(tmp_path / f"{name}.sqlite") for name in "ab"]
    made_reports.changed(reports[1], f"UPDATE {KERNELS} SET end = end + 1000")
    imported(tmp_path, *reports)
    assert "called" not in imported(tmp_path, *reports)[1]
    _, said = imported(tmp_path, *reversed(reports))
    assert "already imported as run 1 of" in said
    assert "where they are called a.sqlite, b.sqlite" in said
