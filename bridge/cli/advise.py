"""``bridge advise``: what slows a run down, what shows it, and what removing it would save."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bridge.analyze.tables.views import OF_ADVICE
from bridge.cli import ncu_option, options, outputs, time_options

if TYPE_CHECKING:
    from bridge.analyze.advice import Advised
    from bridge.join.choices import Choices

FORMATS = ("text", "json", "md", "sarif")


def _share(_context: click.Context, _option: click.Parameter, text: str) -> float:
    """Read a share: 1%, or 0.01."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise click.BadParameter(f"{text!r}: write a share of the run, as 1%")
    return value


@click.command()
@options.source
@click.option(
    "--rule", "names", multiple=True, metavar="NAME", help="Only this rule. May be repeated."
)
@click.option("--list", "listed", is_flag=True, help="List the rules and end.")
@click.option(
    "--over",
    "least",
    default="1%",
    show_default=True,
    metavar="SHARE",
    callback=_share,
    help="Only what would save so much of the run at most.",
)
@click.option(
    "--rows",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="Rows of evidence for each.",
)
@time_options.window
@ncu_option.ncu
@options.choices
@options.sidecar
@outputs.formats(FORMATS)
@outputs.option
def advise(  # noqa: PLR0913, PLR0917 - a parameter per option
    reports: tuple[Path, ...],
    names: tuple[str, ...],
    listed: bool,
    least: float,
    rows: int,
    form: str | None,
    db: Path,
    run: int | None,
    ncu: tuple[Path, ...],
    choices: Choices,
    sidecar: tuple[Path, ...],
    output: Path | None,
    force: bool,
    **window: Any,
) -> None:
    """Say what slows REPORTS (or a run of the store) down, with the rows that show it.

    A saving is an estimate of the run's time, its ceiling what it can be at most; several savings may be of
    the same time. What cannot be judged says which capture would tell.
    """
    if listed:
        click.echo(_list(), nl=False)
        return
    outputs.check(output, reports, force=force)
    joined = options.joined(reports, db, run, choices, OF_ADVICE | {"metrics"}, sidecar)
    joined = ncu_option.with_ncu(joined, ncu, choices)
    try:
        advised = time_options.within(joined, **window).advise(names, least)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    form = outputs.form_of(form, output, FORMATS)
    text = _text(advised, form, rows, to_terminal=output is None)
    outputs.give(text, output, f"{len(advised.advice)} pieces of advice", force=force)


def _list() -> str:
    from bridge.analyze.advice import RULES
    from bridge.render import advice

    return advice.as_list(RULES)


def _text(advised: Advised, form: str, rows: int, *, to_terminal: bool) -> str:
    from bridge.render import advice, ci_reports

    if form == "json":
        return advice.as_json(advised, rows)
    if form == "md":
        return advice.as_markdown(advised, rows)
    if form == "sarif":
        return ci_reports.as_sarif(advised, rows)
    return advice.for_terminal(advised, options.look(to_terminal=to_terminal), rows)
