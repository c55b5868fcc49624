"""MXNet's profiler: its configuration, its objects, its aggregates with right counters, its timeline."""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path

import old_programs
import pytest
from paired import pairs, read

from bridge import nvtx_op
from bridge.compat import mxnet
from bridge.compat.mxnet import profiler


@pytest.fixture(autouse=True)
def _a_profiler_of_its_own(folder):
    importlib.reload(profiler)
    yield
    profiler.set_state("stop")


def work(times: int, name: str = "conv") -> None:
    for _ in range(times):
        with nvtx_op(name):
            pass


def aggregates(**more):
    return json.loads(profiler.dumps(format="json", **more))


def assert_order(found, figure, *, descending):
    """Whether a pause is the longest is up to the machine; that rows follow their figures is not."""
    figures = [row[figure] for row in found["Time"]["operator"].values()]
    assert len(figures) == 2
    assert figures == sorted(figures, reverse=descending)


def rows(table: str) -> dict[str, list[str]]:
    """Give the cells of each row of a table, by the name."""
    split = (line.split() for line in table.splitlines())
    return {cells[0]: cells[1:] for cells in split if len(cells) > 3}


@pytest.mark.slow
def test_a_whole_program(tmp_path, trace_processor):
    from viewers.trace_processor import check_trace

    cells = rows(old_programs.run(old_programs.MXNET, tmp_path))
    assert [cells[name][0] for name in ("epoch", "batch", "load", "outer")] == ["1", "3", "3", "3"]
    assert [float(cell) for cell in cells["samples"]] == [5, -14, -14, 16, 7.6]
    content = read(tmp_path / "out.json")
    found = [name for name, _ in pairs(content["traceEvents"])]
    assert [found.count(name) for name in ("load", "outer", 'inner ü "quoted"')] == [3, 3, 6]
    kinds = {(e["name"], e["ph"]) for e in content["traceEvents"]}
    assert {("epoch", "b"), ("epoch", "e"), ("batch", "b"), ("checkpoint", "i")} <= kinds
    assert all(e.get("tid", 0) < 1 << 53 for e in content["traceEvents"])
    trace = trace_processor(tmp_path / "out.json")
    check_trace(trace)
    counted = trace.query("select name, count(*) as n from slice group by name order by name")
    assert {(row.name, row.n) for row in counted} >= {("batch", 3), ("epoch", 1), ("outer", 3)}
    named = {row.name for row in trace.query("select name from process")}
    assert {"cpu/0", "training", "event"} <= named


@pytest.mark.slow
def test_aggregates_are_hand_counted():
    profiler.set_config(aggregate_stats=True)
    profiler.set_state("run")
    work(3)
    with nvtx_op("slow"):
        time.sleep(0.01)
    profiler.set_state("stop")
    work(1)
    found = aggregates()
    assert found["Unit"] == {"Time": "ms", "Memory": "kB"}
    conv = found["Time"]["operator"]["conv"]
    assert conv["Count"] == 3
    assert conv["Min"] <= conv["Avg"] <= conv["Max"]
    assert conv["Total"] == pytest.approx(3 * conv["Avg"])
    assert found["Time"]["operator"]["slow"]["Total"] >= 10
    assert_order(found, "Total", descending=True)
    assert_order(aggregates(sort_by="count"), "Count", descending=True)
    assert_order(aggregates(sort_by="max", ascending=True), "Max", descending=False)
    assert "Counter" not in found
    assert found["Memory"]["Device Storage"]["host resident"]["Min"] > 1000


def test_the_table_has_their_columns():
    profiler.set_config(aggregate_stats=True, profile_memory=False)
    profiler.set_state("run")
    work(1)
    lines = profiler.dumps().splitlines()
    at = lines.index("operator")
    assert lines[at + 1].strip("=") == ""
    heads = "Name  Total Count  Time (ms)  Min Time (ms)  Max Time (ms)  Avg Time (ms)"
    assert [head.strip() for head in lines[at + 2].split("  ") if head] == heads.split("  ")
    assert "Device Storage" not in lines


@pytest.mark.slow
def test_a_counter_is_what_it_was_set_to():
    profiler.set_config(aggregate_stats=True)
    profiler.set_state("run")
    counter = profiler.Domain("mine").new_counter("c", 5)
    counter.set_value(1)
    counter.increment(9)
    counter.decrement(12)
    assert aggregates()["Counter"]["mine"]["c"] == {
        "Count": 4, "Total": -2, "Min": -2, "Max": 10, "Avg": 3.5,
    }  # fmt: skip


@pytest.mark.slow
def test_reset_counts_anew_and_keeps_the_timeline():
    profiler.set_config(aggregate_stats=True)
    profiler.set_state("run")
    work(2)
    assert aggregates(reset=True)["Time"]["operator"]["conv"]["Count"] == 2
    work(1)
    assert aggregates()["Time"]["operator"]["conv"]["Count"] == 1
    profiler.dump()
    assert len(pairs(read(Path("profile.json"))["traceEvents"])) == 3


def test_without_aggregates_there_is_no_text():
    profiler.set_state("run")
    work(1)
    assert profiler.dumps(reset=True) == ""


@pytest.mark.slow
def test_runs_add_up_until_a_dump_finishes():
    for name in ("first", "second"):
        profiler.set_state("run")
        profiler.set_state("run")
        work(1, name)
        profiler.set_state("stop")
        work(1, "between")
    profiler.dump(finished=False)
    assert [n for n, _ in pairs(read(Path("profile.json"))["traceEvents"])] == ["first", "second"]
    profiler.dump()
    profiler.dump()
    assert [n for n, _ in pairs(read(Path("profile.json"))["traceEvents"])] == ["first", "second"]
    profiler.set_config(filename="again.json")
    with pytest.raises(profiler.MXNetError, match="hasn't been run"):
        profiler.dump()
    profiler.set_state("run")
    work(1, "third")
    profiler.dump()
    assert [n for n, _ in pairs(read(Path("again.json"))["traceEvents"])] == ["third"]


@pytest.mark.slow
def test_pause_and_resume():
    profiler.pause()
    profiler.set_state("run")
    work(1, "on")
    profiler.pause()
    profiler.pause()
    work(1, "off")
    profiler.resume()
    work(1, "again")
    profiler.dump()
    assert [n for n, _ in pairs(read(Path("profile.json"))["traceEvents"])] == ["on", "again"]


def test_misuse():
    with pytest.raises(profiler.MXNetError, match="hasn't been run"):
        profiler.dump()
    with pytest.raises(profiler.MXNetError, match="profile_al'"):
        profiler.set_config(profile_al=True)
    with pytest.raises(profiler.MXNetError, match="dump_period"):
        profiler.set_config(dump_period=0)
    with pytest.raises(KeyError):
        profiler.set_state("running")
    profiler.set_config(aggregate_stats=True)
    with pytest.raises(AssertionError, match="sort_by"):
        profiler.dumps(sort_by="size")
    with pytest.raises(AssertionError, match="format"):
        profiler.dumps(format="xml")
    with pytest.raises(profiler.MXNetError, match="scope"):
        profiler.Domain("d").new_marker("m").mark("galaxy")
    with pytest.warns(UserWarning, match="server"):
        profiler.pause(profile_process="server")


def test_deprecated_names():
    with pytest.warns(DeprecationWarning, match="set_config"):
        profiler.profiler_set_config(mode="all", filename="old.json")
    with pytest.warns(DeprecationWarning, match="set_state"):
        profiler.profiler_set_state("run")
    with pytest.warns(DeprecationWarning, match="dump"):
        profiler.dump_profile()
    assert Path("old.json").exists()


def test_scopes_are_paths():
    with profiler.scope("net"), profiler.scope("fc:") as path:
        assert path == "net:fc:"
        with profiler.scope("alone", append_mode=False) as other:
            assert other == "alone:"
    with pytest.raises(KeyError), profiler.scope("fails"):
        raise KeyError
    with profiler.scope() as unknown:
        assert unknown == "<unk>:"


def test_names():
    domain = profiler.Domain("d")
    made = [domain, domain.new_task("t"), domain.new_frame("f"), profiler.Event("e"),
            domain.new_counter("c"), domain.new_marker("m")]  # fmt: skip
    assert list(map(str, made)) == list("dtfecm")
    assert mxnet.profiler.Task(domain, "x").name == "x"


@pytest.mark.slow
def test_a_run_is_written_at_the_end_and_begun_by_the_environment(tmp_path):
    program = "from bridge.compat.mxnet import profiler\nprofiler.Event('e').start()"
    old_programs.run(program, tmp_path)
    assert not (tmp_path / "profile.json").exists()
    old_programs.run(program, tmp_path, MXNET_PROFILER_AUTOSTART="1")
    assert [name for name, _ in pairs(read(tmp_path / "profile.json")["traceEvents"])] == ["e"]


@pytest.mark.slow
def test_a_continuous_dump_grows_and_survives_a_kill(tmp_path):
    program = """
import os, pathlib, time
from bridge.compat.mxnet import profiler
profiler.set_config(continuous_dump=True, dump_period=0.05, filename="out.json")
profiler.set_state("run")
event = profiler.Event("e")
event.start(); event.stop()
deadline = time.time() + 60
file = pathlib.Path("out.jsonl")
while time.time() < deadline and not (file.exists() and '"ranges"' in file.read_text()):
    time.sleep(0.02)
print("written", flush=True)
os._exit(0)
"""
    assert old_programs.run(program, tmp_path) == "written\n"
    import bridge

    assert bridge.load(tmp_path / "out.jsonl").by("range")["name"].tolist() == ["e"]


def test_waitall_waits_for_the_gpus_in_use(monkeypatch):
    from bridge.compat import mxnet as mx

    waited = []

    class Cuda:
        is_initialized = staticmethod(lambda: bool(waited) or used)
        device_count = staticmethod(lambda: 2)
        synchronize = staticmethod(waited.append)

    torch = type(sys)("torch")
    torch.cuda = Cuda
    monkeypatch.setitem(sys.modules, "torch", torch)
    used = False
    mx.npx.waitall()
    assert waited == []
    used = True
    mx.npx.waitall()
    assert waited == [0, 1]
    monkeypatch.delitem(sys.modules, "torch")
    mx.npx.waitall()
