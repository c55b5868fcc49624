"""The output of a command: standard output or a file that is written whole, and its format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bridge.cli import options
from bridge.cli.help import output_option

if TYPE_CHECKING:
    from bridge.importers.remote import Location

F = TypeVar("F", bound=Callable[..., Any])

FOR_PEOPLE = ("table",), ("text",)  # the default formats of files with any suffix
# Suffixes of formats of other programs, or of other commands: a file of that name would not be what it says.
OTHER_FORMATS = frozenset(
    "csv html json jsonl md parquet feather arrow pdf png svg sqlite db tsv xls xlsx ods yaml yml xml gz"
    " pftrace".split()
)


@dataclass(frozen=True)
class Output:
    """A file, or standard output (``path`` is None), and a format.

    ``formats`` are the formats of the command, the default first; ``suffixes`` maps suffixes that
    differ from the name of their format.
    """

    path: Path | None
    force: bool = False
    given_format: str | None = None
    formats: Sequence[str] = ()
    suffixes: Mapping[str, str] = field(default_factory=dict)

    @property
    def to_terminal(self) -> bool:
        """Whether the text goes to standard output."""
        return self.path is None

    @property
    def format(self) -> str:
        """The format asked for, else that of the file's suffix, else the default."""
        if self.given_format or self.path is None:
            return self.given_format or self.formats[0]
        suffix = self.path.suffix.removeprefix(".")
        known = suffix if suffix in self.formats else self.formats[0]
        return self.suffixes.get(suffix, known)

    @property
    def is_for_people(self) -> bool:
        """Whether people see a table right away, on a terminal."""
        return (self.format,) in FOR_PEOPLE and options.is_on_terminal(to_terminal=self.to_terminal)

    def check(self, inputs: Sequence[Location]) -> None:
        """Refuse, before any work, a file that cannot be written, and one of the inputs even with --force.

        A table whose file has the suffix of another format is refused, too.
        """
        if self.path is not None and self.formats[:1] in FOR_PEOPLE and not self.given_format:
            suffix = self.path.suffix.removeprefix(".").lower()
            values = self.suffixes.values()
            known = [*(name for name in self.formats[1:] if name not in values), *self.suffixes]
            if suffix in OTHER_FORMATS.difference(known):
                listed = ", ".join(f".{name}" for name in known)
                page = "; bridge html writes pages" if suffix == "html" else ""
                raise click.UsageError(f"{self.path}: .{suffix} is not among {listed}{page}")
        check(self.path, inputs, force=self.force)

    def write(self, text: str, message: str) -> None:
        """Print a text, or write it to the file and print the message on stderr."""
        if self.path is None:
            click.echo(text, nl=False, color=options.look().color)
            return
        from bridge.output import write

        write(self.path, text, force=self.force)
        click.echo(f"{self.path}: {message}", err=True)


def check(output: Path | None, inputs: Sequence[Location], *, force: bool) -> None:
    """Refuse, before any work, a file that cannot be written, and an input even with --force."""
    from bridge.output import check

    if output is None:
        return
    files = [path for path in inputs if isinstance(path, Path)]
    if output.exists() and any(path.exists() and path.samefile(output) for path in files):
        raise click.UsageError(f"{output}: the report itself; name another output")
    check(output, force=force)


def output(
    formats: Sequence[str] = (), suffixes: Mapping[str, str] | None = None
) -> Callable[[F], F]:
    """Give a command its output options as one parameter ``output``; with ``--format`` if it has formats."""
    parameters = [
        output_option("-o", "--output", "path", type=options.FILE, help="Write to this file."),
        output_option("--force", is_flag=True, help="Replace an output that exists."),
    ]
    if formats:
        text = f"Default: {formats[0]}, or by -o's suffix."
        parameters.insert(
            0, output_option("--format", "given_format", type=click.Choice(formats), help=text)
        )
    build = partial(Output, formats=formats, suffixes=suffixes or {})
    return options.collected("output", build, *parameters)
