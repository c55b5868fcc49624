"""Formulas of ops that are counted by elements, and of ops that only move data.

A weight is the sum of the parts in its text; an exp counts 20. 0 means that nothing is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from operator import index

from bridge.knowledge.formulas.call import (
    VIEW,
    Call,
    Counting,
    Outputs,
    Row,
    Shape,
    argument,
    broadcast,
    integer_inputs,
    need,
    rows,
    scaled,
    tensor,
    tensors,
    unknown,
)

# -- Counting by elements, and recurrent layers


MATRIX = 2  # dimensions
PAIR = 2  # tensors


def _broadcast_shape(call: Call) -> Shape:
    shapes = tensors(call)
    need(bool(shapes))
    return broadcast(*shapes)


def broadcast_elements(weight: int) -> Counting:
    """Count ``weight`` FLOPs per element of the broadcast shape of all inputs."""
    return scaled(weight, _broadcast_shape)


def input_elements(weight: int, place: int = 0) -> Counting:
    """Count ``weight`` FLOPs per element of the input at a position."""
    return scaled(weight, partial(tensor, place=place))


def scatter(source: int, into: int) -> Counting:
    """Count one addition per element of a source, into a tensor like the one at ``into``."""
    return input_elements(1, source)[0], same_shape(into)


def no_flops(outputs: Outputs = unknown) -> Counting:
    """Count nothing: the op only moves data."""
    return lambda _: 0, outputs


def same_shape(place: int) -> Outputs:
    """Return a function: the output has the shape of the input at a position."""
    return lambda call: (tensor(call, place),)


def lookup_shape(call: Call) -> tuple[Shape, ...]:
    """Return the shape of a look-up: indices, then a row; the inputs may have either order."""
    places = set(integer_inputs(call))
    need(len(places) == 1 and len(tensors(call)) == PAIR)
    place = places.pop()
    indices, table = tensor(call, place), tensor(call, 1 - place)
    return ((*indices, *table[1:]),)


def table_shape(call: Call) -> tuple[Shape, ...]:
    """Return the shape of the table that gradients are added to."""
    return ((index(argument(call, "num_weights", 2, None)), tensor(call, 0)[-1]),)


def reduction(weight: int) -> Counting:
    """Count ``weight`` FLOPs per input element; the output is reduced along ``dim``."""
    return input_elements(weight)[0], lambda call: (_reduced_shape(call),)


def _reduced_shape(call: Call) -> Shape:
    """Return the remaining lengths; kept dimensions of length 1 do not change the bytes."""
    shape = tensor(call, 0)
    dims = call.arguments["axis"] if "axis" in call.arguments else argument(call, "dim", 1, None)
    dims = range(len(shape)) if dims in (None, [], ()) else dims
    removed = {range(len(shape))[dim] for dim in (dims if isinstance(dims, Sequence) else (dims,))}
    return tuple(length for axis, length in enumerate(shape) if axis not in removed)


def _count_layers(call: Call) -> int:
    x, *others = tensors(call)
    weights = [prod(shape) for shape in others if len(shape) == MATRIX]
    need(len(x) == MATRIX + 1 and bool(weights))
    return 2 * x[0] * x[1] * sum(weights)


recurrent_layers: Counting = (
    _count_layers,
    unknown,
)  # each matrix is applied at each step of each sequence


def recurrent_cell(first: int) -> Counting:
    """Count a step of a recurrent layer; its two matrices begin at position ``first``."""

    def count(call: Call) -> int:
        x, *weights = (tensor(call, place) for place in (0, first, first + 1))
        need(all(len(weight) == MATRIX for weight in weights) and x[-1] == weights[0][1])
        return 2 * prod(x[:-1]) * sum(map(prod, weights))

    return count, unknown


# -- Rows


HERE, PYPROF = "counted by hand", "PyProf"

ARITHMETIC = (
    "add sub subtract rsub mul multiply div divide true_divide truediv floor_divide floordiv fmod "
    "remainder mod maximum minimum fmax fmin iadd isub imul itruediv radd rmul neg negative abs absolute "
    "sign floor ceil round trunc frac square reciprocal clamp_min clamp_max threshold"
)
COMPARISON = (
    "eq ne lt le gt ge not_equal less less_equal greater greater_equal isnan isinf isfinite "
    "logical_and logical_or logical_not logical_xor"
)
FUNCTIONS = (
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt cbrt sin cos tan asin acos atan atan2 sinh cosh tanh "
    "asinh acosh atanh arcsin arccos arctan arctan2 arcsinh arccosh arctanh erf erfc erfinv "
    "pow power ipow float_power"
)
NORMS = (
    "layer_norm native_layer_norm batch_norm native_batch_norm _native_batch_norm_legit "
    "_native_batch_norm_legit_no_training _batch_norm_impl_index _batch_norm_with_update "
    "_batch_norm_no_update cudnn_batch_norm miopen_batch_norm group_norm native_group_norm instance_norm"
)
NORMS_BACKWARD = (
    "native_layer_norm_backward native_batch_norm_backward batch_norm_backward "
    "cudnn_batch_norm_backward miopen_batch_norm_backward native_group_norm_backward"
)
VIEWS = (
    "view view_as reshape reshape_as _unsafe_view _reshape_alias t adjoint transpose permute swapaxes "
    "swapdims moveaxis movedim expand expand_as broadcast_to squeeze unsqueeze expand_dims flatten "
    "unflatten ravel alias detach as_strided select slice narrow split unsafe_split split_with_sizes tensor_split "
    "chunk unbind diagonal real imag view_as_real view_as_complex contiguous to lift_fresh empty "
    "empty_like empty_strided new_empty new_empty_strided"
)
COPIES = (
    "_to_copy cat concat concatenate stack hstack vstack dstack repeat repeat_interleave tile pad "
    "constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d "
    "replication_pad2d replication_pad3d upsample_nearest1d upsample_nearest2d upsample_nearest3d "
    "im2col pixel_shuffle pixel_unshuffle item _local_scalar_dense select_backward slice_backward"
)

ELEMENTWISE = (
    *rows("elementwise", PYPROF, (ARITHMETIC, "elements, broadcast", broadcast_elements(1))),
    *rows(
        "elementwise",
        PYPROF,
        (COMPARISON, "elements, broadcast", broadcast_elements(1)),
        dtype="bool",
    ),
    *rows(
        "elementwise",
        HERE,
        ("clamp clip", "2·elements: two bounds", broadcast_elements(2)),
        ("addcmul addcdiv lerp", "3·elements, broadcast", broadcast_elements(3)),
    ),
    *rows(
        "elementwise",
        PYPROF,
        (FUNCTIONS, "20·elements, broadcast", broadcast_elements(20)),
        exact=False,
    ),
    *rows(
        "elementwise",
        HERE,
        ("dropout native_dropout", "2·elements: mask and scale", input_elements(2)),
        ("native_dropout_backward", "2·elements: mask and scale", input_elements(2)),
        exact=False,
    ),
)
ACTIVATION = (
    *rows(
        "activation",
        HERE,
        ("relu threshold_backward", "1·elements", broadcast_elements(1)),
        (
            "relu6 hardtanh hardtanh_backward leaky_relu leaky_relu_backward",
            "2·elements",
            broadcast_elements(2),
        ),
        ("prelu _prelu_kernel", "2·elements", input_elements(2)),
        ("sigmoid_backward tanh_backward", "3·elements: as g·(1 - y·y)", broadcast_elements(3)),
        ("hardsigmoid", "4·elements", broadcast_elements(4)),
        ("hardswish hardswish_backward", "5·elements", broadcast_elements(5)),
    ),
    *rows(
        "activation",
        HERE,
        ("elu selu celu elu_backward", "22·elements: exp and 2", broadcast_elements(22)),
        (
            "sigmoid expit logistic softplus_backward",
            "23·elements: exp and 3",
            broadcast_elements(23),
        ),
        ("silu swish gelu", "24·elements: exp or erf, and 4", broadcast_elements(24)),
        ("silu_backward", "28·elements: sigmoid and 5", broadcast_elements(28)),
        ("softplus", "41·elements: exp, log and 1", broadcast_elements(41)),
        ("gelu_backward", "49·elements: erf, exp and 9", broadcast_elements(49)),
        ("mish", "62·elements: exp, log, tanh and 2", broadcast_elements(62)),
        ("glu", "12·elements: a sigmoid and 1 for each half", (input_elements(12)[0], unknown)),
        exact=False,
    ),
)
SOFTMAX = (
    *rows(
        "softmax",
        HERE,
        (
            "softmax _softmax _safe_softmax log_softmax _log_softmax",
            "24·elements: exp, and maximum, difference, sum, quotient",
            input_elements(24),
        ),
        (
            "_log_softmax_backward_data",
            "23·elements: g - exp(y)·sum(g)",
            input_elements(23),
        ),
        exact=False,
    ),
    *rows(
        "softmax",
        HERE,
        ("_softmax_backward_data", "4·elements: y·(g - sum(g·y))", input_elements(4)),
    ),
)
NORM = (
    *rows("norm", PYPROF, (NORMS, "8·elements(input)", input_elements(8)), exact=False),
    *rows(
        "norm",
        HERE,
        (NORMS_BACKWARD, "16·elements(input): twice the forward pass", input_elements(16)),
        ("rms_norm _fused_rms_norm", "4·elements: square, sum, scale, weight", input_elements(4)),
        ("_fused_rms_norm_backward", "8·elements: twice the forward pass", input_elements(8)),
        ("normalize", "3·elements: square, sum, quotient", input_elements(3)),
        exact=False,
    ),
)
REDUCTION = (
    *rows(
        "reduction",
        PYPROF,
        ("sum nansum mean nanmean prod amax amin", "1·elements(input)", reduction(1)),
        ("cumsum cumprod", "1·elements(input)", input_elements(1)),
        ("max min", "1·elements, broadcast", (broadcast_elements(1)[0], unknown)),
        (
            "norm vector_norm linalg_vector_norm",
            "2·elements: square, sum",
            (input_elements(2)[0], unknown),
        ),
    ),
    *rows(
        "reduction",
        HERE,
        ("vecdot", "2·elements, broadcast", (broadcast_elements(2)[0], unknown)),
        (
            "var std var_mean std_mean",
            "4·elements: mean, difference, square, sum",
            (input_elements(4)[0], unknown),
        ),
    ),
    *rows("reduction", PYPROF, ("argmax argmin", "1·elements(input)", reduction(1)), dtype="int64"),
    *rows("reduction", PYPROF, ("all any", "1·elements(input)", reduction(1)), dtype="bool"),
    *rows("reduction", HERE, ("logsumexp", "23·elements: exp, and 3", reduction(23)), exact=False),
)
LOSS = (
    *rows(
        "loss",
        HERE,
        (
            "mse_loss l1_loss",
            "3·elements: difference, square, sum",
            (broadcast_elements(3)[0], unknown),
        ),
        ("mse_loss_backward", "3·elements", broadcast_elements(3)),
        (
            "nll_loss nll_loss_forward nll_loss2d_forward nll_loss_nd",
            "1·elements(target)",
            (input_elements(1, 1)[0], unknown),
        ),
    ),
    *rows(
        "loss",
        HERE,
        (
            "cross_entropy cross_entropy_loss",
            "24·elements: log_softmax",
            (input_elements(24)[0], unknown),
        ),
        (
            "binary_cross_entropy binary_cross_entropy_with_logits",
            "45·elements: two of exp and log, and 5",
            (broadcast_elements(45)[0], unknown),
        ),
        exact=False,
    ),
)
MOVES = (
    *rows(VIEW, "by definition", (VIEWS, "0", no_flops())),
    *rows(
        "copy",
        "by definition",
        ("clone copy flip roll tril triu", "0", no_flops(same_shape(0))),
        ("masked_fill where", "0", no_flops(broadcast_elements(1)[1])),
        (COPIES, "0", no_flops()),
    ),
    *rows("copy", "by definition", ("copy_", "0", no_flops(same_shape(0))), reads=lambda _: (1,)),
    *rows(
        "fill",
        "by definition",
        ("fill zero zeros_like ones_like full_like", "0", no_flops(same_shape(0))),
        ("zeros ones full new_zeros new_ones new_full eye arange", "0", no_flops()),
        reads=lambda _: (),
    ),
    *rows(
        "gather",
        "by definition",
        ("embedding", "0", no_flops(lookup_shape)),
        ("index_select gather take take_along_dim index", "0", no_flops()),
        reads=integer_inputs,
    ),
    *rows(
        "scatter",
        HERE,
        (
            "embedding_dense_backward embedding_backward",
            "1·elements(gradient)",
            (input_elements(1)[0], table_shape),
        ),
        ("scatter_add index_add", "1·elements(source)", scatter(3, 0)),
    ),
)
ELEMENTS: tuple[Row, ...] = (
    *(*ELEMENTWISE, *ACTIVATION, *SOFTMAX, *NORM),
    *(*REDUCTION, *LOSS, *MOVES),
)
