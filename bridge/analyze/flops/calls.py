"""What each range says of its cost: as recorded, else by formula from its name, shapes, dtypes and arguments.

Each distinct combination of these is looked at once. What is not known is -1, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bridge.analyze.flops import inputs
from bridge.analyze.flops.convolution_outputs import made_elsewhere
from bridge.analyze.flops.inputs import Shapes
from bridge.analyze.groups import Floats
from bridge.join.arrays import NONE, Ints
from bridge.join.attributed import Attributed
from bridge.join.grammar import parse
from bridge.knowledge.formulas import Call, bytes_moved, flops, formula
from bridge.knowledge.formulas.conventions import CONVENTIONS, OURS
from bridge.knowledge.hardware import DTYPES
from importers import frames

RECORDED, NO_FORMULA, TOO_LITTLE = "recorded", "no formula", "too little recorded"
ESTIMATED = "≈ "  # before the text of a formula that is no exact count
FROM_BACKWARD = "; output as in the backward pass"
MOST = 1 << 80  # FLOPs: no call computes as much
MOST_BYTES = 1 << 62  # nor moves as much; sums stay within 64 bits


@dataclass(frozen=True)
class Cost:
    """What one call costs, -1 for what is not known; the dtype is one of `DTYPES`, '' for none of these."""

    flops: float = NONE
    bytes: float = NONE
    formula: str = NO_FORMULA
    dtype: str = ""


class Asked(NamedTuple):
    """How to count, the dtype (as frameworks call it) of inputs that say none, whether recorded FLOPs come first."""

    convention: str
    dtype: str
    told: bool


@dataclass(frozen=True)
class Known:
    """Per range: FLOPs and bytes (-1 where not known), codes into ``formulas`` and of `DTYPES` (or NONE)."""

    flops: Floats
    bytes: Floats
    formula: Ints
    dtype: Ints
    formulas: list[str]

    @classmethod
    def of(
        cls, joined: Attributed, convention: str = OURS, dtype: str = "", *, told: bool = False
    ) -> Known:
        """Read and compute what the ranges of a report cost that are ops, whichever are counted.

        ``dtype`` (of `DTYPES`) is that of inputs where a call says none. By a convention other than ours what is recorded
        is left aside, unless ``told``.
        """
        from bridge.analyze.tables.input_shapes import (  # that package is made of this one
            shapes as said_shapes,
        )

        ranges, rows = joined.report.ranges, np.flatnonzero(joined.op != NONE)
        shape, shapes = said_shapes(joined)
        other, outputs = made_elsewhere(joined, shape, shapes)
        name, details = frames.codes(ranges["name"]), frames.codes(ranges["json"])
        keys = [column[rows] for column in (name, shape, details, other)]
        code, firsts = _distinct(keys)
        asked = Asked(convention, inputs.NAMES.get(dtype, ""), told or convention == OURS)
        names, jsons = (list(ranges[c].cat.categories) for c in ("name", "json"))
        found = [
            _cost(
                names[a] if a != NONE else "",
                shapes[b],
                jsons[c] if c != NONE else "",
                outputs[d] if d != NONE else (),
                asked,
            )
            for a, b, c, d in zip(*(key[firsts].tolist() for key in keys), strict=True)
        ]
        place = np.full(len(ranges), len(found))
        place[rows] = code
        return cls._spread([*found, Cost()], place)

    @classmethod
    def _spread(cls, costs: list[Cost], place: Ints) -> Known:
        formula_of, formulas = pd.factorize(np.array([cost.formula for cost in costs], object))
        dtype = np.array([DTYPES.index(c.dtype) if c.dtype else NONE for c in costs], np.int64)
        return cls(
            np.array([cost.flops for cost in costs], np.float64)[place],
            np.array([cost.bytes for cost in costs], np.float64)[place],
            formula_of.astype(np.int64)[place],
            dtype[place],
            list(formulas),
        )


def _distinct(keys: list[Ints]) -> tuple[Ints, Ints]:
    """Return a code per row and a row of each code, by first occurrence."""
    code = np.zeros(len(keys[0]), np.int64)
    for key in keys:
        code = pd.factorize(code * (int(key.max(initial=0)) + 2) + key + 1)[0].astype(np.int64)
    firsts = np.zeros(int(code.max(initial=NONE)) + 1, np.int64)
    firsts[code[::-1]] = np.arange(len(code))[::-1]
    return code, firsts


def _cost(name: str, shapes: str, details: str, output: Shapes, asked: Asked) -> Cost:
    """Return what a call of this name costs that says so much of itself."""
    said, op, convention = inputs.details(details), parse(name).op, asked.convention
    if not shapes and not said:
        return Cost(formula=_without(op, convention))
    call = inputs.call(op, shapes, said)
    dtype = inputs.computes_in(call.dtypes)
    if asked.dtype and not any(call.dtypes):
        call = call._replace(dtypes=tuple(asked.dtype if s else "" for s in call.shapes))
    moved = _recorded(said, "bytes", MOST_BYTES)
    told = _recorded(said, "flops", MOST) if asked.told else NONE
    if told != NONE:
        return Cost(told, _moved(call, moved), RECORDED, dtype)
    if not call.shapes:
        return Cost(NONE, moved, _without(op, convention), dtype)
    how, count = "", flops(call, convention)
    if count is None and output:
        call = call._replace(outputs=output)
        how, count = FROM_BACKWARD, flops(call, convention)
    if count is None:
        return Cost(NONE, _moved(call, moved), _without(op, convention), dtype)
    text = _text(op, convention) + how
    return Cost(_number(count, MOST), _moved(call, moved), text, dtype)


def _moved(call: Call, recorded: float) -> float:
    """Return the bytes of a call as recorded, else as computed."""
    known = bytes_moved(call) if recorded == NONE else recorded
    return NONE if known is None else _number(known, MOST_BYTES)


def _number(value: float, most: int) -> float:
    """Return a number, -1 for one that no call can have: of shapes that are not true."""
    return float(int(value)) if 0 <= value < most else NONE


def _text(name: str, convention: str) -> str:
    if convention != OURS:
        return CONVENTIONS[convention].about
    found = formula(name)
    text = "" if found is None else found.text or found.source
    return text if found is None or found.exact else f"{ESTIMATED}{text}"


def _without(name: str, convention: str) -> str:
    """Say why a call has no count."""
    has_one = convention == OURS and formula(name) is not None
    return TOO_LITTLE if has_one else NO_FORMULA


def _recorded(said: Mapping[str, Any], key: str, most: int) -> float:
    value = said.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return NONE
    return _number(value, most)
