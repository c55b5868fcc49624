"""Samples: the stacks of a call tree, kept apart by op, module, kernel, GPU and stream."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bridge.analyze.core.calltree import CallTree, Stacked
from bridge.analyze.core.devices import Devices
from bridge.analyze.core.groups import counts, sums
from bridge.importers.arrays import lookup
from bridge.importers.frames import Names
from bridge.importers.records import record
from bridge.join.arrays import NONE, Ints, number_groups, repeated
from bridge.join.attributed import AttributedCapture


@record
class Samples:
    """Stacks with labels and weights of their own, a row for each combination that occurs.

    ``frame`` is the innermost frame, a row of ``tree``. ``texts`` and ``numbers`` are labels by
    name; a row without one has NONE. ``weights`` are int64 by the names of `WEIGHTS`.
    """

    tree: CallTree
    frame: Ints
    texts: Mapping[str, Names]
    numbers: Mapping[str, Ints]
    weights: Mapping[str, Ints]


def samples(attributed: AttributedCapture, stacked: Stacked) -> Samples:
    """Return the stacks with a weight of their own, those of a frame before those under it.

    ``op``, ``device`` and ``stream`` are as in the tables by these names; ``kernel`` is any
    activity's name, ``module`` the path of the modules of the stack, ``step`` its step.
    """
    frame = np.concatenate((stacked.work, stacked.ranges))
    texts, numbers = _texts(attributed, stacked), _numbers(attributed, stacked)
    codes = [names.codes for names in texts.values()]
    group, first = number_groups(stacked.tree.place[frame], *codes, *numbers.values())
    weights = _weights(attributed, stacked, group, len(first))
    used = np.flatnonzero(np.any([values != 0 for values in weights.values()], axis=0))
    rows = first[used]
    return Samples(
        tree=stacked.tree,
        frame=frame[rows],
        texts={name: names[rows] for name, names in texts.items()},
        numbers={name: column[rows] for name, column in numbers.items()},
        weights={kind: values[used] for kind, values in weights.items()},
    )


def _texts(attributed: AttributedCapture, stacked: Stacked) -> dict[str, Names]:
    """Return the labels that are texts, of each activity and then of each node."""
    rows, nodes = stacked.activities, stacked.nodes
    modules, devices = attributed.modules, Devices.of_report(attributed)
    module = np.concatenate(
        (
            lookup(attributed.module_of_work, attributed.node[rows]),
            _module_of_range(attributed, nodes),
        )
    )
    op = np.concatenate((attributed.activity_op[rows], attributed.node_op[nodes]))
    kernel, no_work = attributed.activity_name, repeated(NONE, len(nodes))
    return {
        "op": Names(op, attributed.ops),
        "module": Names(lookup(modules.path, module), modules.paths),
        "kernel": Names(np.concatenate((kernel.codes[rows], no_work)), kernel.texts),
        "device": Names(np.concatenate((devices.gpu[rows], no_work)), devices.names),
    }


def _module_of_range(attributed: AttributedCapture, nodes: Ints) -> Ints:
    """Return the node of modules around each node: a module's is its own, in the backward pass too."""
    modules = attributed.modules
    nearest = modules.nearest[nodes]
    is_module = lookup(modules.nesting.range, nearest) == attributed.hierarchy.range[nodes]
    return np.where(is_module, nearest, attributed.module_of_work[nodes])


def _numbers(attributed: AttributedCapture, stacked: Stacked) -> dict[str, Ints]:
    """Return the labels that are numbers, of each activity and then of each node."""
    stream = attributed.capture.activities.stream[stacked.activities]
    return {
        "stream": np.concatenate((stream, repeated(NONE, len(stacked.nodes)))),
        "step": lookup(stacked.step_numbers, stacked.step),
    }


def _weights(
    attributed: AttributedCapture, stacked: Stacked, group: Ints, groups: int
) -> dict[str, Ints]:
    """Return the weights of each group of activities and nodes, by the names of `WEIGHTS`."""
    work, ranges = np.split(group, [len(stacked.work)])
    return {
        "gpu": sums(work, attributed.duration[stacked.activities], groups),
        "cpu": sums(ranges, stacked.cpu_self_ns, groups),
        "calls": counts(ranges[stacked.is_call], groups),
    }
