"""Rows of ops that are counted by elements, and of those that only move data.

The invariant: a weight is the sum of the parts that its text names, an exp being 20; 0 stands only where nothing
is computed.
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
    need,
    rows,
    scaled,
    tensor,
    tensors,
    unknown,
)
from bridge.knowledge.formulas.traffic import integers

# -- What is counted by elements: elementwise ops, norms, softmax, reductions, losses, and recurrent layers


MATRIX = 2  # dimensions
PAIR = 2  # tensors


def _every(call: Call) -> Shape:
    shapes = tensors(call)
    need(bool(shapes))
    return broadcast(*shapes)


def every(weight: int) -> Counting:
    """Count so many FLOPs for each element of what all inputs are broadcast to."""
    return scaled(weight, _every)


def one(weight: int, place: int = 0) -> Counting:
    """Count so many FLOPs for each element of the input at this position."""
    return scaled(weight, partial(tensor, place=place))


def scattered(source: int, into: int) -> Counting:
    """Count one addition for each element of a source, into a tensor as the one at another position."""
    return one(1, source)[0], like(into)


def nothing(outputs: Outputs = unknown) -> Counting:
    """Count nothing, for what only moves data."""
    return lambda _: 0, outputs


def like(place: int) -> Outputs:
    """Say that what comes out has the shape of the input at this position."""
    return lambda call: (tensor(call, place),)


def looked_up(call: Call) -> tuple[Shape, ...]:
    """Return the shape of a look-up: that of the indices, and a row of the table, whichever comes first."""
    places = set(integers(call))
    need(len(places) == 1 and len(tensors(call)) == PAIR)
    place = places.pop()
    indices, table = tensor(call, place), tensor(call, 1 - place)
    return ((*indices, *table[1:]),)


def table_of(call: Call) -> tuple[Shape, ...]:
    """Return the shape of the table that gradients are added into."""
    return ((index(argument(call, "num_weights", 2, None)), tensor(call, 0)[-1]),)


def reduced(weight: int) -> Counting:
    """Count so many FLOPs for each element that goes in; what comes out is one for each place along ``dim``."""
    return one(weight)[0], lambda call: (_reduced(call),)


def _reduced(call: Call) -> Shape:
    """Return the lengths that are left; whether ones stand for the others makes no difference in bytes."""
    shape = tensor(call, 0)
    dims = call.arguments["axis"] if "axis" in call.arguments else argument(call, "dim", 1, None)
    dims = range(len(shape)) if dims in (None, [], ()) else dims
    gone = {range(len(shape))[dim] for dim in (dims if isinstance(dims, Sequence) else (dims,))}
    return tuple(length for axis, length in enumerate(shape) if axis not in gone)


def _layers(call: Call) -> int:
    x, *others = tensors(call)
    weights = [prod(shape) for shape in others if len(shape) == MATRIX]
    need(len(x) == MATRIX + 1 and bool(weights))
    return 2 * x[0] * x[1] * sum(weights)


layers: Counting = (_layers, unknown)  # every matrix is applied to each step of each sequence


def cell(first: int) -> Counting:
    """Count one step of a recurrent layer, whose two matrices stand from position ``first`` on."""

    def count(call: Call) -> int:
        x, *weights = (tensor(call, place) for place in (0, first, first + 1))
        need(all(len(weight) == MATRIX for weight in weights) and x[-1] == weights[0][1])
        return 2 * prod(x[:-1]) * sum(map(prod, weights))

    return count, unknown


# -- Rows of ops that are counted by elements, and of those that only move data


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
    *rows("elementwise", PYPROF, (ARITHMETIC, "elements, broadcast", every(1))),
    *rows("elementwise", PYPROF, (COMPARISON, "elements, broadcast", every(1)), dtype="bool"),
    *rows(
        "elementwise",
        HERE,
        ("clamp clip", "2·elements: two bounds", every(2)),
        ("addcmul addcdiv lerp", "3·elements, broadcast", every(3)),
    ),
    *rows("elementwise", PYPROF, (FUNCTIONS, "20·elements, broadcast", every(20)), exact=False),
    *rows(
        "elementwise",
        HERE,
        ("dropout native_dropout", "2·elements: mask and scale", one(2)),
        ("native_dropout_backward", "2·elements: mask and scale", one(2)),
        exact=False,
    ),
)
ACTIVATION = (
    *rows(
        "activation",
        HERE,
        ("relu threshold_backward", "1·elements", every(1)),
        ("relu6 hardtanh hardtanh_backward leaky_relu leaky_relu_backward", "2·elements", every(2)),
        ("prelu _prelu_kernel", "2·elements", one(2)),
        ("sigmoid_backward tanh_backward", "3·elements: as g·(1 - y·y)", every(3)),
        ("hardsigmoid", "4·elements", every(4)),
        ("hardswish hardswish_backward", "5·elements", every(5)),
    ),
    *rows(
        "activation",
        HERE,
        ("elu selu celu elu_backward", "22·elements: exp and 2", every(22)),
        ("sigmoid expit logistic softplus_backward", "23·elements: exp and 3", every(23)),
        ("silu swish gelu", "24·elements: exp or erf, and 4", every(24)),
        ("silu_backward", "28·elements: sigmoid and 5", every(28)),
        ("softplus", "41·elements: exp, log and 1", every(41)),
        ("gelu_backward", "49·elements: erf, exp and 9", every(49)),
        ("mish", "62·elements: exp, log, tanh and 2", every(62)),
        ("glu", "12·elements: a sigmoid and 1 for each half", (one(12)[0], unknown)),
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
            one(24),
        ),
        (
            "_log_softmax_backward_data",
            "23·elements: g - exp(y)·sum(g)",
            one(23),
        ),
        exact=False,
    ),
    *rows("softmax", HERE, ("_softmax_backward_data", "4·elements: y·(g - sum(g·y))", one(4))),
)
NORM = (
    *rows("norm", PYPROF, (NORMS, "8·elements(input)", one(8)), exact=False),
    *rows(
        "norm",
        HERE,
        (NORMS_BACKWARD, "16·elements(input): twice the forward pass", one(16)),
        ("rms_norm _fused_rms_norm", "4·elements: square, sum, scale, weight", one(4)),
        ("_fused_rms_norm_backward", "8·elements: twice the forward pass", one(8)),
        ("normalize", "3·elements: square, sum, quotient", one(3)),
        exact=False,
    ),
)
REDUCTION = (
    *rows(
        "reduction",
        PYPROF,
        ("sum nansum mean nanmean prod amax amin", "1·elements(input)", reduced(1)),
        ("cumsum cumprod", "1·elements(input)", one(1)),
        ("max min", "1·elements, broadcast", (every(1)[0], unknown)),
        ("norm vector_norm linalg_vector_norm", "2·elements: square, sum", (one(2)[0], unknown)),
    ),
    *rows(
        "reduction",
        HERE,
        ("vecdot", "2·elements, broadcast", (every(2)[0], unknown)),
        (
            "var std var_mean std_mean",
            "4·elements: mean, difference, square, sum",
            (one(4)[0], unknown),
        ),
    ),
    *rows("reduction", PYPROF, ("argmax argmin", "1·elements(input)", reduced(1)), dtype="int64"),
    *rows("reduction", PYPROF, ("all any", "1·elements(input)", reduced(1)), dtype="bool"),
    *rows("reduction", HERE, ("logsumexp", "23·elements: exp, and 3", reduced(23)), exact=False),
)
LOSS = (
    *rows(
        "loss",
        HERE,
        ("mse_loss l1_loss", "3·elements: difference, square, sum", (every(3)[0], unknown)),
        ("mse_loss_backward", "3·elements", every(3)),
        (
            "nll_loss nll_loss_forward nll_loss2d_forward nll_loss_nd",
            "1·elements(target)",
            (one(1, 1)[0], unknown),
        ),
    ),
    *rows(
        "loss",
        HERE,
        ("cross_entropy cross_entropy_loss", "24·elements: log_softmax", (one(24)[0], unknown)),
        (
            "binary_cross_entropy binary_cross_entropy_with_logits",
            "45·elements: two of exp and log, and 5",
            (every(45)[0], unknown),
        ),
        exact=False,
    ),
)
MOVING = (
    *rows(VIEW, "by definition", (VIEWS, "0", nothing())),
    *rows(
        "copy",
        "by definition",
        ("clone copy flip roll tril triu", "0", nothing(like(0))),
        ("masked_fill where", "0", nothing(every(1)[1])),
        (COPIES, "0", nothing()),
    ),
    *rows("copy", "by definition", ("copy_", "0", nothing(like(0))), reads=lambda _: (1,)),
    *rows(
        "fill",
        "by definition",
        ("fill zero zeros_like ones_like full_like", "0", nothing(like(0))),
        ("zeros ones full new_zeros new_ones new_full eye arange", "0", nothing()),
        reads=lambda _: (),
    ),
    *rows(
        "gather",
        "by definition",
        ("embedding", "0", nothing(looked_up)),
        ("index_select gather take take_along_dim index", "0", nothing()),
        reads=integers,
    ),
    *rows(
        "scatter",
        HERE,
        (
            "embedding_dense_backward embedding_backward",
            "1·elements(gradient)",
            (one(1)[0], table_of),
        ),
        ("scatter_add index_add", "1·elements(source)", scattered(3, 0)),
    ),
)
ELEMENTS: tuple[Row, ...] = (
    *(*ELEMENTWISE, *ACTIVATION, *SOFTMAX, *NORM),
    *(*REDUCTION, *LOSS, *MOVING),
)
