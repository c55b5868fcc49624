"""What `start_up.toml` says of the host before the first and after the last iteration follows from the rows of each profile.

The figures are those of one thread, the one that calls CUDA most: the time in calls of each name, as a union, and the time
of each op itself, without the ranges in it.
"""

from __future__ import annotations

import re
import sqlite3
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bridge
from bridge.analyze.run.account import Span
from bridge.analyze.run.host_time import CUDA, ENDED, KIND, NO_CALL, NOT_BEGUN, host_time

EXPECTED: dict[str, Any] = tomllib.loads(
    Path(__file__).with_name("start_up.toml").read_text("utf-8")
)
PROFILES: dict[str, Any] = EXPECTED["profiles"]
PART = ("start_up", "end", "run")
KEYS = {"thread", "run_ns", "first", "last", *PART}
FIGURES = {"from_ns", "to_ns", "no_call_ns", "range", "cuda", "os", "cuda_span_ns"}
VERSION = re.compile(r"_v\d{4,5}$")  # of functions of the CUDA runtime: cudaMalloc_v3020
PER_CALL = re.compile(r", (seq|op_id|sizes) = .*")  # what PyTorch adds to the name of an op
pytestmark = pytest.mark.slow

Spans = dict[str, list[tuple[int, int]]]


def columns(database: sqlite3.Connection, table: str) -> set[str]:
    return {name for _, name, *_ in database.execute(f'PRAGMA table_info("{table}")')}


def calls(database: sqlite3.Connection, thread: int, tables: tuple[str, ...]) -> Spans:
    """Return start and end of the calls of each name on a thread."""
    result: Spans = defaultdict(list)
    for table in tables:
        if columns(database, table):
            rows = database.execute(
                f'SELECT value, start, max(start, coalesce("end", start)) FROM "{table}"'
                " JOIN StringIds ON id = nameId WHERE globalTid = ?",
                (thread,),
            )
            for name, start, end in rows:
                result[VERSION.sub("", name)].append((start, end))
    return result


def innermost(database: sqlite3.Connection, thread: int) -> Spans:
    """Return the times in which a range of each name was the innermost one of a thread."""
    result: Spans = defaultdict(list)
    there = columns(database, "NVTX_EVENTS")
    if not there:
        return result
    shared = "(SELECT value FROM StringIds WHERE id = textId)" if "textId" in there else "NULL"
    rows = database.execute(
        f'SELECT coalesce(text, {shared}), start, max(start, coalesce("end", start)) FROM NVTX_EVENTS'
        ' WHERE eventType = 59 AND globalTid = ? ORDER BY start, "end" DESC',
        (thread,),
    )
    stack: list[tuple[int, str]] = []
    last = 0

    def until(time: int) -> None:
        nonlocal last
        if stack and time > last:
            result[stack[-1][1]].append((last, time))
        last = max(last, time)

    for text, start, end in [*rows, ("", 1 << 62, 1 << 62)]:
        while stack and stack[-1][0] <= start:
            until(stack[-1][0])
            stack.pop()
        until(start)
        stack.append((end, PER_CALL.sub("", text or "")))
    return result


def length(spans: list[tuple[int, int]], first: int, last: int) -> int:
    """Return the length of the union of spans from first to last."""
    total, at = 0, first
    for start, end in sorted(spans):
        total += max(0, min(end, last) - max(start, at))
        at = max(at, min(end, last))
    return total


@pytest.fixture(scope="module", params=PROFILES)
def profile(request: pytest.FixtureRequest, corpus: Path) -> Iterator[tuple[Any, Any]]:
    """Give what is expected of a profile, and the spans of its main thread by kind."""
    expected = PROFILES[request.param]
    path = corpus / "nsys" / f"{request.param}.sqlite"
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as database:
        database.text_factory = lambda text: text.decode("utf-8", errors="replace")
        thread = expected["thread"]
        apis = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER")
        yield (
            expected,
            {
                "range": innermost(database, thread),
                "cuda": calls(database, thread, apis),
                "os": calls(database, thread, ("OSRT_API",)),
            },
        )


@pytest.mark.parametrize("part", PART)
def test_the_largest_items_of_a_part_are_those_of_the_rows(profile, part):
    expected, spans = profile
    assert set(expected) <= KEYS
    figures = expected[part]
    assert set(figures) <= FIGURES
    first, last = figures["from_ns"], figures["to_ns"]
    for kind, by_name in spans.items():
        of_name = {name: length(some, first, last) for name, some in by_name.items()}
        most = max(of_name.items(), key=lambda item: item[1], default=("", 0))
        assert figures.get(kind, ["", 0]) == list(most if most[1] else ("", 0))
    every = [span for kind in ("cuda", "os") for some in spans[kind].values() for span in some]
    assert figures["no_call_ns"] == last - first - length(every, first, last)
    if part == "run" and spans["cuda"]:
        cuda = [time for some in spans["cuda"].values() for span in some for time in span]
        assert figures["cuda_span_ns"] == max(cuda) - min(cuda)


def test_the_parts_lie_one_after_the_other_in_the_run(profile):
    expected, _ = profile
    start_up, end, run = (expected[part] for part in PART)
    times = [run["from_ns"], start_up["to_ns"], end["from_ns"], run["to_ns"]]
    assert all(a <= b for a, b in pairwise(times))
    assert (start_up["from_ns"], end["to_ns"]) == (run["from_ns"], run["to_ns"])
    assert expected["run_ns"] == run["to_ns"] - run["from_ns"]


@pytest.mark.parametrize("part", PART)
def test_the_account_of_the_host_has_these_items(profile, part, corpus, request):
    expected, _ = profile
    figures = expected[part]
    name = next(name for name, of in PROFILES.items() if of is expected)
    attributed = bridge.load(corpus / "nsys" / f"{name}.sqlite").attributed
    span = Span(figures["from_ns"], figures["to_ns"])
    host = host_time(attributed, [span])
    assert host.time.sum() == span.length
    in_no_call = np.isin(host.kind, [KIND[kind] for kind in (NO_CALL, NOT_BEGUN, ENDED)])
    assert host.time[in_no_call].sum() == figures["no_call_ns"]
    named = {
        "range": (host.ranges, host.range, host.range >= 0),
        "cuda": (host.calls, host.call, host.kind == KIND[CUDA]),
    }
    for key, (names, code, rows) in named.items():
        if key in figures:
            most, time = figures[key]
            same = [number for number, one in enumerate(names) if one == most]
            assert host.time[rows & np.isin(code, same)].sum() == time
            assert np.bincount(code[rows], host.time[rows]).max() == time
