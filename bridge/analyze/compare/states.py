"""What became of each row: new, vanished, faster, slower, or the same."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bridge.analyze.groups import texts
from bridge.join.order import NONE, Flags

STATES = SAME, FASTER, SLOWER, NEW, VANISHED = ("same", "faster", "slower", "new", "vanished")
LEVEL = 0.05  # of significance


def states(
    figures: Mapping[str, np.ndarray], before: Flags, after: Flags, noise: float
) -> np.ndarray:
    """Return the state of each row; which rows are on either side is given.

    Where steps were tested, it is of the time per step: p is at most `LEVEL`, the means differ by more than ``noise``,
    and most pairs of steps differ the same way. Else it is of the whole time.
    """
    tested = figures["p"] != NONE
    size = np.maximum(figures["before_ns"], figures["after_ns"])
    diff = figures["diff_ns"].astype(np.float64)
    changed = np.abs(diff) > noise * size
    means = figures["step_before_ns"], figures["step_after_ns"]
    per_step = means[1] - means[0]
    agree = np.sign(per_step) == np.sign(figures["shift"])
    real = (figures["p"] <= LEVEL) & agree & (np.abs(per_step) > noise * np.maximum(*means))
    changed = np.where(tested, real, changed)
    slower = np.where(tested, per_step, diff) > 0
    state = np.select([~before, ~after, ~changed, slower], [3, 4, 0, 2], default=1)
    named: np.ndarray = texts(STATES)[state]
    return named
