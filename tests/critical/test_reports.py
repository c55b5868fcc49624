"""The critical path of real profiles, of parts of a run, and in traces."""

from __future__ import annotations

import json

import numpy as np
import pytest
from real_parts import corpus_reports

import bridge
from bridge.analyze.draw.timeline import Selection
from bridge.analyze.run.critical import by_critical, retiming, table
from bridge.analyze.run.critical.run import KINDS, Run
from bridge.importers.capture import concat
from bridge.join.attributed import AttributedCapture
from critical.machine import Machine
from critical.records import Records, thread

EMPTY = ("failed-export", "no-kernels-osrt")
reports = pytest.mark.parametrize("path", [of for of in corpus_reports() if of.id not in EMPTY])


def adds_up(run: Run, rows) -> None:
    assert int(rows["time_ns"].sum()) == run.span
    assert rows["share"].sum() == pytest.approx(1)
    elements = run.elements
    assert elements.start[0] == run.first
    assert elements.end[-1] == run.last
    assert (elements.start[1:] == elements.end[:-1]).all()
    assert (elements.end > elements.start).all()
    known = rows[rows["without_ns"] != -1]
    assert len(known) == min(table.RETIMED, (rows["kind"] != "unknown").sum())
    assert known["saves_ns"].between(0, known["time_ns"]).all()


@pytest.mark.slow
@reports
def test_real_profiles(path):
    attributed = bridge.load(path).attributed
    run = Run.of(attributed)
    adds_up(run, by_critical(attributed).to_pandas())


STEPS = [
    ("code", "step", 50),
    *[("launch", "a", 10, 5, 7, 2, 40), ("launch", "b", 10, 5, 8, 2, 40)] * 4,
    ("sync_all", "step", 3),
]


def made() -> bridge.report.Report:
    return bridge.report.Report(Machine().run([(STEPS, []), (STEPS, [])]).records.attributed())


def test_a_part_of_a_run():
    """It has the length of its events; the path is that of the whole run, as far as it lies in it."""
    whole = made()
    part = whole.within(first_ns=170, last_ns=330)
    run, all_of_it = Run.of(part.attributed), Run.of(whole.attributed)
    assert 170 <= run.first < run.last <= 400
    assert run.span < all_of_it.span
    adds_up(run, by_critical(part.attributed).to_pandas())


def one_rank(records: Records, number: int):
    """Return the records of one rank as a capture of its own."""
    own = Records()
    rows = [n for n, row in enumerate(records.calls) if row["thread"] == thread(number)]
    new = {old + 1: n for n, old in enumerate(rows, 1)}
    own.calls = [records.calls[n] for n in rows]
    own.ranges = [row for row in records.ranges if row["thread"] == thread(number)]
    for row in records.activities:
        if row["correlation"] in new:
            own.activities.append({**row, "correlation": new[row["correlation"]]})
    return own.capture


def test_ranks_in_several_files():
    """Their clocks are aligned by the collectives, so that they have the path of one report."""
    steps = [("launch", "a", 10, 5, 7, 2, 30), ("collective", "dist", 3, 2, 1, 50)]
    late = [("code", "slow", 40), *steps]
    records = Machine().run([(steps, late), (late, steps)] * 2).records
    parts = [one_rank(records, number) for number in (0, 1)]
    attributed = AttributedCapture.of(concat(parts))
    expected = by_critical(records.attributed()).to_pandas()
    assert by_critical(attributed).to_pandas().equals(expected)
    with pytest.raises(ValueError, match="needs one clock"):
        by_critical(AttributedCapture.of(concat([made().attributed.capture] * 2)))


def test_without_events():
    empty = made().within(first_ns=10**6).attributed
    assert not len(by_critical(empty))
    assert list(by_critical(empty)) == list(by_critical(made().attributed))


def test_a_thread_that_only_looks_on_does_not_end_the_path():
    """As NCCL's watchdog does, which asks for events until the program ends: the run lasts on, by causes unknown."""
    seen = Records()
    call = seen.call(thread(0), 10, 20)
    seen.activity(call, 25, 100)
    for time in range(0, 1_000, 100):
        seen.call(thread(0, 99), time, time + 5, "cudaEventQuery")
    attributed = seen.attributed()
    assert Run.of(attributed).span == 905
    rows = by_critical(attributed)
    times = dict(zip(rows["kind"], rows["time_ns"], strict=True))
    before, after = 10, 905 - 100
    assert times == {"API call": 10, "launch latency": 5, "kernel": 75, "unknown": before + after}
    alone = Records()
    alone.call(thread(0, 99), 0, 5, "cudaEventQuery")
    assert Run.of(alone.attributed()).span == 5


def test_calls_of_the_operating_system_split_host_code_alone():
    seen = Records()
    seen.range(thread(0), 0, 100, "load")
    seen.call(thread(0), 60, 80, "cudaMalloc")
    for start, end in ((10, 30), (12, 20), (50, 70), (75, 90)):
        seen.system.append({"thread": thread(0), "start": start, "end": end, "name": "read"})
    rows = by_critical(seen.attributed())
    times = dict(zip(rows["kind"], rows["time_ns"], strict=True))
    assert times == {"host code": 40, "OS call": 40, "API call": 20}


def test_ranges_alone_have_a_path():
    seen = Records()
    seen.range(thread(0), 0, 100, "outer")
    seen.range(thread(0), 20, 50, "inner")
    rows = by_critical(seen.attributed())
    assert dict(zip(rows["op"], rows["time_ns"], strict=True)) == {"inner": 30, "outer": 70}


def test_chains_on_one_axis_or_by_rank(monkeypatch):
    """Many chains of long runs would not fit on one axis of time."""
    expected = by_critical(made().attributed).to_pandas()
    monkeypatch.setattr(retiming, "MANY_CHAINS", 0)
    assert by_critical(made().attributed).to_pandas().equals(expected)
    monkeypatch.setattr(retiming, "MAX_SHIFT", 0)
    assert by_critical(made().attributed).to_pandas().equals(expected)


def test_what_does_not_settle_is_computed_point_by_point(monkeypatch):
    expected = by_critical(made().attributed).to_pandas()
    monkeypatch.setattr(retiming, "MAX_ROUNDS", 0)
    assert by_critical(made().attributed).to_pandas().equals(expected)


def test_only_the_largest_rows_are_computed(monkeypatch):
    expected = by_critical(made().attributed).sort_values("time_ns", ascending=False)
    monkeypatch.setattr(table, "RETIMED", 2)
    rows = by_critical(made().attributed).sort_values("time_ns", ascending=False)
    assert rows["without_ns"][:2].tolist() == expected["without_ns"][:2].tolist()
    assert (rows["without_ns"][2:] == -1).all()


@pytest.mark.slow
def test_the_track_of_a_trace(tmp_path):
    """A slice for each element, in order, only on request."""
    report = made()
    report.export_trace(tmp_path / "with.json", selection=Selection(critical_path=True))
    report.export_trace(tmp_path / "without.json")
    events = json.loads((tmp_path / "with.json").read_text())["traceEvents"]
    slices = [event for event in events if event.get("cat") == "critical path"]
    elements = Run.of(report.attributed).elements
    assert [round(1e3 * event["ts"]) for event in slices] == elements.start.tolist()
    assert [round(1e3 * event["dur"]) for event in slices] == (
        elements.end - elements.start
    ).tolist()
    kinds = np.array(KINDS, object)[elements.kind].tolist()
    assert [event["args"]["element"] for event in slices] == kinds
    assert slices[0]["name"] == "step: host code"
    assert slices[0]["args"]["op"] == "step"
    assert "critical path" not in (tmp_path / "without.json").read_text()
