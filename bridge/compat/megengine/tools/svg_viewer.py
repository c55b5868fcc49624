"""``python -m bridge.compat.megengine.tools.svg_viewer``: show the drawings of a folder in a browser."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from functools import partial
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

FOUND, MISSING = 200, 404
HTML, SVG = "text/html; charset=utf-8", "image/svg+xml"


class Viewer(BaseHTTPRequestHandler):
    """Answers with the list of the drawings in one folder, and with each drawing; nothing else."""

    def __init__(self, *args: Any, folder: Path) -> None:
        self.folder = folder
        super().__init__(*args)

    def do_GET(self) -> None:
        """Answer a request."""
        name = unquote(self.path.partition("?")[0].removeprefix("/"))
        drawings = {path.name: path for path in sorted(self.folder.glob("*.svg"))}
        if not name:
            self._answer(FOUND, HTML, page(list(drawings)).encode())
        elif name in drawings:
            self._answer(FOUND, SVG, drawings[name].read_bytes())
        else:
            self._answer(MISSING, HTML, b"no such drawing")

    def log_message(self, *_: Any) -> None:
        """Write nothing."""

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        # A drawing is shown, and no script in it is run.
        self.send_header(
            "Content-Security-Policy",
            "default-src 'none'; style-src 'unsafe-inline'; img-src 'self'",
        )
        self.end_headers()
        self.wfile.write(body)


def page(names: list[str]) -> str:
    """Return the page that lists drawings."""
    items = "".join(f'<li><a href="/{quote(name)}">{escape(name)}</a></li>' for name in names)
    return f"<!doctype html><title>memory flow</title><ul>{items or '<li>no .svg files</li>'}</ul>"


def server(address: str, port: int, folder: Path) -> ThreadingHTTPServer:
    """Return a server of the drawings in a folder. Raises OSError if the port is taken."""
    return ThreadingHTTPServer((address, port), partial(Viewer, folder=folder))


def main(arguments: list[str] | None = None) -> None:
    """Serve the drawings of a folder until interrupted."""
    parser = ArgumentParser(prog="python -m bridge.compat.megengine.tools.svg_viewer")
    parser.add_argument("-p", "--port", type=int, default=8000)
    parser.add_argument("-a", "--address", default="localhost")
    parser.add_argument("folder", nargs="?", type=Path, default=Path("profile"))
    request = parser.parse_args(arguments)
    folder = request.folder if request.folder.is_dir() else Path()
    try:
        with server(request.address, request.port, folder) as serving:
            sys.stdout.write(f"open http://{request.address}:{serving.server_address[1]}/\n")
            sys.stdout.flush()
            serving.serve_forever()
    except OSError as error:
        sys.exit(f"{request.address}:{request.port}: {error.strerror}")
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
