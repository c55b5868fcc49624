"""``bridge cache``: the exports of .nsys-rep files that are kept."""

from __future__ import annotations

import time

import click

from bridge.cli.help import Command, option
from bridge.knowledge.package import UserError


@click.command(cls=Command, examples=("bridge cache", "bridge cache --clear"))
@option("--clear", is_flag=True, help="Remove them all.")
def cache(clear: bool) -> None:
    """List the exports of .nsys-rep files that are kept, so that nsys exports each report once.

    They are in $XDG_CACHE_HOME/nsight-bridge (~/.cache/nsight-bridge). Together they take at most
    $BRIDGE_CACHE_LIMIT GiB (10); those that were not read for longest are removed first.
    With --no-cache or BRIDGE_CACHE=off a command reads none and keeps none.
    """
    from bridge.importers.nsys import export_cache
    from bridge.render import units
    from bridge.render.table import clean

    folder = export_cache.location()
    if folder is None:
        raise UserError("no cache: neither $XDG_CACHE_HOME nor $HOME names a folder")
    if folder.exists() and not export_cache.is_private():
        raise UserError(f"{folder}: not used, as other users can write to it; chmod go-w it")
    if clear:
        click.echo(f"removed {units.size(export_cache.clear())}")
    kept = export_cache.entries()
    total, limit = (units.size(n) for n in (sum(e.size for e in kept), export_cache.limit()))
    click.echo(f"{folder}: {len(kept)} exports, {total} of at most {limit}")
    for entry in kept:
        read = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used))
        click.echo(
            f"  {read}  {units.size(entry.size):>10}  {entry.form:<8}  {clean(entry.report)}"
        )
