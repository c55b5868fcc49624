"""Names that do not exist: what was meant is suggested, in one short line, and a list comes only on request."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import click
import pytest
from command import assert_misused, assert_refused, bridge, done

import bridge as library
from bridge.analyze.compare.gates import Budget
from bridge.analyze.core.catalog import VIEWS
from bridge.analyze.core.catalog.dimensions import DIMENSIONS
from bridge.analyze.core.catalog.lookup import columns_of
from bridge.cli import main
from bridge.cli.unknown_names import COMMANDS, OPTIONS
from bridge.knowledge.suggestions import MOST_LISTED, near_names, unknown_name

LONGEST = 160  # characters of a message, of which a list of few names is at most MOST_LISTED

pytestmark = pytest.mark.usefixtures("folder", "read_once")


# -- What is near


def edits(one: str, other: str) -> int:
    """Return how many letters must be put in, taken out or replaced, by the definition."""
    row = list(range(len(other) + 1))
    for nth, letter in enumerate(one, 1):
        above = row
        row = [nth]
        for place, (left, right) in enumerate(pairwise(above)):
            row.append(min(right + 1, row[-1] + 1, left + (letter != other[place])))
    return row[-1]


def misspelt(name: str) -> list[str]:
    """Return a name with two letters exchanged, one missing, one twice, and no separators."""
    at = len(name) // 2
    return [
        name[: at - 1] + name[at] + name[at - 1] + name[at + 1 :],
        name[:at] + name[at + 1 :],
        name[:at] + name[at] + name[at:],
        name.replace("_", "").replace("-", ""),
    ]


EVERY_NAME = {
    "columns": [column.name for column in columns_of("op").columns],
    "tables": list(dict.fromkeys([*VIEWS, *DIMENSIONS])),
    "commands": main.list_commands(click.Context(main)),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", EVERY_NAME)
def test_a_slip_of_the_keyboard_is_understood(kind: str) -> None:
    """The name that is nearest by the count of edits is among those suggested."""
    known = EVERY_NAME[kind]
    for name in known:
        for wrong in misspelt(name) if len(name) > 4 else []:
            if wrong in known:
                continue
            shown = near_names(wrong, known)
            least = min(edits(wrong, other) for other in known)
            nearest = {o.removesuffix("_ns") for o in known if edits(wrong, o) == least}
            assert nearest & set(shown) or name.removesuffix("_ns") in shown, (wrong, shown)
            assert len(shown) <= 3


def test_what_is_like_nothing_suggests_nothing() -> None:
    assert near_names("zzz", ["op", "kernel"]) == []
    assert near_names("", ["op"]) == []
    assert near_names("x" * 10_000, ["op", "x" * 30]) == []


def test_a_long_list_is_not_in_the_message() -> None:
    many = [f"column_{n}" for n in range(200)]
    line = unknown_name("column", "y" * 500, many, "--columns list")
    assert line == f"no column '{'y' * 39}…'; --columns list shows all"
    few = ["short", "demangled", "mangled"]
    assert unknown_name("name", "x", few) == "no name 'x': one of short, demangled, mangled"
    assert len(", ".join(few)) <= MOST_LISTED


# -- Commands and options


def test_a_misspelt_command_is_suggested() -> None:
    assert_misused(bridge("reprot"), "no command 'reprot'; did you mean report?", "--help shows")
    assert_misused(
        bridge("runs", "shwo"), "no command 'shwo': one of check, list, rm, show", "show?"
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_of_other_tools_are_known(name: str) -> None:
    assert COMMANDS[name] in EVERY_NAME["commands"]
    assert_misused(bridge(name), f"no command '{name}'; did you mean {COMMANDS[name]}?")


def options_of(name: str) -> set[str]:
    command = main.get_command(click.Context(main), name)
    return {text for parameter in command.params for text in parameter.opts}


def test_options_of_other_tools_are_known() -> None:
    for wrong, meant in OPTIONS.items():
        having = [name for name in EVERY_NAME["commands"] if meant in options_of(name)]
        lacking = [name for name in having if wrong not in options_of(name)]
        assert lacking, wrong
        assert_misused(
            bridge(lacking[0], wrong, "5"), f"no option '{wrong}'; did you mean {meant}?"
        )


@pytest.mark.parametrize("name", EVERY_NAME["commands"])
def test_every_misspelt_option_is_suggested(name: str) -> None:
    for option in sorted(options_of(name)):
        if len(option) < 6 or not option.startswith("--"):
            continue
        wrong = option[:-2] + option[-1] + option[-2]
        if wrong == option or wrong in options_of(name):
            continue
        result = bridge(name, wrong)
        assert_misused(result, f"no option '{wrong}'", option)
        assert len(result.stderr.splitlines()[-1]) < LONGEST


# -- Values of options: one of a few


def choices() -> list[tuple[str, str, str]]:
    """Return each option with choices: the command, the option and one of its choices."""
    found = []
    for name in EVERY_NAME["commands"]:
        command = main.get_command(click.Context(main), name)
        for parameter in command.params:
            if isinstance(parameter.type, click.Choice):
                longest = max(parameter.type.choices, key=len)
                found.append((name, parameter.opts[0], longest))
    return found


@pytest.mark.parametrize(("command", "option", "choice"), choices())
def test_a_misspelt_choice_is_suggested(command: str, option: str, choice: str) -> None:
    wrong = f"{choice[0]}{choice}"
    result = bridge(command, option, wrong)
    assert_misused(result, option, f"'{wrong}' is no choice", f"did you mean {choice}?")
    assert len(result.stderr.splitlines()[-1]) < LONGEST + len(option)


# -- Values of options: names of a report


WRONG: dict[tuple[str, str], tuple[list[str], str]] = {
    ("report", "--by"): (["--by", "modul"], "no table 'modul'; did you mean module?"),
    ("report", "--columns"): (["--columns", "gpuself"], "no column 'gpuself'; did you mean gpu_self?"),
    ("report", "--sort"): (["--sort", "+gpuself"], "no column 'gpuself'; did you mean gpu_self?"),
    ("report", "--filter"): (["--filter", "kernls>5"], "no column 'kernls'; did you mean kernels?"),
    ("report", "--range"): (["--range", "gem"], "no range 'gem'; did you mean gemm?"),
    ("report", "--steps"): (["--steps", "gem"], "no range 'gem'; did you mean gemm?"),
    ("report", "--domain"): (["--domain", "Mnie"], "no domain in the report 'mnie'"),
    ("report", "--exclude-domain"): (["--exclude-domain", "Mnie"], "no domain in the report 'mnie'"),
    ("report", "--metrics"): (["--metrics", "x"], "no metrics in the report"),
    ("diff", "--by"): (["--by", "op-kernl"], "no diff by 'op-kernl'; did you mean op-kernel?"),
    ("diff", "--sort"): (["--sort", "stat"], "no column 'stat'; did you mean state?"),
    ("diff", "--filter"): (["--filter", "stat=same"], "no column 'stat'; did you mean state?"),
    ("diff", "--fail-over"): (["--fail-over", "opp:5%"], "write 5%"),
    ("advise", "--rule"): (["--rule", "short-kernel"], "no rule 'short-kernel'; did you mean short-kernels?"),
    ("what-if", "--op"): (["--op", "gem", "--faster", "2x"], "no range 'gem'; did you mean gemm?"),
    ("what-if", "--without"): (["--without", "cudaLanchKernel"], "no call 'cudaLanchKernel': one of cudaLaunchKernel; did you mean cudaLaunchKernel?"),
    ("what-if", "--hide"): (["--hide", "gem_kernel"], "no kernel or copy 'gem_kernel'; did you mean gemm_kernel?"),
    ("trace", "--range"): (["-o", "x.json", "--range", "gem"], "no range 'gem'; did you mean gemm?"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("command", "option"), WRONG)
def test_a_misspelt_name_of_a_report_is_suggested(
    command: str, option: str, three_steps: Path
) -> None:
    words, said = WRONG[command, option]
    reports = [three_steps] * (2 if command == "diff" else 1)
    result = bridge(command, *reports, *words)
    assert result.exit_code == 2
    last = result.stderr.splitlines()[-1]
    assert said in last
    assert len(last) < LONGEST + 60


@pytest.mark.parametrize("command", ["report", "summary"])
@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_name_of_steps_is_refused(command: str, name: str, three_steps: Path) -> None:
    result = bridge(command, three_steps, "--steps", name)
    assert_misused(result, "--steps", "is empty: write the name of a range")


def test_every_option_of_names_is_tried() -> None:
    """An option whose help shows NAME, NAMES, TABLE or COLUMN is in the table above, on one command."""
    tried = {option for _, option in WRONG} | {"--op", "--set", "--sweep", "--keep", "--run"}
    for name in EVERY_NAME["commands"]:
        for parameter in main.get_command(click.Context(main), name).params:
            named = re.search(r"NAMES?\b|TABLE|COLUMN", parameter.metavar or "")
            if named and parameter.param_type_name == "option":
                assert parameter.opts[-1] in tried, (name, parameter.opts)


@pytest.mark.slow
def test_a_misspelt_run_is_suggested(three_steps: Path) -> None:
    done("import", three_steps, "--name", "baseline", "--quiet")
    assert_refused(bridge("report", "--run", "baselin"), "no run 'baselin'", "baseline?")


def test_a_misspelt_dimension_of_onednn_is_suggested() -> None:
    assert_misused(bridge("onednn", "--by", "primitve", "x.log"), "did you mean primitive?")


def test_a_list_is_printed_on_request(three_steps: Path) -> None:
    columns = done("report", "--columns", "list")
    assert all(column.name in columns for column in columns_of("op").columns)
    tables = done("report", "--by", "list")
    assert all(re.search(rf"\b{name}\b", tables) for name in (*VIEWS, *DIMENSIONS))
    assert done("report", "--by", "kernel", "--sort", "list").split()[0] == "kernel"
    assert "op-kernel" in done("diff", "--by", "list").splitlines()
    assert "state" in done("diff", three_steps, three_steps, "--sort", "list").splitlines()


LISTS = [
    ["report", "--by", "list"],
    ["report", "--by", "kernel", "--columns", "list"],
    ["report", "--sort", "list"],
    ["diff", "--by", "list"],
    ["diff", "REPORT", "REPORT", "--filter", "list"],
    ["advise", "--list"],
]


@pytest.mark.parametrize("words", LISTS)
def test_a_list_is_a_document_for_programs(words: list[str], three_steps: Path) -> None:
    words = [str(three_steps) if word == "REPORT" else word for word in words]
    rows = json.loads(done(*words, "--format", "json"))["rows"]
    assert [row["name"] for row in rows] == listed_names(done(*words))
    assert all(row["meaning"] for row in rows)
    markdown = done(*words, "--format", "md").splitlines()
    assert [line.split(" | ")[0].removeprefix("| ") for line in markdown[2:]] == [
        row["name"] for row in rows
    ]
    if words[0] != "advise":  # which has no CSV
        cells = list(csv.reader(done(*words, "--format", "csv").splitlines()))
        assert [cell[0] for cell in cells[1:]] == [row["name"] for row in rows]


def listed_names(text: str) -> list[str]:
    """Return the names of a list for people, whose meanings may go on in further lines."""
    indent = "  " if text.startswith("Tables") else ""
    names = re.compile(rf"{indent}([a-z]\S*)(  .*)?")
    lines = (names.fullmatch(line) for line in text.splitlines())
    return [line[1] for line in lines if line]


def test_a_list_goes_to_a_file(folder: Path) -> None:
    result = bridge("report", "--by", "list", "-o", "tables.csv")
    assert (result.exit_code, result.stdout) == (0, "")
    assert (folder / "tables.csv").read_text().startswith("name,kind,meaning\n")
    assert bridge("report", "--by", "list", "-o", "tables.csv").exit_code == 1


@pytest.mark.parametrize(
    ("words", "formats"),
    [
        (["diff", "--by", "list", "--format", "junit"], "table, json, csv, md"),
        (["advise", "--list", "--format", "sarif"], "text, json, md"),
    ],
)
def test_a_list_in_a_format_for_results_is_refused(words: list[str], formats: str) -> None:
    assert_misused(bridge(*words), f"{words[-1]}: a list of names is one of {formats}")


# -- The library, rule files and budgets


@pytest.mark.slow
def test_the_library_suggests_too(three_steps: Path) -> None:
    loaded = library.load(three_steps)
    for wrong, said in (("modul", "did you mean module?"), ("op,shpae", "did you mean shape?")):
        with pytest.raises(ValueError, match=re.escape(said)):
            loaded.by(wrong)
    with pytest.raises(ValueError, match=r"did you mean op-kernel\?"):
        library.diff(three_steps, three_steps, by="op-kernl").rows  # noqa: B018 - computed at first use


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ({"totl": "5ms"}, "no key of a budget 'totl'.*did you mean total?"),
        ({"ops": {"a": {"gputotal": "5ms"}}}, "a: no figure 'gputotal'; did you mean gpu_total?"),
    ],
)
def test_a_budget_suggests_too(budget: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Budget.parsed(budget)


# -- Reports


FILES = (
    *("mnist-training.sqlite", "mnist-training.nsys-rep", "mnist-trainig.py", "mnist-trainig.txt"),
    *("run7.nsys-rep", "eval.sqlite", "trace.json.gz"),
)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("mnist-trainig.sqlite", "mnist-training.sqlite"),  # not the files that are no reports
        ("mnist_traning.nsys-rep", "mnist-training.nsys-rep"),
        ("mnist-trainig.qdrep", "mnist-training.nsys-rep or {}mnist-training.sqlite"),
        ("run7.sqlite", "run7.nsys-rep"),  # not exported yet
        ("Eval.sqlite", "eval.sqlite"),
        ("lave.sqlite", ""),  # the same suffix makes no name alike
        ("mnist-trainig", "mnist-training.nsys-rep or {}mnist-training.sqlite"),
        ("missing/eval.sqlite", ""),
    ],
)
@pytest.mark.parametrize("command", ["report", "import", "trace"])
@pytest.mark.parametrize("inside", ["", "reports/"])
def test_a_misspelt_report_is_suggested(
    command: str, given: str, meant: str, inside: str, folder: Path
) -> None:
    (folder / inside).mkdir(exist_ok=True)
    for name in FILES:
        (folder / inside / name).touch()
    path = f"{inside}{given}"
    end = f"did you mean {inside}{meant.format(inside)}?" if meant else "is the name right?"
    written = ["-o", "out.json.gz"] if command == "trace" else []
    result = bridge(command, path, *written)
    assert_refused(result, f"Error: {path}: no such file; {end}")
    assert result.stderr.rstrip().endswith(end)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["diff", "eval.sqlite", "evl.sqlite"], "eval.sqlite"),
        (["scrub", "evl.sqlite", "new.sqlite"], "eval.sqlite"),
        (["doctor", "evl.sqlite"], "eval.sqlite"),
        (["view", "trce.json.gz", "--no-browser"], "trace.json.gz"),
    ],
)
def test_every_command_suggests_a_report(
    words: list[str], meant: str, folder: Path, three_steps: Path
) -> None:
    (folder / "eval.sqlite").write_bytes(three_steps.read_bytes())
    (folder / "trace.json.gz").touch()
    assert_refused(bridge(*words), f"no such file; did you mean {meant}?")


# -- Conditions and times


@pytest.mark.parametrize(
    "condition", ["op==", "op==aten::mm", "calls==3", "op=~x", "op=", "=3", "op"]
)
def test_a_condition_that_means_nothing_is_an_error(condition: str, three_steps: Path) -> None:
    result = bridge("report", three_steps, "--filter", condition)
    assert_misused(result, "cannot read", "write ")


@pytest.mark.parametrize(
    ("by", "meant"),
    [
        ("op", "op"),
        ("kernel", "kernel"),
        ("memcpy", "operation"),
        ("op-kernel", "op"),
        ("idle", "cause"),
        ("module", "module"),
    ],
)
def test_a_wrong_field_of_a_condition_suggests_the_column_of_names(
    by: str, meant: str, three_steps: Path
) -> None:
    result = bridge("report", three_steps, "--by", by, "--filter", "name=foo")
    assert_misused(result, "no column 'name'", f"; did you mean {meant}?")
    assert (": one of " in result.stderr) != ("? --filter list shows all" in result.stderr)
    assert bridge("report", three_steps, "--by", by, "--filter", f"{meant}=foo").exit_code == 0
    listed = done("report", three_steps, "--by", by, "--filter", "list")
    assert meant in [line.split()[0] for line in listed.splitlines()]


def test_a_comparison_suggests_columns_for_conditions_too(three_steps: Path) -> None:
    result = bridge("diff", three_steps, three_steps, "--filter", "name=foo")
    assert_misused(result, "did you mean op? --filter list shows all")
    assert "op" in done("diff", three_steps, three_steps, "--filter", "list").split()
    result = bridge("diff", three_steps, three_steps, "--sort", "naem")
    assert_misused(result, "--sort list shows all")


@pytest.mark.parametrize("option", ["--from", "--to"])
@pytest.mark.parametrize("text", ["5", "1.5", "007"])
def test_a_time_needs_a_unit(option: str, text: str, three_steps: Path) -> None:
    assert_misused(
        bridge("report", three_steps, option, text), f"'{text}' has no unit", f"{text}ms"
    )


@pytest.mark.slow
def test_zero_needs_no_unit(three_steps: Path) -> None:
    zero, unit = (
        done("report", three_steps, "--from", text, "--format", "csv") for text in ("0", "0ms")
    )
    assert zero == unit


# -- The real program


@pytest.mark.slow
def test_the_program_prints_one_short_line(three_steps: Path) -> None:
    for words, said in (
        (["report", str(three_steps), "--columns", "gpuself"], "did you mean gpu_self?"),
        (["reprot", str(three_steps)], "did you mean report?"),
        (["report", str(three_steps), "--limit", "5"], "did you mean --top?"),
        (["report", str(three_steps), "--filter", "op=="], "cannot read 'op=='"),
        (["report", str(three_steps), "--from", "5"], "'5' has no unit"),
    ):
        ran = subprocess.run(
            [sys.executable, "-m", "bridge", *words],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert (ran.returncode, ran.stdout) == (2, ""), words
        last = ran.stderr.splitlines()[-1]
        assert last.startswith("Error: ")
        assert said in last
        assert len(last.encode()) < LONGEST
