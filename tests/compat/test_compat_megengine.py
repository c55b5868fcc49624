"""MegEngine's profiler: its object, its files, its assertions, and one timeline of several."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path

import old_programs
import pytest
from paired import pairs, read

from bridge import counter, mark, nvtx_op
from bridge.compat.megengine import (
    Profiler,
    is_profiling,
    merge_trace_events,
    pop_scope,
    profile,
    push_scope,
    scope,
    start_profile,
    stop_profile,
    stop_step,
)

CHROME = "chrome_timeline.json"


@pytest.fixture(autouse=True)
def _in_a_folder(folder):
    pass


def own_file(path: str = "profile"):
    return read(Path(path) / f"{os.getpid()}.{CHROME}")


@pytest.mark.slow
def test_a_whole_program(tmp_path, trace_processor):
    from viewers.trace_processor import check_trace

    old_programs.run(old_programs.MEGENGINE, tmp_path)
    (file,) = (tmp_path / "traces").iterdir()  # of the last call alone
    assert file.name.endswith(f".{CHROME}")
    content = read(file)
    assert file.name.partition(".")[0] == str(
        next(e["pid"] for e in content["traceEvents"] if e["ph"] == "B")
    )
    found = [name for name, _ in pairs(content["traceEvents"])]
    assert [found.count(name) for name in ("forward", "outer", 'inner ü "quoted"')] == [3, 3, 6]
    assert content["metadata"]["localTime"] > 1e15  # µs of the epoch
    trace = trace_processor(file)
    check_trace(trace)
    (threads,) = trace.query(
        "select count(distinct utid) as n from thread_track join slice on track_id = thread_track.id"
    )
    assert threads.n == 1


@pytest.mark.slow
def test_a_block_a_function_and_by_hand():
    with Profiler() as profiler:  # theirs gives None
        assert is_profiling()
        with nvtx_op("block"):
            pass
    assert not is_profiling()
    profiler.dump()
    assert [name for name, _ in pairs(own_file()["traceEvents"])] == ["block"]

    @Profiler("other")
    def function(x):
        with scope("call"):
            return x

    assert [function(1), function(2)] == [1, 2]
    assert function.__name__ == "function"

    @profile
    def bare():
        assert is_profiling()

    bare()
    by_hand = profile("third", profile_device=0)
    by_hand.start()
    by_hand.step()
    by_hand.stop()
    by_hand.dump()
    events = own_file("third")["traceEvents"]
    assert [e["name"] for e in events if e["ph"] == "i"] == ["StopStep"]


def test_a_scope_is_closed_by_an_exception():
    with Profiler() as profiler:
        with pytest.raises(KeyError), scope("fails"):
            raise KeyError
        with scope("after"):
            pass
    profiler.dump()
    assert [name for name, _ in pairs(own_file()["traceEvents"])] == ["fails", "after"]


def test_a_dump_is_written_once():
    with Profiler() as profiler:
        pass
    profiler.dump()
    Path(profiler.path).unlink()
    profiler.dump()
    assert not Path(profiler.path).exists()


def test_paths():
    assert Profiler().path == f"profile/{os.getpid()}.{CHROME}"
    made = Profiler("here", formats=[CHROME, CHROME])
    assert made.directory == "here"
    assert made.formats == [CHROME, CHROME]
    assert made.path.endswith(f".{{{CHROME},{CHROME}}}")
    assert Profiler.format_path("a", 7, "b") == "a/7.b"


def test_what_was_given_up_is_written():
    made = Profiler("given_up")
    made.start()
    path = made.path
    del made
    assert Path(path).exists()
    assert not is_profiling()


@pytest.mark.slow
def test_what_was_not_dumped_is_written_at_the_end(tmp_path):
    program = "from bridge.compat.megengine import Profiler\np = Profiler()\np.start()"
    old_programs.run(program, tmp_path)
    assert len(list((tmp_path / "profile").iterdir())) == 1


@pytest.mark.parametrize(
    "wrong", [{"format": "memory_flow"}, {"formats": ["x"]}, {"formats": CHROME}]
)
def test_formats_that_there_are_not(wrong):
    with pytest.raises(AssertionError, match=CHROME):
        Profiler(**wrong)


def test_options():
    Profiler(sample_rate=10, profile_device="1", num_tensor_watch=1, enable_cupti=True)
    with pytest.raises(TypeError, match="sample_rat'"):
        Profiler(sample_rat=1)


def test_one_runs_at_a_time():
    one, other = Profiler(), Profiler()
    with pytest.raises(AssertionError, match="does not run"):
        one.stop()
    with one, pytest.raises(AssertionError, match="is already running"):
        other.start()
    with pytest.raises(AssertionError, match="does not run"):
        one.stop()


def test_a_file_in_the_way_is_a_warning(folder):
    (folder / "profile").write_text("")
    with Profiler() as profiler:
        pass
    with pytest.warns(UserWarning, match="not a folder"):
        profiler.dump()


def test_a_large_file_is_a_warning_with_what_is_in_it(monkeypatch):
    monkeypatch.setattr("bridge.compat.megengine.profiler.LARGE_BYTES", 10)
    with Profiler() as profiler:
        for _ in range(3):
            with nvtx_op("often"):
                pass
        with nvtx_op("once"):
            pass
    with pytest.warns(
        UserWarning, match=r"over 64 MiB.*Most calls: often \(3 calls\), once \(1 calls\)"
    ):
        profiler.dump()


def test_scopes_and_a_profile_by_functions(folder):
    start_profile({"sample_rate": 0})
    with pytest.raises(AssertionError, match="is already running"):
        start_profile()
    push_scope("outer")
    pop_scope("outer")
    stop_step()
    write = stop_profile()
    write("out.json", CHROME)
    with pytest.raises(AssertionError, match=r"memory_flow\.svg"):
        write("out.svg", "svg")
    with pytest.raises(AssertionError, match="no profiler runs"):
        stop_profile()
    events = read(folder / "out.json")["traceEvents"]
    assert [e["name"] for e in events if e["ph"] in "Bi"] == ["outer", "StopStep"]


def test_a_memory_flow_without_tensors_is_a_drawing(folder):
    with Profiler("flow", format="memory_flow.svg") as profiler, nvtx_op("a"):
        pass
    profiler.dump()
    assert "0 allocations" in Path(profiler.path).read_text()


def test_marks_and_counters():
    with Profiler() as profiler:
        mark("here")
        value = counter("queue", 2)
        value += float("nan")
    profiler.dump()
    events = own_file()["traceEvents"]
    assert [e["args"] for e in events if e["ph"] == "C"] == [{"queue": 2}]
    assert [e["name"] for e in events if e["ph"] == "i"] == ["here"]


def test_merged_on_one_clock(folder):
    one = {"traceEvents": [{"ph": "B", "ts": 5.0}, {"ph": "M"}], "metadata": {"localTime": 2000.0}}
    other = {"traceEvents": [{"ph": "B", "ts": 1.0}], "metadata": {"localTime": 1500.0}}
    for number, content in enumerate((one, other)):
        (folder / f"{number}.{CHROME}").write_text(json.dumps(content))
    for _ in range(2):  # what was merged before is no part of it
        merge_trace_events(str(folder))
    merged = read(folder / f"merge.{CHROME}")
    assert merged["metadata"] == {"localTime": 1500.0}
    assert merged["traceEvents"] == [{"ph": "B", "ts": 505.0}, {"ph": "M"}, {"ph": "B", "ts": 1.0}]


def test_real_files_merge():
    with Profiler() as profiler, nvtx_op("a"):
        pass
    profiler.dump()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        merge_trace_events("profile")
    whole = read(Path("profile") / f"merge.{CHROME}")
    assert whole["traceEvents"] == own_file()["traceEvents"]
