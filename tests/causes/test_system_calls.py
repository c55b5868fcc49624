"""Calls of the operating system within gaps, against a definition in plain loops; and what advice says of them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from advice.rules import gap
from hypothesis import given
from hypothesis import strategies as st
from made_reports import thread

from bridge.analyze.causes.system_calls import system_time
from importers import frames

MS = 1_000_000
SPANS = st.tuples(st.integers(0, 20), st.integers(0, 8)).map(lambda s: (s[0], s[0] + s[1]))
THREADS = st.integers(0, 2)
REPORTS = st.integers(0, 1)


@given(
    calls=st.lists(st.tuples(SPANS, THREADS, REPORTS), max_size=12),
    launches=st.lists(st.tuples(THREADS, REPORTS), min_size=1, max_size=5),
    spans=st.lists(st.tuples(SPANS, st.integers(-1, 4)), max_size=8),
)
def test_every_outer_call_of_the_launching_thread_that_meets_an_interval(
    calls: list[Any], launches: list[Any], spans: list[Any]
) -> None:
    column = lambda rows: np.array([*rows], np.int64)  # noqa: E731
    named = {"name": frames.names(np.zeros(len(calls), np.int64), ["read"])}
    table = frames.frame(
        "system_calls",
        {
            "start": column(c[0][0] for c in calls),
            "end": column(c[0][1] for c in calls),
            "thread": column(c[1] for c in calls),
            "report": column(c[2] for c in calls),
            **named,
        },
    )
    of_launch = frames.frame(
        "launches",
        {
            "thread": column(launch[0] for launch in launches),
            "report": column(launch[1] for launch in launches),
            "name": frames.names(np.zeros(len(launches), np.int64), ["cudaLaunchKernel"]),
        },
    )
    launch = column(min(n, len(launches) - 1) for _, n in spans)  # that of the activity after each
    attributed: Any = SimpleNamespace(
        capture=SimpleNamespace(system_calls=table, launches=of_launch),
        attribution=SimpleNamespace(launch=launch),
    )
    starts, ends = (column(s[0][n] for s in spans) for n in (0, 1))
    found = system_time(attributed, np.arange(len(spans)), starts, ends)
    expected = set()
    for number, ((start, end), _) in enumerate(spans):
        for call, ((begin, stop), on, report) in enumerate(calls):
            time = min(end, stop) - max(start, begin)
            is_own = launch[number] >= 0 and launches[launch[number]] == (on, report)
            if is_own and time > 0 and not is_within_another(calls, call):
                expected.add((number, call, time))
    rows_found = list(zip(*(part.tolist() for part in found), strict=True))
    assert len(rows_found) == len(set(rows_found))
    assert set(rows_found) == expected


def is_within_another(calls: list[Any], inner: int) -> bool:
    """Return whether a call begins while another of its thread runs that began before it, or with it and ends later."""
    order = sorted(range(len(calls)), key=lambda n: (calls[n][0][0], -calls[n][0][1], n))
    before = order[: order.index(inner)]
    return any(
        calls[n][1:] == calls[inner][1:] and calls[n][0][1] > calls[inner][0][0] for n in before
    )


def test_advice_names_the_call_in_which_the_host_is(tmp_path: Path) -> None:
    story = gap(5_000)
    assert "operating system" not in said(story, tmp_path / "without")
    calls = story.tables["launches"]
    [end] = [a["start"] for b, a in pairwise(calls) if a["start"] - b["end"] > 4 * MS]
    story.tables["system_calls"].append(
        {
            "start": end - 5 * MS,
            "end": end,
            "thread": thread(story.pid),
            "name": story.string("getc"),
        }
    )
    assert "in getc of the operating system" in said(story, tmp_path / "with")


def said(story: Any, folder: Path) -> str:
    folder.mkdir()
    [one] = story.load(folder).advise(["host-bound"]).advice
    return str(one.finding.figures["cause"])
