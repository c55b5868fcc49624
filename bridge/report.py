"""`bridge.load(path)`: a report with its attribution, for programs and notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np

from bridge import importers, plugins
from bridge.analyze.core import no_timeline, validity
from bridge.analyze.core.catalog.lookup import SAMPLE_DETAILS, layout, nothing
from bridge.analyze.core.catalog.views import MARK_STEPS, SOURCE_DETAILS
from bridge.analyze.core.table import Table
from bridge.analyze.core.totals import Totals, graph_totals, totals
from bridge.analyze.run.ranks import Ranks
from bridge.analyze.tables.build import table
from bridge.analyze.tables.request import TableOptions, TableRequest
from bridge.importers import frames
from bridge.importers.arrays import Flags, lookup
from bridge.importers.capture import Capture
from bridge.importers.errors import ReportError
from bridge.importers.frames import Names
from bridge.join.arrays import NONE, Ints
from bridge.join.attributed import DEFAULT, DIRECTIONS, AttributedCapture
from bridge.join.attribution import REASONS, RULES
from bridge.join.nesting import TangledError
from bridge.join.options import AttributionOptions, Rule
from bridge.join.options import rules as op_rules
from bridge.knowledge.kernels import Rules
from bridge.knowledge.kernels import rules as kernel_rules

if TYPE_CHECKING:
    import pandas as pd

    from bridge.analyze.checks.advice import AdviceReport
    from bridge.analyze.checks.quality import Quality
    from bridge.analyze.checks.summary import Summary
    from bridge.analyze.core.session_cycles import ActiveCycles
    from bridge.analyze.draw.dialects.average_rows import Averages
    from bridge.analyze.draw.timeline import Selection, Timeline
    from bridge.analyze.run.gpu_use import Use
    from bridge.analyze.run.ranks.table import Run
    from bridge.analyze.run.what_if import WhatIf
    from bridge.exports import TraceOptions
    from bridge.render.notebook import Picture, ShownTable

IN_NOTEBOOK = 20  # rows
PLOT_INCHES = (6.5, 3.2)


class OpKernels(frames.Frame):
    """The owner of each activity, and how it was found."""

    launch: Ints
    range: Ints
    op: Names
    path: Names
    reason: Names
    rule: Names
    direction: Names
    forward: Ints
    ambiguous: Flags
    module: Names
    report: Ints


@dataclass(frozen=True, repr=False)
class Report:
    """An importers' `Capture` with every activity attributed to an op or to a reason."""

    attributed: AttributedCapture

    @property
    def capture(self) -> Capture:
        """The frames as recorded."""
        return self.attributed.capture

    @property
    def source(self) -> tuple[str, ...]:
        """The base names of the files."""
        return self.capture.source

    @cached_property
    def totals(self) -> Totals:
        """The accounting: the time of all activities, in ops and outside of ops by reason."""
        return totals(self.attributed)

    @cached_property
    def graphs(self) -> Totals:
        return graph_totals(self.attributed)

    @property
    def op_count(self) -> int:
        op = self.attributed.activity_op
        return len(np.unique(op[op != NONE]))

    @cached_property
    def ranks(self) -> Ranks:
        """The rank of each process, and its source."""
        return Ranks.of(self.capture, self.attributed.place)

    @property
    def began(self) -> int:
        """The time of the first event in ns, on the clock of the report."""
        return self.capture.began

    @property
    def rank_warnings(self) -> list[str]:
        return self.ranks.warnings

    @property
    def members(self) -> Run | None:
        """The processes of the run with their ranks; None for a report without a timeline."""
        from bridge.analyze.run.ranks.table import Run  # few tables need it

        return Run.of(self.attributed) if no_timeline.has_timeline(self.capture) else None

    @property
    def ranges(self) -> int:
        return len(self.capture.ranges)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """A line for each defect of the report, with how it was handled."""
        return validity.warnings(self.attributed)

    @cached_property
    def op_kernels(self) -> pd.DataFrame:
        """A data frame with one row per activity, in the order of ``report.activities``.

        Columns: launch and range (rows, -1 for none), op and path (None for none), reason
        ('' if there is an op), rule (`RULES` of bridge.join.attribution), direction ("forward",
        "backward", None without an op), forward (row of the range that backward work belongs to, or
        -1), ambiguous (several threads had such a range), module (path, None for none), report.
        """
        attributed, attribution = self.attributed, self.attributed.attribution
        code, distinct = attributed.node_path
        forward, backward = attributed.directions.forward, attributed.directions.backward
        modules = attributed.modules
        module = lookup(modules.path, attributed.module_of_work)
        found = OpKernels(
            launch=attribution.launch,
            range=attribution.range,
            op=Names(attributed.activity_op, attributed.ops),
            path=Names(lookup(code, attribution.node), distinct),
            reason=Names(attribution.reason, list(REASONS)),
            rule=Names(attribution.rule, list(RULES)),
            direction=Names(lookup(backward.astype(np.int64), attribution.node), DIRECTIONS[:2]),
            forward=lookup(forward, attribution.node),
            ambiguous=lookup(attributed.directions.ambiguous, attribution.node, False),
            module=Names(lookup(module, attribution.node), modules.paths),
            report=self.capture.activities.report,
        )
        return found.to_pandas().copy()  # writing into it leaves the report as it is

    def by(
        self,
        view: str | Sequence[str],
        *,
        columns: str | Sequence[str] = (),
        **options: Unpack[TableOptions],
    ) -> pd.DataFrame:
        """Return a table as a data frame: one of `VIEWS`, or one by dimensions, as docs/report.md describes them.

        ``view`` is a name, or several dimensions as a list or with commas: ``"op,shape"``.
        ``columns`` are names, with or without ``_ns``, or sets: "default", "all", "gpu", "cpu",
        "causes", "communication". ``options`` are further fields of
        `bridge.analyze.tables.request.TableRequest`. Times are in ns; rows are sorted by time,
        largest first, ties by name. Raises ValueError with a message for the user if the report
        does not have the table or a column.
        """
        return self.table(plugins.table_request(view, columns, **options)).to_pandas()

    def fitting(self, request: TableRequest) -> TableRequest:
        """Return the request, or that for kernels or copies, as `TableRequest.fitting` does."""
        activities = self.capture.activities
        kernels = int(activities.kind.among(frames.KERNEL).sum())
        return request.fitting(ranges=self.ranges, activities=len(activities), kernels=kernels)

    def table(self, request: TableRequest) -> Table:
        """Return the requested table. Raises ValueError as `by` does.

        Where memory is short, what earlier tables left to be used again is given back first.
        """
        try:
            return table(self.attributed, request)
        except MemoryError:
            self.attributed.forget()
        return table(self.attributed, request)

    def within(
        self,
        *,
        first_ns: int | None = None,
        last_ns: int | None = None,
        steps: tuple[int, int] | None = None,
        range_name: str | None = None,
    ) -> Report:
        """Return a report of a part of the time.

        The part is the time from ``first_ns`` to ``last_ns`` since the first event: what began then on the
        host, and the work that ran then on devices, cut at both ends. Or it is the ``steps`` from one number to
        another, both included, or the time in which ranges of a name or op (with ``*`` and ``?``) were open in
        the event's process: what began then on the host, and the work that was launched then. Raises ValueError
        with a message for the user if there is no such step or range.
        """
        if (first_ns, last_ns, steps, range_name) == (None,) * 4:
            return self
        from bridge.analyze.core import time_range  # most tables are of the whole report

        attributed = self.attributed
        if steps is not None or range_name is not None:
            attributed = attributed.within(
                time_range.select_by_ranges(attributed, steps, range_name)
            )
        if first_ns is not None or last_ns is not None:
            no_timeline.refuse(self.capture, "time from the first event on (--from, --to)")
            attributed = attributed.within(
                time_range.select_by_clock(attributed, first_ns, last_ns)
            )
        return Report(attributed)

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> Averages:
        """Return averages per op, API call, kernel and copy, as PyTorch's profiler does.

        See docs/averages.md.
        """
        from bridge.analyze.draw.dialects.averages import averages  # tables do not need it

        no_timeline.refuse(self.capture, "averages of calls")
        return averages(
            self.attributed,
            by_shape=group_by_input_shape,
            levels=group_by_stack_n,
            by_overload=group_by_overload_name,
        )

    def advise(self, rules: Sequence[str] = (), worth: float | None = None) -> AdviceReport:
        """Return what slows the run down, with evidence and estimated savings: see docs/advise.md.

        ``rules`` are the names of the rules to apply, all by default. ``worth`` is the smallest
        listed ceiling as a fraction of the run, 1 % by default. Raises ValueError with a message
        for the user for an unknown name.
        """
        from bridge.analyze.checks import advice  # tables do not need it
        from bridge.render import notebook

        advised = advice.advise(
            self.attributed,
            advice.rules_by_name(rules, lambda: plugins.every_check().rules),
            advice.MIN_SHARE if worth is None else worth,
        )
        return notebook.ShownAdvice.of(advised)

    def what_if(
        self,
        *,
        op: str | Sequence[str] = (),
        faster: str | Sequence[str] = (),
        without: str | Sequence[str] = (),
        hide: str | Sequence[str] = (),
        gpu_faster: str | float = "",
        iterations: int = 0,
    ) -> WhatIf:
        """Return how long the run would have been with other costs: see docs/what-if.md.

        ``op`` are names of ops, of which ``faster`` says how much less time they take, as ``"30%"`` or
        ``"2x"``: one for all, or one for each. ``without`` are names of calls that go, ``hide`` those of work
        that computation hides, "nccl" for all communication; names may hold ``*`` and ``?``. ``gpu_faster`` is
        how much faster all kernels are, as ``1.5``. ``iterations`` is for how many the answer is, 0 for those of
        the run. Raises ValueError with a message for the user for a name that matches nothing.
        """
        from bridge.analyze.run.what_if import Question, what_if  # tables do not need it

        names = (_texts(op), _texts(faster), _texts(without), _texts(hide))
        question = Question.of(*names, str(gpu_faster), iterations)
        no_timeline.refuse(self.capture, "what-if")
        return what_if(self.attributed, question)

    @cached_property
    def summary(self) -> Summary:
        """The facts that a user needs first: use of the GPUs, iterations, largest ops, advice."""
        from bridge.analyze.checks.summary import Summary  # tables do not need it
        from bridge.render.notebook import ShownSummary

        return ShownSummary.of_summary(
            Summary.of(self.attributed, rules=plugins.every_check().rules)
        )

    @cached_property
    def use(self) -> Use:
        """The use of the GPUs: how busy each was, and the causes of their idle time."""
        from bridge.analyze.run.gpu_use import Use  # few tables need it

        return Use.of(self.attributed)

    @cached_property
    def busy(self) -> Use:
        """The use of the GPUs without the causes of their idle time, which need the graph of the run."""
        from bridge.analyze.run.gpu_use import Use  # few tables need it

        return Use.of(self.attributed, causes=False)

    @cached_property
    def cycles(self) -> ActiveCycles | None:
        """The active cycles of a session, if the report holds other steps, too."""
        from bridge.analyze.core.session_cycles import ActiveCycles  # exports do not need it

        return ActiveCycles.of(self.attributed)

    @cached_property
    def quality(self) -> Quality:
        """The trustworthiness of the capture, 0 to 100, and the reasons: see docs/doctor.md."""
        from bridge.analyze.checks.quality import quality  # tables do not need it
        from bridge.render.notebook import ShownQuality

        return ShownQuality.of(quality(self.attributed, plugins.every_check().reasons))

    def __repr__(self) -> str:
        """Return a line with the files, and the number of ranges and activities."""
        capture = self.capture
        counts = ((len(capture.ranges), "ranges"), (len(capture.activities), "activities"))
        return f"<Report {', '.join(capture.source)}: {', '.join(f'{n} {what}' for n, what in counts)}>"

    def _repr_html_(self) -> str:
        """Return the use of the GPUs, the largest rows by time and the accounting, for notebooks."""
        from bridge.render.first_screen import use_lines  # only notebooks need it

        by = "op"
        if not self.ranges and self.totals["activities"]:
            by = "kernel" if len(self.table(TableRequest("kernel"))) else "memcpy"
        return replace(self.show(by), above=tuple(use_lines(self.busy)))._repr_html_()

    def show(
        self,
        view: str | Sequence[str],
        *,
        columns: str | Sequence[str] = (),
        top: int = IN_NOTEBOOK,
        **options: Unpack[TableOptions],
    ) -> ShownTable:
        """Return a table for people: the first rows of what `by` returns, with units.

        Notebooks show it as HTML, a prompt as text. Ops of numbered steps are one row, as in
        ``bridge report``. ``top`` is the number of rows. Raises ValueError as `by` does.
        """
        from bridge.analyze.core.folding import Folded, moved  # only people need them
        from bridge.render.notebook import ShownTable
        from bridge.render.table import accounting_line, graphs_line

        folded = replace(self, attributed=Folded.of(self.attributed).attributed)
        request = plugins.table_request(view, columns, **options)
        rows = moved(request.by, folded.table(request), -self.began)
        return ShownTable(
            self.layout(request.by),
            rows.head(top),
            max(0, len(rows) - top),
            below=tuple(
                filter(
                    None,
                    (
                        graphs_line(request.by, self.graphs, self.totals["gpu_ns"]),
                        accounting_line(self.totals, folded.op_count),
                    ),
                )
            ),
        )

    def plot(self, top: int = 12) -> Picture:
        """Return a picture of the ``top`` ops by GPU time, which notebooks show.

        ``bridge plot`` writes files, and other kinds of pictures. Raises ImportError without
        matplotlib, ValueError if nothing ran on a GPU.
        """
        from bridge.render import plot  # tables do not need them
        from bridge.render.notebook import Picture

        if needed := plot.missing():
            raise ImportError(needed)
        from bridge.analyze.draw.plots import PARTS, breakdown
        from bridge.render.plot import charts, page

        if not self.totals["gpu_ns"]:
            raise ValueError(f"{', '.join(self.source)}: no work on a GPU in the report")
        with page.figure(*PLOT_INCHES) as (figure, axes):
            charts.draw_bars(axes, breakdown(self.attributed, top), PARTS)
            return Picture(page.svg(figure))

    def layout(self, by: str) -> str:
        """Return the name of the columns that are displayed of a table, as `catalog.lookup.layout` does."""
        return layout(by, activities=len(self.capture.activities))

    def nothing(self, by: str) -> str:
        if self.attributed.selection is not None and not self._has_selected:
            from bridge.render import units  # few tables need it

            last = max(facts.span[1] for facts in self.capture.facts)
            return f"nothing began in the selected time; the report lasts {units.time(last - self.began)}"
        if by == "step":
            if len(self.attributed.iterations):
                return "no steps in the selected part of the report"
            if all(facts.timeline for facts in self.capture.facts):
                return f"no steps: {self.attributed.why_no_iterations()}; {MARK_STEPS}"
        if by in ("source", "sample") and not any(facts.path for facts in self.capture.facts):
            return "a run of the store keeps no call stacks; give the file of the report"
        return nothing(by, activities=len(self.capture.activities), ranges=self.ranges)

    @property
    def _has_selected(self) -> bool:
        """Whether any range, API call or activity is in the selected time."""
        attributed = self.attributed
        return any(
            rows.any()
            for rows in (attributed.counted_ranges, attributed.counted_launches, attributed.counted)
        )

    def export_trace(self, path: str | Path, **options: Unpack[TraceOptions]) -> Timeline:
        """Write one timeline of ops, API calls and device work: see `bridge.exports.trace`."""
        from bridge import exports  # tables do not need it

        return exports.trace(self.attributed, path, **options)

    def export_tensorboard(
        self, folder: str | Path, *, selection: Selection | None = None, force: bool = False
    ) -> list[Path]:
        """Write a trace per process for TensorBoard: see `bridge.exports.tensorboard`."""
        from bridge import exports
        from bridge.analyze.draw.timeline import Selection

        return exports.tensorboard(
            self.attributed, folder, selection=selection or Selection(), force=force
        )

    def export_chrome_trace(self, path: str | Path, *, force: bool = False) -> None:
        """Write the timeline as `export_trace` does, under the name of PyTorch's profiler."""
        self.export_trace(path, force=force)


def join(capture: Capture, options: AttributionOptions = DEFAULT) -> Report:
    """Attribute a capture that is already loaded. Raises ReportError if its ranges do not nest."""
    try:
        return Report(AttributedCapture.of(capture, options))
    except TangledError as error:
        raise ReportError(f"{', '.join(capture.source)}: {error}") from error


class AttributionFields(TypedDict, total=False):
    """The fields of `AttributionOptions` that functions take as keywords; rules may be files."""

    op_rules: str | Path | Sequence[Rule]
    raw: bool
    graphs: str | None
    domains: Sequence[str]
    exclude_domains: Sequence[str]
    adopt: bool | None
    kernel_rules: str | Path | Rules | None
    rank_from: str | None
    backward_under: str
    steps: str | None


def load(*paths: str | Path, **options: Unpack[AttributionFields]) -> Report:
    """Read one report (or several as one) and attribute every activity.

    ``options`` are those of ``bridge report``: ``op_rules``, a TOML file, regroups op names;
    ``kernel_rules``, another, says what kernels are; ``raw`` makes each whole text of a range an
    op, in all domains; ``graphs`` ("capture" or "launch") is which op owns the work of a CUDA
    graph; ``domains`` and ``exclude_domains`` select the domains whose ranges are ops; ``adopt``
    guesses ops for threads without ranges; ``backward_under`` ("caller" or "forward") is the range
    that PyTorch's backward work is under; ``steps`` names the ranges that are steps; ``rank_from``
    is a regular expression that finds the rank in the path of a file. Raises
    `bridge.importers.ReportError`, whose message is one line for the user.
    """
    details = {importers.EVERY, *SOURCE_DETAILS, *SAMPLE_DETAILS}
    return join(
        importers.load(*paths, details=details, more_readers=plugins.readers),
        attribution_options(**options),
    )


def attribution_options(**fields: Unpack[AttributionFields]) -> AttributionOptions:
    """Return options of the attribution, with the rules that are in files. Raises ReportError as `load` does."""
    parsed: dict[str, Any] = {**fields}
    for name, parse in (("op_rules", op_rules), ("kernel_rules", kernel_rules)):
        given = parsed.get(name)
        if isinstance(given, str | Path):
            try:
                parsed[name] = parse(Path(given).read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else error
                raise ReportError(f"{given}: {reason}") from error
    return AttributionOptions(**parsed)


def _texts(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)
