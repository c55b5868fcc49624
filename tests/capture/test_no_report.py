"""What is said of a program that ended badly, and of a launch that left no report."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from click.testing import CliRunner
from command import done
from made_reports import PUSH_POP, Made, thread

from bridge.capture import plan
from bridge.capture.plan import LaunchResult, Plan
from bridge.capture.tool import CaptureError, Line, Request, Tool
from bridge.cli.run import UNRECORDED, _import_recorded
from bridge.importers.errors import NothingRecorded

BEGUN_NS = 1_700_000_000_000_000_000
AGAIN = "; if that is no fault of the program, run it again"
WROTE_NONE = "{} wrote none; what it says of that is above"


class Usage(NamedTuple):
    """Of a disk, as `shutil.disk_usage` tells it."""

    free: int


def launched(tool: str = "nsys", **asked: object) -> Plan:
    report = Path(f"r.{tool}-rep")
    return Plan(Tool(tool, tool, {}), Request(**asked), report, Line([], []), ["a.py"], {})


def reason(tool: str = "nsys", **asked: object) -> str:
    """Say why there is no report of a launch that began at a time known."""
    return launched(tool, **asked)._reason(BEGUN_NS)


def raw(name: str, changed_ns: int) -> None:
    Path(name).write_text("captured")
    os.utime(name, ns=(changed_ns, changed_ns))


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (0, ""),
        (7, "the program ended with status 7"),
        (128 + 9, "the program ended with status 137 (SIGKILL); what it recorded last may be lost"),
        (128, "the program ended with status 128"),
    ],
)
def test_how_a_program_ended_is_said_unless_it_ended_well(status, said):
    assert LaunchResult(status, []).failure() == said


@pytest.mark.parametrize(
    ("status", "left_with", "begins"), [(0, 1, "no report: "), (7, 7, "the program ended with")]
)
def test_without_a_report_the_launch_fails_with_the_programs_status_or_1(
    folder, monkeypatch, status, left_with, begins
):
    monkeypatch.setattr(plan, "run_until_begun", lambda *_: status)
    with pytest.raises(CaptureError) as raised:
        launched().run()
    assert raised.value.status == left_with
    assert str(raised.value).startswith(begins)
    assert str(raised.value).endswith(f"no report: {WROTE_NONE.format('nsys')}{AGAIN}")


def written_reports(*with_range: bool) -> list[Path]:
    """Write exports r.1, r.2 … with one range or with nothing."""
    paths = [Path(f"r.{number}.sqlite") for number in range(1, len(with_range) + 1)]
    for path, has_range in zip(paths, with_range, strict=True):
        made = Made()
        if has_range:
            made.annotation(PUSH_POP, 1_000, 2_000, text=path.stem, thread=thread(100))
        made.written(path)
    return paths


def import_reports(tool: str, paths: list[Path]) -> str:
    """Import the reports of a launch, and give what is said on standard error."""
    command = click.Command("run")
    with click.Context(command) as ctx, CliRunner().isolation() as streams:
        _import_recorded(ctx, launched(tool), paths, Path("b.db"))
        return streams[1].getvalue().decode()


def test_reports_with_nothing_are_left_out_and_the_others_are_one_run(folder):
    said = import_reports("nsys", written_reports(True, False, True, False))
    assert [line for line in said.splitlines() if UNRECORDED in line] == [
        f"warning: r.{number}.sqlite: {UNRECORDED}" for number in (2, 4)
    ]
    assert "note: " not in said
    assert "r.1.sqlite, r.3.sqlite" in done("runs", "list", "--db", "b.db")


def test_kernels_that_ncu_did_not_measure_are_an_error(folder):
    with pytest.raises(NothingRecorded):
        import_reports("ncu", written_reports(False))


def test_a_folder_with_less_than_a_mebibyte_left_is_full(folder, monkeypatch):
    left = {"free": (1 << 20) - 1}
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(left["free"]))
    assert reason() == f"no space is left in {folder}"
    left["free"] = 1 << 20
    assert reason() == WROTE_NONE.format("nsys") + AGAIN


def test_the_folder_for_temporary_files_may_be_the_full_one(folder, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda one: Usage(0 if one == tmp_path else 1 << 30))
    assert reason() == f"no space is left in {tmp_path}"


def test_what_nsys_captured_and_could_not_import_is_named(folder):
    for number in (2, 1):
        raw(f"r.{number}.qdstrm", BEGUN_NS + 1)
    assert reason() == (
        "nsys captured r.1.qdstrm, r.2.qdstrm and could not import it; why is said above"
    )
    assert reason("ncu") == WROTE_NONE.format("ncu")  # which has no such files


def test_what_was_captured_over_two_seconds_before_the_launch_is_of_another(folder):
    raw("r.qdstrm", BEGUN_NS - 2_000_000_001)
    assert reason() == WROTE_NONE.format("nsys") + AGAIN
    raw("r.qdstrm", BEGUN_NS - 2_000_000_000)  # a file system's clock may be so far off
    assert reason().startswith("nsys captured r.qdstrm ")


@pytest.mark.parametrize(
    ("asked", "begins"),
    [
        ({}, "nsys wrote none"),
        ({"capture": "nvtx"}, "no range capture@nsight-bridge began; the program must reach"),
        ({"schedule": {"active": 3}}, "no range capture@nsight-bridge began; the program must"),
        ({"capture": "cudaProfilerApi"}, "cudaProfilerStart was never called; the program must"),
    ],
)
def test_what_the_program_did_not_do_is_said_where_only_a_part_was_to_be_captured(
    folder, asked, begins
):
    assert reason(**asked).startswith(begins)
