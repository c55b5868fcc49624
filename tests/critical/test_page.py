"""The critical path on the page: the rows of the table, of reports that are not too large."""

from __future__ import annotations

from pathlib import Path

import bridge
from bridge.analyze.draw.overview import critical
from bridge.cli.demo_report import make


def test_the_page_has_the_largest_rows_of_the_table(tmp_path: Path, monkeypatch) -> None:
    make(tmp_path / "demo.sqlite")
    report = bridge.load(tmp_path / "demo.sqlite")
    table = report.by("critical")
    shown = critical.critical_path(report.attributed)
    assert shown is not None
    first, last = report.capture.facts[0].span
    assert shown.pop("run_ns") == table["time_ns"].sum() == last - first
    assert shown.pop("headings") == ["op", "kind", "on path", "of run", "run without"]
    assert shown == {name: table[name].tolist()[: critical.MAX_ROWS] for name in shown}
    assert len(shown["op"]) == critical.MAX_ROWS < len(table)
    events = len(report.capture.activities) + len(report.capture.launches)
    monkeypatch.setattr(critical, "MAX_EVENTS", events)
    assert critical.critical_path(report.attributed)
    monkeypatch.setattr(critical, "MAX_EVENTS", events - 1)
    assert critical.critical_path(report.attributed) is None
