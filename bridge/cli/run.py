"""``bridge run``: a program under Nsight Systems or Nsight Compute, and its report imported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from bridge.cli import options

if TYPE_CHECKING:
    from bridge.capture.plan import Ended

TOOLS = ("nsys", "ncu")
PRESETS = ("latency", "memory", "full")
CAPTURES = ("nvtx", "cudaProfilerApi")
REPLAYS = ("kernel", "application", "range")


class Program(click.Command):
    """A command whose options end where the program begins; it sees whether ``--`` stands before that."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options, and leave all that follows to the program."""
        given = list(args)
        left = super().parse_args(ctx, args)
        words = ctx.params.get("words") or ()
        own = given[: len(given) - len(words)]
        ctx.params["plain"] = own[-1:] == ["--"]
        return left


def _schedule(_: click.Context, __: click.Parameter, text: str | None) -> dict[str, int]:
    """Read the steps."""
    from bridge.capture.request import parse

    try:
        return parse(text) if text is not None else {}
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command(cls=Program, context_settings={"allow_interspersed_args": False})
@click.option("--tool", type=click.Choice(TOOLS), default="nsys", show_default=True, help="Which.")
@click.option(
    "--preset",
    type=click.Choice(PRESETS),
    help="latency: CUDA and NVTX alone; memory: use of GPU memory too; full: also the OS, cuDNN,"
    " cuBLAS, CPU samples, call stacks. [default: latency]",
)
@click.option("-o", "--output", type=options.FILE, help="The report. [default: report1, report2 …]")
@click.option("--force", is_flag=True, help="Replace a report that exists.")
@click.option(
    "--schedule",
    metavar="wait=1,warmup=1,active=3,repeat=2",
    callback=_schedule,
    help="Capture these steps of a program that calls bridge.profile().",
)
@click.option(
    "--capture",
    type=click.Choice(CAPTURES),
    help="Capture only what the program says, by this sign. [with --schedule: nvtx]",
)
@click.option("--kill", is_flag=True, help="End the program with its last captured step.")
@click.option(
    "--graphs",
    type=click.Choice(("node", "graph")),
    help="Trace CUDA graphs by node (costs time), or whole. [default: node, where known]",
)
@click.option("--memory", is_flag=True, help="Record the use of GPU memory.")
@click.option("--backtrace", is_flag=True, help="Record the call stacks of CUDA calls.")
@click.option(
    "--op", "ops", multiple=True, metavar="NAME[@DOMAIN]", help="ncu: only kernels in this range."
)
@click.option("--replay", type=click.Choice(REPLAYS), help="ncu: how kernels are run again.")
@click.option("--set", "section_set", metavar="SET", help="ncu: the sections to measure.")
@click.option("--metrics", metavar="A,B", help="ncu: the metrics to measure.")
@click.option("--no-clock-control", is_flag=True, help="ncu: leave the GPU's clocks alone.")
@click.option("--auto", is_flag=True, help="Annotate the program: python -m bridge.autorun.")
@click.option("--print", "shown", is_flag=True, help="Print the command, and do not run it.")
@click.option("--no-import", is_flag=True, help="Do not import the report.")
@options.store
@click.option("-m", "module", is_flag=True, help="PROGRAM is a module.")
@click.argument(
    "words", metavar="PROGRAM [ARGS]...", nargs=-1, required=True, type=click.UNPROCESSED
)
@click.pass_context
def run(
    ctx: click.Context, /, *, tool: str, shown: bool, no_import: bool, db: Path, **given: Any
) -> None:
    """Profile PROGRAM, a script of Python; with -m a module; after -- any command.

    The exit status is the program's own. The report is imported and its breakdown printed; one of ncu
    is kept.
    """
    from bridge.capture.plan import plan
    from bridge.capture.request import Request
    from bridge.capture.tool import CaptureError, MisuseError

    how = {name: given.pop(name) for name in ("words", "output", "module", "plain", "auto")}
    try:
        planned = plan(tool, how.pop("words"), Request(**given), **how)
        for note in planned.options.notes:
            click.echo(f"note: {note}", err=True)
        click.echo(planned.shown(), err=not shown)
        if shown:
            return
        ended = planned.run()
    except MisuseError as error:
        raise click.UsageError(str(error), ctx) from error
    except CaptureError as error:
        _fail(ctx, error, error.status)
    if said := ended.said():
        click.echo(said, err=True)
    if not planned.importable:
        click.echo(f"{ended.reports[0]}: kept; reports of ncu are not imported yet", err=True)
    elif not no_import:
        _import(ctx, ended, db)
    ctx.exit(ended.status)


def _import(ctx: click.Context, ended: Ended, db: Path) -> None:
    """Import the reports as one run; should that fail, the program's own failure counts for more."""
    from bridge.cli.import_ import import_
    from bridge.output import OutputError
    from importers.errors import ReportError

    try:
        ctx.invoke(import_, reports=tuple(ended.reports), db=db)
    except (ReportError, OutputError) as error:
        _fail(ctx, error, ended.status or 1)


def _fail(ctx: click.Context, error: Exception, status: int) -> NoReturn:
    """Say why in one line, and leave with the status."""
    click.echo(f"Error: {error}", err=True)
    ctx.exit(status)
