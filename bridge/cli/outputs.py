"""Where a command's text goes, and in which format: to standard output, or to a file that is written whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click

from bridge.cli import options

F = Callable[..., Any]
NO_OTHERS: Mapping[str, str] = MappingProxyType({})


def option(command: F) -> F:
    """Where a command writes to."""
    command = click.option("--force", is_flag=True, help="Replace an output that exists.")(command)
    return click.option("-o", "--output", type=options.FILE, help="Write to this file.")(command)


def formats(names: Sequence[str]) -> Callable[[F], F]:
    """In which of some formats; what is given is None where the user did not say."""
    text = f"Default: {names[0]}, or by -o's suffix."
    return click.option("--format", "form", type=click.Choice(names), help=text)


def form_of(
    form: str | None,
    output: Path | None,
    names: Sequence[str],
    others: Mapping[str, str] = NO_OTHERS,
) -> str:
    """Return the format asked for, else that of the file's suffix (``others``: suffixes unlike their format), else the first."""
    if form or output is None:
        return form or names[0]
    suffix = output.suffix.removeprefix(".")
    return others.get(suffix, suffix if suffix in names else names[0])


def check(output: Path | None, inputs: Sequence[Path], *, force: bool) -> None:
    """Refuse, before any work, what cannot be written, and one of the inputs, --force or not."""
    from bridge.output import check

    if output is None:
        return
    if output.exists() and any(path.exists() and path.samefile(output) for path in inputs):
        raise click.UsageError(f"{output}: the report itself; name another output")
    check(output, force=force)


def give(text: str, output: Path | None, said: str, *, force: bool) -> None:
    """Print a text, or write it to a file and say on standard error what is there."""
    if output is None:
        click.echo(text, nl=False, color=options.look().color)
        return
    from bridge.output import write

    write(output, text, force=force)
    click.echo(f"{output}: {said}", err=True)
