"""On a real GPU: medians within 3 % of Triton's, for a matmul, a convolution and an attention."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from bridge import bench  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that PyTorch can use"),
]


def half(*shape):
    return torch.randn(shape, device="cuda", dtype=torch.float16)


def cases():
    functional = torch.nn.functional
    return {
        "matmul": (torch.matmul, (half(4096, 4096), half(4096, 4096))),
        "conv2d": (functional.conv2d, (half(32, 128, 56, 56), half(128, 128, 3, 3))),
        "attention": (functional.scaled_dot_product_attention, (half(8, 16, 2048, 64),) * 3),
    }


@pytest.mark.parametrize("case", ["matmul", "conv2d", "attention"])
def test_medians_are_those_of_triton(case):
    testing = pytest.importorskip("triton.testing", reason="Triton is not installed")
    function, inputs = cases()[case]

    def difference() -> float:
        ours = bench.op(function, *inputs, cold=True, runs=100, warmup=25, cache=False)
        theirs = testing.do_bench(lambda: function(*inputs), return_mode="median") * 1e6
        return abs(ours.median / theirs - 1)

    assert min(difference() for _ in range(3)) < 0.03


def test_both_clocks_agree():
    from importlib import import_module

    from bridge.bench.devices.cuda import CudaPython

    # PyTorch issues on its current stream, here the default one.
    device = CudaPython(import_module("cuda.bindings.runtime"))
    function, inputs = cases()["matmul"]
    one = bench.op(function, *inputs, runs=50, cache=False)
    other = bench.op(function, *inputs, runs=50, cache=False, device=device)
    assert abs(one.median / other.median - 1) < 0.05


def test_a_graph_is_faster_where_launches_are_most():
    x = half(16)
    plain = bench.op(torch.add, x, x, cache=False)
    graph = bench.op(torch.add, x, x, graph=True, cache=False)
    assert graph.median < plain.median


def test_workspace_and_streams():
    x = half(1024, 1024)
    found = bench.op(lambda a: (a + 1).sum(), x, cache=False)
    assert found.workspace >= 2 * 1024 * 1024
    group = bench.group(
        [(torch.matmul, (x, x)), (torch.matmul, (x, x))], streams=[0, 1], cache=False
    )
    assert group.whole.median <= 1.2 * sum(op.median for op in group)


def test_a_backward_pass():
    found = bench.op(torch.matmul, half(512, 512), half(512, 512), backward=True, cache=False)
    assert found.name == "matmul backward" or found.name.endswith(" backward")
    assert found.clock == "cuda events by torch"
