"""`bridge trend` on a folder, on reports and on runs of the store, and the status that it ends with."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import made_reports
import pytest
from command import assert_misused, assert_refused, bridge, done, unwarned

from bridge.cli.trend import reports_in

pytestmark = pytest.mark.usefixtures("folder", "read_once")
FAILED = 3
RUNS, CHANGED = 11, 6
LONGER = 'UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET "end" = "end" + {} WHERE "end" - start = 80'


@pytest.fixture(scope="module")
def nightly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder of eleven reports, whose gemm takes 12 ns longer from the seventh on."""
    folder = tmp_path_factory.mktemp("nightly")
    first = made_reports.small(folder / "night0.sqlite", steps=5)
    for number in range(1, RUNS):
        copy = Path(shutil.copy(first, folder / f"night{number}.sqlite"))
        other = f"UPDATE CUPTI_ACTIVITY_KIND_MEMSET SET bytes = {number}"  # no two are one report
        made_reports.changed(copy, LONGER.format(number % 3 + 12 * (number >= CHANGED)), other)
    return folder


def document(*words: str | Path) -> dict:
    return json.loads(done("trend", *words, "--format", "json"))


@pytest.mark.slow
def test_a_folder_is_its_reports_in_the_order_of_their_numbers(nightly: Path):
    found = document(nightly)
    assert [run["label"] for run in found["runs"]] == [f"night{n}" for n in range(RUNS)]
    assert [run["source"] for run in found["runs"]] == [[f"night{n}.sqlite"] for n in range(RUNS)]
    [gemm] = [row for row in found["rows"] if row["op"] == "gemm"]
    assert (gemm["run"], gemm["at"], gemm["state"]) == ("night6", CHANGED, "slower")
    assert found == document(*(nightly / f"night{n}.sqlite" for n in range(RUNS)))


@pytest.mark.slow
def test_labels_of_the_store_are_the_axis(nightly: Path):
    for number in range(RUNS):
        label = ["--label", f"c{number}"] if number != 3 else ["--name", "third"]
        done("import", nightly / f"night{number}.sqlite", *label, "--quiet")
    found = document()
    assert [run["label"] for run in found["runs"]] == [
        "c0",
        "c1",
        "c2",
        "third",
        *(f"c{n}" for n in range(4, RUNS)),
    ]
    rows = document(nightly)["rows"]
    same = [{**row, "run": row["run"].replace("night", "c")} for row in rows]
    assert found["rows"] == same
    text = done("trend")
    assert "11 runs, c0 … c10: median times per step" in text
    assert "slower at c6" in text
    few = document("--last", "3")
    assert [run["label"] for run in few["runs"]] == ["c8", "c9", "c10"]
    assert few["untested"].endswith("there are 3")
    assert [run["label"] for run in document("third", "5", nightly / "night0.sqlite")["runs"]] == [
        "third",
        "c4",
        "night0",
    ]


@pytest.mark.slow
def test_runs_without_rows_or_of_other_evidence_are_named_in_a_line(nightly: Path, tmp_path: Path):
    done(
        "import", nightly / "night0.sqlite", nightly / "night1.sqlite", "--workers", "1", "--quiet"
    )
    for number in range(5):
        done("import", nightly / f"night{number}.sqlite", "--quiet")
    bare = made_reports.Made()
    bare.names_of(100)
    bare.kernel("gemm_kernel", 10, 100, 20, 90)
    done("import", bare.written(tmp_path / "bare.sqlite"), "--label", "bare", "--quiet")
    result = bridge("trend")
    lines = [line for line in result.stdout.splitlines() if line.startswith("left out")]
    assert lines == [
        "left out, as other events tell of them: run 1 (aggregates, without rows), bare (GPU work)"
    ]
    assert "5 runs, run 2 … run 6" in result.stdout


@pytest.mark.slow
def test_limits_decide_the_status(nightly: Path):
    failing = bridge("trend", nightly, "--fail-over", "op:5%", "--fail-over", "iteration:1%")
    assert failing.exit_code == FAILED
    [line] = unwarned(failing.stderr).splitlines()
    assert line.startswith("failed: gemm at night6: 81 ns -> 92.8 ns per step (+14.6 %), 95 % ")
    assert "passed: iteration time: no change in 11 runs" in failing.stdout
    assert bridge("trend", nightly, "--fail-over", "op:20%").exit_code == 0
    few = bridge("trend", nightly / "night0.sqlite", "--fail-over", "5%")
    assert few.exit_code == FAILED
    assert "nothing was judged" in few.stderr


@pytest.mark.slow
def test_what_is_said_of_every_report_is_said_once(nightly: Path):
    said = bridge("trend", nightly).stderr.splitlines()
    assert [line.partition(": ")[2].partition(":")[0] for line in said] == ["night0.sqlite"]


@pytest.mark.slow
def test_each_form_is_written_whole(nightly: Path, folder: Path):
    for form in ("html", "json", "csv", "txt"):
        done("trend", nightly, "--top", "1", "-o", f"trend.{form}")
        assert (folder / f"trend.{form}").stat().st_size > 0
    assert (folder / "trend.html").read_text().count("<svg") == 3  # two of the runs as wholes
    [row] = csv.DictReader(io.StringIO((folder / "trend.csv").read_text()))
    assert (row["op"], row["run"]) == ("gemm", "night6")
    assert "gemm" in (folder / "trend.txt").read_text()
    again = bridge("trend", nightly, "-o", "trend.html")
    assert_refused(again, "trend.html", "--force")
    by_kernel = json.loads(done("trend", nightly, "--by", "kernel", "--format", "json"))
    assert by_kernel["rows"][0]["kernel"] == "gemm_kernel"
    by_step = json.loads(done("trend", nightly, "--by", "step", "--format", "json"))
    assert [row["loop"] for row in by_step["rows"]] == ["step"]


def test_a_folder_has_each_report_once_and_no_recordings(tmp_path: Path):
    for name in (
        "r10.sqlite",
        "r9.nsys-rep",
        "r9.sqlite",
        "bridge-h-1-2.jsonl",
        "note.txt",
        "run.jsonl",
    ):
        (tmp_path / name).touch()
    assert [path.name for path in reports_in(tmp_path)] == [
        "r9.nsys-rep",
        "r10.sqlite",
        "run.jsonl",
    ]


def test_what_cannot_be_read_is_one_line(tmp_path: Path):
    assert_refused(bridge("trend"), "bridge.db", "no store here")
    assert_refused(bridge("trend", "nothing.sqlite"), "nothing.sqlite")
    (tmp_path / "broken.sqlite").write_text("no database")
    assert_refused(bridge("trend", tmp_path / "broken.sqlite", "-o", "trend.html"), "broken.sqlite")
    assert_misused(bridge("trend", "--fail-over", "idle:5%"), "a trend judges 5%")
    assert_misused(bridge("trend", "--fail-over", "5"), "Write the unit")
    assert_misused(bridge("trend", "--last", "0"), "0")
    assert_misused(bridge("trend", "--by", "shape"), "shape")
