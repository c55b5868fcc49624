"""What is asked of any call: a number that is right by hand, or None, and never an exception."""

from __future__ import annotations

import subprocess
import sys
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.knowledge.formulas import Call, bytes_moved, flops, formula, register, table

Q, K, V = (2, 4, 5, 8), (2, 4, 6, 8), (2, 4, 6, 3)


def count(name, *shapes, **arguments):
    return flops(Call(name, shapes, arguments=arguments))


@pytest.fixture
def own(monkeypatch):
    """Forget at the end what the test registers."""
    monkeypatch.setattr(table, "_registered", {})


# -- names


@pytest.mark.parametrize(
    "name",
    [
        *("mm", "aten::mm", "aten.mm", "aten.mm.default", "torch.ops.aten.mm.default", "torch.mm"),
        *("torch.ops.mine.mm.default", "mine::mm", "Model.attention.mm", "aten::mm.out", "cupy.mm"),
    ],
)
def test_an_op_is_known_by_its_own_name(name):
    assert count(name, (2, 3), (3, 4)) == 48


@pytest.mark.parametrize(
    "name", ["aten::add_", "add", "aten::add.Tensor", "aten.add_.Scalar", "__add__", "__iadd__"]
)
def test_a_name_may_say_how_the_op_was_called(name):
    assert count(name, (2, 3), (3,)) == 6


@pytest.mark.parametrize(
    "name",
    [
        *(
            "",
            "aten::",
            "mm.default",
            "aten::mine",
            "AddmmBackward0",
            "torch.sparse.mm",
            "_mm",
            "MM",
        ),
        *("autograd::engine::evaluate_function: MmBackward0", "mm extra", "::", ".", None, 7),
    ],
)
def test_other_names_have_no_formula(name):
    assert formula(name) is None
    assert count(name, (2, 3), (3, 4)) is None


# -- counts by hand


@pytest.mark.parametrize(
    ("name", "shapes", "arguments", "expected"),
    [
        ("add", ((2, 3), (4, 1, 3)), {}, 24),
        ("aten::mul", ((2, 3), ()), {}, 6),
        ("relu", ((2, 3),), {}, 6),
        ("addcmul", ((2, 3), (2, 3), (3,)), {}, 18),
        ("tanh", ((5,),), {}, 100),
        ("aten::gelu", ((5,),), {}, 120),
        ("softmax", ((2, 5), None), {"dim": 1}, 240),
        ("layer_norm", ((2, 5), None, (5,), (5,)), {}, 80),
        ("native_layer_norm_backward", ((2, 5), (2, 5), None, (2, 1), (2, 1), (5,), (5,)), {}, 160),
        ("sum", ((2, 5),), {}, 10),
        ("max", ((2, 5), None), {}, 10),
        ("nll_loss", ((8, 10), (8,)), {}, 8),
        ("max_pool2d", ((2, 3, 8, 8),), {"kernel_size": 2}, 2 * 3 * 16 * 4),
        ("max_pool2d", ((2, 3, 8, 8), None, ()), {"1": [2, 2], "2": []}, 2 * 3 * 16 * 4),
        ("avg_pool1d", ((3, 8), None, None), {"1": 3, "2": 1, "padding": 1}, 3 * 8 * 3),
        ("max_pool1d", ((3, 7),), {"kernel_size": 2, "ceil_mode": True}, 3 * 4 * 2),
        ("avg_pool2d_backward", ((3, 4, 4), (3, 8, 8)), {"kernel_size": 2}, 48 * 4),
        (
            "lstm",
            ((7, 2, 5), (1, 2, 4), (1, 2, 4), (16, 5), (16, 4), (16,), (16,)),
            {},
            2 * 14 * 144,
        ),
        ("lstm_cell", ((2, 5), (2, 4), (2, 4), (16, 5), (16, 4)), {}, 2 * 2 * 144),
        ("gru_cell", ((2, 5), (2, 4), (12, 5), (12, 4)), {}, 2 * 2 * 108),
        ("embedding", ((10, 4), (7,)), {}, 0),
        ("embedding_dense_backward", ((7, 4), (7,), None), {"2": 10}, 28),
        ("index_add", ((10, 4), None, (7,), (7, 4)), {"1": 0}, 28),
        ("view", ((2, 3), None), {}, 0),
        ("clone", ((2, 3),), {}, 0),
    ],
)
def test_by_hand(name, shapes, arguments, expected):
    assert count(name, *shapes, **arguments) == expected


def test_attention_by_hand():
    pairs, nothing = 2 * 4 * 5 * 6, ()
    forward, backward = 2 * pairs * (8 + 3), 2 * pairs * (3 * 8 + 2 * 3)
    name = "aten::_scaled_dot_product_flash_attention"
    assert count(name, Q, K, V) == forward
    assert count(name, Q, K, V, is_causal=True) == forward  # nothing is halved
    gradient = (*Q[:-1], V[-1])
    assert count(f"{name}_backward", gradient, Q, K, V, gradient) == backward
    few = [(2, 2, *shape[2:]) for shape in (K, V)]  # heads of keys that several heads share
    assert count("scaled_dot_product_attention", Q, *few) == forward
    last = [(b, sequence, head, width) for b, head, sequence, width in (Q, K, V)]
    assert count("flash_attn_func", *last) == forward
    assert count("aten::_flash_attention_forward", *last, nothing, nothing) == forward
    assert count("aten::_efficient_attention_forward", *last, None, None) == forward
    flat = [shape[1:] for shape in (Q, K, V)]
    assert count("scaled_dot_product_attention", *flat) == forward / 2
    assert count("xformers.ops.memory_efficient_attention", *flat) == forward / 2


def test_attention_over_packed_sequences_has_no_count():
    packed = ((50, 4, 8),) * 3
    assert count("aten::_flash_attention_forward", *packed, (3,), (3,)) is None
    last = ((1, 50, 4, 8),) * 3
    assert count("aten::_efficient_attention_forward", *last, None, (3,), (3,)) is None


@pytest.mark.parametrize(
    "shapes",
    [
        (Q, K),
        (Q, K, (2, 4, 7, 3)),
        (Q, (2, 3, 6, 8), (2, 3, 6, 3)),
        (Q, K[1:], V[1:]),
        (Q[-1:],) * 3,
    ],
)
def test_what_is_no_attention_has_no_count(shapes):
    assert count("scaled_dot_product_attention", *shapes) is None


def test_other_shapes_than_the_op_has_give_no_count():
    gradient = (*Q[:-1], V[-1])
    assert count("_scaled_dot_product_flash_attention_backward", gradient, Q, K, V) is not None
    assert count("_scaled_dot_product_flash_attention_backward", Q, Q, K, V) is None
    assert count("gru_cell", (2, 6), (2, 4), (12, 5), (12, 4)) is None
    assert count("avg_pool2d_backward", (3, 4, 4), (2, 8, 8), kernel_size=2) is None
    pooled = Call("max_pool1d", ((3, 8),), arguments={"kernel_size": 2}, outputs=((2, 4),))
    assert flops(pooled) is None
    assert flops(pooled._replace(outputs=((3, 4),))) == 24


def test_one_op_counts_what_its_parts_do():
    x, row = (3, 5), (3, 1)
    parts = [("amax", x), ("sub", x, row), ("exp", x), ("sum", x), ("div", x, row)]
    assert count("softmax", x) == sum(count(*part) for part in parts)
    parts = [("exp", x), ("neg", x), ("add", x, ()), ("div", (), x)]
    assert count("sigmoid", x) == sum(count(*part) for part in parts)
    assert count("silu", x) == count("sigmoid", x) + count("mul", x, x)


# -- bytes


def moved(name, shapes, dtypes, outputs=(), made=(), **arguments):
    return bytes_moved(Call(name, shapes, dtypes, arguments, outputs, made))


@pytest.mark.parametrize(
    ("name", "shapes", "dtypes", "arguments", "expected"),
    [
        ("mm", ((2, 3), (3, 4)), ("float32",) * 2, {}, 4 * (6 + 12 + 8)),
        ("mm", ((2, 3), (3, 4)), ("torch.bfloat16",) * 2, {}, 2 * (6 + 12 + 8)),
        ("mm", ((2, 3), (3, 4)), ("c10::Half",) * 2, {}, 2 * (6 + 12 + 8)),
        ("add", ((2, 3), (3,)), ("float64",) * 2, {}, 8 * (6 + 3 + 6)),
        ("add", ((2, 3), ()), ("float32", ""), {}, 4 * 12),
        ("eq", ((2, 3), (2, 3)), ("float32",) * 2, {}, 4 * 12 + 6),
        ("where", ((3,), (2, 3), ()), ("bool", "float16", "float16"), {}, 3 + 12 + 2 + 12),
        ("softmax", ((2, 3), None), ("float32", ""), {}, 48),
        ("sum", ((2, 3),), ("float32",), {}, 24 + 4),
        ("sum", ((2, 3),), ("float32",), {"dim": -1}, 24 + 8),
        ("mean", ((2, 3, 4), None, None), ("float32", "", ""), {"1": [0, 2], "2": True}, 96 + 12),
        ("np.sum", ((2, 3),), ("float32",), {"axis": 0, "keepdims": True}, 24 + 12),
        ("argmax", ((2, 3),), ("float32",), {"dim": 0}, 24 + 24),
        ("view", ((2, 3), None), ("float32", ""), {}, 0),
        ("copy_", ((2, 3), (3,)), ("float32",) * 2, {}, 24 + 12),
        ("zero_", ((2, 3),), ("float32",), {}, 24),
        ("embedding", ((1000, 4), (7,)), ("float32", "int64"), {}, 56 + 112),
        ("F.embedding", ((7,), (1000, 4)), ("int64", "float32"), {}, 56 + 112),
        (
            "embedding_dense_backward",
            ((7, 4), (7,), None),
            ("float32", "int64", ""),
            {"2": 10},
            112 + 56 + 160,
        ),
        ("max_pool2d", ((1, 4, 4),), ("float32",), {"kernel_size": 2}, 4 * (16 + 4)),
        (
            "scaled_dot_product_attention",
            (Q, K, V),
            ("float16",) * 3,
            {},
            2 * (sum(map(prod, (Q, K, V))) + 120),
        ),
        (
            "convolution_backward",
            ((2, 5, 6, 6), (2, 3, 8, 8), (5, 3, 3, 3)),
            ("float32",) * 3,
            {},
            4 * (360 + 2 * 384 + 2 * 135),
        ),
    ],
)
def test_bytes_by_hand(name, shapes, dtypes, arguments, expected):
    assert moved(name, shapes, dtypes, **arguments) == expected


def test_bytes_of_outputs_that_were_recorded():
    shapes, dtypes = ((2, 3), (2, 3)), ("float32",) * 2
    assert moved("cat", shapes, dtypes, ((4, 3),), ("float32",)) == 96
    assert moved("cat", shapes, dtypes, ((4, 3),)) == 96
    assert moved("mine", shapes, dtypes, ((4, 3), None), ("int8", "")) == 48 + 12
    assert moved("add", ((2,), (2,)), ("int64", "float32"), ((2,),), ("float32",)) == 16 + 8 + 8


@pytest.mark.parametrize(
    ("name", "shapes", "dtypes"),
    [
        ("mm", ((2, 3), (3, 4)), ()),
        ("mm", ((2, 3), (3, 4)), ("float32", "")),
        ("mm", ((2, 3), (3, 4)), ("float32", "float99")),
        ("mm", ((2, 3), (3, 4)), ("float32", "float16")),  # what comes out?
        ("mm", ((2, 3), (4, 4)), ("float32", "float32")),
        ("add", ((2,), (2,)), ("int64", "int64")),
        ("cat", ((2,), (2,)), ("float32", "float32")),
        ("mine", ((2,), (2,)), ("float32", "float32")),
        ("mm", ((2, 3), (3, 4)), ("float32",) * 3),
        ("embedding", ((10, 4), (7,)), ("float32", "float32")),
    ],
)
def test_bytes_that_are_not_known(name, shapes, dtypes):
    assert moved(name, shapes, dtypes) is None


# -- anything may be asked


@pytest.mark.parametrize(
    "shapes",
    [
        *((), ((2, 3),), ((2, 3), (3, -1)), ((2, 3), None), ((2, 3), 4), ((2, 3), "34")),
        *((2, 3), ((2, 3), (3, 4.0)), ((2, 3), ((3, 4),)), (None, None), None, ((2, 3), (3, None))),
    ],
)
def test_shapes_that_no_tensors_have(shapes):
    assert flops(Call("aten::mm", shapes)) is None
    assert bytes_moved(Call("aten::mm", shapes, ("float32",) * 2)) is None


def test_lists_and_integers_of_numpy_are_shapes():
    assert flops(Call("mm", [[2, np.int64(3)], np.array([3, 4])])) == 48
    assert type(flops(Call("mm", ((np.int32(2), 3), (3, 4))))) is int


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 9) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4).map(tuple) | st.lists(inner, max_size=3),
    max_leaves=8,
)
plausible = st.lists(st.none() | st.lists(st.integers(-1, 9), max_size=5).map(tuple), max_size=6)
names = st.sampled_from(sorted(table._built_in)) | st.text(max_size=5)
places = st.sampled_from(
    [*map(str, range(11)), "stride", "padding", "dim", "groups", "output_mask"]
)


@pytest.mark.slow
@given(
    names, plausible | anything, st.dictionaries(places, anything) | anything, anything, anything
)
def test_nothing_is_raised_whatever_is_asked(name, shapes, arguments, dtypes, outputs):
    call = Call(name, shapes, dtypes, arguments, outputs)
    for number in (flops(call), bytes_moved(call), flops(call._replace(outputs=()))):
        assert number is None or (type(number) is int and number >= 0)


# -- formulas of one's own


def test_a_formula_of_ones_own(own):
    register("mine::gemm", lambda call: prod(call.shapes[0]), text="elements", source="me")
    assert count("mine::gemm", (2, 3)) == 6
    assert count("other::gemm", (2, 3)) is None
    assert formula("mine::gemm")[:4] == ("registered", "elements", "me", True)
    register(["gemm", "mm"], lambda call: 7, exact=False)
    assert count("mine::gemm", (2, 3)) == 6
    assert count("other::gemm", (2, 3)) == count("aten::mm", (2, 3), (3, 4)) == 7


def test_a_registered_formula_gets_lawful_calls(own):
    seen = []
    register("mine", lambda call: seen.append(call) or 1)
    assert flops(Call("mine", [[2, 3], None])) == 1
    assert flops(Call("mine", [[-2, 3]])) is None
    assert [call.shapes for call in seen] == [((2, 3), None)]


@pytest.mark.parametrize("wrong", [lambda _: 1 / 0, lambda _: -1, lambda _: "many", lambda _: None])
def test_a_registered_formula_that_fails_gives_none(own, wrong):
    register("mine", wrong)
    assert count("mine", (2,)) is None


@pytest.mark.parametrize(("names", "function"), [("", len), ((), len), ([7], len), ("mine", 10)])
def test_what_cannot_be_registered_is_said(own, names, function):
    with pytest.raises(TypeError):
        register(names, function)


@pytest.mark.slow
def test_it_is_light():
    program = "import bridge.knowledge.formulas, sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    heavy = {"numpy", "pandas", "torch", "click", "json", "inspect", "asyncio", "sqlite3"}
    assert not heavy & set(done.stdout.split())
