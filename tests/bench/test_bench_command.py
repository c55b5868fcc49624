"""`bridge bench`: functions of a file at the points of a sweep, what is said of mistakes, and what a diff makes of two runs."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command import assert_misused, assert_refused, bridge, done
from hypothesis import given, strategies

import bridge as bridge_package
from bridge import bench
from bridge.bench.devices.base import BenchError
from bridge.bench.sweep import parse_shapes, shapes_at, sweep_points, unused_numbers
from bridge.output import OutputError

OPS = """
import numpy as np
import beside

def matmul(a, b, times=1):
    for _ in range(times):
        found = a @ b
    return found

def total(n):
    return sum(range(n))

def make(n):
    return np.ones((n, n), np.float32), np.ones((n, n), np.float32)

def one(n):
    return np.ones(n)

def dtypes(a, b):
    assert (a.dtype, b.dtype) == ("int32", "bool"), (a.dtype, b.dtype)

def fails(a):
    raise KeyError("nothing here", 2)

class Kept:
    @staticmethod
    def method(x):
        return x + 1

number = 3
"""
QUICK = ["--warmup", "1", "--runs", "4", "--number", "2"]


@pytest.fixture
def ops(folder: Path) -> str:
    (folder / "beside.py").write_text("")
    (folder / "ops_for_bench.py").write_text(OPS)
    return "ops_for_bench.py"


def rows(*words: str) -> list[dict]:
    return json.loads(done("bench", *QUICK, "--format", "json", *words))["rows"]


def test_a_sweep_of_shapes(ops):
    sweep = ["--shape", "MxK,KxN", "--sweep", "M=1,8,64", "--set", "K=16", "--set", "N=4"]
    found = rows(f"{ops}::matmul", *sweep)
    assert [row["M"] for row in found] == [1, 8, 64]
    assert [row["shapes"] for row in found] == [
        f"float32[{m}, 16] float32[16, 4]" for m in (1, 8, 64)
    ]
    assert [row["flop"] for row in found] == [2 * m * 16 * 4 for m in (1, 8, 64)]
    assert all(row["min_ns"] <= row["median_ns"] <= row["max_ns"] for row in found)
    assert {(row["runs"], row["number"], row["device"]) for row in found} == {(4, 2, "cpu")}


def test_a_function_that_makes_its_own(ops):
    assert [row["n"] for row in rows(f"{ops}::total", "--sweep", "n=16,32")] == [16, 32]
    assert [row["n"] for row in rows(f"{ops}::total", "--sweep", "n=1:7:2")] == [1, 3, 5]
    assert len(rows(f"{ops}::total", "--set", "n=5")) == 1


def test_a_function_that_makes_the_inputs(ops):
    [row] = rows(f"{ops}::matmul", "--inputs", "make", "--set", "n=5")
    assert row["shapes"] == "float32[5, 5] float32[5, 5]"
    [row] = rows(f"{ops}::Kept.method", "--inputs", f"{ops}::one", "--set", "n=5")
    assert (row["name"], row["shapes"]) == ("Kept.method", "float64[5]")


def test_what_no_shape_uses_is_an_argument(ops):
    sweep = ["--shape", "8x8,8x8", "--sweep", "times=1,30"]
    fast, slow = rows(f"{ops}::matmul", *sweep)
    assert slow["median_ns"] > 5 * fast["median_ns"]


def test_a_function_of_a_module():
    [row] = rows("numpy.linalg::det", "--shape", "5x5")
    assert (row["name"], row["shapes"]) == ("det", "float32[5, 5]")


def test_dtypes(ops):
    assert len(rows(f"{ops}::dtypes", "--shape", "4,2x2", "--dtype", "int32,bool")) == 1


def test_several_functions_one_after_another_and_at_once(ops):
    both = [f"{ops}::matmul", f"{ops}::Kept.method"]
    found = rows(f"{ops}::total", f"{ops}::total", "--sweep", "n=1,2")
    assert [(row["name"], row["n"]) for row in found] == [("total", n) for n in (1, 1, 2, 2)]
    found = rows(*both[:1], *both[:1], "--inputs", "make", "--set", "n=8", "--group")
    assert [row["name"] for row in found] == ["matmul + matmul", "matmul", "matmul"]
    assert [row["streams"] for row in found] == ["0 1", "0", "1"]


@pytest.mark.slow
def test_formats(ops, folder):
    words = ["bench", f"{ops}::total", "--sweep", "n=5,6", *QUICK]
    table = done(*words)
    assert "median" in table.splitlines()[0]
    assert table.splitlines()[-1] == "4 runs of 2 calls each on cpu by host perf_counter_ns"
    read = list(csv.DictReader(io.StringIO(done(*words, "--format", "csv"))))
    assert [row["n"] for row in read] == ["5", "6"]
    assert done(*words, "--format", "md").count("| total |") == 2
    for name in ("out.json", "out.csv", "out.md", "out.txt", "out.jsonl"):
        assert done(*words, "-o", name) == ""
        assert (folder / name).stat().st_size
    assert (folder / "out.jsonl").read_text().startswith('{"format":"bridge.recording/1"')
    assert_refused(bridge(*words, "-o", "out.json"), "out.json: exists")
    assert done(*words, "-o", "out.json", "--force") == ""


def test_json_has_every_run_and_nothing_that_functions_print(ops, folder):
    (folder / "talks_for_bench.py").write_text("def f():\n    print('hello')\nprint('imported')\n")
    [row] = rows("talks_for_bench.py::f")
    assert len(row["latencies_ns"]) == 4
    assert min(row["latencies_ns"]) == round(row["min_ns"])


def test_a_file_that_ends_the_program(folder):
    (folder / "ends_for_bench.py").write_text("raise SystemExit(3)\n")
    assert_refused(bridge("bench", "ends_for_bench.py::f"), "importing it raised SystemExit: 3")


def test_it_says_that_the_cpu_was_timed(ops):
    result = bridge("bench", f"{ops}::total", "--set", "n=5", *QUICK)
    assert result.stderr == "no tensor was on a GPU: timed on the CPU, by host perf_counter_ns\n"


MISTAKES = {
    "no function": (["ops_for_bench.py::nothing"], "there is no nothing; it has matmul, total"),
    "no file": (["nowhere.py::f"], "nowhere.py: no such file"),
    "no module": (["no_such_module::f"], "no_such_module: importing it raised ModuleNotFoundError"),
    "no separator": (["ops_for_bench.py"], "write FILE.py::function"),
    "no callable": (["ops_for_bench.py::number"], "number is no function, but int"),
    "it raised": (["ops_for_bench.py::fails", "--shape", "2x3"], "fails(float32[2, 3]): KeyError"),
    "wrong shapes": (["ops_for_bench.py::matmul", "--shape", "2x3,2x3"], "matmul(float32[2, 3] float32[2, 3]): ValueError: matmul"),
    "no number": (["ops_for_bench.py::matmul", "--shape", "MxK,KxN", "--set", "M=3"], "K has no number"),
    "no shape": (["ops_for_bench.py::matmul", "--shape", "2y,3"], "'2y' is no shape"),
    "no dtype": (["ops_for_bench.py::matmul", "--shape", "2", "--dtype", "bf99"], "--dtype bf99"),
    "many dtypes": (["ops_for_bench.py::matmul", "--shape", "2", "--dtype", "int8,int8"], "2 for 1 shapes"),
    "no argument": (["ops_for_bench.py::total", "--sweep", "k=3"], "no argument 'k'"),
    "no sweep": (["ops_for_bench.py::total", "--sweep", "n"], "write NAME=1,8,64"),
    "no numbers": (["ops_for_bench.py::total", "--sweep", "n=a"], "whole numbers"),
    "twice": (["ops_for_bench.py::total", "--sweep", "n=1", "--set", "n=2"], "n is given twice"),
    "several": (["ops_for_bench.py::total", "--set", "n=2,3"], "--set n: give one number"),
    "both": (["ops_for_bench.py::total", "--inputs", "make", "--shape", "2"], "give no --shape"),
    "no factory": (["ops_for_bench.py::total", "--inputs", "nothing"], "there is no nothing"),
    "the factory raised": (["ops_for_bench.py::matmul", "--inputs", "make"], "make(): TypeError"),
    "NumPy has no GPU": (["ops_for_bench.py::matmul", "--shape", "2,2", "--device", "cuda"], "NumPy's arrays are on the CPU"),
    "no graph": (["ops_for_bench.py::matmul", "--shape", "2,2", "--graph"], "CUDA graphs need a GPU"),
    "no device": (["ops_for_bench.py::total", "--set", "n=1", "--device", "tpu"], "device is 'cpu'"),
    "cold and many": (["ops_for_bench.py::total", "--set", "n=1", "--cold", "--number", "2"], "cold runs have one call"),
}  # fmt: skip


@pytest.mark.parametrize(("words", "said"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_a_line(ops, words, said):
    assert_refused(bridge("bench", *words), said)


def test_a_file_that_cannot_be_imported(folder):
    (folder / "broken_for_bench.py").write_text("import no_such_module_anywhere\n")
    assert_refused(
        bridge("bench", "broken_for_bench.py::f"), "importing it raised ModuleNotFoundError"
    )


def test_a_recording_wants_a_file(ops):
    assert_misused(bridge("bench", f"{ops}::total", "--format", "recording"), "-o FILE.jsonl")


@pytest.mark.slow
def test_under_nsys_the_runs_are_ranges(ops, folder, nsys):
    program = [sys.executable, "-m", "bridge", "bench", f"{ops}::total", "--set", "n=50", *QUICK]
    quiet = ["-t", "nvtx", "-s", "none", "--cpuctxsw=none", "-o", "report"]
    ran = subprocess.run(
        [nsys, "profile", *quiet, *program],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    table = bridge_package.load("report.nsys-rep").by("op")
    found = dict(zip(table["op"], table["calls"], strict=True))
    assert found == {"bench:total": 1, "total warm-up": 1, "total": 4}


# -- two runs compared


def timed(ops: str, n: int, *more: str) -> str:
    runs = ["--warmup", "2", "--runs", "30", "--number", "5"]
    return done("bench", f"{ops}::total", "--set", f"n={n}", *runs, *more)


def test_what_became_slower_is_found_by_a_diff(ops, folder):
    timed(ops, 5000, "-o", "before.jsonl")
    timed(ops, 200_000, "-o", "after.jsonl")  # so much that no busy machine hides it
    [row] = [
        row
        for row in json.loads(done("diff", "before.jsonl", "after.jsonl", "--format", "json"))[
            "rows"
        ]
        if row["op"] == "total"
    ]
    assert row["state"] == "slower"
    assert 0 <= row["p"] < 0.001
    assert row["step_ratio"] > 1.5
    same = json.loads(done("diff", "before.jsonl", "before.jsonl", "--format", "json"))["rows"]
    assert {row["state"] for row in same} == {"same"}
    failed = bridge("diff", "before.jsonl", "after.jsonl", "--fail-over", "20%")
    assert failed.exit_code == 3
    assert "latencies of a benchmark, by host perf_counter_ns" in failed.stderr


@pytest.mark.slow
def test_runs_of_the_store(ops, folder):
    timed(ops, 5000, "--name", "baseline")
    timed(ops, 200_000, "--save")  # so much that no busy machine hides it
    assert "baseline" in done("runs", "list")
    assert "bench-total.jsonl" in done("runs", "list")
    found = json.loads(done("diff", "baseline", "2", "--format", "json"))
    assert "slower" in {row["state"] for row in found["rows"]}
    report = json.loads(done("report", "--run", "baseline", "--by", "op", "--format", "json"))
    assert {row["op"]: row["calls"] for row in report["rows"]} == {"total": 30, "ProfilerStep": 30}
    assert_refused(bridge("bench", f"{ops}::total", "--name", "7"), "cannot name a run")


def test_a_recording_holds_each_run(folder):
    first = bench.op(sum, [1, 2], runs=5, number=3, cache=False)
    array = np.ones((3, 4), np.float32)
    second = bench.op(np.matmul, array, array.T, runs=3, number=2, cache=False)
    bench.save([first, second], "both.jsonl")
    joined = bridge_package.load("both.jsonl")
    ranges = joined.capture.ranges
    lengths = ranges.end - ranges.start
    for one in (first, second):
        own = ranges.name == one.name
        assert lengths[own].tolist() == one.latencies.tolist()
    steps = joined.by("step")
    both = [a + b for a, b in zip(first.latencies, [*second.latencies.tolist(), 0, 0], strict=True)]
    assert steps["wall_ns"].tolist() == both
    table = joined.by("range", arguments=True)
    assert set(table.loc[table["name"] == "matmul", "flops"]) == {2 * 3 * 4 * 3}
    about = joined.capture.facts[0].metadata["bench"]
    assert [one["name"] for one in about["results"]] == ["sum", "matmul"]
    assert {one["clock"] for one in about["results"]} == {"host perf_counter_ns"}
    with pytest.raises(OutputError, match="exists"):
        bench.save(first, "both.jsonl")
    bench.save(
        bench.group([(sum, ([1],)), (len, ("a",))], number=1),
        "both.jsonl",
        force=True,
    )
    assert "sum + len" in set(bridge_package.load("both.jsonl").capture.ranges.name)
    with pytest.raises(ValueError, match="no results"):
        bench.save([], "nothing.jsonl")


# -- points


@given(
    strategies.dictionaries(
        strategies.sampled_from("ABC"),
        strategies.lists(strategies.integers(0, 99), min_size=1, max_size=4),
    )
)
def test_points_are_every_combination(axes):
    found = sweep_points(
        [f"{name}={','.join(map(str, values))}" for name, values in axes.items()], ["D=7"]
    )
    expected = [{}]
    for name, values in axes.items():
        expected = [{**point, name: value} for point in expected for value in values]
    assert found == [{**point, "D": 7} for point in expected]


def test_shapes_in_numbers():
    wanted = parse_shapes("2xK, K,()")
    assert shapes_at(wanted, {"K": 3}) == [(2, 3), (3,), ()]
    assert unused_numbers(wanted, {"K": 3, "n": 1}) == {"n": 1}
    with pytest.raises(BenchError, match="negative"):
        shapes_at(wanted, {"K": -3})
    with pytest.raises(BenchError, match="more than"):
        sweep_points(["a=0:200", "b=0:200"])
