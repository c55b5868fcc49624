"""The formulas of ops, built-in and registered, and their numbers for a call.

A built-in name occurs in one row, as `call.keys` returns it. docs/flops.md shows all rows.
Questions about a call never raise, because user programs ask them: the answer is None where a
number is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from bridge.knowledge.formulas import contraction, convolution
from bridge.knowledge.formulas.call import (
    Call,
    Count,
    Formula,
    Row,
    checked_call,
    count_bytes,
    keys,
    rows,
)
from bridge.knowledge.formulas.contraction import HEADS_LAST, INNER, einsum, product
from bridge.knowledge.formulas.convolution import convolution as conv
from bridge.knowledge.formulas.convolution import pooling, pooling_backward
from bridge.knowledge.formulas.elements import (
    ELEMENTS,
    input_elements,
    recurrent_cell,
    recurrent_layers,
    scatter,
)

TORCH = "FlopCounterMode"
HERE = "counted by hand"

VECTOR = ((1,), (0,))
BATCH = ((0,), (0,))
MAXIMA, MEANS = "padding dilation ceil_mode return_indices", "padding ceil_mode"
CONV = "2·N·P·Q·K·C·R·S/g"
UP = "2·N·H·W·C·K·R·S/g: the positions of the input"
SDPA = "2·B·h·sq·sk·(dq + dv)"
SDPA_BACKWARD = "2·B·h·sq·sk·(3·dq + 2·dv): scores again, four gradients"

KERNEL_FIRST = (
    "_slow_conv2d_forward thnn_conv2d slow_conv3d slow_conv3d_forward "
    "_conv_depthwise2d conv_depthwise3d slow_conv_dilated2d slow_conv_dilated3d"
)
ATTENTIONS = (
    "scaled_dot_product_attention _scaled_dot_product_flash_attention "
    "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention "
    "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_attention_math "
    "_scaled_dot_product_attention_math_for_mps "
    "_scaled_dot_product_fused_attention_overrideable"
)
ATTENTIONS_BACKWARD = (
    "_scaled_dot_product_flash_attention_backward "
    "_scaled_dot_product_efficient_attention_backward "
    "_scaled_dot_product_cudnn_attention_backward "
    "_scaled_dot_product_flash_attention_for_cpu_backward "
    "_scaled_dot_product_fused_attention_overrideable_backward"
)
ADAPTIVE = (
    "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_avg_pool2d "
    "_adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d"
)

MATMUL = (
    *rows(
        "matmul",
        TORCH,
        ("mm _scaled_mm _int_mm", "2·M·N·K", product((2, 2), INNER)),
        ("addmm _addmm_activation", "2·M·N·K", product((2, 2), INNER, first=1)),
        ("bmm", "2·B·M·N·K", product((3, 3), INNER, BATCH)),
        ("baddbmm", "2·B·M·N·K", product((3, 3), INNER, BATCH, first=1)),
        ("matmul", "2·B·M·N·K, B broadcast", contraction.matmul),
        ("linear", "2·elements(input)·N", contraction.linear),
    ),
    *rows(
        "matmul",
        HERE,
        ("addbmm", "2·B·M·N·K", product((3, 3), ((0, 2), (0, 1)), first=1)),
        ("mv", "2·M·K", product((2, 1), VECTOR)),
        ("addmv", "2·M·K", product((2, 1), VECTOR, first=1)),
        ("dot", "2·elements(output)·K", contraction.dot),
        ("inner", "2·elements(output)·K", contraction.inner),
        ("vdot", "2·K", contraction.vdot),
        ("outer ger", "M·N: nothing is summed", contraction.outer),
        ("tensordot", "2·elements(output)·summed", contraction.tensordot),
        ("dot_general", "2·elements(output)·summed", contraction.dot_general),
        ("einsum", "2·all indices, of two tensors at most", einsum),
        ("_grouped_mm _scaled_grouped_mm", "2·M·N·K", contraction.grouped),
    ),
)
CONVOLUTION = (
    *rows(
        "convolution",
        TORCH,
        *((f"conv{axes}d", CONV, conv(convolution.FUNCTION, axes)) for axes in (1, 2, 3)),
        *(
            (f"conv_transpose{axes}d", UP, conv(convolution.TRANSPOSED, axes, up=True))
            for axes in (1, 2, 3)
        ),
        (
            "convolution _convolution convolution_overrideable",
            f"{CONV}, or that of conv_transpose",
            conv(convolution.GENERAL),
        ),
        ("cudnn_convolution", CONV, conv(convolution.CUDNN)),
        ("cudnn_convolution_transpose", UP, conv(convolution.CUDNN_TRANSPOSED, up=True)),
        ("cudnn_convolution_relu", CONV, conv(convolution.FUNCTION)),
        ("mkldnn_convolution miopen_convolution", CONV, conv(convolution.PADDING_FIRST)),
        (KERNEL_FIRST, CONV, conv(convolution.SLOW)),
        (
            "slow_conv_transpose2d slow_conv_transpose3d",
            UP,
            conv(convolution.SLOW_TRANSPOSED, up=True),
        ),
    ),
    *rows(
        "convolution",
        f"{HERE}; FlopCounterMode has (1 + g)·forward",
        (
            "convolution_backward",
            "forward for each of input and weight whose gradient is asked for",
            convolution.backward(convolution.BACKWARD),
        ),
        (
            "convolution_backward_overrideable",
            "forward for each of input and weight whose gradient is asked for",
            convolution.backward(convolution.OVERRIDDEN),
        ),
        (
            "cudnn_convolution_backward",
            "forward for each of input and weight whose gradient is asked for",
            convolution.backward(convolution.OLD_CUDNN, convolution.INPUT_FIRST),
        ),
    ),
)
ATTENTION = (
    *rows(
        "attention",
        TORCH,
        (ATTENTIONS, SDPA, contraction.attention()),
        (ATTENTIONS_BACKWARD, SDPA_BACKWARD, contraction.backward()),
    ),
    *rows(
        "attention",
        f"{HERE}; FlopCounterMode takes heads for the sequence",
        ("_flash_attention_forward", SDPA, contraction.attention(HEADS_LAST, packed=3)),
        ("_efficient_attention_forward", SDPA, contraction.attention(HEADS_LAST, packed=4)),
        (
            "_flash_attention_backward _efficient_attention_backward",
            SDPA_BACKWARD,
            contraction.backward(HEADS_LAST, packed=6),
        ),
    ),
    *rows(
        "attention",
        HERE,
        (
            "flash_attn_func _flash_attn_forward memory_efficient_attention dot_product_attention",
            SDPA,
            contraction.attention(HEADS_LAST),
        ),
        ("_flash_attn_backward", SDPA_BACKWARD, contraction.backward(HEADS_LAST)),
    ),
)
POOLING = (
    *rows(
        "pooling",
        "MegEngine",
        *(
            (
                f"max_pool{axes}d max_pool{axes}d_with_indices",
                "elements(output)·window",
                pooling(axes, MAXIMA),
            )
            for axes in (1, 2, 3)
        ),
        *(
            (f"avg_pool{axes}d", "elements(output)·window", pooling(axes, MEANS))
            for axes in (1, 2, 3)
        ),
    ),
    *rows(
        "pooling",
        HERE,
        *(
            (f"avg_pool{axes}d_backward", "elements(gradient)·window", pooling_backward(axes))
            for axes in (2, 3)
        ),
        (
            "max_pool2d_with_indices_backward max_pool3d_with_indices_backward",
            "elements(gradient)",
            scatter(0, 1),
        ),
    ),
    *rows(
        "pooling",
        HERE,
        (ADAPTIVE, "elements(input)", input_elements(1)),
        exact=False,
    ),
)
RECURRENT = rows(
    "recurrent",
    "PyProf",
    (
        "lstm gru rnn_tanh rnn_relu _cudnn_rnn",
        "2·steps·elements(matrices); gates are left out",
        recurrent_layers,
    ),
    ("lstm_cell _thnn_lstm_cell", "2·batch·elements(matrices)", recurrent_cell(3)),
    ("gru_cell rnn_tanh_cell rnn_relu_cell", "2·batch·elements(matrices)", recurrent_cell(2)),
    exact=False,
)

TABLE: tuple[Row, ...] = (*MATMUL, *CONVOLUTION, *ATTENTION, *ELEMENTS, *POOLING, *RECURRENT)


# -- Look-up


_built_in = {name: formula for names, formula in TABLE for name in names.split()}
_registered: dict[str, Formula] = {}


def formula(name: str) -> Formula | None:
    """Return the formula of the op with this name, None if it has none."""
    if not isinstance(name, str):
        return None
    likely = tuple(keys(name))
    if _registered and (own := _first((name, *likely), _registered)):
        return own
    return _first(likely, _built_in)


def _first(names: Iterable[str], formulas: Mapping[str, Formula]) -> Formula | None:
    return next((formulas[name] for name in names if name in formulas), None)


def registered() -> tuple[tuple[str, Formula], ...]:
    """Return the formulas of users: what is computed by them holds while these are the same."""
    return tuple(_registered.items())


def flops_by_formula(call: Call) -> int | None:
    """Return the FLOPs of a call, two per multiply-add; None if unknown."""

    def count(call: Call) -> int | None:
        match = formula(call.name)
        return None if match is None else match.flops(call)

    return count_or_none(count, call)


def bytes_moved(call: Call) -> int | None:
    """Return the minimum of bytes that a call moves: inputs and outputs once; None if unknown.

    An op without a formula is assumed to read all inputs.
    """
    return count_or_none(lambda call: count_bytes(call, formula(call.name)), call)


def register(
    names: str | Iterable[str],
    flops: Count,
    *,
    text: str = "",
    source: str = "registered",
    exact: bool = True,
) -> None:
    """Register a formula for ops; it takes precedence over the built-in one.

    ``gemm`` is an op of that name in any library, ``mylib::gemm`` only the one with that name. The
    formula gets a `Call` and returns FLOPs or None; if it raises, the call has no number. Raises
    TypeError for invalid names or formulas.
    """
    ops = (names,) if isinstance(names, str) else tuple(names)
    if not ops or not all(isinstance(name, str) and name for name in ops):
        raise TypeError(f"names of ops are needed, not {names!r}")
    if not callable(flops):
        raise TypeError(f"flops must be a function of a Call, not {flops!r}")
    _registered.update(
        dict.fromkeys(
            ops, Formula(kind="registered", text=text, source=source, exact=exact, flops=flops)
        )
    )


def count_or_none(question: Callable[[Call], Any], call: Call) -> int | None:
    """Return the number that a function returns for a call, None if it is unknown or it raises."""
    try:
        number = question(checked_call(call))
        return None if number is None or number < 0 else int(number)
    except Exception:  # noqa: BLE001 - user code
        return None
