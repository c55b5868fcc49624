"""The table of lines of the program: the work that the API calls of each line issued."""

from __future__ import annotations

import numpy as np

from bridge.analyze.core.groups import counts, ratio, sums, texts
from bridge.analyze.core.source_lines import activity_lines, source_lines
from bridge.analyze.core.table import Table
from bridge.analyze.core.totals import call_time
from bridge.importers import frames
from bridge.join.arrays import NONE, Ints, number_groups
from bridge.join.attributed import AttributedCapture


def by_source(attributed: AttributedCapture) -> Table:
    """Return one row per line of the program, and one per reason why there is none.

    Every counted activity is in one row, by the API call that issued it, and every counted API call. No
    rows if no call has a line. ``share`` is relative to the time of all activities.
    """
    known = source_lines(attributed)
    line = activity_lines(attributed, np.flatnonzero(attributed.counted))
    calls = np.flatnonzero(attributed.counted_launches)
    size, rows = len(known.lines), np.flatnonzero(attributed.counted)
    time = sums(line, attributed.duration[rows], size)
    kernels = attributed.capture.activities.kind.among(frames.KERNEL)[rows]
    table = Table(
        {
            **{c: texts(known.lines[c]) for c in ("function", "source", "kind")},
            "ops": _ops(line, attributed.activity_op[rows], size),
            "activities": counts(line, size),
            "kernels": counts(line[kernels], size),
            "gpu_ns": time,
            "share": ratio(time, attributed.whole_ns),
            "api_calls": counts(known.call[calls], size),
            "api_ns": sums(known.call[calls], call_time(attributed)[calls], size),
        }
    )
    is_used = (table["activities"] > 0) | (table["api_calls"] > 0)
    return table[is_used if known.known else is_used & False]


def _ops(line: Ints, op: Ints, size: int) -> Ints:
    """Return how many distinct ops own work of each line."""
    has_op = op != NONE
    _, first = number_groups(line[has_op], op[has_op])
    return counts(line[has_op][first], size)
