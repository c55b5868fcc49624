"""The command ``bridge``: one module per subcommand, which is imported when it is called."""

from __future__ import annotations

import errno
import os
import signal
import sys
from importlib import import_module
from itertools import groupby
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

from bridge.cli import completion  # noqa: F401 - it registers the script of fish
from bridge.cli.catalog import CATALOG, COMMANDS
from bridge.cli.help import WIDEST, option
from bridge.cli.hints import run_called, with_report
from bridge.cli.terminal import harmless
from bridge.cli.unknown_names import Group, no_such_report, suggest_option
from bridge.knowledge.package import VERSION

DEBUG = "bridge.debug"  # key in the meta data of a context: whether --debug was given
# A group without a subcommand: its message is its help. None before click 8.2.
NoArgsIsHelp: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())


class Commands(Group):
    """Imports subcommands by name, and turns failures of users into one line and an exit status."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of the subcommands, as help shows them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a subcommand, None if there is none of that name."""
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            name = "import_" if cmd_name == "import" else cmd_name.replace("-", "_")
            self.add_command(getattr(import_module(f"bridge.cli.{name}"), name))
        return super().get_command(ctx, cmd_name)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a subcommand without loading any, or an option."""
        if incomplete and not incomplete[0].isalnum():
            return super().shell_complete(ctx, incomplete)
        return [
            CompletionItem(entry.name, help=entry.summary)
            for entry in CATALOG
            if entry.name.startswith(incomplete)
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """Write the subcommands by section, without loading them."""
        width = max(len(name) for name in COMMANDS)
        for section, entries in groupby(CATALOG, lambda entry: entry.section):
            with formatter.section(section):
                formatter.write_dl([(f"{e.name:{width}}", e.summary) for e in entries])

    def make_context(self, *words: Any, **more: Any) -> click.Context:
        """Parse the command line; prints help and the version."""
        try:
            return super().make_context(*words, **more)
        except OSError as error:
            raise _failure_of(error) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run a subcommand."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            _improve(error, ctx)
            _print_causes(error, ctx)
            raise
        except (click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt as stop:
            _print_causes(stop, ctx)  # where the command was
            click.echo("interrupted; nothing half-written was left", err=True)
            ctx.exit(128 + (stop.args[0] if stop.args else signal.SIGINT))
        except OSError as error:
            _print_causes(error, ctx)
            raise _failure_of(error) from error
        except _failures() as error:  # imported only now: they import pandas
            _print_causes(error, ctx)
            failure = click.ClickException(
                harmless(with_report(_text(error, ctx), ctx, whole=True))
            )
            vars(failure).update(exit_code=getattr(error, "status", 1))
            raise failure from error


def _failures() -> tuple[type[Exception], ...]:
    """Return the errors whose messages are for the user."""
    from bridge.importers.errors import ReportError
    from bridge.knowledge.package import UserError

    return (ReportError, UserError)


def _failure_of(error: OSError) -> Exception:
    """Return the failure of an output as a line for the user."""
    if error.errno == errno.EPIPE:  # `| head`: click exits without a message
        return error
    _let_go_of_stdout()
    reason = "closed" if error.errno == errno.EBADF else error.strerror or error
    return click.ClickException(harmless(f"{error.filename or 'standard output'}: {reason}"))


def _print_causes(error: BaseException, context: click.Context) -> None:
    """Print with --debug the traceback of an error, which the user else gets one line of, and of its causes."""
    if context.meta.get(DEBUG):
        from bridge.scale.debugging import causes

        click.echo(causes(error), nl=False, err=True)


def _improve(error: click.ClickException, context: click.Context) -> None:
    """Make the message of an error harmless, and suggest options that were meant."""
    if isinstance(error, click.NoSuchOption):
        suggest_option(error)
    if not isinstance(error, NoArgsIsHelp):
        vars(error).update(message=harmless(with_report(error.message, context, whole=True)))


def _text(error: Exception, context: click.Context) -> str:
    """Return the message of a failure; that of a file that does not exist names the reports like it."""
    from bridge.importers.errors import NoSuchReport

    if not isinstance(error, NoSuchReport):
        return str(error)
    run = run_called(str(error.path), context)
    return f"{error.path}: no such file; {run}" if run else no_such_report(error.path)


def _let_go_of_stdout() -> None:
    """Discard what is left in the buffer of stdout; flushing it at exit would fail again."""
    if sys.stdout is sys.__stdout__:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _stop(number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt(number)


def _print_includes(context: click.Context, _: click.Parameter, is_asked: bool) -> None:
    """Print the options of a C or C++ compiler that find the headers."""
    if not is_asked or context.resilient_parsing:
        return
    from shlex import quote

    from bridge.annotate.headers import include_folders

    click.echo(" ".join(f"-I{quote(folder)}" for folder in include_folders()))
    context.exit()


def _debug(context: click.Context, _: click.Parameter, is_asked: bool) -> None:
    """Print the log of the rooms until the command ends."""
    if not is_asked or context.resilient_parsing:
        return
    from bridge.scale.debugging import logged  # `logging` takes time that few commands need

    context.meta[DEBUG] = True
    context.with_resource(logged())


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDEST},
)
@click.version_option(VERSION, prog_name="nsight-bridge")
@option(
    "--includes",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_includes,
    help="Print the compiler's options for nsight_bridge.h, and exit.",
)
@click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    callback=_debug,
    envvar="BRIDGE_DEBUG",
    show_envvar=True,
    help="Print on stderr what is read, chosen and skipped, and the traceback of an error.",
)
def main() -> None:
    """Join deep-learning ops to the CUDA kernels they launch, from Nsight reports.

    \b
    bridge run train.py                       profile with nsys; @nvtx_op annotates the ops
    bridge import report.nsys-rep             store and summarize a report (run does so too)
    bridge report --by op-kernel --top 20     look closer
    bridge trace -o trace.json.gz             draw one timeline, for ui.perfetto.dev
    """  # noqa: D301 - the backspace keeps click from filling the lines
    # From here on, an interrupt removes half-written files, and SIGTERM ends like one.
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _stop)
