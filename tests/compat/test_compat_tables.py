"""The tables of MegEngine's profile_analyze and of MXNet's dumps, of any report."""

from __future__ import annotations

import json
from pathlib import Path

import made_reports
import pytest
from click.testing import CliRunner, Result
from made_reports import PUSH_POP, Made, thread

import bridge
from bridge.compat.megengine import profile_analyze
from bridge.compat.megengine.profile_analyze import OperatorRequest, operators
from bridge.compat.mxnet import dumps
from bridge.report import Report

COSTS = (  # of calls of mm, mm, argsort (which says no cost), copy; their kernels take 40, 10, 5, 1 µs
    {"flops": 8_000, "bytes": 2_048, "shapes": [[2, 3], [3, 4]], "dtypes": ["float32", "float32"]},
    {
        "flops": 2_000,
        "bytes": 1_024,
        "shapes": [[2, 3]],
        "output_shapes": [[7]],
        "dtypes": ["half"],
    },
    {"shapes": [[5]], "dtypes": ["int64"]},
    {"flops": 0, "bytes": 64, "shapes": [], "dtypes": []},
)
OPS, TIMES = ("mm", "mm", "argsort", "zero"), (40_000, 10_000, 5_000, 1_000)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a report of four calls with costs."""
    made = Made()
    made.names_of(100)
    for n, (op, time, costs) in enumerate(zip(OPS, TIMES, COSTS, strict=True)):
        t = 100_000 * (n + 1)
        made.annotation(PUSH_POP, t, t + 2_000, text=op, json=json.dumps(costs), thread=thread(100))
        made.kernel(f"{op}_kernel", t + 500, 100, t + 1_000, t + 1_000 + time)
    return made.written(tmp_path_factory.mktemp("input") / "costs.sqlite")


@pytest.fixture(scope="module")
def joined(path: Path) -> Report:
    return bridge.load(path)


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(
        profile_analyze.main,
        [str(w) for w in words],
        catch_exceptions=False,
        env={"COLUMNS": "200"},
    )


def times(joined: Report, **asked: object) -> list[int]:
    return operators(joined, "device", OperatorRequest(**asked))["time"].tolist()


# -- profile_analyze


@pytest.mark.slow
def test_operators_come_longest_first_with_shares_and_sums(joined: Report) -> None:
    found = operators(joined, "device", OperatorRequest())
    assert found["time"].tolist() == list(TIMES)
    assert found["share"].tolist() == pytest.approx([40 / 56, 10 / 56, 5 / 56, 1 / 56])
    assert found["cumulative"].tolist() == [40_000, 50_000, 55_000, 56_000]
    assert found["FLOPS"].tolist()[:2] == pytest.approx([2e8, 2e8])
    assert found["bandwidth"].tolist()[3] == pytest.approx(6.4e7)
    assert found["in_shapes"].tolist() == ["[[2, 3], [3, 4]]", "[[2, 3]]", "[[5]]", "[]"]
    assert found["out_shapes"].tolist() == ["", "[[7]]", "", ""]


@pytest.mark.slow
def test_filters(joined: Report) -> None:
    assert times(joined, types=["argsort", "zero"]) == [5_000, 1_000]
    assert times(joined, name="m|z") == [40_000, 10_000, 1_000]
    assert times(joined, name="m$") == []  # from the beginning, as re.match
    assert times(joined, dtype="half") == [10_000]
    assert times(joined, min_ns=5_000, max_ns=10_000) == [10_000, 5_000]


@pytest.mark.slow
def test_the_wait_before_the_kernel(joined: Report) -> None:
    """The calls of 5 ns returned 495 ns before each kernel began."""
    assert times(joined, end="kern") == [495] * 4


def test_the_host_has_its_own_times(joined: Report) -> None:
    assert operators(joined, "host", OperatorRequest())["time"].tolist() == [2_000] * 4


@pytest.mark.parametrize(
    ("how", "time", "computation"),
    [("sum", 50_000, 10_000), ("max", 40_000, 8_000), ("min", 10_000, 2_000), ("mean", 25_000, 5_000)],
)  # fmt: skip
def test_calls_of_a_type_become_one(how: str, time: int, computation: int, joined: Report) -> None:
    found = operators(joined, "device", OperatorRequest(aggregate=how)).set_index("type")
    assert found.loc["mm", ["time", "count", "computation"]].tolist() == [time, 2, computation]
    assert found.loc["mm", "FLOPS"] == pytest.approx(2e8)  # of both, whatever is shown
    assert found.loc["argsort", "computation"] == -1


@pytest.mark.slow
def test_speeds_are_of_the_calls_that_say_what_they_cost(path: Path) -> None:
    """One call without a formula does not make the others slower."""
    joined = bridge.load(path)
    renamed = operators(joined, "device", OperatorRequest(aggregate="sum"))
    assert renamed.set_index("type").loc["zero", "FLOPS"] == 0
    assert renamed.set_index("type")["FLOPS"].isna().tolist() == [False, True, False]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("order", "types"),
    [
        ("time", ["mm", "mm", "argsort", "zero"]),
        ("+time", ["zero", "argsort", "mm", "mm"]),
        ("computation", ["mm", "mm", "zero", "argsort"]),
        ("+computation", ["zero", "mm", "mm", "argsort"]),
        ("+FLOPS", ["zero", "mm", "mm", "argsort"]),
        ("type", ["zero", "mm", "mm", "argsort"]),
    ],
)
def test_what_has_no_value_comes_last_either_way(
    order: str, types: list[str], joined: Report
) -> None:
    assert operators(joined, "device", OperatorRequest(order=order))["type"].tolist() == types


@pytest.mark.slow
def test_what_is_printed(path: Path) -> None:
    result = run(path, "-t", "2", "--show-host", "--copy-time")
    assert result.exit_code == 0
    said = result.stdout
    assert "total device time: 5.6e-05\ntotal host time: 8e-06\ndevice busy: 5.6e-05\n" in said
    assert "copy time: tot=0 avg=0" in said
    assert "8.00KFLO" in said
    assert "200.00MFLOPS" in said
    assert "2.00KiB" in said
    assert "71.4%" in said
    assert ("host self time" in said, "zero" in said) == (True, False)
    only = run(path, "--print-only", "host").stdout
    assert "host self time" in only
    assert "device self time" not in only
    assert run(path, "--print-only", "summary").stdout.count("\n") == 3


@pytest.mark.slow
def test_the_wiki_has_bars(path: Path) -> None:
    said = run(path, "-t", "4", "--wiki", "--print-only", "device").stdout.splitlines()
    assert said[0].startswith("||device self time||cumulative||")
    assert said[0].endswith("||time bar||MFLOPS-bar||bandwidth bar||")
    assert [line.split("|")[10].count("#") for line in said[1:]] == [15, 4, 2, 1]


@pytest.mark.slow
def test_operators_alone_can_be_compared(path: Path) -> None:
    said = run(path, "-t", "9", "--dump-only-opr").stdout
    assert said.splitlines() == [
        "mm\tmm\t[[2, 3], [3, 4]]", "mm\tmm\t[[2, 3]]\t[[7]]", "argsort\targsort\t[[5]]", "zero\tzero\t[]"
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--aggregate", "sum"], "--aggregate-by type and --aggregate go together"),
        (["--aggregate-by", "type"], "--aggregate-by type and --aggregate go together"),
        (["--order-by", "nothing"], "no column 'nothing'"),
        (["--opr-name", "("], "'(' is no regular expression"),
    ],
)
def test_wrong_requests_are_said_in_a_line(words: list[str], said: str, path: Path) -> None:
    result = run(path, *words)
    assert result.exit_code == 2
    assert said in result.stderr.splitlines()[-1]


def test_a_bad_file_is_said_in_a_line(tmp_path: Path) -> None:
    result = run(tmp_path / "none.sqlite")
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)


# -- dumps


@pytest.mark.slow
def test_dumps_has_the_blocks_of_mxnet(joined: Report) -> None:
    found = json.loads(dumps.dumps(joined, format="json"))
    assert found["Unit"] == {"Time": "ms", "Memory": "kB"}
    mm = {"Count": 2, "Total": 0.004, "Min": 0.002, "Max": 0.002, "Avg": 0.002}
    assert found["Time"]["operator"]["mm"] == pytest.approx(mm)
    assert found["Time"]["Device"]["mm_kernel"]["Max"] == pytest.approx(0.04)
    assert found["Time"]["CUDA API"]["cudaLaunchKernel"]["Count"] == 4
    lines = dumps.dumps(joined, sort_by="max").splitlines()
    assert lines[lines.index("Device") + 4].split()[:2] == ["mm_kernel", "2"]


@pytest.mark.slow
def test_dumps_of_a_report_without_device_work(tmp_path: Path) -> None:
    without = "kernels copies fills graphs launches"
    joined = bridge.load(made_reports.small(tmp_path / "host.sqlite", without=without))
    assert list(json.loads(dumps.dumps(joined, format="json"))["Time"]) == ["operator"]
    with pytest.raises(ValueError, match="no format 'xml'"):
        dumps.dumps(joined, format="xml")
    with pytest.raises(ValueError, match="no sort_by 'name'"):
        dumps.dumps(joined, sort_by="name")


def test_the_command_prints_dumps(path: Path) -> None:
    result = CliRunner().invoke(dumps.main, [str(path), "--format", "json", "--ascending"])
    assert json.loads(result.stdout)["Time"]["Device"]


@pytest.mark.slow
@pytest.mark.parametrize("width", ["60", "100", "200"])
def test_figures_are_whole_in_terminals_of_any_width(width: str, path: Path) -> None:
    """Names are broken, and a narrow terminal gets lines longer than it."""
    said = CliRunner().invoke(profile_analyze.main, [str(path), "-t", "9"], env={"COLUMNS": width})
    for figure in ("8.00KFLO", "200.00MFLOPS", "2.00KiB", "71.4%", "device self time", "bandwidth"):
        assert figure in said.stdout
