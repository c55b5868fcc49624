"""PyTorch's profiler without PyTorch: schedules, handlers, tables by hand counted calls, and its errors."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import time
from pathlib import Path

import old_programs
import pytest
from paired import read

import bridge
from bridge import nvtx_op
from bridge.compat.torch_profiler import (
    ProfilerAction,
    ProfilerActivity,
    profile,
    record_function,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)

CPU = [ProfilerActivity.CPU]
COLUMNS = [
    "Name",
    "Self CPU %",
    "Self CPU",
    "CPU total %",
    "CPU total",
    "CPU time avg",
    "# of Calls",
]
KEYS = (
    "cpu_time", "cuda_time", "cpu_time_total", "cuda_time_total", "self_cpu_time_total",
    "self_cuda_time_total", "xpu_time_total", "cpu_memory_usage", "cuda_memory_usage",
    "self_cpu_memory_usage", "self_cuda_memory_usage", "count", "flops",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _in_a_folder(folder):
    pass


class Tensor:
    shape, dtype = (2, 3), "float32"


def outer(inner: int = 2) -> None:
    with nvtx_op("a::outer"):
        for _ in range(inner):
            with nvtx_op("a::inner", shapes=(Tensor(),), flops=6000):
                time.sleep(0.001)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r" {2,}", line.strip())]


def lines(table: str) -> dict[str, list[str]]:
    return {cells(line)[0]: cells(line)[1:] for line in table.splitlines() if "  " in line}


@pytest.mark.slow
def test_a_whole_program(tmp_path, trace_processor):
    from viewers.trace_processor import check_trace

    shown = lines(old_programs.run(old_programs.TORCH, tmp_path))
    assert {name: row[-1] for name, row in shown.items() if "-" not in name} == {
        "Name": "# of Calls", "ProfilerStep*": "2", "forward": "2", "outer": "2",
        'inner ü "quoted"': "4",
    }  # fmt: skip
    first, second = sorted((tmp_path / "log").iterdir())
    assert re.fullmatch(r"me\.\d+\.pt\.trace\.json", first.name)
    for file, steps in ((first, (2, 3)), (second, (6, 7))):
        trace = trace_processor(file)
        check_trace(trace)
        found = trace.query("select name from slice where name glob 'ProfilerStep#*' order by ts")
        assert [row.name for row in found] == [f"ProfilerStep#{n}" for n in steps]


def test_self_and_total_are_hand_counted():
    with profile(activities=CPU, with_flops=True) as prof:
        outer()
        outer(1)
    events = prof.events()
    assert [e.name for e in events] == ["a::outer", "a::inner", "a::inner", "a::outer", "a::inner"]
    first = events[0]
    assert [child.name for child in first.cpu_children] == ["a::inner"] * 2
    assert first.cpu_children[0].cpu_parent is first
    assert first.time_range.elapsed_us() == first.cpu_time_total
    averages = {row.key: row for row in prof.key_averages()}
    a, b = averages["a::outer"], averages["a::inner"]
    assert (a.count, b.count, b.flops) == (2, 3, 18000)
    assert b.self_cpu_time_total == b.cpu_time_total >= 3000
    assert a.self_cpu_time_total == pytest.approx(a.cpu_time_total - b.cpu_time_total)
    assert a.cpu_time == a.cpu_time_total / 2
    top = sum(e.cpu_time_total for e in events if e.cpu_parent is None)
    assert prof.key_averages().self_cpu_time_total == pytest.approx(top)
    total = prof.key_averages().total_average()
    assert (total.count, total.self_cpu_time_total) == (5, pytest.approx(top))


def test_the_figures_are_those_of_the_session():
    with profile(activities=CPU) as prof:
        outer()
        asyncio.run(_in_slices())
    ours = prof._session.by("op").set_index("op")
    for row in prof.key_averages():
        own = ours.loc[row.key]
        assert row.count == own["calls"]
        assert row.self_cpu_time_total == pytest.approx(own["cpu_self_ns"] / 1000)
        assert row.cpu_time_total == pytest.approx(own["cpu_total_ns"] / 1000)


async def _in_slices():
    @nvtx_op("sliced")
    async def task():
        await asyncio.sleep(0)

    await asyncio.gather(task(), task())


def test_the_columns_are_pytorchs_in_its_order():
    with profile(activities=CPU, with_flops=True) as prof:
        outer()
    table = prof.key_averages().table(sort_by="cpu_time_total").splitlines()
    assert cells(table[1]) == [*COLUMNS, "Total KFLOPs"]
    assert [cells(line)[0] for line in table[3:5]] == ["a::outer", "a::inner"]
    assert cells(table[4])[-2:] == ["2", "12.000"]
    assert cells(table[3])[-1] == "--"
    assert cells(table[3])[3] == "100.00%"
    shares = [float(cells(line)[1].rstrip("%")) for line in table[3:5]]
    assert sum(shares) == pytest.approx(100, abs=0.02)
    assert re.fullmatch(r"Self CPU time total: [\d.]+ms", table[-1])
    by_shape = prof.key_averages(group_by_input_shape=True).table().splitlines()
    assert cells(by_shape[1]) == [*COLUMNS, "Input Shapes", "Total KFLOPs"]
    assert "[[2, 3]]" in by_shape[4]


@pytest.mark.parametrize("key", KEYS)
def test_keys_to_sort_by(key):
    with profile(activities=CPU) as prof:
        outer()
    assert "a::inner" in prof.key_averages().table(sort_by=key)
    assert prof.events().table(sort_by=key).count("a::inner") == 2


def test_what_a_table_shows():
    with profile(activities=CPU) as prof, record_function("x" * 80):
        outer()
    averages = prof.key_averages()
    assert len(averages.table(row_limit=1).splitlines()) == 6
    assert len(averages.table(row_limit=-1).splitlines()) == 8
    assert averages.table(header="Title").splitlines()[1] == "Title"
    top = averages.table(top_level_events_only=True)
    assert "top-level" in top
    assert "a::outer" not in top
    assert "x" * 52 + "..." in top
    assert "x" * 80 in averages.table(max_name_column_width=None)
    for unit in ("s", "ms", "us"):
        row = lines(averages.table(time_unit=unit))["a::inner"]
        assert re.fullmatch(rf"[\d.]+{unit}", row[1])
    with pytest.raises(AttributeError):
        averages.table(sort_by="nothing")
    assert str(averages) == averages.table()


def test_nothing_is_an_empty_table():
    with profile(activities=CPU) as prof:
        pass
    assert prof.key_averages().table(sort_by="nonsense") == ""
    assert prof.events() == []
    prof.export_chrome_trace("empty.json")
    assert [e for e in read(Path("empty.json"))["traceEvents"] if e["ph"] == "X"] == []


def test_of_calls_at_one_moment_the_outer_is_first(monkeypatch):
    monkeypatch.setattr("bridge.annotate.recording.recorder.monotonic_ns", lambda: 5)
    with profile(activities=CPU) as prof, nvtx_op("outer"), nvtx_op("inner"):
        pass
    assert [event.name for event in prof.events()] == ["outer", "inner"]


def test_names_within_names_are_all_counted():
    with profile(activities=CPU) as prof, record_function("same"), record_function("same"):
        pass
    assert [row.count for row in prof.key_averages()] == [2]


def test_the_schedule():
    actions = schedule(wait=1, warmup=1, active=2, repeat=2, skip_first=1)
    n, w, r, s = ProfilerAction
    assert [actions(step) for step in range(12)] == [n, n, w, r, s, n, w, r, s, n, n, n]
    for wrong in ({"active": 0}, {"wait": -1}, {"warmup": -1}, {"repeat": -1}, {"skip_first": -1}):
        with pytest.raises(AssertionError, match="Invalid profiler schedule arguments"):
            schedule(**{"wait": 1, "warmup": 1, "active": 1} | wrong)
    with pytest.raises(AssertionError):
        actions(-1)


def test_cycles_call_the_handler():
    seen = []
    with profile(
        activities=CPU,
        schedule=schedule(wait=1, warmup=1, active=1),
        on_trace_ready=lambda p: seen.append(
            (p.step_num, p.get_trace_id(), p.key_averages()[0].count)
        ),
    ) as prof:
        actions = []
        for _ in range(6):
            outer()
            actions.append(prof.current_action.name)
            prof.step()
    assert actions == ["NONE", "WARMUP", "RECORD_AND_SAVE"] * 2
    assert [(step, count) for step, _, count in seen] == [(3, 1), (6, 1)]
    assert len({trace for _, trace, _ in seen}) == 2


def test_a_schedule_of_ones_own_and_accumulated_cycles():
    with profile(
        activities=CPU, schedule=lambda n: list(ProfilerAction)[3 * (n % 2)], acc_events=True
    ) as prof:
        for _ in range(6):
            outer()
            prof.step()
    assert {row.key: row.count for row in prof.key_averages()}["a::outer"] == 3


def test_steps_without_a_schedule_are_counted_only():
    with profile(activities=CPU) as prof:
        outer()
        prof.step()
        outer()
        prof.step()
    assert prof.step_num == 2
    assert [row.key for row in prof.key_averages()] == ["a::outer", "a::inner"]


@pytest.mark.slow
def test_the_trace_has_pytorchs_keys():
    ids = iter("ab")
    with profile(activities=CPU, record_shapes=True, custom_trace_id_callback=ids.__next__) as prof:
        prof.add_metadata("key", 'a "quoted" text')
        prof.add_metadata_json("config", '{"lr": 0.1}')
        with record_function("mine", "said"):
            outer(1)
        bridge.mark("here")
    for path in ("trace.json", "trace.json.gz", "trace.json"):  # twice into one as well
        prof.export_chrome_trace(path)
    content = read(Path("trace.json"))
    assert (
        json.loads(gzip.decompress(Path("trace.json.gz").read_bytes()))["traceEvents"]
        == content["traceEvents"]
    )
    assert (content["schemaVersion"], content["displayTimeUnit"]) == (1, "ms")
    assert (content["key"], content["config"]) == ('a "quoted" text', {"lr": 0.1})
    assert (content["record_shapes"], content["with_flops"], content["trace_id"]) == (1, 0, "a")
    assert abs(content["baseTimeNanoseconds"] - time.time_ns()) < 60e9
    slices = {e["name"]: e for e in content["traceEvents"] if e["ph"] == "X"}
    assert [slices[name]["cat"] for name in ("mine", "a::outer")] == ["user_annotation", "cpu_op"]
    assert slices["mine"]["ts"] == 0  # the first; the others from there
    assert 0 < slices["a::inner"]["ts"] < slices["mine"]["dur"]
    assert slices["a::inner"]["args"]["Input Dims"] == [[2, 3]]
    assert slices["a::inner"]["args"]["Input type"] == ["float32"]
    assert slices["mine"]["args"]["Concrete Inputs"] == ["said"]
    assert [e["name"] for e in content["traceEvents"] if e["ph"] == "i"] == [
        "here",
        "Record Window End",
    ]


def test_annotations_decorate():
    @record_function("decorated")
    def function(x):
        return x

    with profile(activities=CPU) as prof:
        assert function(3) == 3
    assert [(e.name, e.is_user_annotation) for e in prof.events()] == [("decorated", True)]


def test_collection_is_switched_off_and_on():
    with profile(activities=CPU) as prof:
        prof.toggle_collection_dynamic(False, [ProfilerActivity.CUDA])
        outer()
        prof.toggle_collection_dynamic(False, CPU)
        outer()
        prof.toggle_collection_dynamic(True, CPU)
        with record_function("on"):
            pass
    assert [e.name for e in prof.events()] == ["a::outer", "a::inner", "a::inner", "on"]


@pytest.mark.parametrize(
    "use",
    [
        lambda p: p.stop(),
        lambda p: p.key_averages(),
        lambda p: p.events(),
        lambda p: p.export_chrome_trace("x.json"),
    ],
)
def test_use_before_the_start(use):
    with pytest.raises(AssertionError, match="Profiler must be initialized before"):
        use(profile(activities=CPU))
    with (
        profile(activities=CPU, schedule=schedule(wait=1, warmup=0, active=1)) as waiting,
        pytest.raises(AssertionError, match="Profiler must be initialized before"),
    ):
        use(waiting)


def test_each_run_has_an_id_of_its_own():
    prof = profile(activities=CPU)
    assert prof.get_trace_id() is None
    ids = []
    for _ in range(2):
        with prof:
            outer()
        ids.append(prof.get_trace_id())
        assert len(prof.events()) == 3
    assert len(set(ids)) == 2


def test_what_could_not_begin_has_nothing():
    second = profile(activities=CPU)
    with profile(activities=CPU):
        with pytest.raises(RuntimeError, match="running"):
            second.start()
        with pytest.raises(AssertionError, match="initialized"):
            second.events()


def test_misuse():
    with pytest.raises(AssertionError, match="No valid profiler activities found"):
        profile(activities=[])
    with pytest.raises(ValueError, match="more than once"):
        profile(activities=CPU * 2)
    with pytest.raises(TypeError, match="Expected ProfilerActivity"):
        profile(activities=["cpu"])
    with pytest.raises(AssertionError, match="not entered"):
        record_function("x").__exit__(None, None, None)
    with profile(activities=CPU), pytest.raises(RuntimeError, match="running"):
        profile(activities=CPU).start()
    Path("taken").write_text("")
    with profile(activities=CPU) as prof:
        outer()
    with pytest.raises(RuntimeError, match="Can't create directory"):
        tensorboard_trace_handler("taken")(prof)


def test_what_there_is_not_is_said():
    assert supported_activities() == set(CPU)
    with pytest.warns(UserWarning, match="run under nsys"):
        profile(activities=[*CPU, ProfilerActivity.CUDA])
    with (
        pytest.warns(UserWarning, match="run under nsys"),
        pytest.raises(AssertionError, match="No valid"),
    ):
        profile(activities=[ProfilerActivity.CUDA])
    with pytest.warns(UserWarning, match="no stacks"):
        profile(activities=CPU, with_stack=True)
    with (
        pytest.warns(FutureWarning, match="use_cuda"),
        pytest.warns(UserWarning, match="run under nsys"),
    ):
        profile(use_cuda=True)


def test_under_a_tool_the_gpu_is_recorded(monkeypatch):
    monkeypatch.setenv("NVTX_INJECTION64_PATH", "tool")
    assert supported_activities() == {ProfilerActivity.CPU, ProfilerActivity.CUDA}
    assert profile(activities=[ProfilerActivity.CUDA]).activities == {ProfilerActivity.CUDA}


def test_the_handler_names_files(tmp_path):
    with profile(
        activities=CPU, on_trace_ready=tensorboard_trace_handler("deep/log", use_gzip=True)
    ):
        outer()
    (file,) = Path("deep/log").iterdir()
    assert re.fullmatch(r".+_\d+\.\d{19}\.pt\.trace\.json\.gz", file.name)
