"""Handle captures without a timeline: what can be shown of them, and the error for the rest.

Nsight Compute runs each kernel alone, possibly in several passes. The duration and the ranges of a
kernel are known, but not when it ran, nor what the CPU did. A time that was not collected is -1,
not 0.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from bridge.analyze.core.catalog import VIEWS
from bridge.analyze.core.catalog.lookup import CALL_DIMENSIONS
from bridge.analyze.core.table import Table
from bridge.importers.capture import Capture
from bridge.importers.errors import ReportError

PLOTS = frozenset("breakdown roofline histogram".split())
WEIGHTS = frozenset("gpu calls".split())  # weights of stacks
HOST_PREFIXES = ("cpu_", "wall_", "in_kernels")  # prefixes of columns of the host or of wall time
CLOCK_COLUMNS = frozenset("busy_ns span_ns gpu_busy_ns gpu_span_ns launched_ns".split())
TOTAL_COLUMNS = ("gpu_total_ns", "total_ns")
REASON = "Nsight Compute ran each kernel alone, so there is no timeline"
HINT = "; give it with --ncu beside a report of nsys"


class NoTimelineError(ReportError, ValueError):
    """A request needs a timeline that the capture does not have; the message says so in a line."""


def has_timeline(capture: Capture) -> bool:
    """Return whether the times of a capture tell when something ran."""
    return all(facts.timeline for facts in capture.facts)


def refuse(capture: Capture, subject: str, *, fits: bool = False) -> None:
    """Raise NoTimelineError for a request that needs a timeline, if there is none.

    A request that ``fits`` needs none.
    """
    if not (fits or has_timeline(capture)):
        raise NoTimelineError(f"{', '.join(capture.source)}: no {subject}: {REASON}{HINT}")


def check_table(capture: Capture, by: str) -> None:
    """Raise NoTimelineError for a table that a capture without a timeline cannot have."""
    view, dimensions = VIEWS.get(by), {part.strip() for part in by.split(",")}
    fits = not view.timeline if view else CALL_DIMENSIONS.isdisjoint(dimensions)
    refuse(capture, f"{by} table", fits=fits)


def check_comparable(before: Capture, after: Capture) -> None:
    """Raise NoTimelineError unless both captures or neither have a timeline.

    Nsight Compute fixes the clocks, so times do not compare.
    """
    before_has, after_has = (has_timeline(capture) for capture in (before, after))
    if before_has == after_has:
        return
    without = after if before_has else before
    raise NoTimelineError(
        f"{', '.join(without.source)}: recorded by Nsight Compute, unlike the other report: it empties"
        " caches and fixes clocks, so that times do not compare; compare two reports of one kind"
    )


def drop_unmeasured(capture: Capture, table: Table, requested: Collection[str]) -> Table:
    """Return a table without columns that were not measured.

    Raises NoTimelineError if one of them was requested by name.
    """
    if has_timeline(capture):
        return table
    unmeasured = [c for c in table.columns if c.startswith(HOST_PREFIXES) or c in CLOCK_COLUMNS]
    requested_unmeasured = [
        c for c in unmeasured if c in requested or c.removesuffix("_ns") in requested
    ]
    refuse(
        capture,
        requested_unmeasured[0] if requested_unmeasured else "",
        fits=not requested_unmeasured,
    )
    return _mark_unknown_times(table.drop(unmeasured))


def _mark_unknown_times(table: Table) -> Table:
    """Replace by -1 the times of rows whose kernels have no collected time."""
    total = next((c for c in TOTAL_COLUMNS if c in table), None)
    times = [c for c in table.columns if c.endswith("_ns")]
    if total is None or not (table[total] == 0).any():
        return table
    is_unknown = table[total] == 0
    table = table.assign(**{c: np.where(is_unknown, -1, table[c]) for c in times})
    table.attrs["unknown"] = True
    return table
