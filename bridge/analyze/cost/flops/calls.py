"""Return the cost of each range: as recorded, else by formula from name, shapes and dtypes.

Each distinct combination of these is evaluated once. Unknown values are -1, never 0.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bridge.analyze.core.call_details import input_shapes
from bridge.analyze.core.groups import Floats
from bridge.importers.arrays import factorize
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, number_groups, repeated, taken
from bridge.join.attributed import AttributedCapture, once
from bridge.join.grammar import parse
from bridge.knowledge.formulas import Call, bytes_moved, flops, formula
from bridge.knowledge.formulas.call import NOTHING, keys, plain_dtype
from bridge.knowledge.formulas.conventions import CONVENTIONS, OURS
from bridge.knowledge.formulas.table import registered
from bridge.knowledge.hardware import DTYPES

# -- Inputs of calls, as recorders write them


Shapes = tuple[tuple[int, ...] | None, ...]
# C++ types as PyTorch's profiler writes them, and types of inputs that are no tensors.
ALIASES = {
    "long int": "int64",
    "unsigned char": "uint8",
    "signed char": "int8",
    "short int": "int16",
}
NOT_TENSORS = frozenset("Scalar ScalarList GenericList Device Layout None".split())
TENSOR_LIST = "TensorList"
COMPUTE_DTYPES = {
    **dict.fromkeys(("float64", "double"), "fp64"),
    **dict.fromkeys(("float32", "float"), "fp32"),
    **dict.fromkeys(("float16", "half", "Half"), "fp16"),
    **dict.fromkeys(("bfloat16", "BFloat16"), "bf16"),
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "Float8_e4m3fn", "Float8_e5m2"), "fp8"),
    **dict.fromkeys(("int8",), "int8"),
}

# Names in frameworks of the dtypes of bridge.knowledge.hardware.
FRAMEWORK_DTYPES = {
    "fp64": "float64",
    "fp64_tensor": "float64",
    "fp32": "float32",
    "tf32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8": "float8_e4m3fn",
    "int8": "int8",
}


def parse_details(text: str) -> Mapping[str, Any]:
    """Return the entries of a JSON object, none for other text."""
    if not text.startswith("{"):
        return {}
    try:
        result = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return result if isinstance(result, dict) else {}


def parse_shapes(text: str) -> Shapes:
    """Return the shapes in a text such as ``[[2, 3], []]``, with lists of tensors flattened.

    The result is empty for other text.
    """
    return tuple(shape for shape, _ in _flatten(_parse_list(text), ()))


def _parse_list(text: str) -> list[Any]:
    """Return the JSON list in a text, an empty list for other text."""
    try:
        result = json.loads(text) if text.startswith("[") else []
    except (ValueError, RecursionError):
        return []
    return result if isinstance(result, list) else []


def parse_call(name: str, shapes_text: str, details: Mapping[str, Any]) -> Call:
    """Return the call of an op from its written shapes and its details."""
    shapes = details.get("shapes")
    if not isinstance(shapes, list):
        shapes = _parse_list(shapes_text)
    inputs = list(_flatten(shapes, _texts(details.get("dtypes"))))
    arguments = details.get("args")
    return Call(
        name=name,
        shapes=tuple(shape for shape, _ in inputs),
        dtypes=tuple(dtype for _, dtype in inputs),
        arguments=arguments if isinstance(arguments, dict) else {},
        outputs=tuple(shape for shape, _ in _flatten(_list(details.get("output_shapes")), ())),
        output_dtypes=tuple(_dtype(text) for text in _texts(details.get("output_dtypes"))),
    )


def compute_dtype(dtypes: Iterable[str]) -> str:
    """Return the dtype (of bridge.knowledge.hardware) of all inputs that have one.

    It is '' if there is none or several.
    """
    values = {
        COMPUTE_DTYPES[plain_dtype(name)] for name in dtypes if plain_dtype(name) in COMPUTE_DTYPES
    }
    floating = values - {"int8"} or values
    return floating.pop() if len(floating) == 1 else ""


def _flatten(entries: Sequence[Any], dtypes: Sequence[str]) -> Iterable[tuple[Any, str]]:
    """Yield shape and dtype of each input; the shape is None for other than tensors."""
    padded = [*dtypes, *("" for _ in entries[len(dtypes) :])]
    for entry, dtype in zip(entries, padded, strict=False):
        if isinstance(entry, list) and any(isinstance(inner, list) for inner in entry):
            yield from ((tuple(inner) if isinstance(inner, list) else None, "") for inner in entry)
        elif not isinstance(entry, list) or dtype in NOT_TENSORS:
            yield None, ""
        else:
            yield tuple(entry), _dtype(dtype)


def _dtype(text: str) -> str:
    return ALIASES.get(text, "" if text == TENSOR_LIST else text)


def _texts(result: Any) -> list[str]:
    return [item if isinstance(item, str) else "" for item in _list(result)]


def _list(result: Any) -> list[Any]:
    return result if isinstance(result, list) else []


# -- Outputs of convolutions, from the backward pass


# Position of the gradient of the output among the inputs of a backward call.
GRADIENT_POSITIONS = {
    "convolution_backward": 0,
    "convolution_backward_overrideable": 0,
    "cudnn_convolution_backward": 1,
}


def convolution_outputs(
    attributed: AttributedCapture, shape: Ints, shapes: list[str]
) -> tuple[Ints, list[Shapes]]:
    """Return outputs of forward convolutions, taken from their backward calls, as a code per range.

    The code is NONE where no backward call refers to the range. PyTorch records only the shapes of
    inputs, which do not determine how often the weight of a convolution is applied. In a training
    step the gradient of the output, as large as the output, is an input of the backward call.
    Convolutions that call one another, as those of PyTorch do, have the same output.
    """
    names = attributed.capture.ranges.name
    gradient_position = names.per_text(lambda name: _gradient_position(parse(name).op))
    forward = names.matching(lambda name: _is_convolution(parse(name).op))
    if not (gradient_position != NONE).any() or not forward.any():
        return repeated(NONE, len(shape)), []
    result = np.full(len(shape), NONE)
    nesting, forward_range = attributed.attribution.nesting, attributed.directions.forward
    node = np.flatnonzero((gradient_position[nesting.range] != NONE) & (forward_range != NONE))
    row = nesting.range[node]
    both, firsts = number_groups(shape[row], gradient_position[row])
    pairs = zip(shape[row[firsts]].tolist(), gradient_position[row[firsts]].tolist(), strict=True)
    outputs = [parse_shapes(shapes[code])[at : at + 1] for code, at in pairs]
    result[forward_range[node]] = both
    result[~forward] = NONE
    return _spread_to_nested(attributed, result, forward), outputs


def _spread_to_nested(attributed: AttributedCapture, values: Ints, forward: Flags) -> Ints:
    """Copy the value of a convolution to those around and in it, which have the same inputs."""
    nesting = attributed.attribution.nesting
    node_value = values[nesting.range]
    is_convolution = forward[nesting.range]
    while True:  # one iteration per level of calls that pass the work on
        parent = nesting.parent
        pairs = np.flatnonzero((parent != NONE) & is_convolution)
        pairs = pairs[is_convolution[parent[pairs]]]
        down = pairs[(node_value[pairs] == NONE) & (node_value[parent[pairs]] != NONE)]
        up = pairs[(node_value[pairs] != NONE) & (node_value[parent[pairs]] == NONE)]
        if not len(down) + len(up):
            break
        node_value[down] = node_value[parent[down]]
        node_value[parent[up]] = node_value[up]
    result = values.copy()
    result[nesting.range] = node_value
    return result


def _gradient_position(op: str) -> int:
    return next((GRADIENT_POSITIONS[key] for key in keys(op) if key in GRADIENT_POSITIONS), NONE)


def _is_convolution(op: str) -> bool:
    match = formula(op)
    return match is not None and match.kind == "convolution" and "backward" not in op


# -- Costs of ranges


RECORDED, NO_FORMULA, TOO_LITTLE = "recorded", "no formula", "too little recorded"
ESTIMATED = "≈ "  # prefix of the text of an inexact formula
FROM_BACKWARD = "; output as in the backward pass"
MAX_FLOPS = 1 << 80  # FLOPs; larger counts come from wrong shapes
MAX_BYTES = 1 << 62  # larger counts come from wrong shapes; sums stay within 64 bits


class Cost(NamedTuple):
    """The cost of a call, -1 for unknown values; the dtype is one of `DTYPES`, or ''."""

    flops: float = NONE
    bytes: float = NONE
    formula: str = NO_FORMULA
    dtype: str = ""


class CountOptions(NamedTuple):
    """Options for counting.

    ``dtype``, named as in frameworks, is that of inputs without one. ``use_recorded`` is whether
    recorded FLOPs have precedence.
    """

    convention: str
    dtype: str
    use_recorded: bool


@record
class RangeCosts:
    """FLOPs and bytes per range, -1 where unknown.

    ``formula`` is a code into ``formulas``, ``dtype`` one into `DTYPES`, or NONE.
    """

    flops: Floats
    bytes: Floats
    formula: Ints
    dtype: Ints
    formulas: list[str]

    @classmethod
    def of(
        cls,
        attributed: AttributedCapture,
        convention: str = OURS,
        dtype: str = "",
        *,
        use_recorded: bool = False,
    ) -> RangeCosts:
        """Return the costs of all ranges that are ops, whether counted or not.

        ``dtype`` (of `DTYPES`) is that of inputs where a call has none. With a convention other
        than ours, recorded values are ignored unless ``use_recorded``.
        """
        options = CountOptions(
            convention, FRAMEWORK_DTYPES.get(dtype, ""), use_recorded or convention == OURS
        )
        return _range_costs(attributed, options, registered())

    @classmethod
    def counted(cls, attributed: AttributedCapture, options: CountOptions) -> RangeCosts:
        """Return the costs of all ranges that are ops, counted as the options say."""
        ranges, rows = attributed.capture.ranges, np.flatnonzero(attributed.op != NONE)
        shape, shapes = input_shapes(attributed)
        output_code, outputs = convolution_outputs(attributed, shape, shapes)
        name, details = ranges.name.codes, ranges.json.codes
        keys = [taken(column, rows) for column in (name, shape, details, output_code)]
        code, firsts = number_groups(*keys)
        names, jsons = (list(ranges[c].texts) for c in ("name", "json"))
        result = [
            _cost(
                names[a] if a != NONE else "",
                shapes[b],
                details=jsons[c] if c != NONE else "",
                known_output=outputs[d] if d != NONE else (),
                options=options,
            )
            for a, b, c, d in zip(*(key[firsts].tolist() for key in keys), strict=True)
        ]
        code_of_range = np.full(len(ranges), len(result))
        code_of_range[rows] = code
        return cls._spread([*result, Cost()], code_of_range)

    @classmethod
    def _spread(cls, costs: list[Cost], place: Ints) -> RangeCosts:
        def per_range(of_cost: Iterable[float], kind: type[Any]) -> NDArray[Any]:
            values = np.array(of_cost, kind)
            is_one = (values == values[0]).all()  # as in reports whose calls have no shapes
            return np.broadcast_to(values[0], len(place)) if is_one else values[place]

        formula_of, formulas = factorize(np.array([cost.formula for cost in costs], object))
        return cls(
            flops=per_range([cost.flops for cost in costs], np.float64),
            bytes=per_range([cost.bytes for cost in costs], np.float64),
            formula=per_range(formula_of, np.int64),
            dtype=per_range([DTYPES.index(c.dtype) if c.dtype else NONE for c in costs], np.int64),
            formulas=list(formulas),
        )


@once
def _range_costs(
    attributed: AttributedCapture, options: CountOptions, _registered: tuple[Any, ...]
) -> RangeCosts:
    return RangeCosts.counted(attributed, options)


def _cost(
    name: str, shapes: str, details: str, known_output: Shapes, options: CountOptions
) -> Cost:
    """Return the cost of a call with this name, these shapes and details."""
    details_read, op = parse_details(details) if details else NOTHING, parse(name).op
    convention = options.convention
    if not shapes and not details_read:
        return Cost(formula=_reason_without(op, convention))
    call = parse_call(op, shapes, details_read)
    dtype = compute_dtype(call.dtypes)
    if options.dtype and not any(call.dtypes):
        call = call._replace(dtypes=tuple(options.dtype if s else "" for s in call.shapes))
    recorded_bytes = _recorded(details_read, "bytes", MAX_BYTES)
    recorded_flops = _recorded(details_read, "flops", MAX_FLOPS) if options.use_recorded else NONE
    if recorded_flops != NONE:
        return Cost(recorded_flops, _bytes_of(call, recorded_bytes), RECORDED, dtype)
    if not call.shapes:
        return Cost(NONE, recorded_bytes, _reason_without(op, convention), dtype)
    note, count = "", flops(call, convention)
    if count is None and known_output:
        call = call._replace(outputs=known_output)
        note, count = FROM_BACKWARD, flops(call, convention)
    if count is None:
        return Cost(NONE, _bytes_of(call, recorded_bytes), _reason_without(op, convention), dtype)
    text = _text(op, convention) + note
    return Cost(_number(count, MAX_FLOPS), _bytes_of(call, recorded_bytes), text, dtype)


def _bytes_of(call: Call, recorded: float) -> float:
    """Return the bytes of a call, as recorded, else as computed."""
    moved = bytes_moved(call) if recorded == NONE else recorded
    return NONE if moved is None else _number(moved, MAX_BYTES)


def _number(value: float, limit: int) -> float:
    """Return a number, or -1 if it is beyond the limit, as with wrong shapes."""
    return float(int(value)) if 0 <= value < limit else NONE


def _text(name: str, convention: str) -> str:
    if convention != OURS:
        return CONVENTIONS[convention].about
    match = formula(name)
    text = "" if match is None else match.text or match.source
    return text if match is None or match.exact else f"{ESTIMATED}{text}"


def _reason_without(name: str, convention: str) -> str:
    has_one = convention == OURS and formula(name) is not None
    return TOO_LITTLE if has_one else NO_FORMULA


def _recorded(details: Mapping[str, Any], key: str, limit: int) -> float:
    value = details.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return NONE
    return _number(value, limit)
