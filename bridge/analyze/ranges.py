"""The table per range: each one's projection onto the GPU."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bridge.analyze.arguments import arguments
from bridge.analyze.groups import counts, highest, lowest, texts
from bridge.analyze.tree import stacks
from bridge.join.attributed import Attributed
from bridge.join.intervals import busy
from bridge.join.order import NONE
from importers import frames


def by_range(joined: Attributed, *, with_arguments: bool = False) -> pd.DataFrame:
    """Return one row per range that is an op, on demand with a column for each of `arguments`.

    ``gpu_start_ns`` and ``gpu_span_ns`` tell where on the GPU its activities lie, first start to last
    end; ``gpu_busy_ns`` is the union of their intervals. Without activities: -1, 0 and 0.
    """
    ranges, nesting = joined.report.ranges, joined.attribution.nesting
    groups = len(ranges)
    row, node = stacks(nesting, joined.node)
    owner = nesting.range[node]
    activities = joined.report.activities
    start, end = frames.ints(activities, "start")[row], frames.ints(activities, "end")[row]
    first, last = lowest(owner, start, groups), highest(owner, end, groups)
    rows = np.flatnonzero(joined.listed_ranges)
    table = pd.DataFrame(
        {
            "name": texts(joined.ops)[joined.op[rows]],
            "path": range_paths(joined)[rows],
            "start_ns": frames.ints(ranges, "start")[rows],
            "duration_ns": np.maximum(frames.ints(ranges, "end") - frames.ints(ranges, "start"), 0)[
                rows
            ],
            "thread": frames.ints(ranges, "thread")[rows],
            "gpu_start_ns": first[rows],
            "gpu_span_ns": (last - first)[rows],
            "gpu_busy_ns": busy(owner, start, end, groups)[rows],
            "activities": counts(owner, groups)[rows],
        }
    )
    return table.join(arguments(joined, table.columns)) if with_arguments else table


def range_paths(joined: Attributed) -> NDArray[np.object_]:
    """Return the path of each range; of one cut in pieces, the first piece's."""
    code, distinct = joined.node_path
    of_range = np.append(code, NONE)[joined.attribution.nesting.first_nodes(len(joined.op))]
    named: NDArray[np.object_] = texts([*distinct, ""])[of_range]
    bare = (of_range == NONE) & (joined.op != NONE)  # no length, so never open: its name alone
    named[bare] = texts(joined.ops)[joined.op[bare]]
    return named
