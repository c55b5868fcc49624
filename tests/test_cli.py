"""What `bridge report` prints, as other programs read it: keys, types, order, formats, and its options."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import click
import made_reports
import pytest
from command import (
    COMMANDS,
    assert_misused,
    assert_refused,
    bridge,
    done,
    inside,
    on,
    table_in,
    unwarned,
)

from bridge.cli import main
from bridge.render.table import escaped

KEYS = {
    "kernel": "kernel count total_ns mean_ns median_ns min_ns max_ns share",
    "memcpy": "operation count total_ns mean_ns min_ns max_ns bytes gb_per_s",
    "op-kernel": "op kernel count total_ns mean_ns min_ns max_ns",
    "op": "op calls kernels memcpys memsets graphs gpu_self_ns gpu_total_ns gpu_busy_ns cpu_self_ns"
    " cpu_total_ns gpu_mean_ns gpu_p50_ns gpu_p95_ns gpu_max_ns share",
    "range": "name path start_ns duration_ns thread gpu_start_ns gpu_span_ns gpu_busy_ns activities",
    "module": "module calls kernels gpu_forward_ns gpu_backward_ns gpu_self_ns gpu_total_ns"
    " cpu_self_ns cpu_total_ns ambiguous_ns share",
    "forward-op": "op calls kernels gpu_forward_ns gpu_backward_ns gpu_self_ns"
    " cpu_forward_ns cpu_backward_ns cpu_self_ns ambiguous_ns share",
    "phase": "phase ranges open activities kernels gpu_ns gpu_busy_ns wall_ns share",
    "wait": "op wait count total_ns mean_ns min_ns max_ns",
}
VIEWS = list(KEYS)
TEXTS = {"kernel", "operation", "op", "name", "path", "module", "phase", "wait"}
FLOATS = {"mean_ns", "median_ns", "share", "gb_per_s", "gpu_mean_ns", "gpu_p50_ns", "gpu_p95_ns"}
TIME = {"op": "gpu_self_ns", "range": "gpu_busy_ns", "phase": "gpu_ns"}
TIME |= dict.fromkeys(
    ("module", "forward-op"), "gpu_self_ns"
)  # what rows are sorted by; else total_ns

Row = dict[str, Any]


pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a report without NVTX: it has kernels, and warnings."""
    path = tmp_path_factory.mktemp("input") / "bare.sqlite"
    return made_reports.small(path, without="annotations")


def document(*words: str | Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done("report", "--format", "json", *words))
    return found


def rows(*words: str | Path) -> list[Row]:
    found: list[Row] = document(*words)["rows"]
    return found


@cache
def every(report: Path, by: str) -> dict[str, Any]:
    """Give the document of a view with no option, made once for all that read it and change nothing."""
    return document(report, "--by", by)


def by_name(rows: list[Row], key: str = "op") -> dict[str, Row]:
    return {row[key]: row for row in rows}


# -- the document


@pytest.mark.slow
@pytest.mark.parametrize("by", VIEWS)
def test_rows_have_the_keys_of_the_contract_in_order(by: str, three_steps: Path) -> None:
    found = every(three_steps, by)
    assert list(found) == ["format", "by", "source", "totals", "rows"]
    assert found["format"] == "bridge.report/2"
    assert found["by"] == by
    assert found["source"] == ["report.sqlite"]
    assert found["rows"]
    for row in found["rows"]:
        assert list(row) == KEYS[by].split()


@pytest.mark.slow
@pytest.mark.parametrize("by", VIEWS)
def test_integers_stay_integers(by: str, three_steps: Path, bare: Path) -> None:
    for row in rows(three_steps, bare, "--by", by):
        for key, value in row.items():
            expected = str if key in TEXTS else float if key in FLOATS else int
            assert type(value) is expected, key


@pytest.mark.slow
@pytest.mark.parametrize("by", VIEWS)
def test_rows_come_by_time_the_largest_first_and_then_by_name(by: str, three_steps: Path) -> None:
    found = every(three_steps, by)["rows"]
    name = KEYS[by].split()[0]
    time = TIME.get(by, "total_ns")
    assert found == sorted(found, key=lambda row: -row[time])
    tied = [key for key in ("gpu_total_ns", "cpu_total_ns", "duration_ns") if key in found[0]]
    keys = [(-row[time], *(-row[key] for key in tied), row[name]) for row in found]
    assert keys == sorted(keys)


@pytest.mark.slow
def test_rows_of_the_same_time_come_by_name(tmp_path: Path) -> None:
    path = made_reports.small(tmp_path / "ties.sqlite")
    kernels = made_reports.schema.KERNELS.name
    made_reports.changed(path, f"UPDATE {kernels} SET end = start + 10")
    names = [row["kernel"] for row in rows(path, "--by", "kernel")]
    assert names == ["gemm_kernel", "late_kernel", "lost_kernel", "mm_kernel"]
    assert [row["op"] for row in rows(path, "--by", "op-kernel")] == ["aten::mm", "gemm"]


@pytest.mark.slow
@pytest.mark.parametrize("by", VIEWS)
def test_totals_cover_every_activity_whatever_is_shown(by: str, three_steps: Path) -> None:
    steps = 6  # three of each process
    assert document(three_steps, "--by", by, "--top", "1", "--filter", f"{KEYS[by].split()[0]}=x")[
        "totals"
    ] == {
        "activities": steps * made_reports.ACTIVITIES_PER_STEP + 1,
        "gpu_ns": steps * 153,
        "attributed_ns": steps * 130,
        "unattributed": {
            "no_launch": {"activities": steps, "gpu_ns": steps * 3},
            "no_range": {"activities": steps, "gpu_ns": steps * 20},
            "invalid_time": {"activities": 1, "gpu_ns": 0},
        },
    }


@pytest.mark.slow
def test_figures_per_op_are_right(three_steps: Path) -> None:
    found = by_name(rows(three_steps))
    assert found["aten::mm"] == {
        "op": "aten::mm", "calls": 6, "kernels": 6, "memcpys": 6, "memsets": 0, "graphs": 0,
        "gpu_self_ns": 6 * 40, "gpu_total_ns": 6 * 120, "gpu_busy_ns": 3 * 120,
        "cpu_self_ns": 6 * 140, "cpu_total_ns": 6 * 290,
        "gpu_mean_ns": 120.0, "gpu_p50_ns": 120.0, "gpu_p95_ns": 120.0, "gpu_max_ns": 120,
        "share": 40 / 153,
    }  # fmt: skip
    assert found["step"]["gpu_total_ns"] == 6 * 130
    assert (found["step"]["memsets"], found["step"]["graphs"]) == (6, 6)
    assert set(found) == {"aten::mm", "gemm", "step", "mine | 'ü'", "open", "<unnamed>"}


@pytest.mark.slow
def test_figures_of_the_other_tables_are_right(three_steps: Path) -> None:
    assert rows(three_steps, "--by", "op-kernel")[0] == {
        "op": "gemm", "kernel": "gemm_kernel", "count": 6, "total_ns": 480, "mean_ns": 80.0,
        "min_ns": 80, "max_ns": 80,
    }  # fmt: skip
    assert rows(three_steps, "--by", "kernel")[1] == {
        "kernel": "mm_kernel", "count": 6, "total_ns": 180, "mean_ns": 30.0, "median_ns": 30.0,
        "min_ns": 30, "max_ns": 30, "share": 30 / 133,
    }  # fmt: skip
    assert rows(three_steps, "--by", "memcpy") == [
        {"operation": "[CUDA memcpy Host-to-Device]", "count": 6, "total_ns": 60, "mean_ns": 10.0,
         "min_ns": 10, "max_ns": 10, "bytes": 24_000, "gb_per_s": 400.0},
        {"operation": "[CUDA memset]", "count": 6, "total_ns": 30, "mean_ns": 5.0,
         "min_ns": 5, "max_ns": 5, "bytes": 384, "gb_per_s": 12.8},
    ]  # fmt: skip
    gemm = [
        row for row in rows(three_steps, "--by", "range") if row["path"] == "step/aten::mm/gemm"
    ]
    assert len(gemm) == 6
    assert gemm[0] == {
        "name": "gemm", "path": "step/aten::mm/gemm", "start_ns": 1050, "duration_ns": 150,
        "thread": made_reports.thread(100), "gpu_start_ns": 1100, "gpu_span_ns": 80,
        "gpu_busy_ns": 80, "activities": 1,
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("by", VIEWS)
def test_standard_output_is_the_document_alone(by: str, bare: Path) -> None:
    result = bridge("report", bare, "--by", by, "--format", "json")
    assert json.loads(result.stdout)["by"] == by
    warning, *_ = result.stderr.splitlines()
    assert warning.startswith("warning: bare.sqlite: no NVTX ranges")


@pytest.mark.slow
def test_the_same_input_gives_the_same_bytes(three_steps: Path) -> None:
    forms = ("json", "table")
    code = (
        "import sys; from bridge.cli import main\n"
        "for form in sys.argv[2:]: main(['report', sys.argv[1], '--format', form], standalone_mode=False)"
    )
    outputs = set()
    for seed in ("1", "2"):
        environ = {**os.environ, "PYTHONHASHSEED": seed}
        words = [sys.executable, "-c", code, str(three_steps), *forms]
        outputs.add(subprocess.run(words, capture_output=True, check=True, env=environ).stdout)
    assert len(outputs) == 1
    here = "".join(done("report", three_steps, "--format", form) for form in forms)
    assert outputs.pop().decode() == here


@pytest.mark.slow
def test_several_reports_are_one_table(three_steps: Path, bare: Path) -> None:
    found = document(three_steps, bare, "--by", "kernel")
    assert found["source"] == ["report.sqlite", "bare.sqlite"]
    counts = {row["kernel"]: row["count"] for row in found["rows"]}
    assert counts == {
        "gemm_kernel": 8, "mm_kernel": 8, "late_kernel": 8, "lost_kernel": 8, "backwards": 1,
    }  # fmt: skip
    other_way = document(bare, three_steps, "--by", "kernel")
    assert other_way["rows"] == found["rows"]
    assert other_way["totals"] == found["totals"]


@pytest.mark.slow
@pytest.mark.parametrize("by", VIEWS)
def test_a_report_without_rows_is_a_document_without_rows(by: str, tmp_path: Path) -> None:
    nothing = "kernels copies fills graphs"
    path = made_reports.small(tmp_path / "x.sqlite", without=f"{nothing} launches")
    found = document(path, "--by", by)
    assert found["totals"] == {
        "activities": 0, "gpu_ns": 0, "attributed_ns": 0, "unattributed": {},
    }  # fmt: skip
    assert bool(found["rows"]) == (by in ("op", "range", "module", "forward-op", "wait"))


# -- other formats


@pytest.mark.slow
@pytest.mark.parametrize("by", VIEWS)
def test_csv_holds_the_same_rows(by: str, three_steps: Path) -> None:
    expected = every(three_steps, by)["rows"]
    read = list(
        csv.DictReader(io.StringIO(done("report", three_steps, "--by", by, "--format", "csv")))
    )
    kinds = {key: type(value) for key, value in expected[0].items()}
    assert [{key: kinds[key](value) for key, value in row.items()} for row in read] == expected


@pytest.mark.slow
def test_csv_keeps_names_of_any_kind(tmp_path: Path) -> None:
    odd = 'a "quoted", name\nof two lines'
    path = made_reports.small(tmp_path / "odd.sqlite")
    quoted = odd.replace("'", "''")
    table = made_reports.schema.ANNOTATIONS.name
    made_reports.changed(path, f"UPDATE {table} SET text = '{quoted}' WHERE text = 'step'")
    read = csv.DictReader(io.StringIO(done("report", path, "--format", "csv"), newline=""))
    assert odd in {row["op"] for row in read}
    assert odd in by_name(rows(path))
    for form in ("md", "table"):
        assert done("report", path, "--format", form)


def cells(line: str) -> list[str]:
    """Split a row of a Markdown table, in which a bar inside a cell is escaped."""
    inner = re.split(r"(?<!\\)\|", line.strip().strip("|"))
    return [cell.strip() for cell in inner]


@pytest.mark.slow
@pytest.mark.parametrize("by", VIEWS)
def test_markdown_holds_the_same_rows(by: str, three_steps: Path) -> None:
    expected = every(three_steps, by)["rows"]
    lines = done("report", three_steps, "--by", by, "--format", "md").splitlines()
    head, rule, *body = [cells(line) for line in lines if line.startswith("|")]
    assert {len(line) for line in (head, rule, *body)} == {len(head)}
    assert set(rule) <= {"---", "---:"}
    name = KEYS[by].split()[0]
    assert [line[0] for line in body] == [escaped(row[name]) for row in expected]
    assert lines[-1].startswith("43 activities, 918 ns: 85.0 % in 3 ops")


@pytest.mark.slow
@pytest.mark.parametrize("by", VIEWS)
def test_the_table_fits_the_terminal_and_shows_every_row(
    by: str, three_steps: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = every(three_steps, by)["rows"]
    name = KEYS[by].split()[0]
    for width in (60, 80, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        text = done("report", three_steps, "--by", by)
        lines = [line for line in text.splitlines()[:-1] if not line.startswith("→ bridge ")]
        assert max(map(len, lines)) <= width
        _head, rule, *body = table_in(text)
        body = [line for line in body[: body.index("")] if "more column" not in line]
        assert len(body) == len(expected), width
        assert set(rule) == {"─"}
        for line, row in zip(body, expected, strict=True):
            assert line.startswith(row[name][:6]), width


@pytest.mark.slow
def test_the_suffix_of_the_output_chooses_the_format(three_steps: Path, folder: Path) -> None:
    for suffix in ("json", "csv", "md"):
        result = bridge("report", three_steps, "-o", f"x.{suffix}")
        assert (result.exit_code, result.stdout) == (0, "")
        assert unwarned(result.stderr) == f"x.{suffix}: 6 rows\n"
        printed = done("report", three_steps, "--format", suffix)
        assert (folder / f"x.{suffix}").read_text(encoding="utf-8") == printed
    done("report", three_steps, "-o", "x.txt")
    assert "GPU self" in (folder / "x.txt").read_text(encoding="utf-8")
    done("report", three_steps, "-o", "y.json", "--format", "csv")
    assert (folder / "y.json").read_text(encoding="utf-8").startswith("op,calls,")


# -- options


@pytest.mark.slow
@pytest.mark.parametrize("by", VIEWS)
def test_top_keeps_the_first_rows(by: str, three_steps: Path) -> None:
    whole = every(three_steps, by)["rows"]
    for count in (1, 2, 1000):
        assert rows(three_steps, "--by", by, "--top", str(count)) == whole[:count]


@pytest.mark.slow
def test_sort_takes_any_column_either_way(three_steps: Path) -> None:
    def sorted_by(column: str) -> list[str]:
        return [row["kernel"] for row in rows(three_steps, "--by", "kernel", "--sort", column)]

    assert sorted_by("min_ns") == sorted_by("min") == sorted_by("mean_ns")
    assert sorted_by("min")[0] == "gemm_kernel"
    assert sorted_by("+min")[0] == "backwards"
    assert sorted_by("+kernel") == sorted(sorted_by("kernel"))
    assert sorted_by("kernel") == sorted(sorted_by("kernel"), reverse=True)
    equal = ["gemm_kernel", "late_kernel", "lost_kernel", "mm_kernel"]
    assert sorted_by("count") == [*equal, "backwards"]
    assert sorted_by("+count") == ["backwards", *equal]
    top = rows(three_steps, "--by", "kernel", "--sort", "+total", "--top", "2")
    assert [row["kernel"] for row in top] == ["backwards", "lost_kernel"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("condition", "kernels"),
    [
        ("kernel=gemm_kernel", ["gemm_kernel"]),
        ("kernel=*m_kernel", ["gemm_kernel", "mm_kernel"]),
        ("kernel!=*kernel", ["backwards"]),
        ("kernel=?m_kernel", ["mm_kernel"]),
        ("total>=120", ["gemm_kernel", "mm_kernel", "late_kernel"]),
        ("total_ns > 0.12us", ["gemm_kernel", "mm_kernel"]),
        ("total<0.00002ms", ["lost_kernel", "backwards"]),
        ("share>20%, count>=3", ["gemm_kernel", "mm_kernel"]),
        ("share<0.2, kernel=l*", ["late_kernel", "lost_kernel"]),
        ("count=1", ["backwards"]),
        ("count!=1,total<=18ns", ["lost_kernel"]),
        ("kernel=nothing", []),
    ],
)
def test_filter_keeps_what_meets_every_condition(
    condition: str, kernels: list[str], three_steps: Path
) -> None:
    found = rows(three_steps, "--by", "kernel", "--filter", condition)
    assert [row["kernel"] for row in found] == kernels


@pytest.mark.slow
def test_filter_takes_names_with_commas_and_brackets(three_steps: Path) -> None:
    raw = ["--names", "raw", "--filter", "op=aten::mm*[[2, 3]], calls>=1"]
    assert [row["calls"] for row in rows(three_steps, *raw)] == [2, 2, 2]
    assert rows(three_steps, "--filter", "op=mine | 'ü'")
    assert not rows(three_steps, "--filter", "op=[")


@pytest.mark.slow
@pytest.mark.parametrize("by", ["kernel", "memcpy", "op", "op-kernel", "range"])
def test_filter_and_sort_work_on_no_rows(by: str, bare: Path) -> None:
    name, number = KEYS[by].split()[0], KEYS[by].split()[3]
    conditions = f"{name}=nothing, {name}!=x, {number}>3"
    done("report", bare, "--by", by, "--filter", conditions)
    for form in ("table", "json", "csv", "md"):  # rows are sorted before they have a form
        done("report", bare, "--by", by, "--format", form, "--filter", conditions, "--sort", name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--filter", "pace>3"], ["no column 'pace'", "--filter list shows all"]),
        (["--filter", "calls"], ["cannot read 'calls'", "COLUMN=NAME"]),
        (["--filter", "calls>many"], ["'many' is no number", "us"]),
        (["--filter", "calls>"], ["cannot read 'calls>'"]),
        (["--filter", "op>3"], ["op is a name", "=, != or ~"]),
        (["--filter", ","], ["cannot read"]),
        (["--sort", "pace"], ["no column 'pace'", "--sort list shows all"]),
        (["--sort", "-calls"], ["no column '-calls'"]),
        (["--top", "0"], ["0"]),
        (["--top", "ten"], ["ten"]),
        (["--by", "modul"], ["no table 'modul'; did you mean module?", "--by list shows all"]),
        (["--by", "module", "--direction", "forward"], ["--direction goes with --by op,", "range"]),
        (["--memory-kinds"], ["--memory-kinds goes with --by memcpy"]),
        (["--arguments"], ["--arguments goes with --by range"]),
        (["--domain", "Other"], ["no domain in the report 'other'", "default"]),
        (["--exclude-domain", "all"], ["no domain in the report 'all'"]),
        (["--format", "yaml"], ["'yaml'"]),
        (["--names", "all"], ["'all'"]),
        (["--kernel-names", "long"], ["'long'"]),
        (["--inclusive"], ["--inclusive goes with --by op-kernel"]),
        (["--inclusive", "--by", "kernel"], ["--inclusive goes with --by op-kernel"]),
        (["--no-such"], ["--no-such"]),
    ],
)
def test_a_wrong_option_is_said_in_one_line(
    words: list[str], said: list[str], three_steps: Path
) -> None:
    assert_misused(bridge("report", three_steps, *words), *said)


def test_import_needs_a_report() -> None:
    assert_misused(bridge("import"), "REPORTS")
    assert_misused(bridge("imports"), "no command 'imports'", "did you mean import")


@pytest.mark.slow
def test_inclusive_counts_a_kernel_for_every_op_on_its_stack(three_steps: Path) -> None:
    found = rows(three_steps, "--by", "op-kernel", "--inclusive")
    owners = {(row["op"], row["kernel"]): row["total_ns"] for row in found}
    assert owners == {
        ("step", "gemm_kernel"): 480, ("aten::mm", "gemm_kernel"): 480,
        ("gemm", "gemm_kernel"): 480, ("step", "mm_kernel"): 180, ("aten::mm", "mm_kernel"): 180,
    }  # fmt: skip
    assert list(found[0]) == KEYS["op-kernel"].split()


@pytest.mark.slow
def test_raw_names_are_whole_texts_of_all_domains(three_steps: Path) -> None:
    found = by_name(rows(three_steps, "--names", "raw"))
    assert "aten::mm, seq = 2, op_id = 52, sizes = [[2, 3]]" in found
    assert found["NCCL:ncclAllReduce"]["kernels"] == 6
    assert found["Mine:mine | 'ü'"]["calls"] == 6
    assert found["gemm"]["kernels"] == 0
    assert "aten::mm" not in found
    ranges = {row["name"] for row in rows(three_steps, "--names", "raw", "--by", "range")}
    assert ranges == set(found)


@pytest.mark.slow
def test_kernel_names_come_in_three_kinds(three_steps: Path) -> None:
    names = {
        "short": "gemm_kernel",
        "demangled": "void gemm_kernel<float>(float *)",
        "mangled": "_Z11gemm_kernelPfE",
    }
    for by in ("kernel", "op-kernel"):
        for kind, name in names.items():
            assert rows(three_steps, "--by", by, "--kernel-names", kind)[0]["kernel"] == name
    assert rows(three_steps, "--by", "kernel") == rows(
        three_steps, "--by", "kernel", "--kernel-names", "short"
    )


# -- rules


@pytest.mark.slow
def test_rules_regroup_ops(three_steps: Path, folder: Path) -> None:
    (folder / "rules.toml").write_text(
        "[[rule]]\nmatch = '^aten::(\\w+)$'\nop = 'torch \\1'\n"
        "[[rule]]\nmatch = 'gemm|mine'\nop = 'ours'\n"
    )
    found = by_name(rows(three_steps, "--op-rules", "rules.toml"))
    assert set(found) == {"torch mm", "ours", "step", "open", "<unnamed>"}
    assert found["torch mm"]["gpu_self_ns"] == 6 * 40
    assert found["ours"]["calls"] == 12
    assert (
        document(three_steps, "--op-rules", "rules.toml")["totals"]
        == document(three_steps)["totals"]
    )
    for command in COMMANDS:
        more = ["-o", "x.json"] if command == "trace" else []
        done(command, three_steps, "--op-rules", "rules.toml", *more)
    assert '"torch mm"' in (folder / "x.json").read_text(encoding="utf-8")


BAD_RULES = {
    "no TOML": ("rule = [", ["rules.toml"]),
    "no rules": ("", ["rules.toml", "no [[rule]]"]),
    "a wrong regular expression": ("[[rule]]\nmatch='('\nop='x'", ["rule 1"]),
    "no op": ("[[rule]]\nmatch='a'\nop='b'\n[[rule]]\nmatch='x'", ["rule 2", "'match' and 'op'"]),
    "a key too many": ("[[rule]]\nmatch='a'\nop='b'\nof='c'", ["rule 1", "nothing else"]),
    "a group that is not there": ("[[rule]]\nmatch='a'\nop='\\1'", ["rule 1"]),
    "a number for a text": ("[[rule]]\nmatch=1\nop='x'", ["rule 1"]),
    "a number for an op": ("[[rule]]\nmatch='a'\nop=1", ["rule 1"]),
    "rules that are no tables": ("rule = ['a']", ["rule 1"]),
    "a rule that is a number": ("rule = 5", ["rules.toml"]),
    "a repetition beyond all numbers": ("[[rule]]\nmatch='a{99999999999}'\nop='x'", ["rules.toml"]),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("what", BAD_RULES)
def test_bad_rules_are_said_in_one_line(
    what: str, command: str, three_steps: Path, folder: Path
) -> None:
    text, said = BAD_RULES[what]
    (folder / "rules.toml").write_text(text)
    assert_misused(bad_rules(command, three_steps), *said)
    assert inside(folder) == ["rules.toml"]


def bad_rules(command: str, report: Path) -> Any:
    more = ["-o", "x.json"] if command == "trace" else []
    return bridge(command, report, "--op-rules", "rules.toml", *more)


@pytest.mark.parametrize("command", COMMANDS)
def test_rules_that_cannot_be_read_are_said_in_one_line(
    command: str, three_steps: Path, folder: Path
) -> None:
    assert_misused(bad_rules(command, three_steps), "rules.toml", "No such file")
    (folder / "rules.toml").write_bytes(b"\xff\xfe[[rule]]")
    assert_misused(bad_rules(command, three_steps), "rules.toml", "utf-8")
    (folder / "rules.toml").unlink()
    (folder / "rules.toml").mkdir()
    assert_misused(bad_rules(command, three_steps), "rules.toml", "directory")
    assert inside(folder) == ["rules.toml"]


# -- what a user sees besides


@pytest.mark.slow
def test_import_prints_the_breakdown_and_what_to_do_next(three_steps: Path, bare: Path) -> None:
    result = bridge("import", three_steps)
    lines = result.stdout.splitlines()
    assert lines[0].startswith("report.sqlite, Nsight Systems 2099.1.2.3-456v0: 4.100 µs: ")
    assert lines[1].startswith("3 iterations of 1.000 µs")
    assert lines[2].startswith("GPU 0 GPU 0, GPU 1 GPU 1: busy 11.2 % of the run")
    assert table_in(result.stdout)[0].split()[:3] == ["op", "kernel", "count"]
    assert "85.0 % in 3 ops; 15.0 % not attributed: no launch 6 (2.0 %)" in result.stdout
    assert unwarned(result.stderr) == (
        "run 1 of bridge.db; next: bridge report --by op, or bridge trace -o trace.json.gz\n"
    )
    quiet = bridge("import", bare, "--quiet")
    assert quiet.stdout == ""
    assert "no NVTX ranges" in quiet.stderr
    assert table_in(bridge("import", bare).stdout)[0].split()[0] == "kernel"


@pytest.mark.slow
def test_import_shows_the_largest_and_says_how_many_more(tmp_path: Path) -> None:
    path = made_reports.small(tmp_path / "many.sqlite", steps=20)
    kernels, strings = made_reports.schema.KERNELS.name, made_reports.schema.STRINGS.name
    made_reports.changed(
        path,
        f"INSERT INTO {strings} (id, value) SELECT 1000 + rowid, 'k' || rowid FROM {kernels}",
        f"UPDATE {kernels} SET shortName = 1000 + rowid",
    )
    shown = done("import", path).splitlines()
    assert "… and 30 more rows: bridge report --by op-kernel" in shown


@pytest.mark.slow
def test_every_command_explains_itself() -> None:
    whole = click.Context(main)
    groups = {(): main, ("runs",): main.get_command(whole, "runs")}
    for path, group in groups.items():
        for name in group.list_commands(whole):  # type: ignore[union-attr]
            command = group.get_command(whole, name)  # type: ignore[union-attr]
            shown = done(*path, name, "--help")
            assert shown.startswith("Usage: ")
            assert command.name == name
            assert command.help
            assert done(*path, name, "-h") == shown
            for option in command.params:
                assert getattr(option, "help", None) or option.param_type_name == "argument", option
    assert re.fullmatch(r"nsight-bridge, version \d+\.\d+\.\d+\S*\n", done("--version"))


def test_refusals_do_not_depend_on_the_command(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    path.write_text("no report" * 100)
    said = set()
    for command in COMMANDS:
        result = on(command, path)
        assert_refused(result, "x.sqlite")
        said.add(unwarned(result.stderr))
    assert len(said) == 1


@pytest.mark.slow
def test_a_filter_on_what_is_no_column_is_refused(three_steps: Path) -> None:
    for conditions in ("op=aten::*, gpu_self>10us", "op=a*, nothing=b"):
        assert_misused(
            bridge("report", three_steps, "--by", "op-kernel", "--filter", conditions), "no column"
        )


def test_a_report_given_twice_is_refused(three_steps: Path) -> None:
    assert_refused(bridge("report", three_steps, three_steps), three_steps.name, "given twice")


@pytest.mark.slow
def test_it_runs_as_a_module_too() -> None:
    words = [sys.executable, "-m", "bridge", "--help"]
    said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
    assert "\n  bridge import report.nsys-rep             store and summarize" in said


@pytest.mark.slow
def test_a_report_without_device_work_shows_the_cpu(tmp_path: Path) -> None:
    device = "kernels copies fills graphs launches"
    path = made_reports.small(tmp_path / "host.sqlite", without=device)
    said = done("report", path)
    assert said.startswith(
        "GPU work was not recorded: ncclAllReduce of NCCL, which works on a GPU, ran\n2 times"
    )
    assert "CPU total" in table_in(said)[0]
    assert said.splitlines()[-1] == "no work on a GPU"


@pytest.mark.slow
def test_a_pipe_and_a_file_get_every_row(tmp_path: Path) -> None:
    made = made_reports.Made()
    for n in range(1_234):
        text = f"op {n}"
        made.annotation(made_reports.PUSH_POP, n, n + 1, text=text, thread=made_reports.thread(1))
    path = made.written(tmp_path / "many.sqlite")
    lines = done("report", path).splitlines()
    assert len(lines) == 2 + 1_234 + 2
    assert len(rows(path)) == 1_234
    done("report", path, "-o", tmp_path / "all.txt")
    assert len((tmp_path / "all.txt").read_text(encoding="utf-8").splitlines()) == 2 + 1_234 + 2
