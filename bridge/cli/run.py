"""``bridge run``: runs a program under Nsight Systems or Nsight Compute and imports the report."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bridge.cli import options
from bridge.cli.deep import KERNELS, Deep, SecondRun, say
from bridge.cli.help import Command, option, output_option

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bridge.capture.plan import LaunchResult, ModuleCost, Plan
    from bridge.capture.tool import Request

TOOLS = ("nsys", "ncu", "cupti")
PRESETS = ("latency", "memory", "full")
CAPTURES = ("nvtx", "cudaProfilerApi")
REPLAYS = ("kernel", "application", "range")
program_option = partial(option, section="Program")
recording_option = partial(option, section="Recording")
steps_option = partial(option, section="Steps")
ncu_option = partial(option, section="Nsight Compute")


class Program(Command):
    """A command whose options end where the program begins; it notices ``--`` before the program."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options, and leave the rest to the program."""
        given = list(args)
        left = super().parse_args(ctx, args)
        words = ctx.params.get("words") or ()
        own = given[: len(given) - len(words)]
        ctx.params["plain"] = own[-1:] == ["--"]
        return left


def _schedule(_: click.Context, __: click.Parameter, text: str | None) -> dict[str, int]:
    """Read the steps."""
    from bridge.capture.session.schedule import parse_schedule

    try:
        return parse_schedule(text) if text is not None else {}
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command(
    cls=Program,
    context_settings={"allow_interspersed_args": False},
    examples=(
        "bridge run train.py",
        "bridge run --auto -m package.train --epochs 1",
        "bridge run --auto torchrun --nproc-per-node 2 train.py",
        "bridge run --tool ncu --op attention train.py",
        "bridge run --tool cupti --live train.py",
        "bridge run --deep --budget 5m train.py",
    ),
)
@recording_option(
    "--tool",
    type=click.Choice(TOOLS),
    default="nsys",
    show_default=True,
    help="The profiler: Nsight Systems, Nsight Compute, or CUPTI inside the program, which needs neither.",
)
@recording_option(
    "--preset",
    type=click.Choice(PRESETS),
    help="latency: CUDA and NVTX alone; memory: use of GPU memory too; full: also the OS, cuDNN,"
    " cuBLAS, CPU samples, call stacks. [default: latency]",
)
@output_option(
    "-o", "--output", type=options.FILE, help="The report. [default: report1, report2 …]"
)
@output_option("--force", is_flag=True, help="Replace a report that exists.")
@steps_option(
    "--schedule",
    metavar="wait=1,warmup=1,active=3,repeat=2",
    callback=_schedule,
    help="Capture these steps of a program that calls bridge.profile().",
)
@steps_option(
    "--capture",
    type=click.Choice(CAPTURES),
    help="Capture only what the program says, by this sign. [with --schedule: nvtx]",
    rare=True,
)
@steps_option(
    "--kill", is_flag=True, help="End the program with its last captured step.", rare=True
)
@recording_option(
    "--graphs",
    type=click.Choice(("node", "graph")),
    help="Trace CUDA graphs by node (costs time), or whole. [default: node, where known]",
)
@recording_option("--memory", is_flag=True, help="Record the use of GPU memory.")
@recording_option(
    "--backtrace",
    is_flag=True,
    help="Record the call stacks of CUDA calls, and where ops are in the program, for --by source.",
)
@ncu_option(
    "--op", "ops", multiple=True, metavar="NAME[@DOMAIN]", help="ncu: only kernels in this range."
)
@ncu_option("--set", "section_set", metavar="SET", help="ncu: the sections to measure.")
@ncu_option("--metrics", metavar="A,B", help="ncu: the metrics to measure.")
@ncu_option(
    "--replay", type=click.Choice(REPLAYS), help="ncu: how kernels are run again.", rare=True
)
@ncu_option(
    "--no-clock-control", is_flag=True, help="ncu: leave the GPU's clocks alone.", rare=True
)
@ncu_option(
    "--deep",
    is_flag=True,
    help="Run the program once more, under ncu, to measure launches of the kernels that the first findings of nsys rest"
    " on; both reports are imported as one.",
)
@ncu_option(
    "--budget",
    metavar="TIME",
    help="With --deep: what the second run may take, as 90s, 5m or 1h; fewer launches are measured to fit."
    " [default: 10m]",
)
@ncu_option(
    "--kernels",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"With --deep: at most so many kernels of ops. [default: {KERNELS}]",
    rare=True,
)
@ncu_option(
    "--even-idle",
    is_flag=True,
    help="With --deep: measure kernels even if the GPU is idle most of the time.",
    rare=True,
)
@option("--live", is_flag=True, help="cupti: print the costliest ops every few seconds.")
@option(
    "--witness",
    is_flag=True,
    help="cupti: have CUPTI note the open range of each call, as a check.",
)
@program_option("-m", "module", is_flag=True, help="PROGRAM is a module.")
@program_option(
    "--auto",
    is_flag=True,
    help="Annotate the program and its child processes: PyTorch's modules, optimizer steps and data loading, on a GPU"
    " also ops; JAX; CuPy. The same as python -m bridge.autorun.",
)
@option(
    "--ops/--no-ops",
    "ops_of_torch",
    default=None,
    help="With --auto: ranges for PyTorch's ops. On a GPU PyTorch itself emits them, elsewhere a mode does, which"
    " changes some ops and takes time. [default: on a GPU]",
)
@option(
    "--shapes", is_flag=True, help="With --auto: --ops by a mode, and record the shapes of inputs."
)
@program_option("--print", "shown", is_flag=True, help="Print the command, and do not run it.")
@output_option("--no-import", is_flag=True, help="Do not import the report.")
@partial(options.store_option, section="Output")
@click.argument(
    "words", metavar="PROGRAM [ARGS]...", nargs=-1, required=True, type=click.UNPROCESSED
)
@click.pass_context
def run(
    ctx: click.Context, /, *, tool: str, shown: bool, no_import: bool, db: Path, **given: Any
) -> None:
    """Profile PROGRAM: a Python script, with -m a module, or any command.

    A command needs -- before it only if a script here has its name. The exit status is that of the
    program. The report is imported and its summary printed.
    """
    from bridge.capture.plan import plan
    from bridge.capture.tool import Request

    output, words = given.pop("output"), given.pop("words")
    keywords = {name: given.pop(name) for name in ("module", "plain")}
    with options.usage_errors(ctx):
        deep = Deep.of(tool, given["ops"], **{name: given.pop(name) for name in DEEP})
        keywords["auto"] = _annotations(**{name: given.pop(name) for name in AUTO})

        def plan_of(name: str, request: Request, report: Path | None) -> Plan:
            return plan(name, words, request, output=report, **keywords)

        planned, second = _plans(deep, tool, Request(**given), output=output, plan_of=plan_of)
        commands = [planned.shell_command(), *([second.shown] if second else [])]
        for line in commands if shown else commands[:1]:
            click.echo(line, err=not shown)
        if shown:
            return
        click.echo(f"bridge run {planned.annotations}", err=True)
        begun = time.monotonic()
        ended = planned.run()
    _tell(ended)
    joined = second.after(ended, time.monotonic() - begun) if second else None
    measured = joined.source.ncu if joined else ()
    if not no_import:
        measured = _import(ctx, planned, ended, db=db, measured=measured)
    if joined and measured:
        joined.show()
    ctx.exit(joined.status if joined and joined.status else ended.status)


def _plans(
    deep: Deep | None,
    tool: str,
    request: Request,
    *,
    output: Path | None,
    plan_of: Callable[[str, Request, Path | None], Plan],
) -> tuple[Plan, SecondRun | None]:
    """Return the plan of the run, and the second run that may follow; print what the tools lack."""
    from bridge.capture.deep import split
    from bridge.capture.plan import free_name

    second = None
    if deep:
        request, asked = split(request)
        output = output or free_name(".nsys-rep", ".ncu-rep")
    planned = plan_of(tool, request, output)
    for note in planned.options.notes:
        say(f"note: {note}")
    if deep:
        second = SecondRun.of(deep, asked, planned.report, partial(plan_of, "ncu"))
    return planned, second


def _tell(ended: LaunchResult) -> None:
    """Print how a run ended, and what it wrote beside the report."""
    if text := ended.failure():
        say(text)
    if ended.recordings:
        say(
            f"{ended.recordings}{os.sep}: details of calls and processes; keep it beside the report"
        )
    if text := _cost(ended.cost):
        say(text)


def _cost(cost: ModuleCost | None) -> str:
    """Return a line on what ranges of modules cost the program, "" where it was not measured."""
    from bridge.render import units

    if not cost or not cost.ranges:
        return ""
    many = f" in {cost.processes} processes" if cost.processes > 1 else ""
    each = f"{units.count(cost.ranges)} ranges x {units.time(cost.ns // cost.ranges)}"
    return f"annotations of modules took about {units.time(cost.ns)}{many}: {each}"


DEEP = ("deep", "budget", "kernels", "even_idle")
AUTO = ("auto", "ops_of_torch", "shapes")


def _annotations(*, auto: bool, ops_of_torch: bool | None, shapes: bool) -> list[str] | None:
    """Return the options of `bridge.autorun`, None without --auto; raises MisuseError for those that need it."""
    from bridge.capture.tool import MisuseError

    given = {"--ops": ops_of_torch, "--no-ops": ops_of_torch is False, "--shapes": shapes}
    flags = [flag for flag, is_given in given.items() if is_given]
    if flags and not auto:
        raise MisuseError(f"{flags[0]} goes with --auto")
    return flags if auto else None


UNRECORDED = "nothing was recorded: the program has no NVTX ranges and called no CUDA function"


def _import(
    ctx: click.Context,
    planned: Plan,
    ended: LaunchResult,
    *,
    db: Path,
    measured: tuple[Path, ...],
) -> tuple[Path, ...]:
    """Import the reports as one run; if that fails, the exit status of the program has priority.

    ``measured`` are reports of ncu of the same program; those that were imported are returned.
    """
    import logging

    from bridge.importers.errors import ReportError
    from bridge.knowledge.package import UserError

    try:
        _import_recorded(ctx, planned, ended.reports, db, measured=measured)
    except (ReportError, UserError) as error:
        logging.getLogger("bridge.cli").debug("the report is not imported", exc_info=True)
        if measured:
            say(f"the report of ncu is not joined: {error}")
            return _import(ctx, planned, ended, db=db, measured=())
        click.echo(f"Error: {error}", err=True)
        ctx.exit(ended.status or 1)
    return measured


def _import_recorded(
    ctx: click.Context,
    planned: Plan,
    reports: Sequence[Path],
    db: Path,
    measured: tuple[Path, ...] = (),
) -> None:
    """Import the reports that hold anything, and warn of the others: the program ran as it should.

    ``measured`` are reports of ncu of the same program.
    """
    from bridge.cli.import_ import import_
    from bridge.importers.errors import NothingRecorded

    try:
        ctx.invoke(import_, reports=tuple(reports), db=db, ncu=measured)
    except NothingRecorded as error:
        rest = [path for path in reports if path.name != error.source]
        if not planned.is_nsys or len(rest) == len(reports):
            raise
        options.warn([f"{error.source}: {UNRECORDED}"])
        if rest:
            _import_recorded(ctx, planned, rest, db)
        else:
            click.echo(f"note: {planned.unrecorded_remedy}", err=True)
