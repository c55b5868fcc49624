"""What a report says of single collectives: details of the ranges around a kernel's launch, shapes in their texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bridge.analyze.concurrency.messages import OP, UNKNOWN, Said, elements
from bridge.join.attributed import Attributed
from bridge.join.grammar import parse
from bridge.join.order import NONE, Flags, Ints
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
        own = _is_collective(joined)
        while len(left):  # a turn per level
            level = 2 * json[nesting.range[node]] + own[joined.node_op[node]]
            distinct, of = np.unique(level, return_inverse=True)
            place = np.zeros(len(distinct), np.int64)
            for nth, one in enumerate(distinct.tolist()):  # a turn per distinct text
                if one >= 0 and (said := Said.of(written[one // 2], own=bool(one % 2))):
                    place[nth] = len(details)
                    details.append(said)
            code[left] = place[of]
            node = nesting.parent[node]
            on = (node != NONE) & (code[left] == 0)
            left, node = left[on], node[on]
        return cls(code, details, found)


def _of_shapes(joined: Attributed, rows: Ints) -> Ints:
    """Return how many elements the shapes in the texts of some ranges make, -1 where they say none."""
    report, found = joined.report, np.full(len(rows), UNKNOWN, np.int64)
    op = np.append(joined.op, NONE)[rows]
    there = np.flatnonzero(_is_collective(joined)[op])
    text, of = np.unique(frames.ints(report.ranges, "text")[rows[there]], return_inverse=True)
    said = [dict(parse(one).arguments).get(SIZES) for one in report.texts.decode(text)]
    counted = [elements(shapes) for shapes in said]
    found[there] = np.array(counted, np.int64)[of]
    return found


def _is_collective(joined: Attributed) -> Flags:
    """Tell which ops are PyTorch's own ranges around one; the last entry is for none."""
    return np.array([*(OP.match(op) is not None for op in joined.ops), False], bool)
