"""``bridge ranks``: the ranks of a run, how their clocks lie to one another, and what each did."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.cli import options, outputs

if TYPE_CHECKING:
    from bridge.analyze.ranks.table import Run
    from bridge.join.choices import Choices
    from bridge.report import Joined

FORMATS = ("table", "json", "csv", "md")
DETAILS = frozenset(["json"])  # recordings know ranks, and what a collective is


@click.command()
@options.source
@options.rank_from
@options.choices
@options.sidecar
@outputs.formats(FORMATS)
@outputs.option
def ranks(  # noqa: PLR0913, PLR0917 - a parameter per option
    reports: tuple[Path, ...],
    db: Path,
    run: int | str | None,
    rank_from: str | None,
    choices: Choices,
    sidecar: tuple[Path, ...],
    form: str | None,
    output: Path | None,
    force: bool,
) -> None:
    """List the ranks of REPORTS, a report per rank or several in one, or of a run of the store.

    How each is known; what its clock differs by, and within which spread; how busy its GPU was, how much of its time is in ops, how
    much of its communication nothing hid.
    """
    outputs.check(output, reports, force=force)
    choices = replace(choices, rank_from=rank_from)
    found = options.joined(reports, db, run, choices, DETAILS, sidecar)
    form = outputs.form_of(form, output, FORMATS)
    text = _text(found, form, to_terminal=output is None)
    outputs.give(text, output, "written", force=force)


def _text(joined: Joined, form: str, *, to_terminal: bool) -> str:
    from bridge.analyze.ranks.table import Run
    from bridge.render import document, summaries

    run = Run.of(joined.attributed)
    options.warn(run.warnings)
    if form == "json":
        return summaries.ranks_json(joined.report.source, run.totals, run.rows)
    if form == "csv":
        return document.as_csv(run.rows)
    return f"{_table(run, form, to_terminal=to_terminal)}\n{summaries.ranks_line(run.totals)}\n"


def _table(run: Run, form: str, *, to_terminal: bool) -> str:
    from bridge.cli.terminal import for_people
    from bridge.render import table

    if form == "md":
        return table.as_markdown("ranks", run.rows)
    return for_people("ranks", run.rows, "--ranks", to_terminal=to_terminal)
