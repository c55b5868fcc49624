"""``bridge view``: the trace in Perfetto's UI, or the report as a page, in the browser."""

from __future__ import annotations

import hmac
import json
import os
import re
import secrets
import shutil
import socket
import sys
import time
import webbrowser
from contextlib import ExitStack
from dataclasses import replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from threading import Event
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import click

from bridge.capture.tool import search_path
from bridge.cli import options
from bridge.cli.help import Command, option
from bridge.cli.html import write_page
from bridge.cli.options import doing
from bridge.cli.trace import DRAWN
from bridge.output import file_name

if TYPE_CHECKING:
    from bridge.importers.remote import Location
    from bridge.source import ReportInput


# -- A server for one file, on this machine only, until the file is fetched


HOST = "127.0.0.1"
PORT = 9001
UI = "https://ui.perfetto.dev"
STALLED_S = 60  # silent connections are closed after that
LOOK_S = 0.25  # interval of checks whether to go on
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
ODD = re.compile(r"[^A-Za-z0-9._-]+")
# The UI opens with all groups collapsed; it runs these commands once the trace is loaded.
STARTUP_COMMANDS = ({"id": "dev.perfetto.ExpandTracksByRegex", "args": ["."]},)


class Handover(ThreadingHTTPServer):
    """Serves one file to one page, at a path that cannot be guessed; a context manager.

    ``ui`` is the address of the page. Raises ValueError for an invalid address, OSError if the port
    is taken.
    """

    daemon_threads = True

    def __init__(self, file: Path, ui: str = UI, port: int = PORT) -> None:
        self.origin = origin(ui)  # before the socket is opened
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
        """The address to open in a browser, with the commands that expand all groups."""
        commands = quote(json.dumps(STARTUP_COMMANDS, separators=(",", ":")))
        file = f"http://{HOST}:{self.server_port}{self.path}"
        return f"{self._ui}/#!/?url={file}&startupCommands={commands}"

    def serve(self, limit_s: float | None = None, *, keep: bool = False) -> bool:
        """Serve until the file was fetched, or with ``keep`` until the server is ended.

        Return whether the file was fetched within ``limit_s`` seconds; None sets no limit.
        """
        last = None if limit_s is None else time.monotonic() + limit_s
        while not self.ended.is_set() and (keep or not self.fetched.is_set()):
            if not self.fetched.is_set() and last is not None and time.monotonic() > last:
                return False
            self.handle_request()
        return True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a page that closes the connection early: it may come again."""


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
        """Send the size of the file."""
        self._begun()

    def do_OPTIONS(self) -> None:
        """Allow the page, and no other, to fetch: browsers ask before a page may connect to this machine."""
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
        """Refuse other host names (DNS rebinding), other pages and other files."""
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
        """Print nothing: the command prints its own messages."""


def origin(address: str) -> str:
    """Return the origin of a page, as browsers call it. Raises ValueError for an invalid address."""
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise ValueError(f"{address}: not an address; give one like {UI}")
    return f"{parts.scheme}://{parts.netloc}".lower()


def opened(address: str) -> bool:
    """Open an address in the user's graphical browser; tell whether there is one."""
    if sys.platform.startswith("linux") and not any(os.environ.get(name) for name in DISPLAYS):
        return False
    whole_path = os.environ.get("PATH")
    os.environ["PATH"] = search_path()  # no browser of the working directory
    try:
        return webbrowser.open(address)
    except webbrowser.Error:
        return False
    finally:
        if whole_path is None:
            del os.environ["PATH"]
        else:
            os.environ["PATH"] = whole_path


# -- The command


TRACE = ".pftrace"  # suffix of the traces written here
READY = (".json", ".json.gz", ".pftrace")  # suffixes of traces
LIMIT_S = 300  # limit for a browser opened here; over ssh there is none


@click.command(
    cls=Command,
    examples=(
        "bridge view report.sqlite",
        "bridge view report.sqlite --html",
        "bridge view trace.json.gz",
    ),
)
@options.report_input
@option("--html", "page", is_flag=True, help="Open the HTML report instead of the trace.")
@option("--keep", is_flag=True, help="Serve the trace until interrupted, not once.")
@option("--no-browser", is_flag=True, help="Print the address, and open nothing.")
@option("--ui", default=UI, show_default=True, help="Perfetto's UI: another one, such as your own.")
@options.ncu_option
def view(
    source: ReportInput,
    ncu: tuple[Path, ...],
    page: bool,
    keep: bool,
    no_browser: bool,
    ui: str,
) -> None:
    """Open the timeline of REPORTS (or of a run of the store) in Perfetto's UI.

    The browser fetches it from this machine, and sends it nowhere. A trace (.json, .json.gz,
    .pftrace) is opened as it is.
    """
    if page and (keep or ui != UI):
        raise click.UsageError("--html opens a file: it goes without --keep and --ui")
    if ncu and _ready(source.reports):
        raise click.UsageError("--ncu goes with a report, not with a trace")
    if page:
        output = Path(mkdtemp(prefix="bridge-view-")) / file_name(_name(source), ".html")
        write_page(output, source, ncu)
        _open(output, browser=not no_browser)
        return
    with ExitStack() as parts:
        ready = _ready(source.reports)
        folder = Path(parts.enter_context(TemporaryDirectory(prefix="bridge-view-")))
        file = ready or folder / file_name(_name(source), TRACE)
        server = parts.enter_context(_bound(file, ui))  # first: the port may be taken
        if not ready:
            report = options.load(replace(source, ncu=ncu), DRAWN)
            with doing("drawing the timeline"):
                report.export_trace(file)
        _hand_over(server, keep=keep, browser=not no_browser)


def _ready(reports: tuple[Location, ...]) -> Path | None:
    """Return the report if it is a trace already."""
    if len(reports) != 1 or not reports[0].name.endswith(READY):
        return None
    [path] = options.local_reports(reports)
    if not path.is_file():
        from bridge.importers.errors import NoSuchReport

        raise NoSuchReport(path)
    return path


def _name(source: ReportInput) -> str:
    if source.reports:
        return Path(source.reports[0].name).stem
    return "newest run" if source.run is None else f"run {source.run}"


def _bound(file: Path, ui: str) -> Handover:
    """Take the port that the UI may connect to."""
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
    """Print the address, open it in a browser if there is one, and serve."""
    click.echo(server.address)
    is_open = browser and opened(server.address)
    if not is_open:
        click.echo(
            "open this address in a browser; from another machine first connect with"
            f" ssh -L {PORT}:{HOST}:{PORT} {socket.gethostname()}",
            err=True,
        )
    until = "interrupted" if keep else "the trace is fetched"
    click.echo(f"serving on {HOST}:{PORT} until {until}; Ctrl-C ends it", err=True)
    try:
        served = server.serve(LIMIT_S if is_open else None, keep=keep)
    except KeyboardInterrupt:
        if keep:  # ended by the user
            return
        raise
    if not served:
        raise click.ClickException(
            f"no browser fetched the trace in {LIMIT_S} s; open the address yourself: --no-browser"
        )


def _open(page: Path, *, browser: bool) -> None:
    """Open a page, or print where it is."""
    if not (browser and opened(page.as_uri())):
        click.echo(page)
