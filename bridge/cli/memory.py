"""``bridge memory``: what ops allocated, what was alive when, and what was never released."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bridge.cli import options, outputs, selection_options
from bridge.cli.help import Command, option, table_option
from bridge.cli.outputs import Output

if TYPE_CHECKING:
    from bridge.analyze.core.table import Table
    from bridge.analyze.cost.memory import MemoryUsage
    from bridge.analyze.cost.memory.samples import Samples
    from bridge.importers.remote import Location
    from bridge.join.attributed import AttributedCapture
    from bridge.report import Report
    from bridge.source import ReportInput, TimeRange


# -- Reports without allocations: samples that the program took of its memory


SAMPLE_TABLES = ("op", "trace", "summary")


def print_samples(samples: Samples, by: str, top: int | None, output: Output) -> None:
    """Print or write a table of samples. Raises ClickException for a table that needs allocations."""
    from bridge.analyze.cost.memory import samples as sampled
    from bridge.cli.table_output import ListedTable
    from bridge.render import summaries

    tables = {
        "op": sampled.samples_by_op,
        "trace": sampled.by_sample,
        "summary": sampled.sample_peaks,
    }
    if by not in tables:
        raise click.ClickException(
            f"--by {by}: the report has samples of memory and no allocations; --by {', '.join(SAMPLE_TABLES)}"
        )
    table = tables[by](samples)
    listed = ListedTable(
        f"memory sampled {by}",
        table.head(top) if top else table,
        _fields(f"sampled {by}", samples.attributed),
        above=summaries.sampled_lines(sampled.sample_peaks(samples)),
    )
    text = listed.text(output.format, top=top, to_terminal=output.to_terminal)
    output.write(text, f"{len(table)} rows")


def _fields(by: str, attributed: AttributedCapture) -> dict[str, Any]:
    """Return the JSON fields that stand before the rows."""
    return {"format": "bridge.memory/1", "by": by, "source": list(attributed.capture.source)}


# -- The command


TABLES = ("op", "allocation", "alive", "category", "scope", "step", "trace", "summary")
FORMATS = ("table", "json", "csv", "md")
READ = frozenset({"memory"})
drawing_option = partial(option, section="Drawings")
NOTHING = (
    "no allocations in the report: record it with nsys profile --cuda-memory-usage=true,"
    " torch.profiler.profile(profile_memory=True) or torch.cuda.memory._record_memory_history(); or sample it:"
    " bridge.profile(sample_rate=1)"
)


@click.command(
    cls=Command,
    first=("Table", "Drawings"),
    examples=(
        "bridge memory report.sqlite",
        "bridge memory snapshot.pickle --by alive",
        "bridge memory snapshot.pickle --flow memory.svg",
    ),
)
@options.report_input
@table_option(
    "--by",
    type=click.Choice(TABLES),
    default="op",
    show_default=True,
    help="What a row is: an op, an allocation, an op's part of what was alive at the peak, a category of tensors,"
    " a path of ops with what was alive under it at the peak, a step, an allocation or release, or a process, device"
    " and kind of memory.",
)
@selection_options.top
@table_option(
    "--later",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    metavar="STEPS",
    help="step: count what was still alive so many steps later.",
)
@drawing_option(
    "--flow", type=options.FILE, help="Draw all allocations, time by address, into this SVG file."
)
@drawing_option(
    "--timeline",
    type=options.FILE,
    help="Draw what was used over time by category into this SVG file, or write it as PyTorch's"
    " export_memory_timeline does if its name ends in .json.",
)
@drawing_option(
    "--color",
    type=click.Choice(("op", "lifetime")),
    default="op",
    show_default=True,
    help="flow: what the colour of an allocation tells.",
)
@selection_options.time_range
@outputs.output(FORMATS)
def memory(
    source: ReportInput,
    by: str,
    top: int | None,
    later: int,
    flow: Path | None,
    timeline: Path | None,
    color: str,
    output: Output,
    time_range: TimeRange,
) -> None:
    """Print what the ops of REPORTS (or of a run of the store) allocated and released.

    Sizes are those that the program requested, in KiB, MiB, GiB of 2^10, 2^20, 2^30 bytes. 'rise in
    a call' is the largest growth of memory within a call of the op. An output .svg is the drawing
    of --flow, or with --by category (or "timeline" in its name) that of --timeline.
    """
    path = output.path
    if path and path.suffix == ".svg" and not (output.given_format or flow or timeline):
        by, flow, timeline = _drawing(path, by)
        output = replace(output, path=None)
    _check_used(by, drawn=flow is not None)
    paths = [path for path in (output.path, flow, timeline) if path]
    _check_outputs(paths, source.reports, force=output.force)
    report = options.load(source, READ)
    samples = _samples(report, time_range, drawn=bool(flow or timeline))
    if samples is not None:
        print_samples(samples, by, top, output)
        return
    usage = _usage(report, time_range, drawn=bool(flow or timeline))
    if flow:
        _draw(usage, flow, color, force=output.force)
    if timeline:
        _draw_timeline(usage, timeline, force=output.force)
    table = _table(usage, by, later)
    _print(usage, by, table=table, top=top, output=output)


def _check_outputs(paths: list[Path], reports: tuple[Location, ...], *, force: bool) -> None:
    if len({path.absolute() for path in paths}) < len(paths):
        raise click.UsageError(f"{paths[0].name}: given twice; name a file for each output")
    for path in paths:
        outputs.check(path, reports, force=force)


def _check_used(by: str, *, drawn: bool) -> None:
    """Refuse options without effect."""
    source_of = click.get_current_context().get_parameter_source
    default = click.core.ParameterSource.DEFAULT
    if by != "step" and source_of("later") != default:
        raise click.UsageError("--later goes with --by step")
    if not drawn and source_of("color") != default:
        raise click.UsageError("--color goes with --flow")


def _samples(report: Report, time_range: TimeRange, *, drawn: bool) -> Samples | None:
    """Return the samples of a report without allocations, None if it has allocations."""
    from bridge.analyze.cost.memory.samples import Samples

    if len(report.capture.memory):
        return None
    samples = Samples.of(report.attributed)
    if not len(samples):
        raise click.ClickException(NOTHING)
    if drawn or time_range.options:
        raise click.ClickException(
            "the report has samples of memory and no allocations: no drawing of these, and no part of the time"
        )
    return samples


def _drawing(output: Path, by: str) -> tuple[str, Path | None, Path | None]:
    """Return the table to print beside a drawing, and the file of each of the two drawings."""
    if by == "category" or "timeline" in output.stem:
        return "category", None, output
    return "summary", output, None


def _print(usage: MemoryUsage, by: str, table: Table, top: int | None, output: Output) -> None:
    from bridge.analyze.cost.memory import summary
    from bridge.cli.table_output import ListedTable
    from bridge.render import summaries

    rows = table.head(top) if top else table
    is_all_of_it = by == "summary" and output.format == "table" and not output.to_terminal
    above = "" if is_all_of_it else summaries.memory_lines(summary(usage))
    listed = ListedTable(f"memory {by}", rows, _fields(by, usage.attributed), above=above)
    if not len(rows) and output.format in ("table", "md"):
        text = f"{above}\nNo rows: --by {by} has nothing to list here.\n"
    else:
        text = listed.text(output.format, top=top, to_terminal=output.to_terminal)
    output.write(text, f"{len(rows)} rows")


def _usage(report: Report, time_range: TimeRange, *, drawn: bool) -> MemoryUsage:
    from bridge.analyze.cost.memory import MemoryUsage

    try:
        usage = MemoryUsage.of(time_range.of(report).attributed)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if drawn and not usage.counted.any():
        raise click.ClickException(
            "no allocation or release in the time looked at: nothing to draw"
        )
    return usage


def _table(usage: MemoryUsage, by: str, later: int) -> Table:
    from bridge.analyze.cost import memory as of

    if by == "step":
        return of.by_step(usage, later)
    tables = {
        "op": of.by_op,
        "allocation": of.by_allocation,
        "alive": of.alive_at_peak,
        "category": of.by_category,
        "scope": of.by_scope,
        "trace": of.by_event,
        "summary": of.summary,
    }
    return tables[by](usage)


def _draw(usage: MemoryUsage, path: Path, color: str, *, force: bool) -> None:
    from bridge.analyze.cost.memory.flow import flow
    from bridge.output import write
    from bridge.render.memory_plots import flow_svg

    drawn = flow(usage)
    write(path, flow_svg(drawn, color), force=force)
    click.echo(f"{path}: {drawn.description}", err=True)


def _draw_timeline(usage: MemoryUsage, path: Path, *, force: bool) -> None:
    from bridge.analyze.cost.memory.flow import stacked_areas
    from bridge.output import write
    from bridge.render.memory_plots import as_torch, stacked_svg

    as_json = path.suffix == ".json"
    drawn = stacked_areas(usage, thin=not as_json)
    write(path, as_torch(drawn) if as_json else stacked_svg(drawn), force=force)
    first = drawn.panels[0].title
    left = len(drawn.panels) - 1 + drawn.left
    more = f"{first}; {left} more left out" if left else first
    click.echo(f"{path}: {more if as_json else 'used by category'}", err=True)
