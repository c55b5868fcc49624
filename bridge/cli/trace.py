"""``bridge trace``: one timeline of ops, API calls and device work."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.cli import options, outputs, selection_options
from bridge.cli.help import Command, option
from bridge.cli.options import doing
from bridge.cli.outputs import Output

if TYPE_CHECKING:
    from bridge.analyze.core.time_range import Windows
    from bridge.analyze.draw.timeline import Selection
    from bridge.report import Report
    from bridge.source import ReportInput, TimeRange

RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
MOST_RANKS = 1_000_000
DRAWN = frozenset(
    "category grid_x grid_y grid_z block_x block_y block_z registers shared_static shared_dynamic"
    " source_kind target_kind graph json memory metrics overhead system_calls nccl_calls"
    " gpu_metrics call_chains chain".split()
)
OF_CRITICAL_PATH = frozenset(["waits", "system_calls"])


def _ranks(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[int, ...]:
    """Read ranks and ranges of ranks, separated by commas."""
    result: set[int] = set()
    for part in [] if text is None else map(str.strip, text.split(",")):
        read = RANGE.fullmatch(part)
        first, last = (int(read[1]), int(read[2] or read[1])) if read else (1, 0)
        if not 0 <= last - first < MOST_RANKS:
            raise click.BadParameter(f"{part!r}: ranks are written as 0,3-5")
        result.update(range(first, last + 1))
    return tuple(sorted(result))


@click.command(
    cls=Command,
    examples=(
        "bridge trace report.sqlite -o trace.json.gz",
        "bridge trace report.sqlite --step 1 -o step.pftrace",
        "bridge trace rank0.sqlite rank1.sqlite -o ranks.json.gz",
    ),
)
@options.report_input
@selection_options.time_range
@options.rank_from_option
@option(
    "--ranks",
    metavar="RANKS",
    callback=_ranks,
    help="Only these ranks, as 0,3-5; bridge report --by rank lists them.",
)
@option("--slim", is_flag=True, help="Steps, ops and device work alone, with op and reason.")
@option(
    "--critical-path", is_flag=True, help="Draw the critical path of the run on a track of its own."
)
@option(
    "--max-events", "most", type=click.IntRange(min=1), help="Only so many slices, the longest."
)
@option(
    "--dialect",
    type=click.Choice(("native", "torch", "raf", "mxnet", "megengine")),
    default="native",
    show_default=True,
    help="As that tool's own profiler writes it; torch -o FOLDER (one that is there) for TensorBoard.",
)
@options.only_option
@options.ncu_option
@outputs.output()
def trace(
    source: ReportInput,
    output: Output,
    slim: bool,
    critical_path: bool,
    most: int | None,
    dialect: str,
    ncu: tuple[Path, ...],
    rank_from: str | None,
    ranks: tuple[int, ...],
    only: str | None,
    time_range: TimeRange,
) -> None:
    """Write one timeline of REPORTS (or of a run of the store): ops, API calls, kernels, arrows.

    Several reports, such as one per rank, are drawn on one clock. A file .pftrace is a Perfetto
    trace, .json is Chrome trace JSON, .json.gz the same compressed; all open at ui.perfetto.dev.
    """
    path = output.path
    if path is None:
        raise click.UsageError("name the output: -o trace.json.gz")
    if critical_path and dialect != "native":
        raise click.UsageError("--critical-path goes with --dialect native")
    if not _for_tensorboard(path, dialect):
        _check(path, dialect)
        output.check(source.reports)
    details = DRAWN | (OF_CRITICAL_PATH if critical_path else frozenset())
    source = replace(source.attributed_by(rank_from=rank_from), only=only, ncu=ncu)
    report = options.load(source, details)
    if ranks or _for_tensorboard(path, dialect):
        options.warn(report.ranks.warnings)
    selection = replace(
        _selection(report, slim, most, time_range), ranks=ranks, critical_path=critical_path
    )
    try:
        with doing(f"writing {path}"):
            text = _write(report, path, dialect, selection, force=output.force)
    except ValueError as error:  # an empty part of the time, an unknown rank
        raise click.UsageError(str(error)) from error
    click.echo(f"{path}: {text}", err=True)


def _write(report: Report, output: Path, dialect: str, selection: Selection, *, force: bool) -> str:
    """Write the trace; return the message."""
    if _for_tensorboard(output, dialect):
        files = report.export_tensorboard(output, selection=selection, force=force)
        return f"{len(files)} traces; open them with tensorboard --logdir {output}"
    drawn = report.export_trace(
        output,
        dialect=dialect,
        selection=selection,
        force=force,
        warn=lambda line: options.warn([line]),
    )
    less = f"{drawn.left_out} shorter slices left out; " if drawn.left_out else ""
    return f"{less}open it at https://ui.perfetto.dev"


def _for_tensorboard(output: Path, dialect: str) -> bool:
    return dialect == "torch" and output.is_dir()


def _check(output: Path, dialect: str) -> None:
    from bridge import exports

    try:
        exports.check_suffix(output.name, dialect)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _selection(report: Report, slim: bool, most: int | None, time_range: TimeRange) -> Selection:
    from bridge.analyze.draw.timeline import Selection

    try:
        return Selection(tuple(_windows(report, time_range)), slim, most)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _windows(report: Report, selected: TimeRange) -> list[Windows]:
    """Return the intervals to draw, in the clocks of the trace."""
    from bridge.analyze.core import time_range
    from bridge.analyze.run.concurrency.clocks import Clocks

    attributed, result = report.attributed, []
    if selected.first is not None or selected.last is not None:
        offset = Clocks.of(attributed).offset
        result.append(time_range.clock_window(attributed, selected.first, selected.last, offset))
    if selected.steps:
        result.append(time_range.step_windows(attributed, *selected.steps))
    if selected.name is not None:
        result.append(time_range.range_windows(attributed, selected.name))
    return result
