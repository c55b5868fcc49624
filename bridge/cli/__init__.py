"""The command ``bridge``: one file per subcommand, each importing what it needs when it runs."""

from __future__ import annotations

import signal
import sys
from typing import Any

import click

from bridge import __version__
from bridge.cli.demo import demo
from bridge.cli.import_ import import_
from bridge.cli.report import report
from bridge.cli.runs import runs
from bridge.cli.trace import trace


class Commands(click.Group):
    """Turns every failure that a user can cause into one line and exit status 1."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a subcommand."""
        from bridge.output import OutputError
        from importers.errors import ReportError

        try:
            return super().invoke(ctx)
        except (ReportError, OutputError) as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="nsight-bridge")
def main() -> None:
    """Join deep-learning ops to the CUDA kernels they launch, from Nsight reports.

    \b
    nsys profile -o report python train.py    capture, the ops annotated with @nvtx_op
    bridge import report.nsys-rep             join, store, show the breakdown per op
    bridge report --by op-kernel --top 20     look closer
    bridge trace -o trace.json.gz             one timeline, for ui.perfetto.dev
    """
    # Ending like an interrupt lets half-written files be removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


for command in (demo, import_, report, trace, runs):
    main.add_command(command)
