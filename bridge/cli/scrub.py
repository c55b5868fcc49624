"""``bridge scrub``: a copy of an export without private data."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.cli import options, outputs
from bridge.cli.help import Command, option
from bridge.cli.outputs import Output

if TYPE_CHECKING:
    from bridge.importers.nsys.scrub import Removals

SHOWN = 10  # words that look like secrets


class Texts(click.ParamType):  # type: ignore[type-arg] # generic in new versions of click only
    """A text, or with ``@`` the lines of a file."""

    name = "text"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[str]:
        """Return the texts."""
        if isinstance(value, list):  # converted before
            return value
        if not value.startswith("@"):
            return [value]
        try:
            lines = Path(value[1:]).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            self.fail(
                f"{value[1:]}: {getattr(error, 'strerror', None) or 'not a text file'}", param, ctx
            )
        return [line.strip() for line in lines if line.strip()]


@click.command(
    cls=Command,
    examples=(
        "bridge scrub report.sqlite public.sqlite",
        "bridge scrub report.nsys-rep -o public.sqlite",
        "bridge scrub report.sqlite public.sqlite --also project-x --strict",
    ),
)
@click.argument("source", metavar="IN", type=options.FILE)
@click.argument("target", metavar="[OUT]", type=options.FILE, required=False)
@option(
    "--also",
    metavar="TEXT",
    multiple=True,
    type=Texts(),
    help="Remove this text, too, wherever it occurs; @FILE: each line of a file.",
)
@option(
    "--keep",
    metavar="TEXT",
    multiple=True,
    type=Texts(),
    help="Keep this text, though it looks like a secret; @FILE: each line of a file.",
)
@option(
    "--strict",
    is_flag=True,
    help="Fail if a text that looks like a secret would remain.",
    section="Workers",
    rare=True,
)
@options.no_cache_option
@outputs.output()
def scrub(
    source: Path,
    target: Path | None,
    also: tuple[list[str], ...],
    keep: tuple[list[str], ...],
    strict: bool,
    output: Output,
) -> None:
    """Copy the SQLite export IN (or an .nsys-rep) to OUT (or -o OUT) without private data and secrets.

    Removed are environment variables, command lines, names of host and user, paths, and the output
    of processes. Names of ranges, kernels, calls and threads stay, without folders, without what the
    environment tells, and without tokens and addresses. All tables and figures of bridge stay the
    same. IN is not changed. The command ends with a list of what was removed, and of what remains
    and looks like a secret.
    """
    from bridge.cli.options import doing
    from bridge.importers.errors import NoSuchReport
    from bridge.importers.nsys import export
    from bridge.importers.nsys.export_cache import read_export
    from bridge.importers.nsys.scrub import scrub as copied
    from bridge.output import whole

    if (target is None) == (output.path is None):
        raise click.UsageError("name one output: OUT, or -o OUT")
    target = target or output.path
    assert target is not None
    if not source.exists():
        raise NoSuchReport(source)
    outputs.check(target, (source,), force=output.force)
    words = {"also": [*chain(*also)], "keep": [*chain(*keep)]}

    def copy(database: Path) -> Removals:
        draft.write_bytes(b"")  # of what an export left there that turned out to be damaged
        return copied(database, draft, **words, strict=strict)

    with doing("copying"), whole(target, force=output.force) as draft:
        if source.suffix in export.SUFFIXES:
            removed = read_export(source, copy, (export.SQLITE,), options.PRINTER)
        else:
            removed = copy(source)
    click.echo(f"{target}: a copy without\n{_removals(removed)}\n{_suspicious(removed)}", nl=False)


def _removals(removed: Removals) -> str:
    from bridge.importers.nsys import schema

    lines = [
        f"{count} rows of {table} ({schema.EMPTIED_TABLES[table]})"
        for table, count in removed.rows.items()
    ]
    if removed.variables:
        lines.append(f"in them {removed.variables} environment variables")
    if removed.texts:
        lines.append(f"{removed.texts} texts that nothing in it refers to")
    lines += [f"{count} texts in {place}" for place, count in removed.values.items()]
    lines = lines or ["nothing: there was nothing to remove"]
    if removed.replaced:
        lines.append("in names that stay:")
        width = max(len(str(count)) for count in removed.replaced.values())
        lines += [f"  {count:>{width}} × {kind}" for kind, count in removed.replaced.items()]
    return "".join(f"  {line}\n" for line in lines)


def _suspicious(removed: Removals) -> str:
    """Return the words that stay and look like secrets, the first ones by name."""
    words = removed.suspicious
    if not words:
        return "no text that remains looks like a secret\n"
    width = max(len(word) for word in list(words)[:SHOWN])
    lines = [
        f"  {word:<{width}}  in {n} text{'s' * (n > 1)}\n"
        for word, n in list(words.items())[:SHOWN]
    ]
    more = f"  … and {len(words) - SHOWN} more\n" if len(words) > SHOWN else ""
    return (
        f"{len(words)} words remain that look like secrets (--also removes, --keep accepts one):\n"
        f"{''.join(lines)}{more}"
    )
