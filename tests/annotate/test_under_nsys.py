"""The real nsys records every annotation of `decorated.py`, properly nested, each call with one id."""

from __future__ import annotations

import sqlite3
import sys
from collections import Counter, defaultdict
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import decorated
import pytest
from captures import exported, profiled, with_bridge

from bridge.annotate import stack

CALL = stack.CALL_ID_BASE >> stack.CALL_ID_BITS
RANGE, MARK, CATEGORY, DOMAIN = 59, 34, 33, 75


class Event(NamedTuple):
    kind: int
    start: int
    end: int | None
    thread: int
    domain: int
    category: int | None
    color: int | None
    name: str
    integer: int | None
    double: float | None


class Profile(NamedTuple):
    said: str
    events: list[Event]

    def ranges(self) -> list[Event]:
        return [event for event in self.events if event.kind == RANGE]

    def named(self, kind: int, name: str) -> Event:
        [found] = [event for event in self.events if event.kind == kind and event.name == name]
        return found


def read(export: Path) -> list[Event]:
    with closing(sqlite3.connect(export)) as database:
        rows = database.execute(
            "SELECT eventType, start, end, globalTid, domainId, category, color,"
            " coalesce(text, value, ''), int64Value, doubleValue"
            " FROM NVTX_EVENTS LEFT JOIN StringIds ON textId = id ORDER BY start"
        ).fetchall()
    return [Event(*row) for row in rows]


def profile(nsys: str, folder: Path, backend: str, program: str = decorated.__file__) -> Profile:
    """Profile a program and export the report, to ``report.sqlite`` in the folder."""
    env = with_bridge(BRIDGE_NVTX=backend)
    said = profiled(nsys, folder, sys.executable, program, env=env)
    return Profile(said, read(exported(nsys, folder / "report.nsys-rep")))


@pytest.fixture(scope="module", params=["interop", "auto"])
def recorded(
    request: pytest.FixtureRequest, nsys: str, tmp_path_factory: pytest.TempPathFactory
) -> Profile:
    return profile(nsys, tmp_path_factory.mktemp("nsys"), request.param)


@pytest.mark.slow
def test_the_program_says_who_emits(recorded: Profile) -> None:
    assert recorded.said.startswith(("interop ", "nvtx ")), recorded.said
    if "DummyDomain" in recorded.said:  # what nsys 2022.4 to 2024.2 make of nvtx 0.2.12 and later
        assert recorded.said.startswith("interop ")


def test_every_call_is_counted_once(recorded: Profile) -> None:
    ids = {
        (event.name, event.integer)
        for event in recorded.ranges()
        if (event.integer or 0) >> 48 == CALL
    }
    assert Counter(name for name, _ in ids) == decorated.EXPECTED
    assert len({number for _, number in ids}) == len(ids)


def test_calls_that_were_suspended_are_in_slices(recorded: Profile) -> None:
    slices = Counter(event.name for event in recorded.ranges())
    assert {name: slices[name] for name in decorated.SLICES} == decorated.SLICES
    assert slices["cancelled"] == 2
    assert slices["stream"] >= 2 * 4


def test_nothing_but_proper_nesting(recorded: Profile) -> None:
    stacks: defaultdict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in recorded.ranges():
        assert event.end is not None
        held = stacks[event.thread, event.domain]
        while held and (held[-1].end or 0) <= event.start:
            held.pop()
        assert not held or (held[-1].end or 0) >= event.end
        assert event.name not in {"work", "numbers", "stream"} or not held, "a call within another"
        held.append(event)
    assert len({thread for thread, _ in stacks}) == 2


def test_blocks_are_inside_what_they_were_opened_in(recorded: Profile) -> None:
    for parent, child in [
        ("work", "work.block"),
        ("numbers", "numbers.block"),
        ("inner", "helper"),
    ]:
        around = [event for event in recorded.ranges() if event.name == parent]
        for event in (event for event in recorded.ranges() if event.name == child):
            assert any(o.start <= event.start and (event.end or 0) <= (o.end or 0) for o in around)


def test_what_the_user_said_about_a_block(recorded: Profile) -> None:
    block = recorded.named(RANGE, "block")
    assert (block.integer, block.color) == (42, 0xFF123456)
    domain = recorded.named(DOMAIN, "my domain")
    category = recorded.named(CATEGORY, "my category")
    assert block.domain == domain.domain == category.domain != 0
    assert block.category == category.category
    assert all(event.domain == 0 for event in recorded.ranges() if event.name != "block")


def test_the_payload_of_a_call_is_a_mark_in_its_first_slice(recorded: Profile) -> None:
    marks = [event for event in recorded.events if event.kind == MARK]
    assert [(mark.name, mark.double) for mark in marks] == [("stream", 2.5)] * 2
    first: dict[int | None, Event] = {}
    for event in recorded.ranges():
        if event.name == "stream":
            first.setdefault(event.integer, event)
    for mark, call in zip(marks, first.values(), strict=True):
        assert call.start <= mark.start <= (call.end or 0)
