"""`bridge.diff(before, after)`: the comparison of two reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridge.analyze.compare import NOISE, Comparison, compare
from bridge.analyze.compare import gates as growth
from bridge.analyze.compare.gates import Budget, Verdict
from bridge.analyze.compare.overall import Overall
from bridge.analyze.core import no_timeline
from bridge.analyze.tables.breakdown import by_op
from bridge.report import IN_NOTEBOOK, Report, load

if TYPE_CHECKING:
    import pandas as pd

ReportOrPath = str | Path | Report


@dataclass(frozen=True)
class Diff:
    """Two reports and the options of their comparison: see `bridge.analyze.compare.compare`."""

    before: Report
    after: Report
    by: str = "op"
    kernel_names: str = "readable"
    noise: float = NOISE

    @cached_property
    def comparison(self) -> Comparison:
        """The compared rows, and the totals: rows and work outside of them add up to the whole."""
        no_timeline.check_comparable(self.before.capture, self.after.capture)
        reports = self.before.attributed, self.after.attributed
        return compare(*reports, self.by, kernel_names=self.kernel_names, noise=self.noise)

    @cached_property
    def overall(self) -> Overall:
        """The iteration time, the busy share of the GPUs, and the causes of their idle time on both sides."""
        return Overall.of((self.before.attributed, self.after.attributed), self.noise)

    @property
    def rows(self) -> pd.DataFrame:
        """The table, largest change first; docs/diff.md lists its columns."""
        return self.comparison.rows.to_pandas()

    @property
    def outside(self) -> Mapping[str, Mapping[str, int]]:
        """The activities in no row, by reason: ``before_ns``, ``after_ns`` and ``diff_ns`` of each."""
        return self.comparison.outside

    @property
    def whole(self) -> Mapping[str, int]:
        """``before_ns``, ``after_ns`` and ``diff_ns`` of all activities together."""
        return self.comparison.whole

    def _repr_html_(self) -> str:
        """Return the largest changes and the accounting, for notebooks."""
        from bridge.render.diff import DiffView  # only notebooks need them
        from bridge.render.notebook import diff_as_html

        rows = self.comparison.timed(self.comparison.rows)
        few = rows.head(IN_NOTEBOOK)
        sides = self.before.source, self.after.source
        return diff_as_html(
            DiffView(
                *sides,
                self.comparison,
                few,
                verdicts=(),
                left_out=len(rows) - len(few),
                overall=self.overall,
            )
        )

    def judged(
        self, fail_over: Sequence[str] = (), budget: Mapping[str, Any] | Budget | None = None
    ) -> list[Verdict]:
        """Judge the second report by limits of growth ("5%", "op:2ms") and by a budget.

        Raises ValueError with a message for the user if a limit or the budget is not valid.
        """
        gates = [growth.Growth.parsed(text) for text in fail_over]
        ops = self if self.by == "op" else replace(self, by="op")
        result = growth.judge_growth(gates, ops.comparison, self.overall) if gates else []
        return result + (within(self.after, budget) if budget is not None else [])


def within(report: Report, budget: Mapping[str, Any] | Budget) -> list[Verdict]:
    """Judge one report by a budget. Raises ValueError with a message if it is not valid."""
    limits = budget if isinstance(budget, Budget) else Budget.parsed(budget)
    ops = no_timeline.drop_unmeasured(
        report.capture, by_op(report.attributed, limits.columns), limits.columns
    )
    return limits.judged(report.totals, ops)


def diff(
    before: ReportOrPath,
    after: ReportOrPath,
    by: str = "op",
    *,
    kernel_names: str = "readable",
    noise: float = NOISE,
) -> Diff:
    """Compare two reports: files, or results of `bridge.load`.

    ``by`` is the kind of rows: "op", "op-kernel" or dimensions with commas; ``kernel_names`` and ``noise`` are
    fields of `Diff`. Raises `bridge.importers.ReportError`, and ValueError
    at first use if the reports cannot be compared.
    """
    report, other = (side if isinstance(side, Report) else load(side) for side in (before, after))
    return Diff(report, other, by, kernel_names=kernel_names, noise=noise)
