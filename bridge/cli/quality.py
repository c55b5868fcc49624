"""``bridge quality``: how far a capture can be trusted, and what would make the next one better."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.analyze.tables.views import OF_QUALITY
from bridge.cli import options, outputs

if TYPE_CHECKING:
    from bridge.analyze.quality import Quality
    from bridge.join.choices import Choices

FORMATS = ("text", "json", "md")


@click.command()
@options.source
@options.choices
@options.sidecar
@outputs.formats(FORMATS)
@outputs.option
def quality(  # noqa: PLR0913, PLR0917 - a parameter per option
    reports: tuple[Path, ...],
    db: Path,
    run: int | str | None,
    choices: Choices,
    sidecar: tuple[Path, ...],
    form: str | None,
    output: Path | None,
    force: bool,
) -> None:
    """Say how far the capture of REPORTS (or of a run of the store) can be trusted, from 0 to 100, and why.

    Each reason says what it costs, what was found, and what to do for the next capture. What does not apply to a kind of report is
    no reason.
    """
    outputs.check(output, reports, force=force)
    found = options.joined(reports, db, run, choices, OF_QUALITY, sidecar).quality
    form = outputs.form_of(form, output, FORMATS)
    text = _text(found, form, to_terminal=output is None)
    outputs.give(text, output, f"{found.score} of 100", force=force)


def _text(found: Quality, form: str, *, to_terminal: bool) -> str:
    from bridge.render import quality

    if form == "json":
        return quality.as_json(found)
    if form == "md":
        return quality.as_markdown(found)
    return quality.for_terminal(found, options.look(to_terminal=to_terminal))
