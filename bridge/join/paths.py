"""Paths of ops: ``step/forward/attn`` for each node of a nesting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from bridge.join.nesting import Nesting
from bridge.join.order import NONE, Ints
from importers.texts import unique_names

SEPARATOR = "/"


def paths(
    nesting: Nesting, op: Ints, names: Sequence[str], *, dotted: bool = False
) -> tuple[Ints, list[str]]:
    """Return the path of each node as a code, and the distinct paths; ``op`` is a code per node.

    With ``dotted``, a name that goes on where the path around it ends, as ``encoder.0`` does in
    ``encoder``, is a path already.
    """
    code = np.full(len(nesting), NONE)
    found: list[str] = []
    level = nesting.levels()
    for depth in range(int(level.max(initial=-1)) + 1):
        nodes = np.flatnonzero(level == depth)
        above = np.where(depth > 0, code[nesting.parent[nodes]], NONE)
        keys, distinct = pd.factorize((above + 1) * len(names) + op[nodes])
        code[nodes] = keys + len(found)
        parents, ops = np.divmod(distinct, len(names))
        found += [
            _under(found[parent - 1], names[o], dotted=dotted) if parent else names[o]
            for parent, o in zip(parents.tolist(), ops.tolist(), strict=True)
        ]
    return unique_names(code, found)  # names hold slashes too: several ways may lead to one path


def _under(path: str, name: str, *, dotted: bool) -> str:
    return name if dotted and name.startswith(f"{path}.") else path + SEPARATOR + name
