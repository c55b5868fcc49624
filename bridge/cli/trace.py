"""``bridge trace``: one timeline of ops, API calls and device work."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bridge.cli import ncu_option, options, outputs, time_options
from bridge.cli.progress import doing

if TYPE_CHECKING:
    from bridge.analyze.time_range import Windows
    from bridge.analyze.timeline import Selection
    from bridge.join.choices import Choices
    from bridge.report import Joined

RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
MOST_RANKS = 1_000_000
DRAWN = frozenset(
    "category grid_x grid_y grid_z block_x block_y block_z registers shared_static shared_dynamic"
    " source_kind target_kind graph json memory metrics overhead".split()
)


def _ranks(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[int, ...]:
    """Read ranks and ranges of ranks, with commas between them; none where nothing is asked for."""
    found: set[int] = set()
    for part in [] if text is None else map(str.strip, text.split(",")):
        read = RANGE.fullmatch(part)
        first, last = (int(read[1]), int(read[2] or read[1])) if read else (1, 0)
        if not 0 <= last - first < MOST_RANKS:
            raise click.BadParameter(f"{part!r}: ranks are written as 0,3-5")
        found.update(range(first, last + 1))
    return tuple(sorted(found))


@click.command()
@options.source
@time_options.window
@options.rank_from
@click.option(
    "--ranks",
    metavar="RANKS",
    callback=_ranks,
    help="Only these ranks, as 0,3-5; bridge ranks lists them.",
)
@click.option("--slim", is_flag=True, help="Steps, ops and device work alone, with op and reason.")
@click.option(
    "--max-events", "most", type=click.IntRange(min=1), help="Only so many slices, the longest."
)
@click.option(
    "--dialect",
    type=click.Choice(("native", "torch", "raf", "mxnet", "megengine")),
    default="native",
    show_default=True,
    help="As that tool's own profiler writes it; torch -o FOLDER (one that is there) for TensorBoard.",
)
@ncu_option.ncu
@options.choices
@options.sidecar
@outputs.option
def trace(  # noqa: PLR0913, PLR0917 - a parameter per option
    reports: tuple[Path, ...],
    db: Path,
    run: int | str | None,
    choices: Choices,
    sidecar: tuple[Path, ...],
    output: Path | None,
    force: bool,
    slim: bool,
    most: int | None,
    dialect: str,
    ncu: tuple[Path, ...],
    rank_from: str | None,
    ranks: tuple[int, ...],
    **window: Any,
) -> None:
    """Write one timeline of REPORTS (or of a run of the store): ops, API calls, kernels, arrows.

    Several reports, of a rank each say, are drawn on one clock.
    The file is a Perfetto trace if its name ends in .pftrace, Chrome trace JSON if in .json, compressed
    if in .json.gz; all open at ui.perfetto.dev.
    """
    if output is None:
        raise click.UsageError("name the output: -o trace.json.gz")
    if not _for_tensorboard(output, dialect):
        _check(output, dialect)
        outputs.check(output, reports, force=force)
    choices = replace(choices, rank_from=rank_from)
    joined = options.joined(reports, db, run, choices, DRAWN, sidecar)
    joined = ncu_option.with_ncu(joined, ncu, choices)
    if ranks:
        options.warn(joined.ranks.warnings)
    selection = replace(_selection(joined, slim, most, **window), ranks=ranks)
    try:
        with doing(f"writing {output}"):
            said = _write(joined, output, dialect, selection, force=force)
    except ValueError as error:  # a window without anything, a rank that is not there
        raise click.UsageError(str(error)) from error
    click.echo(f"{output}: {said}", err=True)


def _write(joined: Joined, output: Path, dialect: str, selection: Selection, *, force: bool) -> str:
    """Write the trace; return what to say of it."""
    if _for_tensorboard(output, dialect):
        files = joined.export_tensorboard(output, selection=selection, force=force)
        return f"{len(files)} traces; open them with tensorboard --logdir {output}"
    drawn = joined.export_trace(output, dialect=dialect, selection=selection, force=force)
    less = f"{drawn.left_out} shorter slices left out; " if drawn.left_out else ""
    return f"{less}open it at https://ui.perfetto.dev"


def _for_tensorboard(output: Path, dialect: str) -> bool:
    return dialect == "torch" and output.is_dir()


def _check(output: Path, dialect: str) -> None:
    from bridge.render import traces

    try:
        traces.check(output.name, dialect)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _selection(joined: Joined, slim: bool, most: int | None, **window: Any) -> Selection:
    from bridge.analyze.timeline import Selection

    try:
        return Selection(tuple(_windows(joined, **window)), slim, most)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _windows(
    joined: Joined,
    first: int | None,
    last: int | None,
    steps: tuple[int, int] | None,
    name: str | None,
) -> list[Windows]:
    from bridge.analyze import time_range
    from bridge.analyze.concurrency.clocks import Clocks

    found = []
    if first is not None or last is not None:
        offset = Clocks.of(joined.attributed).offset
        found.append(time_range.between(joined.attributed, first, last, offset))
    if steps:
        found.append(time_range.of_steps(joined.attributed, *steps))
    if name is not None:
        found.append(time_range.of_ranges(joined.attributed, name))
    return found
