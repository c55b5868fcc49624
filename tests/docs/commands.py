"""docs/commands.md: what every command says of itself with --help-all."""

from __future__ import annotations

from collections.abc import Iterator

import click

from bridge.cli import main
from bridge.cli.help import ALL

from .pages import DOCS, Files

WIDTH = 78  # of click, in a terminal of 80 columns or more
HEAD = """# Commands

What `bridge COMMAND --help-all` prints, for every command; `--help` leaves rarely used options out. [Tables and commands](report.md) says what
the tables hold.
This page is made by `python -m tests.docs commands`.
"""


def files() -> Files:
    """Yield the page of commands."""
    whole = click.Context(main, info_name="bridge", **settings(main))
    parts = (section(name, said) for name, said in helps(whole))
    yield DOCS / "commands.md", "\n".join([HEAD, *parts])


def helps(context: click.Context) -> Iterator[tuple[str, str]]:
    """Give each command's name and what it says, a group before what is in it."""
    context.meta[ALL] = True
    yield context.command_path, context.get_help()
    group = context.command
    for name in group.list_commands(context) if isinstance(group, click.Group) else ():
        command = group.get_command(context, name)
        yield from helps(click.Context(command, parent=context, info_name=name, **settings(main)))


def settings(group: click.Group) -> dict:
    """Return how help is laid out: as the program does it, but of one width whatever the terminal."""
    return group.context_settings | {"terminal_width": WIDTH, "max_content_width": WIDTH}


def section(name: str, said: str) -> str:
    """Return the part of one command."""
    return f"## {name}\n\n```\n{said.rstrip()}\n```\n"
