"""``bridge summary``: the facts that a user needs first, and the ops that take most GPU time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from bridge.analyze.core.catalog.lookup import ADVICE_DETAILS, QUALITY_DETAILS
from bridge.analyze.tables.request import TableRequest
from bridge.cli import options, outputs, selection_options
from bridge.cli.help import Command
from bridge.cli.hints import with_report
from bridge.cli.outputs import Output

if TYPE_CHECKING:
    from bridge.analyze.core.table import Table
    from bridge.render.table import Look
    from bridge.report import Report
    from bridge.scale.combined import CombinedReport
    from bridge.source import ReportInput, TimeRange
    from bridge.store import StoredReport

    Summarized = Report | StoredReport | CombinedReport

FORMATS = ("text", "json")
ROWS = 10


@click.command(
    cls=Command,
    examples=(
        "bridge summary report.sqlite",
        "bridge summary --run 1",
        "bridge summary report.sqlite --step 1..2",
    ),
)
@options.report_input
@options.steps_option
@selection_options.time_range
@outputs.output(FORMATS)
def summary(
    source: ReportInput, step_name: str | None, time_range: TimeRange, output: Output
) -> None:
    """Print how busy the GPUs were, why they were idle, what to do, and the largest ops.

    REPORTS are report files or URLs; without any, the newest run of the store is read.
    """
    from bridge.render import quality

    output.check(source.reports)
    source = replace(source.attributed_by(steps=step_name), time_range=time_range)
    report = options.load(source, ADVICE_DETAILS | QUALITY_DETAILS | {"metrics"})
    if output.format == "json":
        text = summary_json(report)
    else:
        text = summary_text(report, options.look(to_terminal=output.to_terminal))
        text += quality_line(quality.line(report.quality))
    output.write(text, "summary")


def summary_text(report: Summarized, look: Look) -> str:
    """Return the summary of a report, its largest rows, and the accounting of all activities."""
    from bridge.analyze.core.table import Table
    from bridge.render import first_screen, summaries, table, units

    by, rows = _largest(report)
    lines = first_screen.lines(report.summary)
    head = options.wrapped([*lines, ""]) if lines else ""
    remedies = [remedy for remedy in look.remedies if remedy == table.WIDER]
    more = with_report(f"bridge report REPORT --by {by}")
    look = replace(
        look,
        remedies=(*remedies, f"{more} --format csv"),
        whole_names=f"{more} --kernel-names demangled",
    )
    text = table.for_terminal(report.layout(by), rows.head(ROWS), look) if len(rows) else ""
    if ranks := report.summary.ranks:
        listed = table.for_terminal("ranks", Table.of_records(ranks[:ROWS]), look)
        left = len(ranks) - ROWS
        below = (
            [f"… and {left} more: {with_report('bridge report REPORT --by rank')}"]
            if left > 0
            else []
        )
        line = options.wrapped([*below, summaries.ranks_line(report.summary.rank_totals)])
        text = f"{listed}{line}\n{text}"
    below = []
    if len(rows) > ROWS:
        left = len(rows) - ROWS
        below.append(f"… and {left} more row{'s' if left > 1 else ''}: {more}")
    if by in ("op-kernel", "kernel") and (
        moved := int(report.table(TableRequest("memcpy"))["total_ns"].sum())
    ):
        hint = with_report("bridge report REPORT --by memcpy")
        share = units.percent(moved / report.totals["gpu_ns"])
        below.append(
            f"memcpys and memsets take {units.time(moved)}, {share} of the GPU time: {hint}"
        )
    if cycles := summaries.cycles_line(report.cycles):
        below.append(cycles.rstrip())
    if graphs := table.graphs_line(by, report.graphs, report.totals["gpu_ns"]):
        below.append(options.wrapped([graphs]).rstrip())
    below.append(table.accounting_line(report.totals, report.op_count))
    return head + text + "".join(f"{line}\n" for line in below)


def _largest(report: Summarized) -> tuple[str, Table]:
    """Return the table that says most of a report, and its name."""
    if not report.totals["activities"]:
        return "op", report.table(TableRequest("op"))
    views = ("op-kernel",) if report.ranges else ("kernel", "memcpy")
    tables = {by: report.table(TableRequest(by)) for by in views}
    by = next((by for by, rows in tables.items() if len(rows)), views[0])
    return by, tables[by]


def summary_json(report: Report, rows: int = ROWS) -> str:
    """Return the summary of a report and its largest rows, in the format bridge.summary/1."""
    from bridge.render import summary

    _, table = _largest(report)
    return summary.as_json(report.source, report.totals, report.summary, table.head(rows))


def quality_line(line: str) -> str:
    """Return the line on the quality of a capture with the command that explains it, '' without a line."""
    return with_report(f"{line} → bridge doctor REPORT\n") if line else ""
