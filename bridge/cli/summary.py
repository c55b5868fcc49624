"""``bridge summary``: the facts that a user needs first, and the ops that take most GPU time."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from bridge.analyze.tables.views import ADVICE_DETAILS, QUALITY_DETAILS
from bridge.cli import options, outputs, selection_options
from bridge.cli.help import Command
from bridge.cli.options import ReportInput, usage_errors
from bridge.cli.outputs import Output
from bridge.cli.selection_options import TimeRange

if TYPE_CHECKING:
    import pandas as pd

    from bridge.render.table import Look
    from bridge.report import Report
    from bridge.scale.combined import CombinedReport
    from bridge.store import StoredReport

    Summarized = Report | StoredReport | CombinedReport

FORMATS = ("text", "json")
ROWS = 10
NAMED = 3  # reports that a hint names


@click.command(
    cls=Command,
    examples=(
        "bridge summary report.sqlite",
        "bridge summary --run 1",
        "bridge summary report.sqlite --step 1..2",
    ),
)
@options.report_input
@selection_options.window
@outputs.output(FORMATS)
def summary(source: ReportInput, time_range: TimeRange, output: Output) -> None:
    """Print how busy the GPUs were, why they were idle, what to do, and the largest ops.

    REPORTS are report files; without any, the newest run of the store is read.
    """
    output.check(source.reports)
    report = source.load(ADVICE_DETAILS | QUALITY_DETAILS)
    with usage_errors():
        report = time_range.of(report)
    if output.format == "json":
        text = _json(report)
    else:
        text = summary_text(report, options.look(to_terminal=output.to_terminal))
        text += _quality_line(report, source)
    output.write(text, "summary")


def summary_text(report: Summarized, look: Look) -> str:
    """Return the summary of a report, its largest rows, and the accounting of all activities."""
    from bridge.cli.table_output import cycles_of
    from bridge.render import summaries, summary, table, units

    by, rows = _largest(report)
    lines = summary.lines(report.summary)
    head = options.wrapped([*lines, ""]) if lines else ""
    remedies = [remedy for remedy in look.remedies if remedy == table.WIDER]
    look = replace(look, remedies=(*remedies, f"bridge report --by {by}"))
    text = table.for_terminal(report.layout(by), rows.head(ROWS), look)
    below = []
    if len(rows) > ROWS:
        below.append(f"… and {len(rows) - ROWS} more rows: bridge report --by {by}")
    if by == "op-kernel" and (moved := int(report.by("memcpy")["total_ns"].sum())):
        below.append(f"memcpys and memsets take {units.time(moved)}: bridge report --by memcpy")
    if cycles := summaries.cycles_line(cycles_of(report)):
        below.append(cycles.rstrip())
    if graphs := table.graphs_line(by, report.graphs, report.totals["gpu_ns"]):
        below.append(options.wrapped([graphs]).rstrip())
    below.append(table.accounting_line(report.totals, report.op_count))
    return head + text + "".join(f"{line}\n" for line in below)


def _largest(report: Summarized) -> tuple[str, pd.DataFrame]:
    """Return the table that says most of a report, and its name."""
    if not report.totals["activities"]:
        return "op", report.by("op")
    views = ("op-kernel",) if report.ranges else ("kernel", "memcpy")
    tables = {by: report.by(by) for by in views}
    by = next((by for by, rows in tables.items() if len(rows)), views[0])
    return by, tables[by]


def _json(report: Report) -> str:
    from bridge.render import summary

    _, rows = _largest(report)
    return summary.as_json(report.source, report.totals, report.summary, rows.head(ROWS))


def _quality_line(report: Report, source: ReportInput) -> str:
    """Return the line on the quality of the capture, with the command that says more."""
    from bridge.render import quality

    line = quality.line(report.quality)
    return f"{line} (bridge doctor {_named(source)})\n" if line else ""


def _named(source: ReportInput) -> str:
    """Return the words that name a report on a command line: its files, or its run."""
    if source.reports:
        few = shlex.join(str(path) for path in source.reports[:NAMED])
        return few if len(source.reports) <= NAMED else f"{few} …"
    from bridge import store

    return f"--run {store.get_run(source.db, source.run).id}"
