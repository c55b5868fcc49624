"""Composite ops and nodes of autograd have ranges, as many as PyTorch's own profiler counts."""

from __future__ import annotations

import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from small import loss_of, nn, torch, transformer
from torch._C._profiler import ProfilerState
from torch.overrides import TorchFunctionMode, _get_current_function_mode
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

import bridge.torch
from bridge.annotate.emit import state
from bridge.frameworks.torch import composite, native


def cnn():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(0.5), nn.Linear(16, 5),
    )  # fmt: skip


def train_cnn(model) -> None:
    loss = nn.functional.cross_entropy(model(torch.ones(2, 3, 8, 8)), torch.tensor([1, 2]))
    loss.backward()


def train_transformer(model) -> None:
    loss_of(model)[1].backward()


def mathematics(_) -> None:
    x, y = torch.rand(4, 4, requires_grad=True), torch.rand(4, 4)
    a = x @ y + torch.einsum("ij,jk->ik", x, y).reshape(4, 4)
    b = torch.nn.functional.softmax(a, -1) + torch.nn.functional.dropout(a, 0.5, inplace=False)
    c = (
        torch.outer(x[0], y[0]).flatten().sum()
        + torch.kron(x, y).square().mean()
        + b.matmul(y).std()
    )
    torch.nn.functional.dropout(a.clone(), 0.5, inplace=True)
    (c + torch.linalg.norm(x)).backward()


PROGRAMS = {"cnn": (cnn, train_cnn), "transformer": (transformer, train_transformer),
            "mathematics": (int, mathematics)}  # fmt: skip


def both(tool, make, run):
    """Give how often each name was recorded by us, and by PyTorch."""
    model = make()
    run(model)  # the first time gradients are new
    with torch.profiler.profile() as profiler:
        run(model)
    with bridge.torch.ops():
        run(model)
    return tool.calls(), Counter(event.name for event in profiler.events())


EXPECTED = {
    "cnn": {"aten::conv2d": 1, "aten::batch_norm": 1, "aten::linear": 1, "aten::flatten": 1,
            "aten::max_pool2d": 1, "aten::adaptive_avg_pool2d": 1, "aten::dropout": 1,
            "aten::cross_entropy_loss": 1, "AddmmBackward0": 1, "ConvolutionBackward0": 1,
            "torch::autograd::AccumulateGrad": 6},
    "transformer": {"aten::linear": 9, "aten::layer_norm": 2, "aten::scaled_dot_product_attention": 2,
                    "AddmmBackward0": 9, "NativeLayerNormBackward0": 2},
    "mathematics": {"aten::matmul": 2, "aten::einsum": 1, "aten::dropout_": 1, "aten::outer": 1},
}  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_subset_has_the_names_and_counts_of_pytorch(tool, program):
    ours, theirs = both(tool, *PROGRAMS[program])
    # Under a dispatch mode PyTorch hands out aliases of what it saves.
    assert ours.keys() - {"aten::detach"} <= theirs.keys()
    for name, count in EXPECTED[program].items():
        assert ours[name] == count, name
        # Ops within other ops, and nodes that run no op, are seen by PyTorch alone.
        assert theirs[name] >= count, name
    added = {name for name in ours if name[0].isupper() or composite._is_composite(name)}
    assert not [name for name in added if ours[name] > theirs[name]]
    for name in ("aten::linear", "aten::conv2d", "aten::layer_norm", "AddmmBackward0"):
        assert ours[name] == theirs[name], name


def test_ops_within_are_nested(tool):
    with bridge.torch.ops():
        train_cnn(cnn())
    assert tool.parents("aten::addmm") == {("aten::linear",)}
    assert tool.parents("aten::convolution") == {("aten::conv2d",)}
    assert tool.parents("aten::native_batch_norm") == {("aten::batch_norm",)}
    assert tool.parents("aten::mm") == {("AddmmBackward0",)}
    assert tool.all_closed()


def test_a_node_is_one_call_in_each_pass(tool):
    x = torch.ones(2, 2, requires_grad=True)
    y = (x @ x).sum()
    with bridge.torch.ops():
        y.backward(retain_graph=True)
        y.backward()
    assert tool.calls()["MmBackward0"] == 2
    assert tool.calls()["torch::autograd::AccumulateGrad"] == 2


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_no_op_has_two_ranges_where_nothing_is_differentiated(tool, mode):
    model = transformer().eval()
    with mode(), bridge.torch.ops():
        loss_of(model)
    assert tool.calls()["aten::linear"] == 9
    assert not any(p[-1:] == ("aten::linear",) for p in tool.parents("aten::linear"))


def test_what_only_asks_is_no_op():
    tensor = torch.Tensor
    for function in (tensor.dim, tensor.size, tensor.to, tensor.contiguous, tensor.add, len):
        assert composite.composite_name(function) is None
    assert composite.composite_name(tensor.matmul) == "aten::matmul"
    assert composite.composite_name(nn.functional.linear) == "aten::linear"
    assert composite.composite_name(nn.functional.dropout, in_place=True) == "aten::dropout_"


def test_a_composite_op_that_fails_is_closed(tool):
    with bridge.torch.ops():
        with pytest.raises(RuntimeError, match="mat1 and mat2"):
            nn.functional.linear(torch.ones(2, 3), torch.ones(2, 4))
        assert tool.all_closed()


def test_composite_ops_have_shapes():
    with bridge.profile(level=0) as session, bridge.torch.ops(shapes=True, flops="auto"):
        nn.functional.linear(torch.ones(2, 3), torch.ones(4, 3))
    rows = session.by("range", arguments=True).set_index("name")
    assert rows.loc["aten::linear", "shapes"] == "[[2, 3], [4, 3]]"
    assert rows.loc["aten::linear", "output_shapes"] == "[[2, 4]]"
    table = session.by("op", columns="flops").set_index("op")
    assert table["flop_once"].sum() == 2 * 2 * 3 * 4  # the op and what it consists of count once


# -- PyTorch's own ranges, on GPUs; here the observer of another tool stands for them, which needs no GPU


@pytest.fixture
def on_gpu(tool, monkeypatch):
    log = []
    monkeypatch.setattr(native, "STATE", ProfilerState.ITT)
    monkeypatch.setattr(native, "has_gpu", lambda: True)
    monkeypatch.setattr(sys.modules["bridge.frameworks.torch.ops"], "has_gpu", lambda: True)
    monkeypatch.setattr(torch.cuda, "_lazy_call", lambda begin: begin())
    monkeypatch.setattr(state, "attached", True)
    for name, word in (("_enable_profiler", "on"), ("_disable_profiler", "off")):
        monkeypatch.setattr(native, name, logged(log, word, getattr(native, name)))
    return log


def logged(log, word, function):
    def call(*args):
        log.append(word)
        return function(*args)

    return call


def test_a_tool_on_a_gpu_gets_pytorchs_ranges(on_gpu, tool):
    with bridge.torch.ops(shapes="text"):
        assert torch.autograd._profiler_enabled()
        torch.ones(2)
    assert on_gpu == ["on", "off"]
    assert tool.names() == []
    assert not torch.autograd._profiler_enabled()


@pytest.mark.parametrize("options", [{"shapes": True}, {"flops": "auto"}])
def test_details_need_the_modes(on_gpu, tool, monkeypatch, options):
    monkeypatch.setattr("bridge.annotate.details.recordings", list)
    with bridge.torch.ops(**options):
        torch.ones(2)
    assert on_gpu == []
    assert tool.names() == ["aten::ones"]


def test_several_plain_requests_share_pytorchs_ranges(on_gpu, tool):
    outer = bridge.torch.ops()
    outer.enable()
    with bridge.torch.ops():
        outer.disable()
        torch.ones(2)
    assert on_gpu == ["on", "off"]
    with bridge.torch.auto(), bridge.torch.ops(shapes="text"):
        torch.ones(2)
    assert on_gpu == ["on", "off"] * 2
    assert tool.names() == []


def test_no_op_has_a_range_of_pytorch_and_one_of_a_mode(on_gpu, tool, monkeypatch):
    monkeypatch.setattr("bridge.annotate.details.recordings", list)
    with bridge.torch.auto():
        with bridge.torch.ops(shapes=True):
            assert on_gpu == ["on", "off"]
            torch.ones(2)
        assert on_gpu == ["on", "off", "on"]
        torch.zeros(2)  # a range of PyTorch, for the other block
    assert on_gpu == ["on", "off"] * 2
    assert tool.names() == ["aten::ones"]


def test_ops_that_are_not_requested_have_no_mode(tool):
    with bridge.torch.auto():
        torch.ones(2)
        assert _get_current_dispatch_mode() is _get_current_function_mode() is None
    assert tool.names() == []


def test_pytorchs_ranges_begin_when_the_program_initializes_cuda(on_gpu, monkeypatch):
    queued = []
    monkeypatch.setattr(torch.cuda, "_lazy_call", queued.append)
    with bridge.torch.auto():
        assert on_gpu == []
        queued.pop()()
        assert on_gpu == ["on"]
    with bridge.torch.auto():
        pass
    queued.pop()()  # too late
    assert on_gpu == ["on", "off"]


PROFILERS = {
    "profiler": lambda: torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]),
    "autograd": torch.autograd.profiler.profile,
    "itt": torch.autograd.profiler.emit_itt,
}


@pytest.mark.parametrize("kind", PROFILERS)
def test_pytorchs_ranges_step_aside_for_a_profiler_of_the_program(on_gpu, kind):
    def counts(profiler):
        with profiler as running:
            nn.functional.linear(torch.ones(2, 3), torch.ones(2, 3))
        events = running.key_averages() if kind != "itt" else ()
        return {event.key: event.count for event in events}

    expected = counts(PROFILERS[kind]())
    with bridge.torch.auto():
        assert counts(PROFILERS[kind]()) == expected
        assert on_gpu == ["on", "off", "on"]
        assert torch.autograd._profiler_enabled()
    assert on_gpu == ["on", "off"] * 2
    assert not torch.autograd._profiler_enabled()


def test_a_profiler_that_runs_already_is_waited_for(on_gpu):
    profiler = PROFILERS["profiler"]()
    with profiler:
        block = bridge.torch.auto()
        block.__enter__()
        torch.ones(2)
        assert on_gpu == []
    assert on_gpu == ["on"]
    assert {event.key for event in profiler.key_averages()} >= {"aten::ones"}
    block.__exit__(None, None, None)
    assert on_gpu == ["on", "off"]


def test_a_profiler_that_fails_to_start_leaves_pytorchs_ranges(on_gpu):
    with bridge.torch.auto():
        with pytest.raises((RuntimeError, AssertionError)):  # PyTorch without CUDA
            torch.autograd.profiler.emit_nvtx().__enter__()
        assert torch.autograd._profiler_enabled()
        assert on_gpu == ["on", "off", "on"]


class OwnDispatchMode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class OwnFunctionMode(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [OwnDispatchMode, OwnFunctionMode])
def test_modes_of_the_program_between_two_blocks_are_left_as_they_were(
    on_gpu, tool, monkeypatch, mode
):
    monkeypatch.setattr("bridge.annotate.details.recordings", list)
    with bridge.torch.ops():
        with mode(), bridge.torch.ops(shapes=True):
            torch.ones(2)
        assert _get_current_dispatch_mode() is None
        assert _get_current_function_mode() is None
    assert on_gpu == ["on", "off"] * 2
    assert tool.names() == ["aten::ones"]


def test_what_another_thread_ends_is_left_by_its_own(on_gpu, tool):
    ops = bridge.torch.ops()
    ops.enable()
    with ThreadPoolExecutor() as pool:
        pool.submit(ops.disable).result()
    assert on_gpu == ["on"]
    ops.enable()
    ops.disable()
    assert on_gpu == ["on", "off", "on", "off"]
