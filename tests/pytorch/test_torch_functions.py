"""Ranges around functions and tensor methods, the watch of tensors, and receptive fields."""

from __future__ import annotations

from collections import Counter

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

import bridge  # noqa: E402
from bridge.frameworks.torch.tensors import TensorWatch  # noqa: E402

pytestmark = pytest.mark.slow


def ops(session):
    """Count the calls of each op, without those below autograd."""
    table = session.by("op")
    calls = zip(table["op"], table["calls"], strict=True)
    return {op: count for op, count in calls if not op.startswith("aten::")}


def test_functions_and_methods_of_tensors_have_ranges():
    x = torch.ones(2, 3)
    with bridge.profile() as session:
        with bridge.torch.annotate(functional=True, tensor_methods=True):
            y = F.relu(x) + 1
            torch.matmul(y, y.t())
            torch.linalg.norm(x)
            assert y.shape == (2, 3)
            repr(y)
        F.relu(x)
    assert ops(session) == {
        "functional:relu": 1, "tensor_method:add": 1, "functional:matmul": 1, "tensor_method:t": 1, "functional:linalg.norm": 1,
    }  # fmt: skip


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 2)

    def forward(self, x):
        return F.gelu(self.first(x)).sum()


def test_modules_functions_and_tensor_methods():
    model = Small()
    with bridge.profile(level=0) as session:
        with bridge.torch.annotate(model, functional=True, tensor_methods=True):
            model(torch.ones(1, 3))
        model(torch.ones(1, 3))
    assert Counter(session.by("range")["path"]) == {
        "functional:ones": 1,
        "module:Small": 1,
        "module:Small/module:Small.first": 1,
        "module:Small/module:Small.first/functional:linear": 1,
        "module:Small/functional:gelu": 1,
        "module:Small/tensor_method:sum": 1,
    }


def test_only_what_is_requested():
    with bridge.profile() as session:
        with bridge.torch.functions(tensor_methods=False):
            torch.ones(3).sum()
        with bridge.torch.functions(functional=False):
            torch.ones(3).sum()
    assert ops(session) == {"functional:ones": 1, "tensor_method:sum": 1}
    with pytest.raises(ValueError, match="functional, tensor_methods or both"):
        bridge.torch.functions(functional=False, tensor_methods=False)
    with pytest.raises(TypeError, match="annotate takes"):
        bridge.torch.annotate()


def test_nothing_is_replaced_and_a_failure_closes_the_range():
    methods = dict(vars(torch.Tensor))
    functions = dict(vars(F))
    with bridge.profile() as session:
        annotation = bridge.torch.annotate(nn.ReLU(), functional=True, tensor_methods=True)
        assert dict(vars(F)) == functions
        with pytest.raises(RuntimeError):
            torch.ones(2) @ torch.ones(3)
        torch.ones(1)
        annotation.remove()
        annotation.remove()
        torch.zeros(1)
    assert dict(vars(torch.Tensor)) == methods
    assert ops(session) == {"functional:ones": 3, "tensor_method:matmul": 1}
    paths = session.by("range")
    assert not [p for p in paths["path"] if "matmul/functional" in p]


def test_a_second_one_records_no_call_twice():
    with bridge.profile() as session, bridge.torch.functions(), bridge.torch.functions():
        torch.ones(2)
    assert ops(session) == {"functional:ones": 1}


def test_the_memory_of_tensors_from_op_to_release():
    parameter = torch.ones(4, 4)
    watch = TensorWatch(stacks=True)
    watch.begin()
    a = parameter * 2
    view = a[0]
    del a  # the view keeps the memory
    b = view + 1
    del view
    watch.finish()
    torch.ones(9)
    (held, first, second) = watch.memory
    assert [(m.op, m.bytes, m.device) for m in (held, first, second)] == [
        ("", 64, "cpu"), ("aten::mul", 64, "cpu"), ("aten::add", 16, "cpu"),
    ]  # fmt: skip
    assert held.end == second.end == -1
    assert first.start < second.start < first.end
    assert first.address != parameter.data_ptr()
    assert b.data_ptr() == second.address
    assert all("test_the_memory_of_tensors" in stack.frames[0] for stack in watch.calls)


def brute_field(layers, length):
    """The receptive field by its definition: which input elements change the middle of the output."""
    model = nn.Sequential(*layers).eval()
    x = torch.zeros(1, 1, 1, length, requires_grad=True)
    for parameter in model.parameters():
        nn.init.ones_(parameter)
    out = model(x)
    out[0, 0, 0, out.shape[3] // 2].backward()
    touched = x.grad[0, 0, 0].nonzero().flatten().tolist()
    return touched[-1] - touched[0] + 1


def wide(kernel, **options):
    """A convolution along the last dimension."""
    return nn.Conv2d(1, 1, (1, kernel), **options)


@pytest.mark.parametrize(
    ("layers", "expected", "stride"),
    [
        ([wide(3), wide(3, dilation=(1, 2))], 7, 1),
        ([wide(7, stride=(1, 2)), nn.ReLU(), nn.AvgPool2d((1, 3), (1, 2)), wide(3)], 19, 4),
    ],
)
def test_receptive_fields(layers, expected, stride):
    stats = bridge.torch.model_stats(nn.Sequential(*layers), torch.zeros(1, 1, 1, 65))
    assert stats.modules[0].receptive_field == f"1x{expected}"
    assert stats.modules[0].stride == f"1x{stride}"
    assert brute_field(layers, 65) == expected


def test_the_receptive_field_is_unknown_through_other_ops():
    model = nn.Sequential(
        nn.Conv2d(1, 1, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1, 1)
    )
    stats = bridge.torch.model_stats(model, torch.zeros(1, 1, 8, 8))
    assert [m.receptive_field for m in stats.modules] == ["", "3x3", "", "", ""]
    assert stats.modules[1].stride == "1x1"
    assert {"input", "receptive_field", "stride"} <= set(stats.to_frame().columns)
