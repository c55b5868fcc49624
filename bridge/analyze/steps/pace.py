"""How steady steps are: which are warm-up, which stand out, and figures of the rest."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bridge.analyze.groups import Floats, texts
from bridge.analyze.steps.roles import ROLES
from bridge.join.order import Ints
from bridge.join.steps import Steps

STEADY, WARM_UP, OUTLIER = STATES = ("", "warm-up", "outlier")
LEAST = 4  # steps to judge any of them
DEVIATIONS = 5  # median absolute deviations from the median that are out of the ordinary
FLOOR = 0.1  # and as much of the median


@dataclass(frozen=True)
class Pace:
    """The pace of one process, times in ns: over its steps after warm-up, outliers included.

    ``slower_by`` is the role that the slowest of them spent most on beyond that role's median, by ``excess_ns``;
    ``between_ns`` the median time between two steps, of which ``between_dataloader`` is the share that waited for data.
    ``home`` is the process's id, its name and, of several files, the file.
    """

    home: tuple[Hashable, ...]
    found: str
    steps: int
    warm_up: int
    outliers: int
    median_ns: float
    mean_ns: float
    p95_ns: float
    std_ns: float
    slowest: int
    slowest_ns: int
    slower_by: str
    excess_ns: float
    between_ns: float
    between_dataloader: float

    @property
    def variation(self) -> float:
        """The coefficient of variation: standard deviation over mean."""
        return self.std_ns / self.mean_ns if self.mean_ns else 0.0


def judged(steps: Steps, wall: Ints) -> tuple[Floats, np.ndarray]:
    """Return how much longer than the median of its process each step took, as a fraction, and its state."""
    change, state = np.zeros(len(steps)), np.zeros(len(steps), np.int64)
    for first, last in steps.by_process():
        own = wall[first:last]
        state[first:last] = _states(own)
        median = float(np.median(own[state[first:last] != STATES.index(WARM_UP)]))
        if median:
            change[first:last] = own / median - 1
    return change, texts(STATES)[state]


def paces(table: pd.DataFrame) -> list[Pace]:
    """Return the pace of each process of a table per step, however that is sorted."""
    homes = [c for c in ("pid", "process", "report") if c in table]
    parts = table.groupby(homes, sort=False, observed=True)
    return [_pace(home, part) for home, part in parts]


def _pace(home: tuple[Hashable, ...], table: pd.DataFrame) -> Pace:
    steady = table[table["state"] != WARM_UP]
    wall = steady["wall_ns"].to_numpy()
    spent = steady[[f"{role}_ns" for role in ROLES]].to_numpy()
    slowest = int(np.argmax(wall))
    between, loading = (
        steady[column].to_numpy() for column in ("between_ns", "between_dataloader_ns")
    )
    excess = spent[slowest] - np.median(spent, axis=0)
    return Pace(
        home=home,
        found=str(table["found"].iloc[0]),
        steps=len(table),
        warm_up=len(table) - len(steady),
        outliers=int((table["state"] == OUTLIER).sum()),
        median_ns=float(np.median(wall)),
        mean_ns=float(wall.mean()),
        p95_ns=float(np.quantile(wall, 0.95)),
        std_ns=float(wall.std()),
        slowest=int(steady["step"].iloc[slowest]),
        slowest_ns=int(wall[slowest]),
        slower_by=ROLES[int(np.argmax(excess))],
        excess_ns=float(excess.max()),
        between_ns=float(np.median(between)),
        between_dataloader=float(loading.sum() / max(1, between.sum())),
    )


def _states(wall: Ints) -> Ints:
    """Return which of `STATES` each step of a process is.

    Warm-up are the leading steps that took longer than is ordinary for the second half: two, or a quarter of all,
    at most, for where more did the work itself becomes less. Outliers are those after them that took longer, or
    shorter, than is ordinary for these.
    """
    state = np.zeros(len(wall), np.int64)
    if len(wall) < LEAST:
        return state
    half = len(wall) // 2
    median, bound = _ordinary(wall[half:])
    slow = np.append(wall[:half] > median + bound, False)
    leading = int(np.argmin(slow))
    leading = leading if leading <= max(2, len(wall) // 4) else 0
    state[:leading] = STATES.index(WARM_UP)
    median, bound = _ordinary(wall[leading:])
    state[leading:][np.abs(wall[leading:] - median) > bound] = STATES.index(OUTLIER)
    return state


def _ordinary(wall: Ints) -> tuple[float, float]:
    """Return the median, and how far from it is still ordinary."""
    median = float(np.median(wall))
    spread = float(np.median(np.abs(wall - median)))
    return median, max(DEVIATIONS * spread, FLOOR * median)
