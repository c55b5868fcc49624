"""A folder served over HTTP by a thread of this process; some of its files are refused, or break off."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

from real_parts import need


class Handler(SimpleHTTPRequestHandler):
    """Refuses files called refused, and breaks off in those called broken."""

    def do_HEAD(self) -> None:
        if not self.refused():
            super().do_HEAD()

    def do_GET(self) -> None:
        if self.refused():
            return
        if "broken" in self.path:
            self.send_response(200)
            self.send_header("Content-Length", "1000000")
            self.end_headers()
            self.wfile.write(b"x" * 5000)
            self.close_connection = True
            return
        super().do_GET()

    def refused(self) -> bool:
        if "refused" in self.path:
            self.send_error(403)
        return "refused" in self.path

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on this machine, and give its host and port; the test is skipped if nothing could read it."""
    need("aiohttp", find_spec("aiohttp"), "aiohttp is not installed")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
