"""What was alive at the peak by the path of ops that allocated it: itself, and with everything under it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bridge.analyze.groups import counts, ratio, sums, texts
from bridge.analyze.memory import said
from bridge.analyze.memory.held import Held
from bridge.analyze.memory.of_groups import alive, peaks
from bridge.analyze.tree import stacks
from bridge.join.order import NONE, Ints, by
from importers.frames import MISSING


def by_scope(held: Held) -> pd.DataFrame:
    """Return one row per process, device, kind of memory and path under which anything was alive at the peak.

    ``bytes`` are of what was allocated in the innermost op of the path, ``total_bytes`` also of what was under
    it. What had been allocated before the capture is a row of its own.
    """
    rows, left, rest = alive(held)
    names = [*held.joined.node_path[1], said.NO_OP, said.BEFORE]
    own, under, path = _on_paths(held, rows, len(names) - 2)
    group, size = held.group[rows], held.size[rows]
    keys = (group, own), (group[under], path), (left, np.full(len(left), len(names) - 1))
    pairs = np.concatenate([of * len(names) + code for of, code in keys])
    distinct, place = np.unique(pairs, return_inverse=True)
    self_of, total_of, rest_of = np.split(place, np.cumsum([len(of) for of, _ in keys[:2]]))
    of, code = np.divmod(distinct, len(names))
    many = len(distinct)
    more, unknown = sums(rest_of, rest, many), counts(rest_of, many) > 0
    total = sums(total_of, size[under], many) + more
    whole = np.append(held.used, 0)[peaks(held, held.used)][of]
    table = pd.DataFrame(
        {
            "path": texts(names)[code],
            **said.places(held, of),
            "count": np.where(unknown, MISSING, counts(self_of, many)),
            "bytes": sums(self_of, size, many) + more,
            "total_count": np.where(unknown, MISSING, counts(total_of, many)),
            "total_bytes": total,
            "share": ratio(total, whole),
        }
    )
    return table.iloc[by(-whole, of, -total, code)].reset_index(drop=True)


def _on_paths(held: Held, rows: Ints, no_op: int) -> tuple[Ints, Ints, Ints]:
    """Return the path of each event, and (place, path) of every path above it, its own included."""
    code, _ = held.joined.node_path
    node = held.events.node[rows]
    at, nodes = stacks(held.joined.attribution.nesting, node)
    bare = np.flatnonzero(node == NONE)
    under = np.concatenate((at, bare))
    path = np.concatenate((code[nodes], np.full(len(bare), no_op)))
    return np.append(code, no_op)[node], under, path
