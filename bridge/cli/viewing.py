"""Handing one file to a page in the browser: a server on this machine alone, until the file is fetched.

Perfetto's UI opens ``#!/?url=http://127.0.0.1:9001/…``; its content security policy allows that port alone.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
import shutil
import sys
import time
import webbrowser
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import urlsplit

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
