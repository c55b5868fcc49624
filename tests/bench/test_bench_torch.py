"""Benchmarks of PyTorch's functions, on the CPU."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from bridge import bench  # noqa: E402
from bridge.bench import sweep  # noqa: E402
from bridge.bench.devices.base import BenchError  # noqa: E402


def test_the_forward_pass():
    a, b = torch.ones(8, 16), torch.ones(16, 4)
    found = bench.op(torch.mm, a, b)
    assert (found.inputs, found.flops) == ("float32[8, 16] float32[16, 4]", 2 * 8 * 16 * 4)
    assert found.bytes == 4 * (8 * 16 + 16 * 4 + 8 * 4)
    assert found.device == "cpu"


def test_the_backward_pass_alone():
    forwards = []

    def op(a, b):
        forwards.append(1)
        return (a @ b).relu()

    a, b = torch.ones(8, 16), torch.ones(16, 4)
    found = bench.op(op, a, b, backward=True)
    assert found.name.endswith("op backward")
    assert len(forwards) == 1
    assert found.inputs == "float32[8, 16] float32[16, 4]"
    assert (a.requires_grad, a.grad) == (False, None)


def test_gradients_are_of_those_that_want_one_and_of_parameters():
    asked = []
    real = torch.autograd.grad

    def grad(outputs, leaves, *more, **named):
        asked.append([tuple(leaf.shape) for leaf in leaves])
        return real(outputs, leaves, *more, **named)

    layer, x = torch.nn.Linear(3, 2), torch.ones(5, 3, requires_grad=True)
    torch.autograd.grad = grad
    try:
        bench.op(layer, x, backward=True, runs=1, number=1)
    finally:
        torch.autograd.grad = real
    assert asked[0] == [(5, 3), (2, 3), (2,)]
    assert layer.weight.grad is None


def test_what_has_no_gradient():
    with pytest.raises(ValueError, match="no backward pass"):
        bench.op(torch.argmax, torch.ones(3), backward=True)


def test_inputs_are_made():
    [floats, integers, truth] = sweep.make_inputs(
        [(2, 3), (4,), ()], ["bfloat16", "int64", "bool"], "torch", "cpu"
    )
    assert (floats.dtype, tuple(floats.shape)) == (torch.bfloat16, (2, 3))
    assert integers.max() < 10
    assert (truth.dtype, truth.dim()) == (torch.bool, 0)
    again = sweep.make_inputs([(2, 3)], ["bfloat16"], "torch", "cpu")[0]
    assert torch.equal(floats, again)
    assert (
        sweep.array_library("x.py::f", test_inputs_are_made) == "torch"
    )  # which this file imports
    assert sweep.array_library("x.py::f", sweep.array_library) == "numpy"
    assert sweep.array_library("torch.nn.functional::gelu", torch.nn.functional.gelu) == "torch"
    with pytest.raises(ValueError, match="--dtype float33"):
        sweep.make_inputs([(2,)], ["float33"], "torch", "cpu")


def test_a_gpu_that_is_not_there():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(BenchError, match="float32 2: "):
        sweep.make_inputs([(2,)], ["float32"], "torch", "cuda")
    with pytest.raises(ValueError, match=r"no GPU can be used|no PyTorch with CUDA"):
        bench.op(torch.mm, torch.ones(2, 2), torch.ones(2, 2), device="cuda")
