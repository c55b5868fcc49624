"""The table of steps, with what they computed where that is asked for."""

from __future__ import annotations

import pandas as pd

from bridge.analyze.cost.flops import Costs, step_costs
from bridge.analyze.run.steps import all_steps, by_step, is_counted
from bridge.join.attributed import AttributedCapture


def by_step_with_costs(
    attributed: AttributedCapture, costs: Costs | None = None, *, needs_costs: bool = False
) -> pd.DataFrame:
    """Return the table of `by_step`; ``needs_costs`` adds the columns of `step_costs`.

    ``costs`` says how FLOPs are counted, by default as ``Costs()``.
    """
    steps = by_step(attributed)
    if not needs_costs:
        return steps
    walls = all_steps(attributed)["wall_ns"].to_numpy()
    columns = step_costs(attributed, walls, costs or Costs())
    listed = is_counted(attributed)
    return steps.assign(**{name: values[listed] for name, values in columns.items()})
