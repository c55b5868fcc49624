"""``bridge view``: the trace in Perfetto's UI, or the report as a page, in the browser."""

from __future__ import annotations

import hmac
import os
import re
import secrets
import shutil
import socket
import sys
import time
import webbrowser
from contextlib import ExitStack
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from threading import Event
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from bridge.cli import ncu_option, options
from bridge.cli.html import write_page
from bridge.cli.progress import doing
from bridge.cli.trace import DRAWN

if TYPE_CHECKING:
    from bridge.join.choices import Choices


# -- Handing one file to a page in the browser: a server on this machine alone, until the file is fetched


HOST = "127.0.0.1"
PORT = 9001
UI = "https://ui.perfetto.dev"
STALLED_S = 60  # a connection that says nothing for so long is closed
LOOK_S = 0.25  # how often is looked whether to go on
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
ODD = re.compile(r"[^A-Za-z0-9._-]+")


class Handover(ThreadingHTTPServer):
    """Serves one file to one page, under a path that cannot be guessed; a context manager.

    ``ui`` is the page's address. Raises ValueError for no
    address, OSError if the port is taken.
    """

    daemon_threads = True

    def __init__(self, file: Path, ui: str = UI, port: int = PORT) -> None:
        self.origin = origin(ui)  # before a socket is there to be left open
        super().__init__((HOST, port), _Handler)
        self.file = file
        self.fetched = Event()
        self.ended = Event()  # set to end `serve`
        self.timeout = LOOK_S
        self._ui = ui.rstrip("/")
        self.hosts = {f"{name}:{self.server_port}" for name in (HOST, "localhost")}
        self.path = f"/{secrets.token_urlsafe(24)}/{ODD.sub('_', file.name)}"

    @property
    def address(self) -> str:
        """Where to point a browser."""
        return f"{self._ui}/#!/?url=http://{HOST}:{self.server_port}{self.path}"

    def serve(self, limit_s: float | None = None, *, keep: bool = False) -> bool:
        """Serve until the file was fetched whole, or for ever; tell whether it was fetched in time.

        Without a limit this waits as long as it takes.
        """
        last = None if limit_s is None else time.monotonic() + limit_s
        while not self.ended.is_set() and (keep or not self.fetched.is_set()):
            if not self.fetched.is_set() and last is not None and time.monotonic() > last:
                return False
            self.handle_request()
        return True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a page that went away in the midst: it may come again."""


class _Handler(BaseHTTPRequestHandler):
    server: Handover
    timeout = STALLED_S
    server_version = "bridge"
    sys_version = ""

    def do_GET(self) -> None:
        """Send the file."""
        if self._begun():
            with self.server.file.open("rb") as file:
                shutil.copyfileobj(file, self.wfile)
            self.wfile.flush()
            self.server.fetched.set()

    def do_HEAD(self) -> None:
        """Say how large the file is."""
        self._begun()

    def do_OPTIONS(self) -> None:
        """Allow the page, and no other, to ask: browsers inquire before they let a page reach this machine."""
        if self._allowed():
            self._head(HTTPStatus.NO_CONTENT, {"Access-Control-Allow-Methods": "GET, HEAD"})

    def _begun(self) -> bool:
        if not self._allowed():
            return False
        size = self.server.file.stat().st_size
        kind = {"Content-Type": "application/octet-stream", "X-Content-Type-Options": "nosniff"}
        self._head(HTTPStatus.OK, {**kind, "Content-Length": str(size)})
        return True

    def _allowed(self) -> bool:
        """Refuse who came by another name (DNS rebinding), from another page, or for another file."""
        if self.headers.get("Host") not in self.server.hosts:
            return self._refused(HTTPStatus.FORBIDDEN)
        if self.headers.get("Origin", self.server.origin) != self.server.origin:
            return self._refused(HTTPStatus.FORBIDDEN)
        if not hmac.compare_digest(self.path.encode(), self.server.path.encode()):
            return self._refused(HTTPStatus.NOT_FOUND)
        return True

    def _refused(self, status: HTTPStatus) -> bool:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()
        return False

    def _head(self, status: HTTPStatus, more: dict[str, str]) -> None:
        self.send_response(status)
        allowing = {
            "Access-Control-Allow-Origin": self.server.origin,
            "Access-Control-Allow-Private-Network": "true",
            "Vary": "Origin",
            "Cache-Control": "no-store",
        }
        for name, value in (allowing | more).items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing: the command says what there is to say."""


def origin(address: str) -> str:
    """Return what browsers call the origin of a page; raise ValueError for no address of the web."""
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise ValueError(f"{address}: not an address; give one like {UI}")
    return f"{parts.scheme}://{parts.netloc}".lower()


def opened(address: str) -> bool:
    """Open an address in the user's browser; tell whether there is one (one in the terminal is none)."""
    if sys.platform.startswith("linux") and not any(os.environ.get(name) for name in DISPLAYS):
        return False
    try:
        return webbrowser.open(address)
    except webbrowser.Error:
        return False


# -- ``bridge view``: the trace in Perfetto's UI, or the report as a page, in the browser


TRACE = ".pftrace"  # what is written of a report
READY = (".json", ".json.gz", ".pftrace")  # what is a trace already
LIMIT_S = 300  # for a browser that was opened; whoever comes by ssh may take as long as they like


@click.command()
@options.source
@click.option("--html", "page", is_flag=True, help="Open the HTML report instead of the trace.")
@click.option("--keep", is_flag=True, help="Serve the trace until interrupted, not once.")
@click.option("--no-browser", is_flag=True, help="Print the address, and open nothing.")
@click.option(
    "--ui", default=UI, show_default=True, help="Perfetto's UI: another one, such as your own."
)
@ncu_option.ncu
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
            joined = ncu_option.with_ncu(joined, ncu, choices)
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
    if not (browser and opened(page.as_uri())):
        click.echo(page)
