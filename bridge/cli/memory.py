"""``bridge memory``: what ops allocated, what was held when, and what was never released."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bridge.cli import memory_samples, options, outputs, time_options

if TYPE_CHECKING:
    import pandas as pd

    from bridge.analyze.memory import Held
    from bridge.analyze.memory.samples import Samples
    from bridge.join.choices import Choices
    from bridge.report import Joined

TABLES = ("op", "allocation", "alive", "category", "scope", "step", "trace", "summary")
FORMATS = ("table", "json", "csv", "md")
READ = frozenset({"memory"})
NOTHING = (
    "no allocations in the report: record it with nsys profile --cuda-memory-usage=true,"
    " torch.profiler.profile(profile_memory=True) or torch.cuda.memory._record_memory_history(); or sample it:"
    " bridge.profile(sample_rate=1)"
)


@click.command()
@options.source
@click.option(
    "--by",
    type=click.Choice(TABLES),
    default="op",
    show_default=True,
    help="What a row is: an op, an allocation, an op's part of what was alive at the peak, a category of tensors,"
    " a path of ops with what was alive under it at the peak, a step, an allocation or release, or a process, device"
    " and kind of memory.",
)
@click.option("--top", type=click.IntRange(min=1), help="Show only this many rows.")
@click.option(
    "--later",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    metavar="STEPS",
    help="step: count what was still alive so many steps later.",
)
@click.option(
    "--flow", type=options.FILE, help="Draw all allocations, time by address, into this SVG file."
)
@click.option(
    "--timeline",
    type=options.FILE,
    help="Draw what was used over time by category into this SVG file, or write it as PyTorch's"
    " export_memory_timeline does if its name ends in .json.",
)
@click.option(
    "--color",
    type=click.Choice(("op", "lifetime")),
    default="op",
    show_default=True,
    help="flow: what the colour of an allocation tells.",
)
@time_options.window
@options.choices
@outputs.formats(FORMATS)
@outputs.option
def memory(  # noqa: PLR0913, PLR0917 - what every command takes
    reports: tuple[Path, ...],
    db: Path,
    run: int | str | None,
    by: str,
    top: int | None,
    later: int,
    flow: Path | None,
    timeline: Path | None,
    color: str,
    choices: Choices,
    form: str | None,
    output: Path | None,
    force: bool,
    **window: Any,
) -> None:
    """Print what the ops of REPORTS (or of a run of the store) allocated and released.

    Sizes are of what the program asked for, in KiB, MiB, GiB of 2^10, 2^20, 2^30 bytes. 'rise in a call' is the most by which memory
    grew while a call of the op was open. An output .svg is the drawing of --flow, or with --by category (or "timeline"
    in its name) that of --timeline.
    """
    if output and output.suffix == ".svg" and not (form or flow or timeline):
        by, flow, timeline = _drawing(output, by)
        output = None
    _check_used(by, drawn=flow is not None)
    _check_outputs([path for path in (output, flow, timeline) if path], reports, force=force)
    form = outputs.form_of(form, output, FORMATS)
    joined = options.joined(reports, db, run, choices, READ)
    samples = _samples(joined, window, drawn=bool(flow or timeline))
    if samples is not None:
        memory_samples.show(samples, by, top, form, output, force=force)
        return
    held = _held(joined, window, drawn=bool(flow or timeline))
    if flow:
        _draw(held, flow, color, force=force)
    if timeline:
        _draw_timeline(held, timeline, force=force)
    table = _table(held, by, later)
    _print(held, by, table.head(top) if top else table, form, output, force=force)


def _check_outputs(paths: list[Path], reports: tuple[Path, ...], *, force: bool) -> None:
    if len({path.absolute() for path in paths}) < len(paths):
        raise click.UsageError(f"{paths[0].name}: given twice; name a file for each output")
    for path in paths:
        outputs.check(path, reports, force=force)


def _check_used(by: str, *, drawn: bool) -> None:
    """Refuse an option that nothing would come of."""
    asked = click.get_current_context().get_parameter_source
    default = click.core.ParameterSource.DEFAULT
    if by != "step" and asked("later") != default:
        raise click.UsageError("--later goes with --by step")
    if not drawn and asked("color") != default:
        raise click.UsageError("--color goes with --flow")


def _samples(joined: Joined, window: dict[str, Any], *, drawn: bool) -> Samples | None:
    """Return the samples of a report that has these alone; ClickException for what they do not tell."""
    from bridge.analyze.memory.samples import Samples

    if len(joined.report.memory):
        return None
    found = Samples.of(joined.attributed)
    if not len(found):
        raise click.ClickException(NOTHING)
    if drawn or any(value is not None for value in window.values()):
        raise click.ClickException(
            "the report has samples of memory and no allocations: no drawing of these, and no part of the time"
        )
    return found


def _drawing(output: Path, by: str) -> tuple[str, Path | None, Path | None]:
    """Return what is printed beside a drawing, and where which of the two drawings goes."""
    if by == "category" or "timeline" in output.stem:
        return "category", None, output
    return "summary", output, None


def _print(
    held: Held, by: str, table: pd.DataFrame, form: str, output: Path | None, *, force: bool
) -> None:
    text = _text(held, by, table, form, to_terminal=output is None)
    outputs.give(text, output, f"{len(table)} rows", force=force)


def _held(joined: Joined, window: dict[str, Any], *, drawn: bool) -> Held:
    from bridge.analyze.memory import Held

    try:
        held = Held.of(time_options.within(joined, **window).attributed)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if drawn and not held.counted.any():
        raise click.ClickException(
            "no allocation or release in the time looked at: nothing to draw"
        )
    return held


def _table(held: Held, by: str, later: int) -> pd.DataFrame:
    from bridge.analyze import memory as of

    if by == "step":
        return of.by_step(held, later)
    tables = {
        "op": of.by_op,
        "allocation": of.by_allocation,
        "alive": of.alive_at_peak,
        "category": of.by_category,
        "scope": of.by_scope,
        "trace": of.by_event,
        "summary": of.summary,
    }
    return tables[by](held)


def _text(held: Held, by: str, table: pd.DataFrame, form: str, *, to_terminal: bool) -> str:
    from bridge.analyze.memory import summary
    from bridge.cli.terminal import for_people
    from bridge.render import document, summaries
    from bridge.render import table as tables

    if form == "json":
        return document.with_rows(
            {"format": "bridge.memory/1", "by": by, "source": list(held.joined.report.source)},
            table,
        )
    if form == "csv":
        return document.as_csv(table)
    above = (
        ""
        if by == "summary" and form == "table" and not to_terminal
        else summaries.memory_lines(summary(held))
    )
    if not len(table):
        return f"{above}\nnothing by {by} in the time looked at\n"
    if form == "md":
        return f"{above}\n{tables.as_markdown(f'memory {by}', table)}"
    return f"{above}\n{for_people(f'memory {by}', table, '--top', to_terminal=to_terminal)}"


def _draw(held: Held, path: Path, color: str, *, force: bool) -> None:
    from bridge.analyze.memory.flow import flow
    from bridge.output import write
    from bridge.render.memory_plots import flow_svg

    drawn = flow(held)
    write(path, flow_svg(drawn, color), force=force)
    click.echo(f"{path}: {drawn.said}", err=True)


def _draw_timeline(held: Held, path: Path, *, force: bool) -> None:
    from bridge.analyze.memory.areas import stacked
    from bridge.output import write
    from bridge.render.memory_plots import as_torch, stacked_svg

    as_json = path.suffix == ".json"
    drawn = stacked(held, thin=not as_json)
    write(path, as_torch(drawn) if as_json else stacked_svg(drawn), force=force)
    first = drawn.panels[0].title
    left = len(drawn.panels) - 1 + drawn.left
    more = f"{first}; {left} more left out" if left else first
    click.echo(f"{path}: {more if as_json else 'used by category'}", err=True)
