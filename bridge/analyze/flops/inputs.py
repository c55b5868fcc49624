"""What texts say of a call's inputs, read into a `Call` of bridge.knowledge.formulas: shapes and dtypes of whatever recorder."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bridge.knowledge.formulas import Call
from bridge.knowledge.formulas.traffic import plain

Shapes = tuple[tuple[int, ...] | None, ...]
# As PyTorch's profiler writes C++ types, and what is no tensor.
ALIASES = {
    "long int": "int64",
    "unsigned char": "uint8",
    "signed char": "int8",
    "short int": "int16",
}
NO_TENSOR = frozenset("Scalar ScalarList GenericList Device Layout None".split())
LISTED = "TensorList"
COMPUTES_IN = {
    **dict.fromkeys(("float64", "double"), "fp64"),
    **dict.fromkeys(("float32", "float"), "fp32"),
    **dict.fromkeys(("float16", "half", "Half"), "fp16"),
    **dict.fromkeys(("bfloat16", "BFloat16"), "bf16"),
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "Float8_e4m3fn", "Float8_e5m2"), "fp8"),
    **dict.fromkeys(("int8",), "int8"),
}

# What frameworks call a dtype of bridge.knowledge.hardware.
NAMES = {
    "fp64": "float64",
    "fp64_tensor": "float64",
    "fp32": "float32",
    "tf32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8": "float8_e4m3fn",
    "int8": "int8",
}


def details(text: str) -> Mapping[str, Any]:
    """Return the entries of a JSON object; nothing for what is none."""
    if not text.startswith("{"):
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def shapes(text: str) -> Shapes:
    """Return the shapes in a text such as ``[[2, 3], []]``, lists of tensors flattened; nothing for another text."""
    return tuple(shape for shape, _ in _flat(_read(text), ()))


def _read(text: str) -> list[Any]:
    """Return the list that a text is, an empty one for another."""
    try:
        found = json.loads(text) if text.startswith("[") else []
    except (ValueError, RecursionError):
        return []
    return found if isinstance(found, list) else []


def call(name: str, written: str, said: Mapping[str, Any]) -> Call:
    """Return the call of an op, as its shapes are written and its details say."""
    own = said.get("shapes")
    if not isinstance(own, list):
        own = _read(written)
    inputs = list(_flat(own, _texts(said.get("dtypes"))))
    arguments = said.get("args")
    return Call(
        name,
        tuple(shape for shape, _ in inputs),
        tuple(dtype for _, dtype in inputs),
        arguments if isinstance(arguments, dict) else {},
        tuple(shape for shape, _ in _flat(_list(said.get("output_shapes")), ())),
        tuple(_dtype(one) for one in _texts(said.get("output_dtypes"))),
    )


def computes_in(dtypes: Iterable[str]) -> str:
    """Return the dtype (of bridge.knowledge.hardware) that all inputs have which have one, '' for none and for several."""
    found = {COMPUTES_IN[plain(one)] for one in dtypes if plain(one) in COMPUTES_IN}
    floating = found - {"int8"} or found
    return floating.pop() if len(floating) == 1 else ""


def _flat(entries: Sequence[Any], dtypes: Sequence[str]) -> Iterable[tuple[Any, str]]:
    """Give shape and dtype of each input; a shape is None for what is no tensor."""
    known = [*dtypes, *("" for _ in entries[len(dtypes) :])]
    for entry, dtype in zip(entries, known, strict=False):
        if isinstance(entry, list) and any(isinstance(inner, list) for inner in entry):
            yield from ((tuple(inner) if isinstance(inner, list) else None, "") for inner in entry)
        elif not isinstance(entry, list) or dtype in NO_TENSOR:
            yield None, ""
        else:
            yield tuple(entry), _dtype(dtype)


def _dtype(text: str) -> str:
    return ALIASES.get(text, "" if text == LISTED else text)


def _texts(found: Any) -> list[str]:
    return [one if isinstance(one, str) else "" for one in _list(found)]


def _list(found: Any) -> list[Any]:
    return found if isinstance(found, list) else []
