"""``bridge flame``: stacks of steps, modules, ops and kernels, for flame graphs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.cli import options, outputs
from bridge.cli.progress import doing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bridge.analyze.calltree import CallTree
    from bridge.join.choices import Choices

FORMATS = ("folded", "speedscope")
SUFFIX = ".speedscope.json"
READ = frozenset({"category"})  # what ranges say of themselves: whether they are modules


@click.command()
@options.source
@click.option(
    "--weight",
    type=click.Choice(("gpu", "cpu", "calls")),
    default="gpu",
    show_default=True,
    help="What a stack weighs: its own time in ns on the GPU, on the CPU, or its calls.",
)
@click.option(
    "--steps/--no-steps", default=True, show_default=True, help="Keep the steps of a run apart."
)
@options.choices
@outputs.formats(FORMATS)
@outputs.option
def flame(  # noqa: PLR0913, PLR0917 - a parameter per option
    reports: tuple[Path, ...],
    db: Path,
    run: int | str | None,
    weight: str,
    steps: bool,
    choices: Choices,
    form: str | None,
    output: Path | None,
    force: bool,
) -> None:
    """Write the stacks of REPORTS (or of a run of the store): step, modules, ops, kernel.

    Folded stacks are a line each, for flamegraph.pl and others; a file .speedscope.json is for
    speedscope.app, with all three weights in it.
    """
    outputs.check(output, reports, force=force)
    joined = options.joined(reports, db, run, choices, READ)
    from bridge.analyze.calltree import calltree
    from bridge.analyze.metrics import no_timeline

    no_timeline.refuse(joined.report, f"{weight.upper()} time", fits=weight in no_timeline.WEIGHTS)
    with doing("stacking"):
        tree = calltree(joined.attributed, steps=steps)
    form = form or ("speedscope" if output and output.name.endswith(SUFFIX) else "folded")
    pieces = _pieces(tree, joined.report.source, weight, form)
    if output is None:
        for piece in pieces:
            click.echo(piece, nl=False)
        return
    with doing(f"writing {output}"):
        _write(output, pieces, force=force)
    if not output.stat().st_size:
        click.echo(f"{output}: empty, for no stack has any {weight} time or calls", err=True)
        return
    where = "https://www.speedscope.app" if form == "speedscope" else "flamegraph.pl or speedscope"
    click.echo(f"{output}: open it with {where}", err=True)


def _pieces(tree: CallTree, source: tuple[str, ...], weight: str, form: str) -> Iterator[str]:
    from bridge.render.flame import folded, speedscope

    return speedscope(tree, source, weight) if form == "speedscope" else folded(tree, weight)


def _write(output: Path, pieces: Iterator[str], *, force: bool) -> None:
    from bridge.output import whole

    with (
        whole(output, force=force) as draft,
        draft.open("w", encoding="utf-8", errors="replace") as file,
    ):
        file.writelines(pieces)
