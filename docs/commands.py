"""Write docs/commands.md: what every command says of itself with --help-all.

python docs/commands.py
"""

from collections.abc import Iterator
from pathlib import Path

import click

from bridge.cli import main
from bridge.cli.help import ALL

PAGE = Path(__file__).with_suffix(".md")
WIDTH = 78  # of click, in a terminal of 80 columns or more
HEAD = """# Commands

What `bridge COMMAND --help-all` prints, for every command; `--help` leaves rarely used options out. [Tables and commands](report.md) says what
the tables hold.
This page is made by `docs/commands.py`.
"""


def text() -> str:
    """Return the page."""
    whole = click.Context(main, info_name="bridge", **settings(main))
    return "\n".join([HEAD, *(section(name, said) for name, said in helps(whole))])


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


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
