"""Commands, options, values of options and reports that do not exist: what was meant, in one line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bridge.cli.completion import report_names
from bridge.cli.help import Command, help_all
from bridge.knowledge.suggestions import near_names, remedy, unknown_name

# What other tools call our commands and options.
COMMANDS: Mapping[str, str] = {
    "stats": "report",
    "show": "report",
    "table": "report",
    "compare": "diff",
    "profile": "run",
    "record": "run",
    "capture": "run",
    "export": "trace",
    "timeline": "trace",
    "list": "runs",
    "advice": "advise",
    "analyze": "advise",
    "open": "view",
}
OPTIONS: Mapping[str, str] = {
    "--limit": "--top",
    "--head": "--top",
    "--rows": "--top",
    "-n": "--top",
    "--group-by": "--by",
    "--view": "--by",
    "--order-by": "--sort",
    "--where": "--filter",
    "--select": "--columns",
    "--start": "--from",
    "--begin": "--from",
    "--end": "--to",
    "--iteration": "--step",
    "--threshold": "--fail-over",
    "--tolerance": "--noise",
    "--out": "--output",
    "--overwrite": "--force",
    "-f": "--force",
}


class Group(click.Group):
    """A group whose messages on unknown names suggest those that were meant."""

    command_class = Command

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, with ``--help-all``, which is the same as ``--help``: nothing is rare."""
        *own, last = super().get_params(ctx)
        return [*own, help_all(hidden=True), last]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a subcommand, None if there is none of that name."""
        command = super().get_command(ctx, cmd_name)
        for parameter in command.params if command is not None else ():
            if type(parameter.type) is click.Choice:
                parameter.type = Choice(parameter.type.choices)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return a subcommand, its name and its arguments."""
        name = str(args[0])
        if name.startswith("-") or ctx.resilient_parsing or self.get_command(ctx, name):
            return super().resolve_command(ctx, args)
        known = self.list_commands(ctx)
        if Path(name).exists():
            message = f"{name} is a file, no command: bridge summary {name}"
            raise click.UsageError(message, ctx)
        raise click.UsageError(
            unknown_name(
                "command",
                name,
                known=known,
                listed_by=f"{ctx.command_path} --help",
                synonyms=COMMANDS,
            ),
            ctx,
        )


if TYPE_CHECKING:
    AnyChoice = click.Choice[Any]
else:
    AnyChoice = click.Choice  # generic from click 8.2 on


class Choice(AnyChoice):
    """A choice whose message on another value suggests one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the choice that a value is; raises click.BadParameter if there is none."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            known = [str(choice) for choice in self.choices]
            self.fail(f"{value!r} is no choice{remedy(str(value), known)}", param, ctx)


def suggest_option(error: click.NoSuchOption) -> None:
    """Put the options that were meant into the message on an unknown option."""
    context = error.ctx
    if context is None:
        return
    parameters = context.command.get_params(context)
    known = [name for p in parameters for name in (*p.opts, *p.secondary_opts) if name[0] == "-"]
    message = _before_the_command(error.option_name, context) or unknown_name(
        "option",
        error.option_name,
        known=known,
        listed_by=f"{context.command_path} --help",
        synonyms=OPTIONS,
    )
    vars(error).update(message=message, possibilities=None)


def _before_the_command(option: str, context: click.Context) -> str:
    """Return the message on an option that stands before the command, '' for any other."""
    group = context.find_root()
    if context is group or all(option not in p.opts for p in group.command.params):
        return ""
    command = context.command_path.removeprefix(group.command_path).strip()
    return f"{option} stands before the command: {group.command_path} {option} {command}"


def no_such_report(path: Path) -> str:
    """Return the message on a report that does not exist, with the reports of its folder that are like it.

    Names are compared without suffixes: the same name with another suffix is like it.
    """
    if path.is_symlink():
        return f"{path}: a link that leads to no file"
    reports: dict[str, list[str]] = {}
    for name in report_names(path.parent):
        reports.setdefault(_stem(name), []).append(name)
    near = [name for stem in near_names(_stem(path.name), list(reports)) for name in reports[stem]]
    same_kind = [name for name in near if Path(name).suffix == path.suffix]
    names = " or ".join(str(path.with_name(name)) for name in same_kind or near)
    return f"{path}: no such file; {f'did you mean {names}?' if names else 'is the name right?'}"


def _stem(name: str) -> str:
    return name.partition(".")[0]
