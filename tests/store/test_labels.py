"""Labels of runs: kept, shown, changed by a later import, shared by runs, and no damage to a checksum."""

from __future__ import annotations

from pathlib import Path

import made_reports
import pytest
from command import assert_refused, bridge, done
from test_schema import kept

from bridge import store
from bridge.store.tables import VERSION

pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_reports.small(tmp_path_factory.mktemp("other") / "other.sqlite", steps=5)


def labels(db: Path) -> list[str | None]:
    return [run.label for run in store.list_runs(db)]


@pytest.mark.slow
def test_a_label_is_kept_and_shown_and_runs_may_share_one(
    three_steps: Path, other: Path, folder: Path
):
    for report in (three_steps, other):
        done("import", report, "--label", "4f2a91c", "--name", report.stem, "--quiet")
    assert labels(folder / "bridge.db") == ["4f2a91c", "4f2a91c"]
    first, second = done("runs", "list").splitlines()
    assert first.endswith(f"({three_steps.stem})  [4f2a91c]")
    assert second.endswith("(other)  [4f2a91c]")


@pytest.mark.slow
def test_a_later_import_of_the_report_changes_the_label_or_leaves_it(
    three_steps: Path, folder: Path
):
    done("import", three_steps, "--quiet")
    assert labels(folder / "bridge.db") == [None]
    done("import", three_steps, "--label", "first", "--quiet")
    done("import", three_steps, "--quiet")
    assert labels(folder / "bridge.db") == ["first"]
    done("import", three_steps, "--label", "v1.2 rc", "--quiet")
    assert labels(folder / "bridge.db") == ["v1.2 rc"]
    assert done("runs", "check") == "run 1: intact\n"


@pytest.mark.parametrize("label", ["", "  ", "two\nlines", "\x1b[2J"])
def test_what_is_no_line_labels_no_run(label: str, three_steps: Path, folder: Path):
    assert_refused(bridge("import", three_steps, "--label", label), "cannot label a run")
    assert not (folder / "bridge.db").exists()


def test_the_kept_store_has_a_label_and_an_older_one_has_none(tmp_path: Path):
    assert labels(kept(VERSION, tmp_path)) == ["4f2a91c"]
    older = kept(17, tmp_path)
    assert labels(older) == [None]
    store.label_run(older, 1, "4f2a91c")
    assert labels(older) == ["4f2a91c"]
    assert store.check_run(older, 1)
