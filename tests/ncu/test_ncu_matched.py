"""Metrics matched to a timeline: held against a plain walk over both runs, and through the command."""

from __future__ import annotations

import json

import pytest
from command import bridge as run
from command import done
from hypothesis import given
from hypothesis import strategies as st
from made_ncu import DURATION, kernel, raw
from made_reports import PUSH_POP, Made, process, thread

import bridge
from bridge import importers
from bridge.analyze.cost.metrics.matching import match_metrics
from bridge.analyze.cost.metrics.values import MATCH_LEVELS

pytestmark = pytest.mark.slow


KERNELS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", ""]),  # the op
        st.sampled_from(["gemm", "add"]),
        st.sampled_from([8, 16]),  # blocks
    ),
    min_size=1,
    max_size=12,
)


def timeline(path, kernels, *, late=0):
    """A report of nsys: kernels in order of time, in the file from `late` on first."""
    made = Made()
    made.names_of(100)
    for number, (op, name, blocks) in [*enumerate(kernels)][late:] + [*enumerate(kernels)][:late]:
        at = 1_000 * (number + 1)
        if op:
            made.annotation(PUSH_POP, at, at + 900, text=op, thread=thread(100))
        names = {
            n: made.string(text)
            for n, text in (("name", name), ("full_name", f"void {name}<float>(float *)"))
        }
        grid = {
            "grid_x": blocks,
            "grid_y": 1,
            "grid_z": 1,
            "block_x": 128,
            "block_y": 1,
            "block_z": 1,
        }
        made.launched("kernels", at + 10, 100, at + 100, at + 150 + number, **names, **grid)
    return made.written(path)


def measured(path, kernels, names="void {}<float>(float*)"):
    """A CSV of ncu, in which each kernel's metric is its place."""
    rows = [
        kernel(
            names.format(name),
            pushed=[op] if op else [],
            grid=(blocks, 1, 1),
            metrics={DURATION: ("1", "usecond"), "x.sum": (str(place), "inst")},
        )
        for place, (op, name, blocks) in enumerate(kernels)
    ]
    path.write_text(raw(rows), encoding="utf-8")
    return path


def by_hand(ours, theirs):
    """Match one kernel after another."""
    found = []
    for place, mine in enumerate(ours):
        nth = ours[:place].count(mine)
        calls = [p for p, one in enumerate(theirs) if one == mine]
        shapes = [p for p, one in enumerate(theirs) if one[1:] == mine[1:]]
        names = [p for p, one in enumerate(theirs) if one[1] == mine[1]]
        if nth < len(calls):
            found.append((calls[nth], 0))
            continue
        every = enumerate((calls, shapes, names), 1)
        found.append(next(((some[-1], sure) for sure, some in every if some), (-1, -1)))
    return found


@given(ours=KERNELS, theirs=KERNELS, late=st.integers(0, 3))
def test_every_match_is_the_one_found_by_hand(tmp_path_factory, ours, theirs, late):
    folder = tmp_path_factory.mktemp("matched")
    left = bridge.load(timeline(folder / "r.sqlite", ours, late=late)).attributed
    right = bridge.load(measured(folder / "x.csv", theirs)).attributed
    match = match_metrics(left, right)
    metrics, start = match.capture.metrics, left.capture.activities.start
    pairs = zip(
        metrics.of[start.argsort()].tolist(), metrics.sure[start.argsort()].tolist(), strict=True
    )
    expected = by_hand(ours, theirs)
    assert list(pairs) == expected
    assert match.by == tuple(
        sum(sure == code for _, sure in expected) for code in range(len(MATCH_LEVELS))
    )
    assert match.unused == len(theirs) - len({p for p, sure in expected if sure == 0})


@pytest.fixture
def both(folder):
    ours = [
        ("a", "gemm", 8),
        ("a", "gemm", 8),
        ("b", "gemm", 8),
        ("b", "add", 16),
        ("", "memcpy", 4),
    ]
    theirs = [("a", "gemm", 8), ("b", "gemm", 8), ("c", "gemm", 8), ("b", "add", 8)]
    return timeline(folder / "r.sqlite", ours), measured(folder / "x.csv", theirs)


def test_the_command_says_how_sure_it_is(both):
    report, csv = both
    result = run(
        "report",
        report,
        "--ncu",
        csv,
        "--by",
        "op-kernel",
        "--metrics",
        "x.sum,match",
        "--format",
        "json",
    )
    assert result.exit_code == 0, result.stderr
    rows = {
        (r["op"], r["kernel"]): (r["x.sum"], r["match"]) for r in json.loads(result.stdout)["rows"]
    }
    assert rows == {
        ("a", "gemm"): (0, "path"),  # twice the one that was measured
        ("b", "gemm"): (1, "call"),
        ("b", "add"): (3, "kernel"),
    }
    assert (
        "x.csv: metrics of 4 of 5 kernels: 2 by call, 1 by path, 1 by kernel; 1 without;"
        " 2 of 4 measured ones not in the report"
    ) in result.stderr
    assert "gaps" not in result.stderr


def test_the_timeline_keeps_its_times(both):
    report, csv = both
    plain = done("report", report, "--by", "kernel", "--format", "csv").splitlines()
    more = done(
        "report", report, "--ncu", csv, "--by", "kernel", "--metrics", "x.sum", "--format", "csv"
    )
    assert [line.rpartition(",")[0] for line in more.splitlines()] == plain
    assert dict(line.split(",")[0::8] for line in more.splitlines()[1:]) == {
        "gemm": "1",
        "add": "3",
        "memcpy": "-1",
    }
    assert "gap" in done("report", report, "--ncu", csv, "--by", "gap", "--format", "json")


def test_a_step_that_was_not_measured_has_the_same_ops(folder):
    ours = [("step 4", "gemm", 8), ("a", "gemm", 8)]
    left = bridge.load(timeline(folder / "r.sqlite", ours)).attributed
    theirs = [("step 9", "gemm", 8), ("b", "gemm", 8)]
    match = match_metrics(left, bridge.load(measured(folder / "x.csv", theirs)).attributed)
    assert match.by == (0, 1, 1, 0)
    assert match.capture.metrics.of.tolist() == [0, 1]


def test_function_names_match_short_ones(folder):
    ours = [("a", "gemm", 8)]
    left = bridge.load(timeline(folder / "r.sqlite", ours)).attributed
    right = bridge.load(measured(folder / "x.csv", ours, names="{}")).attributed
    assert match_metrics(left, right).by == (1, 0, 0, 0)


def test_another_instance_of_a_template_is_another_kernel(folder):
    ours = [("a", "gemm", 8)]
    left = bridge.load(timeline(folder / "r.sqlite", ours)).attributed
    right = bridge.load(
        measured(folder / "x.csv", ours, names="void {}<double>(double *)")
    ).attributed
    match = match_metrics(left, right)
    assert match.by == (0, 0, 0, 0)
    assert (
        match.line == "metrics of 0 of 1 kernels; 1 without; 1 of 1 measured ones not in the report"
    )


def test_each_process_counts_its_own_calls(folder):
    made = Made()
    for pid in (100, 101):
        made.names_of(pid)
        made.kernel("gemm", 10, pid, 20 + pid, 30 + pid)
    report = importers.load(made.written(folder / "r.sqlite"))
    assert set(report.activities["process"]) == {process(100), process(101)}
    rows = [kernel("void gemm<float>(float *)", pid=pid) for pid in (5, 6)]
    (folder / "x.csv").write_text(raw(rows), encoding="utf-8")
    match = match_metrics(
        bridge.report.join(report).attributed, bridge.load(folder / "x.csv").attributed
    )
    assert match.by[0] == 2


GEMM = "void gemm<float>(float *)"


def of_processes(folder, ours, theirs):
    """Match kernels given by (process, device), in order; the metric of each is its place."""
    made = Made()
    for pid in dict.fromkeys(pid for pid, _ in ours):
        made.names_of(pid)
    for place, (pid, device) in enumerate(ours):
        at = 1_000 * (place + 1)
        texts = {
            n: made.string(text)
            for n, text in (("name", "gemm"), ("full_name", "void gemm<float>(float *)"))
        }
        extent = dict.fromkeys(("grid_y", "grid_z", "block_y", "block_z"), 1)
        extent |= {"grid_x": 8, "block_x": 128}
        made.launched("kernels", at, pid, at + 100, at + 150, device=device, **texts, **extent)
    left = bridge.report.join(importers.load(made.written(folder / "r.sqlite"))).attributed
    texts = [raw([kernel(GEMM, pid=pid, grid=(8, 1, 1))]) for pid, _ in theirs]
    rows = [text.splitlines()[-1] for text in texts]
    rows = [
        row.replace('"0","9.0"', f'"{device}","9.0"')
        for row, (_, device) in zip(rows, theirs, strict=True)
    ]
    head = texts[0].splitlines()[:2]
    (folder / "x.csv").write_text("\n".join([*head, *rows, ""]), encoding="utf-8")
    return match_metrics(left, bridge.load(folder / "x.csv").attributed)


@pytest.mark.parametrize(
    ("ours", "theirs", "of", "by", "line"),
    [
        # the n-th process is the n-th one, whatever it is called
        ([(101, 0), (100, 0)], [(6, 0), (5, 0)], [0, 1], 2, ""),
        ([(100, 0), (101, 0), (100, 0)], [(5, 0), (5, 0), (6, 0)], [0, 2, 1], 3, ""),
        # and its devices likewise
        ([(100, 3), (100, 1), (100, 3)], [(5, 0), (5, 0), (5, 1)], [0, 2, 1], 3, ""),
        ([(100, 0), (101, 1)], [(5, 0), (6, 1)], [0, 1], 2, ""),
        # as many devices of others, or fewer processes: which one it is nobody knows
        ([(100, 0), (101, 0)], [(5, 0)], [0, 0], 0, ""),
        ([(100, 0)], [(5, 0), (6, 0)], [1], 0, ""),
        ([(100, 0), (100, 1), (101, 0)], [(5, 0), (6, 0), (6, 1)], [2, 2, 2], 0, ""),
        ([(100, 0)], [(5, 0), (5, 0)], [0], 1, "1 of 2 measured ones not in the report"),
    ],
)
def test_processes_and_devices_stand_for_those_of_the_same_rank(folder, ours, theirs, of, by, line):
    match = of_processes(folder, ours, theirs)
    start = match.capture.activities.start
    assert match.capture.metrics.of[start.argsort()].tolist() == of
    assert match.by == (by, len(ours) - by, 0, 0)
    assert match.line.partition("; ")[2] == line
