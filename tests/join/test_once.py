"""What is computed once of a capture: for the same options, and not for another selection."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bridge
from bridge.analyze.core.devices import Devices
from bridge.analyze.core.table import Table
from bridge.analyze.run.causes.gaps import Gaps
from bridge.analyze.run.steps import by_step
from bridge.analyze.tables.build import table
from bridge.analyze.tables.request import TableRequest
from bridge.join.attributed import AttributedCapture, once
from bridge.report import Report


@pytest.fixture
def loaded(demo: Path) -> Report:
    return bridge.load(demo)


def test_it_is_computed_once_for_each_capture_and_options(loaded):
    calls = []

    @once
    def longer(attributed: AttributedCapture, than: int = 0) -> int:
        """Count activities."""
        calls.append(than)
        return int((attributed.duration > than).sum())

    whole, part = loaded.attributed, loaded.within(steps=(1, 1)).attributed
    for than in (0, 5, 0, 5):
        assert longer(whole, than) == sum(ns > than for ns in whole.duration.tolist())
    assert calls == [0, 5]
    longer(part)
    longer(whole.only("forward"))
    assert calls == [0, 5, 0, 0]
    assert longer.__doc__ == "Count activities."


def test_a_caller_may_add_columns_to_the_steps(loaded):
    by_step(loaded.attributed).to_pandas().insert(0, "run", 1)
    assert "run" not in by_step(loaded.attributed)


def test_a_caller_may_write_into_the_table_of_activities(loaded):
    expected = loaded.op_kernels
    written = loaded.op_kernels
    for column in ("launch", "range", "forward", "report"):
        written.loc[0, column] = 777
        assert written[column][0] == 777
    pd.testing.assert_frame_equal(loaded.op_kernels, expected)


def test_gaps_are_those_longer_than_a_time(loaded):
    every = Gaps.of(loaded.attributed)
    for longer_than in (0, 1, int(np.median(every.length)), int(every.length.max())):
        some, mask = Gaps.of(loaded.attributed, longer_than), every.length > longer_than
        assert some.start.tolist() == every.start[mask].tolist()
        assert some.ended_by.tolist() == every.ended_by[mask].tolist()
    assert Devices.of_report(loaded.attributed) is Devices.of_report(loaded.attributed)


def test_a_report_may_be_pickled_after_it_was_looked_at(loaded):
    expected, _ = loaded.by("op"), loaded.summary
    assert loaded.attributed.results
    assert pickle.loads(pickle.dumps(loaded)).by("op").equals(expected)


def test_a_table_takes_the_memory_of_earlier_ones_where_it_is_short(loaded, monkeypatch):
    expected = loaded.by("op", columns="all")
    kept = loaded.attributed.__dict__.keys() - AttributedCapture.__dataclass_fields__.keys()
    assert "results" in kept

    def short(attributed: AttributedCapture, request: TableRequest) -> Table:
        if kept & attributed.__dict__.keys():
            raise MemoryError
        return table(attributed, request)

    monkeypatch.setattr("bridge.report.table", short)
    pd.testing.assert_frame_equal(loaded.by("op", columns="all"), expected)


def test_a_table_for_which_there_is_never_enough_memory_is_asked_for_twice(loaded, monkeypatch):
    asked = []

    def never(_attributed: AttributedCapture, request: TableRequest) -> Table:
        asked.append(request)
        raise MemoryError

    monkeypatch.setattr("bridge.report.table", never)
    with pytest.raises(MemoryError):
        loaded.by("op")
    assert len(asked) == 2
