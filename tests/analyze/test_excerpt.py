"""What ran between two instants, beside plain loops over every nanosecond of a small report."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from real_parts import corpus_reports

import bridge
from bridge.analyze.checks.excerpt import excerpt


@pytest.fixture(scope="module")
def loaded(two_steps):
    return bridge.load(two_steps)


def open_at(rows, instant):
    """Give the innermost of (start, end, name) that are open at an instant: the one that began last."""
    there = [row for row in rows if row[0] <= instant < row[1]]
    return max(there, key=lambda row: (row[0], -row[1]))[2] if there else None


def brute(report, first, last):
    """Count per nanosecond which op is innermost on each stack, and which activities run."""
    attributed, began = report.attributed, report.began
    nesting, ops = attributed.attribution.nesting, attributed.ops
    stacks, calls = defaultdict(list), defaultdict(set)
    for node in range(len(nesting)):
        start, end = int(nesting.start[node]) - began, int(nesting.end[node]) - began
        name = ops[attributed.node_op[node]]
        stacks[int(nesting.stack[node])].append((start, end, name))
        if start < last and end > first:
            calls[name].add(int(attributed.call[nesting.range[node]]))
    cpu = Counter()
    for rows in stacks.values():
        cpu.update(open_at(rows, instant) for instant in range(first, last))
    work, busy, count = Counter(), defaultdict(set), Counter()
    activities = report.capture.activities
    for row, device in enumerate(activities["process"]):
        start = int(activities.start[row]) - began
        end = int(attributed.end[row]) - began
        inside = range(max(start, first), min(end, last))
        op = int(attributed.activity_op[row])
        name = str(attributed.activity_name[row]), "" if op < 0 else ops[op]
        if (start < last and end > first) or first <= start == end < last:
            count[name] += 1
            work[name] += len(inside)
        busy[int(device)] |= set(inside)
    return cpu, {op: len(c) for op, c in calls.items()}, work, count, busy


@given(st.integers(0, 4_500), st.integers(1, 900))
def test_it_counts_the_time_between_two_instants(loaded, first, length):
    last = first + length
    result = excerpt(loaded.attributed, first, last)
    cpu, calls, work, count, busy = brute(loaded, first, last)
    ops = {row.op: (row.calls, row.cpu_self_ns) for row in result.ops.to_pandas().itertuples()}
    assert ops == {op: (number, cpu[op]) for op, number in calls.items()}
    told = {
        (row.kernel, row.op): (row.count, row.gpu_ns)
        for row in result.work.to_pandas().itertuples()
    }
    assert told == {name: (number, work[name]) for name, number in count.items()}
    assert sorted(result.devices["busy_ns"]) == sorted(map(len, busy.values()))
    whole = max(f.span[1] for f in loaded.capture.facts) - loaded.began
    for row in result.devices.to_pandas().itertuples():
        assert row.busy_ns + row.idle_ns == min(last, whole) - first


@given(st.integers(0, 4_500), st.integers(1, 900))
def test_api_calls_are_cut_at_the_instants(loaded, first, length):
    last, expected = first + length, Counter()
    for call in loaded.capture.launches.to_pandas().itertuples():
        start, end = call.start - loaded.began, call.end - loaded.began
        if start < last and end > first:
            expected[call.name] += min(end, last) - max(start, first)
    result = excerpt(loaded.attributed, first, last).api.to_pandas()
    assert {row.api: row.cpu_ns for row in result.itertuples()} == expected


def test_of_the_whole_report_it_says_what_the_tables_say(loaded):
    result = excerpt(loaded.attributed, 0, 2 * 10**9)
    lasting = loaded.by("op").query("cpu_self_ns > 0").set_index("op")["cpu_self_ns"]
    told = {
        row.op: row.cpu_self_ns for row in result.ops.to_pandas().itertuples() if row.cpu_self_ns
    }
    assert told == dict(lasting)
    assert result.work["gpu_ns"].sum() == loaded.totals["gpu_ns"]
    assert list(result.devices["busy_ns"]) == list(
        loaded.by("device").sort_values("device")["busy_ns"]
    )


def test_largest_come_first(loaded):
    result = excerpt(loaded.attributed, 0, 5_000)
    for table, column in (("ops", "cpu_self_ns"), ("api", "cpu_ns"), ("work", "gpu_ns")):
        assert getattr(result, table).to_pandas()[column].is_monotonic_decreasing


def test_a_time_that_does_not_exist_is_refused(loaded):
    with pytest.raises(ValueError, match="ends before it starts"):
        excerpt(loaded.attributed, 20, 10)
    with pytest.raises(ValueError, match="the report ends"):
        excerpt(loaded.attributed, 10**12, 10**12 + 1)


@pytest.mark.slow
@pytest.mark.parametrize("path", corpus_reports(names=["mnist-training"]))
def test_gaps_and_what_began_before_are_told(path):
    report = bridge.load(path)
    first, last = 5_000_000_000, 5_100_000_000
    result = excerpt(report.attributed, first, last)
    gaps = report.by("gap", idle_over_ns=10_000)
    inside = [
        min(last, gap.start_ns - report.began + gap.gap_ns)
        - max(first, gap.start_ns - report.began)
        for gap in gaps.itertuples()
    ]
    assert list(result.gaps["inside_ns"]) == sorted((ns for ns in inside if ns > 0), reverse=True)
    assert result.gaps["cause"][0] == "data loading"
    assert "Epoch 2" in list(result.ops["op"])  # began seconds before
    assert report.within(first_ns=first, last_ns=last).by("op").empty
