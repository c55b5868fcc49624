"""Steps: how long each one took, what of that time was spent on what, and which are out of the ordinary.

docs/steps.md defines every figure.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from bridge.analyze.flops import Costs, of_steps
from bridge.analyze.groups import counts, sums, texts
from bridge.analyze.names import files
from bridge.analyze.steps.pace import DATALOADER, ROLES, Walls, breakdown, judged
from bridge.analyze.tracks import ID_BITS
from bridge.join.arrays import NONE, Flags, Ints, busy
from bridge.join.attributed import Attributed

RANGE, REPETITION = FOUND = ("range", "repetition")


def by_step(joined: Attributed, costs: Costs | None = None) -> pd.DataFrame:
    """Return one row per step of each process, in order of time.

    ``wall_ns`` is from ``start_ns`` to the end of the last work launched in the step, no time twice: it
    starts where the step before ended. The times of the roles add up to it: of several at one instant the first of
    `ROLES` counts. ``between_ns`` is the time since the step before. ``activities`` and ``gpu_ns`` are of
    the work launched in the step, whenever it ran. ``change`` is to the median of the steps that are not
    warm-up. Of some time alone, the steps that have any of it. With ``costs`` also the columns of `of_steps`.
    """
    steps, walls = joined.iterations, Walls.of(joined)
    step, many = joined.activity_iteration, len(joined.iterations)
    ran = np.flatnonzero((step != NONE) & joined.counted)
    start = joined.report.activities["start"].to_numpy()
    change, state = judged(steps, walls.length)
    within, between = breakdown(joined, (walls.start, walls.end), (walls.before, walls.start))
    table = pd.DataFrame(
        {
            "step": steps.number,
            **_homes(joined),
            "found": texts(FOUND)[(steps.range == NONE).astype(np.int64)],
            "start_ns": walls.start,
            "wall_ns": walls.length,
            **{f"{role}_ns": time for role, time in within.items()},
            "between_ns": walls.between,
            "between_dataloader_ns": between[DATALOADER],
            "activities": counts(step[ran], many),
            "gpu_ns": sums(step[ran], joined.duration[ran], many),
            "gpu_busy_ns": busy(step[ran], start[ran], joined.end[ran], many),
            "change": change,
            "state": state,
            **(of_steps(joined, walls.length, costs) if costs else {}),
        }
    )
    return table[_counted(joined)].reset_index(drop=True)


def _homes(joined: Attributed) -> dict[str, Ints | np.ndarray]:
    """Return the columns that tell the process of each step; the file where there are several."""
    steps, processes = joined.iterations, joined.report.processes
    keys = zip(processes["report"].tolist(), processes["process"].tolist(), strict=True)
    names = dict(zip(keys, processes["name"].astype(str).tolist(), strict=True))
    of = zip(steps.report.tolist(), steps.process.tolist(), strict=True)
    found: dict[str, Ints | np.ndarray] = {
        "pid": steps.process >> 24 & ID_BITS,
        "process": texts(names.get(key, "").rpartition("/")[2] for key in of),
    }
    of_file = files(joined.report)
    return found | ({"report": texts(of_file)[steps.report]} if len(of_file) > 1 else {})


def _counted(joined: Attributed) -> Flags:
    """Tell which steps have anything that is counted: of a step with a range that, else its work."""
    steps = joined.iterations
    if joined.chosen is None:
        return np.ones(len(steps), bool)
    step = joined.activity_iteration[joined.accounted]
    worked = counts(step[step != NONE], len(steps)) > 0
    named: Flags = np.append(joined.chosen.ranges, False)[steps.range]
    return named | worked


__all__ = ["FOUND", "ROLES", "by_step"]
