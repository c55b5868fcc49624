"""Paths of names, for example ``step/forward/attn``, and how those are cut that are very deep.

A range that is pushed and never popped stays open, so that a program that forgets its pops has ever
deeper stacks. Whole paths of a stack of n ranges would be n² / 2 names.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bridge.importers.arrays import positions
from bridge.importers.texts import unique_names
from bridge.join.arrays import NONE, Ints
from bridge.join.forest import distinct_paths, levels, nearest

SEPARATOR = "/"
MAX_DEPTH = 200  # names of a path that is written whole, and levels of a call tree
KEPT = 10  # names that are written at either end of a path that is cut
CUT = "…"  # stands for the names between them, and for the levels below the last


def paths(
    parent: Ints, name: Ints, names: Sequence[str], *, dotted: bool = False
) -> tuple[Ints, list[str]]:
    """Return the path of each node of a forest as a code, and the distinct paths.

    ``name`` is a code into ``names`` per node. A path of more than `MAX_DEPTH` names is cut: its
    first `KEPT` names, `CUT`, and its last `KEPT` names. With ``dotted``, a name that continues the
    path around it, as ``encoder.0`` does in ``encoder``, is the whole path.
    """
    above, last, code = distinct_paths(parent, name)
    texts = _texts(above.tolist(), [names[number] for number in last.tolist()], dotted=dotted)
    return unique_names(code, texts)  # names may contain slashes, so two chains may have one path


def _texts(above: list[int], names: list[str], *, dotted: bool) -> list[str]:
    """Return the text of each path; ``names`` are their last names, ``above`` the paths around them."""
    texts: list[str] = []
    depth = [0] * len(names)  # the names around the last one
    head = [0] * len(names)  # the path of the first KEPT names
    for path, (parent, name) in enumerate(zip(above, names, strict=True)):
        if parent == NONE or (dotted and name.startswith(f"{texts[parent]}.")):
            texts.append(name)
            continue
        depth[path] = depth[parent] + 1
        head[path] = path if depth[path] < KEPT else head[parent]
        if depth[path] < MAX_DEPTH:
            texts.append(texts[parent] + SEPARATOR + name)
            continue
        tail: list[str] = []
        last = path
        while len(tail) < KEPT:
            tail.append(names[last])
            last = above[last]
        texts.append(SEPARATOR.join((texts[head[path]], CUT, *reversed(tail))))
    return texts


def capped(parent: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the forest whose trees end after `MAX_DEPTH` levels: what is deeper is in one node below.

    Returns the parent of each node left, the node that it was, NONE for one that stands for all
    deeper ones, and the node left for each node.
    """
    level = levels(parent)
    deep = np.flatnonzero(level >= MAX_DEPTH)
    if not len(deep):
        return parent, np.arange(len(parent)), np.arange(len(parent))
    kept = np.flatnonzero(level < MAX_DEPTH)
    place = positions(kept, len(parent) + 1)
    last, code = np.unique(nearest(parent, level < MAX_DEPTH)[deep], return_inverse=True)
    place[deep] = len(kept) + code
    nodes = np.concatenate((kept, np.full(len(last), NONE)))
    return np.concatenate((place[parent[kept]], place[last])), nodes, place[:-1]
