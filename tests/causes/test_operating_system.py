"""Calls of the operating system within gaps, against a definition in plain loops; and what advice says of them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from advice.rules import gap
from hypothesis import given
from hypothesis import strategies as st
from made_reports import thread

import bridge
from bridge.analyze.run.causes.operating_system import meetings, off_cpu, system_time
from bridge.analyze.run.idle.causes import find_causes
from bridge.analyze.run.idle.tables import by_gap, by_osrt
from bridge.importers import frames

MS = 1_000_000
SPANS = st.tuples(st.integers(0, 20), st.integers(0, 8)).map(lambda s: (s[0], s[0] + s[1]))
THREADS = st.integers(0, 2)
REPORTS = st.integers(0, 1)
NO_RANGES = frames.Ranges()
NO_NESTING = SimpleNamespace(range=np.empty(0, np.int64), stack=np.empty(0, np.int64))


@given(
    calls=st.lists(st.tuples(SPANS, THREADS, REPORTS), max_size=12),
    launches=st.lists(st.tuples(THREADS, REPORTS), min_size=1, max_size=5),
    spans=st.lists(st.tuples(SPANS, st.integers(-1, 4)), max_size=8),
)
def test_every_outer_call_of_the_launching_thread_that_meets_an_interval(
    calls: list[Any], launches: list[Any], spans: list[Any]
) -> None:
    column = lambda rows: np.array([*rows], np.int64)  # noqa: E731
    named = {"name": frames.Names(np.zeros(len(calls), np.int64), ["read"])}
    table = frames.SystemCalls(
        named,
        start=column(c[0][0] for c in calls),
        end=column(c[0][1] for c in calls),
        thread=column(c[1] for c in calls),
        report=column(c[2] for c in calls),
    )
    of_launch = frames.Launches(
        thread=column(launch[0] for launch in launches),
        report=column(launch[1] for launch in launches),
        name=frames.Names(np.zeros(len(launches), np.int64), ["cudaLaunchKernel"]),
    )
    launch = [min(n, len(launches) - 1) for _, n in spans]  # of the thread of each interval
    attributed: Any = SimpleNamespace(
        capture=SimpleNamespace(system_calls=table, launches=of_launch, ranges=NO_RANGES),
        attribution=SimpleNamespace(stack=column(map(stack_of, launches)), nesting=NO_NESTING),
    )
    starts, ends = (column(s[0][n] for s in spans) for n in (0, 1))
    stack = column(stack_of(launches[n]) if n >= 0 else -1 for n in launch)
    found = system_time(attributed, stack, starts, ends)
    expected = set()
    for number, ((start, end), _) in enumerate(spans):
        for call, ((begin, stop), on, report) in enumerate(calls):
            time = min(end, stop) - max(start, begin)
            is_own = launch[number] >= 0 and launches[launch[number]] == (on, report)
            if is_own and time > 0 and not is_within_another(calls, call):
                expected.add((number, call, time))
    rows_found = list(
        zip(*(part.tolist() for part in (found.interval, found.event, found.time)), strict=True)
    )
    assert len(rows_found) == len(set(rows_found))
    assert set(rows_found) == expected


def stack_of(home: tuple[int, int]) -> int:
    """Number a thread of a report as a nesting might."""
    thread_number, report = home
    return 5 - 2 * thread_number + 7 * report


def is_within_another(calls: list[Any], inner: int) -> bool:
    """Return whether a call begins while another of its thread runs that began before it, or with it and ends later."""
    order = sorted(range(len(calls)), key=lambda n: (calls[n][0][0], -calls[n][0][1], n))
    before = order[: order.index(inner)]
    return any(
        calls[n][1:] == calls[inner][1:] and calls[n][0][1] > calls[inner][0][0] for n in before
    )


@given(
    switches=st.lists(
        st.tuples(st.integers(0, 20), st.booleans(), THREADS),
        max_size=12,
        unique_by=lambda s: s[::2],
    ),
    spans=st.lists(st.tuples(SPANS, st.integers(0, 1)), max_size=6),
)
def test_a_thread_is_off_the_cpu_from_each_switch_away_from_it(
    switches: list[Any], spans: list[Any]
) -> None:
    column = lambda rows: np.array([*rows], np.int64)  # noqa: E731
    table = frames.ContextSwitches(
        time=column(s[0] for s in switches),
        on_cpu=np.array([s[1] for s in switches], bool),
        thread=column(s[2] for s in switches),
    )
    of_launch = frames.Launches(
        thread=column([0, 1]), name=frames.Names(np.zeros(2, np.int64), ["cudaLaunchKernel"])
    )  # thread 2 launches nothing
    attributed: Any = SimpleNamespace(
        capture=SimpleNamespace(context_switches=table, launches=of_launch, ranges=NO_RANGES),
        attribution=SimpleNamespace(
            stack=column(stack_of((n, 0)) for n in range(2)), nesting=NO_NESTING
        ),
    )
    last = 25
    away = off_cpu(attributed, last)
    stack = column(stack_of((n, 0)) for _, n in spans)
    starts, ends = (column(s[0][n] for s in spans) for n in (0, 1))
    found = away.within(stack, starts, ends).tolist() if spans else []
    for ns, ((start, end), number) in zip(found, spans, strict=True):
        state, expected = True, 0  # before its first switch a thread is not known to be away
        events = {s[0]: s[1] for s in switches if s[2] == number}
        for time in range(last):
            state = events.get(time, state)
            expected += not state and start <= time < end
        assert ns == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", ["torch-compile-graphs", "simplex-streams", "two-processes"])
def test_the_calls_of_gaps_of_real_profiles(corpus: Path, name: str) -> None:
    attributed = bridge.load(corpus / f"nsys/{name}.sqlite").attributed
    causes = find_causes(attributed, 50_000)
    expected: dict[int, Counter[str]] = {}
    calls = attributed.capture.system_calls.to_pandas()
    calls = calls.sort_values(["start", "end"], ascending=[True, False], kind="stable")
    launches = attributed.capture.launches
    of_thread: defaultdict[Any, list[Any]] = defaultdict(list)  # those that are not within another
    for call in calls.itertuples():
        outer = of_thread[call.thread]
        if not outer or call.start >= outer[-1].end:
            outer.append(call)
    threads = dict(zip(attributed.attribution.stack.tolist(), launches["thread"], strict=True))
    pieces = causes.pieces
    for n, gap_number in enumerate(causes.gap[causes.row_of_piece].tolist()):
        total = expected.setdefault(gap_number, Counter())
        outer = of_thread[threads.get(int(pieces.stack[n]))]
        first = bisect_right(outer, pieces.start[n], key=attrgetter("end"))
        last = bisect_left(outer, pieces.end[n], key=attrgetter("start"))
        for call in outer[first:last]:
            time = min(call.end, pieces.end[n]) - max(call.start, pieces.start[n])
            total[call.name] += int(time)
    table = by_gap(attributed, 50_000)
    assert len(table) == len(expected) > 0
    assert table["os_ns"].tolist() == [sum(expected[n].values()) for n in range(len(table))]
    main = [
        max(sorted(of), key=of.__getitem__, default="")
        for of in map(expected.get, range(len(table)))
    ]
    assert table["os_call"].tolist() == main
    by_call = by_osrt(attributed).to_pandas().set_index("call")
    assert by_call["count"].sum() == len(calls)
    assert by_call["total_ns"].sum() == (calls["end"] - calls["start"]).sum()


HOMES = st.integers(-1, 2)


@given(
    intervals=st.lists(st.tuples(SPANS, HOMES), max_size=8),
    events=st.lists(st.tuples(SPANS, HOMES), max_size=10),
)
def test_intervals_meet_the_events_of_their_home(intervals: list[Any], events: list[Any]) -> None:
    column = lambda rows: np.array([*rows], np.int64)  # noqa: E731
    (home, start, end), of_events = (
        tuple(
            column(c)
            for c in ((r[1] for r in rows), (r[0][0] for r in rows), (r[0][1] for r in rows))
        )
        for rows in (intervals, events)
    )
    found = meetings(home, start, end, of_events)
    expected = {
        (i, e, max(interval[0][0], event[0][0]), min(interval[0][1], event[0][1]))
        for i, interval in enumerate(intervals)
        for e, event in enumerate(events)
        if interval[1] == event[1] != -1
    }
    pairs = [*zip(*(part.tolist() for part in found), strict=True)]
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == {pair for pair in expected if pair[3] > pair[2]}


def test_the_holder_of_the_lock_of_python_is_named(tmp_path: Path) -> None:
    story = gap(5_000)
    [end] = [
        a["start"] for b, a in pairwise(story.tables["launches"]) if a["start"] - b["end"] > 4 * MS
    ]
    lock = [  # name, thread, start and end before the end of the gap, in ms
        ("Waiting for GIL", 0, 4, 1),
        ("Holding GIL", 1, 9, 3),
        ("Holding GIL", 1, 2.9, 2.5),  # at once with thread 2, as imprecise times have it
        ("Holding GIL", 2, 3, 1.5),
        ("Holding GIL", 0, 1, -1),
        ("Waiting for GIL", 2, 9, 3),
    ]
    for name, number, first, last in lock:
        row = {"start": end - int(first * MS), "end": end - int(last * MS), "type": 59, "domain": 7}
        row |= {"thread": thread(story.pid) + number, "text_id": story.string(name)}
        story.tables["annotations"].append(row)
    declared = {"start": 0, "type": 75, "domain": 7, "thread": thread(story.pid)}
    story.tables["annotations"].append({**declared, "text": "GIL Trace"})
    report = story.load(tmp_path)
    assert "Holding GIL" not in set(report.by("op")["op"])
    [row] = report.by("gap").head(1).to_dict("records")
    assert row["gil_ns"] == 3 * MS
    assert row["gil_holder"].endswith(
        str(thread(story.pid) + 2 & 0xFFFFFF)
    )  # 1.5 ms, the other 1 ms
    totals = report.by("idle")
    assert totals["gil_ns"].sum() == 3 * MS


def test_advice_names_the_call_in_which_the_host_is(tmp_path: Path) -> None:
    story = gap(5_000)
    assert slow_on_the_host(story, tmp_path / "without") == ["code outside of ops and calls"]
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
    assert "getc" in slow_on_the_host(story, tmp_path / "with")


def slow_on_the_host(story: Any, folder: Path) -> list[str]:
    folder.mkdir()
    advice = story.load(folder).advise(["host-bound"]).advice
    return [one.finding.figures["what"] for one in advice]
