"""``bridge scrub``: a copy of an export that may be shown to others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.cli import options, outputs

if TYPE_CHECKING:
    from importers.nsys.scrub import Removed


@click.command()
@click.argument("source", metavar="IN", type=options.FILE)
@click.argument("target", metavar="OUT", type=options.FILE)
@click.option("--force", is_flag=True, help="Replace an output that exists.")
def scrub(source: Path, target: Path, force: bool) -> None:
    """Copy the SQLite export IN (or an .nsys-rep) to OUT, without what says who ran it, where, and with which secrets.

    Gone are environment variables, command lines, names of host and user, paths, and what processes printed;
    names of ranges, kernels, calls and threads stay, without folders and without what was found to be a secret.
    All tables and figures of bridge stay the same. IN is not changed.
    """
    from bridge.cli.progress import doing
    from bridge.output import whole
    from importers.nsys import export
    from importers.nsys.scrub import scrub as copied

    outputs.check(target, (source,), force=force)
    with doing("copying"), whole(target, force=force) as draft:
        if source.suffix in export.SUFFIXES:
            with export.exported(source) as exported:
                removed = copied(exported, draft)
        else:
            removed = copied(source, draft)
    click.echo(f"{target}: a copy without\n{_said(removed)}", nl=False)


def _said(removed: Removed) -> str:
    from importers.nsys import schema

    lines = [
        f"{count} rows of {table} ({schema.EMPTIED[table]})"
        for table, count in removed.rows.items()
    ]
    if removed.variables:
        lines.append(f"in them {removed.variables} environment variables")
    if removed.texts:
        lines.append(f"{removed.texts} texts that nothing in it refers to")
    lines += [f"{count} texts in {place}" for place, count in removed.values.items()]
    if removed.cleaned:
        lines.append(f"folders, hosts, users or secrets in {removed.cleaned} names that stay")
    lines = lines or ["nothing: there was nothing to remove"]
    return "".join(f"  {line}\n" for line in lines)
