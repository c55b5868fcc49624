"""Reasons that lie with the profiler: what it lost, the time it took for itself, what else it recorded."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from bridge.analyze.groups import highest, lowest, sums
from bridge.analyze.quality.reasons import COUNT, RATE, SHARE, Capture, Measured, Reason
from bridge.join.arrays import NONE, Flags, Ints
from importers import frames
from importers.frames import shared

A_RANGE_NS = 1_000  # what a range that is recorded takes at least: docs/annotate.md
WARNING, ERROR = frames.SEVERITIES.index("warning"), frames.SEVERITIES.index("error")
INCOMPLETE = re.compile(
    r"not all\b|might have not been started|dropped|\blost\b|overflow|truncated|incomplete",
    re.IGNORECASE,
)
MANY = 1_000  # ranges of a thread, below which their cost is not looked at
SECOND = 1_000_000_000


def overhead(seen: Capture) -> Measured | None:
    """The share of the time that the profiler took for itself."""
    if not len(seen.report.overhead):
        return None
    found = seen.overhead
    said = "{own_share} of the time is the profiler's own: {own_ns} of {window_ns}"
    figures = {"own_share": found.share, "own_ns": found.own, "window_ns": found.window}
    return Measured(found.share, said, figures)


def dense_ranges(seen: Capture) -> Measured | None:
    """The share of a thread's time that recording its ranges took, at the least that one takes."""
    ranges = seen.report.ranges[frames.is_kind(seen.report.ranges, frames.PUSH_POP)]
    if not len(ranges):
        return None
    columns = tuple(frames.ints(ranges, c) for c in ("report", "thread"))
    (of,) = shared(columns)
    many = int(of.max()) + 1
    count = sums(of, np.ones(len(of), np.int64), many)
    start, end = (frames.ints(ranges, c) for c in ("start", "end"))
    lasted = np.maximum(highest(of, end, many) - lowest(of, start, many), 1)
    worst = int(np.argmax(count / lasted * (count >= MANY)))
    share = float(min(count[worst] * A_RANGE_NS / lasted[worst], 1.0)) * bool(count[worst] >= MANY)
    said = "{ranges} ranges on one thread in {lasted_ns}: to record them took {cost_share} of it, or more"
    figures = {
        "ranges": int(count[worst]),
        "lasted_ns": int(lasted[worst]),
        "cost_share": share,
    }
    return Measured(share, said, figures)


def _warnings(seen: Capture) -> pd.DataFrame:
    """Return the warnings and errors about recorded processes, or about none; errors about any."""
    report = seen.report
    table = report.diagnostics
    severity, process = (frames.ints(table, c) for c in ("severity", "process"))
    concerns = np.isin(process, _processes(seen)) | (process == NONE)
    rows = np.flatnonzero(((severity == WARNING) & concerns) | (severity == ERROR))
    return table.iloc[rows]


def _processes(seen: Capture) -> Ints:
    """Return the processes that anything was recorded of."""
    report = seen.report
    tables = (report.ranges, report.launches, report.activities)
    return np.unique(np.concatenate([frames.ints(t, "process") for t in tables]))


def _incomplete(table: pd.DataFrame) -> Flags:
    told = np.array([*(bool(INCOMPLETE.search(n)) for n in table["name"].cat.categories), False])
    flags: Flags = told[frames.codes(table["name"])]
    return flags


def dropped(seen: Capture) -> Measured | None:
    """The share of the processes of which the profiler says that it lost records."""
    if not len(seen.report.diagnostics):
        return None
    table = _warnings(seen)
    table = table.iloc[np.flatnonzero(_incomplete(table))]
    every = _processes(seen)
    process = frames.ints(table, "process")
    hit = len(every) if (process == NONE).any() else int(np.isin(every, process).sum())
    hit = hit or int(len(table) > 0)
    said = "of {hit} of {every} processes the profiler says: {message}"
    figures = {"hit": hit, "every": len(every), "message": _first(table)}
    return Measured(hit / max(len(every), 1), said, figures)


def warned(seen: Capture) -> Measured | None:
    """How many other warnings and errors the profiler wrote."""
    if not len(seen.report.diagnostics):
        return None
    table = _warnings(seen)
    table = table.iloc[np.flatnonzero(~_incomplete(table))]
    said = "the profiler warns {warnings} times: {message}"
    return Measured(len(table), said, {"warnings": len(table), "message": _first(table)})


def _first(table: pd.DataFrame) -> str:
    """Return the most frequent message, of those that are as frequent the first by letter."""
    if not len(table):
        return ""
    found = table["name"].astype(object).value_counts()
    return str(min(found.index[found == found.max()]))


def host_tracing(seen: Capture) -> Measured | None:
    """How much else was recorded of the host, per second."""
    rates = [
        (rows * SECOND / max(facts.span[1] - facts.span[0], 1), rows, what)
        for facts in seen.report.facts
        for what, rows in facts.beside.items()
    ]
    if not rates:
        return None
    rate, rows, what = max(rates)
    said = f"{{rows}} {what}, {{rate}} per second"
    return Measured(rate, said, {"rows": rows, "rate": round(rate)})


REASONS = (
    Reason(
        "dropped-records",
        "processes of which the profiler says that not all was collected",
        SHARE,
        0.0,
        1.0,
        20,
        "let the program end by itself, or stop the capture before it does: nsys profile --capture-range=cudaProfilerApi;"
        " write buffers more often: --cuda-flush-interval=1000; take an nsys as new as the driver",
        dropped,
    ),
    Reason(
        "profiler-warnings",
        "other warnings and errors of the profiler",
        COUNT,
        0,
        2,
        5,
        "read them all: the frame diagnostics, or Diagnostics Summary in nsys-ui",
        warned,
    ),
    Reason(
        "profiler-overhead",
        "the profiler's own time on threads that launch, between the first op or launch and the end of the work",
        SHARE,
        0.01,
        0.2,
        25,
        "begin after start-up and capture longer: bridge run --schedule wait=1,warmup=1,active=5; write buffers less"
        " often: nsys profile --cuda-flush-interval=0",
        overhead,
    ),
    Reason(
        "dense-ranges",
        "time to record the ranges of a thread with 1000 or more of them, at 1 us each",
        SHARE,
        0.02,
        0.3,
        15,
        "annotate fewer and longer parts; --nvtx-domain-exclude leaves out libraries' own",
        dense_ranges,
    ),
    Reason(
        "host-tracing",
        "calls of the OS runtime, samples of the CPU, context switches: the most frequent of them",
        RATE,
        1_000,
        100_000,
        5,
        "nsys profile --trace=cuda,nvtx --sample=none --cpuctxsw=none",
        host_tracing,
    ),
)
