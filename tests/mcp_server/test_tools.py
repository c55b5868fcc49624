"""The tools of `bridge mcp`: their figures are those of the commands, and their answers are small."""

from __future__ import annotations

import json
from pathlib import Path

import click
import made_reports
import pytest
from command import done
from ncu import made_ncu

from bridge.analyze.core.catalog import VIEWS
from bridge.cli.mcp import mcp
from bridge.cli.mcp_reports import KeptReports
from bridge.importers.errors import NoSuchReport, ReportError
from mcp_server.answers import LIMIT, asked, objects, rounded

pytest.importorskip("pydantic", reason="the MCP SDK is not installed")


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return made_reports.report(tmp_path_factory.mktemp("tools") / "made.sqlite", steps=4)


@pytest.fixture(scope="module")
def tools(path):
    return asked(path.parent)


@pytest.fixture(autouse=True)
def context():
    """Run in the context of the command, as the server runs tools."""
    with click.Context(mcp, info_name="mcp") as current:
        yield current


@pytest.mark.slow
def test_a_table_has_the_rows_of_the_command(tools, path):
    for by in ("op", "op-kernel", "kernel", "memcpy", "idle", "device", "op,step", "module"):
        answer = json.loads(tools.table(str(path), by, top=1_000, max_bytes=100_000))
        expected = json.loads(done("report", path, "--by", by, "--format", "json"))
        assert answer["totals"] == expected["totals"]
        assert objects(answer) == [rounded(row) for row in expected["rows"]], by


def test_instants_count_from_the_first_event(tools, path):
    answer = objects(json.loads(tools.table(str(path), "range", sort="+start_ns", top=3)))
    expected = json.loads(
        done("report", path, "--by", "range", "--sort", "+start", "--format", "json")
    )["rows"]
    began = tools.reports.get(str(path)).began
    assert [row["start_ns"] for row in answer] == [row["start_ns"] - began for row in expected[:3]]


def test_conditions_sorting_and_a_part_of_the_time(tools, path):
    words = ("--filter", "kernel~gemm", "--sort", "count", "--from", "2us", "--to", "5us")
    expected = json.loads(done("report", path, "--by", "kernel", *words, "--format", "json"))
    answer = tools.table(
        str(path), "kernel", where="kernel~gemm", sort="count", begin="2us", end="5us"
    )
    assert objects(json.loads(answer)) == [rounded(row) for row in expected["rows"]]


def test_one_reads_on_after_the_rows_shown(tools, path):
    whole = objects(json.loads(tools.table(str(path), "range", top=1_000, max_bytes=100_000)))
    read: list[dict] = []
    while True:
        answer = json.loads(tools.table(str(path), "range", top=50, skip=len(read)))
        read += objects(answer)
        assert answer.get("left_out", 0) == len(whole) - len(read)
        if "more" not in answer:
            break
        assert answer["more"].startswith(f"skip={len(read)};")
    assert read == whole


@pytest.mark.slow
def test_every_answer_is_small(tools, path):
    report = str(path)
    answers = [
        *(tools.table(report, by) for by in VIEWS if by != "rule"),
        *(tools.list_tables(by) for by in ("", *VIEWS)),
        tools.open_report(report),
        tools.summary(report),
        tools.advise(report),
        tools.advise(report, top=50, evidence=50),
        tools.what_if(report, gpu_faster="2"),
        tools.why("gemm", report),
        tools.why("gemm", report, "op"),
        tools.timeline("0", "1s", report, top=1_000),
        tools.diff(report, report, top=1_000),
    ]
    for answer in answers:
        assert len(answer.encode()) <= LIMIT
        json.loads(answer)


def test_what_if_has_the_figures_of_the_command(tools, path):
    answer = json.loads(
        tools.what_if(str(path), op="step, aten::mm", faster="2x", gpu_faster="1.5")
    )
    words = ("--op", "step", "--op", "aten::mm", "--faster", "2x", "--gpu-faster", "1.5")
    expected = json.loads(done("what-if", path, *words, "--format", "json"))
    for name in ("recorded", "would_be", "saving_ns", "iterations"):
        assert answer[name] == expected[name]
    assert objects(answer, "bound") == [rounded(row) for row in expected["bound"]]
    assert [row["name"] for row in objects(answer, "changes")] == ["step", "aten::mm", ""]
    with pytest.raises(ValueError, match="name a change"):
        tools.what_if(str(path))


def test_why_tells_the_chain_of_an_activity_an_op_and_a_gap(tools, path):
    report = str(path)
    answer = json.loads(tools.why("gemm", report))
    expected = json.loads(done("why", path, "gemm", "--format", "json"))
    assert answer["op"] == expected["op"] == "gemm"
    assert answer["activity"]["row"] == expected["activity"]["row"]
    began = tools.reports.get(report).began
    assert answer["call"]["step"]["start_ns"] == expected["call"]["step"]["start_ns"] - began
    assert [r["name"] for r in answer["call"]["ranges"]] == [
        r["name"] for r in expected["call"]["ranges"]
    ]
    assert json.loads(tools.why("aten::mm", report, "op"))["activity"]["name"] == "mm_kernel"


def test_the_gap_at_an_instant_is_explained(tmp_path):
    made = made_reports.Made()
    made.annotation(
        made_reports.PUSH_POP, 1_000, 90_000, text="work", thread=made_reports.thread(100)
    )
    for number, start in enumerate((2_000, 30_000, 80_000)):
        made.kernel(f"kernel_{number}", start - 900, 100, start, start + 1_000)
    report = str(made.written(tmp_path / "gaps.sqlite"))
    tools = asked(tmp_path)
    longest = json.loads(tools.why("", report, "gap"))
    assert longest["gap"]["gap_ns"] == 49_000
    assert longest["ended_by"]["activity"]["name"] == "kernel_2"
    at = json.loads(tools.why("20us", report, "gap"))
    assert at["gap"]["gap_ns"] == 27_000
    assert at["ended_by"]["op"] == "work"
    with pytest.raises(ValueError, match="no gap"):
        tools.why("29500ns", report, "gap")


@pytest.mark.slow
def test_diff_has_the_figures_of_the_command(tools, path, tmp_path):
    other = made_reports.report(tmp_path / "other.sqlite", steps=3)
    answer = json.loads(tools.diff(str(path), str(other), max_bytes=100_000, top=1_000))
    expected = json.loads(done("diff", path, other, "--format", "json"))
    assert answer["totals"]["diff_ns"] == expected["totals"]["diff_ns"]
    rows = [rounded(row) for row in expected["rows"]]
    assert objects(answer) == [
        {k: row[k] for k in told} for row, told in zip(rows, objects(answer), strict=True)
    ]
    few = json.loads(tools.diff(str(path), str(other), top=1))
    assert few["left_out"] == len(rows) - 1


@pytest.mark.slow
def test_advice_has_the_figures_of_the_command(tools, path):
    answer = json.loads(tools.advise(str(path), top=50, max_bytes=100_000))
    expected = json.loads(done("advise", path, "--format", "json"))
    pairs = zip(answer["advice"], expected["advice"], strict=True)
    for told, piece in pairs:
        assert (told["rule"], told["text"], told["saving_ns"]) == (
            piece["rule"],
            piece["text"],
            piece["saving_ns"],
        )
    assert answer["passed"] == expected["passed"]


def test_a_report_of_nsight_compute_has_tables_and_no_timeline(tmp_path):
    report = tmp_path / "ncu.csv"
    report.write_text(made_ncu.raw([made_ncu.kernel()]), encoding="utf-8")
    tools = asked(tmp_path)
    assert objects(json.loads(tools.table(str(report), "kernel")))[0]["count"] == 1
    json.loads(tools.open_report(str(report)))
    with pytest.raises(ReportError, match="no timeline"):
        tools.timeline("0", "1s", str(report))


# -- Which reports are read


@pytest.mark.slow
def test_a_few_reports_are_kept_and_a_changed_one_is_read_again(tmp_path):
    paths = [made_reports.small(tmp_path / f"{n}.sqlite", steps=n) for n in (1, 2, 3)]
    kept = KeptReports(tmp_path / "bridge.db", most=2)
    first, second = (kept.get(str(path)) for path in paths[:2])
    assert kept.get(str(paths[0])) is first
    kept.get(str(paths[2]))  # takes the place of the second, which was asked for before the first
    assert kept.get(str(paths[0])) is first
    assert kept.get(str(paths[1])) is not second
    paths[0].unlink()
    made_reports.small(paths[0], steps=4)
    assert kept.get(str(paths[0])).ranges > first.ranges


@pytest.mark.slow
def test_a_run_of_the_store_goes_by_number_or_name(folder):
    made_reports.small(folder / "made.sqlite")
    done("import", "made.sqlite", "--name", "mine")
    kept = KeptReports(Path("bridge.db"))
    assert kept.get("") is kept.get("1") is kept.get("mine")
    assert json.loads(asked(folder).list_runs())["rows"][0][:2] == [1, "mine"]


def test_only_files_in_the_folders_are_read(tmp_path):
    inner, outer = tmp_path / "in", tmp_path / "out"
    inner.mkdir(), outer.mkdir()
    made_reports.small(inner / "a.sqlite")
    made_reports.small(outer / "b.sqlite")
    (inner / "link.sqlite").symlink_to(outer / "b.sqlite")
    kept = KeptReports(tmp_path / "bridge.db", [inner])
    assert kept.get(str(inner / "a.sqlite")).ranges
    for name in (outer / "b.sqlite", inner / "link.sqlite", inner / ".." / "out" / "b.sqlite"):
        with pytest.raises(ReportError, match="no other folder"):
            kept.get(str(name))
    with pytest.raises(ReportError, match="no other folder"):  # not whether it exists
        kept.get(str(tmp_path / "none.sqlite"))


def test_urls_and_files_that_do_not_exist_are_refused(tmp_path):
    kept = KeptReports(tmp_path / "bridge.db")
    with pytest.raises(ReportError, match="not URLs"):
        kept.get("https://example.org/report.sqlite")
    with pytest.raises(NoSuchReport):
        kept.get(str(tmp_path / "none.sqlite"))
