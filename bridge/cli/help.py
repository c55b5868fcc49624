"""The help of commands: examples first, options in sections, rarely used ones on request."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import click

from bridge.cli import hints
from bridge.cli.catalog import OTHERS, is_rare, sections

ALL = "bridge.help_all"  # key in the meta data of a context: whether every option is shown
TERM_WIDTH = 30  # of the names of options; text of longer ones begins on the next line
WIDEST = 120  # columns of help on a wide terminal


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
    """A command with ``examples``, and with options in the sections of `bridge.cli.catalog`."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.examples = examples
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
        """Write the options in their sections."""
        is_whole = bool(ctx.meta.get(ALL))
        shown = [
            (title, [option for option in options if is_whole or not self._is_rare(option)])
            for title, options in self._sections(ctx)
        ]
        parts = [(title, _records(ctx, options)) for title, options in shown if options]
        width = max((len(name) for _, rows in parts for name, _ in rows), default=0)
        for title, rows in parts:
            with formatter.section(title):  # all sections have the texts in one column
                formatter.write_dl(
                    [(f"{name:{min(width, TERM_WIDTH)}}", text) for name, text in rows]
                )
        if left := sum(self._is_rare(option) for option in self.params) if not is_whole else 0:
            formatter.write_paragraph()
            formatter.write_text(f"--help-all shows {left} more option{'s' if left > 1 else ''}.")

    def _sections(self, ctx: click.Context) -> Iterator[tuple[str, list[click.Option]]]:
        """Yield the sections in order, those of options that no table lists first and of help last."""
        options = {_name(o): o for o in self.params if isinstance(o, click.Option) and not o.hidden}
        places = [
            (title, [n for n in names if n in options]) for title, names in sections(str(self.name))
        ]
        listed = {name for _, names in places for name in names}
        yield OTHERS, [option for name, option in options.items() if name not in listed]
        for title, names in places:
            yield title, [options[name] for name in names]
        help_option = self.get_help_option(ctx)
        rare = any(self._is_rare(option) for option in self.params)
        yield "Help", [*([self.help_all] if rare else []), *([help_option] if help_option else [])]

    def _is_rare(self, option: click.Parameter) -> bool:
        return option.param_type_name == "option" and is_rare(str(self.name), _name(option))


def _name(option: click.Parameter) -> str:
    """Return the long name of an option, which tables use."""
    return max(option.opts, key=len)


def _records(ctx: click.Context, options: list[click.Option]) -> list[tuple[str, str]]:
    return [record for option in options if (record := option.get_help_record(ctx))]
