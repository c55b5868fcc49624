"""The options of `nsys profile`: which, for a preset and for what else was asked.

The invariant: the program is not ended with a capture range unless that was asked for. nsys ends it by
default, so that every capture range says what becomes of its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bridge.capture.request import Request, Wish, escaped
from bridge.capture.session.capture import CUDA, DOMAIN, NAME, NVTX
from bridge.capture.tool import MisuseError

SUFFIX, RAW = ".nsys-rep", ".qdstrm"  # a report, and what it is made of
PRESETS = LATENCY, MEMORY, FULL = ("latency", "memory", "full")
NCU_ONLY = ("ops", "replay", "section_set", "metrics", "no_clock_control")

TRACES = {LATENCY: "cuda,nvtx", MEMORY: "cuda,nvtx", FULL: "cuda,nvtx,osrt,cudnn,cublas"}


def wishes(request: Request, report: Path) -> Iterator[Wish]:
    """Yield the options for a report to be written; raises MisuseError for what goes with ncu alone."""
    if given := request.given(*NCU_ONLY):
        raise MisuseError(f"{given[0]} goes with --tool ncu")
    preset = request.preset or LATENCY
    yield Wish("--trace", TRACES[preset], "its calls are not traced")
    sampled = "process-tree" if preset == FULL or request.backtrace else "none"
    switched = "process-tree" if preset == FULL else "none"
    yield Wish("--sample", sampled, "CPU samples are as the version has them")
    yield Wish("--cpuctxsw", switched, "context switches are as the version has them")
    yield from _graphs(request)
    if preset != LATENCY or request.memory:
        asked = "--memory" if request.memory else ""
        yield Wish("--cuda-memory-usage", "true", "no use of GPU memory", asked)
    if preset == FULL or request.backtrace:
        yield from _backtraces(request)
    yield from _capture(request)
    if request.force:
        yield Wish("--force-overwrite", "true", asked="--force")
    yield Wish("--output", escaped(report), asked="-o")


def _graphs(request: Request) -> Iterator[Wish]:
    asked = "--graphs" if request.graphs else ""
    without = "CUDA graphs are traced as the driver has it"
    yield Wish("--cuda-graph-trace", request.graphs or "node", without, asked)


def _backtraces(request: Request) -> Iterator[Wish]:
    asked = "--backtrace" if request.backtrace else ""
    yield Wish("--cudabacktrace", "all", "no call stacks of CUDA calls", asked)
    yield Wish("--python-backtrace", "cuda", "no Python in the call stacks of CUDA calls")


def _capture(request: Request) -> Iterator[Wish]:
    """Yield what captures some steps only, and what becomes of the program then."""
    if not (request.capture or request.schedule):
        if request.kill:
            raise MisuseError("--kill goes with --schedule or --capture")
        return
    asked = "--schedule" if request.schedule else "--capture"
    kind = request.capture or NVTX
    yield Wish("--capture-range", kind, asked=asked)
    if kind == NVTX:
        yield Wish("--nvtx-capture", f"{NAME}@{DOMAIN}", asked=asked)
    yield Wish("--capture-range-end", _end(request), asked=asked)
    if request.kill:
        yield Wish("--kill", "sigterm", asked="--kill")


def _end(request: Request) -> str:
    """Return what becomes of a capture range's end: as many cycles as the schedule has, or the first."""
    cycles = request.schedule.get("repeat", 0) if request.schedule else int(request.kill)
    if request.kill and not cycles:
        raise MisuseError("--kill needs a last cycle: repeat=NUMBER in --schedule")
    end = "-shutdown" if request.kill else ""
    if cycles == 1:
        return f"stop{end}"
    return f"repeat{end}:{cycles}" if cycles else "repeat"


def missed(request: Request) -> str:
    """Return why nothing was captured, "" if everything is captured."""
    if not (request.capture or request.schedule):
        return ""
    remedy = "the program must come to the active steps of a bridge.profile()"
    if request.capture == CUDA:
        return f"cudaProfilerStart was never called; {remedy}, or call it"
    return f"no range {NAME}@{DOMAIN} began; {remedy}"
