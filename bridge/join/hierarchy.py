"""The hierarchy of ranges across threads: which range the work of the backward pass is under.

PyTorch's autograd engine runs the backward pass on threads of its own, on which no range of the
program is open. The thread that called ``loss.backward()`` waits meanwhile, with its range open.
The owner of an activity never changes here, only what is around that owner.
"""

from __future__ import annotations

import re

import numpy as np

from bridge.importers.arrays import lookup
from bridge.importers.capture import Capture
from bridge.join.arrays import NONE, Flags, Ints, number_groups, run_edges, stable_order
from bridge.join.autograd import Directions, named_backward
from bridge.join.grammar import BACKWARD_MODULE, Label, parse
from bridge.join.nesting import LIBRARY_KINDS, Nesting, inherited

BACKWARD_UNDER = CALLER, FORWARD_RANGE = ("caller", "forward")  # what backward work is under


def with_callers(capture: Capture, nesting: Nesting) -> Ints:
    """Return the parent of each node; for the engine's outermost ranges the range of their caller.

    The caller is the one other thread of the process in which a range is open around the engine's
    range, and which is in no operator of a library meanwhile. If several threads qualify, it is the
    one in a backward range by its name. Only ranges that are open at that time are looked at, so
    that a window of a report gives the result of the whole report.
    """
    names = capture.ranges.name[nesting.range]
    if not MAY_BE_ENGINE.search("\n".join(names.texts)):
        return nesting.parent  # most reports; there may be a million names
    is_engine = names.matching(lambda name: _is_engine(parse(name)))
    timeline = np.array([facts.timeline for facts in capture.facts], bool)
    report, process = (capture.ranges[c][nesting.range] for c in KEY)
    roots = np.flatnonzero((nesting.parent == NONE) & is_engine & timeline[report])
    is_library = names.matching(lambda name: parse(name).kind in LIBRARY_KINDS)
    waits = inherited(nesting, np.where(is_library, 1, NONE)) == NONE
    backward = named_backward(capture, nesting)
    key, _ = number_groups(report, process)
    parent = nesting.parent.copy()
    parent[roots] = _callers(nesting, key, roots=roots, waits=waits, backward=backward)
    return parent


def with_forward_ranges(capture: Capture, nesting: Nesting, directions: Directions) -> Ints:
    """Return the range that each of the engine's outermost ranges has its forward range in.

    That is the innermost range around the forward range that no library wrote, or NONE.
    """
    names = capture.ranges.name[nesting.range]
    is_own = names.matching(lambda name: parse(name).kind not in LIBRARY_KINDS)
    around = inherited(nesting, np.where(is_own, np.arange(len(nesting)), NONE))
    first = np.append(nesting.first_nodes(len(capture.ranges)), NONE)
    forward = first[directions.forward]
    moves = (nesting.parent == NONE) & directions.backward & (forward != NONE)
    return np.where(moves, lookup(around, forward), NONE)


KEY = ("report", "process")
MAY_BE_ENGINE = re.compile(r"backward|AccumulateGrad|CopySlices|evaluate_function", re.IGNORECASE)


def _is_engine(label: Label) -> bool:
    """Return whether a label is a node of autograd, or a module's backward work."""
    is_module = label.dialect == BACKWARD_MODULE
    return is_module or (label.backward and label.kind in LIBRARY_KINDS)


def _callers(nesting: Nesting, key: Ints, roots: Ints, waits: Flags, backward: Flags) -> Ints:
    """Return the range of the caller of each root, or NONE; ``key`` is a code per process."""
    result, in_backward = np.full(len(roots), NONE), np.full(len(roots), NONE)
    offers, backward_offers = np.zeros(len(roots), np.int64), np.zeros(len(roots), np.int64)
    of_process = stable_order(key[roots])
    keys = key[roots[of_process]]
    for first in run_edges(nesting.stack)[:-1].tolist():  # one iteration per stack
        rows = of_process[slice(*np.searchsorted(keys, (key[first], key[first] + 1)))]
        rows = rows[nesting.stack[roots[rows]] != nesting.stack[first]]
        stack = np.full(len(rows), nesting.stack[first])
        node = nesting.enclosing(stack, nesting.start[roots[rows]], nesting.end[roots[rows]])
        fits = (node != NONE) & lookup(waits, node, False)
        result[rows[fits]] = node[fits]
        offers[rows[fits]] += 1
        fits &= lookup(backward, node, False)
        in_backward[rows[fits]] = node[fits]
        backward_offers[rows[fits]] += 1
    result = np.where(offers == 1, result, NONE)
    return np.where((offers > 1) & (backward_offers == 1), in_backward, result)
