"""`bridge run --tool cupti`: the variables with which a program and its children record themselves, and the report."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from bridge.annotate.emit import SIGNS
from bridge.capture.cupti.capture import (
    FOLDER_VARIABLE,
    GRAPHS_VARIABLE,
    NODE,
    WAIT_VARIABLE,
    WITNESS_VARIABLE,
)
from bridge.capture.cupti.library import Library
from bridge.capture.tool import MisuseError, Request, Tool, ToolOption
from bridge.frameworks.autorun import PATH_VARIABLE, child_path

NAME, SUFFIX = "cupti", ".sqlite"
SPOOLS = ".cupti"  # ending of the folder of spools, while the program runs
OTHER_TOOLS = {  # options of the other profilers
    "nsys": ("preset", "kill", "capture", "backtrace"),
    "ncu": ("ops", "replay", "section_set", "metrics", "no_clock_control"),
}


def find() -> Tool:
    """Return libcupti as a tool; raises CaptureError if there is none that works."""
    library = Library()
    return Tool(NAME, str(library.path), {})


def tool_options(request: Request, _report: Path) -> Iterator[ToolOption]:
    """Yield nothing, for the program is told by variables; raises MisuseError for options of other tools."""
    for tool, names in OTHER_TOOLS.items():
        if excluded := request.given_options(*names):
            raise MisuseError(f"{excluded[0]} goes with --tool {tool}")
    yield from ()


def spool_folder(report: Path) -> Path:
    """Return the folder of the spools of a report, as report1.cupti."""
    return report.with_name(report.stem + SPOOLS)


def environment(request: Request, report: Path) -> dict[str, str]:
    """Return the variables for the program."""
    added = {
        FOLDER_VARIABLE: str(spool_folder(report).resolve()),
        GRAPHS_VARIABLE: request.graphs or NODE,
        PATH_VARIABLE: child_path(),
    }
    if request.schedule:
        added[WAIT_VARIABLE] = "1"
    if request.witness:
        added[WITNESS_VARIABLE] = "1"
    return added


def why_no_report(_request: Request) -> str:
    """Return why no report was written."""
    if any(os.environ.get(sign) for sign in SIGNS):
        return "a profiler is attached to this process, and CUPTI has one user at a time"
    return (
        "no Python process of the program could record by CUPTI; its warning, if there is one, is above."
        " Programs that are not Python, and python -I or -S, cannot record themselves: use --tool nsys"
    )
