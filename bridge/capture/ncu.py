"""The options of `ncu` for a request: which kernels, their replay, and the metrics.

Names are literal: characters with a meaning in ncu's filters are escaped. A filter is for push/pop
ranges (a slash after the name) or start/end ranges (no slash); an op is requested as both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bridge.capture.session.control import CUDA, DOMAIN, NAME
from bridge.capture.tool import (
    LaunchFilter,
    MisuseError,
    Request,
    ToolOption,
    escape_placeholders,
)

SUFFIX = ".ncu-rep"
REPLAYS = ("kernel", "application", "range")
NSYS_ONLY = ("preset", "kill", "memory")
CUPTI_ONLY = ("witness", "live")

SPECIAL = re.compile(r"[\\@,\[\]/*+$]")


def tool_options(request: Request, report: Path) -> Iterator[ToolOption]:
    """Yield the options to write a report; raises MisuseError for options that need nsys."""
    if excluded := request.given_options(*NSYS_ONLY):
        raise MisuseError(f"{excluded[0]} goes with --tool nsys")
    if excluded := request.given_options(*CUPTI_ONLY):
        raise MisuseError(f"{excluded[0]} goes with --tool cupti")
    yield ToolOption("--target-processes", "all", "child processes are as the version has them")
    yield from _filters(request)
    yield from _measured(request)
    if request.force:
        yield ToolOption("--force-overwrite", requested_by="--force")
    yield ToolOption("--export", escape_placeholders(report), requested_by="-o")


def _filters(request: Request) -> Iterator[ToolOption]:
    ranges = [name for op in request.ops for name in filters(op)]
    if request.capture == CUDA:
        yield ToolOption("--profile-from-start", "off", requested_by="--capture")
    elif request.capture or request.schedule:
        if ranges:
            raise MisuseError("with --op, ncu captures steps by --capture cudaProfilerApi only")
        ranges = [f"{DOMAIN}@{NAME}"]
    yield ToolOption("--nvtx", None, "kernels belong to no op")
    yield from (ToolOption("--nvtx-include", text, requested_by="--op") for text in ranges)
    if request.launches:
        yield from _launches(request.launches)


def _launches(chosen: LaunchFilter) -> Iterator[ToolOption]:
    yield ToolOption("--kernel-name-base", chosen.base, requested_by="--deep")
    yield ToolOption("--kernel-id", chosen.kernel_id, requested_by="--deep")
    if chosen.most:
        yield ToolOption("--launch-count", str(chosen.most), requested_by="--deep")
    if chosen.log:
        yield ToolOption(
            "--log-file", str(chosen.log), "its messages are among those of the program"
        )


def kernel_id(functions: Sequence[str], numbers: Sequence[int]) -> str:
    """Return ncu's filter for launches of kernels: in any context and stream, of these names, with these numbers.

    Names and numbers are compared whole.
    """
    names = functions[0] if len(functions) == 1 else f"regex:{_one_of(map(re.escape, functions))}"
    return f"::{names}:{numbers[0] if len(numbers) == 1 else _one_of(map(str, numbers))}"


def _one_of(texts: Iterable[str]) -> str:
    return f"^({'|'.join(texts)})$"


def _measured(request: Request) -> Iterator[ToolOption]:
    options = {
        "--replay-mode": ("--replay", request.replay),
        "--set": ("--set", request.section_set),
        "--metrics": ("--metrics", request.metrics),
        "--graph-profiling": ("--graphs", request.graphs),
        "--clock-control": ("--no-clock-control", "none" if request.no_clock_control else None),
    }
    for option, (requested_by, value) in options.items():
        if value:
            yield ToolOption(option, value, requested_by=requested_by)
    if request.backtrace:
        yield ToolOption("--call-stack", requested_by="--backtrace")


def filters(op: str) -> list[str]:
    """Return ncu's filters for the ranges `NAME` or `NAME@DOMAIN` of both kinds.

    Raises MisuseError for a range without a name, which ncu does not support.
    """
    name, at, domain = op.rpartition("@") if "@" in op else (op, "", "")
    if not name or (at and not domain):
        raise MisuseError(f"--op {op}: NAME or NAME@DOMAIN")
    place = f"{_literal(domain)}@" if domain else ""
    return [f"{place}{_literal(name)}/", f"{place}{_literal(name)}"]


def _literal(name: str) -> str:
    return SPECIAL.sub(lambda match: f"\\{match[0]}", name)


def why_no_report(request: Request) -> str:
    """Return why no report was written, "" if the request selects nothing."""
    if request.launches:
        return "ncu measured no launch"
    if request.ops:
        return f"no kernel ran in {', '.join(request.ops)}"
    if request.capture or request.schedule:
        return "no kernel ran in the active steps of a bridge.profile()"
    return ""
