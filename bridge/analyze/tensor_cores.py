"""How much of the kernels' time is on Tensor Cores, by their names, and how much is of ops that could use them.

The invariant: time of kernels that do, that may (not known), and that do not adds up to the time of kernels.
"""

from __future__ import annotations

import numpy as np

from bridge.analyze import kinds
from bridge.analyze.groups import ratio, sums
from bridge.join.attributed import Attributed
from bridge.join.order import Ints
from bridge.knowledge.kernels import UNKNOWN, YES
from importers import frames

SET = "tensor-cores"
COLUMNS = tuple(
    "tensor_core_ns tensor_core_share eligible_ns tensor_core_unknown_ns in_kernels_ns".split()
)


def figures(joined: Attributed, rows: Ints, group: Ints, groups: int) -> dict[str, np.ndarray]:
    """Return `COLUMNS` of each group, times in ns: ``rows`` are activities, each in a ``group``.

    ``in_kernels_ns`` is the time of kernels, ``tensor_core_share`` of that; ``eligible_ns`` is of kernels whose innermost op
    could use Tensor Cores.
    """
    time, used = joined.duration[rows], kinds.tensor_cores(joined)[rows]
    is_kernel = frames.is_kind(joined.report.activities, frames.KERNEL)[rows]

    def of(which: np.ndarray) -> Ints:
        return sums(group[which], time[which], groups)

    whole, on_them = of(is_kernel), of(used == YES)
    return {
        "in_kernels_ns": whole,
        "tensor_core_ns": on_them,
        "tensor_core_unknown_ns": of(used == UNKNOWN),
        "tensor_core_share": ratio(on_them, whole),
        "eligible_ns": of(kinds.eligible_activities(joined)[rows]),
    }
