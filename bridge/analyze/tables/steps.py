"""The tables of steps and of loops, with what steps computed where that is asked for."""

from __future__ import annotations

import numpy as np

from bridge.analyze.core.groups import texts
from bridge.analyze.core.table import Table
from bridge.analyze.cost.flops import Costs, step_costs
from bridge.analyze.run.parts import iteration_times
from bridge.analyze.run.steps import all_steps, by_step, is_counted
from bridge.importers import frames
from bridge.join.attributed import AttributedCapture
from bridge.join.loops import ITERATIONS, Loop
from bridge.join.steps import FOUND


def by_step_with_costs(
    attributed: AttributedCapture, costs: Costs | None = None, *, needs_costs: bool = False
) -> Table:
    """Return the table of `by_step`; ``needs_costs`` adds the columns of `step_costs`.

    ``costs`` says how FLOPs are counted, by default as ``Costs()``.
    """
    steps = by_step(attributed)
    if not needs_costs:
        return steps
    walls = all_steps(attributed)["wall_ns"]
    columns = step_costs(attributed, walls, costs or Costs())
    listed = is_counted(attributed)
    return steps.assign(**{name: values[listed] for name, values in columns.items()})


CUTS = {(False, False): "", (True, False): "before", (False, True): "after", (True, True): "both"}


def by_loop(attributed: AttributedCapture) -> Table:
    """Return one row per loop, each after the loop around it: its instances, and the time of one."""
    loops = attributed.loops.loops
    times = iter(iteration_times(attributed))
    medians = [
        (time.ns, time.host_ns)
        if loop.kind == ITERATIONS and (time := next(times))
        else (_median(loop),) * 2
        for loop in loops
    ]
    pids = (dict.fromkeys(frames.pid(loop.steps.process).tolist()) for loop in loops)
    return Table(
        {
            "loop": np.arange(len(loops)),
            "parent": np.array([loop.parent for loop in loops], np.int64),
            "name": texts(loop.name for loop in loops),
            "kind": texts(loop.kind for loop in loops),
            "found_by": texts(FOUND[loop.found_by] for loop in loops),
            "pids": texts(", ".join(map(str, own)) for own in pids),
            "count": np.array([loop.count for loop in loops], np.int64),
            "warm_up": np.array([loop.warm_up for loop in loops], np.int64),
            "cut": texts(CUTS[loop.is_cut] for loop in loops),
            "median_ns": np.array([device for device, _ in medians], np.float64),
            "host_median_ns": np.array([host for _, host in medians], np.float64),
            "start_ns": np.array([loop.start for loop in loops], np.int64),
            "end_ns": np.array([loop.end for loop in loops], np.int64),
        }
    )


def _median(loop: Loop) -> float:
    """Return the median time from start to start of a loop's instances in a process, 0 for one."""
    starts = (loop.steps.start[first:last] for first, last in loop.steps.by_process())
    times = np.concatenate([np.diff(start) for start in starts])
    return float(np.median(times)) if len(times) else 0.0
