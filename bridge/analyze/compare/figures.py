"""The figures of the rows of a comparison: calls, counts and times on either side, what changed, and how surely."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bridge.analyze.compare.calls import call_figures, matched_calls
from bridge.analyze.compare.parts import Parts
from bridge.analyze.compare.rows import Rows
from bridge.analyze.compare.states import states
from bridge.analyze.compare.stepwise import Samples, step_figures
from bridge.analyze.groups import Floats, counts, sums
from bridge.join.order import NONE, Flags, Ints

SIDES = BEFORE, AFTER = ("before", "after")
Figures = Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True)
class Sides:
    """Two reports parted into the same rows; ``of_calls`` if the rows are of calls, and not of activities alone."""

    rows: Rows
    parts: tuple[Parts, Parts]
    samples: tuple[Samples, Samples]
    of_calls: bool

    def table(self, noise: float, *, tested: bool) -> pd.DataFrame:
        """Return all figures, a row each."""
        rows = len(self.rows)
        figures = {**self._times(), **step_figures(*self.samples, rows, tested=tested)}
        there = [self._there(row) for row in (self.rows.before, self.rows.after)]
        figures["state"] = states(figures, there[0], there[1], noise)
        del figures["shift"]
        calls = self._calls() if self.of_calls else {}
        found = {**self._counts(), **figures, **calls}
        return pd.DataFrame({**self.rows.labels, **found})

    def _counts(self) -> Figures:
        """Return how many calls, and how many activities, each row has on either side."""
        found = {}
        if self.of_calls:
            for side, row, parts in self._both():
                found[f"calls_{side}"] = counts(row[parts.call_part], len(self.rows))
        if not self.parts[0].host:
            for side, row, parts in self._both():
                found[f"activities_{side}"] = counts(row[parts.part[parts.inside]], len(self.rows))
        return found

    def _times(self) -> dict[str, Ints | Floats | NDArray[np.object_]]:
        rows = len(self.rows)
        before, after = (sums(row, parts.totals, rows) for _, row, parts in self._both())
        diff = after - before
        whole = self.parts[1].whole_ns - self.parts[0].whole_ns
        ratio = np.divide(after, before, out=np.full(rows, float(NONE)), where=before != 0)
        share = diff / whole if whole else np.zeros(rows)
        return {
            "before_ns": before, "after_ns": after, "diff_ns": diff, "ratio": ratio, "share": share,
        }  # fmt: skip

    def _calls(self) -> Figures:
        pairs = matched_calls(self.parts[0].joined, self.parts[1].joined)
        return call_figures(pairs, self.parts, (self.rows.before, self.rows.after), len(self.rows))

    def _both(self) -> list[tuple[str, Ints, Parts]]:
        return list(zip(SIDES, (self.rows.before, self.rows.after), self.parts, strict=True))

    def _there(self, row: Ints) -> Flags:
        there = np.zeros(len(self.rows), bool)
        there[row] = True
        return there
