"""`bridge.load(path)`: a report with its attribution, for programs and notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

import importers
from bridge.analyze.kernels import by_copy, by_kernel, by_op_kernel
from bridge.analyze.ops import by_op
from bridge.analyze.ranges import by_range
from bridge.analyze.totals import Totals, totals
from bridge.join.attributed import DEFAULT, Attributed
from bridge.join.attribution import REASONS, RULES
from bridge.join.choices import Choices
from bridge.join.labels import Rule
from bridge.join.order import NONE
from importers.report import Report

VIEWS = ("op", "op-kernel", "kernel", "copy", "range")
SORTED_BY = {  # largest first; ties by the next ones
    "op": ("gpu_self_ns", "gpu_total_ns", "cpu_total_ns"),
    "op-kernel": ("total_ns",),
    "kernel": ("total_ns",),
    "copy": ("total_ns",),
    "range": ("gpu_busy_ns", "duration_ns"),
}


@dataclass(frozen=True)
class Joined:
    """An importers' `Report` with every activity attributed to an op or to a reason."""

    attributed: Attributed

    @property
    def report(self) -> Report:
        """The frames as recorded."""
        return self.attributed.report

    @cached_property
    def totals(self) -> Totals:
        """The accounting: all activities, and where they went."""
        return totals(self.attributed)

    @property
    def op_count(self) -> int:
        """How many ops own at least one activity."""
        op = self.attributed.activity_op
        return len(np.unique(op[op != NONE]))

    @cached_property
    def op_kernels(self) -> pd.DataFrame:
        """Return one row per activity, in the order of ``report.activities``.

        Columns: launch and range (rows, -1 for none), op and path (None for none), reason
        ('' where there is an op), rule (`RULES` of bridge.join.attribution), report.
        """
        joined, found = self.attributed, self.attributed.attribution
        code, distinct = joined.node_path
        path = np.where(found.node == NONE, NONE, np.append(code, NONE)[found.node])
        return pd.DataFrame(
            {
                "launch": found.launch,
                "range": found.range,
                "op": pd.Categorical.from_codes(joined.activity_op, _index(joined.ops)),
                "path": pd.Categorical.from_codes(path, _index(distinct)),
                "reason": pd.Categorical.from_codes(found.reason, _index(REASONS)),
                "rule": pd.Categorical.from_codes(found.rule, _index(RULES)),
                "report": self.report.activities["report"],
            }
        )

    def by(
        self, view: str, *, inclusive: bool = False, kernel_names: str = "short"
    ) -> pd.DataFrame:
        """Return the table ``op``, ``op-kernel``, ``kernel``, ``copy`` or ``range``.

        Times in ns; rows sorted by time, largest first, ties by name. Raises ValueError for another
        view.
        """
        if view not in VIEWS:
            raise ValueError(f"no view {view!r}: one of {', '.join(VIEWS)}")
        return ordered(self._table(view, kernel_names, inclusive=inclusive), SORTED_BY[view])

    def _table(self, view: str, kernel_names: str, *, inclusive: bool) -> pd.DataFrame:
        match view:
            case "op":
                return by_op(self.attributed)
            case "op-kernel":
                return by_op_kernel(self.attributed, kernel_names, inclusive=inclusive)
            case "kernel":
                return by_kernel(self.attributed, kernel_names)
            case "copy":
                return by_copy(self.attributed)
            case _:
                return by_range(self.attributed)


def join(report: Report, choices: Choices = DEFAULT) -> Joined:
    """Attribute a report that is already loaded."""
    return Joined(Attributed.of(report, choices))


def load(
    *paths: str | Path, rules: Sequence[Rule] = (), raw: bool = False, graphs: str | None = None
) -> Joined:
    """Read one report (or several as one) and attribute every activity.

    ``rules`` regroup op names; ``raw`` takes the ranges' whole texts over all domains instead of
    ops; ``graphs`` ("capture" or "launch") says which op owns the work of a CUDA graph. Raises
    `importers.ReportError`, whose message is one line for the user.
    """
    return join(importers.load(*paths), Choices(rules, raw, graphs))


def ordered(
    table: pd.DataFrame, columns: Sequence[str], *, ascending: bool = False
) -> pd.DataFrame:
    """Sort by columns, largest first unless told otherwise; ties by the names, in order."""
    names = [c for c in table.columns if not is_numeric_dtype(table[c])]
    names += [c for c in ("start_ns",) if c in table.columns and c not in columns]
    directions = [ascending] * len(columns) + [True] * len(names)
    return table.sort_values(
        [*columns, *names], ascending=directions, ignore_index=True, kind="stable"
    )


def _index(names: Sequence[str] | dict[str, str]) -> pd.Index:
    return pd.Index(list(names), dtype=object)
