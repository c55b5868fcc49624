"""The options of `nsys profile` for a request.

The end of a capture range does not end the program unless the user requested that. nsys ends it by
default, so every capture range gets an option for its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bridge.capture.session.control import CUDA, DOMAIN, NAME, NVTX
from bridge.capture.tool import MisuseError, Request, ToolOption, escape_placeholders

SUFFIX, RAW = ".nsys-rep", ".qdstrm"  # a report, and the raw capture
PRESETS = LATENCY, MEMORY, FULL = ("latency", "memory", "full")
NCU_ONLY = ("ops", "replay", "section_set", "metrics", "no_clock_control")
CUPTI_ONLY = ("witness", "live")

TRACES = {LATENCY: "cuda,nvtx", MEMORY: "cuda,nvtx", FULL: "cuda,nvtx,osrt,cudnn,cublas"}


def tool_options(request: Request, report: Path) -> Iterator[ToolOption]:
    """Yield the options to write a report; raises MisuseError for options that need ncu."""
    if excluded := request.given_options(*NCU_ONLY):
        raise MisuseError(f"{excluded[0]} goes with --tool ncu")
    if excluded := request.given_options(*CUPTI_ONLY):
        raise MisuseError(f"{excluded[0]} goes with --tool cupti")
    preset = request.preset or LATENCY
    yield ToolOption("--trace", TRACES[preset], "its calls are not traced")
    sampled = "process-tree" if preset == FULL or request.backtrace else "none"
    switched = "process-tree" if preset == FULL else "none"
    yield ToolOption("--sample", sampled, "CPU samples are as the version has them")
    yield ToolOption("--cpuctxsw", switched, "context switches are as the version has them")
    yield from _graphs(request)
    if preset != LATENCY or request.memory:
        requested_by = "--memory" if request.memory else ""
        yield ToolOption("--cuda-memory-usage", "true", "no use of GPU memory", requested_by)
    if preset == FULL or request.backtrace:
        yield from _backtraces(request)
    yield from _capture(request)
    if request.force:
        yield ToolOption("--force-overwrite", "true", requested_by="--force")
    yield ToolOption("--output", escape_placeholders(report), requested_by="-o")


def _graphs(request: Request) -> Iterator[ToolOption]:
    requested_by = "--graphs" if request.graphs else ""
    without = "CUDA graphs are traced as the driver has it"
    yield ToolOption("--cuda-graph-trace", request.graphs or "node", without, requested_by)


def _backtraces(request: Request) -> Iterator[ToolOption]:
    requested_by = "--backtrace" if request.backtrace else ""
    # nsys takes stacks of calls over 80 µs alone, and launches take less; it refuses a threshold of 0 ns.
    calls = "all:1" if request.backtrace else "all"
    yield ToolOption("--cudabacktrace", calls, "no call stacks of CUDA calls", requested_by)
    yield ToolOption("--python-backtrace", "cuda", "no Python in the call stacks of CUDA calls")


def _capture(request: Request) -> Iterator[ToolOption]:
    """Yield the options that capture selected steps, and those for the end of the capture."""
    if not (request.capture or request.schedule):
        if request.kill:
            raise MisuseError("--kill goes with --schedule or --capture")
        return
    requested_by = "--schedule" if request.schedule else "--capture"
    kind = request.capture or NVTX
    yield ToolOption("--capture-range", kind, requested_by=requested_by)
    if kind == NVTX:
        yield ToolOption("--nvtx-capture", f"{NAME}@{DOMAIN}", requested_by=requested_by)
    yield ToolOption("--capture-range-end", _end(request), requested_by=requested_by)
    if request.kill:
        yield ToolOption("--kill", "sigterm", requested_by="--kill")


def _end(request: Request) -> str:
    """Return the action at the end of a capture range: by the number of cycles in the schedule."""
    cycles = request.schedule.get("repeat", 0) if request.schedule else int(request.kill)
    if request.kill and not cycles:
        raise MisuseError("--kill needs a last cycle: repeat=NUMBER in --schedule")
    end = "-shutdown" if request.kill else ""
    if cycles == 1:
        return f"stop{end}"
    return f"repeat{end}:{cycles}" if cycles else "repeat"


def why_no_report(request: Request) -> str:
    """Return why no report was written, "" if the request selects nothing."""
    if not (request.capture or request.schedule):
        return ""
    remedy = "the program must reach the active steps of a bridge.profile()"
    if request.capture == CUDA:
        return f"cudaProfilerStart was never called; {remedy}, or call it"
    return f"no range {NAME}@{DOMAIN} began; {remedy}"
