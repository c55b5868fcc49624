"""Reports without a timeline: which tables make sense of them, and what in those does not.

Nsight Compute runs each kernel alone, some passes over. How long it took is known, not when; nor what the
CPU did. A time that was not collected is -1, not 0.
"""

from __future__ import annotations

from collections.abc import Collection

import pandas as pd

from importers.report import Report

VIEWS = frozenset(
    "op op-kernel kernel copy module forward-op rule".split()
)  # of those that are no dimensions
WITHOUT = ("cpu_", "wall_", "in_kernels")  # beginnings of columns that tell of the host, or of when
CLOCK = frozenset("busy_ns span_ns gpu_busy_ns gpu_span_ns launched_ns".split())
TOTALS = ("gpu_total_ns", "total_ns")
REASON = "Nsight Compute runs kernels one at a time: no timeline"


def has_timeline(report: Report) -> bool:
    """Tell whether the times of a report say when something ran."""
    return all(facts.timeline for facts in report.facts)


def check(report: Report, by: str, dimensions: bool) -> None:
    """Raise ValueError, in words for the user, for a table that a report without a timeline cannot have."""
    if dimensions or by in VIEWS or has_timeline(report):
        return
    raise ValueError(f"no {by} table of {', '.join(report.source)}: {REASON}")


def kept(report: Report, found: pd.DataFrame, asked: Collection[str]) -> pd.DataFrame:
    """Return a table without what nobody measured; ValueError, in words for the user, if it was asked for by name."""
    if has_timeline(report):
        return found
    without = [c for c in found.columns if c.startswith(WITHOUT) or c in CLOCK]
    named = [c for c in without if c in asked or c.removesuffix("_ns") in asked]
    if named:
        raise ValueError(f"no {named[0]} of {', '.join(report.source)}: {REASON}")
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
