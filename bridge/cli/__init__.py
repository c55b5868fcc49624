"""The command ``bridge``: one file per subcommand, loaded when it is asked for, each importing what it needs when it runs."""

from __future__ import annotations

import errno
import os
import signal
import sys
from importlib import import_module
from typing import Any, NoReturn

import click

from bridge.package import VERSION

LONGEST = 2_000  # characters of a message
COMMANDS = (
    *("demo", "doctor", "run", "import", "report", "diff", "html"),
    *("trace", "ranks", "flame", "view", "plot", "memory", "advise"),
    *("quality", "why", "runs", "onednn", "scrub", "bench"),
)


class Commands(click.Group):
    """Loads a subcommand by its name; turns every failure that a user can cause into one line and exit status 1."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a subcommand, None if there is none of the name."""
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            name = "import_" if cmd_name == "import" else cmd_name
            self.add_command(getattr(import_module(f"bridge.cli.{name}"), name))
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a subcommand."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            vars(error).update(message=_harmless(error.message))
            raise
        except (click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt as stop:
            click.echo("interrupted; nothing half-written was left", err=True)
            ctx.exit(128 + (stop.args[0] if stop.args else signal.SIGINT))
        except OSError as error:
            if error.errno == errno.EPIPE:  # `| head`: click ends quietly
                raise
            _let_go_of_stdout()
            where = error.filename or "standard output"
            message = f"{where}: {error.strerror or error}"
            raise click.ClickException(_harmless(message)) from error
        except _failures() as error:  # asked for only now: they cost the import of pandas
            raise click.ClickException(_harmless(str(error))) from error


def _failures() -> tuple[type[Exception], ...]:
    from bridge.output import OutputError
    from importers.errors import ReportError

    return (ReportError, OutputError)


def _harmless(message: str) -> str:
    """Return a message without what would command the terminal, for it may quote a file; of a long one the beginning."""
    shown = "".join(c if c.isprintable() or c == "\n" else " " for c in message[:LONGEST])
    return shown if len(message) <= LONGEST else f"{shown}…"


def _let_go_of_stdout() -> None:
    """Send what is left in its buffer nowhere, or its flush would fail once more at exit."""
    if sys.stdout is sys.__stdout__:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _stop(number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt(number)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="nsight-bridge")
def main() -> None:
    """Join deep-learning ops to the CUDA kernels they launch, from Nsight reports.

    \b
    bridge run train.py                       capture with nsys, the ops annotated with @nvtx_op
    bridge import report.nsys-rep             join, store, show the breakdown per op (run does so too)
    bridge report --by op-kernel --top 20     look closer
    bridge trace -o trace.json.gz             one timeline, for ui.perfetto.dev
    """  # noqa: D301 - the backspace keeps click from filling the lines
    # Ending like an interrupt lets half-written files be removed.
    signal.signal(signal.SIGTERM, _stop)
