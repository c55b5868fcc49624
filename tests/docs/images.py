"""Pictures of a report: its page in light and dark, and one step of it in Perfetto, by the real viewers.

The report should have steps; the pictures in the repository are of a training on MNIST.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import real_parts

import bridge
from bridge import exports
from bridge.analyze.core.time_range import step_windows
from bridge.analyze.draw.timeline import Selection

from .pages import DOCS, Files

READY = "() => document.documentElement.hasAttribute('data-ready')"
SIZE = {"width": 1280, "height": 1180}
LAUNCH = (
    "select id from slice where category = 'api' and name like 'cudaLaunchKernel%'"
    " order by ts limit 1 offset 12"
)


def add_arguments(parser: ArgumentParser) -> None:
    """Ask for the report."""
    parser.add_argument("report", metavar="REPORT.sqlite")
    parser.add_argument("--step", type=int, default=3, help="the step in Perfetto; 3 by default")


def files(report: str, step: int = 3) -> Files:
    """Yield the pictures."""
    chromium = real_parts.find_chromium()
    joined = bridge.load(report)
    with TemporaryDirectory() as name:
        folder = Path(name)
        exports.page([joined.attributed], folder / "page.html")
        for scheme, picture in pages(chromium, folder / "page.html"):
            yield DOCS / "images" / f"page-{scheme}.png", picture
        one = Selection((step_windows(joined.attributed, step, step),))
        joined.export_trace(folder / "trace.pftrace", selection=one)
        perfetto(chromium, folder / "trace.pftrace", folder / "trace.png")
        yield DOCS / "images" / "trace.png", (folder / "trace.png").read_bytes()


def pages(chromium: str, page: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the page as it opens in a light and in a dark browser."""
    from playwright.sync_api import sync_playwright  # few have a browser
    from viewers.ui import QUIET

    with sync_playwright() as parts:
        browser = parts.chromium.launch(executable_path=chromium, args=QUIET)
        for scheme in ("light", "dark"):
            context = browser.new_context(color_scheme=scheme, viewport=SIZE, bypass_csp=True)
            tab = context.new_page()
            tab.goto(page.as_uri())
            tab.wait_for_function(READY)
            yield scheme, tab.screenshot()
        browser.close()


def perfetto(chromium: str, trace: Path, picture: Path) -> None:
    """Draw a step in Perfetto, a call selected, so that its arrows are drawn."""
    from viewers.ui import PerfettoUI

    with PerfettoUI(chromium, height=1280) as ui:
        ui.open(trace)
        ui.command("dev.perfetto.ExpandAllGroups")
        ui.select("slice", ui.sql(LAUNCH)[0]["id"])
        ui.shot(picture)
