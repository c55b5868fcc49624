"""`bridge.load(path)`: a report with its attribution, for programs and notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

import importers
from bridge.analyze import time_range, validity
from bridge.analyze.metrics import no_timeline
from bridge.analyze.ranks import Ranks
from bridge.analyze.tables.table import Options, table
from bridge.analyze.tables.views import heading
from bridge.analyze.totals import Totals, totals
from bridge.join.arrays import NONE, Ints
from bridge.join.attributed import DEFAULT, DIRECTIONS, Attributed
from bridge.join.attribution import REASONS, RULES
from bridge.join.choices import Choices
from bridge.join.nesting import TangledError
from importers.errors import ReportError
from importers.report import Report

if TYPE_CHECKING:
    from bridge.analyze.advice import Advised
    from bridge.analyze.quality import Quality
    from bridge.analyze.tables.average_rows import Averages
    from bridge.analyze.timeline import Timeline

IN_NOTEBOOK = 20  # rows


@dataclass(frozen=True, repr=False)
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
    def ranks(self) -> Ranks:
        """Which rank each process is, and by what that is known."""
        return Ranks.of(self.report, self.attributed.place)

    @property
    def rank_warnings(self) -> list[str]:
        """Return a line if several processes have one rank."""
        return self.ranks.warnings

    @property
    def ranges(self) -> int:
        """How many ranges there are."""
        return len(self.report.ranges)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What is unlawful in the report and what was made of it, a line each."""
        return validity.warnings(self.attributed)

    @cached_property
    def op_kernels(self) -> pd.DataFrame:
        """Return one row per activity, in the order of ``report.activities``.

        Columns: launch and range (rows, -1 for none), op and path (None for none), reason
        ('' where there is an op), rule (`RULES` of bridge.join.attribution), direction ("forward",
        "backward", None without an op), forward (row of the range that backward work belongs to, or
        -1), ambiguous (several threads had such a range), module (path, None for none), report.
        """
        joined, found = self.attributed, self.attributed.attribution
        code, distinct = joined.node_path
        forward, backward = joined.directions.forward, joined.directions.backward
        modules = joined.modules
        module = modules.of[joined.belongs]
        module = np.where(module == NONE, NONE, np.append(modules.path, NONE)[module])
        return pd.DataFrame(
            {
                "launch": found.launch,
                "range": found.range,
                "op": pd.Categorical.from_codes(joined.activity_op, _index(joined.ops)),
                "path": _of_node(found.node, code, distinct),
                "reason": pd.Categorical.from_codes(found.reason, _index(REASONS)),
                "rule": pd.Categorical.from_codes(found.rule, _index(RULES)),
                "direction": _of_node(found.node, backward.astype(np.int64), DIRECTIONS[:2]),
                "forward": np.append(forward, NONE)[found.node],
                "ambiguous": np.append(joined.directions.ambiguous, False)[found.node],
                "module": _of_node(found.node, module, modules.paths),
                "report": self.report.activities["report"],
            }
        )

    def by(
        self, view: str | Sequence[str], *, columns: str | Sequence[str] = (), **how: Any
    ) -> pd.DataFrame:
        """Return a table: one of `VIEWS`, or of one or several `DIMENSIONS`, as docs/report.md describes them.

        ``view`` is a name, or several dimensions as a list or with commas: ``"op,shape"``. ``columns`` are
        those wanted, by name, with or without ``_ns``, or sets: "default", "all", "gpu", "cpu", "causes",
        "communication". ``how`` are the fields of `bridge.analyze.tables.table.Options`: ``inclusive`` goes with op-kernel,
        ``memory_kinds`` with copy, ``arguments`` with range (columns of what each call says of itself),
        ``kernel_names`` with what names kernels; ``direction`` counts forward or backward work alone;
        gaps (gap, idle) are those longer than ``idle_over_ns``. Times in ns; rows sorted by time, largest
        first, ties by name. Raises ValueError, in a line for the user, for what there is not.
        """
        by = view if isinstance(view, str) else ",".join(view)
        asked = columns.split(",") if isinstance(columns, str) else columns
        wanted = tuple(name.strip() for name in asked if name.strip())
        return table(self.attributed, by, Options(columns=wanted, **how))

    def within(
        self,
        *,
        first_ns: int | None = None,
        last_ns: int | None = None,
        steps: tuple[int, int] | None = None,
        range_name: str | None = None,
    ) -> Joined:
        """Return what began in some time, and the work launched in it: all tables and totals are of that alone.

        From ``first_ns`` to ``last_ns`` since the first event, each by its own start; in the steps of
        these numbers, both included; while ranges of a name or op were open (``*`` and ``?`` allowed) in their
        process. Raises ValueError, in a line for the user, where there is no such step or range.
        """
        joined = self.attributed
        if first_ns is not None or last_ns is not None:
            no_timeline.refuse(self.report, "time from the first event on (--from, --to)")
            joined = joined.within(time_range.by_clock(joined, first_ns, last_ns))
        if steps is not None:
            joined = joined.within(time_range.by_step(joined, *steps))
        if range_name is not None:
            joined = joined.within(time_range.by_range(joined, range_name))
        return Joined(joined)

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,  # noqa: ARG002 - none is recorded
    ) -> Averages:
        """Return a row per op, API call, kernel and copy, as PyTorch's profiler does: see docs/averages.md."""
        from bridge.analyze.tables.averages import averages  # other tables need none of it

        no_timeline.refuse(self.report, "averages of calls")
        return averages(self.attributed, by_shape=group_by_input_shape, levels=group_by_stack_n)

    def advise(self, rules: Sequence[str] = (), worth: float | None = None) -> Advised:
        """Return what slows the run down, with evidence and what it would save: see docs/advise.md.

        ``rules`` are names of those to judge by, all without; ``worth`` is the fraction of the run that a
        ceiling must be to be listed, 1 % without. Raises ValueError, in a line for the user, for an unknown name.
        """
        from bridge.analyze import advice  # tables need none of it

        return advice.advise(
            self.attributed, advice.named(rules), advice.WORTH if worth is None else worth
        )

    @cached_property
    def quality(self) -> Quality:
        """How far the capture can be trusted, from 0 to 100, and the reasons: see docs/quality.md."""
        from bridge.analyze.quality import quality  # tables need none of it

        return quality(self.attributed)

    def __repr__(self) -> str:
        """Say what it is of and how much, in a line."""
        report = self.report
        counts = ((len(report.ranges), "ranges"), (len(report.activities), "activities"))
        return (
            f"<Joined {', '.join(report.source)}: {', '.join(f'{n} {what}' for n, what in counts)}>"
        )

    def _repr_html_(self) -> str:
        """Show the ops in a notebook, those that take most time first, and where every activity went."""
        from bridge.render import headings  # only notebooks need it
        from bridge.render.table import as_html  # only notebooks need it

        table = self.by("op")
        return as_html(
            self.headings("op"),
            table.head(IN_NOTEBOOK),
            headings.line(self.totals, self.op_count),
            left_out=max(0, len(table) - IN_NOTEBOOK),
        )

    def headings(self, view: str) -> str:
        """Return which headings a table gets for people, by `bridge.analyze.tables.views.heading`."""
        return heading(view, activities=len(self.report.activities))

    def export_trace(self, path: str | Path, **how: Any) -> Timeline:
        """Write one timeline of ops, API calls and device work: see `bridge.exports.trace`."""
        from bridge import exports  # tables need none of it

        return exports.trace(self.attributed, path, **how)

    def export_tensorboard(self, folder: str | Path, **how: Any) -> list[Path]:
        """Write a trace per process for TensorBoard: see `bridge.exports.tensorboard`."""
        from bridge import exports

        return exports.tensorboard(self.attributed, folder, **how)

    def export_chrome_trace(self, path: str | Path, *, force: bool = False) -> None:
        """Write the timeline as PyTorch's profiler is asked to: `export_trace` under its name there."""
        self.export_trace(path, force=force)


def join(report: Report, choices: Choices = DEFAULT) -> Joined:
    """Attribute a report that is already loaded."""
    try:
        return Joined(Attributed.of(report, choices))
    except TangledError as error:
        raise ReportError(f"{', '.join(report.source)}: {error}") from error


def load(*paths: str | Path, **choices: Any) -> Joined:
    """Read one report (or several as one) and attribute every activity.

    ``choices`` are the fields of `Choices`: ``rules`` regroup op names; ``raw`` takes the ranges' whole
    texts over all domains instead of ops; ``graphs`` ("capture" or "launch") says which op owns the
    work of a CUDA graph; ``domains`` and ``without`` whose ranges are ops; ``adopt`` guesses for threads
    without ranges. Raises `importers.ReportError`, whose message is one line for the user.
    """
    return join(importers.load(*paths), Choices(**choices))


def _of_node(node: Ints, codes: Ints, names: Sequence[str]) -> pd.Categorical:
    """Return a name per activity by the code of its node."""
    return pd.Categorical.from_codes(np.append(codes, NONE)[node], _index(names))


def _index(names: Sequence[str] | dict[str, str]) -> pd.Index:
    return pd.Index(list(names), dtype=object)
