"""Reports without a timeline: what makes sense of them, and the line that refuses the rest. No other place knows.

Nsight Compute runs each kernel alone, some passes over. How long it took is known, and in which ranges; not when, nor
what the CPU did. A time that was not collected is -1, not 0.
"""

from __future__ import annotations

from collections.abc import Collection

import pandas as pd

from importers.errors import ReportError
from importers.report import Report

COMMANDS = frozenset(
    "report import run diff show plot flame advise quality".split()
)  # that show something
PLOTS = frozenset("breakdown roofline histogram".split())
WEIGHTS = frozenset("gpu calls".split())  # of stacks
RULES = frozenset(  # of advice that look at kernels alone, one by one
    "small-grids no-tensor-cores tensor-cores-left single-precision casts nsight-compute".split()
)
VIEWS = frozenset(
    "op op-kernel kernel memcpy module forward-op rule skew".split()
)  # of those that are no dimensions
OF_HOST = frozenset(["api"])  # dimensions that tell of the host
WITHOUT = ("cpu_", "wall_", "in_kernels")  # beginnings of columns that tell of the host, or of when
CLOCK = frozenset("busy_ns span_ns gpu_busy_ns gpu_span_ns launched_ns".split())
TOTALS = ("gpu_total_ns", "total_ns")
REASON = "Nsight Compute ran each kernel alone, so there is no timeline"
HINT = "; give it with --ncu beside a report of nsys"


class NoTimelineError(ReportError, ValueError):
    """What was asked for needs a timeline that the report has not; the message says so in a line."""


def has_timeline(report: Report) -> bool:
    """Tell whether the times of a report say when something ran."""
    return all(facts.timeline for facts in report.facts)


def refuse(report: Report, what: str, *, fits: bool = False) -> None:
    """Raise NoTimelineError for what a report without a timeline cannot have, unless it ``fits`` one."""
    if not (fits or has_timeline(report)):
        raise NoTimelineError(f"{', '.join(report.source)}: no {what}: {REASON}{HINT}")


def check(report: Report, by: str, dimensions: bool) -> None:
    """Refuse a table that a report without a timeline cannot have."""
    parts = {part.strip() for part in by.split(",")}
    fits = not (parts & OF_HOST) if dimensions else by in VIEWS
    refuse(report, f"{by} table", fits=fits)


def check_alike(before: Report, after: Report) -> None:
    """Refuse to compare a report without a timeline with one that has one: ncu stops the clocks from boosting."""
    one, other = (has_timeline(report) for report in (before, after))
    if one == other:
        return
    without = after if one else before
    raise NoTimelineError(
        f"{', '.join(without.source)}: of Nsight Compute, and the other report is not: under it caches are empty and"
        " clocks held, so that times do not compare; compare two reports of one kind"
    )


def kept(report: Report, found: pd.DataFrame, asked: Collection[str]) -> pd.DataFrame:
    """Return a table without what nobody measured; NoTimelineError if it was asked for by name."""
    if has_timeline(report):
        return found
    without = [c for c in found.columns if c.startswith(WITHOUT) or c in CLOCK]
    named = [c for c in without if c in asked or c.removesuffix("_ns") in asked]
    refuse(report, named[0] if named else "", fits=not named)
    return _unknown(found.drop(columns=without))


def _unknown(found: pd.DataFrame) -> pd.DataFrame:
    """Put -1 in place of the times of kernels that took none: they were not collected."""
    total = next((c for c in TOTALS if c in found), None)
    times = [c for c in found.columns if c.endswith("_ns")]
    if total is None or not (found[total] == 0).any():
        return found
    none = found[total] == 0
    found = found.assign(**{c: found[c].mask(none, -1) for c in times})
    found.attrs["unknown"] = True
    return found
