"""``bridge flame``: stacks of steps, modules, ops and kernels, for flame graphs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.cli import options, outputs
from bridge.cli.help import Command, attribution_option, option
from bridge.cli.options import doing
from bridge.cli.outputs import Output

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bridge.analyze.core.calltree import CallTree, Stacked
    from bridge.report import Report
    from bridge.source import ReportInput

FORMATS = ("folded", "speedscope", "svg", "pprof")
SUFFIXES = {  # the first of a format is what a refusal names
    ".folded": "folded",
    ".txt": "folded",
    ".collapsed": "folded",
    ".speedscope.json": "speedscope",
    ".svg": "svg",
    ".pb.gz": "pprof",
}
OPENED_WITH = {
    "folded": "flamegraph.pl or speedscope",
    "speedscope": "https://www.speedscope.app",
    "svg": "a browser",
    "pprof": "go tool pprof",
}
WITH_ALL_WEIGHTS = ("speedscope", "pprof")
BINARY = "pprof"  # the format that is compressed, and not for standard output
READ = frozenset({"category"})  # tells which ranges are modules


@click.command(
    cls=Command,
    examples=(
        "bridge flame report.sqlite -o report.speedscope.json",
        "bridge flame report.sqlite --no-steps -o flame.svg",
        "bridge flame report.sqlite --no-steps | inferno-flamegraph > flame.svg",
        "bridge flame report.sqlite -o profile.pb.gz",
    ),
)
@options.report_input
@option(
    "--weight",
    type=click.Choice(("gpu", "cpu", "calls")),
    help="What a stack weighs: its own time in ns on the GPU, on the CPU, or its calls."
    " [default: gpu, or cpu where nothing ran on a GPU]",
)
@attribution_option(
    "--steps/--no-steps", default=True, show_default=True, help="Keep the steps of a run apart."
)
@outputs.output(FORMATS)
def flame(
    source: ReportInput,
    weight: str | None,
    steps: bool,
    output: Output,
) -> None:
    """Write the stacks of REPORTS (or of a run of the store): step, modules, ops, kernel.

    Folded stacks (.folded) have one line each, for flamegraph.pl and similar tools; a file
    .speedscope.json is for speedscope.app, .pb.gz for pprof, and both have all three weights;
    .svg is a picture.
    """
    output.check(source.reports)
    form = _format(output)
    report = options.load(source, READ)
    from bridge.analyze.core import no_timeline
    from bridge.analyze.core.calltree import stacked

    weight = weight or ("gpu" if len(report.capture.activities) else "cpu")
    no_timeline.refuse(report.capture, f"{weight.upper()} time", fits=weight in no_timeline.WEIGHTS)
    with doing("stacking"):
        stacks = stacked(report.attributed, steps=steps)
    _check_weight(stacks.tree, report, weight, has_all=form in WITH_ALL_WEIGHTS)
    path = output.path
    if path is None:
        for piece in _texts(stacks.tree, report.capture.source, weight, form):
            click.echo(piece, nl=False)
        return
    with doing(f"writing {path}"):
        pieces = _pieces(stacks, report, weight, form)
        _write(path, pieces, gzip=form == BINARY, force=output.force)
    click.echo(f"{path}: open it with {OPENED_WITH[form]}", err=True)


def _check_weight(tree: CallTree, report: Report, weight: str, *, has_all: bool) -> None:
    """Raise ReportError for a file without a stack; ``has_all`` is whether it holds the other weights too."""
    from bridge.analyze.core.calltree import WEIGHTS
    from bridge.importers.errors import ReportError
    from bridge.render.flame import PROFILES

    others = [f"--weight {other}" for other in WEIGHTS if tree.weight(other).any()]
    if tree.weight(weight).any() or (has_all and others):
        return
    hint = f"; it has {' and '.join(others)}" if others else ""
    source = ", ".join(report.capture.source)
    raise ReportError(
        f"{source}: nothing to stack, no {PROFILES[weight][0]} of an op or of the GPU{hint}"
    )


def _format(output: Output) -> str:
    """Return the format asked for, else that of the file's suffix; refuse other suffixes."""
    if output.given_format == BINARY and output.path is None:
        raise click.UsageError("a profile for pprof is binary: name the output, -o profile.pb.gz")
    if output.given_format or output.path is None:
        return output.given_format or FORMATS[0]
    name = output.path.name
    form = next((form for suffix, form in SUFFIXES.items() if name.endswith(suffix)), "")
    if not form:
        known = ", ".join(SUFFIXES)
        raise click.UsageError(f"{name}: stacks are written as {known}, or name the --format")
    return form


def _pieces(stacks: Stacked, report: Report, weight: str, form: str) -> Iterator[bytes]:
    """Return the contents of a file, before it is compressed."""
    source = report.capture.source
    if form != BINARY:
        return (text.encode(errors="replace") for text in _texts(stacks.tree, source, weight, form))
    from bridge.analyze.core.samples import samples
    from bridge.render.pprof import pprof

    return pprof(samples(report.attributed, stacks), source, weight)


def _texts(tree: CallTree, source: tuple[str, ...], weight: str, form: str) -> Iterator[str]:
    from bridge.render.flame import folded, speedscope, svg

    if form == "folded":
        return folded(tree, weight)
    return {"speedscope": speedscope, "svg": svg}[form](tree, source, weight)


def _write(output: Path, pieces: Iterator[bytes], *, gzip: bool, force: bool) -> None:
    from bridge.output import compressed, whole

    with whole(output, force=force) as draft, compressed(draft, gzip) as file:
        file.writelines(pieces)
