"""Every nanosecond of a run, or of its selected part, is in one state of each GPU: against plain loops, on made programs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from witness.account import Range

import bridge
from account.programs import CHOSEN, LAST, Program, collection, programs
from account.true import said, truth, without_idle_ones
from bridge.analyze.run.account import runs
from bridge.importers.errors import ReportError
from bridge.report import Report

pytestmark = pytest.mark.slow
freely = settings(suppress_health_check=list(HealthCheck))
spans = st.tuples(st.none() | st.integers(0, LAST), st.none() | st.integers(0, LAST)).filter(
    lambda pair: None in pair or pair[0] < pair[1]
)


def loaded(program: Program, folder: Path) -> Report | None:
    """Return the report of a program; None where there is nothing in it."""
    path = folder / "made.sqlite"
    path.unlink(missing_ok=True)
    try:
        return bridge.load(program.written(path))
    except ReportError:
        events = program.events
        assert not [*events.ranges, *events.calls, *events.activities]
        return None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


def check(report: Report, program: Program, **selected: object) -> None:
    """Assert that a report has the one run that plain loops find, and that its states add up."""
    true, [found] = truth(program.events, collection(program), **selected), runs(report.attributed)
    assert without_idle_ones(said(found)) == without_idle_ones(true)
    for gpu in found.gpus:
        assert gpu.length_ns == found.part.length
        assert all(ns >= 0 for ns in gpu.states.values())
        assert gpu.busy_ns <= gpu.length_ns
        for of in gpu.processes.values():
            assert sum(of.values()) == found.part.length


@given(programs())
@freely
def test_a_whole_run(folder, program):
    if report := loaded(program, folder):
        check(report, program)


@given(programs(), spans)
@freely
def test_a_window_of_time(folder, program, window):
    if report := loaded(program, folder):
        part = report.within(first_ns=window[0], last_ns=window[1])
        check(part, program, window=at(report, window))


def at(report: Report, window: tuple[int | None, int | None]) -> tuple[int, int]:
    """Return a window on the clock of the report; `--from` and `--to` count from its first event."""
    first, last = window
    return (
        -(10**9) if first is None else report.began + first,
        10**9 if last is None else report.began + last,
    )


@given(programs(), spans)
@freely
def test_ranges_and_a_window(folder, program, window):
    report = loaded(program, folder)
    if report is None or not program.chosen:
        return
    check(report.within(range_name=CHOSEN), program, times=[program.chosen])
    both = report.within(first_ns=window[0], last_ns=window[1], range_name=CHOSEN)
    check(both, program, window=at(report, window), times=[program.chosen])


def stepped(program: Program, period: int) -> Program:
    """Return the program with ranges that name steps, one after the other on the first process."""
    pid = program.tables["devices"][0]["pid"]
    steps = [Range(pid, n * period, n * period + period) for n in range(4)]
    rows = [
        {"type": 59, "start": one.start, "end": one.end, "thread": pid << 24 | 9, "text": f"step {n}"}
        for n, one in enumerate(steps)
    ]  # fmt: skip
    tables = {**program.tables, "annotations": [*program.tables["annotations"], *rows]}
    events = program.events._replace(ranges=[*program.events.ranges, *steps])
    return Program(tables, events, program.session, program.chosen)


@given(programs(), st.integers(3, 12), st.integers(0, 3), st.integers(0, 3), spans)
@freely
def test_steps_alone_and_with_ranges_and_a_window(folder, program, period, one, other, window):
    program = stepped(program, period)
    report = loaded(program, folder)
    first, last = sorted((one, other))
    found = report.attributed.iterations
    rows = [n for n, number in enumerate(found.number.tolist()) if first <= number <= last]
    if not rows:
        return
    steps = [
        Range(int(found.process[n]) >> 24, int(found.start[n]), int(found.end[n])) for n in rows
    ]
    check(report.within(steps=(first, last)), program, times=[steps])
    cut = {"first_ns": window[0], "last_ns": window[1]}
    check(report.within(steps=(first, last), **cut), program, times=[steps], window=at(report, window))  # fmt: skip
    if program.chosen:
        both = report.within(steps=(first, last), range_name=CHOSEN, **cut)
        check(both, program, times=[steps, program.chosen], window=at(report, window))


@given(programs(), programs())
@freely
def test_reports_without_a_common_clock_are_one_run_each(folder, one, other):
    """No start of a session is recorded, and no collective is in both."""
    paths = [made.written(_new(folder / f"{n}.sqlite")) for n, made in enumerate((one, other))]
    try:
        report = bridge.load(*paths)
    except ReportError:
        return
    true = [truth(made.events, collection(made)) for made in (one, other)]
    true = [without_idle_ones(of) for of in true if of]
    assert [without_idle_ones(said(of)) for of in runs(report.attributed)] == true


def _new(path: Path) -> Path:
    path.unlink(missing_ok=True)
    return path
