"""The two ways to a GPU, on one that is made up: what they measure is what it took."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from importlib import import_module

import pytest
from fake_gpu import COLD, GPU, LAUNCH, NAME, FakeTensor, runtime_of, torch_of

from bridge import bench
from bridge.bench.devices.cuda import CudaPython, DeviceError, TorchCuda

SHORT, LONG = 2_000, 400_000  # ns


@pytest.fixture
def gpu():
    return GPU()


@pytest.fixture(params=["torch", "cuda-python"])
def device(request, gpu):
    if request.param == "torch":
        return TorchCuda(torch_of(gpu))
    runtime = runtime_of(gpu)
    return CudaPython(runtime, on=runtime.on)


def test_a_long_kernel_is_a_run(gpu, device):
    found = bench.op(partial(gpu.kernel, LONG), device=device, runs=7)
    assert (found.device, found.number) == (NAME, 1)
    assert found.latencies.tolist() == [LAUNCH + LONG] * 7
    assert str(found.latencies.dtype) == "int64"
    assert found.clock.startswith("cuda events by ")


def test_of_a_short_kernel_many_make_a_run(gpu, device):
    found = bench.op(partial(gpu.kernel, SHORT), device=device, runs=3)
    assert found.number * (LAUNCH + SHORT) >= device.least_ns > 0
    assert found.latencies.tolist() == [LAUNCH + SHORT] * 3


def test_cold_is_without_the_cache_and_a_call_a_run(gpu, device):
    found = bench.op(partial(gpu.kernel, SHORT), device=device, cold=True, runs=4)
    assert found.latencies.tolist() == [LAUNCH + COLD * SHORT] * 4
    assert (found.number, gpu.flushes) == (1, 4)


def test_a_graph_takes_the_launches_away(gpu, device):
    found = bench.op(partial(gpu.kernel, SHORT), device=device, graph=True, runs=4)
    assert found.number > 1
    expected = SHORT + LAUNCH / found.number
    assert found.exact == pytest.approx([expected] * 4)
    assert found.median < SHORT + LAUNCH / 10


def test_a_graph_of_given_size(gpu, device):
    found = bench.op(partial(gpu.kernel, SHORT), device=device, graph=True, number=5)
    assert found.exact == pytest.approx([SHORT + LAUNCH / 5] * 10)


def test_warm_up_and_runs_are_counted(gpu, device):
    bench.op(partial(gpu.kernel, LONG), device=device, warmup=3, runs=4, number=2)
    first_and_workspace = 2
    assert gpu.kernels == first_and_workspace + 3 + 4 * 2


@pytest.mark.slow
def test_what_takes_no_time_on_the_device_ends_too(gpu, device):
    found = bench.op(lambda: None, device=device, runs=2)
    assert found.latencies.tolist() == [0, 0]
    assert (found.spread, found.flop_per_s) == (0, -1)


def test_streams_overlap(gpu, device):
    calls = [partial(gpu.kernel, LONG), partial(gpu.kernel, 3 * LONG), partial(gpu.kernel, LONG)]
    found = bench.group(calls, streams=[0, 1, 0], device=device, runs=3, number=1)
    one, three = LAUNCH + LONG, LAUNCH + 3 * LONG
    assert [op.latencies.tolist() for op in found.ops] == [[one] * 3, [three] * 3, [one] * 3]
    assert found.whole.latencies.tolist() == [max(2 * one, three)] * 3
    assert found.starts.tolist() == [[0, 0, one]] * 3
    assert found.whole.name == "GPU.kernel + GPU.kernel + GPU.kernel"


def test_streams_begin_where_earlier_work_is_done(gpu, device):
    gpu.kernel(LONG)  # still running on the current stream
    calls = [partial(gpu.kernel, SHORT)] * 2
    starts, ends = device.at_once(calls, [5, 6], 1, 1, [nullcontext] * 2)
    assert (starts, ends) == ([[0, 0]], [[LAUNCH + SHORT] * 2])


def test_ops_on_streams_take_turns(gpu, device):
    order = []
    calls = [partial(order.append, name) for name in "ab"]
    device.at_once(calls, [0, 1], 1, 3, [nullcontext] * 2)
    assert "".join(order) == "ababab"


def test_one_op_on_several_streams(gpu, device):
    found = bench.op(partial(gpu.kernel, LONG), device=device, streams=[0, 1, 2], number=1)
    assert found.latencies.tolist() == [LAUNCH + LONG] * 10
    assert found.streams == (0, 1, 2)


def test_no_event_is_left(gpu):
    runtime = runtime_of(gpu)
    bench.op(partial(gpu.kernel, LONG), device=CudaPython(runtime, on=runtime.on))
    assert runtime.alive == set()


def test_workspace_is_what_a_call_gives_back(gpu):
    def op():
        passing = FakeTensor(gpu, 1000)
        made = FakeTensor(gpu, 64)
        del passing
        return made

    found = bench.op(op, device=TorchCuda(torch_of(gpu)), number=1)
    assert found.workspace == 1000
    assert gpu.held == 0


def test_cuda_python_sees_what_stays(gpu):
    kept = []
    device = CudaPython(runtime_of(gpu))
    assert device.workspace(lambda: kept.append(FakeTensor(gpu, 4096))) == 4096
    assert device.workspace(lambda: FakeTensor(gpu, 64)) == 64  # the result is still held
    assert device.workspace(kept.clear) == 0


@pytest.mark.parametrize(
    "call", ["cudaEventRecord", "cudaEventElapsedTime", "cudaDeviceSynchronize"]
)
def test_an_error_of_cuda_is_one_clear_line(gpu, call):
    runtime = runtime_of(gpu, broken={call})
    with pytest.raises(DeviceError, match=f"{call}: cudaErrorInvalidDevice"):
        bench.op(partial(gpu.kernel, LONG), device=CudaPython(runtime))


def test_without_cupy_there_are_no_streams(gpu):
    with pytest.raises(ValueError, match="PyTorch or CuPy"):
        bench.group([partial(gpu.kernel, LONG)], device=CudaPython(runtime_of(gpu)))


def test_a_graph_that_cannot_be_captured(gpu):
    fake = torch_of(gpu)

    def refused(_graph):
        raise RuntimeError("operation not permitted\nCompile with TORCH_USE_CUDA_DSA")

    fake.cuda.graph = refused
    with pytest.raises(ValueError, match=r"cannot be captured: operation not permitted$"):
        bench.op(partial(gpu.kernel, LONG), device=TorchCuda(fake), graph=True)


def test_ranges_stand_around_the_runs(gpu, device, tool):
    bench.op(partial(gpu.kernel, LONG), device=device, runs=3, name="mine")
    runs = [piece for piece in tool.slices if piece.label.name == "mine"]
    assert [piece.parents for piece in runs] == [("bench:mine",)] * 3
    assert tool.names()[0] == "bench:mine"


@pytest.mark.slow
def test_the_real_runtime_has_what_is_asked(gpu):
    real = import_module("cuda.bindings.runtime")
    for name in vars(runtime_of(gpu)):
        assert name in {"alive", "on"} or hasattr(real, name), name
    assert hasattr(real.cudaStreamCaptureMode, "cudaStreamCaptureModeThreadLocal")
    assert {"name", "l2CacheSize"} <= set(dir(real.cudaDeviceProp))


@pytest.mark.slow
def test_the_real_torch_has_what_is_asked(gpu):
    real = pytest.importorskip("torch", reason="PyTorch is not installed")
    for name in vars(torch_of(gpu).cuda):
        assert hasattr(real.cuda, name), name


def test_devices_that_are_none():
    for wrong in ("tpu", "cuda:x", 3):
        with pytest.raises(ValueError, match="device is 'cpu', 'cuda'"):
            bench.op(len, "a", device=wrong)
