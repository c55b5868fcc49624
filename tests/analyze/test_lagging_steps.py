"""The figures of `lagging_steps.toml` follow from the rows of a report whose GPU lags behind the host: by SQL and plain loops."""

from __future__ import annotations

import sqlite3
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from witness.account import Activity, Call, Events, Range, account, of_ranges, of_window

EXPECTED = tomllib.loads(Path(__file__).with_name("lagging_steps.toml").read_text("utf-8"))
PUSH_POP = "FROM NVTX_EVENTS WHERE eventType = 59"


@pytest.fixture(scope="module")
def rows(lagging: Path) -> Iterator[sqlite3.Connection]:
    """Open the report with the views of the file."""
    with closing(sqlite3.connect(f"{lagging.as_uri()}?mode=ro&immutable=1", uri=True)) as database:
        database.executescript(EXPECTED["views"])
        yield database


@pytest.mark.parametrize("name", EXPECTED["figures"])
def test_the_figures_of_the_selected_steps_are_those_of_the_rows(rows, name):
    figure = EXPECTED["figures"][name]
    assert rows.execute(figure["sql"]).fetchone() == (figure["value"],)


def test_the_states_of_the_selected_steps_are_those_of_the_figures():
    figures = {name: figure["value"] for name, figure in EXPECTED["figures"].items()}
    states = EXPECTED["states"]
    assert sum(states.values()) == figures["span_ns"]
    own = ("compute", "communication", "copy", "other", "graph")
    assert sum(states[state] for state in own) == figures["selected_busy_ns"]
    assert (states["idle"], states["others"]) == (figures["idle_ns"], figures["others_ns"])


def test_the_kernels_of_ops_are_those_of_the_ranges_around_their_launches(rows):
    ranges = rows.execute(
        f"SELECT start, end, globalTid, text {PUSH_POP} ORDER BY start"
    ).fetchall()
    innermost, below = Counter(), Counter()
    for launch, thread in rows.execute("SELECT launch, thread FROM chosen WHERE kind = 'kernel'"):
        around = [
            text.partition(",")[0]
            for start, end, of, text in ranges
            if of == thread and start <= launch < end
        ]
        innermost[around[-1]] += 1
        below.update(set(around))
    assert innermost == EXPECTED["kernels_of_op"]
    assert below == EXPECTED["kernels_below_op"]


@pytest.mark.parametrize(
    "selection", EXPECTED["selections"], ids=lambda one: " ".join(one["options"]) or "run"
)
def test_each_selection_has_the_states_that_plain_loops_count(rows, selection):
    ranges = rows.execute(f"SELECT start, end, text {PUSH_POP}").fetchall()
    events = Events(
        [Range(0, start, end) for start, end, _ in ranges],
        [
            Call(0, *call)
            for call in rows.execute("SELECT start, end FROM CUPTI_ACTIVITY_KIND_RUNTIME")
        ],
        activities=[
            Activity(0, 0, *one)
            for one in rows.execute("SELECT start, end, state, launch FROM work")
        ],
    )
    whole = account(events)
    if "ranges" in selection:
        chosen = [
            Range(0, start, end) for start, end, text in ranges if text in selection["ranges"]
        ]
        found = of_ranges(events, chosen)
    elif "window" in selection:
        first, last = (whole.start + time for time in selection["window"])
        found = of_window(events, first, last)
    else:
        found = whole
    assert (found.start, found.end) == (selection["start_ns"], selection["end_ns"])
    assert found.gpus == {0: selection["states"]}
