"""What is annotated by hand goes through the real nsys and comes back as it was given."""

from __future__ import annotations

from pathlib import Path

import by_hand
import pandas as pd
import pytest
from test_under_nsys import profile

from bridge import importers
from bridge.annotate import stack
from bridge.importers.capture import Capture

CALL = stack.CALL_ID_BASE >> stack.CALL_ID_BITS


@pytest.fixture(scope="module", params=["interop", "auto"])
def captured(
    request: pytest.FixtureRequest, nsys: str, tmp_path_factory: pytest.TempPathFactory
) -> Capture:
    folder: Path = tmp_path_factory.mktemp("nsys")
    profile(nsys, folder, request.param, by_hand.__file__)
    return importers.load(folder / "report.sqlite")


def of_kind(report: Capture, kind: str) -> pd.DataFrame:
    return report.ranges.take(report.ranges.kind == kind).to_pandas()


@pytest.mark.slow
def test_names_come_back_to_the_character(captured: Capture) -> None:
    texts = set(captured.texts.decode())
    assert texts >= set(by_hand.NAMES)


def test_phases_come_back_with_domain_category_colour_and_payload(captured: Capture) -> None:
    phases = of_kind(captured, "start_end")
    found = {
        (row.name_, row.domain_name or None, row.category or None, row.payload)
        for row in phases.rename(columns={"name": "name_"}).itertuples(index=False)
    }
    given = {
        (name, domain, category, payload) for name, domain, category, _, payload in by_hand.PHASES
    }
    assert found >= given
    colored = phases[phases["category"] == "phase"]["color"].tolist()
    assert [color & 0xFFFFFFFF for color in colored] == [0xFF008080]


def test_a_phase_that_never_ended_is_open_and_no_other(captured: Capture) -> None:
    phases = of_kind(captured, "start_end")
    assert phases[phases["open"]]["name"].tolist() == ["never ended"]
    first, second, third = (
        phases[phases["payload"] == payload].iloc[0] for *_, payload in by_hand.PHASES
    )
    assert first["start"] <= second["start"] <= third["start"] <= first["end"]
    assert first["end"] <= second["end"] <= third["end"]


def test_marks_and_counters_come_back_with_their_values(captured: Capture) -> None:
    marks = captured.marks.to_pandas().sort_values("time")
    values = [
        (row.name_, row.domain_name or None, float(row.json) if row.json else row.payload)
        for row in marks.rename(columns={"name": "name_"}).itertuples(index=False)
    ]
    assert values == [
        *by_hand.MARKS,
        *(("counter:queue", "train", value) for value in (3, 7, -1)),
        ("done", "io", 0),
    ]


def test_ten_thousand_ranges_in_each_other_nest(captured: Capture) -> None:
    ranges = captured.ranges.to_pandas()
    deep = ranges[ranges["name"].str.startswith("depth ")].sort_values("payload")
    assert deep["payload"].tolist() == list(range(by_hand.DEEP))
    assert deep["start"].is_monotonic_increasing
    assert deep["end"].is_monotonic_decreasing


def test_what_a_domain_makes_is_in_it(captured: Capture) -> None:
    named = captured.ranges.to_pandas().set_index("name")
    for name, domain, category, kind in (
        ("encoder", "", "scope", "push_pop"),
        ("read", "train", "event", "push_pop"),
        ("fetch", "io", "task", "start_end"),
    ):
        row = named.loc[name]
        assert (row["domain_name"], row["category"], row["kind"]) == (domain, category, kind)
        assert row["payload"] >> stack.CALL_ID_BITS == CALL
