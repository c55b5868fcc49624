"""The critical path on a page: the ops and kinds with most time on it, and the run without each."""

from __future__ import annotations

from typing import Any

from bridge.analyze.core.catalog import VIEWS
from bridge.analyze.run.concurrency.clocks import Clocks
from bridge.analyze.run.critical import by_critical
from bridge.analyze.tables.build import ordered
from bridge.join.attributed import AttributedCapture

MAX_EVENTS = 200_000  # activities and API calls; the path of more takes too long for a page
MAX_ROWS = 10
SHOWN = ("op", "kind", "time_ns", "share", "without_ns")


def critical_path(attributed: AttributedCapture) -> dict[str, Any] | None:
    """Return the rows of `by_critical` with most time as columns, and the length of the run.

    None for a report without work on a device, of more than `MAX_EVENTS` events, or of several files
    whose clocks cannot be compared.
    """
    capture = attributed.capture
    events = len(capture.activities) + len(capture.launches)
    if not len(capture.activities) or events > MAX_EVENTS or not Clocks.of(attributed).exact.all():
        return None
    table = ordered(by_critical(attributed), VIEWS["critical"].sorted_by)
    rows = table.head(MAX_ROWS)
    headings = {column.name: column.heading for column in VIEWS["critical"].columns.columns}
    return {
        "run_ns": table.attrs["run_ns"],
        "headings": [headings[name] for name in SHOWN],
        **{name: rows[name].tolist() for name in SHOWN},
    }
