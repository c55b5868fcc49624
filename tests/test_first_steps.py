"""What new users type: the answer says what was meant, or what to do."""

from __future__ import annotations

import re
from pathlib import Path

import made_reports
import pytest
from command import assert_misused, assert_refused, bridge, done

pytestmark = pytest.mark.usefixtures("folder")


def test_a_report_in_place_of_a_command(folder: Path) -> None:
    made_reports.small(folder / "small.sqlite")
    assert_misused(
        bridge("small.sqlite"), "small.sqlite is a file, no command: bridge summary small.sqlite"
    )


def test_runs_alone_lists_the_runs(folder: Path) -> None:
    done("import", made_reports.small(folder / "small.sqlite"))
    assert done("runs") == done("runs", "list")
    assert re.fullmatch(
        r" +1  \d{4}-\d\d-\d\d \d\d:\d\d UTC .* quality +\d+  small\.sqlite\n", done("runs")
    )


def test_a_file_of_another_format_is_not_written(folder: Path) -> None:
    report = made_reports.small(folder / "small.sqlite")
    for name in ("x.xlsx", "x.html", "x.parquet"):
        suffix = Path(name).suffix
        assert_misused(
            bridge("report", report, "-o", name), f"{name}: {suffix} is not among .json, .csv, .md"
        )
        assert not Path(name).exists()
    assert "bridge html writes pages" in bridge("diff", report, report, "-o", "x.html").stderr
    done("report", report, "-o", "table.txt")
    done("report", report, "-o", "x.html", "--format", "md")
    assert Path("table.txt").read_text(encoding="utf-8").startswith("GPU 0")


def test_why_of_an_op_lists_its_kernels(folder: Path) -> None:
    report = made_reports.small(folder / "small.sqlite")
    op = "aten::mm"
    assert_refused(
        bridge("why", report, op), f"{op!r} is an op", f"--by op,kernel --filter 'op={op}'"
    )
    assert "kernel" in done("report", report, "--by", "op,kernel", "--filter", f"op={op}")


def test_a_time_after_the_report_says_how_long_it_is(folder: Path) -> None:
    report = made_reports.small(folder / "small.sqlite")
    text = done("report", report, "--from", "5s")
    assert re.search(
        r"^nothing began in the selected time; the report lasts [\d.]+ µs$", text, re.MULTILINE
    )


def test_a_report_of_nsys_that_is_not_there_needs_no_newer_nsys(folder: Path) -> None:
    result = bridge("doctor", "none.nsys-rep")
    assert result.stderr.splitlines() == ["Error: none.nsys-rep: no such file; is the name right?"]


@pytest.mark.parametrize(
    ("words", "meant"),
    [(["--tpo", "3"], "--top"), (["--by", "cause"], "idle"), (["--by", "operator"], "op")],
)
def test_what_is_meant_comes_first(folder: Path, words: list[str], meant: str) -> None:
    report = made_reports.small(folder / "small.sqlite")
    assert_misused(bridge("report", report, *words), f"did you mean {meant}?")
