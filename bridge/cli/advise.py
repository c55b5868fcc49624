"""``bridge advise``: what slows a run down, the rows that show it, and what removing it would save."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.analyze.core.catalog.lookup import ADVICE_DETAILS
from bridge.analyze.core.catalog.views import SOURCE_DETAILS
from bridge.cli import completion, listing, options, outputs, selection_options
from bridge.cli.help import Command, option
from bridge.cli.hints import with_report
from bridge.cli.listing import Listing
from bridge.cli.outputs import Output

if TYPE_CHECKING:
    from bridge.analyze.checks.advice import AdviceReport
    from bridge.report import Report
    from bridge.source import ReportInput, TimeRange

FORMATS = ("text", "json", "md", "sarif")


def _share(_context: click.Context, _option: click.Parameter, text: str) -> float:
    """Read a fraction: 1%, or 0.01."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise click.BadParameter(f"{text!r}: write a share of the run, as 1%")
    return value


@click.command(
    cls=Command,
    examples=(
        "bridge advise report.sqlite",
        "bridge advise report.sqlite --step 1..2",
        "bridge advise --list",
    ),
)
@options.report_input
@options.steps_option
@option(
    "--rule",
    "names",
    multiple=True,
    metavar="NAME",
    shell_complete=completion.rules,
    help="Only this rule. May be repeated.",
)
@option("--list", "listed", is_flag=True, help="List the rules and exit.")
@option(
    "--over",
    "least",
    default="1%",
    show_default=True,
    metavar="SHARE",
    callback=_share,
    help="Only advice that could save at least this share of the run.",
)
@option(
    "--rows",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="Rows of evidence for each piece of advice.",
)
@selection_options.time_range
@options.ncu_option
@outputs.output(FORMATS)
def advise(
    source: ReportInput,
    step_name: str | None,
    names: tuple[str, ...],
    listed: bool,
    least: float,
    rows: int,
    ncu: tuple[Path, ...],
    output: Output,
    time_range: TimeRange,
) -> None:
    """Find what slows down REPORTS (or a run of the store), and show the rows that prove it.

    "could save about" estimates the run time that a remedy saves, "at most" is its upper limit.
    Each cause is listed once; "the same time" names other rules that tell of it. A rule that
    cannot be checked says what to record for it.
    """
    if listed:
        _list().write(output)
        return
    output.check(source.reports)
    source = replace(source.attributed_by(steps=step_name), ncu=ncu, time_range=time_range)
    report = options.load(source, {*ADVICE_DETAILS, *SOURCE_DETAILS, "metrics"})
    with options.usage_errors():
        advised = report.advise(names, least)
    form = output.format
    text = _text(advised, form, rows, to_terminal=output.to_terminal)
    if form in ("text", "md") and not names:
        text = _diagnosis(report, advised) + ("\n" if form == "md" else "") + text
    output.write(text, f"{len(advised.advice)} pieces of advice")


def _diagnosis(report: Report, advised: AdviceReport) -> str:
    """Return what failed, how busy the GPUs were and why they were idle, above the findings."""
    from bridge.analyze.checks.failures import hides_causes
    from bridge.render.first_screen import first_lines

    use = report.use
    use = replace(use, idle=()) if hides_causes(advised.failures) else use
    return options.wrapped(first_lines(advised.failures, use))


def _list() -> Listing:
    from bridge.plugins import every_check
    from bridge.render import advice

    rules = every_check().rules
    rows = [{"name": rule.name, "meaning": rule.when} for rule in rules]
    return Listing(listing.RULES, rows, advice.as_list(rules))


def _text(advised: AdviceReport, form: str, rows: int, *, to_terminal: bool) -> str:
    from bridge.render import advice, ci_reports

    if form == "json":
        return advice.as_json(advised, rows)
    if form == "md":
        return with_report(advice.as_markdown(advised, rows))
    if form == "sarif":
        root = Path(os.environ.get("SRCROOT") or ".").resolve()
        return ci_reports.as_sarif(advised, rows, root.as_posix())
    text = advice.for_terminal(advised, options.look(to_terminal=to_terminal), rows)
    return with_report(text)
