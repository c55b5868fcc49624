"""``bridge view``: the trace in Perfetto's UI, or the report as a page, in the browser."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import TYPE_CHECKING

import click

from bridge.cli import counters, options
from bridge.cli.html import write_page
from bridge.cli.progress import doing
from bridge.cli.trace import DRAWN

if TYPE_CHECKING:
    from bridge.cli.viewing import Handover
    from bridge.join.choices import Choices

TRACE = ".pftrace"  # what is written of a report
READY = (".json", ".json.gz", ".pftrace")  # what is a trace already
UI = "https://ui.perfetto.dev"
LIMIT_S = 300  # for a browser that was opened; whoever comes by ssh may take as long as they like


@click.command()
@options.source
@click.option("--html", "page", is_flag=True, help="Open the HTML report instead of the trace.")
@click.option("--keep", is_flag=True, help="Serve the trace until interrupted, not once.")
@click.option("--no-browser", is_flag=True, help="Print the address, and open nothing.")
@click.option(
    "--ui", default=UI, show_default=True, help="Perfetto's UI: another one, such as your own."
)
@counters.ncu
@options.choices
@options.sidecar
def view(  # noqa: PLR0913, PLR0917 - a parameter per option
    reports: tuple[Path, ...],
    db: Path,
    run: int | str | None,
    choices: Choices,
    sidecar: tuple[Path, ...],
    ncu: tuple[Path, ...],
    page: bool,
    keep: bool,
    no_browser: bool,
    ui: str,
) -> None:
    """Open the timeline of REPORTS (or of a run of the store) in Perfetto's UI.

    The browser fetches it from this machine, and sends it nowhere. A trace (.json, .json.gz, .pftrace)
    is opened as it is.
    """
    if page and (keep or ui != UI):
        raise click.UsageError("--html opens a file: it goes without --keep and --ui")
    if ncu and _ready(reports):
        raise click.UsageError("--ncu goes with a report, not with a trace")
    if page:
        output = Path(mkdtemp(prefix="bridge-view-")) / f"{_name(reports, run)}.html"
        write_page(output, reports, db, run, choices, sidecar, ncu)
        _open(output, browser=not no_browser)
        return
    with ExitStack() as parts:
        ready = _ready(reports)
        folder = Path(parts.enter_context(TemporaryDirectory(prefix="bridge-view-")))
        file = ready or folder / f"{_name(reports, run)}{TRACE}"
        server = parts.enter_context(_bound(file, ui))  # before the work: the port may be taken
        if not ready:
            joined = options.joined(reports, db, run, choices, DRAWN, sidecar)
            joined = counters.with_ncu(joined, ncu, choices)
            with doing("drawing the timeline"):
                joined.export_trace(file)
        _hand_over(server, keep=keep, browser=not no_browser)


def _ready(reports: tuple[Path, ...]) -> Path | None:
    """Return the one report if it is a trace already."""
    if len(reports) != 1 or not reports[0].name.endswith(READY):
        return None
    if not reports[0].is_file():
        raise click.ClickException(f"{reports[0]}: no such file")
    return reports[0]


def _name(reports: tuple[Path, ...], run: int | str | None) -> str:
    return reports[0].stem if reports else "newest run" if run is None else f"run {run}"


def _bound(file: Path, ui: str) -> Handover:
    """Take the port that the UI may ask."""
    from bridge.cli.viewing import HOST, PORT, Handover

    try:
        return Handover(file, ui)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--ui") from error
    except OSError as error:
        raise click.ClickException(
            f"{HOST}:{PORT}: {error.strerror or error}; Perfetto's UI asks no other port: end what"
            " has it (another bridge view, a trace_processor), or write the trace with bridge trace"
        ) from error


def _hand_over(server: Handover, *, keep: bool, browser: bool) -> None:
    """Say where to look, open a browser there if there is one, and serve."""
    from bridge.cli.viewing import HOST, PORT, opened

    click.echo(server.address)
    shown = browser and opened(server.address)
    if not shown:
        click.echo(
            "open this address in a browser; from another machine first connect with"
            f" ssh -L {PORT}:{HOST}:{PORT} {socket.gethostname()}",
            err=True,
        )
    until = "interrupted" if keep else "the trace is fetched"
    click.echo(f"serving on {HOST}:{PORT} until {until}; Ctrl-C ends it", err=True)
    try:
        served = server.serve(LIMIT_S if shown else None, keep=keep)
    except KeyboardInterrupt:
        if keep:  # as it was told to end
            return
        raise
    if not served:
        raise click.ClickException(
            f"no browser fetched the trace in {LIMIT_S} s; open the address yourself: --no-browser"
        )


def _open(page: Path, *, browser: bool) -> None:
    """Open a page, which stays in a folder of its own, or say where it is."""
    from bridge.cli.viewing import opened

    if not (browser and opened(page.as_uri())):
        click.echo(page)
