"""Catapult, the viewer behind chrome://tracing, in headless Chromium: what it makes of a trace.

viztracer carries the viewer's page; the one old library that this asks a server for is npm's webcomponents.js.
A trace is imported as chrome://tracing does when a file is chosen, and its model is read.
"""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self

from playwright.sync_api import Route, sync_playwright

HOME = "http://viewer.invalid/"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]
OUTSIDE = re.compile(r"<(?:script|link)[^>]*https://[^>]*>(?:</script>)?")
START = """
<script>
window.__hideTraceViewerPolyfillWarning = true;
document.addEventListener('WebComponentsReady', () => {
    const viewer = document.createElement('tr-ui-timeline-view');
    const container = document.createElement('track-view-container');
    container.id = 'track_view_container';
    viewer.track_view_container = container;
    Polymer.dom(viewer).appendChild(container);
    viewer.id = 'trace-viewer';
    viewer.globalMode = true;
    Polymer.dom(document.body).appendChild(viewer);
    window.ready = true;
});
</script>
"""
LOAD = """async (packed) => {
    const answer = await fetch('/trace');
    const trace = packed ? await answer.arrayBuffer() : await answer.text();
    const model = new tr.Model();
    await new tr.importer.Import(model).importTracesWithProgressDialog([trace]);
    const viewer = document.getElementById('trace-viewer');
    viewer.model = model;
    while (viewer.model !== model) await new Promise(done => setTimeout(done, 20));
}"""
# Numbers by which events are known to each other are their places in these lists.
READ = """() => {
    const model = document.getElementById('trace-viewer').model;
    const ns = time => Math.round(time * 1e6), places = new Map();
    const slices = [], phases = [], counters = [], tracks = [], processes = [];
    const place = slice => places.get(slice) ?? -1;
    for (const process of model.getAllProcesses()) {
        processes.push([process.pid, process.name]);
        for (const thread of Object.values(process.threads)) {
            const track = tracks.push([process.name, thread.name]) - 1;
            const add = (list, s) => list.push(
                [track, s.category, s.title, ns(s.start), ns(s.duration), s.parentSlice, s.args]) - 1;
            for (const s of thread.sliceGroup.slices) places.set(s, add(slices, s));
            for (const s of thread.asyncSliceGroup.slices) add(phases, s);
        }
        for (const counter of Object.values(process.counters)) for (const series of counter.series)
            counters.push([process.name, counter.name, series.samples.map(s => [ns(s.timestamp), s.value])]);
    }
    for (const s of slices) s[5] = place(s[5]);
    for (const s of phases) s[5] = -1;
    const flows = model.flowEvents.map(f => [f.category, place(f.startSlice), place(f.endSlice)]);
    const unfinished = [...places.keys()].filter(s => s.didNotFinish).length;
    const warnings = model.importWarnings.map(w => [w.type, w.message]);
    return JSON.stringify({slices, phases, counters, tracks, processes, flows, warnings, unfinished});
}"""


class Slice(NamedTuple):
    """A slice of a thread, or an asynchronous one; times in ns, the parent by its place among the slices."""

    track: int
    category: str
    title: str
    start: int
    duration: int
    parent: int
    args: dict[str, Any]


class Counter(NamedTuple):
    """A curve: (time in ns, value) in the order in which the viewer has its samples."""

    process: str
    name: str
    samples: list[list[float]]


class Flow(NamedTuple):
    """An arrow, from one slice to another, by their places."""

    category: str
    source: int
    target: int


class Model:
    """What the viewer made of a trace."""

    def __init__(self, read: dict[str, Any]) -> None:
        self.slices = [Slice(*s) for s in read["slices"]]
        self.phases = [Slice(*s) for s in read["phases"]]
        self.counters = [Counter(*c) for c in read["counters"]]
        self.flows = [Flow(*f) for f in read["flows"]]
        self.tracks = [tuple(names) for names in read["tracks"]]  # (process, thread) of each
        self.processes = read["processes"]
        self.warnings = [tuple(warning) for warning in read["warnings"]]
        self.unfinished = read["unfinished"]  # slices that begin and do not end


class Catapult:
    """A browser with the viewer: a context manager, of which `open` shows a trace."""

    def __init__(self, chromium: str, page: Path, library: Path, limit: float = 60) -> None:
        self._chromium, self._limit = chromium, limit
        self._home = inlined(page.read_text(encoding="utf-8"), library.read_text(encoding="utf-8"))
        self._trace = Path()
        self.errors: list[str] = []

    def __enter__(self) -> Self:
        with ExitStack() as parts:
            browsers = parts.enter_context(sync_playwright()).chromium
            browser = browsers.launch(executable_path=self._chromium, args=FLAGS)
            parts.callback(browser.close)
            self._page = browser.new_page(viewport={"width": 1500, "height": 900})
            self._page.set_default_timeout(self._limit * 1000)
            self._page.on("pageerror", lambda error: self.errors.append(str(error)))
            self._page.route("**/*", self._answer)
            self._page.goto(HOME)
            self._page.wait_for_function("() => window.ready")
            self._parts = parts.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._parts.close()

    def open(self, trace: Path) -> Model:
        """Load a trace in place of the last one, and read what the viewer has of it."""
        self.errors.clear()
        self._trace = trace
        self._page.evaluate(LOAD, trace.suffix == ".gz")
        return Model(json.loads(self._page.evaluate(READ)))

    def shot(self, path: Path) -> None:
        """Write a picture of the page."""
        self._page.screenshot(path=path)

    def _answer(self, route: Route) -> None:
        """Answer for the page and the trace; nothing else is reached."""
        match route.request.url.removeprefix(HOME):
            case "":
                route.fulfill(body=self._home, content_type="text/html; charset=utf-8")
            case "trace":
                route.fulfill(path=self._trace, content_type="application/octet-stream")
            case _:
                route.abort()


def inlined(page: str, library: str) -> str:
    """Return the viewer's page with the library in it, and nothing that is fetched from elsewhere."""
    return f"<script>{library}</script>" + OUTSIDE.sub("", page) + START
