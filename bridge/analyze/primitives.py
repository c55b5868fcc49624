"""What oneDNN ran on the CPU, by its own log: time per primitive, implementation, problem and so on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from bridge.analyze.groups import Floats, counts, quantiles, ratio, sums, texts, times
from bridge.join.arrays import NONE, Ints, number
from bridge.knowledge.formulas import onednn
from importers import frames
from importers.onednn import Log

DIMENSIONS = {  # what a row may be, and the field of a line that tells
    "primitive": "primitive",
    "impl": "implementation",
    "prop": "prop_kind",
    "problem": "problem_desc",
    "layout": "memory_descriptors",
    "attributes": "attributes",
    "aux": "auxiliary",
    "engine": "engine",
}
EXECUTED = "exec"


class Totals(NamedTuple):
    """How much ran and was made, in how many ns."""

    calls: int
    total_ns: int
    creations: int
    creation_ns: int


def totals(table: pd.DataFrame) -> Totals:
    """Return the totals of a table that `by` made."""
    return Totals(*(int(table[column].sum()) for column in Totals._fields))


def executed(log: Log, component: str) -> int:
    """Return how often something of a component ran."""
    ran = (log.events["component"] == component) & (log.events["operation"] == EXECUTED)
    return int(ran.sum())


def by(log: Log, dimensions: Sequence[str], component: str) -> pd.DataFrame:
    """Return a row per combination of ``dimensions``, those that took most time first.

    Columns: the dimensions; calls, total_ns, share (of the time of all rows), mean_ns, median_ns, min_ns, max_ns;
    flop (of all calls together) and gflop_per_s, -1 where the FLOPs of one of them are not known; creations and
    creation_ns, of making primitives or finding them in the cache, which a log has from level 2 on.
    """
    events = log.events[(log.events["component"] == component).to_numpy()]
    fields = [DIMENSIONS[name] for name in dimensions]
    codes = [frames.codes(events[field]) for field in fields]
    group, some = number(*codes)
    table = pd.DataFrame(
        {
            **{
                name: texts(events[field].cat.categories)[code[some]]
                for name, field, code in zip(dimensions, fields, codes, strict=True)
            },
            **_executed(events, group, len(some)),
            **_created(events, group, len(some)),
        }
    )
    return table.sort_values(
        ["total_ns", *dimensions], ascending=[False, *[True] * len(fields)], ignore_index=True
    )


def _executed(events: pd.DataFrame, group: Ints, groups: int) -> dict[str, Ints | Floats]:
    run = (events["operation"] == EXECUTED).to_numpy()
    group, time = group[run], frames.ints(events, "duration_ns")[run]
    flop = _flop(events[run], group, groups)
    found = times(group, time, groups)
    total = np.asarray(found["total_ns"], np.int64)
    unknown = (flop == NONE) | (total == 0)
    reached = np.where(unknown, NONE, ratio(flop, total))
    return {
        "calls": found["count"],
        "total_ns": total,
        "share": ratio(total, int(total.sum())),
        "mean_ns": found["mean_ns"],
        "median_ns": quantiles(group, time, groups, 0.5)[0],
        "min_ns": np.maximum(found["min_ns"], 0),
        "max_ns": np.maximum(found["max_ns"], 0),
        "flop": flop,
        "gflop_per_s": reached,
    }


def _created(events: pd.DataFrame, group: Ints, groups: int) -> dict[str, Ints]:
    made = (events["operation"] != EXECUTED).to_numpy()
    time = frames.ints(events, "duration_ns")[made]
    return {
        "creations": counts(group[made], groups),
        "creation_ns": sums(group[made], time, groups),
    }


def _flop(events: pd.DataFrame, group: Ints, groups: int) -> Ints:
    """Return the FLOPs of each group, NONE where those of one of its calls are not known."""
    primitive, problem = (frames.codes(events[name]) for name in ("primitive", "problem_desc"))
    of, some = number(primitive, problem)
    names, problems = (list(events[name].cat.categories) for name in ("primitive", "problem_desc"))
    known = [
        onednn.flops(names[a], problems[b])
        for a, b in zip(primitive[some].tolist(), problem[some].tolist(), strict=True)
    ]
    each = np.array([NONE if flop is None else flop for flop in known], np.int64)[of]
    unknown = counts(group[each == NONE], groups) > 0
    none = unknown | (counts(group, groups) == 0)
    return np.where(none, NONE, sums(group, np.maximum(each, 0), groups))
