"""The output of a convolution whose stride and padding nobody recorded: it is as large as its gradient.

PyTorch writes the shapes of inputs alone, which leave open how often a convolution's weight is applied. In a training
step the backward pass says it: the gradient of the output is the first input of the call that goes back to this one.
"""

from __future__ import annotations

import numpy as np

from bridge.analyze.flops import inputs
from bridge.analyze.flops.inputs import Shapes
from bridge.join.arrays import NONE, Flags, Ints, number
from bridge.join.attributed import Attributed
from bridge.join.grammar import parse
from bridge.knowledge.formulas import formula
from bridge.knowledge.formulas.call import keys
from importers import frames

# Where a backward call's inputs have the gradient of the output.
BACKWARD = {
    "convolution_backward": 0,
    "convolution_backward_overrideable": 0,
    "cudnn_convolution_backward": 1,
}


def made_elsewhere(joined: Attributed, shape: Ints, shapes: list[str]) -> tuple[Ints, list[Shapes]]:
    """Return a code per range, or NONE, and the distinct outputs that backward calls say of forward convolutions.

    Convolutions that call one another, as PyTorch's do, have one output.
    """
    column = joined.report.ranges["name"]
    ops = [parse(name).op for name in column.cat.categories]
    place = np.array([*(_place(op) for op in ops), NONE])[frames.codes(column)]
    forward = np.array([*(_is_convolution(op) for op in ops), False])[frames.codes(column)]
    found = np.full(len(shape), NONE)
    if not ((place != NONE).any() and forward.any()):
        return found, []
    nesting, of_node = joined.attribution.nesting, joined.directions.forward
    node = np.flatnonzero((place[nesting.range] != NONE) & (of_node != NONE))
    row = nesting.range[node]
    both, firsts = number(shape[row], place[row])
    pairs = zip(shape[row[firsts]].tolist(), place[row[firsts]].tolist(), strict=True)
    outputs = [inputs.shapes(shapes[code])[at : at + 1] for code, at in pairs]
    found[of_node[node]] = both
    found[~forward] = NONE
    return _within(joined, found, forward), outputs


def _within(joined: Attributed, found: Ints, forward: Flags) -> Ints:
    """Hand what a convolution has to those around and within it: one calls the other with the same inputs."""
    nesting = joined.attribution.nesting
    node = found[nesting.range]
    inner = forward[nesting.range]
    while True:  # a turn per level of calls that pass the work on
        parent = nesting.parent
        pairs = np.flatnonzero((parent != NONE) & inner)
        pairs = pairs[inner[parent[pairs]]]
        down = pairs[(node[pairs] == NONE) & (node[parent[pairs]] != NONE)]
        up = pairs[(node[pairs] != NONE) & (node[parent[pairs]] == NONE)]
        if not len(down) + len(up):
            break
        node[down] = node[parent[down]]
        node[parent[up]] = node[up]
    spread = found.copy()
    spread[nesting.range] = node
    return spread


def _place(op: str) -> int:
    return next((BACKWARD[key] for key in keys(op) if key in BACKWARD), NONE)


def _is_convolution(op: str) -> bool:
    found = formula(op)
    return found is not None and found.kind == "convolution" and "backward" not in op
