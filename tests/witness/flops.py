"""The columns of FLOPs per op, in loops over calls, as docs/flops.md defines them.

The FLOPs of one call are taken from `bridge.knowledge.formulas`, which tests/formulas holds to the truth.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from bridge.join.attributed import AttributedCapture
from bridge.knowledge.formulas import Call, bytes_moved, flops, formula
from witness.nsys_export import SIZES, without_per_call_part

OLD = {"aten::cudnn_convolution_backward": 1, "aten::convolution_backward": 0}


@dataclass
class Node:
    """A range that is open for some time, with what is in it."""

    op: str
    flops: int | None
    bytes: int | None
    work: list[int] = field(default_factory=list)  # its own activities
    inner: list[Node] = field(default_factory=list)

    def times(self, duration: np.ndarray) -> int:
        """Time of all work in it."""
        return sum(int(duration[a]) for a in self.work) + sum(n.times(duration) for n in self.inner)

    def total(self, what: str, duration: np.ndarray) -> tuple[int, int, bool]:
        """Amount, the time of the work of what is known, and whether anything is."""
        own = getattr(self, what)
        if own is not None:
            return own, self.times(duration), True
        parts = [node.total(what, duration) for node in self.inner]
        return sum(p[0] for p in parts), sum(p[1] for p in parts), any(p[2] for p in parts)

    def left(self, what: str) -> int:
        """Calls with work of their own that nothing counts."""
        if getattr(self, what) is not None:
            return 0
        return bool(self.work) + sum(node.left(what) for node in self.inner)


def shapes(text: str) -> tuple:
    """Shapes as PyTorch writes them, lists flattened."""
    found = []
    for entry in json.loads(text):
        nested = any(isinstance(one, list) for one in entry)
        found += [tuple(one) for one in entry] if nested else [tuple(entry)]
    return tuple(found)


@cache
def amounts(name: str, said: str | None) -> tuple[int | None, int | None]:
    """FLOPs and bytes of a call of these shapes, None each where they are not said."""
    if said is None:
        return None, None
    call = Call(name, shapes(said))
    return flops(call), bytes_moved(call)


def tree(joined: AttributedCapture) -> tuple[list[Node], list[Node]]:
    """All nodes, and the outermost ones."""
    report, nesting = joined.capture, joined.attribution.nesting
    texts = report.texts.decode(report.ranges.text.tolist())
    nodes = []
    for row in nesting.range.tolist():
        name, said = without_per_call_part(texts[row]), SIZES.search(texts[row])
        nodes.append(Node(joined.ops[joined.op[row]], *amounts(name, said and said[1])))
    roots = []
    for node, parent in zip(nodes, joined.hierarchy.parent.tolist(), strict=True):
        (roots if parent == -1 else nodes[parent].inner).append(node)
    for activity, node in enumerate(joined.attribution.node.tolist()):
        if node != -1:
            nodes[node].work.append(activity)
    return nodes, roots


def by_op(joined: AttributedCapture) -> dict[str, dict[str, float]]:
    """The columns per op."""
    duration, (_, roots) = joined.duration, tree(joined)
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(int))

    def visit(node: Node, around: frozenset[str], *, counted: bool) -> None:
        row = found[node.op]
        if node.op not in around:
            for what, amount, spent in (("flops", "flop", "counted_ns"), ("bytes", "moved_bytes", "moved_ns")):  # fmt: skip
                total, time, there = node.total(what, duration)
                row[amount] += total
                row[spent] += time
                row[f"{what} known"] |= there
                row[f"{what} left"] += node.left(what)
        if node.flops is not None and not counted:
            row["flop_once"] += node.flops
        for inner in node.inner:
            visit(inner, around | {node.op}, counted=counted or node.flops is not None)

    for root in roots:
        visit(root, frozenset(), counted=False)
    return found


def text(op: str) -> str:
    """The text of an op's formula as a table says it."""
    found = formula(op)
    return "" if found is None else ("" if found.exact else "≈ ") + found.text
