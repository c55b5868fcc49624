"""The module that each range runs in: the chain of ranges around it that stand for modules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bridge.join.autograd import inherited
from bridge.join.grammar import parse
from bridge.join.nesting import Nesting
from bridge.join.order import NONE, Flags, Ints, number
from bridge.join.paths import paths
from importers import frames
from importers.report import Report
from importers.texts import Texts

CATEGORY = "module"  # of a range that says by its category that it is one
OF_LIBRARIES = ("operator", "communication")  # kinds of ranges that no program's author wrote


@dataclass(frozen=True)
class Modules:
    """Modules as a nesting of their own.

    ``of`` is the node of the nearest module for each node of all ranges, or NONE; ``path`` a code
    per module's node into ``paths``.
    """

    nesting: Nesting
    of: Ints
    path: Ints
    paths: Sequence[str]

    @classmethod
    def of_report(cls, report: Report, nesting: Nesting, op: Ints, ops: Sequence[str]) -> Modules:
        """Find the ranges that stand for modules; ``op`` is a code into ``ops`` per node, which name them.

        Those that say so (``nn.Module: X``, ``module:X``, ``layer:X``, category "module"), and in a
        report that has none, all that are neither operators of a framework nor communication.
        """
        chosen = np.flatnonzero(_standing(report, nesting))
        place = np.full(len(nesting), NONE)
        place[chosen] = np.arange(len(chosen))
        of = inherited(nesting, place)
        parent = nesting.parent[chosen]
        own = replace(
            nesting,
            **{c: getattr(nesting, c)[chosen] for c in ("stack", "start", "end", "range")},
            parent=np.where(parent == NONE, NONE, np.append(of, NONE)[parent]),
        )
        path, names = paths(own, op[chosen], [_name(one) for one in ops], dotted=True)
        return cls(own, of, path, names)


def _standing(report: Report, nesting: Nesting) -> Flags:
    ranges = report.ranges
    labels = [parse(name) for name in ranges["name"].cat.categories]
    code = frames.codes(ranges["name"])
    named = np.array([label.kind == "module" for label in labels], bool)[code]
    category = ranges["category"]
    is_module = np.array([*(name == CATEGORY for name in category.cat.categories), False])
    named = (named | is_module[frames.codes(category)])[nesting.range]
    written = np.array([label.kind not in OF_LIBRARIES for label in labels], bool)[code]
    written &= ~_of_pytorch(report, code)
    of = frames.ints(ranges, "report")[nesting.range]
    has = np.bincount(of[named], minlength=int(of.max(initial=0)) + 1) > 0
    return np.where(has[of], named, written[nesting.range])


def _of_pytorch(report: Report, name: Ints) -> Flags:
    """Tell which ranges have the name of one whose text goes on: PyTorch numbers calls of operators."""
    ranges = report.ranges
    sizes = report.texts.sizes[frames.ints(ranges, "text")]
    longer = sizes > Texts.of(ranges["name"].cat.categories).sizes[name]
    key, _ = number(frames.ints(ranges, "report"), name)
    return np.isin(key, np.unique(key[longer]))


def _name(op: str) -> str:
    label = parse(op)
    return str(dict(label.arguments).get("module", op)) if label.kind == "module" else op
