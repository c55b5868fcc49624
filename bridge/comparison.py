"""`bridge.diff(before, after)`: two reports compared, for programs, notebooks and the command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from bridge.analyze.compare import NOISE, Comparison, compare
from bridge.analyze.compare import gates as growth
from bridge.analyze.compare.gates import Budget, Verdict
from bridge.analyze.metrics import no_timeline
from bridge.analyze.tables.breakdown import by_op
from bridge.report import Joined, load

Report = str | Path | Joined


@dataclass(frozen=True)
class Diff:
    """Two reports, and how they are compared: see `bridge.analyze.compare.compare`."""

    before: Joined
    after: Joined
    by: str = "op"
    kernel_names: str = "short"
    noise: float = NOISE

    @cached_property
    def comparison(self) -> Comparison:
        """The rows, and the whole that they and what is outside of them add up to."""
        no_timeline.check_alike(self.before.report, self.after.report)
        reports = self.before.attributed, self.after.attributed
        return compare(*reports, self.by, kernel_names=self.kernel_names, noise=self.noise)

    @property
    def rows(self) -> pd.DataFrame:
        """The table, largest change first; docs/diff.md lists its columns."""
        return self.comparison.rows

    @property
    def whole(self) -> Mapping[str, int]:
        """``before_ns``, ``after_ns`` and ``diff_ns`` of all activities together."""
        return self.comparison.whole

    def judged(
        self, fail_over: Sequence[str] = (), budget: Mapping[str, Any] | Budget | None = None
    ) -> list[Verdict]:
        """Judge the report after by gates of growth ("5%", "op:2ms") and by a budget.

        Raises ValueError, in words for the user, for what is no gate and no budget.
        """
        gates = [growth.Growth.parsed(text) for text in fail_over]
        ops = self if self.by == "op" else replace(self, by="op")
        found = growth.judged(gates, ops.comparison) if gates else []
        return found + (within(self.after, budget) if budget is not None else [])


def within(joined: Joined, budget: Mapping[str, Any] | Budget) -> list[Verdict]:
    """Judge one report by a budget; ValueError, in words for the user, for what is none."""
    limits = budget if isinstance(budget, Budget) else Budget.parsed(budget)
    ops = no_timeline.kept(joined.report, by_op(joined.attributed, limits.columns), limits.columns)
    return limits.judged(joined.totals, ops)


def diff(before: Report, after: Report, by: str = "op", **how: Any) -> Diff:
    """Compare two reports: files, or what `bridge.load` gave of them.

    ``by`` is what a row is, "op", "op-kernel" or dimensions with commas; ``how`` are the fields ``kernel_names`` and
    ``noise`` of `Diff`. Raises `importers.ReportError`, and ValueError for what cannot be compared, at first use.
    """
    one, other = (side if isinstance(side, Joined) else load(side) for side in (before, after))
    return Diff(one, other, by, **how)
