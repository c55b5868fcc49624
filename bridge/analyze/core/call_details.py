"""Details of calls that ranges have: shapes and dtypes of inputs, and arguments as columns."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bridge.analyze.core.groups import texts
from bridge.analyze.core.table import Table
from bridge.importers.arrays import factorize
from bridge.importers.frames import Names
from bridge.importers.range_texts import INPUT_OP_IDS, OP_ID, SEQ, SIZES, numbers
from bridge.importers.range_texts import values as values_of
from bridge.importers.texts import Texts
from bridge.join.arrays import NONE, Ints, repeated
from bridge.join.attributed import AttributedCapture, once
from bridge.join.grammar import parse

# -- Shapes and dtypes


@once
def input_shapes(attributed: AttributedCapture) -> tuple[Ints, list[str]]:
    """Return a code per range and the distinct input shapes, ``[[2, 3], [3, 4]]``, or ''.

    Shapes are read from PyTorch's texts, else from the names of layers, else from recorded details.
    """
    ranges = attributed.capture.ranges
    text_code, text_shapes = _shapes_in_texts(attributed.capture.texts)
    json_code, json_shapes = _json_details(ranges.json, "shapes", _shapes_text)
    name_shapes = [_shapes_in_name(name) for name in ranges.name.texts]
    parts = [
        (text_shapes, text_code[ranges.text]),
        ([*name_shapes, ""], ranges.name.codes),
        (json_shapes, json_code[ranges.json.codes]),
    ]
    codes, names = factorize(np.array([text for said, _ in parts for text in said], object))
    if len(names) == 1:
        return repeated(0, len(ranges)), list(names)
    edges = np.cumsum([0, *(len(said) for said, _ in parts)])
    *first, result = (
        codes[a:b][of] for a, b, (_, of) in zip(edges, edges[1:], parts, strict=False)
    )
    empty = list(names).index("")
    for known in reversed(first):
        result = np.where(known != empty, known, result)
    return result.astype(np.int64), list(names)


def _shapes_in_name(name: str) -> str:
    """Return the input shapes that servers of models write into the name of a layer, '' for other names."""
    if "'Inputs': " not in name and " in=[" not in name:
        return ""
    said = dict(parse(name).arguments)
    if isinstance(said.get("in"), str):
        try:
            return _shapes_text(ast.literal_eval(str(said["in"])))
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return ""
    return _shapes_text(said["Inputs"]) if "Inputs" in said else ""


def output_shapes(attributed: AttributedCapture) -> tuple[Ints, list[str]]:
    """Return a code per range and the distinct output shapes, from recorded details."""
    return _recorded(attributed, "output_shapes", _shapes_text)


def input_dtypes(attributed: AttributedCapture) -> tuple[Ints, list[str]]:
    """Return a code per range and the distinct input dtypes, ``float32, int64``, or ''."""
    return _recorded(attributed, "dtypes", _dtypes_text)


def input_types(attributed: AttributedCapture) -> tuple[Ints, list[str]]:
    """Return a code per range and the distinct lists of the types of all inputs, or ''.

    A list has an entry per input: ``["float", "", "ScalarList"]``, "" where the type is unknown.
    """
    return _recorded(attributed, "dtypes", _types_text)


def input_values(attributed: AttributedCapture) -> tuple[Ints, list[str]]:
    """Return a code per range and the distinct lists of the values of all inputs, or ''.

    A list has an entry per input: ``["", [1, 1], 0.5]``, "" for tensors and unknown values.
    """
    return _recorded(attributed, "inputs", _values_text)


def input_strides(attributed: AttributedCapture) -> tuple[Ints, list[str]]:
    """Return a code per range and the distinct strides of inputs, ``[[3, 1], []]``, or ''."""
    return _recorded(attributed, "strides", _shapes_text)


def overloads(attributed: AttributedCapture) -> tuple[Ints, list[str]]:
    """Return a code per range and the distinct overloads of ops, ``Tensor``, or ''."""
    return _recorded(attributed, "overload", str)


def fused(attributed: AttributedCapture) -> tuple[Ints, list[str]]:
    """Return a code per range and the distinct texts of what ops were fused from, ``multiply, add``, or ''."""
    return _recorded(attributed, "fused", _listed_text)


def call_stacks(attributed: AttributedCapture) -> tuple[Ints, list[str]]:
    """Return a code per range and the distinct recorded call stacks, or ''.

    A stack has a line per frame, the innermost first.
    """
    return _recorded(attributed, "stack", _stack_text)


def _listed_text(result: Any) -> str:
    return ", ".join(map(str, result)) if isinstance(result, list) else str(result)


def _stack_text(result: Any) -> str:
    entries = result if isinstance(result, list) else [result]
    return "\n".join(str(entry).replace("\n", " ") for entry in entries)


def _recorded(
    attributed: AttributedCapture, name: str, text_of: Callable[[Any], str]
) -> tuple[Ints, list[str]]:
    """Return a code per range and the distinct texts of a recorded detail."""
    column = attributed.capture.ranges.json
    return _coded_texts(column, *_json_details(column, name, text_of))


def _coded_texts(
    column: Names, json_code: Ints, json_texts: Sequence[str]
) -> tuple[Ints, list[str]]:
    """Return a code per range and the distinct texts."""
    names = Names.of(json_texts)
    return names.codes[json_code[column.codes]], names.texts


def _shapes_in_texts(pool: Texts) -> tuple[Ints, Sequence[str]]:
    """Return a code per text (the last entry: for no text), and the distinct shapes."""
    codes, names = values_of(pool, SIZES).factorize()
    return np.append(codes, len(names)), [*names, ""]


def _json_details(column: Names, key: str, write: Callable[[Any], str]) -> tuple[Ints, list[str]]:
    """Return a code per JSON text (last: for no text), and each text's entry of a key."""
    entries = [_json_entry(text, key) for text in column.texts]
    return np.arange(len(entries) + 1), [
        *("" if entry is None else write(entry) for entry in entries),
        "",
    ]


def _json_entry(text: str, key: str) -> Any:
    if f'"{key}"' not in text:
        return None
    try:
        result = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return result.get(key) if isinstance(result, dict) else None


def _shapes_text(result: Any) -> str:
    """Write shapes as PyTorch does: an input that is no tensor is ``[]``."""
    entries = result if isinstance(result, list) else [result]
    return json.dumps([[] if shape is None else shape for shape in entries])


def _dtypes_text(result: Any) -> str:
    entries = result if isinstance(result, list) else [result]
    return ", ".join(str(dtype) for dtype in entries if dtype)


def _types_text(result: Any) -> str:
    entries = result if isinstance(result, list) else [result]
    return json.dumps([str(dtype) if dtype else "" for dtype in entries])


def _values_text(result: Any) -> str:
    entries = result if isinstance(result, list) else []
    return f"[{', '.join(map(_value_json, entries))}]" if entries else ""


def _value_json(value: Any) -> str:
    """Return a value of an input as JSON; traces have it as Python writes it: ``'[1, 1]'``, ``'1.'``."""
    try:
        return json.dumps(ast.literal_eval(value), allow_nan=False)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return json.dumps(str(value))


# -- Arguments: PyTorch's per-call part of names, payloads and JSON, as columns


Scalar = int | float | str
NUMBERS = {"seq": SEQ, "op_id": OP_ID}
TEXTS = {"sizes": SIZES, "input_op_ids": INPUT_OP_IDS}


def arguments(attributed: AttributedCapture, taken: Collection[str] = ()) -> Table:
    """Return one row per range that is an op, as `by_range` does, and a column per argument.

    Columns, in order: ``payload``, ``seq``, ``op_id`` (integers, -1 where missing), ``sizes`` and
    ``input_op_ids`` (texts as recorded), the arguments in names (``step``, ``module``, …), and the
    entries of JSON payloads. Arguments whose values are all integers are integer columns, -1 where
    missing; others have '' where missing. Each distinct name and JSON text is parsed once. No
    column is called by a name in ``taken``.
    """
    ranges = attributed.capture.ranges.take(attributed.listed_ranges)
    text, pool = ranges.text, attributed.capture.texts
    result: dict[str, Any] = {"payload": ranges.payload}
    result |= {name: numbers(pool, key)[text] for name, key in NUMBERS.items()}
    result = {name: c for name, c in result.items() if (c != NONE).any()}
    result |= {
        name: c for name, key in TEXTS.items() if (c := _texts_of_key(pool, key, text)).any()
    }
    for column, read in (("name", _name_arguments), ("json", _json_entries)):
        column_texts = ranges[column]
        arguments_of = [read(text_value) for text_value in column_texts.texts]
        for key, values in _columns(arguments_of, column_texts.codes).items():
            result[_unused_name(key, {*taken, *result})] = values
    return Table(result)


def _texts_of_key(pool: Texts, key: bytes, text: Ints) -> Any:
    code, distinct = values_of(pool, key).factorize()
    return texts(distinct)[code[text]]


def _columns(entries: Sequence[Mapping[str, Scalar]], codes: Ints) -> dict[str, Any]:
    """Return a column for each key that is used."""
    used = sorted(set(np.unique(codes).tolist()) - {NONE})
    keys = dict.fromkeys(key for code in used for key in entries[code])
    return {key: _column([entries[code].get(key) for code in used], used, codes) for key in keys}


def _column(values: Sequence[Scalar | None], used: Sequence[int], codes: Ints) -> Any:
    """Return the value of each row: integers (missing: -1) if all are, else objects ('')."""
    place = np.full(max([NONE, *used]) + 2, len(used))
    place[used] = np.arange(len(used))
    if all(type(v) is int and abs(v) < 1 << 63 for v in values if v is not None):
        return np.array([NONE if v is None else v for v in (*values, None)], np.int64)[place[codes]]
    return texts(["" if v is None else v for v in (*values, None)])[place[codes]]


def _unused_name(name: str, taken: Collection[str]) -> str:
    while name in taken:
        name = f"{name} of the call"
    return name


def _name_arguments(name: str) -> dict[str, Scalar]:
    return {key: _scalar(value) for key, value in parse(name).arguments}


def _json_entries(text: str) -> dict[str, Scalar]:
    """Return the entries of a JSON object, those of inner objects as ``outer.inner``.

    Another JSON value, or a text that is no JSON, is the entry ``json``.
    """
    if not text:
        return {}
    try:
        value = json.loads(text)
        return dict(_flat("", value)) if isinstance(value, dict) else {"json": _scalar(value)}
    except (ValueError, RecursionError):  # no JSON, or nested too deeply
        return {"json": text}


def _flat(path: str, value: object) -> Iterable[tuple[str, Scalar]]:
    if not isinstance(value, dict):
        yield path, _scalar(value)
        return
    for key, inner in value.items():
        yield from _flat(f"{path}.{key}" if path else key, inner)


def _scalar(value: object) -> Scalar:
    """Return a value that a column can hold; lists and objects become JSON."""
    if isinstance(value, int | float | str):
        return value
    return json.dumps(value, ensure_ascii=False, default=repr)
