"""The tools of `bridge mcp`: questions to a report whose answers are small JSON documents.

The docstring of a tool and the descriptions of its parameters are what a model reads.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field

from bridge import plugins
from bridge.analyze.core.catalog import VIEWS
from bridge.analyze.core.catalog.dimensions import DIMENSIONS
from bridge.analyze.core.catalog.lookup import columns_of
from bridge.analyze.core.filters import parse_conditions
from bridge.analyze.tables.request import TableRequest
from bridge.cli.mcp_reports import KeptReports
from bridge.cli.selection_options import STEPS, RowOptions, first_and_last
from bridge.knowledge.amounts import parse_time_ns
from bridge.render import compact
from bridge.render.compact import Rows, as_text
from bridge.source import TimeRange

if TYPE_CHECKING:
    from bridge.report import Report

LIMIT = 4_000  # bytes of an answer
MOST_BYTES = 100_000
MOST_ROWS = 1_000
KEPT_CLOCK = "table"  # times since the first event, as people see them
INSTRUCTIONS = """\
Answers about GPU profiles (Nsight Systems, Nsight Compute, PyTorch traces): which op launched which
kernels, why the GPU was idle, what to do. Begin with summary, then advise; table answers the rest.
Times are integers in ns (names end in _ns); instants count from the first event of the report; -1 is
unknown. A table is "columns" and "rows"; "left_out" counts rows that are not shown, "more" says how to
get them. An answer has at most about 4000 bytes unless max_bytes allows more.
"""

ReportName = Annotated[
    str,
    Field(
        description="Path of a report (several of one run with commas), or number or name of a run of"
        " the store; empty: the newest run"
    ),
]
Top = Annotated[int, Field(ge=1, le=MOST_ROWS, description="Rows to show at most")]
MaxBytes = Annotated[
    int, Field(ge=500, le=MOST_BYTES, description="Rows that do not fit are left out")
]
From = Annotated[str, Field(description="Only what begins at this time or later, as 1.5s or 20ms")]
To = Annotated[str, Field(description="Only what begins before this time")]
Step = Annotated[str, Field(description="Only these training steps, as 3 or 3..5")]


@dataclass
class Tools:
    """The tools, with the reports that they keep."""

    reports: KeptReports

    def open_report(self, report: ReportName = "") -> str:
        """Open a report and say what it contains: files, GPUs, counts, length of each run, quality, warnings.

        Other tools open reports themselves. An opened report stays in memory for further questions.
        """
        from bridge.analyze.run.account import runs

        opened = self.reports.get(report)
        capture, quality = opened.capture, opened.quality
        document = {
            "source": capture.source,
            "profiler": [f"{facts.product} {facts.schema}".strip() for facts in capture.facts],
            "run_ns": [run.length_ns for run in runs(opened.attributed)],
            "gpus": capture.devices.name.tolist(),
            "ranges": opened.ranges,
            "ops": len(opened.attributed.ops),
            "api_calls": len(capture.launches),
            "activities": opened.totals,
            "steps": sum(loop.count for loop in opened.attributed.loops.iterations),
            "quality": quality.score,
            "warnings": [*capture.warnings, *opened.warnings][:5],
        }
        return as_text(document, LIMIT)

    def list_runs(self, top: Top = 10) -> str:
        """List the newest runs of the store, which can be named in place of a path."""
        from bridge import store

        runs = store.list_runs(self.reports.db)[::-1]
        rows = [
            {
                "run": run.id,
                "name": run.name or "",
                "created": run.created,
                "source": ", ".join(run.source),
                "activities": run.activities,
                "gpu_ns": run.gpu_ns,
            }
            for run in runs[:top]
        ]
        return as_text({"rows": Rows.of(rows, len(runs) - len(rows))}, LIMIT, "a larger top")

    def summary(self, report: ReportName = "", top: Top = 5) -> str:
        """Answer "what is slow?": GPU use, causes of idle time, step time, first advice, largest kernels."""
        from bridge.cli.summary import summary_json

        document = json.loads(summary_json(self.reports.get(report), top))
        return as_text(compact.summary(document), LIMIT, "table(by='op-kernel')")

    def list_tables(
        self,
        table: Annotated[
            str, Field(description="A table, as op-kernel: list its columns; empty: list tables")
        ] = "",
        max_bytes: MaxBytes = LIMIT,
    ) -> str:
        """List what each table (by) of the tool table answers; or the columns of one table."""
        plugins.add_tables(table)
        if not table:
            names = {view.name: view.question for view in VIEWS.values()}
            meanings = {one.name: one.meaning for one in DIMENSIONS.values()}
            return as_text({"tables": names, "dimensions": meanings}, max_bytes)
        described = columns_of(table)
        # The default columns first: those that do not fit are left out.
        columns = sorted(described.columns, key=lambda column: not column.default)
        rows = [
            {"column": c.name, "default": c.default, "meaning": c.meaning or c.heading}
            for c in columns
        ]
        sets = list(described.sets)
        return as_text({"by": table, "sets": sets, "rows": Rows.of(rows)}, max_bytes, "max_bytes")

    def table(
        self,
        report: ReportName = "",
        by: Annotated[
            str,
            Field(
                description="op, op-kernel (which kernels does an op launch), kernel, memcpy, step, module,"
                " idle (why is the GPU idle), gap, device, collective, wait … or dimensions with"
                " commas, as op,shape; list_tables shows all"
            ),
        ] = "op",
        columns: Annotated[
            str, Field(description="Columns or sets of columns with commas; empty: the usual")
        ] = "",
        where: Annotated[
            str,
            Field(description="Conditions with commas, as op=aten::*, gpu>10us, kernel~gemm"),
        ] = "",
        sort: Annotated[
            str, Field(description="Column to sort by, largest first; +column: smallest first")
        ] = "",
        top: Top = 10,
        skip: Annotated[int, Field(ge=0, description="Rows to pass over, to read on")] = 0,
        begin: From = "",
        end: To = "",
        step: Step = "",
        max_bytes: MaxBytes = LIMIT,
    ) -> str:
        """Return a table of a report, largest first. The default is time per op.

        Kernels of an op: by="op-kernel", where="op=NAME". Causes of idle time: by="idle".
        """
        from bridge.cli.report import table_rows, without_steps

        rows = RowOptions(tuple(parse_conditions(where)) if where else (), sort, None, None)
        plugins.add_tables(by)
        request = TableRequest.of(by, columns, also=rows.columns)
        request.check()
        rows, time_range = without_steps(request, rows, _time_range(begin, end, step))
        opened = time_range.of(self.reports.get(report))
        table = table_rows(opened, request, rows, KEPT_CLOCK, running=False)
        document = {
            "by": request.by,
            "source": opened.source,
            "totals": opened.totals,
            "note": "" if len(table) else _nothing(opened, request.by, filtered=bool(where)),
            "rows": Rows.of_frame(table, top, skip),
        }
        return as_text(
            document, max_bytes, f"skip={compact.NEXT}; top and max_bytes show more at once"
        )

    def why(
        self,
        what: Annotated[
            str,
            Field(
                description="A kernel's name or a part of it, '#12' (a row), an op, or a time (gap)"
            ),
        ] = "",
        report: ReportName = "",
        kind: Annotated[
            Literal["activity", "op", "gap"],
            Field(
                description="activity: kernel, memcpy or memset; op: the longest work of an op;"
                " gap: the gap of a GPU at a time such as 1.5s, or the longest"
            ),
        ] = "activity",
        max_bytes: MaxBytes = LIMIT,
    ) -> str:
        """Explain the chain from a kernel to its API call, the ranges around it and its op.

        Of a gap: its causes, and the chain of the activity that ended it.
        """
        opened = self.reports.get(report)
        if kind == "gap":
            return as_text(_why_gap(opened, what), max_bytes)
        if kind == "op":
            return as_text(_why_op(opened, what), max_bytes)
        from bridge.cli.why import explained

        return as_text(compact.why(explained(opened, what)), max_bytes)

    def advise(
        self,
        report: ReportName = "",
        rule: Annotated[str, Field(description="Only this rule; empty: all")] = "",
        top: Annotated[int, Field(ge=1, le=50, description="Pieces of advice told in full")] = 3,
        evidence: Annotated[int, Field(ge=0, le=50, description="Rows of evidence each")] = 2,
        step: Step = "",
        max_bytes: MaxBytes = LIMIT,
    ) -> str:
        """Find what slows the run down: each with figures, remedy, what it would save, and evidence.

        "further" are pieces of advice that are not told in full, "small" those below 1 % of the run.
        """
        from bridge.render import advice

        opened = _time_range("", "", step).of(self.reports.get(report))
        advised = opened.advise([rule] if rule else ())
        document = json.loads(advice.as_json(advised, evidence))
        text = as_text(compact.advice(document, top), max_bytes)
        while len(text.encode()) > max_bytes and top > 1:
            top -= 1
            text = as_text(compact.advice(document, top), max_bytes)
        return text

    def what_if(
        self,
        report: ReportName = "",
        op: Annotated[
            str, Field(description="Ops that take less time, with commas (* and ?)")
        ] = "",
        faster: Annotated[
            str,
            Field(description="How much less time they take, as 30% or 2x; one for each, or one"),
        ] = "",
        without: Annotated[
            str, Field(description="Calls of CUDA or of the operating system that go, with commas")
        ] = "",
        hide: Annotated[
            str,
            Field(
                description="Work hidden by computation: nccl, or kernels and copies, with commas"
            ),
        ] = "",
        gpu_faster: Annotated[str, Field(description="All kernels are faster, as 1.5 or 30%")] = "",
        iterations: Annotated[int, Field(ge=0, description="Tell of so many iterations")] = 0,
        step: Step = "",
        max_bytes: MaxBytes = LIMIT,
    ) -> str:
        """Tell how long the run would have been with other costs, all changes at once.

        "would_be" beside "recorded"; "bound" is what the run then waits for.
        """
        from bridge.render import what_if

        opened = _time_range("", "", step).of(self.reports.get(report))
        answer = opened.what_if(
            op=_listed(op),
            faster=_listed(faster),
            without=_listed(without),
            hide=_listed(hide),
            gpu_faster=gpu_faster,
            iterations=iterations,
        )
        document = dict(what_if.as_document(answer, opened.source))
        document.pop("format")
        tables = {name: Rows.of(document[name]) for name in ("changes", "bound")}
        return as_text({**document, **tables}, max_bytes)

    def diff(
        self,
        before: ReportName,
        after: ReportName,
        by: Annotated[
            str, Field(description="What a row is: op, op-kernel, kernel, module … or dimensions")
        ] = "op",
        where: Annotated[
            str, Field(description="Conditions, as op=aten::*, diff>10us, state=slower")
        ] = "",
        sort: Annotated[str, Field(description="Column to sort by")] = "",
        top: Top = 8,
        max_bytes: MaxBytes = LIMIT,
    ) -> str:
        """Compare two reports: what changed per op, step time, GPU idle time and its causes.

        Rows come largest change first. state: slower, faster, same, unclear, added, removed.
        """
        from bridge.cli.diff import DiffRequest, compare_sides
        from bridge.join.options import AttributionOptions
        from bridge.render import diff

        rows = RowOptions(tuple(parse_conditions(where)) if where else (), sort, None, None)
        request = DiffRequest(
            by=by,
            kernel_names="readable",
            noise="1%",
            time_range=TimeRange(),
            attribution_options=AttributionOptions(),
        )
        sides = [self.reports.get(name) for name in (before, after)]
        view = compare_sides(sides, request, rows=rows, fail_over=(), limits=None)
        left_out = max(0, len(view.rows) - top)
        few = json.loads(diff.as_json(diff.with_rows(view, top)))
        return as_text(
            compact.diff(few, left_out), max_bytes, "a larger top and max_bytes, or where"
        )

    def timeline(
        self,
        begin: Annotated[str, Field(description="From this time after the first event, as 1.5s")],
        end: Annotated[str, Field(description="Up to this time, as 1.6s")],
        report: ReportName = "",
        top: Top = 6,
        max_bytes: MaxBytes = LIMIT,
    ) -> str:
        """Say what ran between two times: per GPU busy time, ops, API calls, kernels, and gaps with causes.

        Contains what began before or ended after; counts only the time in between. "ops" are by CPU
        time of the op alone ("cpu_self_ns"), "work" is on the GPU.
        """
        from bridge.analyze.checks.excerpt import excerpt
        from bridge.analyze.core import no_timeline

        opened = self.reports.get(report)
        no_timeline.refuse(opened.capture, "timeline")
        part = excerpt(opened.attributed, parse_time_ns(begin), parse_time_ns(end))
        return as_text(compact.excerpt(part, top), max_bytes, "a larger top, or a shorter time")


def _listed(text: str) -> list[str]:
    """Return the names of a list with commas."""
    return [name for part in text.split(",") if (name := part.strip())]


def _time_range(begin: str, end: str, step: str) -> TimeRange:
    """Return the part of the time; raises ValueError with a message for the user for other texts."""
    if step and not STEPS.fullmatch(step):
        raise ValueError(f"{step!r}: write a step, as 3, or several, as 3..5")
    first, last = (parse_time_ns(text) if text else None for text in (begin, end))
    return TimeRange(first, last, first_and_last(step) if step else None)


def _nothing(report: Report, by: str, *, filtered: bool) -> str:
    """Return why a table has no rows."""
    if filtered and report.totals["activities"]:
        return "no row meets the conditions"
    return report.nothing(by) or "no rows"


def _why_op(report: Report, name: str) -> compact.Document:
    """Return the explanation of the longest activity of an op."""
    from bridge.analyze.checks.why import why
    from bridge.analyze.core.time_range import named_ranges

    attributed = report.attributed
    ops = np.unique(attributed.op[named_ranges(attributed, name)])
    rows = np.flatnonzero(np.isin(attributed.activity_op, ops[ops >= 0]))
    if not len(rows):
        raise ValueError(
            f"op {name!r} has no work of its own on a GPU; table(by='op') shows its times"
        )
    return compact.why(why(attributed, rows))


def _why_gap(report: Report, instant: str) -> compact.Document:
    """Return the longest gap, or the one at an instant, with the explanation of what ended it."""
    from bridge.analyze.checks.why import why

    gaps = report.table(TableRequest("gap"))
    began = report.began
    if instant:
        at = parse_time_ns(instant) + began
        gaps = gaps[(gaps["start_ns"] <= at) & (at < gaps["start_ns"] + gaps["gap_ns"])]
    if not len(gaps):
        raise ValueError(
            "no gap of more than 10 us at that time" if instant else report.nothing("gap")
        )
    gap = gaps.row(0)
    end = gap["start_ns"] + gap["gap_ns"]
    ended_by = np.flatnonzero(report.attributed.capture.activities.start == end)
    return {
        "gap": {**gap, "start_ns": gap["start_ns"] - began},
        "ended_by": compact.why(why(report.attributed, ended_by)),
    }
