"""``bridge hang``: tells from dumps of PyTorch's flight recorder which rank a hung program waits for."""

from __future__ import annotations

from pathlib import Path

import click

from bridge.cli.help import Command, option, output_option
from bridge.cli.options import FILE, doing, load, warn

DETAILS = frozenset(["system_calls"])


@click.command(
    cls=Command,
    examples=(
        "bridge hang nccl_trace_rank_*",
        "bridge hang nccl_trace_rank_* --report rank0.sqlite --report rank1.sqlite",
    ),
)
@click.argument("dumps", nargs=-1, required=True, type=FILE)
@option(
    "--report",
    "reports",
    type=FILE,
    multiple=True,
    help="A report of the same run: says where the missing ranks are at its end. May be repeated.",
)
@output_option(
    "--format",
    "form",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="json: the same facts as one object.",
)
def hang(dumps: tuple[Path, ...], reports: tuple[Path, ...], form: str) -> None:
    """Tell which rank a hung distributed program waits for, from DUMPS of PyTorch's flight recorder.

    A dump is of one rank, whose number ends the name of the file. Exits with 1 if a collective hangs.
    """
    from bridge.analyze.checks.hang import hangs, in_reports
    from bridge.importers import flight_record
    from bridge.importers.errors import NotAReport
    from bridge.render import hang as render
    from bridge.source import ReportInput

    with doing("reading dumps"):
        records = [flight_record.read(path) for path in dumps]
    ranks = [record.rank for record in records]
    if len({*ranks}) < len(ranks):
        twice = next(rank for rank in ranks if ranks.count(rank) > 1)
        raise NotAReport(f"two dumps are of rank {twice}: give those of one program")
    found = hangs(records)
    if reports:
        source = ReportInput(reports=reports, db=Path())
        found = in_reports(found, load(source, DETAILS).attributed)
        there = {one.rank for hang in found for one in hang.recorded}
        absent = {one.rank for hang in found for one in hang.culprits} - there
        warn(
            f"no report says that it is of rank {rank}: write rank{rank} into its name"
            for rank in sorted(absent)
        )
    if form == "json":
        click.echo(render.as_json([record.source for record in records], found), nl=False)
    else:
        click.echo(render.for_terminal(found), nl=False)
    if found:
        raise click.exceptions.Exit(1)
