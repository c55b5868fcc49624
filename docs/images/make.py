"""Make the pictures of the documentation from a report, with the real viewers.

    python docs/images/make.py REPORT.sqlite [STEP]

They show the report's page in light and dark, and one step of it in Perfetto. REPORT should have
steps; the pictures in the repository are of a training on MNIST.
"""

import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "tests"))

import real_parts
from playwright.sync_api import sync_playwright
from viewers.ui import QUIET, PerfettoUI

import bridge
from bridge import exports
from bridge.analyze.core.time_range import step_windows
from bridge.analyze.draw.timeline import Selection

READY = "() => document.documentElement.hasAttribute('data-ready')"
SIZE = {"width": 1280, "height": 1180}
LAUNCH = (
    "select id from slice where category = 'api' and name like 'cudaLaunchKernel%'"
    " order by ts limit 1 offset 12"
)


def pages(chromium, page):
    """The page, as it opens in a light and in a dark browser."""
    with sync_playwright() as parts:
        browser = parts.chromium.launch(executable_path=chromium, args=QUIET)
        for scheme in ("light", "dark"):
            context = browser.new_context(color_scheme=scheme, viewport=SIZE, bypass_csp=True)
            tab = context.new_page()
            tab.goto(page.as_uri())
            tab.wait_for_function(READY)
            tab.screenshot(path=HERE / f"page-{scheme}.png")
        browser.close()


def perfetto(chromium, trace):
    """A step, a call selected, so that its arrows are drawn."""
    with PerfettoUI(chromium, height=1280) as ui:
        ui.open(trace)
        ui.command("dev.perfetto.ExpandAllGroups")
        ui.select("slice", ui.sql(LAUNCH)[0]["id"])
        ui.shot(HERE / "trace.png")


def main(report, step="3"):
    chromium = real_parts.find_chromium()
    joined = bridge.load(report)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        exports.page([joined.attributed], folder / "page.html")
        pages(chromium, folder / "page.html")
        one = Selection((step_windows(joined.attributed, int(step), int(step)),))
        joined.export_trace(folder / "trace.pftrace", selection=one)
        perfetto(chromium, folder / "trace.pftrace")


if __name__ == "__main__":
    main(*sys.argv[1:])
