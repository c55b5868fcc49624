"""The help of commands: examples first, options in sections, rarely used ones on request."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import click

from bridge.cli import hints
from bridge.cli.catalog import OTHERS, SECTIONS

F = TypeVar("F", bound=Callable[..., Any])
ALL = "bridge.help_all"  # key in the meta data of a context: whether every option is shown
TERM_WIDTH = 30  # of the names of options; text of longer ones begins on the next line
WIDEST = 120  # columns of help on a wide terminal


class Option(click.Option):
    """An option that says where help shows it.

    ``section`` is the title above it, one of `SECTIONS`. There it stands as it is defined, or right below the option
    ``after`` where a command has that one. A ``rare`` one, which few people need, is shown by ``--help-all`` alone.
    """

    def __init__(
        self, *names: Any, section: str = OTHERS, after: str = "", rare: bool = False, **more: Any
    ) -> None:
        if section not in SECTIONS:
            raise ValueError(f"{section!r} is no section of bridge.cli.catalog")
        super().__init__(*names, **more)
        self.section, self.after, self.rare = section, after, rare


def option(*names: str, **settings: Any) -> Callable[[F], F]:
    """Return a decorator that adds an `Option`, as click.option does with these settings."""
    return click.option(*names, cls=Option, **settings)


rare_option = partial(option, rare=True)
# Options of the sections that several modules add to.
report_option = partial(option, section="Report")
attribution_option = partial(option, section="Attribution")
table_option = partial(option, section="Table")
row_option = partial(option, section="Rows")
output_option = partial(option, section="Output")


def _show_all(context: click.Context, _option: click.Parameter, given: bool) -> None:
    if given and not context.resilient_parsing:
        context.meta[ALL] = True
        click.echo(context.get_help(), color=context.color)
        context.exit()


def help_all(*, hidden: bool = False) -> click.Option:
    """Return the option ``--help-all``."""
    return click.Option(
        ["--help-all"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        hidden=hidden,
        callback=_show_all,
        help="Show every option.",
    )


class Command(click.Command):
    """A command with ``examples``, and with options in sections: those of ``first``, then `SECTIONS`."""

    def __init__(
        self, *args: Any, examples: Sequence[str] = (), first: Sequence[str] = (), **settings: Any
    ) -> None:
        super().__init__(*args, **settings)
        self.examples = examples
        self.first = first
        self.help_all = help_all()

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, with ``--help-all``."""
        *own, last = super().get_params(ctx)
        return [*own, self.help_all, last]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments, and keep those that select a report for the hints of messages."""
        raw, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        hints.remember(ctx, self, raw)
        return super().parse_args(ctx, args)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """Write what the command does, the examples, and the rest of the text."""
        first, _, rest = inspect.cleandoc(self.help or "").partition("\n\n")
        for text in (first, None, rest):
            if text is None:
                self._format_examples(formatter)
            elif text:
                formatter.write_paragraph()
                with formatter.indentation():
                    formatter.write_text(text)

    def _format_examples(self, formatter: click.HelpFormatter) -> None:
        if not self.examples:
            return
        with formatter.section("Examples"):
            for line in self.examples:
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in their sections, and how many are not shown."""
        options = _in_order(self.params)
        shown = [option for option in options if ctx.meta.get(ALL) or not option.rare]
        sections: dict[str, list[click.Option]] = {
            title: [option for option in shown if option.section == title]
            for title in (*self.first, *SECTIONS)
        }
        help_all = self.help_all if any(option.rare for option in options) else None
        sections["Help"] = [one for one in (help_all, self.get_help_option(ctx)) if one]
        parts = [(title, _records(ctx, listed)) for title, listed in sections.items() if listed]
        width = max((len(name) for _, rows in parts for name, _ in rows), default=0)
        for title, rows in parts:
            with formatter.section(title):  # all sections have the texts in one column
                formatter.write_dl(
                    [(f"{name:{min(width, TERM_WIDTH)}}", text) for name, text in rows]
                )
        if left := len(options) - len(shown):
            formatter.write_paragraph()
            formatter.write_text(f"--help-all shows {left} more option{'s' if left > 1 else ''}.")


def _in_order(parameters: Iterable[click.Parameter]) -> list[Option]:
    """Return the options as help shows them: as they are defined, but for those that stand after another."""
    ordered = [one for one in parameters if isinstance(one, Option) and not one.hidden]
    for option in tuple(ordered):
        above = next((other for other in ordered if option.after in other.opts), None)
        if above is not None:
            ordered.remove(option)
            ordered.insert(ordered.index(above) + 1, option)
    return ordered


def _records(ctx: click.Context, options: list[click.Option]) -> list[tuple[str, str]]:
    return [record for option in options if (record := option.get_help_record(ctx))]
