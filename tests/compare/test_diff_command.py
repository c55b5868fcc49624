"""`bridge diff` on real reports and runs of the store: its tables, its documents, and the status that it ends with."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree as ET

import made_reports
import pytest
from command import assert_misused, assert_refused, bridge, done, unwarned
from real_parts import corpus_reports, skip_what_holds_no_profile

import bridge as library
from bridge.importers import ReportError

pytestmark = pytest.mark.usefixtures("folder", "read_once")
FAILED = 3
BEFORE, AFTER = "nsys/pytorch-2gpu-before.sqlite", "nsys/pytorch-2gpu-after.sqlite"


@pytest.fixture
def pair(corpus: Path) -> tuple[Path, Path]:
    return corpus / BEFORE, corpus / AFTER


@pytest.fixture
def trainings(corpus: Path) -> tuple[Path, Path]:
    """Give two trainings of six steps, whose data four workers load, and none."""
    return tuple(corpus / f"kineto/resnet50-workers{n}.pt.trace.json.gz" for n in (4, 0))  # type: ignore[return-value]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Give two reports of our own, of 2 steps and of 3."""
    folder = tmp_path_factory.mktemp("reports")
    return tuple(made_reports.small(folder / f"{steps}.sqlite", steps=steps) for steps in (2, 3))  # type: ignore[return-value]


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Give two reports of 2 steps, whose gemm takes half as long again in the second."""
    folder = tmp_path_factory.mktemp("grown")
    before, after = (made_reports.small(folder / f"{name}.sqlite") for name in ("2", "3"))
    longer = 'UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET "end" = "end" + 40 WHERE "end" - start = 80'
    return before, made_reports.changed(after, longer)


def document(*words: str | Path) -> dict:
    return json.loads(done("diff", *words, "--format", "json"))


def adds_up(found: dict) -> None:
    """Assert that rows and what is outside make up the whole, on each side and in what changed."""
    totals = found["totals"]
    for side in ("before_ns", "after_ns", "diff_ns"):
        parts = [row[side] for row in found["rows"]] + [o[side] for o in totals["outside"].values()]
        assert all(isinstance(part, int) for part in parts)
        assert sum(parts) == totals[side]
    assert totals["rows_diff_ns"] == sum(row["diff_ns"] for row in found["rows"])


# -- the real pair


@pytest.mark.slow
@pytest.mark.parametrize("by", ["op", "op-kernel", "kernel", "path", "op,kind", "memcpy", "module"])
def test_the_parts_of_the_real_pair_add_up_to_the_change_of_the_whole(pair, by):
    found = document(*pair, "--by", by)
    adds_up(found)
    whole = {name: ns for name, ns in found["totals"].items() if name.endswith("_ns")} | {}
    assert whole.pop("rows_diff_ns") is not None
    assert whole == {"before_ns": 541_106_145, "after_ns": 494_109_503, "diff_ns": -46_996_642}


@pytest.mark.slow
def test_each_side_is_what_the_report_says(pair):
    found = document(*pair)
    for side, path in zip(("before", "after"), pair, strict=True):
        rows = {
            row["op"]: row for row in json.loads(done("report", path, "--format", "json"))["rows"]
        }
        ours = {row["op"]: row for row in found["rows"]}
        for op, row in rows.items():
            assert ours[op][f"{side}_ns"] == row["gpu_self_ns"]
            assert ours[op][f"calls_{side}"] == row["calls"]


@pytest.mark.slow
def test_the_gate_judges_the_time_per_step_of_real_trainings(trainings):
    """The work takes less time after, but each iteration waits for data."""
    assert bridge("diff", *trainings, "--fail-over", "total:5%").exit_code == 0
    failing = bridge("diff", *trainings, "--fail-over", "2%", "--top", "1")
    assert failing.exit_code == FAILED
    assert failing.stderr == (
        "failed: iteration time: 117.287 ms -> 151.913 ms per step (+29.5 %),"
        " 95 % interval +20.4 to +38.6 %: slower, over --fail-over 2%\n"
    )
    assert bridge("diff", *trainings[::-1], "--fail-over", "iteration:0%").exit_code == 0
    of_ops = bridge("diff", *trainings[::-1], "--fail-over", "op:1%")
    assert of_ops.exit_code == FAILED
    over = [re.match(r"failed: (.*): \d", line)[1] for line in of_ops.stderr.splitlines()]
    found = document(*trainings[::-1])
    totals = found["totals"]
    grown = [
        row["op"]
        for row in found["rows"]
        if max(row["before_ns"] / totals["before_ns"], row["after_ns"] / totals["after_ns"]) > 0.01
        and row["step_after_ns"] > 1.01 * row["step_before_ns"]
    ]
    assert over == grown == ["aten::copy_", "aten::cudnn_convolution_backward_weight"]


@pytest.mark.slow
def test_what_cannot_be_told_of_real_trainings_is_unclear(trainings):
    """0.9 % more is over the noise of 1 % in a part of the interval."""
    rows = {row["op"]: row for row in document(*trainings)["rows"]}
    ops = ("aten::copy_", "aten::cudnn_convolution", "aten::cudnn_batch_norm")
    assert [rows[op]["state"] for op in ops] == ["faster", "unclear", "same"]
    for row in rows.values():
        if row["state"] == "same" and row["p"] != -1:
            limit = 0.01 * max(row["step_before_ns"], row["step_after_ns"])
            assert max(-row["low_ns"], row["high_ns"]) <= limit


@pytest.mark.slow
def test_the_numbers_of_steps_are_said_above_the_table(trainings):
    first = "6 steps before, 6 after: times and changes are per step, calls are totals\n\n"
    text = done("diff", *trainings)
    assert f"\n\n{first}op " in text
    assert f"\n\n{first}|" in done("diff", *trainings, "--format", "md")
    found = document(*trainings)
    assert found["steps"] == {"before": 6, "after": 6, "all": [6, 6], "per_step": True, "untested": ""}  # fmt: skip
    # Work without a launch, 42.787 ms and 35.170 ms, is of no step: 627.093 ms -> 618.357 ms over 6 steps.
    whole_step = found["whole_step"]
    assert (whole_step["step_before_ns"], whole_step["step_after_ns"]) == (104_515_500, 103_059_500)
    assert whole_step["state"] == "faster"  # by 1.2 to 1.6 %, over the noise of 1 %
    whole = [
        json.loads(done("report", path, "--format", "json"))["totals"]["gpu_ns"]
        for path in trainings
    ]
    assert f"in all {whole[0] / 1e6:.3f} ms → {whole[1] / 1e6:.3f} ms: -16.353 ms (-2.4 %)" in text
    sizes = [abs(row["step_after_ns"] - row["step_before_ns"]) for row in found["rows"]]
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.slow
def test_layers_of_a_pass_are_no_steps_to_compare(pair):
    found = document(*pair)
    assert found["steps"]["per_step"] is False
    assert "neither report has steps" in done("diff", *pair)


@pytest.mark.slow
def test_the_other_way_round_is_the_negative(pair):
    there, back = document(*pair), document(*pair[::-1])
    turned = {row["op"]: row for row in back["rows"]}
    assert len(there["rows"]) == len(turned)
    for row in there["rows"]:
        assert row["diff_ns"] == -turned[row["op"]]["diff_ns"]


@pytest.mark.slow
@pytest.mark.parametrize("path", corpus_reports())
def test_a_report_against_itself_is_all_zeros(path):
    try:
        joined = library.load(path)
    except ReportError:
        skip_what_holds_no_profile(path)
    for by in ("op", "op-kernel") if len(joined.capture.activities) else ("op",):
        found = library.diff(joined, joined, by)
        assert not found.rows["diff_ns"].any()
        assert set(found.rows["state"]) <= {"same"}
        assert found.rows["before_ns"].sum() + sum(
            o["before_ns"] for o in found.comparison.outside.values()
        ) == found.whole["before_ns"]  # fmt: skip
        for name in ("call_mean_diff_ns", "unmatched_before", "unmatched_after"):
            assert not found.rows.get(name, found.rows["diff_ns"]).any()


# -- what is shown


@pytest.mark.slow
def test_the_table_says_where_the_change_went(grown):
    text = done("diff", *grown)
    assert re.search(
        r"^gemm +2 +160 ns +240 ns +\+80 ns +\+50\.0 % +(100\.0 % +)?unclear$",
        text,
        re.MULTILINE,
    )
    assert "activity time 306 ns → 386 ns: +80 ns (+26.1 %); ops" in text
    assert text.endswith(
        "no interval and no p-value: they need at least 4 steps per report; there are 2 before, 2 after;"
        " without one a change is unclear\n"
    )
    assert "Welch" not in text


@pytest.mark.slow
def test_csv_markdown_and_json_hold_the_same_rows(reports):
    rows = document(*reports)["rows"]
    table = list(csv.DictReader(io.StringIO(done("diff", *reports, "--format", "csv"))))
    assert [row["op"] for row in table] == [row["op"] for row in rows]
    assert [int(row["diff_ns"]) for row in table] == [row["diff_ns"] for row in rows]
    text = done("diff", *reports, "--format", "md", "--fail-over", "90%", "--unit", "ns")
    assert text.startswith("### 2.sqlite → 3.sqlite\n\n- :white_check_mark: total activity time")
    assert "\n2 steps before, 3 after: times and changes are per step, calls are totals\n" in text
    assert "| gemm | 2 → 3 | 80 ns | 80 ns | 0 ns | +0.0 % |" in text


@pytest.mark.slow
def test_rows_are_chosen_as_those_of_a_report_are(reports):
    found = document(*reports, "--filter", "op=gemm", "--sort", "+after", "--top", "1")
    assert [row["op"] for row in found["rows"]] == ["gemm"]
    assert found["totals"]["diff_ns"] == 153  # of the whole, whatever is shown


@pytest.mark.slow
def test_a_window_is_of_both_sides(reports):
    found = document(*reports, "--step", "0..1")
    assert found["totals"]["diff_ns"] == 0
    adds_up(found)


@pytest.mark.slow
def test_a_step_that_one_side_lacks_is_refused(reports):
    result = bridge("diff", *reports, "--step", "0..2", "--fail-over", "5%")
    assert_misused(result, "not the same steps of 0..2", "0..1 before, 0..2 after", "all have 0..1")
    assert document(*reports, "--step", "1..1")["totals"]["diff_ns"] == 0
    assert_misused(bridge("diff", *reports, "--step", "2..5"), "no such step")


@pytest.mark.slow
def test_what_is_unknown_is_not_small(reports):
    """Two steps are too few for a p."""
    assert document(*reports, "--filter", "p<0.05")["rows"] == []
    assert document(*reports, "--filter", "step_ratio<=1,q<2")["rows"] == []
    assert document(*reports, "--filter", "p=-1")["rows"] == document(*reports)["rows"]
    assert document(*reports, "--filter", "ratio>1,op=gemm")["rows"] != []


@pytest.mark.slow
def test_a_name_stays_on_its_line_and_is_no_markup(grown, folder):
    name = "a <b> *c* @d `e` __f__ \x1b[31m\n# g"
    paths = []
    for path in grown:
        paths.append(shutil.copy(path, folder / f"named-{path.name}"))
        made_reports.changed(paths[-1], f"UPDATE StringIds SET value = '{name}' WHERE value = 'gemm'")  # fmt: skip
        made_reports.changed(paths[-1], f"UPDATE NVTX_EVENTS SET text = '{name}' WHERE text = 'gemm'")  # fmt: skip
    limits = ("--fail-over", "op:5%", "--fail-over", "op:90%")
    plain = bridge("diff", *paths, *limits)
    for text in (plain.stdout, plain.stderr):
        assert "a <b> *c* @d `e` __f__  [31m # g: 160 ns" in text
        assert "\x1b" not in text
    marked = bridge("diff", *paths, *limits, "--format", "md").stdout
    safe = r"a \<b> \*c\* @&#8203;d \`e\` \_\_f\_\_  \[31m # g"
    assert f":x: {safe}: 160 ns" in marked
    assert f"\n| {safe} | 2 | 160 ns |" in marked


@pytest.mark.slow
def test_junit_is_read_by_an_independent_parser(reports, folder):
    (folder / "b.toml").write_text(
        '[ops]\ngemm = {calls = 2}\n"a<b & \\"c\\" \\u0001" = {calls = 1}'
    )
    result = bridge(
        "diff", *reports, "--budget", "b.toml", "--fail-over", "op:90%", "-o", "junit.xml"
    )
    assert result.exit_code == FAILED
    suites = ET.parse(folder / "junit.xml").getroot()
    [suite] = suites
    cases = list(suite)
    assert (suites.tag, suite.tag, {case.tag for case in cases}) == (
        "testsuites",
        "testsuite",
        {"testcase"},
    )
    assert int(suite.get("tests")) == len(cases)
    broken = [case for case in cases if case.find("failure") is not None]
    assert int(suite.get("failures")) == len(broken) == 2
    assert [case.get("name") for case in broken] == ["gemm calls", 'a<b & "c" \ufffd']
    assert broken[0].find("failure").get("message") == "gemm calls: 3, over the budget of 2"


@pytest.mark.slow
def test_a_renamed_kernel_is_one_row(reports, folder):
    other = shutil.copy(reports[0], folder / "renamed.sqlite")
    made_reports.changed(
        other, "UPDATE StringIds SET value = replace(value, 'gemm_kernel', 'gemm_kernel_v2')"
    )
    [row] = [
        row
        for row in document(reports[0], other, "--by", "op-kernel")["rows"]
        if row["op"] == "gemm"
    ]
    assert (row["kernel_before"], row["kernel"]) == ("gemm_kernel", "gemm_kernel_v2")
    assert (row["diff_ns"], row["state"]) == (0, "same")
    assert "gemm_kernel -> gemm_kernel_v2" in done(
        "diff", reports[0], other, "--by", "op-kernel", "--format", "md"
    )


# -- one report alone


@pytest.mark.slow
def test_a_budget_is_of_one_report(reports, folder):
    (folder / "b.toml").write_text('total = "1ms"\nops.gemm.gpu_total = "160ns"')
    assert done("diff", "--budget", "b.toml", reports[0]).splitlines() == [
        "passed: total activity time: 306 ns, within the budget of 1ms",
        "passed: gemm gpu_total: 160 ns, within the budget of 160ns",
    ]
    failing = bridge("diff", "--budget", "b.toml", reports[1])
    assert failing.exit_code == FAILED
    assert unwarned(failing.stderr) == "failed: gemm gpu_total: 240 ns, over the budget of 160ns\n"
    told = json.loads(bridge("diff", "--budget", "b.toml", reports[1], "--format", "json").stdout)
    assert (told["before"], told["after"], told["rows"]) == ([], ["3.sqlite"], [])
    assert [gate["passed"] for gate in told["gates"]] == [True, False]


# -- runs of the store


@pytest.mark.slow
def test_a_run_of_the_store_goes_by_its_number_or_its_name(reports):
    done("import", reports[0], "--name", "baseline", "--quiet")
    done("import", reports[1], "--quiet")
    assert re.search(r"2\.sqlite  \(baseline\)$", done("runs", "list"), re.MULTILINE)
    expected = document(*reports)["rows"]
    for one, other in (("baseline", "2"), ("1", reports[1]), (reports[0], "2")):
        assert document(one, other)["rows"] == expected
    assert document(reports[0])["rows"] == document(reports[1], reports[0])["rows"]
    newest = bridge("diff", reports[1])  # is the newest run itself
    assert "before: run 1 (baseline) of bridge.db, 2.sqlite" in newest.stderr
    assert newest.stdout == bridge("diff", "2").stdout == done("diff", *reports)
    by_name, by_number = done("report", "--run", "baseline"), done("report", "--run", "1")
    by_name = by_name.replace("--run baseline", "--run 1")
    assert by_name.split() == by_number.split()  # the longer name breaks lines elsewhere


@pytest.mark.slow
def test_a_run_is_compared_with_the_newest_one_before_it(reports):
    done("import", reports[0], "--quiet")
    done("import", reports[1], "--quiet")
    assert "before: run 1 of" in bridge("diff", "2").stderr
    assert_refused(bridge("diff", "1"), "no run older than run 1 to compare with")
    assert (
        "before: run 2 of" in bridge("diff", reports[0]).stderr
    )  # of a file, the newest other one


@pytest.mark.slow
def test_a_name_goes_to_the_run_that_got_it_last(reports):
    done("import", reports[0], "--name", "main", "--quiet")
    moved = bridge("import", reports[1], "--name", "main", "--quiet")
    assert "main was run 1; it is run 2 from now on" in moved.stderr
    assert [line.endswith("(main)") for line in done("runs", "list").splitlines()] == [False, True]
    again = bridge("import", reports[0], "--name", "main", "--quiet")
    assert "already imported as run 1" in again.stderr
    assert [line.endswith("(main)") for line in done("runs", "list").splitlines()] == [True, False]


@pytest.mark.parametrize("name", ["", " ", "7"])
def test_what_cannot_name_a_run_is_refused_before_the_import(reports, folder, name):
    assert_refused(bridge("import", reports[0], "--name", name), "cannot name a run")
    assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_a_run_that_is_not_there_is_said_with_those_that_are(reports):
    done("import", reports[0], "--name", "baseline", "--quiet")
    assert_refused(bridge("diff", "main", reports[1]), "no run 'main': one of baseline, 1")
    assert_refused(bridge("diff", "9", reports[1]), "no run '9'")
    assert_refused(bridge("diff", reports[0]), "bridge.db", "name BEFORE")


@pytest.mark.slow
def test_without_a_store_what_is_no_file_is_missing(reports):
    assert_refused(bridge("diff", "baseline", reports[1]), "baseline")
    assert_refused(bridge("diff", reports[1]), "bridge.db")


# -- what is refused


@pytest.mark.slow
def test_misuse_is_said_in_a_line(reports, folder):
    assert_misused(bridge("diff"), "AFTER")
    assert_misused(bridge("diff", *reports, reports[0]), "a,b")
    assert_misused(bridge("diff", *reports, "--by", "stream"), "its values differ from run to run")
    assert_misused(bridge("diff", *reports, "--by", "op-kernl"), "did you mean op-kernel?")
    assert_misused(bridge("diff", *reports, "--fail-over", "5"), "unit")
    assert_misused(bridge("diff", *reports, "--budget", "none.toml"), "none.toml")
    assert_misused(bridge("diff", *reports, "--format", "junit"), "--fail-over")
    assert_misused(bridge("diff", *reports, "--noise", "1ms"), "1%")
    assert_misused(bridge("diff", *reports, "--filter", "speed>1"), "speed")


@pytest.mark.slow
def test_several_files_of_a_side_go_with_commas(reports):
    both = ",".join(map(str, reports))
    found = document(both, both)
    assert found["before"] == ["2.sqlite", "3.sqlite"]
    assert found["totals"]["before_ns"] == 306 + 459
    assert {row["state"] for row in found["rows"]} == {"same"}


@pytest.mark.slow
def test_programs_have_it_too(reports):
    found = library.diff(*reports, by="op-kernel")
    assert found.whole["diff_ns"] == 153
    assert (
        found.rows["diff_ns"].sum() + sum(o["diff_ns"] for o in found.comparison.outside.values())
        == 153
    )
    verdicts = found.judged(["5%"], {"ops": {"gemm": {"calls": 4}}})
    assert [v.passed for v in verdicts] == [True, True]  # 2 steps and 3: per step nothing grew
