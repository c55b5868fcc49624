"""RAF's profiler: levels, pairs of B and E on the tracks of their categories, durations and their errors."""

from __future__ import annotations

import asyncio
import math
import time

import old_programs
import pytest
from paired import pairs, read

from bridge import nvtx_op, nvtx_range
from bridge.compat import raf
from bridge.compat.raf import profiler

INNER = 'inner ü "quoted"'


@pytest.fixture(autouse=True)
def _nothing_remains():
    yield
    profiler.stop()
    profiler.clear()


def names() -> list[str]:
    return [event["name"] for event in profiler.get()["traceEvents"] if event["ph"] == "B"]


def op(name: str, **more) -> None:
    with nvtx_op(name, **more):
        pass


@pytest.mark.slow
def test_a_whole_program(tmp_path):
    old_programs.run(old_programs.RAF, tmp_path)
    data = read(tmp_path / "profile.json")
    assert data["displayTimeUnit"] == "ms"
    found = pairs(data["traceEvents"])
    assert [name for name, _ in found].count("outer") == 2
    assert [name for name, _ in found].count(INNER) == 4
    assert all(type(event["ts"]) is int and event["ts"] >= 0 for event in data["traceEvents"])
    assert {(e["name"], e["cat"], e["tid"]) for e in data["traceEvents"]} == {
        ("outer", "Default Stream", "Default Stream"),
        (INNER, "ComputationOperator", "ComputationOperator"),
    }


@pytest.mark.slow
def test_the_trace_opens_in_a_viewer(tmp_path, trace_processor):
    from viewers.trace_processor import check_trace

    old_programs.run(old_programs.RAF, tmp_path)
    trace = trace_processor(tmp_path / "profile.json")
    check_trace(trace)
    counted = trace.query("select name, count(*) as n from slice group by name order by name")
    assert [(row.name, row.n) for row in counted] == [(INNER, 4), ("outer", 2)]


def test_only_clear_forgets():
    for name in ("first", "second"):
        profiler.start()
        op(name)
        profiler.stop()
    assert names() == ["first", "second"]
    profiler.clear()
    assert names() == []
    profiler.start()
    op("third")
    profiler.clear()
    op("fourth")
    assert names() == ["fourth"]


def test_level_0_records_nothing():
    profiler.start()
    op("on")
    profiler.start(0)
    op("off")
    assert names() == ["on"]


@pytest.mark.slow
def test_times_go_on_after_a_get():
    profiler.start()
    op("first")
    before = profiler.get()["traceEvents"]
    op("second")
    assert profiler.get()["traceEvents"][:2] == before
    starts = [e["ts"] for e in profiler.get()["traceEvents"] if e["ph"] == "B"]
    assert all(abs(start / 1e6 - time.time()) < 600 for start in starts)  # µs since the epoch


def test_what_was_given_is_one_text():
    class Tensor:
        shape, dtype = (2, 3), "float32"

    profiler.start()
    op("mm", shapes=(Tensor(), Tensor()), args={"axis": 1})
    begin = profiler.get()["traceEvents"][0]
    assert begin["args"] == {"args_string": "T<2x3xf32>,T<2x3xf32>,|;axis=1"}


def test_what_crosses_has_a_track_of_its_own():
    profiler.start()
    first, second = nvtx_range("a", category="phase"), nvtx_range("b", category="phase")
    first.start()
    second.start()
    first.end()
    second.end()
    events = profiler.get()["traceEvents"]
    assert [name for name, _ in pairs(events)] == ["a", "b"]
    assert {event["tid"] for event in events} == {"phase", "phase (2)"}


@pytest.mark.slow
def test_a_coroutine_has_a_pair_for_each_slice():
    @nvtx_op
    async def task() -> None:
        await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(task(), task())

    profiler.start()
    asyncio.run(both())
    assert [name.rpartition(".")[2] for name, _ in pairs(profiler.get()["traceEvents"])] == [
        "task"
    ] * 4


def test_a_duration_is_in_ms():
    profiler.start()
    with nvtx_op("slow", category="copy"):
        time.sleep(0.01)
    op("twice")
    op("twice")
    op("slow", category="other")
    data = profiler.get()
    assert 10 <= raf.profiler.get_duration(data, "slow", "copy") < 1000
    with pytest.raises(AssertionError, match="twice"):
        profiler.get_duration(data, "twice")
    with pytest.raises(AssertionError, match="slow"):
        profiler.get_duration(data, "slow")
    with pytest.raises(ValueError, match="never"):
        profiler.get_duration(data, "never")
    with pytest.raises(ValueError, match="slow"):
        profiler.get_duration(data, "slow", "neither")


def test_dtypes_have_the_short_names_of_raf():
    names = "float32 float16 float64 int64 uint8 bfloat16 bool complex64".split()
    expected = "f32 f16 f64 i64 u8 bf16 bool c64".split()
    assert [profiler._short_name(name) for name in names] == expected


# -- Training steps of the guide


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "options"), [((4, 6, 7), {}), ((4, 7), {"optimizer": "sgd"}), ((2, 3, 2, 7), {})]
)
def test_a_training_step_takes_outputs_of_any_dimensions(shape, options):
    torch = pytest.importorskip("torch")
    from bridge.compat.raf import testing

    torch.manual_seed(0)
    model = torch.nn.Linear(5, shape[-1])
    data, _ = testing.randn_torch((*shape[:-1], 5))
    labels, _ = testing.one_hot_torch(math.prod(shape[:-1]), shape[-1])
    gradient, _ = testing.randn_torch((), dtype="float32")
    before = model.weight.detach().clone()
    expected = torch.nn.functional.cross_entropy(model(data).reshape(-1, shape[-1]), labels)
    step = testing.append_loss_n_optimizer(model, [data], shape, labels, **options)
    record = step._internal(gradient, data, labels)
    executor = testing.get_vm_executor(record.mod, "cpu")
    loss = testing.run_vm_executor(executor, record, [gradient, data, labels], "cpu")
    assert loss.item() == pytest.approx(expected.item())
    assert not torch.equal(before, model.weight)


@pytest.mark.slow
def test_an_optimizer_that_pytorch_does_not_have_is_refused():
    torch = pytest.importorskip("torch")
    from bridge.compat.raf import testing

    with pytest.raises(ValueError, match="no optimizer 'lans': one of sgd"):
        testing.append_loss_n_optimizer(torch.nn.Linear(2, 2), [], (2, 2), None, optimizer="lans")
