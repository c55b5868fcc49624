"""Against PyTorch: the FLOPs that its FlopCounterMode has a formula for, and the shapes that come out of its ops."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bridge.knowledge.formulas import Call, bytes_moved, flops

nn = pytest.importorskip("torch.nn", reason="PyTorch is not installed")

import torch  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode, flop_registry  # noqa: E402


def shape(value):
    return tuple(value.shape) if isinstance(value, torch.Tensor) else None


def dtype(value):
    return str(value.dtype) if isinstance(value, torch.Tensor) else ""


def flat(values):
    for value in values:
        if isinstance(value, list | tuple) and any(isinstance(x, torch.Tensor) for x in value):
            yield from value
        else:
            yield value


class Calls(TorchDispatchMode):
    """Note every op that is called, and what PyTorch's own formula says of it."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        made = out if isinstance(out, list | tuple) else (out,)
        said = {str(place): value for place, value in enumerate(args) if shape(value) is None}
        given = list(flat(args))
        call = Call(
            func.name(),
            tuple(map(shape, given)),
            tuple(map(dtype, given)),
            {**said, **(kwargs or {})},
            tuple(map(shape, made)),
            tuple(map(dtype, made)),
        )
        theirs = flop_registry.get(func.overloadpacket)
        count = theirs and theirs(*args, **(kwargs or {}), out_val=out)
        self.found.append((call, count))
        return out


def calls(function, *tensors):
    with Calls() as mode:
        function(*tensors)
    return mode.found


def meta(*lengths, **more):
    return torch.empty(*lengths, device="meta", **more)


def alone(call):
    """Return the call as it is known before it was made."""
    return call._replace(outputs=(), output_dtypes=())


a, b, c = meta(4, 5), meta(5, 6), meta(2, 4, 5)
x, w = meta(2, 4, 9, 9), meta(6, 4, 3, 3)
q = meta(2, 4, 7, 8)


@pytest.mark.parametrize(
    "function",
    [
        lambda: a @ b,
        lambda: torch.addmm(meta(6), a, b),
        lambda: F.linear(c, meta(3, 5), meta(3)),
        lambda: torch.bmm(c, meta(2, 5, 3)),
        lambda: torch.baddbmm(meta(2, 4, 3), c, meta(2, 5, 3)),
        lambda: torch.einsum("bij,bkj->bik", c, meta(2, 3, 5)),
        lambda: torch.matmul(meta(3, 1, 4, 5), meta(2, 5, 6)),
        lambda: torch.tensordot(c, meta(4, 5, 7), 2),
        lambda: F.conv2d(x, w, meta(6), stride=2, padding=1),
        lambda: F.conv2d(x, w, padding="same"),
        lambda: F.conv2d(x, meta(8, 1, 3, 3), groups=4),
        lambda: F.conv_transpose2d(x, meta(4, 3, 3, 3), stride=2, output_padding=1),
        lambda: F.conv_transpose1d(meta(2, 4, 9), meta(4, 3, 3), groups=2, dilation=2),
        lambda: F.conv3d(meta(1, 2, 5, 5, 5), meta(4, 2, 3, 3, 3)),
        lambda: torch.ops.aten._scaled_dot_product_flash_attention(q, q, q),
        lambda: torch.ops.aten._scaled_dot_product_efficient_attention(q, q, q, None, False),
    ],
)
def test_it_counts_as_flopcountermode_does(function):
    counted = [(call, count) for call, count in calls(function) if count is not None]
    assert counted
    for call, count in counted:
        assert flops(call) == flops(alone(call)) == count > 0


def test_whole_ops_count_what_pytorch_makes_of_them():
    q, k, v = meta(2, 4, 7, 8), meta(2, 4, 9, 8), meta(2, 4, 9, 8)
    for name, function, tensors in [
        ("matmul", torch.matmul, (meta(3, 1, 4, 5), meta(2, 5, 6))),
        ("linear", F.linear, (c, meta(3, 5))),
        ("scaled_dot_product_attention", F.scaled_dot_product_attention, (q, k, v)),
        ("lstm", nn.LSTM(5, 4, device="meta"), (meta(7, 2, 5),)),
        ("conv1d", F.conv1d, (meta(4, 9), meta(6, 4, 3))),
    ]:
        weights = tuple(function.parameters()) if isinstance(function, nn.Module) else ()
        with FlopCounterMode(display=False) as theirs:
            function(*tensors)
        ours = flops(Call(name, tuple(map(shape, (*tensors, *weights)))))
        assert ours == theirs.get_total_flops() > 0, name


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_the_backward_pass_of_a_convolution(groups, transposed):
    """Of groups FlopCounterMode counts the gradient of the weight ``groups`` times."""
    kind = nn.ConvTranspose2d if transposed else nn.Conv2d
    model = kind(4, 8, 3, stride=2, groups=groups, device="meta")
    x = meta(2, 4, 9, 9, requires_grad=True)
    found = calls(lambda: model(x).sum().backward())
    [(forward, one)] = [pair for pair in found if pair[0].name.startswith("aten::convolution")][:1]
    [(back, theirs)] = [pair for pair in found if "convolution_backward" in pair[0].name]
    assert flops(forward) == one
    assert flops(back) == flops(alone(back)) == 2 * one
    assert theirs == (1 + groups) * one
    sizes = tuple(size or () for size in back.shapes)  # as PyTorch's own ranges have it
    assert flops(Call(back.name, sizes)) == 2 * one


def test_a_gradient_that_is_not_asked_for():
    model = nn.Conv2d(4, 8, 3, device="meta")
    found = calls(lambda: model(meta(2, 4, 9, 9)).sum().backward())
    [(back, theirs)] = [pair for pair in found if "convolution_backward" in pair[0].name]
    assert flops(back) == flops(alone(back)) == theirs > 0


@pytest.mark.parametrize("heads", [4, 2])
def test_the_backward_pass_of_attention(heads):
    q, k, v = (meta(2, number, length, 8) for number, length in ((4, 7), (heads, 9), (heads, 9)))
    gradient, lse = meta(2, 4, 7, 8), meta(2, 4, 7)
    name = "_scaled_dot_product_flash_attention_backward"
    theirs = flop_registry[getattr(torch.ops.aten, name)]
    sizes = tuple(map(shape, (gradient, q, k, v, gradient, lse)))
    assert flops(Call(f"aten::{name}", sizes)) == theirs(gradient, q, k, v) > 0


def test_heads_that_stand_last():
    """FlopCounterMode takes the heads of these for the sequence; the count is that of the same attention."""
    q, flash = meta(2, 7, 4, 8), torch.ops.aten._flash_attention_forward
    [(call, theirs)] = calls(lambda: flash(q, q, q, None, None, 7, 7, 0.0, False, False))
    same = Call("scaled_dot_product_attention", ((2, 4, 7, 8),) * 3)
    assert flops(call) == flops(same) == 4 * (2 * 4 * 7 * 7 * 8)
    assert theirs == 4 * (2 * 7 * 4 * 4 * 8)


@given(st.data())
def test_windows_slide_as_in_pytorch(data):
    def some(low, high):
        return data.draw(st.integers(low, high))

    def pair(low, high):
        return [some(low, high), some(low, high)]

    x, kernel = meta(2, 4, some(1, 9), some(1, 9)), pair(1, 3)
    sliding = [pair(1, 3), pair(0, 1), pair(1, 2)]
    groups = data.draw(st.sampled_from([1, 2, 4]))
    function = data.draw(st.sampled_from(["conv", "up", "max", "avg"]))
    up = data.draw(st.booleans())
    run = {
        "conv": lambda: F.conv2d(x, meta(8, 4 // groups, *kernel), None, *sliding, groups),
        "up": lambda: F.conv_transpose2d(
            x, meta(4, 2, *kernel), None, *sliding[:2], 0, groups, sliding[2]
        ),
        "max": lambda: F.max_pool2d(x, kernel, *sliding, ceil_mode=up),
        "avg": lambda: F.avg_pool2d(x, kernel, *sliding[:2], ceil_mode=up),
    }[function]
    try:
        call, count = calls(run)[-1]
    except RuntimeError:
        assume(False)
    assert flops(call) == flops(alone(call)) is not None
    assert count in (None, flops(call))
    assert bytes_moved(call._replace(outputs=call.outputs[:1], output_dtypes=call.output_dtypes[:1])) == bytes_moved(alone(call))  # fmt: skip


def test_what_is_derived_is_what_comes_out():
    """Ops of a model, forward and backward: bytes by the first output, recorded or derived, are the same."""
    model = nn.Sequential(
        nn.Embedding(20, 8), nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU(), nn.Softmax(-1), nn.SiLU()
    ).to("meta")
    words = torch.empty(3, 5, dtype=torch.int64, device="meta")
    found = calls(lambda: model(words).mean(dim=1, keepdim=True).sum().backward())
    checked = set()
    for call, _ in found:
        derived = bytes_moved(alone(call))
        if derived is not None and flops(call) is not None and len(call.outputs) == 1:
            assert bytes_moved(call) == derived, call
            checked.add(call.name.split("::")[1].partition(".")[0])
    assert checked >= {"embedding", "addmm", "gelu", "_softmax", "silu", "mean", "sum", "mm"}
    assert checked >= {"embedding_dense_backward", "gelu_backward", "silu_backward"}


def test_every_op_of_a_small_model_is_known():
    model = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, device="meta")
    found = calls(lambda: model(meta(2, 5, 16)).sum().backward())
    assert {call.name for call, _ in found if flops(call) is None} == set()
    convolutional = nn.Sequential(
        nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    ).to("meta")
    found = calls(lambda: convolutional(meta(2, 3, 9, 9)).sum().backward())
    assert {call.name for call, _ in found if flops(call) is None} == set()
