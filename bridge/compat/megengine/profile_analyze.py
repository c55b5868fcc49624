"""MegEngine's profile_analyze on any report: ``python -m bridge.compat.megengine.profile_analyze REPORT -t 10``."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import click

from bridge.compat.megengine import listing
from bridge.compat.megengine.operators import DEVICE, ENDS, HOST, HOW, Asked, operators
from bridge.report import Joined, load
from importers.errors import ReportError

NS = 1_000_000_000
PARTS = ("summary", "device", "host")


@click.command()
@click.argument("dump", type=click.Path(path_type=Path))
@click.option(
    "-t",
    "--top",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="How many operators.",
)
@click.option(
    "--type", "types", multiple=True, help="Only operators of this type. May be repeated."
)
@click.option(
    "--aggregate-by", type=click.Choice(["type"]), help="One row for all operators of a type."
)
@click.option(
    "--aggregate", "how", type=click.Choice(HOW), help="How they make one: needs --aggregate-by."
)
@click.option("--opr-name", "name", metavar="REGEX", help="Only operators whose name begins so.")
@click.option("--input-dtype", "dtype", help="Only operators with an input of this type.")
@click.option(
    "--top-end-key",
    "end",
    type=click.Choice(ENDS),
    default="end",
    show_default=True,
    help="end: time of the work; kern: how long it waited.",
)
@click.option(
    "--order-by",
    "order",
    default="time",
    show_default=True,
    metavar="[+]COLUMN",
    help="+ for smallest first.",
)
@click.option("--copy-time", is_flag=True, help="Say how long copies took.")
@click.option("--min-time", type=click.FloatRange(min=0), default=0.0, help="In seconds.")
@click.option("--max-time", type=click.FloatRange(min=0), help="In seconds.")
@click.option("--show-host", is_flag=True, help="The host's operators too.")
@click.option(
    "--dump-only-opr", is_flag=True, help="Operators alone, a line each, to compare with diff."
)
@click.option(
    "--confluence", "--wiki", "wiki", is_flag=True, help="Confluence's markup, with bars."
)
@click.option("--print-only", type=click.Choice(PARTS), help="Only this part.")
def main(dump: Path, **asked: Any) -> None:
    """List the operators of DUMP (a report that bridge reads) that take longest, as MegEngine's profile_analyze does."""
    try:
        click.echo(analyze(load(dump), **asked), nl=False)
    except ReportError as error:
        raise click.ClickException(str(error)) from error
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def analyze(  # noqa: PLR0913 - one parameter per option
    joined: Joined,
    *,
    top: int = 3,
    aggregate_by: str | None = None,
    how: str | None = None,
    min_time: float = 0.0,
    max_time: float | None = None,
    copy_time: bool = False,
    show_host: bool = False,
    dump_only_opr: bool = False,
    wiki: bool = False,
    print_only: str | None = None,
    **filters: Any,
) -> str:
    """Return what `main` prints; times in seconds. Raises ValueError, in a line for the user, for a wrong request."""
    if bool(aggregate_by) != bool(how):
        raise ValueError("--aggregate-by type and --aggregate go together")
    most = None if max_time is None else round(max_time * NS)
    asked = Asked(how=how, least_ns=round(min_time * NS), most_ns=most, **filters)
    sides = (DEVICE, HOST) if show_host or print_only == HOST else (DEVICE,)
    found = {side: operators(joined, side, asked).head(top) for side in sides}
    if dump_only_opr:
        return "".join(listing.plain(table) for table in found.values())
    parts = {"summary": _summary(joined, copy_time=copy_time)}
    for side, table in found.items():
        parts[side] = (
            listing.wiki(table, side)
            if wiki
            else listing.table(table, side, shutil.get_terminal_size().columns)
        )
    return "\n".join(text for part, text in parts.items() if print_only in (None, part))


def _summary(joined: Joined, *, copy_time: bool) -> str:
    """Sum up all operators, whatever is listed of them."""
    ops, gpus = joined.by("op", columns="gpu_self,cpu_self"), joined.by("device")
    lines = [
        f"total device time: {listing.seconds(ops['gpu_self_ns'].sum())}",
        f"total host time: {listing.seconds(ops['cpu_self_ns'].sum())}",
        f"device busy: {listing.seconds(gpus['busy_ns'].sum())}",
    ]
    if copy_time:
        copies = joined.by("memcpy")
        total, count = copies["total_ns"].sum(), copies["count"].sum()
        lines.append(
            f"copy time: tot={listing.seconds(total)} avg={listing.seconds(total / max(count, 1))}"
        )
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    main()
