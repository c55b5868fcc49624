"""Every figure of memory against a replay with a dictionary."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from join.programs import Program
from witness.attribution import Call, Range
from witness.memory import Event

from bridge.analyze.cost.memory import (
    alive_at_peak,
    by_allocation,
    by_event,
    by_op,
    by_step,
    summary,
)
from bridge.importers.frames import MEMORY_KINDS
from memory.histories import History, histories

PID = 24


def place(group):
    report, process, device, kind = group
    return report, process >> PID & 0xFFFFFF, device, MEMORY_KINDS[kind]


def places(table):
    return list(
        zip(*(table[c].tolist() for c in ("report", "pid", "device", "memory")), strict=True)
    )


def running_totals_ops_and_sizes(history):
    held, replay = history.held, history.replay
    table = by_event(held)
    assert held.events.row.tolist() == replay.order
    assert table["used_bytes"].tolist() == [replay.used[row] for row in replay.order]
    assert table["reserved_bytes"].tolist() == [replay.reserved[row] for row in replay.order]
    assert table["bytes"].tolist() == [replay.size[row] for row in replay.order]
    assert table["op"].tolist() == [replay.op(row) for row in replay.order]
    assert places(table) == [place(replay.group[row]) for row in replay.order]


def every_allocation_lives_as_long_as_the_replay_says(history):
    table, replay = by_allocation(history.held), history.replay
    began = history.capture.began

    def time(row):
        return -1 if row is None else history.events[row].time - began

    expected = sorted(
        (
            place(life.group),
            life.bytes,
            time(life.first),
            time(life.end),
            life.state,
            "(before the capture)" if life.first is None else replay.op(life.first),
            replay.op(life.end) if life.state in {"released", "before the capture"} else "",
        )
        for life in replay.lives
    )
    columns = ("bytes", "start_ns", "end_ns", "state", "op", "released_by")
    assert (
        sorted(zip(places(table), *(table[c].tolist() for c in columns), strict=True)) == expected
    )


def peaks_and_what_is_alive_then(history):
    held, replay = history.held, history.replay
    table, alive = summary(held), alive_at_peak(held)
    for row, of in zip(table.records(), places(table), strict=True):
        rows = [r for r in replay.order if place(replay.group[r]) == of]
        group = replay.group[rows[0]]
        top = max(replay.used[r] for r in rows)
        assert row["peak_bytes"] == max(top, replay.base[group])
        assert row["before_bytes"] == replay.base[group]
        before = [life for life in replay.lives if life.group == group and life.first is None]
        stays = [life for life in replay.lives if life.group == group and life.end is None]
        known = sum(life.bytes for life in stays) - sum(life.bytes for life in before)
        assert row["end_bytes"] == replay.base[group] + known
        at = next(r for r in rows if replay.used[r] == top)
        if top > replay.base[group]:
            assert (row["peak_op"], row["peak_ns"]) == (
                replay.op(at),
                history.events[at].time - history.capture.began,
            )
        else:
            assert row["peak_ns"] == -1
        assert row["peak_reserved_bytes"] == max(replay.reserved[r] for r in rows)
        place_of = {r: nth for nth, r in enumerate(replay.order)}
        living = defaultdict(int)
        for life in replay.lives:
            if life.first is None or life.group != group or place_of[life.first] > place_of[at]:
                continue
            if life.end is None or place_of[life.end] > place_of[at]:
                living[replay.op(life.first)] += life.bytes
        rest = top - sum(living.values())
        if rest:
            living["(before the capture)"] += rest
        ours = alive[np.array([one == of for one in places(alive)], bool)]
        found = dict(zip(ours["op"], ours["bytes"], strict=True))
        assert found == living, (found, dict(living), of, alive, top)
        assert sum(living.values()) == top


def ops_self_total_and_rise(history):
    table, replay = by_op(history.held), history.replay
    own, total, rise = (defaultdict(lambda: [0, 0]), defaultdict(lambda: [0, 0]), defaultdict(int))
    for row, event in enumerate(history.events):
        kind = MEMORY_KINDS[replay.group[row][3]]
        own[replay.op(row), kind][event.is_release] += replay.size[row]
        stack = replay.stack(row)
        for op in {replay.ranges[r].op for r in stack} or {"(no op)"}:
            total[op, kind][event.is_release] += replay.size[row]
        for r in stack:
            key = replay.ranges[r].op, kind
            rise[key] = max(rise[key], replay.rise(replay.ranges[r], replay.group[row]))
    workspace = defaultdict(int)
    for (r, group), most in replay.workspaces().items():
        key = replay.ranges[r].op, MEMORY_KINDS[group[3]]
        workspace[key] = max(workspace[key], most)
    assert len(table) == len(total)
    for row in table.records():
        key = row["op"], row["memory"]
        assert [row["allocated_bytes"], row["released_bytes"]] == own[key]
        assert [row["total_allocated_bytes"], row["total_released_bytes"]] == total[key]
        assert row["net_bytes"] == own[key][0] - own[key][1]
        assert row["peak_bytes"] == rise[key]
        assert row["workspace_bytes"] == workspace[key]


def ops_add_up_to_the_whole(history):
    held, table = history.held, by_op(history.held)
    whole = summary(held)
    lost = int(held.size[held.lost].sum())
    assert table["net_bytes"].sum() - lost == (whole["end_bytes"] - whole["before_bytes"]).sum()
    assert table["allocations"].sum() + table["releases"].sum() == len(history.events)
    assert table["left_bytes"].sum() == sum(
        life.bytes for life in history.replay.lives if life.end is None
    )


def steps_and_what_outlives_them(history):
    held, replay = history.held, history.replay
    steps, table = held.attributed.iterations, by_step(held, 1)
    ends = {}
    for nth in range(len(steps)):
        home = int(steps.report[nth]), int(steps.process[nth])
        ends.setdefault(home, []).append(
            (int(steps.start[nth]), int(steps.end[nth]), int(steps.number[nth]))
        )
    step_of = dict(zip(replay.order, held.events.step.tolist(), strict=True))
    for row, of in zip(table.records(), places(table) if len(table) else [], strict=True):
        group = next(g for g in replay.group.values() if place(g) == of)
        nth = next(
            n for n in range(len(steps))
            if (steps.report[n], steps.process[n], steps.number[n]) == (*group[:2], row["step"])
        )  # fmt: skip
        inside = [r for r in replay.order if step_of[r] == nth and replay.group[r] == group]
        given = [life for life in replay.lives if life.group == group and life.first in inside]
        assert row["allocated_bytes"] == sum(life.bytes for life in given)
        assert row["released_bytes"] == sum(
            replay.size[r] for r in inside if history.events[r].is_release
        )
        until = [s for s in ends[group[:2]] if s[0] >= steps.start[nth]]

        def kept(at, lives=tuple(given)):
            return sum(
                life.bytes
                for life in lives
                if life.end is None or history.events[life.end].time >= at
            )

        assert row["kept_bytes"] == kept(until[0][1])


@pytest.mark.slow
@given(histories())
def test_what_the_replay_says(history):
    running_totals_ops_and_sizes(history)
    every_allocation_lives_as_long_as_the_replay_says(history)
    peaks_and_what_is_alive_then(history)
    ops_self_total_and_rise(history)
    ops_add_up_to_the_whole(history)
    steps_and_what_outlives_them(history)


def test_a_leak_by_hand():
    """Two steps that keep 10 bytes each, and release 5 of their own."""
    process = 7 << 24
    ranges = [
        Range(0, process, process | 1, 100 * n, 100 * n + 90, "ProfilerStep") for n in range(3)
    ]
    texts = [f"ProfilerStep#{n}" for n in range(3)]
    events = []
    for n in range(3):
        home = {"report": 0, "process": process, "device": 0, "kind": 2, "thread": process | 1}
        at = 100 * n
        events += [
            Event(**home, address=1000 + n, bytes=10, is_release=False, time=at + 10),
            Event(**home, address=1, bytes=5, is_release=False, time=at + 20),
            Event(**home, address=1, bytes=5, is_release=True, time=at + 30),
        ]
    table = by_step(
        History(Program(ranges, [Call(0, process, process | 1, 9, 1, 2)], [], texts), events).held,
        1,
    )
    assert table["step"].tolist() == [0, 1, 2]
    assert table["allocated_bytes"].tolist() == [15] * 3
    assert table["net_bytes"].tolist() == table["kept_bytes"].tolist() == [10] * 3
    assert table["later_bytes"].tolist() == [10, 10, -1]
    assert table["peak_bytes"].tolist() == [15, 25, 35]
    assert table["end_bytes"].tolist() == [10, 20, 30]
    assert np.issubdtype(table["later_bytes"].dtype, np.integer)
