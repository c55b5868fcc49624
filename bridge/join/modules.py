"""The module that each range runs in: the chain of ranges around it that stand for modules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bridge.join.autograd import inherited
from bridge.join.grammar import Label, parse
from bridge.join.nesting import Nesting
from bridge.join.order import NONE, Flags, Ints
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
    def of_report(cls, report: Report, nesting: Nesting) -> Modules:
        """Find the ranges that stand for modules.

        Those that say so (``nn.Module: X``, ``module:X``, ``layer:X``, category "module"), and where a
        report has none, all that are neither operators of a framework nor communication.
        """
        labels = [parse(name) for name in report.ranges["name"].cat.categories]
        code = frames.codes(report.ranges["name"])[nesting.range]
        chosen = np.flatnonzero(_standing(report, nesting, labels, code))
        place = np.full(len(nesting), NONE)
        place[chosen] = np.arange(len(chosen))
        of = inherited(nesting, place)
        parent = nesting.parent[chosen]
        own = replace(
            nesting,
            **{c: getattr(nesting, c)[chosen] for c in ("stack", "start", "end", "range")},
            parent=np.where(parent == NONE, NONE, of[parent]),
        )
        path, names = paths(own, code[chosen], [_name(label) for label in labels], dotted=True)
        return cls(own, of, path, names)


def _standing(report: Report, nesting: Nesting, labels: Sequence[Label], code: Ints) -> Flags:
    named = np.array([label.kind == "module" for label in labels], bool)[code]
    category = report.ranges["category"]
    is_module = np.array([*(name == CATEGORY for name in category.cat.categories), False])
    named |= is_module[frames.codes(category)[nesting.range]]
    if named.any():
        return named
    written = np.array([label.kind not in OF_LIBRARIES for label in labels], bool)
    written &= ~_numbered(report)
    return written[code]


def _numbered(report: Report) -> Flags:
    """Tell which names have a range whose text goes on after them: PyTorch numbers calls of operators."""
    name = report.ranges["name"]
    sizes = report.texts.sizes[frames.ints(report.ranges, "text")]
    code = frames.codes(name)
    longer = sizes > Texts.of(name.cat.categories).sizes[code]
    found = np.zeros(len(name.cat.categories), bool)
    found[code[longer]] = True
    return found


def _name(label: Label) -> str:
    return (
        str(dict(label.arguments).get("module", label.op)) if label.kind == "module" else label.op
    )
