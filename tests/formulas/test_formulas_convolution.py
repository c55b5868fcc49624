"""Convolutions count the multiply-adds that nested loops make, in every form that a call has."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.knowledge.formulas import Call, bytes_moved, flops


class Convolution(NamedTuple):
    batch: int
    groups: int
    wide: int  # input channels of a group
    made: int  # output channels of a group
    lengths: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: int
    padding: int
    dilation: int

    @property
    def input(self):
        return (self.batch, self.groups * self.wide, *self.lengths)

    @property
    def weight(self):
        return (self.groups * self.made, self.wide, *self.kernel)

    @property
    def output(self):
        return (self.batch, self.groups * self.made, *map(len, map(list, self.starts())))

    def starts(self):
        """Give, for each axis, where a window can begin; the padding is in."""
        for size, kernel in zip(self.lengths, self.kernel, strict=True):
            last = size + 2 * self.padding - self.dilation * (kernel - 1) - 1
            yield range(0, last + 1, self.stride)

    def loops(self):
        """Convolve; count the multiply-adds."""
        done = 0
        for _image, _group in product(range(self.batch), range(self.groups)):
            for _made, _wide in product(range(self.made), range(self.wide)):
                for _start in product(*self.starts()):
                    for _tap in product(*map(range, self.kernel)):
                        done += 1
        return done

    @property
    def sliding(self):
        return {"stride": self.stride, "padding": self.padding, "dilation": self.dilation}

    def backward(self, name="aten::convolution_backward", **arguments):
        shapes = (self.output, self.input, self.weight)
        arguments = {"transposed": False, **arguments}
        return flops(Call(name, shapes, arguments=arguments))


@st.composite
def convolutions(draw):
    small = st.integers(1, 2)
    axes = draw(st.integers(1, 2))
    kernel = tuple(draw(st.integers(1, 3)) for _ in range(axes))
    dilation = draw(small)
    lengths = tuple(draw(st.integers(dilation * (size - 1) + 1, 6)) for size in kernel)
    channels = (draw(small) for _ in range(4))
    return Convolution(*channels, lengths, kernel, draw(small), draw(st.integers(0, 2)), dilation)


@pytest.mark.slow
@given(convolutions())
def test_forward_and_backward_against_loops(conv):
    expected = 2 * conv.loops()
    name = f"aten::conv{len(conv.kernel)}d"
    call = Call(name, (conv.input, conv.weight, None), arguments=conv.sliding)
    assert flops(call) == expected
    assert flops(Call(name, (conv.input, conv.weight), outputs=(conv.output,))) == expected
    assert conv.backward() == 2 * expected  # also where it is grouped
    assert conv.backward(output_mask=[True, False, False]) == expected
    assert conv.backward(output_mask=[False, True, True]) == expected
    assert conv.backward(output_mask=[False, False, True]) == 0


@pytest.mark.slow
@given(convolutions())
def test_transposed_is_the_gradient_of_the_input(conv):
    """A transposed convolution does what the backward pass does to the gradient of the output."""
    name = f"aten::conv_transpose{len(conv.kernel)}d"
    call = Call(name, (conv.output, conv.weight), arguments={**conv.sliding, "groups": conv.groups})
    assert flops(call) == 2 * conv.loops()
    moved = bytes_moved(call._replace(dtypes=("float16",) * 2))
    more = [  # what the stride leaves over is output_padding
        (size + 2 * conv.padding - conv.dilation * (kernel - 1) - 1) % conv.stride
        for size, kernel in zip(conv.lengths, conv.kernel, strict=True)
    ]
    arguments = {**call.arguments, "output_padding": more}
    whole = bytes_moved(call._replace(arguments=arguments, dtypes=("float16",) * 2))
    assert whole == 2 * (prod(conv.output) + prod(conv.weight) + prod(conv.input))
    assert moved <= whole
    general = arguments | {"transposed": True}
    assert flops(Call("convolution", call.shapes, arguments=general)) == 2 * conv.loops()


@pytest.mark.slow
@given(convolutions())
def test_groups_divide_the_work(conv):
    whole = conv._replace(groups=1, wide=conv.groups * conv.wide, made=conv.groups * conv.made)
    grouped = Call("conv", (conv.input, conv.weight), outputs=(conv.output,))
    name = f"conv{len(conv.kernel)}d"
    ungrouped = grouped._replace(shapes=(whole.input, whole.weight))
    assert flops(grouped._replace(name=name)) * conv.groups == flops(ungrouped._replace(name=name))
    assert whole.backward() == conv.backward() * conv.groups


X, W = (2, 3, 8, 8), (5, 3, 3, 3)
ONE = 2 * 2 * 5 * 3 * 3 * 3  # FLOPs of one position, both images


@pytest.mark.parametrize(
    ("shapes", "arguments", "positions"),
    [
        ((X, W), {}, 36),
        ((X, W, (5,)), {"padding": 1}, 64),
        ((X, W, None, None, None), {"3": 2, "4": [1, 1]}, 16),
        ((X, W), {"padding": "same"}, 64),
        ((X, W), {"padding": "SAME", "stride": 3}, 9),
        ((X, W), {"padding": "valid"}, 36),
        ((X, W), {"dilation": (3, 1)}, 2 * 6),
    ],
)
def test_what_slides_is_read_from_the_arguments(shapes, arguments, positions):
    assert flops(Call("torch.nn.functional.conv2d", shapes, arguments=arguments)) == ONE * positions


def test_one_image_without_a_batch():
    assert flops(Call("conv2d", (X[1:], W))) == ONE * 36 // 2


@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("convolution", {"3": [2, 2], "4": [1, 1], "5": [1, 1], "6": False}),
        ("cudnn_convolution", {"2": [1, 1], "3": [2, 2], "4": [1, 1]}),
        ("mkldnn_convolution", {"3": [1, 1], "4": [2, 2], "5": [1, 1]}),
        ("_slow_conv2d_forward", {"2": [3, 3], "4": [2, 2], "5": [1, 1]}),
    ],
)
def test_each_signature_has_an_order_of_its_own(name, places):
    shapes = (X, W, *(None,) * 5)
    known = {str(place): 1 for place in range(6, 9)} | places
    assert flops(Call(f"aten::{name}", shapes, arguments=known)) == ONE * 16


def test_without_its_arguments_a_recorded_call_has_no_count():
    """PyTorch records sizes alone: that a stride was given, and not which."""
    recorded = (X, W, (5,), (), (), (), ())
    assert flops(Call("aten::conv2d", recorded)) is None
    assert flops(Call("aten::conv2d", recorded, outputs=((2, 5, 4, 4),))) == ONE * 16
    assert flops(Call("aten::convolution", (*recorded, (), ()))) is None
    transposed = Call("aten::conv_transpose2d", ((2, 5, 4, 4), W, (), (), (), (), (), ()))
    assert flops(transposed) == ONE * 16  # of which only the input's positions count


def test_a_recorded_backward_pass_is_counted_by_its_sizes():
    rest = ((),) * 8
    strided = Call("aten::convolution_backward", ((2, 5, 4, 4), X, W, *rest))
    assert flops(strided) == 2 * ONE * 16
    transposed = Call("aten::convolution_backward", (X, (2, 5, 4, 4), W, *rest))
    assert flops(transposed) == 2 * ONE * 16
    square = (4, 4, 3, 3)  # as many channels on either side: the size tells
    one, other = (2, 4, 8, 8), (2, 4, 4, 4)
    for shapes in ((other, one, square), (one, other, square)):
        call = Call("aten::convolution_backward", (*shapes, *rest))
        assert flops(call) == 2 * 2 * prod(other[2:]) * 2 * prod(square)


def test_gradients_that_came_out_were_asked_for():
    call = Call("convolution_backward", ((2, 5, 6, 6), X, W), outputs=(None, W, (5,)))
    assert flops(call) == 2 * ONE * 36
    recorded = call._replace(shapes=(*call.shapes, *((),) * 8))
    assert flops(recorded) == ONE * 36


@pytest.mark.parametrize(
    ("name", "shapes", "arguments"),
    [
        ("conv2d", (X, (5, 2, 3, 3)), {}),  # 3 channels are not of groups of 2
        ("conv2d", (X, (5, 0, 3, 3)), {}),
        ("conv2d", ((2, 4, 8, 8), (5, 2, 3, 3)), {}),  # 5 are not of 2 groups
        ("convolution", (X, W, *(None,) * 5), {"3": 1, "4": 0, "5": 1}),  # transposed?
        ("conv1d", (X, W), {}),
        ("conv2d", ((8, 8), W), {}),
        ("conv2d", (X, (5, 3, 9, 9)), {}),  # larger than the image
        ("conv2d", (X, W), {"stride": 0}),
        ("conv2d", (X, W), {"stride": (1, 1, 1)}),
        ("conv2d", (X, W), {"padding": "reflect"}),
        ("conv2d", (X,), {}),
        ("conv2d", (X, None), {}),
        ("conv_transpose2d", (X, W), {}),
        ("convolution_backward", (X, W, W), {"transposed": False}),
        ("convolution_backward", ((2, 5, 6, 6), X, W), {"output_mask": [True]}),
    ],
)
def test_what_is_no_convolution_has_no_count(name, shapes, arguments):
    assert flops(Call(name, shapes, arguments=arguments)) is None


def test_an_output_that_does_not_fit_has_no_count():
    assert flops(Call("conv2d", (X, W), outputs=((2, 4, 6, 6),))) is None
    assert flops(Call("conv2d", (X, W), outputs=((3, 5, 6, 6),))) is None


def test_what_comes_out_is_never_less_than_nothing():
    call = Call("conv_transpose1d", ((1, 8, 1), (8, 1, 1)), ("float32",) * 2, {"padding": 3})
    assert bytes_moved(call) is None
