"""What a report says of single collectives: details of the ranges around a kernel's launch, shapes in their texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from bridge.analyze.concurrency.messages import OP, UNKNOWN, Said
from bridge.join.attributed import Attributed
from bridge.join.grammar import parse
from bridge.join.order import NONE, Ints
from importers import frames

SIZES = "sizes"


@dataclass(frozen=True)
class Sent:
    """For each collective a code into the distinct details, and the elements that the shapes of its op make."""

    code: Ints
    details: Sequence[Said]
    elements: Ints

    @classmethod
    def of(cls, joined: Attributed, rows: Ints) -> Sent:
        """Read what is said of some activities; the innermost range with details counts."""
        nesting, column = joined.attribution.nesting, joined.report.ranges["json"]
        node = joined.attribution.node[rows]
        found = _of_shapes(joined, np.append(nesting.range, NONE)[node])
        json, written = frames.codes(column), column.cat.categories
        details, code = [Said()], np.zeros(len(rows), np.int64)
        left = np.flatnonzero(node != NONE)
        node = node[left]
        while len(left):  # a turn per level
            level = json[nesting.range[node]]
            for one in np.unique(level[level != NONE]).tolist():  # a turn per distinct text
                if said := Said.of(written[one]):
                    code[left[level == one]] = len(details)
                    details.append(said)
            node = nesting.parent[node]
            on = (node != NONE) & (code[left] == 0)
            left, node = left[on], node[on]
        return cls(code, details, found)


def _of_shapes(joined: Attributed, rows: Ints) -> Ints:
    """Return how many elements the shapes in the texts of some ranges make, -1 where they say none."""
    report, found = joined.report, np.full(len(rows), UNKNOWN, np.int64)
    named = [OP.match(op) is not None for op in joined.ops]
    there = np.flatnonzero(np.array([*named, False], bool)[joined.op[rows]] & (rows != NONE))
    text, of = np.unique(frames.ints(report.ranges, "text")[rows[there]], return_inverse=True)
    counted = [_elements(one) for one in report.texts.decode(text)]
    found[there] = np.array(counted, np.int64)[of]
    return found


def _elements(text: str) -> int:
    """Add up the elements of the shapes in a text; what is no tensor has an empty one."""
    shapes = _flat(dict(parse(text).arguments).get(SIZES))
    return sum(map(prod, shapes)) if shapes else UNKNOWN


def _flat(value: object) -> list[tuple[int, ...]]:
    """Return the shapes in lists of lists."""
    if not isinstance(value, tuple) or not value:
        return []
    if all(isinstance(one, int) for one in value):
        return [value]
    return [shape for one in value for shape in _flat(one)]
