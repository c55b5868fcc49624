"""What ran under ranges, in deep trees and shallow ones, against plain loops over the open ranges."""

import os
import subprocess
import sys

import pytest
from made_reports import PUSH_POP, Made, thread
from real_parts import NIGHT
from witness.attribution import union

import bridge
from bridge.analyze.tables import activity_columns, work_under
from bridge.join.paths import CUT, KEPT, MAX_DEPTH


def deep(path, count, name, *, closed=True, streams=1, way_out=False):
    """Write `count` ranges inside of each other, one kernel in each, and one more on the way out."""
    made = Made()
    last = 300 * count
    for number in range(count):
        start, end = 100 * number, (2 * last - 100 * number) if closed else None
        made.annotation(PUSH_POP, start, end, text=name(number), thread=thread(100))
        length = 40 if streams == 1 else 90 + 37 * (number % 11)
        begin = start + 20
        made.kernel(f"k{number % 3}", start + 10, 100, begin, begin + length)
        made.tables["kernels"][-1]["stream"] = 7 + number % streams
        if way_out:
            made.kernel("out", end - 50, 100, end - 40, end - 10)
    return made.written(path)


def expected(report):
    """Return name, GPU start, span, busy time, activities of each range, by loops."""
    ranges = report.capture.ranges.to_pandas()[["name", "start", "end"]].to_dict("records")
    launch = report.op_kernels["launch"].tolist()
    called = report.capture.launches.start.tolist()
    work = report.capture.activities.to_pandas()[["start", "end"]].to_dict("records")
    result = []
    for one in ranges:
        is_open = [one["start"] <= called[row] < one["end"] for row in launch]
        under = [(w["start"], w["end"]) for w, inside in zip(work, is_open, strict=True) if inside]
        first, last = (min(s for s, _ in under), max(e for _, e in under)) if under else (-1, -1)
        result.append((one["name"], first, last - first, union(under), len(under)))
    return sorted(result)


@pytest.fixture(scope="module", params=[1, 3], ids=["one stream", "overlapping"])
def deep_stack(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("deep") / "deep.sqlite"
    way_out = request.param == 1
    # Every third name comes twice, so that some ops have one range and others two, one in the other.
    names = [f"f{n // 2}x" if n % 6 == 1 else f"f{n}x" for n in range(300)]
    deep(path, 300, names.__getitem__, streams=request.param, way_out=way_out)
    return bridge.load(path)


def test_the_work_under_each_range_of_a_deep_stack(deep_stack):
    table = deep_stack.by("range")
    columns = ("name", "gpu_start_ns", "gpu_span_ns", "gpu_busy_ns", "activities")
    assert sorted(zip(*(table[c].tolist() for c in columns), strict=True)) == expected(deep_stack)


@pytest.mark.parametrize("levels", [0, 10**6])
def test_an_op_is_as_busy_whether_its_work_is_paired_or_summed(deep_stack, levels, monkeypatch):
    monkeypatch.setattr(work_under, "FEW_LEVELS", levels)
    busy = {}  # ranges of one name lie inside of each other
    for name, _, _, time, _ in expected(deep_stack):
        busy[name] = max(busy.get(name, 0), time)
    table = deep_stack.by("op", columns=["gpu_busy_ns"])
    assert dict(zip(table["op"], table["gpu_busy_ns"].tolist(), strict=True)) == busy


def test_deep_paths_are_cut_and_a_warning_says_so(deep_stack):
    table = deep_stack.by("range")
    names = table["name"].tolist()
    for depth, path in enumerate(table["path"], 1):
        cut = [*names[:KEPT], CUT, *names[depth - KEPT : depth]]
        assert path == "/".join(names[:depth] if depth <= MAX_DEPTH else cut)
    (warning,) = (line for line in deep_stack.warnings if f"below {MAX_DEPTH} others" in line)
    assert f"{300 - MAX_DEPTH} ranges" in warning


def test_self_and_total_times_of_ranges_without_an_end(tmp_path):
    report = bridge.load(deep(tmp_path / "open.sqlite", 300, "f{}x".format, closed=False))
    table = report.by("op", columns=["op", "gpu_self_ns", "gpu_total_ns", "cpu_self_ns"])
    rows = {row["op"]: row for row in table.to_dict("records")}
    for number in range(300):
        row = rows[f"f{number}x"]
        assert (row["gpu_self_ns"], row["gpu_total_ns"]) == (40, 40 * (300 - number))
        assert row["cpu_self_ns"] == 100 or number == 299


COMMANDS = {  # each takes a part of the time of all
    True: (
        "report {} --by op --format json",
        "report {} --by range --format json",
        "trace {} -o t.json",
        "import {} --db d",
    ),
    False: ("trace {} -o t.pftrace", "html {} -o p.html", "flame {} -o stacks.txt"),
}
DEPTH, SECONDS, MEGABYTES = (100_000, 20, 900) if NIGHT else (10_000, 8, 500)
# The peak of its memory is that of the process itself: what the system accounts to a child begins with its parent's.
CHILD = """
import atexit, re, sys
from pathlib import Path
from bridge.cli import main

peak = re.compile(r"VmHWM:\\s*(\\d+) kB")
atexit.register(lambda: Path("peak").write_text(peak.search(Path("/proc/self/status").read_text())[1]))
sys.argv[0] = "bridge"
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("closed", [True, False], ids=["closed", "open"])
def test_deep_stacks_cost_no_more_than_their_ranges(closed, tmp_path):
    path = deep(tmp_path / "deep.sqlite", DEPTH, "range_{}".format, closed=closed)
    for command in COMMANDS[closed]:
        words = command.format(path).split()
        child = subprocess.Popen([sys.executable, "-c", CHILD, *words], cwd=tmp_path, stdout=-3)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        assert child.returncode == 0, command
        assert used.ru_utime + used.ru_stime < SECONDS, command
        assert int((tmp_path / "peak").read_text()) / 1024 < MEGABYTES, command


@pytest.mark.parametrize("most", [activity_columns.MAX_PAIRS, -1], ids=["listed", "folded"])
def test_kernels_count_once_for_every_op_around_them(deep_stack, most, monkeypatch):
    """Whether pairs of a kernel and an op are listed, or folded over the tree because there are too many."""
    monkeypatch.setattr(activity_columns, "MAX_PAIRS", most)
    ranges = deep_stack.capture.ranges.to_pandas()[["name", "start", "end"]].to_dict("records")
    called, times = deep_stack.capture.launches.start.tolist(), {}
    for work, row in zip(
        deep_stack.capture.activities.to_pandas()[["name", "start", "end"]].to_dict("records"),
        deep_stack.op_kernels["launch"].tolist(),
        strict=True,
    ):
        for op in {one["name"] for one in ranges if one["start"] <= called[row] < one["end"]}:
            times.setdefault((op, work["name"]), []).append(work["end"] - work["start"])
    table = deep_stack.by("op-kernel", inclusive=True)
    columns = zip(*(table[name] for name in table), strict=True)
    assert {(op, kernel): tuple(rest) for op, kernel, *rest in columns} == {
        pair: (len(found), sum(found), sum(found) / len(found), min(found), max(found))
        for pair, found in times.items()
    }


def test_other_columns_of_deep_stacks_are_refused_with_those_that_can_be_had(
    deep_stack, monkeypatch
):
    monkeypatch.setattr(activity_columns, "MAX_PAIRS", -1)
    with pytest.raises(ValueError, match="--columns count,total_ns,mean_ns,min_ns,max_ns,share"):
        deep_stack.by("op-kernel", inclusive=True, columns=["p50_ns"])
