"""The Python functions around each op, for those who group by them.

An op of the backward pass has the functions around the forward op that it goes back to, as PyTorch has it.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from bridge.join.attributed import Attributed
from bridge.join.nesting import Nesting
from bridge.join.order import NONE, Flags, Ints, number
from importers import frames

CATEGORY = "python_function"  # of the ranges that are such
# PyTorch's own functions on the way to the backward pass, which it leaves out.
BETWEEN = (("autograd/__init__", "_make_grads"), ("autograd/__init__", "backward"), ("torch/tensor", "backward"))  # fmt: skip


def stacks(joined: Attributed, rows: Ints, levels: int) -> tuple[Ints, list[str]]:
    """Return a code for each of some ranges, and the distinct stacks: so many names, innermost first, a line each."""
    ranges = joined.report.ranges
    functions = np.flatnonzero(_functions(ranges))
    if not (len(functions) and levels > 0):
        return np.zeros(len(rows), np.int64), [""]
    start, end = (frames.ints(ranges, c) for c in ("start", "end"))
    stack, _ = number(*(frames.ints(ranges, c) for c in ("report", "thread")))
    nesting = Nesting.of(stack[functions], start[functions], end[functions], functions)
    asked = _forward(joined, rows)
    node = nesting.innermost(stack[asked], start[asked])
    names = [*ranges["name"].cat.categories, ""]
    own = np.append(frames.codes(ranges["name"])[nesting.range], NONE)
    code, texts = np.zeros(len(rows), np.int64), [""]
    for _ in range(levels):
        code, texts = _deeper(code, texts, own[node], names)
        node = np.append(nesting.parent, NONE)[node]
    return code, texts


def _deeper(code: Ints, texts: list[str], name: Ints, names: list[str]) -> tuple[Ints, list[str]]:
    """Return stacks that have one name more, where there is one."""
    deeper, first = number(code, name)
    pairs = zip(code[first].tolist(), name[first].tolist(), strict=True)
    return deeper, [f"{texts[one]}\n{names[more]}".strip("\n") for one, more in pairs]


def _functions(ranges: pd.DataFrame) -> Flags:
    """Tell which ranges are functions that a stack shows."""
    column, category = ranges["name"], ranges["category"]
    shown = np.array([*map(_shown, column.cat.categories), False])
    of_python = np.array([*(name == CATEGORY for name in category.cat.categories), False])
    found: Flags = shown[frames.codes(column)] & of_python[frames.codes(category)]
    return found


def _shown(name: str) -> bool:
    return not any(file in name and function in name for file, function in BETWEEN)


def _forward(joined: Attributed, rows: Ints) -> Ints:
    """Return for each range the one that it goes back to, else itself."""
    nodes = joined.attribution.nesting.first_nodes(len(joined.report.ranges))[rows]
    forward = np.append(joined.directions.forward, NONE)[nodes]
    return np.where((nodes == NONE) | (forward == NONE), rows, forward)
